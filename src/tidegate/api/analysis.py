"""Who can reach whom, and why somebody may or may not do something, with the rules in force."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from tidegate.api.problems import Kind, Problem
from tidegate.api.requests import Route, answer, channel, read
from tidegate.api.schemas import BODY, LONG, Question, Responses, body_of, problems
from tidegate.config.rule_tests import NO_EFFECT

_ANSWER: Final[Responses] = {200: {"content": {"application/json": {"schema": {"type": "object"}}}}}

router = APIRouter(route_class=Route, tags=["analysis"])
Entity = Annotated[str | None, Query(min_length=1, max_length=LONG, description="A client or scope: `scope:gym`.")]


@router.get("/flows", summary="Show who can reach whom", responses={**_ANSWER, **problems(404)})
async def flows(
    request: Request,
    source: Annotated[Entity, Query(alias="from")] = None,
    target: Annotated[Entity, Query(alias="to")] = None,
    paths: Annotated[bool, Query(description="Through clients, too, which may tell what they have read.")] = False,
    live: Annotated[bool, Query(description="With those who are connected, not those of the directory.")] = False,
) -> Response:
    return answer(await channel(request).ask("flows", source=source, target=target, paths=paths, live=live))


@router.post(
    "/explain",
    summary="Show why somebody may or may not do something",
    responses={**_ANSWER, **problems(404, 501, *BODY)},
    openapi_extra=body_of(Question),
)
async def explain(request: Request) -> Response:
    question = await read(request, Question)
    for name in NO_EFFECT[question.action]:
        if getattr(question, "publisher" if name == "from" else name):
            raise Problem(Kind.INVALID, f"`{name}` has no effect on `{question.action}`", "leave it out")
    return answer(await channel(request).ask(question.command()))
