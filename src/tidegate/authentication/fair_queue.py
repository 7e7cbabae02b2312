"""Those who wait for the same workers, so that nobody waits long because of others.

Users take turns, and so do the shares of each user: its devices, and the addresses from which it comes. A user has a
bounded number of places; when all are taken, the newest of its largest share has to go.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    def __init__(self, most: int) -> None:
        """`most`: that one user may have waiting."""
        self._most = most
        self._users: dict[bytes, dict[bytes, deque[T]]] = {}  # in the order of their turns, and so are their shares

    def put(self, user: bytes, share: bytes, item: T) -> T | None:
        """One more waits; whoever has to go for it, which may be itself."""
        shares = self._users.setdefault(user, {})
        shares.setdefault(share, deque()).append(item)
        if sum(map(len, shares.values())) <= self._most:
            return None
        largest = max(reversed(shares), key=lambda each: len(shares[each]))
        dropped = shares[largest].pop()
        if not shares[largest]:
            del shares[largest]
        return dropped

    def take(self) -> T | None:
        """Whose turn it is; None: nobody waits."""
        if not self._users:
            return None
        user = next(iter(self._users))
        shares = self._users.pop(user)
        share = next(iter(shares))
        queue = shares.pop(share)
        item = queue.popleft()
        if queue:
            shares[share] = queue
        if shares:
            self._users[user] = shares
        return item
