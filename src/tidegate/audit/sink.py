"""Where rows of the audit go: into the journal or the log, and into the memory of the last ones, for whoever follows.

`write` never waits and never fails. A follower that is slower than the node misses rows and is told how many.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from itertools import islice
from typing import Any

import structlog

from tidegate.audit.query import Query
from tidegate.store.journal import Writer
from tidegate.store.journal.rows import AuditRow, Kind

RECENT = 10_000  # rows that are remembered
PIECE = 200  # rows told at a time: less than a millisecond

log = structlog.get_logger("tidegate.audit")


class AuditSink:
    """Written on the loop."""

    __slots__ = ("_heard", "_recent", "journal", "logged", "written")

    def __init__(self, recent: int = RECENT) -> None:
        self.journal: Writer | None = None
        self.logged = False  # whether rows go to the log
        self.written = 0  # rows, ever
        self._recent: deque[AuditRow] = deque(maxlen=recent)
        self._heard: list[asyncio.Event] = []  # of those who follow

    def write(self, row: AuditRow) -> None:
        self.written += 1
        self._recent.append(row)
        if self.journal is not None:
            self.journal.append(tuple(row))  # plain: the garbage collector forgets about it
        elif self.logged:
            columns = row._asdict().items()
            log.info("audit", **{name: value for name, value in columns if value is not None and name != "at"})
        for event in self._heard:
            event.set()

    def recent(self) -> list[AuditRow]:
        """The last rows, the newest last."""
        return list(self._recent)

    async def stream(self, query: Query, limit: int, *, follow: bool = False) -> AsyncIterator[list[list[Any]]]:
        """The last `limit` rows that are wanted, in pieces; then, for a follower, those that come."""
        event = asyncio.Event()
        self._heard.append(event)
        try:
            seen = self.written
            async for piece in _pieces(await _last(self.recent(), query, limit)):
                yield piece
            while follow:
                await event.wait()
                event.clear()
                new = self.written - seen
                seen += new
                remembered = min(new, len(self._recent))
                rows = list(islice(reversed(self._recent), remembered))[::-1]
                if new > remembered:
                    detail = f"{new - remembered} rows came faster than they could be shown"
                    yield [list(AuditRow(rows[0].at, kind=Kind.ERROR.value, action="follow", detail=detail))]
                async for piece in _pieces(rows, query):
                    yield piece
        finally:
            self._heard.remove(event)


async def _last(rows: list[AuditRow], query: Query, limit: int) -> list[AuditRow]:
    wanted: list[AuditRow] = []
    for number, row in enumerate(reversed(rows), 1):
        if len(wanted) >= limit:
            break
        if query.takes(row):
            wanted.append(row)
        if number % PIECE == 0:
            await asyncio.sleep(0)
    return wanted[::-1]


async def _pieces(rows: list[AuditRow], query: Query | None = None) -> AsyncIterator[list[list[Any]]]:
    for start in range(0, len(rows), PIECE):
        piece = [list(row) for row in rows[start : start + PIECE] if query is None or query.takes(row)]
        if piece:
            yield piece
        await asyncio.sleep(0)
