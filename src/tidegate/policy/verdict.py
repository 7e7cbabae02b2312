"""The answers of a policy mechanism: yes, no, or not decided yet. A denial is a value, never an exception."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

from tidegate.predicate import Env

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


Answer = Permit | Refuse | Undecided[Permit | Refuse]
