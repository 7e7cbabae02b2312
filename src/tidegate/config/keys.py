"""Topic keys, in the configuration: which topics are protected, how long keys last, and who keeps them.

Rules that contradict a key are refused in `protected_topics`.
"""

from __future__ import annotations

from typing import Final

from pydantic import Field

from tidegate.config.address import TlsAddress
from tidegate.config.policies import Filter
from tidegate.config.section import FilePath, Section
from tidegate.config.units import Count, Duration
from tidegate.keys import ROTATE, USES
from tidegate.keys.ring import GROUPS, MOST_USES

OVERLAP: Final = 3600.0
YEAR: Final = 366 * 86400.0


class Ktm(Section):
    """The key service, if it is a process of its own (`tidegate ktm`)."""

    url: TlsAddress
    """`tls://`, host and port (default 8450)."""
    cert: FilePath
    """The node's certificate (PEM), by which the key service knows it."""
    key: FilePath | None = None
    """Its private key (PEM). Default: the one in the file of the certificate."""
    ca: FilePath
    """Certificates (PEM) of the authorities, one of which must have signed that of the key service."""


class Keys(Section):
    """Topic keys: what is encrypted, and for how long one key does."""

    protect: tuple[Filter, ...] = ()
    """Topic filters: what is published there is encrypted before it is stored, recorded or delivered. Who may read a
    topic is given its key."""
    end_to_end: tuple[Filter, ...] = ()
    """Topic filters: what is published there comes encrypted by its publisher, or is denied. The node does not see what
    is in it."""
    rotate: Duration = Field(default=ROTATE, ge=1, le=YEAR)
    """How long a key encrypts new messages."""
    overlap: Duration = Field(default=OVERLAP, ge=0, le=YEAR)
    """For how long after that a key is still given to those who may read: as long as messages may wait in queues, or be
    kept as retained ones."""
    uses: Count = Field(default=USES, ge=1, le=MOST_USES)
    """How many messages a key encrypts at most."""
    groups: Count = Field(default=GROUPS, ge=1, le=1 << 20)
    """For how many sorts of messages there are keys at a time. With more, those that were not used longest are
    forgotten."""
    ktm: Ktm | None = None
    """Where keys are kept and shared with other nodes. Default: in this node, and in `store` if that is PostgreSQL."""

    @property
    def any(self) -> bool:
        return bool(self.protect or self.end_to_end)
