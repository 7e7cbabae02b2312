"""What a step of the gate answers, and what it is asked with.

A step answers with what is known when a plan is compiled: `ALLOW`, a `Deny` that names its rule, or a `Residual`
that has to see the message. A denial is a value, never an exception.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from tidegate.session import Link, Message

NOT_AUTHORIZED = 0x87


class Step(Enum):
    """The eleven steps in their order: five on the way in, six per target on the way out (semantics.md)."""

    WRITE = "write"
    MONITOR_IN = "monitor in"
    CONTEXT = "context"
    PROTECT = "protect"
    JOURNAL = "journal"
    BROKERING = "brokering"
    LEVELS = "levels"
    READ = "read"
    VIEW = "view"
    WHERE = "where"
    MONITOR_OUT = "monitor out"


@dataclass(frozen=True, slots=True)
class Allow:
    """This step has no objection, whatever the message holds."""


ALLOW = Allow()


@dataclass(frozen=True, slots=True, kw_only=True)
class Deny:
    """This step says no, and which rule said so."""

    step: Step
    rule: str
    reason: int = NOT_AUTHORIZED


@dataclass(frozen=True, slots=True)
class Residual:
    """What could not be decided yet: asked for each message."""

    decide: Callable[[Message], Allow | Deny]


Answer = Allow | Deny | Residual


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is known when a plan is compiled, or when a stored message is decided again.

    `source` is None for a stored message whose publisher may be gone: `context` and `link` speak for it.
    """

    topic: str
    link: str  # type of the source link
    context: bytes
    source: Link | None
    target: Link | None = None  # None on the way in


class Stage(Protocol):
    """One step of the gate."""

    def evaluate(self, known: Known) -> Answer:
        """Decides as far as it can."""
        ...

    def kin(self, source: Link) -> Hashable:
        """Sources with equal values here are decided alike, so they share plans."""
        ...

    def grant(self, filter: str, target: Link) -> Allow | Deny:
        """Whether a SUBSCRIBE may be granted at all; deliveries are decided one by one either way."""
        ...
