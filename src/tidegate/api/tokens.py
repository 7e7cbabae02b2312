"""Bearer tokens: made, listed and revoked. What makes one a token is told once, when it is made."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from pydantic import ValidationError
from starlette.responses import Response

from tidegate.admin.roles import Role
from tidegate.api.documents import ask, iso
from tidegate.api.problems import Kind, Problem
from tidegate.api.requests import DryRun, Id, Route, Why, answer, channel, json_object
from tidegate.api.schemas import ChangedToken, NewToken, TokenRequest, Tokens, TriedToken, body_of, problems

_TAGS: list[Any] = ["tokens"]

router = APIRouter(route_class=Route)


@router.get("/tokens", tags=_TAGS, summary="List tokens", responses={200: {"model": Tokens}, **problems()})
async def list_all(request: Request) -> Response:
    found = (await channel(request).ask("token_list"))["tokens"]
    return answer({"items": [_shown(each) for each in found]})


@router.post(
    "/tokens",
    tags=_TAGS,
    summary="Make a token",
    status_code=201,
    responses={
        200: {"model": TriedToken, "description": "What it would be, with `dry_run`."},
        201: {"model": NewToken},
        **problems(404, 408, 409, 413, 415, 501, 504),
    },
    openapi_extra=body_of(TokenRequest),
)
async def make(request: Request, dry_run: DryRun = False, why: Why = "") -> Response:
    try:
        wanted = TokenRequest.model_validate(await json_object(request))
    except ValidationError as error:
        raise invalid(error) from None
    if (wanted.role == Role.USER.value) != (wanted.user is not None):
        raise Problem(Kind.INVALID, "a token with the role `user` is for a user, others are not", "mend role or user")
    made = await ask(request, "token_make", dry_run=dry_run, why=why, **wanted.model_dump())
    if dry_run:
        return answer({**made, "expires": iso(made["expires"]), "dry_run": True})
    return answer({**_shown(made), "token": made["token"]}, 201)


@router.delete(
    "/tokens/{id}",
    tags=_TAGS,
    summary="Revoke a token",
    description="It stays listed until it would have expired.",
    responses={200: {"model": ChangedToken}, **problems(404, 501, 504)},
)
async def revoke(request: Request, id: Id, dry_run: DryRun = False, why: Why = "") -> Response:
    found = await ask(request, "token_revoke", dry_run=dry_run, why=why, id=id)
    return answer({**_shown(found), "dry_run": dry_run})


def invalid(error: ValidationError) -> Problem:
    """What pydantic found wrong, without repeating what was sent."""
    errors = [
        {"at": ".".join(map(str, each["loc"])), "error": each["msg"]}
        for each in error.errors(include_url=False, include_input=False, include_context=False)
    ]
    return Problem(Kind.INVALID, "the body is not what is needed here", "mend what `errors` names", errors=errors)


def _shown(found: dict[str, Any]) -> dict[str, Any]:
    expires, revoked = found.get("expires"), found.get("revoked_at")
    return {
        "id": found["id"],
        "role": found["role"],
        "user": found.get("user"),
        "name": found.get("name"),
        "expires": None if expires is None else iso(expires),
        "revoked_at": None if revoked is None else iso(revoked),
        "revoked_by": found.get("revoked_by"),
    }
