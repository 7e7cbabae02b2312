"""What the configuration says of one guarded broker."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.config.address import Address
from tidegate.config.links import Authenticate, Gone, Unenveloped


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One guarded scope."""

    address: Address
    authenticate: Authenticate
    unenveloped: Unenveloped
    gone: Gone
    username: str | None
    password: bytes | None
    key: bytes
    """What envelopes are authenticated with."""
    max_age: float | None
    """Seconds after which a message of the broker is not taken any more; None: it is."""
    max_packet: int
    """Bytes of a packet that is taken from the broker."""

    @property
    def inside(self) -> bool:
        """Whether the broker counts as a part of this node (semantics, *Guard*)."""
        return self.address.loopback
