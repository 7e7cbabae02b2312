"""The audit as server-sent events: one event for each new row.

The id of an event is the time of its row and the number of the row among those of that time. A client that reconnects
with it in `Last-Event-ID` and the same filters gets the rows it missed, as far as the node remembers them.
A stream ends when its token is not valid any more, when the node goes away, or when the process stops.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any, Final

import orjson
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.requests import Request

from tidegate.api.callers import Callers
from tidegate.api.problems import Kind, Problem
from tidegate.api.requests import caller, channel
from tidegate.audit.rows import Query, shown
from tidegate.store.journal.rows import AuditRow

EVENTS: Final = "text/event-stream"
BEAT: Final = 5.0  # seconds between two comments that keep the connection open, and between two checks of the token
FOLLOWED: Final = 4  # streams for one token
_ID: Final = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)/(\d{1,9})")


async def event_stream(request: Request, query: Query, following: Counter[str]) -> EventSourceResponse:
    """Rows that match a query, from now on. A request that is wrong gets a Problem before the stream begins."""
    at, number = _resumed(request)
    token = caller(request).token
    if following[token] >= FOLLOWED:
        raise Problem(
            Kind.TOO_MANY,
            f"this token listens {FOLLOWED} times already",
            "close a stream first",
            headers={"Retry-After": "10"},
        )
    channel(request).check_streams()
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


async def _rows(request: Request, query: Query, at: float | None) -> AsyncGenerator[AuditRow | None, None]:
    """Rows as they come; None every `BEAT` seconds, once the token was checked again."""
    callers: Callers = request.app.state.callers
    stopping: asyncio.Event = request.app.state.stopping
    arguments: dict[str, Any] = {**query.arguments(), **({"limit": 0} if at is None else {"since": at})}
    pieces = channel(request).follow("audit", follow=True, **arguments)
    stop = asyncio.ensure_future(stopping.wait())
    piece: asyncio.Future[Any] | None = None
    checked = time.monotonic()
    try:
        while not stop.done():
            if piece is None:
                piece = asyncio.ensure_future(anext(pieces, None))
            left = max(0.0, checked + BEAT - time.monotonic())
            await asyncio.wait((piece, stop), timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if time.monotonic() - checked >= BEAT:
                await callers.caller(request, fresh=True)
                checked = time.monotonic()
                yield None
            if piece.done():
                rows, piece = piece.result(), None
                if rows is None:
                    return
                for row in rows:
                    yield AuditRow(*row)
    finally:
        stop.cancel()
        if piece is not None:
            piece.cancel()
            await asyncio.wait((piece,))
        await pieces.aclose()


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
