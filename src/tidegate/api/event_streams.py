"""Server-sent events of what a node tells as it happens: kept open, and ended with the credential behind them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from typing import Any, Final

from fastapi import Request

from tidegate.api.callers import Callers
from tidegate.api.problems import Kind, Problem
from tidegate.api.requests import channel

EVENTS: Final = "text/event-stream"
BEAT: Final = 5.0  # seconds between two comments that keep the connection open, and between two checks of the token
FOLLOWED: Final = 4  # streams for one token


def check_streams(request: Request, following: int) -> None:
    """Problem if whoever asks, or everybody together, listens often enough already."""
    if following >= FOLLOWED:
        raise Problem(
            Kind.TOO_MANY,
            f"this token listens {FOLLOWED} times already",
            "close a stream first",
            headers={"Retry-After": "10"},
        )
    channel(request).check_streams()


async def beating(request: Request, pieces: AsyncGenerator[Any, None]) -> AsyncGenerator[Any, None]:
    """What the node tells, to whom it may be told; None every `BEAT` seconds, once the token was checked again."""
    callers: Callers = request.app.state.callers
    stopping: asyncio.Event = request.app.state.stopping
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
                item, piece = piece.result(), None
                if item is None:
                    return
                await callers.caller(request)  # nothing is told to whoever has lost their access meanwhile
                yield item
    finally:
        stop.cancel()
        if piece is not None:
            piece.cancel()
            await asyncio.wait((piece,))
        await pieces.aclose()
