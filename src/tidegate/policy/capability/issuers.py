"""Which issuers' capabilities a node takes, what their holders have to prove, and what the issuers may grant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from tidegate.policy.capability.capability import Capability, Proof
from tidegate.policy.capability.jwk import Key


class Issuers:
    """Whose capabilities are taken, by name (`iss`)."""

    def __init__(self, keys: Mapping[str, Iterable[Key]]) -> None:
        self.keys = {name: tuple(those) for name, those in keys.items()}
        self.signers = frozenset((name, key.thumbprint) for name, those in self.keys.items() for key in those)

    def trusts(self, issuer: str, signer: str) -> bool:
        """Whether what this key has signed still counts."""
        return (issuer, signer) in self.signers


@dataclass(frozen=True, slots=True, kw_only=True)
class Grants:
    """The roles and groups that an issuer may grant to holders of its capabilities."""

    roles: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()


NO_GRANTS: Final = Grants()


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepts:
    """What the administrator says about capabilities, as one immutable value."""

    issuers: Issuers = field(default_factory=lambda: Issuers({}))
    proof: Proof = Proof.NONE
    """What has to be proven at least."""
    required: bool = False
    """Whether everybody needs one."""
    revoked: frozenset[str] = frozenset()
    travel: bool = False
    """Whether they go on to other nodes, with the proofs of messages."""
    grants: Mapping[str, Grants] = field(default_factory=dict)
    """By issuer; others may grant nothing."""

    def objection(self, capability: Capability, *, proofs: bool) -> str:
        """Why a verified one does not count; `proofs`: whether messages of this connection can carry them."""
        if capability.id in self.revoked:
            return "it has been revoked"
        if capability.signer and not self.issuers.trusts(capability.issuer, capability.signer):
            return "its issuer is not known here any more"
        grants = self.grants.get(capability.issuer, NO_GRANTS)
        for kind, granted, allowed in (
            ("role", capability.roles, grants.roles),
            ("group", capability.groups, grants.groups),
        ):
            if beyond := [name for name in granted if name not in allowed]:
                return f"it grants the {kind} `{beyond[0]}`, which its issuer may not grant here"
        demanded = self.proof.stricter(capability.proof)
        if demanded is Proof.PER_MESSAGE and not proofs:
            return "proofs of each message need MQTT 5"
        if demanded is not Proof.NONE and capability.signer and not capability.proven:
            return "the connection has not proven to hold its key"
        return ""
