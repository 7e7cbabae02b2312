"""Who and what is there now: clients, sessions, subscriptions and retained messages; disconnect, drop and clear."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from tidegate.admin.live.commands import (
    MOST,
    ClearTopic,
    DisconnectClient,
    DropSession,
    ListClients,
    ListSessions,
    ListSubscriptions,
    ListTopics,
    ShowClient,
    ShowTopic,
)
from tidegate.api.documents import ask, iso
from tidegate.api.requests import Id, Route, Signature, answer, channel
from tidegate.api.schemas import LONG, returns

Limit = Annotated[int, Query(ge=1, le=MOST, description="At most so many.")]
After = Annotated[str | None, Query(min_length=1, max_length=3 * LONG, description="`next` of the last page.")]
Scope = Annotated[str | None, Query(min_length=1, max_length=LONG, description="In this scope only.")]
User = Annotated[str | None, Query(min_length=1, max_length=LONG, description="Of this user only.")]
_TIMES: Final = ("since", "expires", "published", "at")


class SubscriptionCounts(BaseModel):
    granted: int
    held: int
    """Granted, and nothing is delivered before a rule allows it."""
    refused: int
    """By the present connection."""


class Queue(BaseModel):
    """What is owed to a session."""

    messages: int
    bytes: int
    in_flight: int
    """Sent, and not acknowledged."""
    waiting_for_level: int
    """Their connection is too weak for them."""


class Client(BaseModel):
    """Somebody who is connected."""

    client: str
    user: str | None
    scope: str
    level: str
    address: str | None
    listener: str | None
    protocol: str
    since: str
    subscriptions: SubscriptionCounts
    queue: Queue


class Session(BaseModel):
    """A session, of somebody who may be away."""

    client: str
    user: str | None
    scope: str
    kind: str
    """`client`, or `link` to another node."""
    connected: bool
    since: str | None
    """When it was connected, or when the last connection ended."""
    persistent: bool
    expires: str | None
    will: bool
    subscriptions: SubscriptionCounts
    queue: Queue


class LiveSubscription(BaseModel):
    filter: str
    client: str
    user: str | None
    scope: str
    qos: int
    held: bool
    group: str | None
    """Of a shared subscription."""
    where: str | None
    """Its condition."""


class Denial(BaseModel):
    at: str
    action: str | None
    topic: str | None
    stage: str | None
    rule: str | None
    count: int
    detail: str | None


class _Details(BaseModel):
    roles: list[str]
    groups: list[str]
    items: list[LiveSubscription] = Field(description="The first of its subscriptions; `/subscriptions` has all.")
    denials: list[Denial] = Field(description="What was denied to it lately, the newest first.")


class ShownClient(Client, _Details):
    """A client with its session."""

    kind: str
    connected: bool
    persistent: bool
    expires: str | None
    will: bool


class ShownSession(Session, _Details):
    level: str | None = None
    address: str | None = None
    listener: str | None = None
    protocol: str | None = None


class RetainedMessage(BaseModel):
    """A retained message, without its content: who may read that is decided by the rules."""

    topic: str
    scope: str
    bytes: int
    qos: int
    published: str
    publisher: str | None
    expires_in: float | None


class Branch(BaseModel):
    """A name in the tree of topics."""

    topic: str
    scope: str
    below: int
    """How many retained messages there are below it."""
    retained: RetainedMessage | None
    """That of exactly this topic."""


class Clients(BaseModel):
    items: list[Client]
    next: str | None


class Sessions(BaseModel):
    items: list[Session]
    next: str | None


class Subscriptions(BaseModel):
    items: list[LiveSubscription]
    next: str | None


class Topics(BaseModel):
    items: list[Branch]
    next: str | None


class Topic(BaseModel):
    topic: str
    retained: list[RetainedMessage]


class Disconnected(Client):
    dry_run: bool


class Dropped(Session):
    dry_run: bool


class Cleared(BaseModel):
    topic: str
    scopes: list[str]
    dry_run: bool


router = APIRouter(route_class=Route, tags=["live view"])


@router.get("/clients", summary="List who is connected", responses=returns(Clients, 404))
async def clients(
    request: Request, scope: Scope = None, user: User = None, limit: Limit = 100, after: After = None
) -> Response:
    """By client identifier. A page that is not full may have a `next`: then it has looked at as many as it may."""
    return await _listed(request, ListClients(scope=scope, user=user, limit=limit, after=after))


@router.get("/clients/{id}", summary="Show a client", responses=returns(ShownClient, 404, 409))
async def client(request: Request, id: Id, scope: Scope = None, user: User = None) -> Response:
    """With its first subscriptions, and what was denied to it lately."""
    return answer(_dated(await channel(request).ask(ShowClient(client=id, scope=scope, user=user))))


@router.delete("/clients/{id}", summary="Disconnect a client", responses=returns(Disconnected, 404, 409, 501, 504))
async def disconnect(request: Request, id: Id, signed: Signature, scope: Scope = None, user: User = None) -> Response:
    """Its session stays, and it may connect again."""
    done = await ask(request, DisconnectClient(client=id, scope=scope, user=user, **signed))
    return answer({**_dated(done), "dry_run": signed["dry_run"]})


@router.get("/sessions", summary="List sessions", responses=returns(Sessions, 404))
async def sessions(
    request: Request,
    scope: Scope = None,
    user: User = None,
    away: Annotated[bool, Query(description="Only of those who are not connected.")] = False,
    limit: Limit = 100,
    after: After = None,
) -> Response:
    return await _listed(request, ListSessions(scope=scope, user=user, away=away, limit=limit, after=after))


@router.get("/sessions/{id}", summary="Show a session", responses=returns(ShownSession, 404, 409))
async def session(request: Request, id: Id, scope: Scope = None, user: User = None) -> Response:
    return answer(_dated(await channel(request).ask(ShowClient(client=id, scope=scope, user=user, connected=False))))


@router.delete("/sessions/{id}", summary="Drop a session", responses=returns(Dropped, 404, 409, 501, 504))
async def drop(request: Request, id: Id, signed: Signature, scope: Scope = None, user: User = None) -> Response:
    """With its subscriptions and all that it is owed. Whoever is connected is disconnected."""
    done = await ask(request, DropSession(client=id, scope=scope, user=user, **signed))
    return answer({**_dated(done), "dry_run": signed["dry_run"]})


@router.get("/subscriptions", summary="List subscriptions", responses=returns(Subscriptions, 404))
async def subscriptions(
    request: Request,
    scope: Scope = None,
    user: User = None,
    client: Annotated[str | None, Query(min_length=1, max_length=LONG, description="Of this client only.")] = None,
    topic: Annotated[str | None, Query(min_length=1, max_length=LONG, description="Those that match it.")] = None,
    limit: Limit = 100,
    after: After = None,
) -> Response:
    command = ListSubscriptions(scope=scope, user=user, client=client, topic=topic, limit=limit, after=after)
    return await _listed(request, command)


@router.get("/topics", summary="List retained messages as a tree", responses=returns(Topics, 404))
async def topics(
    request: Request,
    scope: Scope = None,
    under: Annotated[
        str | None, Query(max_length=LONG, description="The names right below this one; default: the first level.")
    ] = None,
    limit: Limit = 100,
    after: After = None,
) -> Response:
    return await _listed(request, ListTopics(scope=scope, under=under, limit=limit, after=after))


@router.get("/topics/{id}", summary="Show a retained message", responses=returns(Topic, 404))
async def topic(request: Request, id: Id, scope: Scope = None) -> Response:
    """In each scope that has one, without its content."""
    return answer(_dated(await channel(request).ask(ShowTopic(topic=id, scope=scope))))


@router.delete("/topics/{id}", summary="Clear a retained message", responses=returns(Cleared, 404, 501, 504))
async def clear(request: Request, id: Id, signed: Signature, scope: Scope = None) -> Response:
    """In one scope, or in all of the node. Who has received it keeps it."""
    done = await ask(request, ClearTopic(topic=id, scope=scope, **signed))
    return answer({**done, "dry_run": signed["dry_run"]})


async def _listed(request: Request, command: ListClients | ListSessions | ListSubscriptions | ListTopics) -> Response:
    page = await channel(request).ask(command)
    return answer({"items": [_dated(each) for each in page["items"]], "next": page["next"]})


def _dated(row: dict[str, Any]) -> dict[str, Any]:
    """With times as texts, at every depth."""
    return {name: _value(name, value) for name, value in row.items()}


def _value(name: str, value: Any) -> Any:
    match value:
        case float() if name in _TIMES:
            return iso(value)
        case dict():
            return _dated(value)
        case list():
            return [_dated(each) if isinstance(each, dict) else each for each in value]
        case _:
            return value
