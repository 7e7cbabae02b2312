"""The names of topics in order, as a tree: what lies below a name, a page at a time, without a walk through all.

A `/` is kept as U+0000, which no topic holds: so everything below a name stands together, right behind the name itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

from sortedcontainers import SortedList

_SEPARATOR: Final = "\0"
_BEHIND: Final = "\1"
"""After everything below a name, and before every other name on its level."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """A name on one level of the tree."""

    topic: str
    """In full."""
    here: bool
    """Whether there is a topic of exactly this name."""
    below: int
    """How many topics are below it."""


class TopicNames:
    """A set of topic names."""

    __slots__ = ("_names",)

    def __init__(self) -> None:
        self._names: SortedList = SortedList()

    def __len__(self) -> int:
        return len(self._names)

    def add(self, topic: str) -> None:
        """One that is not there."""
        self._names.add(topic.replace("/", _SEPARATOR))

    def remove(self, topic: str) -> None:
        """One that is there."""
        self._names.remove(topic.replace("/", _SEPARATOR))

    def after(self, topic: str, limit: int) -> list[str]:
        """At most so many topics behind one, in order; behind the empty name: the first."""
        names = islice(self._names.irange(topic.replace("/", _SEPARATOR), inclusive=(False, True)), limit)
        return [name.replace(_SEPARATOR, "/") for name in names]

    def below(self, under: str | None, after: str | None = None) -> Iterator[Branch]:
        """The branches right below a name, or of the first level, in order; `after`: those behind that branch.

        The set must not change between two steps.
        """
        names = self._names
        base = "" if under is None else under.replace("/", _SEPARATOR) + _SEPARATOR
        at = names.bisect_left(base if after is None else after.replace("/", _SEPARATOR) + _BEHIND)
        while at < len(names) and names[at].startswith(base):
            branch = base + names[at][len(base) :].partition(_SEPARATOR)[0]
            end = names.bisect_left(branch + _BEHIND)
            here = names[at] == branch
            yield Branch(topic=branch.replace(_SEPARATOR, "/"), here=here, below=end - at - here)
            at = end
