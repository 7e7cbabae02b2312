"""Administration: documents of every kind in `access.COLLECTIONS`, with versions, history, and trying things first.

The node checks, stores and enforces; here requests become its commands. A change says which version it is about: a
document that exists is not overwritten by somebody who has not seen it.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Annotated, Any, Final, Protocol

from fastapi import APIRouter, Body, Query, Request
from starlette.responses import Response

from tidegate.api.access import COLLECTIONS, Collection
from tidegate.api.problems import Kind, Problem
from tidegate.api.requests import (
    LONGEST_ID,
    DryRun,
    Id,
    Route,
    Why,
    answer,
    caller,
    channel,
    etag,
    if_match,
    if_none_match,
    json_object,
    turn,
)
from tidegate.api.schemas import Changed, Document, History, Page, body_of_kind, problems
from tidegate.authentication.passwords import hash_password

PLAIN: Final = "plain:"
PASSWORD: Final = "password"  # noqa: S105 - the name of the key
TRYING: Final = 60.0  # seconds for a dry run, which looks at what was decided before
CHANGING: Final = 30.0  # seconds for a change
STAY: Final = "The preferences of a user who is removed stay."
LARGEST: Final = 2**53 - 1  # JSON numbers that everybody reads alike
_MOST: Final = 1000  # documents on a page
_hashing = ThreadPoolExecutor(1, thread_name_prefix="hashing")  # one at a time: it takes a core for a moment

Limit = Annotated[int, Query(ge=1, le=_MOST, description="At most so many.")]
After = Annotated[str | None, Query(max_length=LONGEST_ID, description="Those after this id: `next` of the last page.")]


class Paging(Protocol):
    """Some documents of a kind, by id."""

    def __call__(self, request: Request, kind: str, limit: int, after: str | None) -> Awaitable[dict[str, Any]]: ...


class Looking(Protocol):
    """One of them."""

    def __call__(self, request: Request, kind: str, id: str) -> Awaitable[dict[str, Any]]: ...


class Asking(Protocol):
    """A command that changes some, or tries that only."""

    def __call__(
        self, request: Request, command: str, *, dry_run: bool, why: str, **arguments: Any
    ) -> Awaitable[dict[str, Any]]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentHandlers:
    """How documents of a kind are looked at and changed."""

    page: Paging
    document: Looking
    ask: Asking


def router(special: Mapping[str, DocumentHandlers] = MappingProxyType({})) -> APIRouter:
    """The routes of all collections; `special`: kinds that have more to them than what the node knows."""
    routes = APIRouter(route_class=Route)
    usual = DocumentHandlers(page=page, document=document, ask=ask)
    for one in COLLECTIONS:
        _add(routes, one, special.get(one.kind, usual))
    return routes


def _add(routes: APIRouter, one: Collection, ways: DocumentHandlers) -> None:
    kind, item = one.kind, f"{one.path}/{{id}}"
    written = body_of_kind(kind)

    async def list_all(request: Request, limit: Limit = 100, after: After = None) -> Response:
        return answer(await ways.page(request, kind, limit, after))

    async def make(request: Request, dry_run: DryRun = False, why: Why = "") -> Response:
        value = await json_object(request)
        id = value.pop("id", None) or f"{kind}-{secrets.token_hex(6)}"
        if not isinstance(id, str) or len(id) > LONGEST_ID:
            raise Problem(
                Kind.INVALID, "`id` must be a text", f"write at most {LONGEST_ID} characters, or leave it out"
            )
        value = await _with_hash(kind, value)
        done = await change(request, kind, id, value, None, dry_run=dry_run, why=why, asking=ways.ask)
        return answer(done, 200 if dry_run else 201, headers=etag(done["version"]))

    async def show(request: Request, id: Id) -> Response:
        found = await ways.document(request, kind, id)
        return answer(found, headers=etag(found["version"]))

    async def put(request: Request, id: Id, dry_run: DryRun = False, why: Why = "") -> Response:
        value = await json_object(request)
        if value.pop("id", id) != id:
            raise Problem(Kind.INVALID, "the `id` in the body is not the one in the path", "leave it out of the body")
        value = await _with_hash(kind, value)
        expected = await wanted(request, kind, id, looking=ways.document)
        try:
            done = await change(request, kind, id, value, expected, dry_run=dry_run, why=why, asking=ways.ask)
        except Problem as problem:
            raise told(problem, request) from problem
        made = expected is None and not dry_run
        return answer(done, 201 if made else 200, headers=etag(done["version"]))

    async def delete(request: Request, id: Id, dry_run: DryRun = False, why: Why = "") -> Response:
        expected = await wanted(request, kind, id, looking=ways.document)
        try:
            done = await change(request, kind, id, None, expected, dry_run=dry_run, why=why, asking=ways.ask)
        except Problem as problem:
            if problem.kind is Kind.CONFLICT and expected is None:
                raise unknown(id) from problem
            raise told(problem, request) from problem
        return answer(done)

    async def history(request: Request, id: Id) -> Response:
        return answer({"items": await versions(request, kind, id)})

    async def revert(
        request: Request,
        id: Id,
        sequence: Annotated[int, Body(embed=True, ge=1, le=LARGEST, description="The change to take back.")],
        dry_run: DryRun = False,
        why: Why = "",
    ) -> Response:
        if not any(each["sequence"] == sequence for each in await versions(request, kind, id)):
            raise Problem(Kind.UNKNOWN, f"{id} has no change {sequence}", "choose one of its history")
        done = await ways.ask(request, "admin_revert", sequence=sequence, dry_run=dry_run, why=why)
        return answer(changed(id, done, dry_run=dry_run), headers=etag(done.get("sequence")))

    tags: list[Any] = [one.title]
    routes.get(one.path, tags=tags, summary=f"List {one.title}", responses={200: {"model": Page}, **problems()})(
        list_all
    )
    routes.get(item, tags=tags, summary=f"Show a {one.one}", responses={200: {"model": Document}, **problems(404)})(
        show
    )
    routes.get(
        f"{item}/history",
        tags=tags,
        summary=f"Show what a {one.one} was before",
        responses={200: {"model": History}, **problems(404)},
    )(history)
    if one.changed_by is None:
        return
    routes.post(
        one.path,
        tags=tags,
        summary=f"Make a {one.one}",
        description="With an `id` in the body, or one that is made up.",
        status_code=201,
        responses={200: {"model": Changed}, 201: {"model": Changed}, **problems(404, 408, 409, 413, 415, 501, 504)},
        openapi_extra=written,
    )(make)
    routes.put(
        item,
        tags=tags,
        summary=f"Make or change a {one.one}",
        description="To change it, send its ETag in `If-Match`. Without that it is made, and must not exist yet.",
        responses={
            200: {"model": Changed},
            201: {"model": Changed},
            **problems(404, 408, 409, 412, 413, 415, 428, 501, 504),
        },
        openapi_extra=written,
    )(put)
    routes.delete(
        item,
        tags=tags,
        summary=f"Delete a {one.one}",
        description="With `If-Match`: only if it is still that version." + (f" {STAY}" if kind == "user" else ""),
        responses={200: {"model": Changed}, **problems(404, 409, 412, 501, 504)},
    )(delete)
    routes.post(
        f"{item}/revert",
        tags=tags,
        summary=f"Take back a change of a {one.one}",
        responses={200: {"model": Changed}, **problems(404, 408, 409, 413, 415, 501, 504)},
    )(revert)


# -- what the node is asked ------------------------------------------------------------------------------------------


async def page(
    request: Request, kind: str, limit: int, after: str | None, *, owner: str | None = None
) -> dict[str, Any]:
    """Some of a kind, by id; with an owner only what belongs to it."""
    found = await channel(request).ask("admin_list", kind=kind, after=after, limit=limit, owner=owner)
    return {"items": [shown(each) for each in found["documents"]], "next": found["next"]}


async def document(request: Request, kind: str, id: str) -> dict[str, Any]:
    return shown(await channel(request).ask("admin_get", kind=kind, id=id))


async def versions(request: Request, kind: str, id: str) -> list[dict[str, Any]]:
    entries = (await channel(request).ask("admin_history", kind=kind, id=id))["entries"]
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
    *,
    dry_run: bool,
    why: str,
    asking: Asking | None = None,
) -> dict[str, Any]:
    """Makes one document what it should be; None deletes it."""
    changes = [{"kind": kind, "id": id, "body": value, "expected": expected}]
    done = await (asking or ask)(request, "admin_apply", changes=changes, dry_run=dry_run, why=why)
    return changed(id, done, dry_run=dry_run)


async def ask(request: Request, command: str, *, dry_run: bool, why: str, **arguments: Any) -> dict[str, Any]:
    """What the node answers to a command that changes something, or tries that only."""
    signed = {"by": caller(request).by, "why": why, "dry_run": dry_run, **arguments}
    patience = TRYING if dry_run else CHANGING
    async with turn(request):
        done: dict[str, Any] = await channel(request).ask(command, alters=not dry_run, patience=patience, **signed)
    return done


async def wanted(request: Request, kind: str, id: str, *, looking: Looking | None = None) -> int | None:
    """The version that a request speaks of; None: that it does not exist, or for a deletion any."""
    match = if_match(request)
    if if_none_match(request):
        if match is not None:
            raise Problem(Kind.MALFORMED, "If-Match and If-None-Match contradict each other", "send one of them")
        return None
    if match != "*":
        return match if isinstance(match, int) else None
    found = await (looking or document)(request, kind, id)
    version = found["version"]
    return version if isinstance(version, int) else None


# -- how it is told ----------------------------------------------------------------------------------------------------


def shown(found: dict[str, Any]) -> dict[str, Any]:
    at = found.get("changed_at")
    return {
        "id": found["id"],
        "value": _without_secrets(found["body"]),
        "source": found.get("source", "api"),
        "version": found.get("version"),
        "changed_at": None if at is None else iso(at),
        "changed_by": found.get("changed_by"),
        "why": found.get("why"),
    }


def changed(id: str, done: dict[str, Any], *, dry_run: bool) -> dict[str, Any]:
    told = {"id": id, "dry_run": dry_run, "version": done.get("sequence"), "rules": done.get("rules")}
    if "pipeline" in done:
        told["pipeline"] = done["pipeline"]
    return {**told, "effect": done.get("effect")} if dry_run else told


def told(problem: Problem, request: Request) -> Problem:
    """A conflict as HTTP has it: which condition of the request did not hold."""
    if problem.kind is not Kind.CONFLICT:
        return problem
    if "if-match" in request.headers or "if-none-match" in request.headers:
        return Problem(
            Kind.CHANGED, problem.detail, "get it again, and decide with what it is now", errors=problem.errors
        )
    remedy = "get it, and send its ETag in `If-Match`"
    return Problem(Kind.PRECONDITION, problem.detail, remedy, errors=problem.errors)


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
