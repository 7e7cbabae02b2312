"""*Flows*: the graph of scopes, links and clients; between two of them the route, or what closes each way."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Annotated, Any, Final

import orjson
from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import Response

from tidegate.api.problems import Kind, Problem
from tidegate.api.requests import channel
from tidegate.api.schemas import LONG
from tidegate.console.page import Page, drawing_of, render
from tidegate.console.pictures import inline

Entity = Annotated[str, Query(max_length=LONG)]

GRAPH: Final = "The graph of scopes, links and clients"

router = APIRouter(route_class=Page, include_in_schema=False)


@dataclass(frozen=True, slots=True)
class Asked:
    """What is looked at: two entities or one or all, and of which graph."""

    source: str
    target: str
    paths: bool
    live: bool

    async def ask(self, request: Request, command: str) -> dict[str, Any]:
        given = {**asdict(self), "source": self.source or None, "target": self.target or None}
        answer: dict[str, Any] = await channel(request).ask(command, **given)
        return answer


async def _asked(
    source: Annotated[Entity, Query(alias="from")] = "",
    target: Annotated[Entity, Query(alias="to")] = "",
    paths: bool = False,
    live: bool = False,
) -> Asked:
    return Asked(source, target, paths, live)


InAddress = Annotated[Asked, Depends(_asked)]


@router.get("/ui/flows")
async def flows(request: Request, asked: InAddress) -> Response:
    document: dict[str, Any] | None = None
    problem: Problem | None = None
    picture = None
    try:
        document = await asked.ask(request, "flows")
        picture = inline((await asked.ask(request, "flow_drawing"))["svg"], GRAPH, _forbidden(document))
    except Problem as error:
        if error.kind not in (Kind.INVALID, Kind.UNKNOWN):
            raise
        problem = error
    entities = [] if document is None else [*document["scopes"], *document["devices"]]
    return render(
        request,
        "flows.html",
        document=document,
        problem=problem,
        picture=picture,
        asked=asked,
        entities=orjson.dumps(entities).decode(),
        forbidden=document is not None and _expected(document, asked) == "forbid",
    )


def _forbidden(document: dict[str, Any]) -> set[tuple[str, str]]:
    """The links of routes that are there, and must not be."""
    broken = (each for each in document["assertions"] if each["expect"] == "forbid" and not each["holds"])
    routes = [each["route"] for each in broken if each.get("route")]
    return {pair for route in routes for pair in pairwise(route)}


def _expected(document: dict[str, Any], asked: Asked) -> str | None:
    """What the assertions say of these two."""
    ends = (asked.source, asked.target)
    return next((each["expect"] for each in document["assertions"] if (each["from"], each["to"]) == ends), None)


@router.get("/ui/flows.svg")
async def picture(request: Request, asked: InAddress) -> Response:
    return drawing_of((await asked.ask(request, "flow_drawing"))["svg"])
