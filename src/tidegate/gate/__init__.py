"""The one door: stages in order, partial evaluation, plans, verdicts."""

from __future__ import annotations

from tidegate.gate.asked import Asked
from tidegate.gate.decision import UNSEEN, PartialDecision, combine, evaluate, passed, undecided
from tidegate.gate.gate import Gate
from tidegate.gate.lane import Lane
from tidegate.gate.plan import Plan
from tidegate.gate.rule_set import RuleSet
from tidegate.gate.scope_links import FORWARD, Branch, ScopeExit, action_over
from tidegate.gate.verdict import Allow, Deny, Known, Step

__all__ = [
    "FORWARD",
    "UNSEEN",
    "Allow",
    "Asked",
    "Branch",
    "Deny",
    "Gate",
    "Known",
    "Lane",
    "PartialDecision",
    "Plan",
    "RuleSet",
    "ScopeExit",
    "Step",
    "action_over",
    "combine",
    "evaluate",
    "passed",
    "undecided",
]
