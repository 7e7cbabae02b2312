"""Steps 1 and 8, their first half: what somebody's capability lets them do (semantics, *Capabilities*).

A client without a capability passes. A client that is not connected is decided when it connects again, by the
capability that it brings then; its messages wait for that.
"""

from __future__ import annotations

from collections.abc import Hashable
from datetime import UTC, datetime
from typing import Final

from tidegate.gate.attributes import Attributes
from tidegate.gate.verdict import ALLOW, Allow, Answer, Deny, Known, Residual, Step
from tidegate.policy import Action
from tidegate.policy.capability import Capability, Proof
from tidegate.policy.capability.proof import WRITE, Asked, objection
from tidegate.policy.control_topics import ANSWER, KEYS
from tidegate.session import Link, Message, Subject

SPOKEN: Final = KEYS | {ANSWER}
"""Topics on which keys are asked for and answered: what their holder may read is decided for each key."""
UNKNOWN: Final = "the node does not know it since it started: its client has to connect again"


class CapabilityStage:
    """The rights of the capability for one action, and on the way in the proof of each message."""

    def __init__(self, action: Action, demanded: Proof, attributes: Attributes) -> None:
        self.step = Step.WRITE if action is Action.WRITE else Step.READ
        self.action = action
        self.demanded = demanded
        self.attributes = attributes

    def evaluate(self, known: Known) -> Answer:
        target = known.target
        capability = known.context.subject.capability if target is None else target.subject.capability
        if capability is None or known.away:
            return ALLOW
        if known.topic not in SPOKEN and not capability.permits(self.action, known.topic):
            return self._deny(capability, "" if capability.signer else UNKNOWN)
        clock = self.attributes.clock
        if (wait := capability.ahead(clock.wall, clock.steady)) > 0:
            known.stands_until(_moment(known.now + wait))
            return self._deny(capability, "it is not valid yet")
        left = capability.left(clock.wall, clock.steady)
        if left <= 0 or not known.stands_until(_moment(known.now + left)):
            known.stands_until(None)
            return self._deny(capability, "it has expired")
        if self.action is Action.WRITE and proves_each(capability, self.demanded):
            return self._proof(capability)
        return ALLOW

    def _proof(self, capability: Capability) -> Residual:
        def decide(message: Message) -> Allow | Deny:
            shown = capability.ledger.shown
            asked = Asked(qos=(message.qos,), retain=message.retain, expiry=shown.expiry, properties=shown.asked)
            why = objection(capability, shown, WRITE, message.topic, message.payload, asked)
            if why:
                return self._deny(capability, why)
            message.noted = True  # its counter: the acknowledgement waits until that is safe
            message.use = capability.ledger.used
            return ALLOW

        return Residual(decide)

    def _deny(self, capability: Capability, why: str = "") -> Deny:
        return Deny(step=self.step, rule=capability.rule, error=why)

    def cache_key(self, source: Link) -> Hashable:
        return source.subject.capability if self.action is Action.WRITE else None

    def grant(self, filter: str, target: Link) -> Allow | Deny:
        capability = target.subject.capability
        if capability is None or self.action is Action.WRITE:
            return ALLOW
        clock = self.attributes.clock
        if capability.left(clock.wall, clock.steady) <= 0:
            return self._deny(capability, "it has expired" if capability.signer else UNKNOWN)
        return ALLOW if filter == ANSWER or capability.overlaps(Action.READ, filter) else self._deny(capability)


def proves_each(capability: Capability, demanded: Proof) -> bool:
    """Whether each message has to be proven, because the issuer or the node says so."""
    return demanded.stricter(capability.proof) is Proof.PER_MESSAGE


def proving(subject: Subject, demanded: Proof | None) -> Capability | None:
    """The capability of somebody who has to prove each message; None if they need not."""
    capability = subject.capability
    if capability is None or demanded is None or not proves_each(capability, demanded):
        return None
    return capability


def _moment(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)
