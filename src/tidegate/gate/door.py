"""The order of the steps. It is fixed, and it stands here and nowhere else (semantics, *The path*)."""

from __future__ import annotations

from tidegate.gate.access import Access
from tidegate.gate.levels import Secured
from tidegate.gate.owners import Owners
from tidegate.gate.rules import Rules
from tidegate.gate.sight import Sight
from tidegate.gate.stages import Reserved
from tidegate.gate.verdict import Stage
from tidegate.gate.views import Visible
from tidegate.gate.where import Wanted
from tidegate.policy import Action


def stages(rules: Rules, sight: Sight) -> tuple[tuple[Stage, ...], tuple[Stage, ...]]:
    """The steps on the way in, and those on the way out. A step that cannot object is left out."""
    ingress: list[Stage] = [Reserved()]
    egress: list[Stage] = [Secured(rules.levels)]
    if rules.policies is not None:
        ingress.append(Access(Action.WRITE, rules.policies, sight))
        egress.append(Access(Action.READ, rules.policies, sight))
    if len(rules.preferences):
        egress.append(Owners(rules.preferences, sight))
    egress += (Visible(rules.views), Wanted(sight))
    return tuple(ingress), tuple(egress)
