"""A draft, replayed over the recorded traffic by the pipeline's process: asked for, followed, and cancelled."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from tidegate.admin.documents import RequestedChange
from tidegate.admin.replays import BeginReplay, CancelReplay, ShowReplay
from tidegate.api.problems import Kind, Problem
from tidegate.api.requests import caller, channel
from tidegate.console import rules
from tidegate.console.page import Page, form, render, to

PATIENCE: Final = 30.0  # seconds in which the node checks a draft
SECONDS: Final = {"hour": 3600.0, "day": 86_400.0, "week": 7 * 86_400.0}
SHOWN: Final = 100

router = APIRouter(route_class=Page, include_in_schema=False)


@router.get("/ui/replay")
async def show(request: Request) -> Response:
    found = (await channel(request).ask(ShowReplay()))["replay"]
    return render(request, "replay.html", replay=found, most=SHOWN)


@router.post("/ui/replay/begin/{kind}")
async def begin(request: Request, kind: rules.KindName) -> Response:
    rules.collection(kind)
    given = await form(request)
    id, version = given.get("id", "").strip(), given.get("version", "")
    value = rules.parsed(given.get("body", ""))
    if not id or value.pop("id", id) != id:
        raise Problem(Kind.INVALID, "it does not say which document this is", "do it from its page")
    change = RequestedChange(kind=kind, id=id, body=value, expected=int(version) if version.isdigit() else None)
    seconds = SECONDS.get(given.get("of", "day"), SECONDS["day"])
    command = BeginReplay(changes=[change], seconds=seconds, by=caller(request).by)
    await channel(request).ask(command, alters=True, patience=PATIENCE)
    return to("/ui/replay")


@router.post("/ui/replay/cancel")
async def cancel(request: Request) -> Response:
    await form(request)
    await channel(request).ask(CancelReplay(by=caller(request).by), alters=True)
    return to("/ui/replay")
