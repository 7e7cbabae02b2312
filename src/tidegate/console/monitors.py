"""*Monitors*: each automaton as a picture, with its state for each link, client or scope that it follows."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from tidegate.api.documents import document
from tidegate.api.problems import Kind, Problem
from tidegate.api.requests import Id, channel
from tidegate.console import drafts
from tidegate.console.page import Page, drawing_of, render

router = APIRouter(route_class=Page, include_in_schema=False)


@router.get("/ui/monitors")
async def monitors(request: Request) -> Response:
    found = await channel(request).ask("monitor_list")
    return render(request, "monitors.html", items=found["monitors"])


@router.get("/ui/monitors/{id}")
async def monitor(request: Request, id: Id) -> Response:
    rows = [each for each in (await channel(request).ask("monitor_list"))["monitors"] if each["monitor"] == id]
    if not rows:
        raise Problem(Kind.UNKNOWN, f"there is no monitor {id[:200]}", "choose one that is listed")
    states = await channel(request).ask("monitor_state", id=id)
    written = drafts.written((await document(request, "monitor", id))["value"])
    return render(request, "monitor.html", id=id, rows=rows, states=states, text=written)


@router.get("/ui/monitors/{id}/drawing.svg")
async def drawing(request: Request, id: Id) -> Response:
    drawn = await channel(request).ask("monitor_drawing", id=id)
    return drawing_of(drawn["svg"])
