"""Connections to other nodes: made, kept, and made again."""

from __future__ import annotations

from tidegate.link.dialer import Dialer, State
from tidegate.link.failover import Failover

__all__ = ["Dialer", "Failover", "State"]
