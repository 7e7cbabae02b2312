"""Links between scopes that open: they carry the retained messages that may cross, as a new subscription would.

A link opens if there was none before, or if topics cross that did not cross before, or under another name, or if its
type has changed. The messages take the path (`Traversal.carry`), the oldest first, so that what is kept behind the link
is what would be had it always been open; and in pieces, each decided when it is its turn. What comes meanwhile crosses
by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

from tidegate.gate import ScopeExit
from tidegate.policy.scopes import ScopeLink
from tidegate.scope.monitors import MOST
from tidegate.scope.traversal import Traversal
from tidegate.session import Message
from tidegate.session.message import OUTPUTS

if TYPE_CHECKING:
    from tidegate.scope.scope import Scope

PIECE: Final = 0.0005  # seconds of work per turn
TOPICS: Final = 100  # looked at between two looks at the clock

Find = Callable[[], "tuple[Scope, ScopeExit] | None"]
"""The scope that a link leaves, and the link as it is now; None: there is none any more."""


def opened(link: ScopeLink, before: ScopeLink | None, topic: str) -> bool:
    """Whether a topic crosses a link that did not cross it before as it does now. `before`: the link then, if any."""
    crossing = link.crossing(topic)
    if crossing is None or before is None or before.type != link.type:
        return crossing is not None
    crossed = before.crossing(topic)
    return crossed is None or crossed[0] != crossing[0]


def carried(find: Find, before: ScopeLink | None, number: int, stopwatch: Callable[[], float]) -> Iterator[bool]:
    """Carries what is retained over a link that has opened; True: there is more to do.

    `number`: of all that opened. What monitors make of a message then has other ids than what they made of it before.
    """
    begun = stopwatch()
    for _ in _steps(find, before, MOST + 1 + number % (OUTPUTS - MOST)):
        if stopwatch() - begun > PIECE:
            yield True
            begun = stopwatch()
    yield False


def _steps(find: Find, before: ScopeLink | None, output: int) -> Iterator[None]:
    found = find()
    if found is None:
        return
    scope, exit = found
    oldest: list[tuple[float, int, int, str]] = []
    for number, (topic, message) in enumerate(scope.retained.matching("#"), 1):
        if opened(exit.link, before, topic):
            heappush(oldest, (message.published, message.number, message.output, topic))
        if number % TOPICS == 0:
            yield
    while oldest and (found := find()) is not None:
        scope, exit = found
        _, *which, topic = heappop(oldest)
        kept = scope.retained.get(topic)
        if kept is not None and [kept.number, kept.output] == which:  # else another has come, and has crossed
            if kept.expires is None or kept.expires > scope.site.now:
                Traversal(_root(kept, output), None).carry(scope, exit, kept)
        yield


def _root(message: Message, output: int) -> Message:
    """What outputs are numbered after: as if it were an output that no message has."""
    number = message.numbered(output)
    root = message.across(message.topic, message.qos, message.context, message.link, message.properties)
    root.output = root.output if number is None else number
    return root
