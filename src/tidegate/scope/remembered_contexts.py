"""Whose events a monitor's state comes from, and what it puts out (semantics, *Context and derived messages*).

An instance remembers the contexts whose events moved it since its start state. What it makes carries them, and so does
an event that another state would have suppressed or changed: whoever receives it must be allowed to by each of them.
So nobody learns from an output of an event that they may not read.

Invariants
- A message carries each context once, and its own only as its own.
- There are at most `PUBLISHERS` of them, on `TOPICS` topics; what comes from more (`TOO_MANY`) is not published.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tidegate.bounded import Bounded
from tidegate.policy import Action
from tidegate.session import Context, Message, SourceContext
from tidegate.session.context import unique

if TYPE_CHECKING:
    from tidegate.scope.scope import Scope

PUBLISHERS: Final = 16  # whose contexts one state may come from
TOPICS: Final = 128  # on which they published: as many as a sequence can have steps, and some more
KEPT: Final = 10_000  # contexts that were derived, for the next of the same kind

Sources = tuple[SourceContext, ...]
TOO_MANY: Final[Sources] = (SourceContext(b"", None),)

_OF_A_MESSAGE: Final = ("p.topic", "p.time", "p.qos", "p.size", "p.e")
_OF_A_TIME: Final = ("p.time", "p.e")


class RememberedContexts:
    """The contexts of messages as monitors of one scope remember them, by the rules in force."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self._known: Bounded[tuple[bytes, str, str, float | None], Sources] = Bounded(KEPT)
        self._carrying: Bounded[tuple[bytes, SourceContext, Sources], bytes | None] = Bounded(KEPT)
        self._harmless: Bounded[tuple[Sources, tuple[bytes, str]], bool] = Bounded(KEPT)
        self._timed = False  # conditions read when a message was published
        self._topical = False  # or anything else that differs from message to message of one publisher

    def change(self) -> None:
        """Other rules are in force."""
        self._known.clear()
        self._carrying.clear()
        self._harmless.clear()
        rules = self.scope.gate.rules
        reads = rules.preferences.reads  # those of other domains' people are asked one by one: see `of`
        if rules.policies is not None:
            reads |= rules.policies.reads(Action.READ) | rules.policies.reads(Action.WRITE)
        self._timed = _any_below(reads, _OF_A_TIME)
        self._topical = bool(rules.ceiling) or _any_below(reads, _OF_A_MESSAGE)

    # -- remembered by an instance -------------------------------------------------------------------------------

    def of(self, message: Message, link: str) -> Sources:
        """All contexts of a message, its own first. `link`: the type of the link that it came over."""
        gate = self.scope.gate
        context = gate.attributes.decoded(message.context)
        timed = self._timed or (
            context.foreign is not None and _any_below(gate.stages.owners.reads(context), _OF_A_TIME)
        )
        key = (message.context, message.topic, link, message.published if timed else None)
        sources = self._known.get(key)
        if sources is None:
            own = replace(context.called(message.topic), sealed=False, under=None, key=None, attested=b"", others=())
            others = (replace(other, link=other.link or link) for other in context.others)
            sources = self._known[key] = unique((SourceContext(own.encode(), link, key[-1]), *others))
        return sources

    def joined(self, before: Sources, sources: Sources, *, wound: bool) -> Sources:
        """What an instance remembers after another event. `wound`: that has only put off its timer, so it is enough to
        remember whose it was."""
        if before is TOO_MANY:
            return before
        if wound:
            known = {source.publisher for source in before}
            sources = tuple(source for source in sources if source.publisher not in known)
        together = unique((*before, *sources))
        return TOO_MANY if excessive(together) else together

    def harmless(self, sources: Sources, own: tuple[bytes, str] | None) -> bool:
        """Whether nothing is decided otherwise if its only publisher's next event carries them (`own`: its context, and
        the type of its link)."""
        if not sources:
            return True
        if own is None or self._topical:
            return False
        key = sources, own
        harmless = self._harmless.get(key)
        if harmless is None:
            harmless = self._harmless[key] = all(source.publisher == own for source in sources) and (
                self.scope.gate.stages.owners.cache_key(sources[0].context.subject) is None
            )
        return harmless

    def restored(self, stored: Iterable[object]) -> Sources:
        """What the store kept; the version before had the contexts alone."""
        sources: list[SourceContext] = []
        for each in stored:
            if isinstance(each, bytes):
                subject = Context.decode(each).subject
                sources.append(SourceContext(each, self.scope.gate.rules.brokering.types(subject).inward))
            elif isinstance(each, list):
                sources.append(SourceContext.read(each))
        return TOO_MANY if TOO_MANY[0] in sources else tuple(sources)

    # -- carried by what comes out -------------------------------------------------------------------------------

    def carried(self, message: Message, link: str, sources: Sources) -> bytes | None:
        """The context of what comes from a message and from these; None if that is too many."""
        if not sources:
            return message.context
        if sources is TOO_MANY:
            return None
        own = self.of(message, link)[0]
        key = (message.context, own, sources)
        if key not in self._carrying:
            context = self.scope.gate.attributes.decoded(message.context)
            others = unique((*context.others, *(source for source in sources if source != own)))
            data = message.context if others == context.others else replace(context, others=others).encode()
            self._carrying[key] = None if excessive(others) else data
        return self._carrying[key]


def excessive(sources: Sources) -> bool:
    """Whether these are more than one message may come from."""
    return len(sources) > PUBLISHERS and (
        len(sources) > TOPICS or len({source.publisher for source in sources}) > PUBLISHERS
    )


def _any_below(reads: Iterable[str], roots: tuple[str, ...]) -> bool:
    """Whether one of these attributes is read, or something that it is part of."""
    return any(path in ("p", root) or path.startswith(f"{root}.") for path in reads for root in roots)
