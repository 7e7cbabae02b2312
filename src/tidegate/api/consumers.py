"""Registration of consumers: users, applications and the users under them; their credentials and public keys.

What is shown once is shown here and kept nowhere: passwords are hashed before the node hears of them. An application
acts for itself with its own token; which users are its own the node decides, with the documents as they are then.
"""

from __future__ import annotations

import secrets
from typing import Any, Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from tidegate.admin import control_commands
from tidegate.admin.roles import Role
from tidegate.api import documents, schemas
from tidegate.api.problems import Kind, Problem
from tidegate.api.requests import Id, Route, Signature, Signed, answer, caller, etag, if_match, read, user

APPLICATION: Final = "application"
_MADE: Final = schemas.returns(schemas.Changed, 404, 507, *schemas.BODY, *schemas.CHANGE, made=schemas.Credentials)
_KEYED: Final = schemas.returns(schemas.Changed, 404, 412, *schemas.BODY, *schemas.CHANGE)

router = APIRouter(route_class=Route, tags=["consumers"])


# -- registration ------------------------------------------------------------------------------------------------------


@router.post(
    "/users",
    summary="Register a user",
    status_code=201,
    responses=_MADE,
    openapi_extra=schemas.body_of(schemas.NewUser),
)
async def make_user(request: Request, signed: Signature) -> Response:
    """Without a `password` one is made up. Password and token are shown this once."""
    new = await read(request, schemas.NewUser)
    return await _registered(request, new.name, new, signed)


@router.post(
    "/applications",
    summary="Register an application",
    status_code=201,
    responses=_MADE,
    openapi_extra=schemas.body_of(schemas.NewApplication),
)
async def make_application(request: Request, signed: Signature) -> Response:
    """It is a user as well, with the same name, and can register users under it."""
    new = await read(request, schemas.NewApplication)
    return await _registered(request, new.id, new, signed, description=new.description)


@router.post(
    "/applications/{id}/users",
    summary="Register a user under an application",
    description="The application itself can do so for users that it calls `ID.NAME`. They have no role and no group "
    "that it does not have.",
    status_code=201,
    responses=_MADE,
    openapi_extra=schemas.body_of(schemas.NewUser),
)
async def make_user_under(request: Request, id: Id, signed: Signature) -> Response:
    itself = _itself(request, id)
    new = await read(request, schemas.NewUser)
    return await _registered(request, new.name, new, signed, under=id, itself=itself)


async def _registered(
    request: Request, name: str, new: schemas.NewUser | schemas.NewApplication, signed: Signed, **more: Any
) -> Response:
    password = new.password or secrets.token_urlsafe(24)
    body: dict[str, Any] = {"password": await documents.hashed(password), "roles": new.roles, "groups": new.groups}
    if new.attributes:
        body["attributes"] = new.attributes
    if new.public_key is not None:
        body["public_key"] = new.public_key
    done = await documents.ask(request, control_commands.RegisterConsumer(name=name, body=body, **signed, **more))
    return _credentials(name, done, None if new.password else password, signed)


# -- credentials and keys ----------------------------------------------------------------------------------------------


@router.post(
    "/users/{name}/credentials",
    summary="Renew the credentials of a user",
    description="A new password and a new token, shown this once; tokens made before are revoked. An application can "
    "do so for its own users.",
    status_code=201,
    responses=_MADE,
)
async def renew(request: Request, name: Id, signed: Signature) -> Response:
    return await _renewed(request, name, _asking(request), signed)


@router.post("/me/credentials", summary="Renew your credentials", status_code=201, responses=_MADE)
async def renew_mine(request: Request, signed: Signature) -> Response:
    """A new password and a new token, shown this once; the token of this request is revoked."""
    return await _renewed(request, user(request), None, signed)


async def _renewed(request: Request, name: str, of: str | None, signed: Signed) -> Response:
    if (await request.body()).strip() not in (b"", b"{}"):
        raise Problem(Kind.INVALID, "nothing is to be sent here", "leave the body out")
    password = secrets.token_urlsafe(24)
    done = await documents.ask(
        request,
        control_commands.RenewCredentials(name=name, password=await documents.hashed(password), of=of, **signed),
    )
    return _credentials(name, done, password, signed)


@router.put(
    "/users/{name}/key",
    summary="Register the public key of a user",
    description="Topic keys are wrapped for it from now on. An application can do so for its own users. With "
    "`If-Match`: only if the user is still that version.",
    responses=_KEYED,
    openapi_extra=schemas.body_of(schemas.NewKey),
)
async def put_key(request: Request, name: Id, signed: Signature) -> Response:
    return await _keyed(request, name, _asking(request), signed)


@router.put(
    "/me/key", summary="Register your public key", responses=_KEYED, openapi_extra=schemas.body_of(schemas.NewKey)
)
async def put_my_key(request: Request, signed: Signature) -> Response:
    """Topic keys are wrapped for it from now on."""
    return await _keyed(request, user(request), None, signed)


async def _keyed(request: Request, name: str, of: str | None, signed: Signed) -> Response:
    key = (await read(request, schemas.NewKey)).public_key
    expected = _version(request)  # without one what is not sent stays as it is, whichever version it is
    with documents.conditions(request):
        done = await documents.ask(
            request, control_commands.SetPublicKey(name=name, public_key=key, of=of, expected=expected, **signed)
        )
    return answer(documents.changed(name, done, dry_run=signed["dry_run"]), headers=etag(done["sequence"]))


# -- applications ------------------------------------------------------------------------------------------------------


@router.get("/applications", summary="List applications", responses=schemas.returns(schemas.Page))
async def list_applications(request: Request, limit: documents.Limit = 100, after: documents.After = None) -> Response:
    return answer(await documents.page(request, APPLICATION, limit, after))


@router.get("/applications/{id}", summary="Show an application", responses=schemas.returns(schemas.Document, 404))
async def show_application(request: Request, id: Id) -> Response:
    """The application itself can do so."""
    _itself(request, id)
    application = await documents.document(request, APPLICATION, id)
    return answer(application, headers=etag(application["version"]))


@router.get(
    "/applications/{id}/users",
    summary="List the users under an application",
    responses=schemas.returns(schemas.Page, 404),
)
async def list_users(request: Request, id: Id, limit: documents.Limit = 100, after: documents.After = None) -> Response:
    """The application itself can do so."""
    _itself(request, id)
    await documents.document(request, APPLICATION, id)
    return answer(await documents.page(request, "user", limit, after, owner=id))


@router.delete(
    "/applications/{id}",
    summary="Remove an application and its users",
    description="All of them together, and their tokens. With `If-Match`: only if it is still that version. "
    + documents.STAY,
    responses=schemas.returns(schemas.Removed, 404, 412, *schemas.CHANGE),
)
async def remove_application(request: Request, id: Id, signed: Signature) -> Response:
    expected = await documents.expected_version(request, APPLICATION, id)
    with documents.conditions(request, given=expected is not None):
        done = await documents.ask(request, control_commands.RemoveApplication(id=id, expected=expected, **signed))
    return _removed(id, done, signed)


@router.delete(
    "/applications/{id}/users/{name}",
    summary="Remove a user under an application",
    description="Its tokens go with it. The application itself can do so. With `If-Match`: only if the user is still "
    f"that version. {documents.STAY}",
    responses=schemas.returns(schemas.Removed, 404, 412, *schemas.CHANGE),
)
async def remove_user(request: Request, id: Id, name: Id, signed: Signature) -> Response:
    itself, expected = _itself(request, id), _version(request)
    command = control_commands.RemoveApplicationUser(under=id, name=name, itself=itself, expected=expected, **signed)
    with documents.conditions(request, given=expected is not None):
        done = await documents.ask(request, command)
    return _removed(name, done, signed)


# -- what they have in common ------------------------------------------------------------------------------------------


def _version(request: Request) -> int | None:
    match = if_match(request)
    return match if isinstance(match, int) else None


def _removed(id: str, done: dict[str, Any], signed: Signed) -> Response:
    return answer({**documents.changed(id, done, dry_run=signed["dry_run"]), "trouble": done.get("trouble")})


def _itself(request: Request, id: str) -> bool:
    """Whether the application asks; Problem if it is somebody else who may only speak for himself."""
    if caller(request).role is not Role.USER:
        return False
    if user(request) != id:
        raise Problem(Kind.FORBIDDEN, "this is not your application", "use the token of the application")
    return True


def _asking(request: Request) -> str | None:
    """The application that asks for one of its users; None: an administrator, who may do so for all."""
    return user(request) if caller(request).role is Role.USER else None


def _credentials(name: str, done: dict[str, Any], password: str | None, signed: Signed) -> Response:
    """What somebody logs in with, shown this once; `password`: unless it was sent."""
    if signed["dry_run"]:
        return answer(documents.changed(name, done, dry_run=True))
    token = done.get("token") or {}
    shown = {
        "name": name,
        "token": token.get("token"),
        "expires": documents.iso(token["expires"]) if token else None,
        "version": done["sequence"],
        "rules": done["rules"],
        "trouble": done.get("trouble"),
        **({} if password is None else {"password": password}),
    }
    return answer(shown, 201, headers=etag(done["sequence"]))
