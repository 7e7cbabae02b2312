"""*Flows*: the graph of scopes, links and clients; between two of them the route, or that there is none."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from tidegate.api.problems import Kind, Problem
from tidegate.api.requests import channel
from tidegate.api.schemas import LONG
from tidegate.console.page import Page, drawing_of, render

Entity = Annotated[str, Query(max_length=LONG)]

router = APIRouter(route_class=Page, include_in_schema=False)


@router.get("/ui/flows")
async def flows(
    request: Request,
    source: Annotated[Entity, Query(alias="from")] = "",
    target: Annotated[Entity, Query(alias="to")] = "",
    paths: bool = False,
    live: bool = False,
) -> Response:
    document: dict[str, Any] | None = None
    problem: Problem | None = None
    try:
        document = await channel(request).ask(
            "flows", source=source or None, target=target or None, paths=paths, live=live
        )
    except Problem as error:
        if error.kind not in (Kind.INVALID, Kind.UNKNOWN):
            raise
        problem = error
    return render(
        request, "flows.html", document=document, problem=problem, source=source, target=target, paths=paths, live=live
    )


@router.get("/ui/flows.svg")
async def picture(
    request: Request,
    source: Annotated[Entity, Query(alias="from")] = "",
    target: Annotated[Entity, Query(alias="to")] = "",
    paths: bool = False,
    live: bool = False,
) -> Response:
    drawn = await channel(request).ask(
        "flow_drawing", source=source or None, target=target or None, paths=paths, live=live
    )
    return drawing_of(drawn["svg"])
