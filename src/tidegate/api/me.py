"""What users do for themselves: their own preferences.

A preference belongs to the user it names. One of somebody else, or of nobody, does not exist here: the answer is the
same. New ones are given an id, so that nobody learns by trying which ids others have.
"""

from __future__ import annotations

from typing import Any, Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from tidegate.admin.documents import OWNER, own_id, owns
from tidegate.api.documents import After, Limit, change, conditions, document, page, unknown, without_id
from tidegate.api.problems import Kind, Problem
from tidegate.api.requests import Id, Route, Signature, Signed, answer, caller, etag, if_match, json_object, user
from tidegate.api.schemas import BODY, CHANGE, Changed, Document, Page, body_of_kind, returns

KIND = "preference"
MOST: Final = 200  # preferences of one user: every change of anybody has to read all of them again
_WRITTEN = body_of_kind(KIND)
router = APIRouter(route_class=Route, tags=["own preferences"])


@router.get("/me/preferences", summary="List your preferences", responses=returns(Page))
async def list_own(request: Request, limit: Limit = 100, after: After = None) -> Response:
    return answer(await page(request, KIND, limit, after, owner=user(request)))


@router.post(
    "/me/preferences",
    summary="Make a preference",
    status_code=201,
    responses=returns(Changed, *BODY, *CHANGE, made=Changed),
    openapi_extra=_WRITTEN,
)
async def make(request: Request, signed: Signature) -> Response:
    """`user` may be left out: it is you."""
    done = await make_owned(request, await json_object(request), signed)
    return answer(done, 200 if signed["dry_run"] else 201, headers=etag(done["version"]))


async def make_owned(request: Request, value: dict[str, Any], signed: Signed) -> dict[str, Any]:
    """Makes a preference of the caller, unless they have too many, or it is somebody else's."""
    owned = _owned(value, request)
    if owned.pop("id", None) is not None:
        raise Problem(Kind.INVALID, "the id of a new preference is made up here", "leave `id` out")
    if len((await page(request, KIND, MOST, None, owner=user(request)))["items"]) >= MOST:
        raise Problem(Kind.CONFLICT, f"you have {MOST} preferences, which is the most", "remove one, or change one")
    id = own_id(caller(request).identity or user(request))
    return await change(request, KIND, id, owned, None, signed)


@router.get("/me/preferences/{id}", summary="Show a preference", responses=returns(Document, 404))
async def show(request: Request, id: Id) -> Response:
    preference = await _own_preference(request, id)
    return answer(preference, headers=etag(preference["version"]))


@router.put(
    "/me/preferences/{id}",
    summary="Change a preference",
    responses=returns(Changed, 404, 412, 428, *BODY, *CHANGE),
    openapi_extra=_WRITTEN,
)
async def put(request: Request, id: Id, signed: Signature) -> Response:
    """With its ETag in `If-Match`."""
    value = without_id(_owned(await json_object(request), request), id)
    expected = _expected_version(request, await _own_preference(request, id))
    with conditions(request):
        done = await change(request, KIND, id, value, expected, signed)
    return answer(done, headers=etag(done["version"]))


@router.delete(
    "/me/preferences/{id}", summary="Delete a preference", responses=returns(Changed, 404, 412, 428, *CHANGE)
)
async def delete(request: Request, id: Id, signed: Signature) -> Response:
    """With its ETag in `If-Match`."""
    expected = _expected_version(request, await _own_preference(request, id))
    with conditions(request):
        return answer(await change(request, KIND, id, None, expected, signed))


async def _own_preference(request: Request, id: str) -> dict[str, Any]:
    owner = user(request)
    try:
        preference = await document(request, KIND, id)
    except Problem as problem:
        if problem.kind is Kind.UNKNOWN:
            raise unknown(id) from None  # the very same words as for those of others
        raise
    if not owns(preference["value"], owner, caller(request).identity or ""):
        raise unknown(id)
    return preference


def _expected_version(request: Request, preference: dict[str, Any]) -> int:
    """The version that is to be changed: the one that was found to be the caller's, so that no other can be hit."""
    if preference["version"] is None:
        raise Problem(
            Kind.READONLY, f"{preference['id']} stands in the file of the node", "ask the administrator to change it"
        )
    match = if_match(request)
    if match is None:
        raise Problem(
            Kind.PRECONDITION, "the request does not say which version it means", "send its ETag in `If-Match`"
        )
    if match not in ("*", preference["version"]):
        raise Problem(
            Kind.CHANGED, f"{preference['id']} is another version", "get it again, and decide with what it is now"
        )
    return int(preference["version"])


def _owned(value: dict[str, Any], request: Request) -> dict[str, Any]:
    name, identity = user(request), caller(request).identity
    if value.setdefault("user", name) != name or value.pop(OWNER, identity) != identity:
        raise Problem(
            Kind.FORBIDDEN, "a preference of somebody else cannot be made here", "leave `user` and `owner` out"
        )
    return value if identity is None else {**value, OWNER: identity}
