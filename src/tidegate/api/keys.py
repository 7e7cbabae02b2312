"""Topic keys: for consumers who ask for one, and for administrators who rotate and revoke them.

Whether somebody may have a key is decided by the node, at that moment, with how the request came: over TLS, with a
certificate, from which address. The key itself is wrapped for the reader's public key before it comes here.

The two routes for consumers are asked thousands of times a second: they read their requests themselves, and ask the
node once.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request
from pydantic import ValidationError
from starlette.responses import Response

from tidegate.api.documents import After, iso
from tidegate.api.documents import ask as change
from tidegate.api.problems import Kind, Problem
from tidegate.api.requests import JSON, Direct, DryRun, Id, Route, Why, answer, channel, json_object, user
from tidegate.api.schemas import LONG, Revoked, Rotated, Rotation, TopicKeys, WrappedKey, body_of, problems
from tidegate.api.tokens import invalid
from tidegate.keys import valid_request
from tidegate.keys.key import valid_id

MOST: Final = 1000  # keys on a page
_TAGS: list[Any] = ["keys"]
_TIMES: Final = ("made", "valid_until", "readable_until")
_MARK: Final = {"type": "string", "pattern": "^[A-Za-z0-9_-]{16,128}$"}
_ID: Final = {"type": "string", "pattern": "^[A-Za-z0-9_.-]{1,64}$"}
_ASKED_BY_ID: Final[dict[str, Any]] = {
    "parameters": [
        {"name": "key_id", "in": "path", "required": True, "schema": _ID, "description": "The `keyId` of a message."},
        {
            "name": "request",
            "in": "query",
            "required": True,
            "schema": _MARK,
            "description": "A random mark, never the same twice: the answer counts for it only.",
        },
    ]
}
_ASKED: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {
            JSON: {
                "schema": {
                    "type": "object",
                    "properties": {
                        "keyId": {**_ID, "description": "Of a message that was received."},
                        "topic": {
                            "type": "string",
                            "minLength": 1,
                            "maxLength": LONG,
                            "description": "Where you want to publish what you seal yourself.",
                        },
                        "request": {**_MARK, "description": "A random mark, never the same twice."},
                    },
                    "required": ["request"],
                    "oneOf": [{"required": ["keyId"]}, {"required": ["topic"]}],
                    "additionalProperties": False,
                }
            }
        },
    }
}
_WRAPPED: dict[int | str, dict[str, Any]] = {200: {"model": WrappedKey}, **problems(404, 408, 409, 413, 415, 501)}

direct = APIRouter(route_class=Direct)
"""Those that are asked most; they belong before all others."""
router = APIRouter(route_class=Route)


@direct.get(
    "/keys/{key_id}",
    tags=_TAGS,
    summary="Get the key of a message",
    description="Wrapped for the public key that you registered, if the rules let you read that topic now.",
    responses=_WRAPPED,
    openapi_extra=_ASKED_BY_ID,
)
async def get(request: Request) -> Response:
    return await _asked(request, "key_get", _key_id(request.path_params["key_id"]), request.query_params.get("request"))


@direct.post(
    "/keys/request",
    tags=_TAGS,
    summary="Ask for a key",
    description="With `keyId` that of a message, with `topic` the one to seal what you publish there.",
    responses=_WRAPPED,
    openapi_extra=_ASKED,
)
async def ask(request: Request) -> Response:
    match await json_object(request):
        case {"keyId": str() as id, "request": mark, **rest} if not rest:
            return await _asked(request, "key_get", _key_id(id), mark)
        case {"topic": str() as topic, "request": mark, **rest} if not rest:
            if not 0 < len(topic) <= LONG:
                raise Problem(Kind.INVALID, "this is no topic", "send the one that you want to publish to")
            return await _asked(request, "key_publish", {"topic": topic}, mark)
        case _:
            raise Problem(
                Kind.INVALID, "a request has `request` and either `keyId` or `topic`", "send these, and nothing else"
            )


async def _asked(request: Request, command: str, what: dict[str, Any], mark: object) -> Response:
    if not isinstance(mark, str) or not valid_request(mark):
        raise Problem(
            Kind.INVALID,
            "`request` is no mark of a request",
            "make one of 16 to 128 random letters, digits, `_` and `-` for each request",
        )
    client = request.client
    found = await channel(request).ask(
        command,
        user=user(request),
        **what,
        request=mark,
        level=request.app.state.level,
        address=client.host if client else "",
    )
    return Response(found["answer"], media_type=JSON)


def _key_id(written: str) -> dict[str, Any]:
    if not valid_id(written):
        raise Problem(Kind.INVALID, "this is no id of a key", "send the `keyId` of the message")
    return {"key": written}


# -- administration ----------------------------------------------------------------------------------------------------


@router.get(
    "/keys",
    tags=_TAGS,
    summary="List topic keys",
    description="By id, and without their secrets.",
    responses={200: {"model": TopicKeys}, **problems(501)},
)
async def list_all(
    request: Request,
    limit: Annotated[int, Query(ge=1, le=MOST, description="At most so many.")] = MOST,
    after: After = None,
) -> Response:
    found = (await channel(request).ask("key_list", after=after, limit=limit + 1))["keys"]
    items = [_shown(each) for each in found[:limit]]
    return answer({"items": items, "next": items[-1]["id"] if len(found) > limit else None})


@router.post(
    "/keys/rotate",
    tags=_TAGS,
    summary="Seal with other keys from the next message on",
    description="Everything, what one entry of `keys.protect` covers, or what a user could read.",
    responses={200: {"model": Rotated}, **problems(404, 408, 409, 413, 415, 501, 504)},
    openapi_extra=body_of(Rotation),
)
async def rotate(request: Request, dry_run: DryRun = False, why: Why = "") -> Response:
    try:
        said = Rotation.model_validate(await json_object(request))
    except ValidationError as error:
        raise invalid(error) from None
    if said.filter is not None and said.user is not None:
        raise Problem(Kind.INVALID, "there is both a `filter` and a `user`", "send one of them, or neither")
    wanted = said.model_dump(exclude_none=True)
    done = await change(request, "key_rotate", dry_run=dry_run, why=why, **wanted)
    return answer({"groups": done["groups"], "dry_run": dry_run})


@router.delete(
    "/keys/{key_id}",
    tags=_TAGS,
    summary="Revoke a topic key",
    description="It is never handed out again, and what it sealed is sealed with another one from the next message on.",
    responses={200: {"model": Revoked}, **problems(404, 409, 501, 504)},
)
async def revoke(request: Request, key_id: Id, dry_run: DryRun = False, why: Why = "") -> Response:
    done = await change(request, "key_revoke", dry_run=dry_run, why=why, id=key_id)
    key = _shown(done["key"]) if dry_run and done["key"] is not None else None
    return answer({"revoked": key_id, "dry_run": dry_run, "key": key})


def _shown(key: dict[str, Any]) -> dict[str, Any]:
    return {**key, **{name: iso(key[name]) for name in _TIMES}}
