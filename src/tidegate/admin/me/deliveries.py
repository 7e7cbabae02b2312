"""Who has received what of somebody's, from the counts that the audit has written down.

The audit names publishers (`user:mary/client:tr1`), so what counts is what was published under the name since the
identity has it. A user name may hold a `/`: a row is not of mary if it is of a user whose longer name begins like hers.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tidegate import topics
from tidegate.policy.subject import in_list
from tidegate.store.journal import AUDIT, Reader
from tidegate.store.journal.rows import AuditRow, Kind
from tidegate.store.journal.selection import Selection

LOOKING: Final = 2.0  # seconds for one answer
WINDOW: Final = 50_000  # rows looked at at a time
KEPT: Final = 10_000
"""Readers and topics that are counted apart; the others are not told."""
_DELIVERED: Final = {"kind": Kind.ALLOWED.value, "action": "read"}

Pair = tuple[str | None, str | None, str, float]
"""A user, a client, and a topic; and for single ones, when."""


@dataclass(slots=True)
class Count:
    count: int
    first: float
    last: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Whose deliveries, since when, and of which topics."""

    starts: tuple[str, ...]
    """What publishers begin with that are theirs: they themselves and their devices."""
    others: tuple[str, ...]
    """What those begin with whose names begin like one of these."""
    since: float
    until: float
    topic: str | None = None

    @classmethod
    def of(cls, own: Collection[str], users: Iterable[str], **more: Any) -> Wanted:
        """`own`: the users that are theirs, of all these users."""
        longer = tuple(f"{each}/client:" for each in own)
        others = tuple(f"user:{in_list(each)}/" for each in users if each.startswith(longer) and each not in own)
        return cls(starts=tuple(f"user:{in_list(each)}/" for each in own), others=others, **more)

    def takes(self, publishers: str | None, topic: str | None, at: float) -> bool:
        if publishers is None or topic is None or not self.since <= at < self.until:
            return False
        if self.topic is not None and not topics.matches(self.topic, topic):
            return False
        own = (each for each in publishers.split(", ") if each.startswith(self.starts))
        return any(not each.startswith(self.others) for each in own)


class Deliveries:
    """Counts, by reader and topic; `single`: each row by itself, the newest `KEPT`."""

    def __init__(self, wanted: Wanted, *, single: bool = False) -> None:
        self._single = single
        self.complete = True
        """Everything since then was looked at, and told."""
        self.counts: dict[Pair, Count] = {}
        self._wanted = wanted

    def take(self, row: AuditRow) -> None:
        if row.kind != Kind.ALLOWED.value or row.action != "read":
            return
        if not self._wanted.takes(row.publisher, row.topic, row.at):
            return
        pair = (row.user, row.client, row.topic or "", row.at if self._single else 0.0)
        known = self.counts.get(pair)
        if known is not None:
            known.count += row.count
            known.first, known.last = min(known.first, row.at), max(known.last, row.at)
        elif len(self.counts) < KEPT:
            self.counts[pair] = Count(row.count, row.at, row.at)
        else:
            self.complete = False

    def read(self, data: Path) -> None:
        """From the journal, the newest first, for as long as it may take; blocks."""
        deadline = time.monotonic() + LOOKING
        with Reader(data, AUDIT) as reader:
            first, stop = reader.bounds()
        select = Selection(since=self._wanted.since, until=self._wanted.until, where=_DELIVERED)
        while stop > first:
            if time.monotonic() > deadline:
                self.complete = False
                return
            start = max(first, stop - WINDOW)
            with Reader(data, AUDIT, start=start, stop=stop, select=select) as reader:
                for row in reader.rows():
                    self.take(_row(row))
            with Reader(data, AUDIT, start=start, stop=start + 1) as reader:
                oldest = next(iter(reader.rows()), None)
            if oldest is not None and _row(oldest).at < self._wanted.since:
                return
            stop = start

    def shown(self, limit: int) -> list[dict[str, Any]]:
        """The newest first."""
        newest = sorted(self.counts.items(), key=lambda item: item[1].last, reverse=True)
        return [
            {
                "user": user,
                "client": client,
                "topic": topic,
                "count": each.count,
                "first": each.first,
                "last": each.last,
            }
            for (user, client, topic, _), each in newest[:limit]
        ]


def _row(columns: dict[str, Any]) -> AuditRow:
    from tidegate.audit.query import from_columns

    return from_columns(columns)
