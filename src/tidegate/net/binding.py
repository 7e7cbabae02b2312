"""Taking an address to listen on."""

from __future__ import annotations

import socket

from tidegate.errors import ConfigError


def bound(name: object, host: str, port: int, backlog: int, family: int = 0) -> socket.socket:
    """A socket that listens there; ConfigError, which calls it `name`, if the address cannot be had."""
    listening = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            # as bytes: for a text Python imports the tables of international names
            host.encode() if host.isascii() else host,
            port,
            family,
            socket.SOCK_STREAM,
            flags=socket.AI_PASSIVE,
        )[0]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.setblocking(False)
        listening.bind(address)
        listening.listen(backlog)
    except OSError as error:
        if listening is not None:
            listening.close()
        text = f"cannot listen on {name}: {error.strerror or error}; free the port or choose another address"
        raise ConfigError(text) from error
    return listening
