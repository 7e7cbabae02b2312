"""The states of monitors whose clients are gone: which of them are let go of when there are too many.

Strangers choose how many clients they are, and what their states hold. So those of whoever has most go first, the
oldest of them: nobody makes the node forget what it remembers of others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import cbor2

from tidegate.monitor import State

KEPT: Final = 100_000
"""States of clients that are gone; each `SIZE` bytes of one count like another."""
SIZE: Final = 512

Where = tuple[str, str]
"""A monitor, and whose state it is."""


class IdleStates:
    """Where they are, by who had them: a principal."""

    def __init__(self, most: int = KEPT) -> None:
        self._most = most
        self._weight = 0
        self._weights: dict[Where, tuple[str, int]] = {}
        self._owned: dict[str, dict[Where, None]] = {}  # the oldest first
        self._totals: dict[str, int] = {}

    def __contains__(self, where: Where) -> bool:
        return where in self._weights

    def __len__(self) -> int:
        return len(self._weights)

    def add(self, where: Where, principal: str, state: State) -> None:
        self.discard(where)
        weight = 1 + (0 if state is None or isinstance(state, str) else len(cbor2.dumps(state)) // SIZE)
        self._weights[where] = principal, weight
        self._owned.setdefault(principal, {})[where] = None
        self._totals[principal] = self._totals.get(principal, 0) + weight
        self._weight += weight

    def discard(self, where: Where) -> None:
        known = self._weights.pop(where, None)
        if known is None:
            return
        principal, weight = known
        self._weight -= weight
        self._totals[principal] -= weight
        del self._owned[principal][where]
        if not self._owned[principal]:
            del self._owned[principal], self._totals[principal]

    def excess(self) -> Iterator[Where]:
        """Those that have to go, which are not here any more then."""
        while self._weight > self._most:
            principal = max(self._totals, key=self._totals.__getitem__)
            where = next(iter(self._owned[principal]))
            self.discard(where)
            yield where
