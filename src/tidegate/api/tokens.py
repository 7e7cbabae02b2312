"""Bearer tokens: made, listed and revoked. The text of a token is told once, when it is made."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from tidegate.admin.control_commands import ListTokens, MakeToken, RevokeToken
from tidegate.admin.roles import Role
from tidegate.api import schemas
from tidegate.api.documents import ask, iso
from tidegate.api.problems import Kind, Problem
from tidegate.api.requests import Id, Route, Signature, answer, caller, channel, read

_SHOWN = ("id", "role", "user", "name", "expires", "revoked_at", "revoked_by")

router = APIRouter(route_class=Route, tags=["tokens"])


@router.get("/me", summary="Show whose token this is", responses=schemas.returns(schemas.Me))
async def me(request: Request) -> Response:
    who = caller(request)
    expires = None if who.expires is None else iso(who.expires)
    return answer({"token": who.token, "role": who.role, "user": who.user, "expires": expires})


@router.get("/tokens", summary="List tokens", responses=schemas.returns(schemas.Tokens))
async def list_all(request: Request) -> Response:
    tokens = (await channel(request).ask(ListTokens()))["tokens"]
    return answer({"items": [_shown(each) for each in tokens]})


@router.post(
    "/tokens",
    summary="Make a token",
    status_code=201,
    responses=schemas.returns(schemas.TriedToken, 404, 507, *schemas.BODY, *schemas.CHANGE, made=schemas.NewToken),
    openapi_extra=schemas.body_of(schemas.TokenRequest),
)
async def make(request: Request, signed: Signature) -> Response:
    wanted = await read(request, schemas.TokenRequest)
    if (wanted.role is Role.USER) != (wanted.user is not None):
        raise Problem(Kind.INVALID, "a token with the role `user` is for a user, others are not", "mend role or user")
    token = await ask(request, MakeToken(**wanted.model_dump(), **signed))
    if signed["dry_run"]:
        return answer({**token, "expires": iso(token["expires"]), "dry_run": True})
    return answer({**_shown(token), "token": token["token"]}, 201)


@router.delete("/tokens/{id}", summary="Revoke a token", responses=schemas.returns(schemas.ChangedToken, 404, 501, 504))
async def revoke(request: Request, id: Id, signed: Signature) -> Response:
    """It stays listed until it would have expired."""
    token = await ask(request, RevokeToken(id=id, **signed))
    return answer({**_shown(token), "dry_run": signed["dry_run"]})


def _shown(token: dict[str, Any]) -> dict[str, Any]:
    times = {name: iso(token[name]) for name in ("expires", "revoked_at") if token.get(name) is not None}
    return {**{name: token.get(name) for name in _SHOWN}, **times}
