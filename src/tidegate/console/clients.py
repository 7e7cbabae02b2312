"""*Clients* and *Topics*: who is there, what is retained, and who can read or write a topic, by which rule."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from tidegate.admin.live.commands import (
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
from tidegate.api.documents import ask
from tidegate.api.problems import Kind, Problem
from tidegate.api.requests import Id, channel
from tidegate.api.schemas import LONG, Question
from tidegate.console.page import NONE, Page, form, render, segment, to
from tidegate.console.rules import signed

LISTED: Final = 100
ASKED: Final = 40  # people and roles that a topic is tried for
Text = Annotated[str, Query(max_length=LONG)]
After = Annotated[str | None, Query(max_length=3 * LONG)]

router = APIRouter(route_class=Page, include_in_schema=False)


@router.get("/ui/clients")
async def clients(
    request: Request, user: Text = "", client: Text = "", away: bool = False, after: After = None
) -> Response:
    if client:
        return to(f"/ui/clients/{segment(client)}")
    owner = user or None
    command = (
        ListSessions(user=owner, away=True, limit=LISTED, after=after)
        if away
        else ListClients(user=owner, limit=LISTED, after=after)
    )
    found = await channel(request).ask(command)
    return render(request, "clients.html", items=found["items"], next=found["next"], user=user, away=away)


@router.get("/ui/clients/{id}")
async def client(request: Request, id: Id, scope: Text = "", user: Text = "") -> Response:
    try:
        shown = await channel(request).ask(
            ShowClient(client=id, scope=scope or None, user=user or None, connected=False)
        )
    except Problem as problem:
        if problem.kind is not Kind.CONFLICT:
            raise
        return render(request, "problem.html", code=409, problem=problem)
    return render(request, "client.html", client=shown)


@router.post("/ui/clients/{id}/disconnect")
async def disconnect(request: Request, id: Id) -> Response:
    given = await form(request)
    await ask(request, DisconnectClient(client=id, **_place(given), **signed(request, dry=False, why=_why(given))))
    return to("/ui/clients")


@router.post("/ui/sessions/{id}/drop")
async def drop(request: Request, id: Id) -> Response:
    given = await form(request)
    await ask(request, DropSession(client=id, **_place(given), **signed(request, dry=False, why=_why(given))))
    return to("/ui/clients")


def _place(given: dict[str, str]) -> dict[str, str | None]:
    return {"scope": given.get("scope") or None, "user": given.get("user") or None}


def _why(given: dict[str, str]) -> str:
    return given.get("why", "") or "from the console"


@router.get("/ui/topics")
async def topics(request: Request, under: Text = "", topic: Text = "", after: After = None) -> Response:
    if topic:
        return to(f"/ui/topics/{segment(topic)}")
    found = await channel(request).ask(ListTopics(under=under or None, limit=LISTED, after=after))
    levels = under.split("/") if under else []
    crumbs = [(name, "/".join(levels[: at + 1])) for at, name in enumerate(levels)]
    return render(request, "topics.html", items=found["items"], next=found["next"], under=under, crumbs=crumbs)


@router.get("/ui/topics/{id}")
async def topic(request: Request, id: Id) -> Response:
    """What is retained there, who has subscribed, and who could read and write it. Contents are not shown."""
    try:
        retained = (await channel(request).ask(ShowTopic(topic=id)))["retained"]
    except Problem as problem:
        if problem.kind is not Kind.UNKNOWN:
            raise
        retained = []
    publisher = next((each["publisher"] for each in retained if each["publisher"]), None)
    subscribed = await channel(request).ask(ListSubscriptions(topic=id, limit=LISTED))
    asked = await _everybody(request)
    writers = [await _may(request, who, "write", id, None) for who in asked]
    if publisher is None:  # who reads may depend on who has written: somebody who may
        publisher = next((who for who, may in zip(asked, writers, strict=True) if may["verdict"] == "allow"), None)
    readers = [await _may(request, who, "read", id, publisher) for who in asked]
    return render(
        request,
        "topic.html",
        topic=id,
        retained=retained,
        subscribed=subscribed["items"],
        people=list(zip(asked, readers, writers, strict=True)),
        publisher=publisher,
    )


async def _everybody(request: Request) -> list[str]:
    """Users of the directory and their devices, as far as a page can show them."""
    from tidegate.api.documents import page

    users = [each["id"] for each in (await page(request, "user", ASKED, None))["items"]]
    devices = (await page(request, "client", ASKED, None))["items"]
    return [
        *(f"user:{name}" for name in users),
        *(f"user:{each['value']['user']}/client:{each['id']}" for each in devices if each["value"].get("user")),
    ][:ASKED]


async def _may(request: Request, who: str, action: str, topic: str, publisher: str | None) -> dict[str, Any]:
    asked: dict[str, Any] = {"as": who, "action": action, "topic": topic}
    if publisher and action == "read":
        asked["from"] = publisher
    try:
        told = await channel(request).ask(Question.model_validate(asked).command())
    except Problem as problem:
        return {"verdict": NONE, "rule": None, "note": problem.detail}
    return {"verdict": told["verdict"], "rule": told["rule"], "note": ""}


@router.post("/ui/topics/{id}/clear")
async def clear(request: Request, id: Id) -> Response:
    given = await form(request)
    await ask(request, ClearTopic(topic=id, scope=None, **signed(request, dry=False, why=_why(given))))
    return to("/ui/topics")
