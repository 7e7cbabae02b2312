"""A member of a role: one connection that publishes into one scope and receives from another (session.Host).

The session lives in the receiving scope, with its subscriptions, its queue and its will.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidegate.scope.path import Path
    from tidegate.scope.plans import Plans
    from tidegate.scope.scope import Scope


class Member:
    """Both scopes, seen from a connection."""

    __slots__ = ("_receiving", "handshake", "lifetime", "subscribing")

    def __init__(self, receiving: Scope) -> None:
        self._receiving = receiving
        self.handshake = receiving.handshake
        self.lifetime = receiving.lifetime
        self.subscribing = receiving.subscribing

    # A change of the rules may give the role another scope to publish into.

    @property
    def plans(self) -> Plans:
        return self._receiving.entrance.plans

    @property
    def path(self) -> Path:
        return self._receiving.entrance.path
