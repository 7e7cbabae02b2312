"""A capability: what an issuer lets somebody do, for how long, and by which key it is proven to be theirs.

Effective rights are those of the capability AND those of the policies: it never grants by itself, and where somebody
has one, nothing outside its rights is granted to them.

Invariants
- Time is judged by two clocks: the wall clock, and a steady one that went on evenly since the node started. One has
  expired if either says so, and has begun only if both do, so that putting the wall clock opens nothing.
- Compared by identity: each connection has its own, and what is decided is kept under it.

The signed token itself is kept only where it travels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tidegate.policy.access_policies import Action
from tidegate.policy.capability.proof_replay import Ledger
from tidegate.topics import matches, overlaps

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519

    PublicKey: TypeAlias = ed25519.Ed25519PublicKey | ec.EllipticCurvePublicKey
else:
    PublicKey = object


class Proof(Enum):
    """What has to be proven with the confirmation key: nothing, the connection, or also each message."""

    NONE = "none"
    CONNECT = "connect"
    PER_MESSAGE = "per-message"

    def stricter(self, other: Proof) -> Proof:
        """Of two demands, the one that includes the other."""
        return max(self, other, key=_ORDER.index)


_ORDER: Final = (Proof.NONE, Proof.CONNECT, Proof.PER_MESSAGE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    action: frozenset[Action]
    topic: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Capability:
    """A verified one."""

    id: str
    issuer: str
    signer: str
    """Thumbprint (RFC 7638) of the issuer's key that signed it."""
    subject: str
    """As it is written: `user:mary`, `client:tr1` or `user:mary/client:tr1`."""
    user: str | None = None
    client: str | None = None
    key: PublicKey | None = None
    """The confirmation key; None only of one that is not known any more."""
    rights: tuple[Right, ...] = ()
    roles: tuple[str, ...] = ()
    """What its issuer grants besides, where the node lets it."""
    groups: tuple[str, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    begins: float = 0.0
    expires: float = 0.0
    proof: Proof = Proof.NONE
    """What its issuer demands."""
    proven: bool = False
    """Whether this connection has proven to hold the confirmation key."""
    token: str = ""
    """As its issuer has signed it, if it goes on to other nodes with what its holder publishes."""
    ledger: Ledger = field(default_factory=Ledger)

    @property
    def rule(self) -> str:
        """What denials by it are called in the audit."""
        return f"capability:{self.id}"

    def permits(self, action: Action, topic: str) -> bool:
        """Whether one of its rights is about this topic."""
        return any(action in right.action and matches(right.topic, topic) for right in self.rights)

    def overlaps(self, action: Action, filter: str) -> bool:
        """Whether one of its rights is about some topic of a filter."""
        return any(action in right.action and overlaps(right.topic, filter) for right in self.rights)

    def left(self, wall: float, steady: float) -> float:
        """Seconds until it expires; it has if there are none."""
        return self.expires - max(wall, steady)

    def ahead(self, wall: float, steady: float) -> float:
        """Seconds until it begins; it has if there are none."""
        return self.begins - min(wall, steady)

    @classmethod
    def lapsed(cls, id: str) -> Capability:
        """Of somebody who once came with one, of which no more is known than this: it permits nothing."""
        return cls(id=id, issuer="", signer="", subject="")
