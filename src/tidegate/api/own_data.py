"""What people are told about their own data: who can read it, who has, what they have said of it, and all of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Annotated, Any, Final

import orjson
from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.responses import Response

from tidegate.admin.me.commands import (
    MOST,
    ExportOwn,
    FollowNotices,
    GetOwnHistory,
    ListDeliveries,
    ListNotices,
    ListReaders,
)
from tidegate.api.audit import Moment, seconds
from tidegate.api.documents import iso
from tidegate.api.event_streams import EVENTS, beating, check_streams
from tidegate.api.problems import Kind, Problem
from tidegate.api.requests import Route, answer, caller, channel, user
from tidegate.api.schemas import LONG, problems, returns

LOOKING: Final = 30.0  # seconds for an answer that is looked up in the journal
Limit = Annotated[int, Query(ge=1, le=MOST, description="At most so many.")]
_TIMES: Final = ("at", "since", "first", "last", "made_at", "expires", "revoked_at", "published")


class ReaderClass(BaseModel):
    """Those whom the rules for this topic treat alike."""

    can: str = Field(description="`yes`, `no`, or `if`: it depends on what is not known yet.")
    when: str | None = Field(description="With `if`: the condition that is left, in CEL.")
    parts: list[str] | None = Field(description="If not all is shown: the JSON pointers that are.")
    rules: list[str] = Field(description="The rules that said so.")
    count: int
    roles: dict[str, int] = Field(description="How many of them have which role.")
    anonymous: bool = Field(description="Whether somebody without a name is one of them.")
    users: list[str] | None = Field(description="The first 1,000; null where names are not told.")
    clients: list[str] | None = Field(description="Clients that are of no user.")
    others: list[str] = Field(
        description="People of other domains and identity providers, such as `role:coach@remotegym` (`anybody@…`: of "
        "whom nothing is said), and links to other nodes, where those decide who reads."
    )


class Readers(BaseModel):
    topic: str
    rules: str = Field(description="The version of the rules that was asked.")
    readers: list[ReaderClass]


class Delivery(BaseModel):
    """What one reader has received under one topic."""

    user: str | None
    client: str | None
    roles: list[str] | None = Field(None, description="Where names are not told: the roles of the reader.")
    topic: str
    count: int
    first: str
    last: str


class Deliveries(BaseModel):
    recorded: bool = Field(description="Whether the node counts deliveries now: `record` is not `off`.")
    since: str
    complete: bool = Field(description="Whether everything since then was looked at.")
    items: list[Delivery]


class OwnVersion(BaseModel):
    """What one of your preferences was."""

    id: str
    sequence: int
    body: dict[str, Any] | None = Field(description="Null: it was deleted.")
    at: str
    by: str
    why: str


class OwnHistory(BaseModel):
    items: list[OwnVersion]


class Change(BaseModel):
    kind: str = Field(description="`policy`, `preference`, `view`, `user` and so on; `setting`: a part of the file.")
    name: str | None = Field(description="Null: a name that is not told.")
    how: str = Field(description="`added`, `changed`, `removed` or `expired`.")


class NewReader(BaseModel):
    """Somebody who can read more than before."""

    user: str | None
    client: str | None
    other: str | None = Field(None, description="People of another domain, such as `role:coach@remotegym`, or a link.")
    anonymous: bool = Field(description="Whoever has no name.")
    could: str = Field(description="Before: `no`, `if` or `yes`.")
    can: str
    when: str | None
    parts: list[str] | None


class NewReaders(BaseModel):
    filter: str = Field(description="The topics.")
    device: str | None = Field(description="As published by this device of yours.")
    count: int
    roles: dict[str, int] | None = Field(description="Where names are not told: how many have which role.")
    readers: list[NewReader] = Field(description="The first of them.")


class Notice(BaseModel):
    """Somebody new could read what is yours."""

    id: int
    at: str
    by: list[str] = Field(description="Who changed it; `clock`: something expired.")
    changes: list[Change]
    topics: list[NewReaders]


class Notices(BaseModel):
    complete: bool = Field(description="Whether every change until now has been looked at.")
    items: list[Notice]


router = APIRouter(route_class=Route, tags=["own data"])


def _own(request: Request) -> dict[str, str]:
    return {"user": user(request), "identity": caller(request).identity or ""}


@router.get("/me/readers", summary="Show who can read a topic of yours", responses=returns(Readers, 404))
async def readers(
    request: Request,
    topic: Annotated[str, Query(min_length=1, max_length=LONG, description="One that you publish to.")],
    client: Annotated[
        str | None, Query(min_length=1, max_length=LONG, description="As published by this client of yours.")
    ] = None,
    device: Annotated[
        str | None, Query(min_length=1, max_length=LONG, description="As published by this device or source of yours.")
    ] = None,
) -> Response:
    """Everybody of the directory, and people of other domains, by what the rules in force say."""
    command = ListReaders(topic=topic, client=client, device=device, **_own(request))
    return answer(await channel(request).ask(command, patience=LOOKING))


@router.get("/me/deliveries", summary="Show who has received what of yours", responses=returns(Deliveries))
async def deliveries(
    request: Request,
    since: Moment = None,
    until: Moment = None,
    topic: Annotated[str | None, Query(min_length=1, max_length=LONG, description="A topic filter.")] = None,
    single: Annotated[
        bool,
        Query(description="As written down, each by itself: one reader and topic within ten seconds are one, counted."),
    ] = False,
    limit: Limit = 100,
) -> Response:
    """Counts by reader and topic, the newest first; by default of the last day."""
    command = ListDeliveries(
        since=seconds(since, "since"),
        until=seconds(until, "until"),
        topic=topic,
        limit=limit,
        single=single,
        **_own(request),
    )
    return answer(_dated(await channel(request).ask(command, patience=LOOKING)))


@router.get("/me/history", summary="Show what your preferences were", responses=returns(OwnHistory))
async def history(request: Request, limit: Limit = 100) -> Response:
    """The newest change first, also of those that were deleted."""
    return answer(_dated(await channel(request).ask(GetOwnHistory(limit=limit, **_own(request)))))


@router.get(
    "/me/notices",
    summary="Show when somebody new could read what is yours",
    description=f"The newest first. With `Accept: {EVENTS}`: each notice an event, from now on, or from the one in "
    "`Last-Event-ID` on.",
    responses={200: {"model": Notices, "content": {EVENTS: {"schema": {"type": "string"}}}}, **problems(404)},
)
async def notices(request: Request, limit: Limit = 100) -> Response:
    if EVENTS in request.headers.get("accept", ""):
        return _followed(request)
    return answer(_dated(await channel(request).ask(ListNotices(limit=limit, **_own(request)))))


def _followed(request: Request) -> EventSourceResponse:
    after = request.headers.get("last-event-id", "")
    if after and not (after.isdecimal() and len(after) < 16):
        raise Problem(Kind.MALFORMED, "Last-Event-ID is not the id of a notice", "send it unchanged, or leave it out")
    following: Counter[str] = request.app.state.journal.following
    token = caller(request).token
    check_streams(request, following[token])
    following[token] += 1
    command = FollowNotices(since=int(after) if after else None, **_own(request))

    async def events() -> AsyncIterator[ServerSentEvent]:
        try:
            yield ServerSentEvent(comment="notices of yours")
            pieces = channel(request).follow(command.COMMAND, **command.arguments())
            async with aclosing(beating(request, pieces)) as items:
                async for news in items:
                    if news is None:
                        yield ServerSentEvent(comment="alive")
                    for each in news or ():
                        yield ServerSentEvent(orjson.dumps(_dated(each)).decode(), id=str(each["id"]))
        except Problem:
            return  # a client that reconnects gets the problem as its answer
        finally:
            following[token] -= 1

    return EventSourceResponse(events(), sep="\n", ping=0)  # `beating` says when to send a sign of life


@router.get(
    "/me/export",
    summary="Export everything that the node has of you",
    responses={200: {"content": {"application/json": {"schema": {"type": "object"}}}}, **problems()},
)
async def export(request: Request) -> Response:
    """Who you are, your clients, preferences with their history, tokens, sessions, retained messages, deliveries,
    notices, and the newest of your rows in the lake."""
    return answer(_dated(await channel(request).ask(ExportOwn(**_own(request)), patience=LOOKING)))


def _dated(value: Any) -> Any:
    """With times as texts, at every depth."""
    match value:
        case dict():
            return {
                name: iso(each) if name in _TIMES and isinstance(each, float) else _dated(each)
                for name, each in value.items()
            }
        case list():
            return [_dated(each) for each in value]
        case _:
            return value
