"""Who can reach whom, and why somebody may or may not do something, with the rules in force."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import ValidationError
from starlette.responses import Response

from tidegate.api.problems import Kind, Problem
from tidegate.api.requests import Route, answer, channel, json_object
from tidegate.api.schemas import LONG, Question, body_of, problems
from tidegate.api.tokens import invalid

_TAGS: list[Any] = ["analysis"]

router = APIRouter(route_class=Route)
Entity = Annotated[str | None, Query(min_length=1, max_length=LONG, description="A client or scope: `scope:gym`.")]


@router.get(
    "/flows",
    tags=_TAGS,
    summary="Show who can reach whom",
    responses={200: {"content": {"application/json": {"schema": {"type": "object"}}}}, **problems(404)},
)
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
    tags=_TAGS,
    summary="Show why somebody may or may not do something",
    responses={
        200: {"content": {"application/json": {"schema": {"type": "object"}}}},
        **problems(404, 408, 413, 415, 501),
    },
    openapi_extra=body_of(Question),
)
async def explain(request: Request) -> Response:
    try:
        question = Question.model_validate(await json_object(request))
    except ValidationError as error:
        raise invalid(error) from None
    terms = [[name, value] for name, value in (("where", question.where), ("require", question.require)) if value]
    pairs: list[Any] = [list(pair) for pair in question.properties]
    _check(question)
    if question.action == "subscribe":
        pairs, terms = [], [*pairs, *terms]
    elif question.action == "write":
        pairs, terms = [*pairs, *terms], []
    found = await channel(request).ask(
        "explain",
        subject=question.subject,
        action=question.action,
        topic=question.topic,
        publisher=question.publisher,
        payload=question.payload,
        qos=question.qos,
        retain=question.retain,
        properties=pairs,
        terms=terms,
        at=question.at,
        overrides=question.assume,
    )
    return answer(found)


def _check(question: Question) -> None:
    """What has no effect is a mistake: it would look as if it had been considered."""
    useless: dict[str, tuple[str, ...]] = {
        "read": (),
        "write": ("publisher", "where"),
        "subscribe": ("publisher", "payload", "qos", "retain"),
    }
    for name in useless[question.action]:
        if getattr(question, name):
            said = "from" if name == "publisher" else name
            raise Problem(Kind.INVALID, f"`{said}` has no effect on `{question.action}`", "leave it out")
