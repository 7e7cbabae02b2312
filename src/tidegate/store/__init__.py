"""What outlives the process: sessions, their subscriptions and queues, retained messages."""

from __future__ import annotations

from tidegate.store.load import Snapshot
from tidegate.store.opening import Durability
from tidegate.store.sqlite import SqliteStore

__all__ = ["Durability", "Snapshot", "SqliteStore"]
