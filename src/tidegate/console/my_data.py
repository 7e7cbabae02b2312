"""*My data*, for the person whose it is, in sentences. Who can see what, who has seen it; stop, resume, for how long.

A switch is a preference, like any that is written by hand: `effect: deny` for one person (or role, where names are not
told), recognised by its condition. It counts from the next message on. The owner is never locked out: preferences that
deny do not bind them.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final

import orjson
from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from tidegate import topics as names
from tidegate.admin.me.commands import (
    EraseOwn,
    ExportOwn,
    GetOwnHistory,
    ListDeliveries,
    ListNotices,
    ListOwnErasures,
    ListOwnRetained,
    ListReaders,
    ShowOwn,
)
from tidegate.api.documents import change, page
from tidegate.api.me import KIND, MOST, make_owned
from tidegate.api.own_data import LOOKING
from tidegate.api.problems import Kind, Problem
from tidegate.api.requests import Id, address, caller, channel, user
from tidegate.api.schemas import LONG
from tidegate.config.units import in_utc, moment
from tidegate.console import drafts, rules
from tidegate.console.page import Page, form, render, to
from tidegate.console.payloads import readable

TOPICS: Final = 24  # topics of one person that are looked at for a page
NAMED: Final = 200  # readers on a page
NOTICES: Final = 5
SHOWN: Final = 50  # readers for whom it is decided what they would be sent
LONGEST: Final = 8000  # characters of an address
EVERYTHING: Final = "#"
UNTIL: Final = {"": None, "hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(days=7)}
_USER: Final = re.compile(r"has\(s\.user\) && s\.user == ('(?:[^'\\]|\\.)*')")
_ROLE: Final = re.compile(r"('(?:[^'\\]|\\.)*') in s\.roles")

router = APIRouter(route_class=Page, include_in_schema=False)


@dataclass(slots=True)
class Reader:
    """Somebody, or everybody of a role, and what they can see.

    Kinds: `user` and `role`, whom a switch can stop; `client` (of no user), `anonymous`, and `other`: links, services
    and people of other domains.
    """

    kind: str
    name: str
    roles: tuple[str, ...] = ()
    count: int = 1
    sees: list[str] = field(default_factory=list)
    depends: list[tuple[str, str]] = field(default_factory=list)
    """Topics, with the condition that is left."""
    parts: dict[str, list[str]] = field(default_factory=dict)
    stopped: list[dict[str, Any]] = field(default_factory=list)
    """The preferences that stop them."""

    @property
    def label(self) -> str:
        match self.kind:
            case "anonymous":
                return "anybody without a name"
            case "client":
                return f"the client {self.name}"
            case _:
                return self.name

    @property
    def when(self) -> str:
        """The condition of a preference about them."""
        quoted = drafts.quoted(self.name)
        return f"has(s.user) && s.user == {quoted}" if self.kind == "user" else f"{quoted} in s.roles"


@router.get("/ui/my-data")
async def my_data(request: Request, topic: Annotated[str, Query(max_length=LONG)] = "") -> Response:
    own = {"user": user(request), "identity": caller(request).identity or ""}
    preferences = (await page(request, KIND, MOST, None, owner=user(request)))["items"]
    delivered = await channel(request).ask(
        ListDeliveries(user=own["user"], identity=own["identity"], limit=NAMED), patience=LOOKING
    )
    retained = await channel(request).ask(ListOwnRetained(limit=TOPICS, **own), patience=LOOKING)
    mine = _topics(retained["items"], delivered["items"], topic)
    answers = await asyncio.gather(
        *(channel(request).ask(ListReaders(topic=each, **own), patience=LOOKING) for each in mine)
    )
    found = readers(zip(mine, (each["readers"] for each in answers), strict=True), user(request))
    written = []
    all_stopped: dict[str, Any] | None = None
    for preference in preferences:
        whom = None if ended(preference["value"]) else about(preference["value"])
        if whom == ("all", ""):
            all_stopped = preference
        elif whom is not None:
            found.setdefault(whom, Reader(*whom)).stopped.append(preference)
        else:
            written.append({**preference, "text": drafts.written(preference["value"])})
    people = sorted(name for kind, name in found if kind == "user")[:SHOWN]
    notices = await channel(request).ask(ListNotices(limit=NOTICES, **own))
    history = await channel(request).ask(GetOwnHistory(limit=20, **own))
    erasures = await channel(request).ask(ListOwnErasures(limit=5, **own))
    return render(
        request,
        "my-data.html",
        owner=user(request),
        topics=mine,
        readers=sorted(found.values(), key=lambda each: (not each.sees, not each.depends, each.name))[:NAMED],
        all_stopped=all_stopped,
        preferences=written,
        deliveries=delivered,
        history=history["items"],
        newest=await _newest(request, mine, people),
        again={"topics": orjson.dumps(mine).decode(), "people": orjson.dumps(people).decode()},
        notices=notices["items"],
        erasures=erasures["items"] if isinstance(erasures, dict) else erasures,
        asked=topic,
    )


def _topics(retained: Iterable[Mapping[str, Any]], delivered: Iterable[Mapping[str, Any]], asked: str) -> list[str]:
    """Topics of this person: what was delivered or is retained of theirs, and the one that they ask about."""
    if asked:
        if not names.valid_topic(asked) or asked.startswith("$"):
            raise Problem(Kind.INVALID, f"{asked[:100]!r} is no topic", "write one without wildcards")
        return [asked]
    found = dict.fromkeys(each["topic"] for each in delivered)
    found |= dict.fromkeys(each["topic"] for each in retained)
    return sorted(each for each in found if each and not each.startswith("$"))[:TOPICS]


@router.get("/ui/my-data/newest")
async def again(
    request: Request,
    topics: Annotated[str, Query(max_length=LONGEST)] = "[]",
    people: Annotated[str, Query(max_length=LONGEST)] = "[]",
) -> Response:
    """What the page fetches every few seconds: the newest messages alone."""
    try:
        wanted = [[str(each) for each in orjson.loads(given)] for given in (topics, people)]
    except (orjson.JSONDecodeError, TypeError):
        raise Problem(Kind.INVALID, "the address names no topics", "open the page again") from None
    rows = await _newest(request, wanted[0][:TOPICS], wanted[1][:SHOWN])
    return render(request, "newest.html", newest=rows, again={"topics": topics, "people": people})


async def _newest(request: Request, topics: list[str], people: list[str]) -> list[dict[str, Any]]:
    """The newest message that the node holds under each topic, and what each of these people would be sent of it."""
    own = {"user": user(request), "identity": caller(request).identity or ""}
    command = ShowOwn(topics=tuple(filter(None, topics)), readers=tuple(filter(None, people)), **own)
    try:
        items = (await channel(request).ask(command))["items"]
    except Problem as problem:
        if problem.kind is not Kind.FORBIDDEN or not people:
            raise
        return await _newest(request, topics, [])  # names are not told here
    rows = []
    for each in items:
        whole = readable(each["payload"], each["bytes"])
        sent = {
            name: None if one is None else readable(one["payload"], one["bytes"]) for name, one in each["sent"].items()
        }
        alike: dict[str | None, list[str]] = {}
        for name, text in sent.items():
            alike.setdefault(text, []).append(name)
        parts = [(text, names) for text, names in alike.items() if text is not None and text != whole]
        rows.append({**each, "text": whole, "whole": alike.get(whole, []), "parts": parts, "none": alike.get(None, [])})
    return rows


def readers(answers: Iterable[tuple[str, Iterable[Mapping[str, Any]]]], owner: str) -> dict[tuple[str, str], Reader]:
    """Everybody whom the rules for these topics know, by name, or by role where names are not told."""
    found: dict[tuple[str, str], Reader] = {}
    for topic, classes in answers:
        for one in classes:
            for reader in _named(one, owner):
                known = found.setdefault((reader.kind, reader.name), reader)
                if one["can"] == "yes":
                    known.sees.append(topic)
                elif one["can"] == "if":
                    known.depends.append((topic, one["when"] or ""))
                if one["parts"] is not None and one["can"] != "no":
                    known.parts[topic] = one["parts"]
    return found


def _named(one: Mapping[str, Any], owner: str) -> Iterable[Reader]:
    roles = tuple(role for role, count in sorted(one["roles"].items()) if count == one["count"])  # those that all have
    if one["users"] is not None:
        for name in one["users"]:
            if name != owner:
                yield Reader("user", name, roles)
    else:
        for role, count in one["roles"].items():
            yield Reader("role", role, (role,), count)
    for client in one["clients"] or ():
        yield Reader("client", client)
    if one["anonymous"]:
        yield Reader("anonymous", "")
    for other in one["others"]:
        yield Reader("other", other)


def ended(value: Mapping[str, Any]) -> bool:
    """Whether a preference has expired: it decides nothing any more."""
    expires = value.get("expires")
    return expires is not None and in_utc(moment(expires)) <= datetime.now(UTC).timestamp()


def about(value: Mapping[str, Any]) -> tuple[str, str] | None:
    """Whom a preference stops altogether, if it is one of these switches: a kind and a name."""
    if value.get("effect") != "deny" or value.get("topic") != EVERYTHING or value.get("to") is not None:
        return None
    when = value.get("when")
    if when is None:
        return "all", ""
    for kind, pattern in (("user", _USER), ("role", _ROLE)):
        if (match := pattern.fullmatch(when)) is not None:
            name = _unquoted(match[1])
            if drafts.quoted(name) == match[1]:
                return kind, name
    return None


def _unquoted(text: str) -> str:
    escapes = {"n": "\n", "r": "\r", "t": "\t"}

    def one(found: re.Match[str]) -> str:
        said = found[1]
        return chr(int(said[1:], 16)) if said[0] == "u" else escapes.get(said, said)

    return re.sub(r"\\(u[0-9a-f]{4}|.)", one, text[1:-1])


@router.post("/ui/my-data/decide")
async def decide(request: Request) -> Response:
    """Stops or resumes sharing with one person or role."""
    given = await form(request)
    kind, name = given.get("kind", ""), given.get("name", "")
    if kind not in ("user", "role") or not name or len(name) > LONG:
        raise Problem(Kind.INVALID, "it does not say whom this is about", "do it from the page")
    if given.get("do") == "resume":
        await _resume(request, (kind, name))
    else:
        await _stop(request, Reader(kind, name).when, given)
    return to("/ui/my-data")


@router.post("/ui/my-data/stop")
async def stop(request: Request) -> Response:
    """Nobody but the owner receives anything from the next message on."""
    await _stop(request, None, await form(request))
    return to("/ui/my-data")


@router.post("/ui/my-data/resume")
async def resume(request: Request) -> Response:
    await _resume(request, ("all", ""))
    return to("/ui/my-data")


async def _stop(request: Request, when: str | None, given: Mapping[str, str]) -> None:
    length = UNTIL.get(given.get("until", ""))
    value: dict[str, Any] = {"topic": EVERYTHING, "effect": "deny"}
    if when is not None:
        value["when"] = when
    if length is not None:
        value["expires"] = (datetime.now(UTC) + length).isoformat(timespec="seconds")
    await make_owned(request, value, rules.signed(request, dry=False, why="from the console"))


async def _resume(request: Request, whom: tuple[str, str]) -> None:
    listed = (await page(request, KIND, MOST, None, owner=user(request)))["items"]
    found = [each for each in listed if about(each["value"]) == whom and not ended(each["value"])]
    if any(each["version"] is None for each in found):
        raise Problem(Kind.READONLY, "this stands in the file of the node", "ask the administrator to change it")
    for each in found:
        await _delete(request, each)


async def _delete(request: Request, preference: Mapping[str, Any]) -> None:
    said = rules.signed(request, dry=False, why="from the console")
    await change(request, KIND, preference["id"], None, preference["version"], said)


@router.post("/ui/my-data/preferences")
async def write(request: Request) -> Response:
    """One that is written by hand, for who wants it."""
    given = await form(request)
    value = rules.parsed(given.get("body", ""))
    value.pop("id", None)
    await make_owned(request, value, rules.signed(request, dry=False, why=given.get("why", "")))
    return to("/ui/my-data")


@router.post("/ui/my-data/preferences/{id}/delete")
async def delete(request: Request, id: Id) -> Response:
    await form(request)
    listed = (await page(request, KIND, MOST, None, owner=user(request)))["items"]
    found = next((each for each in listed if each["id"] == id), None)
    if found is None:
        raise Problem(Kind.UNKNOWN, "you have no such preference", "choose one that is listed")
    if found["version"] is None:
        raise Problem(Kind.READONLY, "this stands in the file of the node", "ask the administrator to change it")
    await _delete(request, found)
    return to("/ui/my-data")


@router.get("/ui/my-data/export")
async def export(request: Request) -> Response:
    """Everything that the node has of them, as a file."""
    command = ExportOwn(user=user(request), identity=caller(request).identity or "")
    told = await channel(request).ask(command, patience=LOOKING)
    headers = {"Content-Disposition": 'attachment; filename="my-data.json"'}
    content = orjson.dumps(told, default=str, option=orjson.OPT_INDENT_2)
    return Response(content, media_type="application/json", headers=headers)


@router.post("/ui/my-data/erase")
async def erase(request: Request) -> Response:
    """Everything that is theirs goes; the password is asked for again."""
    given = await form(request)
    command = EraseOwn(
        user=user(request),
        identity=caller(request).identity or "",
        password=given.get("password") or None,
        address=address(request) or "unknown",
        why=given.get("why", "")[:500],
    )
    await channel(request).ask(command, alters=True)
    return to("/ui/my-data")
