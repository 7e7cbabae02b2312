"""Demands: which levels and facts of connections publishers and subscribers ask for (semantics, *Levels and demands*).

A demand comes as the user property `require`, or `s` with the rank of a level, of CONNECT, PUBLISH or SUBSCRIBE.

Invariants
- All that a demand names has to hold. Names are kept as they came, since they may be known on another node.
- A demand that nobody here understands is never met: an unknown name, a rank that does not exist.
- The innermost demand counts: that of a message or a subscription before that of its connection.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tidegate.policy.levels import NONE, SIGNED, Levels

REQUIRE: Final = "require"
SHORT: Final = "s"
MAX_NAMES: Final = 32  # of one demand
LONGEST: Final = 256  # characters of a name; no level and no fact is called so if it is longer, or ends in `?`


@dataclass(frozen=True, slots=True)
class Demand:
    """The levels and facts that somebody demands of every link; no names demand nothing, and relax what would be
    demanded otherwise."""

    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, text: str | None) -> Demand:
        """From the form that is stored: `text` turned round."""
        return cls(tuple(text.split(","))) if text else RELAXED

    @property
    def text(self) -> str:
        return ",".join(self.names)


RELAXED: Final = Demand()


def read_demand(levels: Levels, properties: Iterable[tuple[str, str]]) -> Demand | None:
    """What user properties demand; None if they say nothing."""
    names: list[str] | None = None
    for key, value in properties:
        if key == REQUIRE:
            named = [name.strip() or "?" for name in value.split(",", MAX_NAMES)]
            named = [name if len(name) <= LONGEST else f"{name[:LONGEST]}?" for name in named]
        elif key == SHORT:
            named = [_level_at(levels, value)]
        else:
            continue
        names = (names or []) + [name for name in named if name != NONE]
    return None if names is None else _joined(levels, names)


def unknown_name(levels: Levels, demand: Demand | None) -> str:
    """Why a demand cannot be met by anything here: it names no level and no fact. Empty if it could be."""
    for name in () if demand is None else demand.names:
        if name not in levels.ranks and name not in levels.facts and name != SIGNED:
            known = ", ".join((*levels.order, *levels.facts, SIGNED))
            return f"`{name[:40]}` is no level and no fact here; require one of {known}, or {NONE}"
    return ""


def effective_demand(levels: Levels, own_level: str, *demands: Demand | None) -> Demand:
    """What counts: the innermost that says something, else what the level of the own connection implies.

    `demands` are from the inside out: the message's or subscription's demand, then the connection's.
    """
    for demand in demands:
        if demand is not None:
            return demand
    return Demand((own_level,)) if levels.implied else RELAXED


def meets(levels: Levels, level: str, demand: Demand, facts: Iterable[str] = ()) -> bool:
    """Whether a link, or the floor of a message, of this level and with these facts is good enough for a demand."""
    return all(_holds(levels, name, level, facts) for name in demand.names)


def _holds(levels: Levels, name: str, level: str, facts: Iterable[str]) -> bool:
    demanded_rank = levels.rank(name)
    if demanded_rank is not None:
        return levels.ranks.get(level, 0) >= demanded_rank
    return name in facts and (name in levels.facts or name == SIGNED)


def _level_at(levels: Levels, rank: str) -> str:
    if rank.isascii() and rank.isdigit() and len(rank) <= 3 and int(rank) < len(levels.order):
        return levels.order[int(rank)]
    return f"rank {rank[:16]}"  # no level is called so: names have no spaces


def _joined(levels: Levels, names: Iterable[str]) -> Demand:
    """All of these names: the highest of the levels, then the rest in alphabetical order."""
    ranked = [name for name in names if name in levels.ranks]
    others = sorted({name for name in names if name not in levels.ranks})
    highest = [max(ranked, key=levels.ranks.__getitem__)] if ranked else []
    return Demand((*highest, *others))
