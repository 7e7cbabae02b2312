"""Taking an address for a service that does its own accepting."""

from __future__ import annotations

import socket

from tidegate.errors import ConfigError


def bound(name: object, host: str, port: int, backlog: int) -> socket.socket:
    """A socket that listens there; ConfigError, which tells it by `name`, if the address cannot be had."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        made = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigError(f"cannot listen on {name}: {error.strerror or error}; choose another address") from error
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.setblocking(False)
        made.bind(address)
        made.listen(backlog)
    except OSError as error:
        made.close()
        raise ConfigError(f"cannot listen on {name}: {error.strerror or error}; choose another port") from error
    return made
