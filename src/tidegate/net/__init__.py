"""Listeners (TCP, TLS, WebSocket), the connection shell, flow control."""

from __future__ import annotations

from tidegate.net.binding import bound
from tidegate.net.connection_shell import ConnectionShell
from tidegate.net.endpoint import Endpoint, Tls, client_context
from tidegate.net.listener import Listener

__all__ = ["ConnectionShell", "Endpoint", "Listener", "Tls", "bound", "client_context"]
