"""Connections to other nodes: made, kept, and made again."""

from __future__ import annotations

from tidegate.link.dialer import Dialer, State

__all__ = ["Dialer", "State"]
