"""What a step of the gate answers, and what it is asked with.

A step answers with what is known when a plan is compiled: an `Allow`, a `Deny` that names its rule, or a `Residual`
that has to see the message. A denial is a value, never an exception.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum
from typing import Any, Protocol

from tidegate.policy import ALL, View
from tidegate.predicate import Predicate
from tidegate.session import NO_TERMS, Context, Link, Message, SourceContext, Terms

NOT_AUTHORIZED = 0x87
CONTENT = frozenset(("o.payload",))
FOREVER = float("inf")
REMADE = "this message was derived from another and has other parts: a view of parts of that one shows nothing here"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Allow:
    """This step has no objection to what `view` shows of the message."""

    rule: str = ""
    """Which rule allowed it, if one had to."""
    view: View = ALL
    errors: tuple[tuple[str, str], ...] = ()
    """Conditions that failed and counted as false, with what went wrong."""
    whole: bool = False
    """Somebody demands that it is signed: a part of it is not."""


ALLOW = Allow()
WHOLE = Allow(whole=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deny:
    """This step denies, and `rule` is why."""

    step: Step
    rule: str
    reason: int = NOT_AUTHORIZED
    error: str = ""
    """What went wrong in the rule, if it denies only because something did."""
    detail: str = ""
    """What the audit adds: for levels, the demand and the floor."""
    waits: bool = False
    """A better connection of the same client would do: what is owed to its session waits for one."""
    said: str = ""
    """The text that the client receives in place of the rule, where the node may send one."""

    @property
    def suppressed(self) -> bool:
        """A monitor of the publisher's link has suppressed it."""
        return self.step is Step.MONITOR_IN

    @property
    def no_room(self) -> bool:
        """It may be written, and cannot be made safe at the moment."""
        return self.step is Step.JOURNAL


@dataclass(frozen=True, slots=True)
class Residual:
    """What could not be decided yet: asked for each message."""

    decide: Callable[[Message], Allow | Deny]
    reads: frozenset[str] = CONTENT
    """The attributes that it reads, by path; what is not said may be all of the content."""


Answer = Allow | Deny | Residual


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class Known:
    """What is known when a plan is compiled, or when a stored message is decided again.

    A stage that decides by the clock says with `until` how long that stands.
    """

    topic: str
    context: Context  # who published it, and how
    link: str  # type of the source link
    now: float  # wall clock
    target: Link | None = None  # None on the way in
    away: bool = False  # nobody is connected there: over what and when it will be sent is not known
    terms: Terms = NO_TERMS  # of the subscription
    where: Predicate | None = None  # their condition
    scene: dict[str, Any] = field(default_factory=dict)  # roots, shared by all targets of one message
    unclear: bool = False  # what the view will leave is not known before somebody is connected
    until: float = FOREVER
    clocked: bool = False  # it was decided by the clock, which may also be put back

    @property
    def published(self) -> str:
        """The topic that it was published under; owners speak of that one."""
        return self.context.topic or self.topic

    def of(self, source: SourceContext) -> Known:
        """What is known of another message that it comes from, on its way to the same target."""
        context = source.context
        if self.context.sealed:
            context = replace(context, sealed=True)  # nobody can look inside, whoever published
        return Known(
            topic=self.topic,
            context=context,
            link=self.link if source.link is None else source.link,
            now=self.now,
            target=self.target,
            away=self.away,
            terms=self.terms,
        )

    def stands_until(self, moment: datetime | None) -> bool:
        """The answer changes then, though nothing else does; False if that is now."""
        if moment is None:
            self.clocked = True
            return True
        until = moment.timestamp()
        if until <= self.now:
            return False
        self.until = min(self.until, until)
        self.clocked = True
        return True


class Stage(Protocol):
    """One step of the gate, or a part of one. By default it grants every SUBSCRIBE."""

    step: Step

    def evaluate(self, known: Known) -> Answer:
        """Decides as far as it can."""
        ...

    def cache_key(self, source: Link) -> Hashable:
        """Sources with equal values here are decided alike, so they share plans."""
        ...

    def grant(self, filter: str, target: Link) -> Allow | Deny:
        """Whether a SUBSCRIBE may be granted at all; deliveries are decided one by one either way."""
        return ALLOW
