"""What happens from now on, as server-sent events: a row of the audit each.

The id of an event is the time of its row and a number among those of that time. Who comes back with it as
`Last-Event-ID` and asks for the same gets what it missed, as far as the node remembers. A stream ends when its token
does not count any more, when the node goes away, or when the process stops.
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
from starlette.requests import Request

from tidegate.api.callers import Callers
from tidegate.api.problems import Kind, Problem
from tidegate.api.requests import caller, channel
from tidegate.audit.rows import AuditRow, Query, shown

EVENTS: Final = "text/event-stream"
BEAT: Final = 5.0  # seconds between signs of life, and between looks at the token
FOLLOWED: Final = 4  # streams of one token
_ID: Final = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)/(\d{1,9})")


async def started(request: Request, wanted: Query, following: Counter[str]) -> AsyncIterator[bytes]:
    """A stream that has begun: what is wrong with it is told as a problem, and not in the middle of it."""
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

    async def events() -> AsyncIterator[bytes]:
        try:
            yield b": the audit of this node\n\n"
            async with aclosing(_rows(request, wanted, at)) as rows:
                last, count = at, 0
                async for row in rows:
                    if row is None:
                        yield b": alive\n\n"
                        continue
                    count = count + 1 if row.at == last else 1
                    last = row.at
                    if last != at or count > number:
                        yield b"id: %s\ndata: %s\n\n" % (f"{last!r}/{count}".encode(), orjson.dumps(shown(row)))
        except Problem:
            return  # whoever listens comes again, and is told then
        finally:
            following[token] -= 1

    return events()


async def _rows(request: Request, wanted: Query, at: float | None) -> AsyncGenerator[AuditRow | None, None]:
    """Rows as they come; None where none has come for a while."""
    callers: Callers = request.app.state.callers
    stopping: asyncio.Event = request.app.state.stopping
    said: dict[str, Any] = {**wanted.said(), **({"limit": 0} if at is None else {"since": at})}
    pieces = channel(request).follow("audit", follow=True, **said)
    stop = asyncio.ensure_future(stopping.wait())
    piece: asyncio.Future[Any] | None = None
    looked = time.monotonic()
    try:
        while not stop.done():
            if piece is None:
                piece = asyncio.ensure_future(anext(pieces, None))
            left = max(0.0, looked + BEAT - time.monotonic())
            await asyncio.wait((piece, stop), timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if time.monotonic() - looked >= BEAT:
                await callers.caller(request, fresh=True)
                looked = time.monotonic()
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
    """The time of the last event that was seen, and its number; None: no matter what was before."""
    written = request.headers.get("last-event-id", "")
    if not written:
        return None, 0
    found = _ID.fullmatch(written)
    if found is None:
        raise Problem(Kind.MALFORMED, "Last-Event-ID is no event of this audit", "send it as it was, or leave it out")
    return float(found[1]), int(found[2])
