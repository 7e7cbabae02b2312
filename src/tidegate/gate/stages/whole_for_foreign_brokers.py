"""Steps 8 and 9 for a link to a foreign broker, which gets all of a message or nothing (semantics, *Context and derived
messages*): nobody there enforces what travels with a message, so it crosses only if nobody restricts it.
"""

from __future__ import annotations

from typing import Final

from tidegate.gate.stages.read_preferences import PreferenceStage
from tidegate.gate.stages.view import ViewStage
from tidegate.gate.verdict import Allow, Answer, Deny, Known, Step
from tidegate.policy import Granted, Refuse

WHOLE_ONLY: Final = "a foreign broker gets all of a message or nothing"


class WholePreferenceStage(PreferenceStage):
    """What an owner lets see only a part of is denied."""

    def _said(self, answer: Granted | Refuse, remade: bool) -> Allow | Deny:
        allowed = super()._said(answer, remade)
        if isinstance(allowed, Allow) and not allowed.view.shows_all:
            return Deny(step=Step.READ, rule=allowed.rule, detail=WHOLE_ONLY)
        return allowed


class WholeViewStage(ViewStage):
    """What tables of visibility show only a part of is denied."""

    def evaluate(self, known: Known) -> Answer:
        answer = super().evaluate(known)
        if isinstance(answer, Allow) and not answer.view.shows_all:
            return Deny(step=Step.VIEW, rule=answer.rule, detail=WHOLE_ONLY)
        return answer
