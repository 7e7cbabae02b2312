"""Capabilities and proofs that come with messages of other nodes: verified again (semantics, *Capabilities*).

A message whose publisher has a capability brings it, and the proof of the message if there is one. Both have to be good
here: an issuer that this node knows has signed the capability, it has not expired and was not revoked, it is for that
publisher and lets it write that topic, and the proof is of just this message and was not used for another one. What the
message asks for must be what was proven.

Who has no capability brings none, and is decided by policies alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tidegate.bounded import Bounded
from tidegate.errors import MalformedPacket
from tidegate.gate import Deny, Step
from tidegate.gate.stages.write_and_read_capability import proves_each
from tidegate.policy import Action, Demand
from tidegate.policy.capability import Capability, Proof
from tidegate.policy.capability.proof import WRITE, Asked, objection
from tidegate.policy.capability.proof_replay import Shown
from tidegate.policy.demands import read_demand
from tidegate.session import Site
from tidegate.session.carried_proof import CarriedProof
from tidegate.session.packet_costs import SIGNATURE
from tidegate.wire import Publish
from tidegate.wire.envelope import Envelope, Static

if TYPE_CHECKING:
    from tidegate.scope.scope import Scope

KEPT: Final = 1_000  # verified ones
RULE: Final = "capability"

Verify = Callable[[str, Capability | None, Site], "Capability | str"]


class TravelledCapabilities:
    """Of all links of a node."""

    def __init__(self) -> None:
        self.verify: Verify = lambda token, known, site: "this node takes none"
        self._known: Bounded[bytes, Capability] = Bounded(KEPT)

    def proven(self, scope: Scope, envelope: Envelope, packet: Publish, payload: bytes) -> bool | Deny:
        """Whether its publisher has proven a message that brings a capability; why it is refused."""
        static, site = envelope.static, scope.site
        token = static.capability
        assert token is not None
        known = self._known.get(token)
        if known is None:
            site.effort += SIGNATURE
        found = self.verify(token.decode(errors="replace"), known, site)
        if isinstance(found, str):
            return Deny(step=Step.WRITE, rule=RULE, error=found)
        self._known[token] = found
        why = _not_its(found, static)
        if not why and (envelope.proof is not None or self._proves(scope, found)):
            site.effort += SIGNATURE
            why = self._unproven(scope, found, envelope, packet, payload)
            if not why:
                return True
        return Deny(step=Step.WRITE, rule=found.rule, error=why) if why else False

    @staticmethod
    def _proves(scope: Scope, capability: Capability) -> bool:
        return proves_each(capability, scope.gate.rules.capabilities or Proof.NONE)

    @staticmethod
    def _unproven(scope: Scope, capability: Capability, envelope: Envelope, packet: Publish, payload: bytes) -> str:
        if envelope.proof is None:
            return "no proof"
        try:
            said = CarriedProof.decode(envelope.proof)
        except MalformedPacket as error:
            return str(error)
        static, levels = envelope.static, scope.gate.rules.levels
        views = [value for name, value in said.asked if name == "view"]
        left = packet.properties.message_expiry_interval
        demand = read_demand(levels, said.asked)
        kept = frozenset() if static.demand is None else frozenset(Demand.of(static.demand).names)
        if max(packet.qos, envelope.qos) > said.qos or (envelope.retain and not said.retain):
            return "its QoS or RETAIN is not what was proven"
        if static.view != (None if not views else views[0] if len(views) == 1 else ""):
            return "its table of visibility is not what was proven"
        if said.expiry is not None and (left is None or left > said.expiry):
            return "its expiry is not what was proven"
        if demand is not None and not kept.issuperset(demand.names):
            return "its demand is not what was proven"
        asked = Asked(qos=(said.qos,), retain=said.retain, expiry=said.expiry, properties=said.asked)
        shown = Shown((said.text,), packet.dup, asked=said.asked, expiry=said.expiry)
        id = envelope.id
        name = b"%b %d %d" % (id.origin, id.number, id.output)
        return objection(capability, shown, WRITE, static.topic, payload, asked, message=name)


def _not_its(capability: Capability, static: Static) -> str:
    """Why a capability is not for this message."""
    said = static.publisher
    if capability.user is not None and said.get("user") != capability.user:
        return "it is for another user"
    if capability.client is not None and said.get("client") != capability.client:
        return "it is for another client"
    if not capability.permits(Action.WRITE, static.topic):
        return "it does not let its holder write that topic"
    return ""
