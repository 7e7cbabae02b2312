"""Step 10: the subscription's own condition, on what the view leaves (semantics, *The path*).

It sees the message and the environment, nothing of who published it: a subscriber must not be able to probe what it
is not shown. A condition that fails is not met.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, Final

from tidegate.gate.attributes import Attributes, later
from tidegate.gate.verdict import ALLOW, Allow, Answer, Deny, Known, Residual, Stage, Step
from tidegate.predicate import Function, Predicate, PredicateFailed, compile
from tidegate.session import Link, Message

NAMES: Final = frozenset("oe")
WHERE: Final = "where"
LIMIT: Final = 512  # bytes: parsing them takes some 3 ms at most
BUDGET: Final = 1000  # operations of one evaluation: some 0.1 ms at most
UNMET: Final = Deny(step=Step.WHERE, rule=WHERE)


def condition(text: str, functions: Mapping[str, Function]) -> Predicate:
    """A subscriber's condition; PredicateError if it is none."""
    return compile(text, functions=functions, names=NAMES, budget=BUDGET, limit=LIMIT)


class WhereStage(Stage):
    """The condition of the subscription. A message that does not meet it is not denied, and nobody is informed."""

    step = Step.WHERE

    def __init__(self, attributes: Attributes) -> None:
        self.attributes = attributes

    def evaluate(self, known: Known) -> Answer:
        if known.terms.where is None:
            return ALLOW
        if known.where is None:
            return Deny(step=Step.WHERE, rule=WHERE, error="it is not understood any more")
        assert known.target is not None
        attributes = self.attributes
        receiver = known.target.subject
        environment = attributes.environment(receiver)
        left = known.where.partial({"o": attributes.coming(known), "e": attributes.around(receiver, known.away)})
        if isinstance(left, PredicateFailed):
            return _failed(left)
        if not isinstance(left, Predicate):
            return ALLOW if left else UNMET
        asked = left
        if known.away and (known.unclear or later(asked.reads, asked.volatile)):
            return ALLOW

        reads_e = asked.volatile or any(path.partition(".")[0] == "e" for path in asked.reads)

        def decide(message: Message) -> Allow | Deny:
            env: dict[str, Any] = {"o": attributes.facts(message)}
            if reads_e:
                env["e"] = attributes.now(environment)
            try:
                met = asked(env)
            except PredicateFailed as failed:
                return _failed(failed)
            return ALLOW if met else UNMET

        return Residual(decide, asked.reads)

    def cache_key(self, source: Link) -> Hashable:
        return None


def _failed(failed: PredicateFailed) -> Deny:
    return Deny(step=Step.WHERE, rule=WHERE, error=failed.reason)
