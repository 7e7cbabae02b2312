"""What an explanation says: the verdict, and every step that led to it, with what the step looked at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from tidegate.gate.verdict import Deny, Step
from tidegate.policy import ALL, View
from tidegate.session import Context, Message, Subject


class Verdict(Enum):
    ALLOW = "allow"
    DENY = "deny"
    SILENT = "nothing to say"
    UNASKED = "not asked"
    """An earlier step has denied."""


class ExtraStep(Enum):
    """What stands beside the steps of the door."""

    CONNECT = "connect"
    """Whoever asks is not let in."""
    LINK = "link"
    """A link between scopes, with all the steps that it has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsideredRule:
    """A rule that a step looked at, and how it turned out."""

    rule: str
    says: str
    """`allow`, `deny`, or what it keeps and for whom."""
    condition: str = ""
    """Its text; empty if it has none."""
    outcome: str = "true"
    """`true`, `false`, `error`, or `open`: that depends on messages to come."""
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One step, or a part of one; or a whole link between scopes that was crossed."""

    step: Step | ExtraStep
    part: str = ""
    link: str = ""
    """The link between scopes that it is about: `H1->I`; empty if it is about a client's."""
    verdict: Verdict
    rule: str = ""
    error: str = ""
    considered: tuple[ConsideredRule, ...] = ()
    knew: Mapping[str, Any] = field(default_factory=dict)
    """The attributes that its rules read, by path."""
    absent: tuple[str, ...] = ()
    """Those of them that are not there."""
    view: View = ALL
    """What it leaves of the content."""
    notes: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """`read, preferences`, or `link H1->I, brokering`."""
        if not self.link:
            return f"{self.step.value}, {self.part}" if self.part else self.step.value
        step = "" if self.step is ExtraStep.LINK else self.step.value
        return ", ".join(word for word in (f"link {self.link}", step, self.part) if word)


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    action: str
    topic: str
    subject: Subject
    publisher: Subject | None = None
    at: float
    """Seconds since 1970."""
    version: str
    """Of the rules."""
    lines: tuple[Line, ...]
    allowed: bool
    decided: Line | None
    """The first that denied; of what is allowed the one whose rule allowed it, if a rule had to."""
    rules: frozenset[str] = frozenset()
    """Every rule that can be said to have decided it."""
    denial: Deny | None = None
    """What a running node writes into its audit; None also where a message has no way, which is nobody's offence."""
    clocked: bool = False
    """Whether some rule that was looked at reads the clock."""
    message: Message | None = None
    """As it was published."""
    entered: str = ""
    """The scope that it was published into."""
    context: Context | None = None
    shown: Message | None = None
    """What of it the reader gets."""
    notes: tuple[str, ...] = ()

    @property
    def rule(self) -> str:
        return self.decided.rule if self.decided is not None else ""

    @property
    def headline(self) -> str:
        """`DENY by up1 (read, preferences)`."""
        word = "ALLOW" if self.allowed else "DENY"
        if self.decided is None:
            return word
        return f"{word} by {self.decided.rule} ({self.decided.place})"
