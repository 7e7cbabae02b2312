"""The one stream of events that all tabs of a browser share: what has changed, so that a page fetches what it shows.

An event says `now` (the numbers of this moment), `denials`, `clients` or `rules` (there are others than before), to
owners `mine` (other rules, or news) and `newest` (there may be newer messages of theirs), and nothing of their content:
that a page gets with the rights of whoever looks at it. The node is asked once for all streams, every other second; for
an owner every six.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any, Final

import orjson
from fastapi import APIRouter, Request
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.responses import Response

from tidegate.admin.me.commands import ListNotices, ShowOwn
from tidegate.admin.roles import Role
from tidegate.api.callers import Callers
from tidegate.api.problems import Kind, Problem
from tidegate.api.requests import caller, channel, user
from tidegate.console.numbers import Numbers, numbers_of
from tidegate.console.page import Page

STEP: Final = 2.0  # seconds between two looks
CHECK: Final = 10.0  # seconds between two checks of the session
STREAMS: Final = 200
OWN_STEPS: Final = 3  # looks between two at what somebody owns
OWN_STREAMS: Final = 8  # of one session

router = APIRouter(route_class=Page, include_in_schema=False)


@router.get("/ui/events")
async def events(request: Request) -> Response:
    who, following = caller(request), request.app.state.journal.following
    name = f"console {who.token}"
    if following[name] >= OWN_STREAMS or following["consoles"] >= STREAMS:
        raise Problem(Kind.TOO_MANY, "too many pages listen already", "close some of them")
    following[name] += 1
    following["consoles"] += 1

    async def sent() -> AsyncIterator[ServerSentEvent]:
        try:
            async for event in _events(request, looking=who.role is not Role.USER):
                yield event
        except Problem:
            return  # the browser comes again, and is told why
        finally:
            following[name] -= 1
            following["consoles"] -= 1

    return EventSourceResponse(sent(), sep="\n", ping=0)


async def _events(request: Request, looking: bool) -> AsyncIterator[ServerSentEvent]:
    callers: Callers = request.app.state.callers
    stopping: asyncio.Event = request.app.state.stopping
    checked = time.monotonic()
    last: Numbers | None = None
    number, seen = 0, None
    while not stopping.is_set():
        if time.monotonic() - checked >= CHECK:
            await callers.caller(request, fresh=True)
            checked = time.monotonic()
        if not looking:
            yield ServerSentEvent(event="tick", data="{}")
            if number % OWN_STEPS == 0:
                yield ServerSentEvent(event="newest", data="{}")
                known, seen = seen, await _own(request)
                if known not in (None, seen):
                    yield ServerSentEvent(event="mine", data="{}")
            number += 1
        else:
            found = await numbers_of(request)
            for name in found.changes(last):
                yield ServerSentEvent(event=name, data=_said(found) if name == "now" else "{}")
            last = found
        try:
            async with asyncio.timeout(STEP):
                await stopping.wait()
        except TimeoutError:
            continue


async def _own(request: Request) -> tuple[Any, ...]:
    """Another one, if there is something else to see for somebody about their own data."""
    owner, identity = user(request), caller(request).identity or ""
    notices = await channel(request).ask(ListNotices(user=owner, identity=identity, limit=1))
    return (await channel(request).ask(ShowOwn(user=owner, identity=identity)))["rules"], *(
        each["id"] for each in notices["items"]
    )


def _said(found: Numbers) -> str:
    said: dict[str, Any] = {"at": found.at, **{name: round(value, 3) for name, value in found.rates().items()}}
    return orjson.dumps(said).decode()
