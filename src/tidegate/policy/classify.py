"""`o.category`: what kind of data a topic carries (sharing, 2.2.1: sensitive, personal or generic).

The first row whose topic matches gives the category. A topic without one has no category, unless there is a default:
a predicate that reads it fails then, and a policy that fails denies.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tidegate import topics
from tidegate.policy.index import FilterIndex


@dataclass(frozen=True, slots=True, kw_only=True)
class Class:
    topic: str
    category: str


class Classification:
    """Topics by category, in file order."""

    def __init__(self, rows: Iterable[Class] = (), *, default: str | None = None) -> None:
        self.rows = tuple(rows)
        self.default = default
        self._index: FilterIndex[int] = FilterIndex()
        for position, row in enumerate(self.rows):
            self._index.add(row.topic.split("/"), position)

    def category(self, topic: str) -> str | None:
        for position in sorted(self._index.matching(topic)):
            if topics.matches(self.rows[position].topic, topic):
                return self.rows[position].category
        return self.default
