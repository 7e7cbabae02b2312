"""Frees large containers a little at a time.

Freeing 100,000 plans at once frees a million objects, and the loop waits for it.
"""

from __future__ import annotations

from collections import deque
from typing import Any


class DeferredFree:
    """Containers that are not used any more and wait to be freed."""

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: list[dict[Any, Any] | deque[Any]] = []

    def __bool__(self) -> bool:
        return bool(self._heap)

    def add(self, *containers: dict[Any, Any] | deque[Any]) -> None:
        self._heap += (container for container in containers if container)

    def take(self, most: int) -> list[Any]:
        """Up to so many of the values; the dicts among them are taken apart later."""
        taken: list[Any] = []
        while self._heap and len(taken) < most:
            container = self._heap[-1]
            if not container:
                self._heap.pop()
                continue
            value = container.popitem()[1] if isinstance(container, dict) else container.popleft()
            if isinstance(value, dict) and value:
                self._heap.append(value)
            taken.append(value)
        return taken
