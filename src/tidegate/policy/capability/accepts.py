"""Which capabilities a node takes, and what it demands of whoever shows one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from tidegate.policy.capability.capability import Capability, Proof
from tidegate.policy.capability.keys import Issuers

NEEDS_V5: Final = "proofs of each message need MQTT 5"


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepts:
    """What the administrator says about capabilities, as one immutable value."""

    issuers: Issuers = field(default_factory=lambda: Issuers({}))
    proof: Proof = Proof.NONE
    """What has to be proven at least."""
    required: bool = False
    """Whether everybody needs one."""
    revoked: frozenset[str] = frozenset()

    def objection(self, capability: Capability, *, proofs: bool) -> str:
        """Why a verified one does not count; `proofs`: whether messages of this connection can carry them."""
        if capability.id in self.revoked:
            return "it has been revoked"
        if capability.signer and not self.issuers.trusts(capability.issuer, capability.signer):
            return "its issuer is not known here any more"
        demanded = self.proof.stricter(capability.proof)
        if demanded is Proof.PER_MESSAGE and not proofs:
            return NEEDS_V5
        if demanded is not Proof.NONE and capability.signer and not capability.proven:
            return "the connection has not proven to hold its key"
        return ""
