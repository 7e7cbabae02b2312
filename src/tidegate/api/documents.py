"""Administration: documents of every kind in `access.COLLECTIONS`, with versions, history, and trying things first.

The node checks, stores and enforces; here requests become its commands. A change says which version it is about: a
document that exists is not overwritten by somebody who has not seen it.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Annotated, Any, Final

from fastapi import APIRouter, Body, Query, Request
from starlette.responses import Response

from tidegate.admin.control_commands import ApplyChanges, GetDocument, GetHistory, ListDocuments, RevertChange
from tidegate.admin.documents import RequestedChange
from tidegate.api import requests
from tidegate.api.access import COLLECTIONS, Collection, kinds_changed_by, only_narrows
from tidegate.api.problems import Kind, Problem
from tidegate.api.requests import Id, Route, Signature, Signed, answer, etag, json_object
from tidegate.api.schemas import BODY, CHANGE, Changed, Document, History, Page, body_of_kind, returns
from tidegate.authentication.passwords import hash_password
from tidegate.net.control_command import SignedCommand

PLAIN: Final = "plain:"
PASSWORD: Final = "password"  # noqa: S105 - the name of the key
TRYING: Final = 60.0  # seconds for a dry run, which looks at what was decided before
CHANGING: Final = 30.0  # seconds for a change
STAY: Final = "The preferences of a user who is removed stay."
LARGEST: Final = 2**53 - 1  # JSON numbers that everybody reads alike
_MOST: Final = 1000  # documents on a page
_hashing = ThreadPoolExecutor(1, thread_name_prefix="hashing")  # one at a time: it takes a core for a moment

Limit = Annotated[int, Query(ge=1, le=_MOST, description="At most so many.")]
After = Annotated[
    str | None, Query(max_length=requests.LONGEST_ID, description="Those after this id: `next` of the last page.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentHandlers:
    """How documents of a kind are looked at and changed."""

    page: Callable[[Request, str, int, str | None], Awaitable[dict[str, Any]]]
    document: Callable[[Request, str, str], Awaitable[dict[str, Any]]]
    ask: Callable[[Request, ApplyChanges | RevertChange], Awaitable[dict[str, Any]]]


def router(special: Mapping[str, DocumentHandlers] = MappingProxyType({})) -> APIRouter:
    """The routes of all collections; `special`: kinds that have more to them than what the node knows."""
    routes = APIRouter(route_class=Route)
    for collection in COLLECTIONS:
        routes.routes += _routes(collection, special.get(collection.kind, USUAL)).routes
    return routes


def _routes(collection: Collection, ways: DocumentHandlers) -> APIRouter:
    routes = APIRouter(route_class=Route, tags=[collection.title])
    kind, place, one = collection.kind, collection.path, collection.one
    item, written = f"{place}/{{id}}", body_of_kind(collection.kind)

    @routes.get(place, summary=f"List {collection.title}", responses=returns(Page))
    async def list_all(request: Request, limit: Limit = 100, after: After = None) -> Response:
        return answer(await ways.page(request, kind, limit, after))

    @routes.get(item, summary=f"Show a {one}", responses=returns(Document, 404))
    async def show(request: Request, id: Id) -> Response:
        document = await ways.document(request, kind, id)
        return answer(document, headers=etag(document["version"]))

    @routes.get(f"{item}/history", summary=f"Show what a {one} was before", responses=returns(History, 404))
    async def history(request: Request, id: Id) -> Response:
        return answer({"items": await versions(request, kind, id)})

    if collection.changed_by is None:
        return routes

    @routes.post(
        place,
        summary=f"Make a {one}",
        status_code=201,
        responses=returns(Changed, 404, *BODY, *CHANGE, made=Changed),
        openapi_extra=written,
    )
    async def make(request: Request, signed: Signature) -> Response:
        """With an `id` in the body, or one that is made up."""
        value = await json_object(request)
        id = value.pop("id", None)
        if id is None or id == "":
            id = f"{kind}-{secrets.token_hex(6)}"
        if not isinstance(id, str) or len(id) > requests.LONGEST_ID:
            raise Problem(
                Kind.INVALID, "`id` must be a text", f"write at most {requests.LONGEST_ID} characters, or leave it out"
            )
        value = await _with_hash(kind, value)
        done = await change(request, kind, id, value, None, signed, ways)
        return answer(done, 200 if signed["dry_run"] else 201, headers=etag(done["version"]))

    @routes.put(
        item,
        summary=f"Make or change a {one}",
        responses={**returns(Changed, 404, 412, 428, *BODY, *CHANGE), 201: {"model": Changed}},
        openapi_extra=written,
    )
    async def put(request: Request, id: Id, signed: Signature) -> Response:
        """To change it, send its ETag in `If-Match`. Without that it is made, and must not exist yet."""
        value = await _with_hash(kind, without_id(await json_object(request), id))
        expected = await expected_version(request, kind, id, ways)
        with conditions(request):
            done = await change(request, kind, id, value, expected, signed, ways)
        made = expected is None and not signed["dry_run"]
        return answer(done, 201 if made else 200, headers=etag(done["version"]))

    @routes.delete(
        item,
        summary=f"Delete a {one}",
        description="With `If-Match`: only if it is still that version." + (f" {STAY}" if kind == "user" else ""),
        responses=returns(Changed, 404, 412, *CHANGE),
    )
    async def delete(request: Request, id: Id, signed: Signature) -> Response:
        expected = await expected_version(request, kind, id, ways)
        with conditions(request):
            try:
                return answer(await change(request, kind, id, None, expected, signed, ways))
            except Problem as problem:
                if problem.kind is Kind.CONFLICT and expected is None:
                    raise unknown(id) from problem
                raise

    @routes.post(
        f"{item}/revert",
        summary=f"Take back a change of a {one}",
        responses=returns(Changed, 404, *BODY, *CHANGE),
    )
    async def revert(
        request: Request,
        id: Id,
        sequence: Annotated[int, Body(embed=True, ge=1, le=LARGEST, description="The change to take back.")],
        signed: Signature,
    ) -> Response:
        if not any(each["sequence"] == sequence for each in await versions(request, kind, id)):
            raise Problem(Kind.UNKNOWN, f"{id} has no change {sequence}", "choose one of its history")
        kinds = kinds_changed_by(requests.caller(request).role)
        narrow = any(only_narrows(requests.caller(request).role, each) for each in kinds or (kind,))
        command = RevertChange(sequence=sequence, narrow=narrow, kinds=kinds, **signed)
        done = await ways.ask(request, command)
        return answer(changed(id, done, dry_run=signed["dry_run"]), headers=etag(done.get("sequence")))

    return routes


# -- what the node is asked ------------------------------------------------------------------------------------------


async def page(
    request: Request, kind: str, limit: int, after: str | None, *, owner: str | None = None
) -> dict[str, Any]:
    """Some of a kind, by id; with an owner only what belongs to it."""
    identity = None if owner is None else requests.caller(request).identity or ""
    command = ListDocuments(kind=kind, after=after, limit=limit, owner=owner, identity=identity)
    listed = await requests.channel(request).ask(command)
    return {"items": [shown(each) for each in listed["documents"]], "next": listed["next"]}


async def document(request: Request, kind: str, id: str) -> dict[str, Any]:
    return shown(await requests.channel(request).ask(GetDocument(kind=kind, id=id)))


async def versions(request: Request, kind: str, id: str) -> list[dict[str, Any]]:
    entries = (await requests.channel(request).ask(GetHistory(kind=kind, id=id)))["entries"]
    if not entries:
        raise unknown(id)
    return [
        {
            "sequence": each["sequence"],
            "value": None if each["body"] is None else _without_secrets(each["body"]),
            "at": iso(each["at"]),
            "by": each["by"],
            "why": each["why"],
        }
        for each in entries
    ]


async def change(
    request: Request,
    kind: str,
    id: str,
    value: dict[str, Any] | None,
    expected: int | None,
    signed: Signed,
    ways: DocumentHandlers | None = None,
) -> dict[str, Any]:
    """Makes one document what it should be; None deletes it."""
    requested = RequestedChange(kind=kind, id=id, body=value, expected=expected)
    command = ApplyChanges(changes=[requested], narrow=only_narrows(requests.caller(request).role, kind), **signed)
    return changed(id, await (ways or USUAL).ask(request, command), dry_run=signed["dry_run"])


async def ask(request: Request, command: SignedCommand) -> dict[str, Any]:
    """The answer of the node to a command that changes something, or only tries to."""
    patience = TRYING if command.dry_run else CHANGING
    async with requests.turn(request):
        done: dict[str, Any] = await requests.channel(request).ask(
            command, alters=not command.dry_run, patience=patience
        )
    return done


USUAL: Final = DocumentHandlers(page=page, document=document, ask=ask)


async def expected_version(request: Request, kind: str, id: str, ways: DocumentHandlers = USUAL) -> int | None:
    """The version that a request speaks of; None: that it does not exist, or for a deletion any."""
    match = requests.if_match(request)
    if requests.if_none_match(request):
        if match is not None:
            raise Problem(Kind.MALFORMED, "If-Match and If-None-Match contradict each other", "send one of them")
        return None
    if match == "*":
        match = (await ways.document(request, kind, id))["version"]
    return match if isinstance(match, int) else None


def without_id(value: dict[str, Any], id: str) -> dict[str, Any]:
    """The body of a document, in which its id may stand as well."""
    if value.pop("id", id) != id:
        raise Problem(Kind.INVALID, "the `id` in the body is not the one in the path", "leave it out of the body")
    return value


# -- how it is told ----------------------------------------------------------------------------------------------------


def shown(document: dict[str, Any]) -> dict[str, Any]:
    at = document.get("changed_at")
    return {
        "id": document["id"],
        "value": _without_secrets(document["body"]),
        "source": document.get("source", "api"),
        "version": document.get("version"),
        "changed_at": None if at is None else iso(at),
        "changed_by": document.get("changed_by"),
        "why": document.get("why"),
    }


def changed(id: str, done: dict[str, Any], *, dry_run: bool) -> dict[str, Any]:
    told = {"id": id, "dry_run": dry_run, "version": done.get("sequence"), "rules": done.get("rules")}
    told["warnings"] = done.get("warnings", [])
    if "pipeline" in done:
        told["pipeline"] = done["pipeline"]
    return {**told, "effect": done.get("effect"), "automata": done.get("automata")} if dry_run else told


@contextmanager
def conditions(request: Request, *, given: bool = True) -> Iterator[None]:
    """Tells a conflict as HTTP has it, which condition of the request did not hold, if one was `given`."""
    try:
        yield
    except Problem as problem:
        if problem.kind is not Kind.CONFLICT or not given:
            raise
        kind, remedy = Kind.PRECONDITION, "get it, and send its ETag in `If-Match`"
        if "if-match" in request.headers or "if-none-match" in request.headers:
            kind, remedy = Kind.CHANGED, "get it again, and decide with what it is now"
        raise Problem(kind, problem.detail, remedy, errors=problem.errors) from problem


def unknown(id: str) -> Problem:
    return Problem(Kind.UNKNOWN, f"there is no {id[:200]} here", "list what there is")


def iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _without_secrets(body: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in body.items() if key not in (PASSWORD, "id")}


async def hashed(password: str) -> str:
    """What is stored of a password; not on the loop."""
    return await asyncio.get_running_loop().run_in_executor(_hashing, hash_password, password.encode())


async def _with_hash(kind: str, value: dict[str, Any]) -> dict[str, Any]:
    """With its password hashed: what is stored cannot be used to log in."""
    password = value.get(PASSWORD)
    if kind != "user" or not isinstance(password, str) or not password.startswith(PLAIN) or password == PLAIN:
        return value
    return {**value, PASSWORD: await hashed(password.removeprefix(PLAIN))}
