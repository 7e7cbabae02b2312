"""A scope whose sessions, subscriptions, retained messages and routing are those of another broker.

Each client has a connection of its own to that broker (`upstream`). What it publishes takes steps 1 to 5 of the path,
and goes to the broker in an envelope; what the broker delivers comes out of its envelope and takes steps 6 to 11 for
exactly that client. Nothing passes without a decision, and nothing is acknowledged before the broker has done so.
"""

from __future__ import annotations

from tidegate.guard.guarded_scope import GuardedScope
from tidegate.guard.settings import Settings

__all__ = ["GuardedScope", "Settings"]
