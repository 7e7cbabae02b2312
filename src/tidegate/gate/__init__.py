"""The one door: stages in order, partial evaluation, plans, verdicts."""

from __future__ import annotations

from tidegate.gate.attributes import Sight
from tidegate.gate.gate import WITHDRAWN, Gate, Lane
from tidegate.gate.links import Branch, Exit
from tidegate.gate.plan import Passage, Plan, combine, passed, undecided
from tidegate.gate.reserved import Reserved
from tidegate.gate.rule_set import Rules
from tidegate.gate.verdict import ALLOW, Allow, Answer, Deny, Known, Residual, Stage, Step

__all__ = [
    "ALLOW",
    "WITHDRAWN",
    "Allow",
    "Answer",
    "Branch",
    "Deny",
    "Exit",
    "Gate",
    "Known",
    "Lane",
    "Passage",
    "Plan",
    "Reserved",
    "Residual",
    "Rules",
    "Sight",
    "Stage",
    "Step",
    "combine",
    "passed",
    "undecided",
]
