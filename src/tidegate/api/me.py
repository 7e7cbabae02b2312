"""What users do for themselves: who their token says they are, and their own preferences.

A preference belongs to the user it names. One of somebody else, or of nobody, does not exist here: the answer is the
same. New ones are given an id, so that nobody learns by trying which ids others have.
"""

from __future__ import annotations

import secrets
from typing import Any, Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from tidegate.api.documents import After, Limit, change, document, iso, page, told, unknown
from tidegate.api.problems import Kind, Problem
from tidegate.api.requests import DryRun, Id, Route, Why, answer, caller, etag, if_match, json_object, user
from tidegate.api.schemas import Changed, Document, Me, Page, body_of_kind, problems

KIND = "preference"
MOST: Final = 200  # preferences of one user: every change of anybody has to read all of them again
_WRITTEN = body_of_kind(KIND)
_TAGS: list[Any] = ["own preferences"]

router = APIRouter(route_class=Route)


@router.get("/me", tags=["tokens"], summary="Show whose token this is", responses={200: {"model": Me}, **problems()})
async def me(request: Request) -> Response:
    who = caller(request)
    expires = None if who.expires is None else iso(who.expires)
    return answer({"token": who.token, "role": who.role, "user": who.user, "expires": expires})


@router.get(
    "/me/preferences", tags=_TAGS, summary="List your preferences", responses={200: {"model": Page}, **problems()}
)
async def list_own(request: Request, limit: Limit = 100, after: After = None) -> Response:
    return answer(await page(request, KIND, limit, after, owner=user(request)))


@router.post(
    "/me/preferences",
    tags=_TAGS,
    summary="Make a preference",
    description="`user` may be left out: it is you.",
    status_code=201,
    responses={200: {"model": Changed}, 201: {"model": Changed}, **problems(408, 409, 413, 415, 501, 504)},
    openapi_extra=_WRITTEN,
)
async def make(request: Request, dry_run: DryRun = False, why: Why = "") -> Response:
    value = _owned(await json_object(request), user(request))
    if value.pop("id", None) is not None:
        raise Problem(Kind.INVALID, "the id of a new preference is made up here", "leave `id` out")
    if len((await page(request, KIND, MOST, None, owner=user(request)))["items"]) >= MOST:
        raise Problem(Kind.CONFLICT, f"you have {MOST} preferences, which is the most", "remove one, or change one")
    done = await change(request, KIND, f"own-{secrets.token_hex(8)}", value, None, dry_run=dry_run, why=why)
    return answer(done, 200 if dry_run else 201, headers=etag(done["version"]))


@router.get(
    "/me/preferences/{id}",
    tags=_TAGS,
    summary="Show a preference",
    responses={200: {"model": Document}, **problems(404)},
)
async def show(request: Request, id: Id) -> Response:
    found = await _own_preference(request, id)
    return answer(found, headers=etag(found["version"]))


@router.put(
    "/me/preferences/{id}",
    tags=_TAGS,
    summary="Change a preference",
    description="With its ETag in `If-Match`.",
    responses={200: {"model": Changed}, **problems(404, 408, 409, 412, 413, 415, 428, 501, 504)},
    openapi_extra=_WRITTEN,
)
async def put(request: Request, id: Id, dry_run: DryRun = False, why: Why = "") -> Response:
    value = _owned(await json_object(request), user(request))
    if value.pop("id", id) != id:
        raise Problem(Kind.INVALID, "the `id` in the body is not the one in the path", "leave it out of the body")
    expected = _expected_version(request, await _own_preference(request, id))
    try:
        done = await change(request, KIND, id, value, expected, dry_run=dry_run, why=why)
    except Problem as problem:
        raise told(problem, request) from problem
    return answer(done, headers=etag(done["version"]))


@router.delete(
    "/me/preferences/{id}",
    tags=_TAGS,
    summary="Delete a preference",
    description="With its ETag in `If-Match`.",
    responses={200: {"model": Changed}, **problems(404, 409, 412, 428, 501, 504)},
)
async def delete(request: Request, id: Id, dry_run: DryRun = False, why: Why = "") -> Response:
    expected = _expected_version(request, await _own_preference(request, id))
    try:
        done = await change(request, KIND, id, None, expected, dry_run=dry_run, why=why)
    except Problem as problem:
        raise told(problem, request) from problem
    return answer(done)


async def _own_preference(request: Request, id: str) -> dict[str, Any]:
    owner = user(request)
    try:
        found = await document(request, KIND, id)
    except Problem as problem:
        if problem.kind is Kind.UNKNOWN:
            raise unknown(id) from None  # the very same words as for those of others
        raise
    if found["value"].get("user") != owner:
        raise unknown(id)
    return found


def _expected_version(request: Request, found: dict[str, Any]) -> int:
    """The version that is to be changed: the one that was found to be the caller's, so that no other can be hit."""
    if found["version"] is None:
        raise Problem(
            Kind.READONLY, f"{found['id']} stands in the file of the node", "ask the administrator to change it"
        )
    match = if_match(request)
    if match is None:
        raise Problem(
            Kind.PRECONDITION, "the request does not say which version it means", "send its ETag in `If-Match`"
        )
    if match not in ("*", found["version"]):
        raise Problem(Kind.CHANGED, f"{found['id']} is another version", "get it again, and decide with what it is now")
    return int(found["version"])


def _owned(value: dict[str, Any], owner: str) -> dict[str, Any]:
    if value.setdefault("user", owner) != owner:
        raise Problem(Kind.FORBIDDEN, "a preference of somebody else cannot be made here", "leave `user` out")
    return value
