"""*Monitors*: each automaton as a picture, with its state for each link, client or scope that it follows; and a trace,
step by step."""

from __future__ import annotations

from typing import Any, Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from tidegate.admin.monitor_traces import TryMonitor
from tidegate.api.documents import document
from tidegate.api.problems import Kind, Problem
from tidegate.api.requests import Id, channel
from tidegate.console import drafts
from tidegate.console.page import Page, drawing_of, form, render
from tidegate.console.pictures import inline

SHOWN: Final = 60  # steps around the one that is looked at

router = APIRouter(route_class=Page, include_in_schema=False)


@router.get("/ui/monitors")
async def monitors(request: Request) -> Response:
    found = await channel(request).ask("monitor_list")
    return render(request, "monitors.html", items=found["monitors"])


@router.get("/ui/monitors/{id}")
async def monitor(request: Request, id: Id) -> Response:
    return await _shown(request, id)


async def _shown(
    request: Request, id: str, tried: dict[str, Any] | None = None, problem: Problem | None = None, **given: Any
) -> Response:
    rows = [each for each in (await channel(request).ask("monitor_list"))["monitors"] if each["monitor"] == id]
    if not rows:
        raise Problem(Kind.UNKNOWN, f"there is no monitor {id[:200]}", "choose one that is listed")
    states = await channel(request).ask("monitor_state", id=id)
    drawn = (await channel(request).ask("monitor_drawing", id=id))["svg"]
    written = drafts.written((await document(request, "monitor", id))["value"])
    counts: dict[str, int] = {}
    for each in states["states"]:
        for state in _names(each["state"]):
            counts[state] = counts.get(state, 0) + 1
    label = f"The automaton of {id}"
    step = given.get("step", 0)
    at = [] if tried is None else _names(tried["rows"][step - 1]["state"] if step else tried["start"])
    first = max(0, step - SHOWN // 2)
    return render(
        request,
        "monitor.html",
        code=200 if problem is None else problem.kind.status,
        id=id,
        rows=rows,
        states=states,
        counts=counts,
        picture=inline(drawn, f"{label}, with the states that somebody is in", states=counts),
        stepped=None if tried is None else inline(drawn, f"{label} after step {step}", prefix="step", states=at),
        tried=tried,
        step=step,
        shown=[] if tried is None else list(enumerate(tried["rows"], 1))[first : first + SHOWN],
        trace=given.get("trace", ""),
        client=given.get("client", ""),
        problem=problem,
        text=written,
    )


def _names(state: Any) -> list[str]:
    """What a state is called in the picture: of several automata one behind the other, each."""
    return [str(each) for each in state] if isinstance(state, list) else [str(state)]


@router.post("/ui/monitors/{id}/try")
async def step(request: Request, id: Id) -> Response:
    """A trace that was written or recorded, and one of its steps."""
    given = await form(request)
    trace, client, wanted = given.get("trace", ""), given.get("client", "").strip(), given.get("step", "0")
    recorded = given.get("from") == "traffic"
    try:
        tried = await channel(request).ask(
            TryMonitor(id=id, trace="" if recorded else trace, recorded=recorded, client=client or None)
        )
    except Problem as problem:
        if problem.kind.status not in (422, 503):
            raise
        return await _shown(request, id, problem=problem, trace=trace, client=client)
    number = int(wanted) if wanted.isdigit() and len(wanted) < 6 else 0
    at = min(number, len(tried["rows"]))
    return await _shown(request, id, tried, trace=tried["trace"], client=client, step=at)


@router.get("/ui/monitors/{id}/drawing.svg")
async def drawing(request: Request, id: Id) -> Response:
    drawn = await channel(request).ask("monitor_drawing", id=id)
    return drawing_of(drawn["svg"])
