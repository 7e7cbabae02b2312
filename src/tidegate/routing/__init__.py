"""Where a message goes: subscriptions by filter, values by topic, and groups that share a subscription.

Pure data structures. They hold opaque subscribers and values and decide nothing: who may receive what is for
the gate, and what is sent is for the session. Filters and topics are valid (`tidegate.topics`) before they
come here.
"""

from __future__ import annotations

from tidegate.routing.share_groups import Group, Shares
from tidegate.routing.subscriptions import Subscriptions
from tidegate.routing.tree import TopicTree

__all__ = ["Group", "Shares", "Subscriptions", "TopicTree"]
