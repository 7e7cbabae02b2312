"""Which of many topic filters may concern a topic, or a filter, without looking at all of them.

A tree of levels. What it answers is a superset: placeholders stand in it as `+`, and a leading `$` is not looked at,
so whoever asks compares the filters themselves. Nothing recurses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class _Node(Generic[T]):
    __slots__ = ("below", "children", "here")

    def __init__(self) -> None:
        self.children: dict[str, _Node[T]] = {}
        self.here: list[T] = []
        self.below: list[T] = []  # of filters that end in `#` after this level


class FilterIndex(Generic[T]):
    """Items by the levels of their filter."""

    __slots__ = ("_root",)

    def __init__(self) -> None:
        self._root: _Node[T] = _Node()

    def add(self, levels: Sequence[str], item: T) -> None:
        node = self._root
        for level in levels:
            if level == "#":
                node.below.append(item)
                return
            node = node.children.setdefault(level, _Node())
        node.here.append(item)

    def discard(self, levels: Sequence[str], item: T) -> None:
        """Takes out what was added with these levels; what they alone led to goes too."""
        node = self._root
        trail: list[tuple[_Node[T], str]] = []
        held = node.here
        for level in levels:
            if level == "#":
                held = node.below
                break
            trail.append((node, level))
            node = node.children[level]
            held = node.here
        held.remove(item)
        while trail and not (node.here or node.below or node.children):
            node, level = trail.pop()
            del node.children[level]

    def matching(self, topic: str) -> Iterator[T]:
        """Items whose filter may match a topic, or cover a filter."""
        return self._walk(topic, overlapping=False)

    def overlapping(self, filter: str) -> Iterator[T]:
        """Items whose filter may have a topic in common with this one."""
        return self._walk(filter, overlapping=True)

    def _walk(self, filter: str, *, overlapping: bool) -> Iterator[T]:
        front = [self._root]
        for level in filter.split("/"):
            if overlapping and level == "#":
                yield from self._under(front)
                return
            every = overlapping and level == "+"
            # the parent of `#` is no topic where there is none, so `+/#` covers `#`
            names = ("+",) if level == "+" else (level, "+")
            after: list[_Node[T]] = []
            for node in front:
                yield from node.below
                children = node.children
                after += children.values() if every else [children[name] for name in names if name in children]
            if not after:
                return
            front = after
        for node in front:
            yield from node.below
            yield from node.here

    @staticmethod
    def _under(front: list[_Node[T]]) -> Iterator[T]:
        left = list(front)
        while left:
            node = left.pop()
            yield from node.below
            yield from node.here
            left += node.children.values()
