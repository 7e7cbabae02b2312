"""The one door: stages in order, partial evaluation, plans, verdicts."""

from __future__ import annotations

from tidegate.gate.gate import Gate, Lane
from tidegate.gate.plan import Plan, combine, undecided
from tidegate.gate.stages import Closed, Reserved
from tidegate.gate.verdict import ALLOW, Allow, Answer, Deny, Known, Residual, Stage, Step

__all__ = [
    "ALLOW",
    "Allow",
    "Answer",
    "Closed",
    "Deny",
    "Gate",
    "Known",
    "Lane",
    "Plan",
    "Reserved",
    "Residual",
    "Stage",
    "Step",
    "combine",
    "undecided",
]
