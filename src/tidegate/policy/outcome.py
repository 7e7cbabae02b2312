"""The answers of a policy mechanism: yes, no, or not decided yet. A denial is a value, never an exception."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

from tidegate.predicate import Env, Predicate, PredicateFailed

T_co = TypeVar("T_co", covariant=True)

DEFAULT = "default"
"""The rule that denies where no other has decided."""


@dataclass(frozen=True, slots=True)
class Permit:
    """Allowed, and by which rule."""

    rule: str


@dataclass(frozen=True, slots=True)
class Refuse:
    """Denied, and by which rule; `error` says what went wrong in it, if it denies only because something did."""

    rule: str
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Undecided(Generic[T_co]):
    """Not decided by what is known: call `residual` with all attributes of each message."""

    residual: Callable[[Env], T_co]
    reads: frozenset[str]
    """The attributes that the answer still depends on."""
    volatile: bool
    """Whether the answer is good only for the moment, whatever it reads."""
    until: Callable[[Env], datetime | None]
    """Until when the answer in an environment stays the same if only the clock moves on; None for ever."""
    unpredictable: bool = True
    """Whether it may be another one the next time that it is asked in the same environment."""

    @classmethod
    def of(cls, residual: Callable[[Env], T_co], conditions: Sequence[Predicate]) -> Undecided[T_co]:
        """What depends on these conditions and on nothing else."""

        def until(env: Env) -> datetime | None:
            moments = (condition.until(env) for condition in conditions)
            return min((moment for moment in moments if moment is not None), default=None)

        reads: frozenset[str] = frozenset().union(*(condition.reads for condition in conditions))
        return cls(
            residual,
            reads,
            any(condition.volatile for condition in conditions),
            until,
            any(condition.unpredictable for condition in conditions),
        )


Answer = Permit | Refuse | Undecided[Permit | Refuse]

Outcome = bool | Predicate | PredicateFailed
"""How a condition turns out; a Predicate if that depends on what is not known yet."""


def partial_outcome(condition: Outcome | None, known: Env) -> Outcome:
    """How a condition turns out as far as `known` decides it. None is always true."""
    if condition is None:
        return True
    return condition.partial(known) if isinstance(condition, Predicate) else condition


def outcome(condition: Outcome | None, env: Env) -> bool | PredicateFailed:
    """How a condition, or what is left of one, turns out when everything is known. None is always true."""
    if condition is None:
        return True
    try:
        return condition(env) if isinstance(condition, Predicate) else condition
    except PredicateFailed as failed:
        return failed
