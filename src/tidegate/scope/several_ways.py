"""Messages of other nodes that come over several links (semantics, *Envelope*).

An id counts as seen at a target once it has been delivered there. So where links form a ring, who has been delivered a
message is remembered for the newest ones: a second copy goes to those only who have not had it. A copy that was
refused, because of the type or the level of its way, does not shadow a good one. What has gone on to another scope of
this node is not delivered there again when it comes over that one's own link.

Of older messages only the ids are known (`seen_ids`), and no copy is taken any more. Nor is one that monitors where it
enters or the journal would have to see again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidegate.gate import Plan
from tidegate.scope.delivered_once import Seen
from tidegate.scope.path import Path
from tidegate.scope.seen_ids import Id
from tidegate.scope.traversal import Traversal
from tidegate.session import LinkSession, Message, Session

if TYPE_CHECKING:
    from tidegate.scope.scope import Scope

MOST: Final = 5_000
"""Messages of which it is remembered. A copy that comes later is not taken."""


class Copies:
    """Who has been delivered what came over links that form a ring."""

    def __init__(self) -> None:
        self._seen: dict[Id, Seen] = {}  # the oldest first

    def another(self, id: Id, link: str) -> bool:
        """Whether it is known who has been delivered a message, which has not come over this link yet."""
        seen = self._seen.get((*id[:3], 0))
        return seen is not None and (link, id[3]) not in seen

    def of(self, id: Id, link: str) -> Seen:
        """Of a message that has come over a link. All its outputs are together."""
        key = (*id[:3], 0)
        seen = self._seen.get(key)
        if seen is None:
            if len(self._seen) >= MOST:
                del self._seen[next(iter(self._seen))]
            seen = self._seen[key] = set()
        seen.add((link, id[3]))
        return seen

    def forget(self, id: Id) -> None:
        """It may be delivered once more."""
        self._seen.pop((*id[:3], 0), None)


def link_path(scope: Scope, copies: Copies, ringed: bool) -> Path:
    """The path of what comes over a link. Guards have one of their own."""
    return SeveralWaysPath(scope, copies) if ringed and type(scope.path) is Path else scope.path


class SeveralWaysPath(Path):
    """The path of what comes over a link. Where it may come over others too, nobody is delivered it twice."""

    def __init__(self, scope: Scope, copies: Copies) -> None:
        self.__dict__.update(scope.path.__dict__)
        self._copies = copies

    def deliver(self, plan: Plan, message: Message, source: Session | None, root: Message | None = None) -> int:
        if not isinstance(source, LinkSession) or not source.ringed:
            return super().deliver(plan, message, source, root)
        scope, subject = self.scope, self.scope.gate.attributes.context(message).subject
        if scope.gate.watched:
            scope.audit.published(message, subject)
        id = subject.domain, message.origin.key, message.number, message.output
        seen = self._copies.of(id, source.inward.subject.client)
        reached = Traversal(message, source, seen).begin(scope, plan, message)
        if root is not None and root is not message:
            root.noted |= message.rows > 0 or message.noted or (message.retain and self.site.store.noted)
        return reached
