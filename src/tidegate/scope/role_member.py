"""A member of a role: one connection that publishes into one scope and receives from another (session.Host).

The session lives in the receiving scope, with its subscriptions, its queue and its will.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.session import Line, MessageOptions, Peer, Route, Session
from tidegate.wire import Auth, Connect, Disconnect, Properties, Reason, Subscribe, Unsubscribe

if TYPE_CHECKING:
    from tidegate.scope.path import Path
    from tidegate.scope.scope import Scope


class Member:
    """Both scopes, seen from a connection."""

    __slots__ = ("_receiving",)

    def __init__(self, receiving: Scope) -> None:
        self._receiving = receiving

    # -- where it receives ---------------------------------------------------------------------------------------

    def connect(self, peer: Peer, packet: Connect) -> None:
        self._receiving.connect(peer, packet)

    def auth(self, peer: Peer, packet: Auth) -> None:
        self._receiving.auth(peer, packet)

    def disconnected(self, peer: Line, packet: Disconnect | None, reason: Reason) -> None:
        self._receiving.disconnected(peer, packet, reason)

    def subscribe(self, session: Session, packet: Subscribe) -> None:
        self._receiving.subscribe(session, packet)

    def unsubscribe(self, session: Session, packet: Unsubscribe) -> None:
        self._receiving.unsubscribe(session, packet)

    # -- where it publishes --------------------------------------------------------------------------------------

    def plan(self, peer: Line, topic: bytes) -> Route:
        return self._receiving.entrance.plan(peer, topic)

    def read_options(self, properties: Properties) -> tuple[MessageOptions, Properties]:
        return self._receiving.entrance.read_options(properties)

    def plan_as(self, peer: Line, topic: bytes, options: MessageOptions) -> tuple[Route, bytes]:
        return self._receiving.entrance.plan_as(peer, topic, options)

    @property
    def path(self) -> Path:
        return self._receiving.entrance.path
