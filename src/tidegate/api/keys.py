"""Topic keys: for consumers who ask for one, and for administrators who rotate and revoke them.

Whether somebody may have a key is decided by the node, at that moment, with how the request came: over TLS, with a
certificate, from which address. The key itself is wrapped for the reader's public key before it comes here.

The two routes for consumers are asked thousands of times a second: they read their requests themselves, and ask the
node once.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from tidegate.api import schemas
from tidegate.api.documents import After, iso
from tidegate.api.documents import ask as change
from tidegate.api.problems import Kind, Problem
from tidegate.api.requests import JSON, Direct, Id, Route, Signature, address, answer, channel, json_object, read, user
from tidegate.keys import valid_request
from tidegate.keys.key import valid_id
from tidegate.keyservice.control_commands import GetKey, GetPublishingKey, ListKeys, RevokeKey, RotateKeys

CAPABILITY: Final = "Tidegate-Capability"
PROOF: Final = "Tidegate-Proof"
MOST: Final = 1000  # keys on a page
_TIMES: Final = ("made", "valid_until", "readable_until")
_ABOUT_MARK: Final = "A random mark, never the same twice: the answer counts for it only."
_SHOWN: Final[list[dict[str, Any]]] = [
    {"name": name, "in": "header", "required": False, "schema": {"type": "string"}, "description": text}
    for name, text in (
        (CAPABILITY, "Your capability. Without a proof it counts over TLS only."),
        (PROOF, "The proof that you have its key: of the action `key`, and the mark of the request as the topic."),
    )
]
_ASKED_BY_ID: Final[dict[str, Any]] = {
    "parameters": [
        *(
            {
                "name": name,
                "in": place,
                "required": True,
                "schema": {"type": "string", "pattern": form},
                "description": text,
            }
            for name, place, form, text in (
                ("key_id", "path", schemas.KEY_ID, "The `keyId` of a message."),
                ("request", "query", schemas.KEY_MARK, _ABOUT_MARK),
            )
        ),
        *_SHOWN,
    ]
}
_WRAPPED: Final = schemas.returns(schemas.WrappedKey, 404, 409, 501, *schemas.BODY)

direct = APIRouter(route_class=Direct, tags=["keys"])
"""Those that are asked most; they belong before all others."""
router = APIRouter(route_class=Route, tags=["keys"])


@direct.get("/keys/{key_id}", summary="Get the key of a message", responses=_WRAPPED, openapi_extra=_ASKED_BY_ID)
async def get(request: Request) -> Response:
    """Wrapped for the public key that you registered, if the rules let you read that topic now."""
    key = _key_id(request.path_params["key_id"])
    return await _asked(request, GetKey, request.query_params.get("request"), key=key)


@direct.post(
    "/keys/request",
    summary="Ask for a key",
    responses=_WRAPPED,
    openapi_extra={**schemas.body_of(schemas.KeyRequest), "parameters": _SHOWN},
)
async def ask(request: Request) -> Response:
    """With `keyId` that of a message, with `topic` the one to seal what you publish there."""
    match await json_object(request):
        case {"keyId": str() as id, "request": mark, **rest} if not rest:
            return await _asked(request, GetKey, mark, key=_key_id(id))
        case {"topic": str() as topic, "request": mark, **rest} if not rest:
            if not 0 < len(topic) <= schemas.LONG:
                raise Problem(Kind.INVALID, "this is no topic", "send the one that you want to publish to")
            return await _asked(request, GetPublishingKey, mark, topic=topic)
        case _:
            raise Problem(
                Kind.INVALID, "a request has `request` and either `keyId` or `topic`", "send these, and nothing else"
            )


async def _asked(request: Request, command: type[GetKey | GetPublishingKey], mark: object, **about: Any) -> Response:
    if not isinstance(mark, str) or not valid_request(mark):
        raise Problem(
            Kind.INVALID,
            "`request` is no mark of a request",
            "make one of 16 to 128 random letters, digits, `_` and `-` for each request",
        )
    asked = command(
        user=user(request),
        request=mark,
        level=request.app.state.level,
        address=address(request),
        capability=request.headers.get(CAPABILITY),
        proof=request.headers.get(PROOF),
        **about,
    )
    return Response((await channel(request).ask(asked))["answer"], media_type=JSON)


def _key_id(written: str) -> str:
    if not valid_id(written):
        raise Problem(Kind.INVALID, "this is no id of a key", "send the `keyId` of the message")
    return written


# -- administration ----------------------------------------------------------------------------------------------------


@router.get("/keys", summary="List topic keys", responses=schemas.returns(schemas.TopicKeys, 501))
async def list_all(
    request: Request,
    limit: Annotated[int, Query(ge=1, le=MOST, description="At most so many.")] = MOST,
    after: After = None,
) -> Response:
    """By id, and without their secrets."""
    keys = (await channel(request).ask(ListKeys(after=after, limit=limit + 1)))["keys"]
    items = [_shown(each) for each in keys[:limit]]
    return answer({"items": items, "next": items[-1]["id"] if len(keys) > limit else None})


@router.post(
    "/keys/rotate",
    summary="Seal with other keys from the next message on",
    responses=schemas.returns(schemas.Rotated, 404, *schemas.BODY, *schemas.CHANGE),
    openapi_extra=schemas.body_of(schemas.Rotation),
)
async def rotate(request: Request, signed: Signature) -> Response:
    """Everything, what one entry of `keys.protect` covers, or what a user could read."""
    rotation = await read(request, schemas.Rotation)
    if rotation.filter is not None and rotation.user is not None:
        raise Problem(Kind.INVALID, "there is both a `filter` and a `user`", "send one of them, or neither")
    done = await change(request, RotateKeys(**rotation.model_dump(), **signed))
    return answer({"groups": done["groups"], "dry_run": signed["dry_run"]})


@router.delete(
    "/keys/{key_id}", summary="Revoke a topic key", responses=schemas.returns(schemas.Revoked, 404, *schemas.CHANGE)
)
async def revoke(request: Request, key_id: Id, signed: Signature) -> Response:
    """It is never handed out again, and what it sealed is sealed with another one from the next message on."""
    dry_run = signed["dry_run"]
    done = await change(request, RevokeKey(id=key_id, **signed))
    key = _shown(done["key"]) if dry_run and done["key"] is not None else None
    return answer({"revoked": key_id, "dry_run": dry_run, "key": key})


def _shown(key: dict[str, Any]) -> dict[str, Any]:
    return {**key, **{name: iso(key[name]) for name in _TIMES}}
