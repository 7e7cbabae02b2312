"""The one door: stages in order, partial evaluation, plans, verdicts."""

from __future__ import annotations

from tidegate.gate.attributes import Attributes
from tidegate.gate.compiler import WITHDRAWN
from tidegate.gate.decision import PartialDecision, combine, evaluate, passed, undecided
from tidegate.gate.gate import Gate
from tidegate.gate.lane import Lane
from tidegate.gate.links import Branch, ScopeExit
from tidegate.gate.plan import Plan
from tidegate.gate.reserved import ReservedTopicStage
from tidegate.gate.rule_set import RuleSet
from tidegate.gate.verdict import ALLOW, Allow, Answer, Deny, Known, Residual, Stage, Step

__all__ = [
    "ALLOW",
    "WITHDRAWN",
    "Allow",
    "Answer",
    "Attributes",
    "Branch",
    "Deny",
    "Gate",
    "Known",
    "Lane",
    "PartialDecision",
    "Plan",
    "ReservedTopicStage",
    "Residual",
    "RuleSet",
    "ScopeExit",
    "Stage",
    "Step",
    "combine",
    "evaluate",
    "passed",
    "undecided",
]
