"""What the configuration says of one guarded broker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b

from tidegate.config.address import Address
from tidegate.config.scopes import Authenticate, Gone, Unenveloped
from tidegate.guard.abilities import Abilities
from tidegate.policy.scopes import ScopeLink


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeSettings:
    """Another broker's bridge that is a client."""

    environment: str
    """What its link calls the environment behind it."""
    key: bytes
    """What messages there are authenticated with."""
    into: ScopeLink | None
    """What crosses from there; None: nothing."""
    out: ScopeLink | None
    """What crosses from here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One guarded scope."""

    address: Address
    abilities: Abilities
    """What its broker can do."""
    several: bool
    """Whether other guards stand in front of the same broker."""
    authenticate: Authenticate
    unenveloped: Unenveloped
    as_property: bool
    """Whether envelopes are in a user property."""
    level: str | None
    """Of the connection to the broker; None: what it has."""
    gone: Gone
    username: str | None
    password: bytes | None
    key: bytes
    """What envelopes are authenticated with."""
    max_age: float | None
    """Seconds after which a message of the broker is not taken any more; None: it is."""
    bridges: Mapping[str, BridgeSettings]
    """By the user that each authenticates as."""
    max_packet: int
    """Bytes of a packet that is taken from the broker."""

    def client_id(self, principal: str, client: str) -> str:
        """As whom the broker knows a client. None of several guards can tell who has come to another with this client
        identifier: so at the broker each principal has client identifiers of its own."""
        if not self.several:
            return client
        digest = blake2b(principal.encode(), digest_size=8, key=self.key).hexdigest()
        return f"{digest}-{client}"

    @property
    def inside(self) -> bool:
        """Whether the broker counts as a part of this node (semantics, *Guard*)."""
        return self.address.loopback
