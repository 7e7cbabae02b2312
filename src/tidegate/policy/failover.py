"""What a link to another node does when its connection is lost or overloaded (SEC-REDS, 3.2).

The end that connects decides; the other one is asked and confirms. One connection is the *default*, over which
everything goes. The others are *backups*.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Mode(Enum):
    """When backups are opened."""

    ACTIVE = "active"
    """All connections are open, and one of them carries (SEC-REDS, 3.2.1)."""
    ON_DEMAND = "on_demand"
    """A backup is opened when the default connection cannot be made any more (SEC-REDS, 3.2.2)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failover:
    """The backup strategy of a link (SEC-REDS, figure 3.2)."""

    mode: Mode = Mode.ON_DEMAND
    attempts: int = 4
    """How often the default connection is tried before a backup is opened."""
    interval: float = 3.0
    """Seconds from the beginning of one attempt to the next."""
    restore: float | None = 30.0
    """Seconds between two looks for a default connection that was lost; with `active`, how long it has to be there
    again before it carries. None: the link stays where it is."""
    heartbeat: float = 1.0
    """Seconds between two PINGREQ. A connection over which nothing comes for three of them is lost."""
    overload: int | None = None
    """A link with more messages in its queue goes over to a backup; None: it never does for that."""
