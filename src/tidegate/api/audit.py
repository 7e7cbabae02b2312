"""The audit: pages of it, the newest first, and what happens from now on as server-sent events.

Pages come from the journal in the node's data folder, which is read here and costs the node nothing; where there is
none they come from what the node remembers. A page is made within `LOOKING` seconds: one that is not full by then goes
on where it stopped.

The id of an event is the time of its row and the number of the row among those of that time. A client that reconnects
with it in `Last-Event-ID` and the same filters gets the rows it missed, as far as the node remembers them.
A stream ends when its token is not valid any more, when the node goes away, or when the process stops.
"""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from datetime import UTC
from pathlib import Path
from typing import Annotated, Any, Final

import orjson
from fastapi import APIRouter, Query, Request
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.responses import Response

from tidegate.api.channel import Channel
from tidegate.api.event_streams import EVENTS, beating, check_streams
from tidegate.api.problems import Kind, Problem
from tidegate.api.requests import Route, answer, caller, channel
from tidegate.api.schemas import Rows, problems
from tidegate.audit.query import Query as AuditQuery
from tidegate.audit.query import from_columns, shown
from tidegate.config.units import moment
from tidegate.errors import TidegateError
from tidegate.store.journal import AUDIT, Reader
from tidegate.store.journal.rows import AuditRow

LOOKING: Final = 2.0  # seconds
READERS: Final = 2  # pages made at a time: each takes a thread and a core
WINDOW: Final = 20_000  # rows looked at at a time
FRESH: Final = 1.0  # seconds: how often the node is asked to write down what it has only counted
REMEMBERED: Final = 10_000  # rows that a node has in memory
_ID: Final = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)/(\d{1,9})")
_CURSOR: Final = re.compile(r"j(\d{1,18})|m(\d+(?:\.\d+)?(?:e[+-]?\d{1,3})?)\.(\d{1,9})n")
_TEXT = r"^[^\x00-\x1f\x7f-\x9f]+$"

router = APIRouter(route_class=Route)
Text = Annotated[str | None, Query(min_length=1, max_length=65_535, pattern=_TEXT)]
Moment = Annotated[str | None, Query(max_length=40, description="ISO 8601; without a zone it is UTC.")]


class Journal:
    def __init__(self, channel: Channel, data: Path | None) -> None:
        self._channel = channel
        self._data = data
        self._readers = asyncio.Semaphore(READERS)
        self._asked = -math.inf
        self.following: Counter[str] = Counter()

    async def page(self, query: AuditQuery, limit: int, before: str | None) -> dict[str, Any]:
        cursor = None if before is None else _CURSOR.fullmatch(before)
        if before is not None and cursor is None:
            raise _no_cursor()
        if self._data is None:
            return await self._remembered(query, limit, cursor)
        if cursor is not None and cursor[1] is None:
            raise _no_cursor()
        if cursor is None and time.monotonic() - self._asked > FRESH:
            self._asked = time.monotonic()
            await self._channel.ask("audit_written")
        stop = None if cursor is None else int(cursor[1])
        async with self._readers:
            rows, following = await asyncio.to_thread(_read, self._data, query, limit, stop)
        return {"items": [shown(row) for row in rows], "next": None if following is None else f"j{following}"}

    async def _remembered(self, query: AuditQuery, limit: int, cursor: re.Match[str] | None) -> dict[str, Any]:
        """Rows have no numbers here, so a cursor is a time and how many rows of that time were shown."""
        arguments, skip = query.arguments(), 0
        if cursor is not None:
            if cursor[2] is None:
                raise _no_cursor()
            at, skip = float(cursor[2]), int(cursor[3])
            arguments["until"] = min(math.nextafter(at, math.inf), arguments.get("until", math.inf))
        rows: list[AuditRow] = []
        ask = min(limit + skip + 1, REMEMBERED)
        async for piece in self._channel.follow("audit", limit=ask, **arguments):
            rows += [AuditRow(*row) for row in piece]
        rows = rows[::-1][skip:]
        page = rows[:limit]
        following = None
        if len(rows) > limit:
            last = page[-1].at
            same = sum(row.at == last for row in page)
            again = skip if cursor is not None and float(cursor[2]) == last else 0
            following = f"m{last!r}.{same + again}n"
        return {"items": [shown(row) for row in page], "next": following}


@router.get(
    "/audit",
    tags=["audit"],
    summary="Show what was decided, and who changed what",
    description=f"With `Accept: {EVENTS}`: what happens from now on, each row an event, until either side ends it.",
    responses={
        200: {"model": Rows, "content": {EVENTS: {"schema": {"type": "string"}}}},
        **problems(404),
    },
)
async def audit(
    request: Request,
    since: Moment = None,
    until: Moment = None,
    kind: Annotated[
        list[str] | None, Query(max_length=10, description="`deny`, `change`, `connect` and so on.")
    ] = None,
    user: Text = None,
    client: Text = None,
    topic: Text = None,
    rule: Text = None,
    stage: Text = None,
    limit: Annotated[int, Query(ge=1, le=1000, description="At most so many.")] = 100,
    before: Annotated[str | None, Query(max_length=64, description="`next` of the last page.")] = None,
) -> Response:
    try:
        query = AuditQuery(
            since=seconds(since, "since"),
            until=seconds(until, "until"),
            kinds=frozenset(kind or ()),
            user=user,
            client=client,
            topic=topic,
            rule=rule,
            stage=stage,
        )
    except TidegateError as error:
        raise Problem(Kind.INVALID, str(error)) from None
    journal: Journal = request.app.state.journal
    if EVENTS in request.headers.get("accept", ""):
        return await _event_stream(request, query, journal.following)
    return answer(await journal.page(query, limit, before))


# -- pages -----------------------------------------------------------------------------------------------------------


def _read(data: Path, query: AuditQuery, limit: int, stop: int | None) -> tuple[list[AuditRow], int | None]:
    """The newest rows before `stop` that match, the newest first; and the offset to continue at."""
    until = time.monotonic() + LOOKING
    with Reader(data, AUDIT) as reader:
        first, end = reader.bounds()
    stop = end if stop is None else min(stop, end)
    matching: list[dict[str, Any]] = []
    while stop > first and len(matching) < limit and time.monotonic() < until:
        start = max(first, stop - WINDOW)
        with Reader(data, AUDIT, start=start, stop=stop, select=query.selection()) as reader:
            rows = [row for batch in reader.batches() for row in batch.to_pylist()]
        rows = rows[::-1][: limit - len(matching)]
        matching += rows
        stop = rows[-1]["offset"] if len(matching) == limit else start
    return [from_columns(row) for row in matching], stop if stop > first else None


def _no_cursor() -> Problem:
    return Problem(Kind.INVALID, "`before` is no place in this audit", "send `next` of an answer, as it was")


def seconds(written: str | None, name: str) -> float | None:
    if written is None:
        return None
    try:
        parsed = moment(written)
        return (parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError, OSError):
        raise Problem(Kind.INVALID, f"`{name}` is no time", "write for example 2026-03-02T09:30:00Z") from None


# -- events ------------------------------------------------------------------------------------------------------------


async def _event_stream(request: Request, query: AuditQuery, following: Counter[str]) -> EventSourceResponse:
    """Rows that match a query, from now on. A request that is wrong gets a Problem before the stream begins."""
    at, number = _resumed(request)
    token = caller(request).token
    check_streams(request, following[token])
    following[token] += 1

    async def events() -> AsyncIterator[ServerSentEvent]:
        try:
            yield ServerSentEvent(comment="the audit of this node")
            async with aclosing(_rows(request, query, at)) as rows:
                last, count = at, 0
                async for row in rows:
                    if row is None:
                        yield ServerSentEvent(comment="alive")
                        continue
                    count = count + 1 if row.at == last else 1
                    last = row.at
                    if last != at or count > number:
                        yield ServerSentEvent(orjson.dumps(shown(row)).decode(), id=f"{last!r}/{count}")
        except Problem:
            return  # a client that reconnects gets the problem as its answer
        finally:
            following[token] -= 1

    return EventSourceResponse(events(), sep="\n", ping=0)  # `_rows` says when to send a sign of life


async def _rows(request: Request, query: AuditQuery, at: float | None) -> AsyncGenerator[AuditRow | None, None]:
    """Rows as they come; None every `BEAT` seconds."""
    arguments: dict[str, Any] = {**query.arguments(), **({"limit": 0} if at is None else {"since": at})}
    pieces = channel(request).follow("audit", follow=True, **arguments)
    async with aclosing(beating(request, pieces)) as items:
        async for rows in items:
            for row in (None,) if rows is None else rows:
                yield None if row is None else AuditRow(*row)


def _resumed(request: Request) -> tuple[float | None, int]:
    """The time and number of the last event that the client has; None: it wants new rows only."""
    header = request.headers.get("last-event-id", "")
    if not header:
        return None, 0
    event = _ID.fullmatch(header)
    if event is None:
        raise Problem(
            Kind.MALFORMED,
            "Last-Event-ID is not the id of an event of this audit",
            "send it unchanged, or leave it out",
        )
    return float(event[1]), int(event[2])
