"""Dictionaries with a bound, because strangers choose many of the keys that a node remembers.

A lookup is that of a `dict`, in C; only `cache[key] = value` looks at the size, so do not use `update` or `setdefault`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Bounded(dict[K, V]):
    """Holds at most `most` entries. A new key in a full one makes it forget all the others.

    `make` computes the value of a key that `cache[key]` does not find.
    """

    __slots__ = ("_make", "_most")

    def __init__(self, most: int, make: Callable[[K], V] | None = None) -> None:
        super().__init__()
        self._most = most
        self._make = make

    def __missing__(self, key: K) -> V:
        if self._make is None:
            raise KeyError(key)
        value = self[key] = self._make(key)
        return value

    def __setitem__(self, key: K, value: V) -> None:
        if len(self) >= self._most and key not in self:
            self.clear()
        super().__setitem__(key, value)


class Weighed(Bounded[K, V]):
    """Bounded as well by what its keys weigh together: strangers choose how long many of them are, too."""

    __slots__ = ("_free", "_room", "_weigh")

    def __init__(self, most: int, room: int, weigh: Callable[[K], int], make: Callable[[K], V] | None = None) -> None:
        super().__init__(most, make)
        self._room = self._free = room
        self._weigh = weigh

    def __setitem__(self, key: K, value: V) -> None:
        if key not in self:
            weight = self._weigh(key)
            if weight > self._free:
                self.clear()
            super().__setitem__(key, value)
            self._free -= weight
        else:
            super().__setitem__(key, value)

    def clear(self) -> None:
        self._free = self._room
        super().clear()


class Newest(OrderedDict[K, V]):
    """Holds the `most` entries that were stored last. Call `move_to_end` on use to keep the last used instead."""

    __slots__ = ("_most",)

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        while len(self) > self._most:
            self.popitem(last=False)
