"""Steps 8 and 9 over a connection that is not trusted, of a link that is otherwise (semantics, *Links between nodes*).

What owners and publishers have a say in waits for a trusted connection, where it travels with its preferences, rules
and views: also what depends on a single message, since nobody there could hold the other node to it.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

from tidegate.gate.verdict import Allow, Answer, Deny, Known, Residual, Stage
from tidegate.session import Link

DEPENDS = "it depends on the message who may read it"


class WaitingForTrust(Stage):
    """Another step, whose denials hold for this connection only."""

    def __init__(self, stage: Stage) -> None:
        self.step = stage.step
        self._stage = stage

    def evaluate(self, known: Known) -> Answer:
        answer = self._stage.evaluate(known)
        if isinstance(answer, Residual):
            return Deny(step=self.step, rule="untrusted connection", detail=DEPENDS, waits=True)
        return replace(answer, waits=True) if isinstance(answer, Deny) else answer

    def cache_key(self, source: Link) -> Hashable:
        return self._stage.cache_key(source)

    def grant(self, filter: str, target: Link) -> Allow | Deny:
        return self._stage.grant(filter, target)
