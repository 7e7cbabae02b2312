"""*Topics*: what is retained, as a tree; who can read or write a topic, by which rule; and its value.

A value is shown as a delivery to whoever looks, over the connection of their browser, and audited as one: who could not
receive it as a client does not see it here. So it is asked for with a form, and not again by itself.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from tidegate.admin.live.commands import ClearTopic, ListSubscriptions, ListTopics, ReadTopic, ShowTopic
from tidegate.api.documents import ask, page
from tidegate.api.problems import Kind, Problem
from tidegate.api.requests import Id, address, caller, channel
from tidegate.api.schemas import LONG, Question
from tidegate.console.clients import why
from tidegate.console.page import NONE, Page, form, render, segment, to
from tidegate.console.payloads import readable
from tidegate.console.rules import signed
from tidegate.explain.question import Questions

LISTED: Final = 100
ASKED: Final = 40  # people and devices that a topic is tried for
Text = Annotated[str, Query(max_length=LONG)]
After = Annotated[str | None, Query(max_length=3 * LONG)]

router = APIRouter(route_class=Page, include_in_schema=False)


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
    """What is retained there, who has subscribed, and who could read and write it."""
    return await _shown(request, id, None)


@router.post("/ui/topics/{id}/value")
async def value(request: Request, id: Id) -> Response:
    """The same, with the value as whoever asks would be sent it."""
    await form(request)
    who = caller(request)
    if who.user is None:
        raise Problem(Kind.FORBIDDEN, "values are shown to people, and this token is for nobody", "sign in by name")
    command = ReadTopic(
        topic=id, user=who.user, identity=who.identity or "", address=address(request) or "unknown",
    )  # fmt: skip
    return await _shown(request, id, (await channel(request).ask(command, alters=True))["values"])


async def _shown(request: Request, id: str, values: list[dict[str, Any]] | None) -> Response:
    try:
        retained = (await channel(request).ask(ShowTopic(topic=id)))["retained"]
    except Problem as problem:
        if problem.kind is not Kind.UNKNOWN:
            raise
        retained = []
    publisher = next((each["publisher"] for each in retained if each["publisher"]), None)
    subscribed = await channel(request).ask(ListSubscriptions(topic=id, limit=LISTED))
    asked = await _everybody(request)
    writers = await _may(request, asked, "write", id, None)
    if publisher is None:  # who reads may depend on who has written: somebody who may
        publisher = next((who for who, may in zip(asked, writers, strict=True) if may["verdict"] == "allow"), None)
    readers = await _may(request, asked, "read", id, publisher)
    for each in values or ():
        each["texts"] = [{**one, "text": readable(one["payload"], one["bytes"])} for one in each.get("sent", ())]
    return render(
        request,
        "topic.html",
        topic=id,
        retained=retained,
        subscribed=subscribed["items"],
        people=list(zip(asked, readers, writers, strict=True)),
        publisher=publisher,
        values=values,
    )


async def _everybody(request: Request) -> list[str]:
    """Users of the directory and their devices, as far as a page can show them."""
    users = [each["id"] for each in (await page(request, "user", ASKED, None))["items"]]
    devices = (await page(request, "client", ASKED, None))["items"]
    return [
        *(f"user:{name}" for name in users),
        *(f"user:{each['value']['user']}/client:{each['id']}" for each in devices if each["value"].get("user")),
    ][:ASKED]


async def _may(
    request: Request, asked: list[str], action: str, topic: str, publisher: str | None
) -> list[dict[str, Any]]:
    """What the rules say of each, asked at once."""
    if not asked:
        return []
    about: dict[str, Any] = {"action": action, "topic": topic}
    if publisher and action == "read":
        about["from"] = publisher
    questions = tuple(Question.model_validate({"as": who, **about}).command() for who in asked)
    answers: list[dict[str, Any]] = (await channel(request).ask(Questions(questions=questions)))["answers"]
    return [{**each, "verdict": each["verdict"] or NONE} for each in answers]


@router.post("/ui/topics/{id}/clear")
async def clear(request: Request, id: Id) -> Response:
    given = await form(request)
    await ask(request, ClearTopic(topic=id, scope=None, **signed(request, dry=False, why=why(given))))
    return to("/ui/topics")
