"""*Clients*: who is there, what they have subscribed to, and what they are owed; disconnect, and drop a session."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from tidegate.admin.live.commands import (
    DisconnectClient,
    DropSession,
    ListClients,
    ListSessions,
    ShowClient,
)
from tidegate.api.documents import ask
from tidegate.api.problems import Kind, Problem
from tidegate.api.requests import Id, channel
from tidegate.api.schemas import LONG
from tidegate.console.page import Page, form, render, segment, to
from tidegate.console.rules import signed

LISTED: Final = 100
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
    await ask(request, DisconnectClient(client=id, **_place(given), **signed(request, dry=False, why=why(given))))
    return to("/ui/clients")


@router.post("/ui/sessions/{id}/drop")
async def drop(request: Request, id: Id) -> Response:
    given = await form(request)
    await ask(request, DropSession(client=id, **_place(given), **signed(request, dry=False, why=why(given))))
    return to("/ui/clients")


def _place(given: dict[str, str]) -> dict[str, str | None]:
    return {"scope": given.get("scope") or None, "user": given.get("user") or None}


def why(given: dict[str, str]) -> str:
    return given.get("why", "") or "from the console"
