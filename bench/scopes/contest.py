"""What is compared with what: a long chain with a short one that does the same for each message.

With monitors there are two honest questions. What do five scopes with a monitor each cost beside one scope with one
monitor; that is mostly the cost of four more monitors. And what do they cost beside one scope in which the same five
monitors stand in a row; that is the cost of the scopes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from bench.harness.figures import Spread, spread
from bench.scopes.chain import LENGTHS, NEW, ORI, SEM, Chain, Configuration

GOAL = 1.3
"""Five scopes cost at most this many times as much as one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """Two chains."""

    name: str
    title: str
    one: Chain
    several: Chain
    goal: float | None = GOAL


@dataclass(slots=True, kw_only=True)
class Compared:
    """Microseconds of CPU for each message, by round; a measurement that failed is None."""

    contest: Contest
    qos: int
    one: list[float | None] = field(default_factory=list)
    several: list[float | None] = field(default_factory=list)

    @property
    def ratio(self) -> Spread | None:
        """How many times as much the long chain costs, within rounds."""
        pairs = zip(self.one, self.several, strict=True)
        return spread(several / one for one, several in pairs if one and several)

    @property
    def reached(self) -> str:
        if self.contest.goal is None:
            return ""
        ratio = self.ratio
        if ratio is None:
            return "failed"
        return "yes" if ratio.median <= self.contest.goal else "no"


def cost(values: list[float | None]) -> Spread | None:
    return spread(one for one in values if one)


def _plain(kind: Configuration, title: str, *, extra: int = 0, goal: float | None = GOAL, name: str = "") -> Contest:
    return Contest(
        name=name or kind.name,
        title=title,
        one=Chain(configuration=kind, scopes=1, extra=extra),
        several=Chain(configuration=kind, scopes=LENGTHS[-1]),
        goal=goal,
    )


CONTESTS = (
    _plain(ORI, "five scopes, one scope; everything passes"),
    _plain(NEW, "five scopes, one scope; with brokering"),
    _plain(
        SEM,
        "five scopes with a monitor each, one scope with the same five monitors",
        extra=LENGTHS[-1] - 1,
    ),
    _plain(
        SEM, "five scopes with a monitor each, one scope with one monitor", goal=None, name="SEM, four monitors more"
    ),
)
