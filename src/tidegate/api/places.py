"""Places for connections: so many in all, so many from one address, and some kept for those who must get in.

A connection that finds no ordinary place is given a kept one. There only a health check or a request of an
administrator is answered as usual; others are told to come again, and after any answer the connection is closed. A kept
place is for somebody with a request: if all are taken, whoever has been in one for longest without sending the head of
a request loses it. With TLS a connection has its place before the handshake.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, Protocol

KEPT: Final = 32


class Placed(Protocol):
    def leave(self) -> None:
        """It has lost its place."""
        ...


class Places:
    def __init__(self, most: int, address_most: int) -> None:
        self._most = most
        self._address_most = address_most
        self._ordinary: dict[Placed, str] = {}  # with whose address
        self._addresses: Counter[str] = Counter()
        self._silent: dict[Placed, None] = {}  # in kept places, the oldest first
        self._asking: set[Placed] = set()  # in kept places, with a request

    def enter(self, connection: Placed, address: str) -> bool:
        """Gives it a place: whether that is an ordinary one."""
        if len(self._ordinary) < self._most and self._addresses[address] < self._address_most:
            self._ordinary[connection] = address
            self._addresses[address] += 1
            return True
        if not self._addresses[address]:
            del self._addresses[address]
        self._silent[connection] = None
        if len(self._silent) + len(self._asking) > KEPT:
            oldest = next(iter(self._silent))  # the one that has just come if all others ask for something
            del self._silent[oldest]
            oldest.leave()
        return False

    def asks(self, connection: Placed) -> None:
        """The head of a request has come."""
        if connection in self._silent:
            del self._silent[connection]
            self._asking.add(connection)

    def left(self, connection: Placed) -> None:
        self._silent.pop(connection, None)
        self._asking.discard(connection)
        address = self._ordinary.pop(connection, None)
        if address is not None:
            self._addresses[address] -= 1
            if not self._addresses[address]:
                del self._addresses[address]
