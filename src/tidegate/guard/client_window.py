"""How many QoS 1 and 2 messages a client takes at a time: its receive maximum.

A broker of MQTT 5 keeps to it for what it sends itself. One of 3.1.1 is not told, and what the guard adds comes on top
of both. So what has no room is decided and sent when the client has acknowledged something.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class ClientWindow:
    """Of one connection of a client that has said how many."""

    __slots__ = ("_going", "_open", "_waiting", "quota")

    def __init__(self, quota: int) -> None:
        self.quota = quota
        self._open: set[int] = set()  # packet identifiers that the client has not acknowledged
        self._waiting: deque[Callable[[], None]] = deque()  # bounded: brokers and the guard have bounds of their own
        self._going = False

    def has_room(self, pid: int, later: Callable[[], None]) -> bool:
        """Whether a message may be sent now; otherwise `later` is called when one may."""
        if pid in self._open or (len(self._open) < self.quota and (self._going or not self._waiting)):
            return True
        self._waiting.append(later)
        return False

    def sent(self, pid: int) -> None:
        self._open.add(pid)

    def settled(self, pid: int) -> None:
        """The client has acknowledged it for good."""
        self._open.discard(pid)
        if self._going:
            return
        self._going = True
        try:
            while self._waiting and len(self._open) < self.quota:
                self._waiting.popleft()()
        finally:
            self._going = False
