"""Registration of consumers: users, applications and the users under them; their credentials and public keys.

What is shown once is shown here and kept nowhere: passwords are hashed before the node hears of them. An application
acts for itself with its own token; which users are its own the node decides, with the documents as they are then.
"""

from __future__ import annotations

import secrets
from typing import Any, Final, TypeVar

from fastapi import APIRouter, Request
from pydantic import BaseModel, ValidationError
from starlette.responses import Response

from tidegate.admin.roles import Role
from tidegate.api.documents import (
    STAY,
    After,
    Limit,
    ask,
    changed,
    document,
    hashed,
    iso,
    page,
    told,
    wanted,
)
from tidegate.api.problems import Kind, Problem
from tidegate.api.requests import DryRun, Id, Route, Why, answer, caller, etag, if_match, json_object, user
from tidegate.api.schemas import (
    Changed,
    Credentials,
    Document,
    NewApplication,
    NewKey,
    NewUser,
    Page,
    Removed,
    body_of,
    problems,
)
from tidegate.api.tokens import invalid

APPLICATION: Final = "application"
_USERS: list[Any] = ["consumers"]
_MADE: dict[int | str, dict[str, Any]] = {
    200: {"model": Changed, "description": "What would be, with `dry_run`."},
    201: {"model": Credentials},
    **problems(404, 408, 409, 413, 415, 501, 504),
}
_KEYED: dict[int | str, dict[str, Any]] = {
    200: {"model": Changed},
    **problems(404, 408, 409, 412, 413, 415, 501, 504),
}

router = APIRouter(route_class=Route)
Shape = TypeVar("Shape", bound=BaseModel)


# -- registration ------------------------------------------------------------------------------------------------------


@router.post(
    "/users",
    tags=_USERS,
    summary="Register a user",
    description="Without a `password` one is made up. Password and token are shown this once.",
    status_code=201,
    responses=_MADE,
    openapi_extra=body_of(NewUser),
)
async def make_user(request: Request, dry_run: DryRun = False, why: Why = "") -> Response:
    said = await _read(request, NewUser)
    return await _registered(request, said.name, said, dry_run=dry_run, why=why)


@router.post(
    "/applications",
    tags=_USERS,
    summary="Register an application",
    description="It is a user as well, with the same name, and can register users under it.",
    status_code=201,
    responses=_MADE,
    openapi_extra=body_of(NewApplication),
)
async def make_application(request: Request, dry_run: DryRun = False, why: Why = "") -> Response:
    said = await _read(request, NewApplication)
    return await _registered(request, said.id, said, dry_run=dry_run, why=why, description=said.description)


@router.post(
    "/applications/{id}/users",
    tags=_USERS,
    summary="Register a user under an application",
    description="The application itself can do so for users that it calls `ID.NAME`. They have no role and no group "
    "that it does not have.",
    status_code=201,
    responses=_MADE,
    openapi_extra=body_of(NewUser),
)
async def make_user_under(request: Request, id: Id, dry_run: DryRun = False, why: Why = "") -> Response:
    itself = _itself(request, id)
    said = await _read(request, NewUser)
    return await _registered(request, said.name, said, dry_run=dry_run, why=why, under=id, itself=itself)


async def _registered(
    request: Request, name: str, said: NewUser | NewApplication, *, dry_run: bool, why: str, **more: Any
) -> Response:
    password = said.password or _password()
    body: dict[str, Any] = {"password": await hashed(password), "roles": said.roles, "groups": said.groups}
    if said.attributes:
        body["attributes"] = said.attributes
    if said.public_key is not None:
        body["public_key"] = said.public_key
    done = await ask(request, "consumer_register", dry_run=dry_run, why=why, name=name, body=body, **more)
    if dry_run:
        return answer(changed(name, done, dry_run=True))
    shown = _credentials(name, done, None if said.password else password)
    return answer(shown, 201, headers=etag(done["sequence"]))


# -- credentials and keys ----------------------------------------------------------------------------------------------


@router.post(
    "/users/{name}/credentials",
    tags=_USERS,
    summary="Renew the credentials of a user",
    description="A new password and a new token, shown this once; tokens made before are revoked. An application can "
    "do so for its own users.",
    status_code=201,
    responses=_MADE,
)
async def renew(request: Request, name: Id, dry_run: DryRun = False, why: Why = "") -> Response:
    return await _renewed(request, name, of=_asking(request), dry_run=dry_run, why=why)


@router.post(
    "/me/credentials",
    tags=_USERS,
    summary="Renew your credentials",
    description="A new password and a new token, shown this once; the token of this request is revoked.",
    status_code=201,
    responses=_MADE,
)
async def renew_mine(request: Request, dry_run: DryRun = False, why: Why = "") -> Response:
    return await _renewed(request, user(request), of=None, dry_run=dry_run, why=why)


async def _renewed(request: Request, name: str, *, of: str | None, dry_run: bool, why: str) -> Response:
    if (await request.body()).strip() not in (b"", b"{}"):
        raise Problem(Kind.INVALID, "nothing is to be sent here", "leave the body out")
    password = _password()
    done = await ask(
        request, "consumer_renew", dry_run=dry_run, why=why, name=name, password=await hashed(password), of=of
    )
    if dry_run:
        return answer(changed(name, done, dry_run=True))
    return answer(_credentials(name, done, password), 201, headers=etag(done["sequence"]))


@router.put(
    "/users/{name}/key",
    tags=_USERS,
    summary="Register the public key of a user",
    description="Topic keys are wrapped for it from now on. An application can do so for its own users. With "
    "`If-Match`: only if the user is still that version.",
    responses=_KEYED,
    openapi_extra=body_of(NewKey),
)
async def put_key(request: Request, name: Id, dry_run: DryRun = False, why: Why = "") -> Response:
    return await _keyed(request, name, of=_asking(request), dry_run=dry_run, why=why)


@router.put(
    "/me/key",
    tags=_USERS,
    summary="Register your public key",
    description="Topic keys are wrapped for it from now on.",
    responses=_KEYED,
    openapi_extra=body_of(NewKey),
)
async def put_my_key(request: Request, dry_run: DryRun = False, why: Why = "") -> Response:
    return await _keyed(request, user(request), of=None, dry_run=dry_run, why=why)


async def _keyed(request: Request, name: str, *, of: str | None, dry_run: bool, why: str) -> Response:
    said = await _read(request, NewKey)
    match = if_match(request)
    expected = match if isinstance(match, int) else None  # what is not sent stays as it is, whichever version it is
    try:
        done = await ask(
            request,
            "consumer_key",
            dry_run=dry_run,
            why=why,
            name=name,
            public_key=said.public_key,
            of=of,
            expected=expected,
        )
    except Problem as problem:
        raise told(problem, request) from problem
    return answer(changed(name, done, dry_run=dry_run), headers=etag(done["sequence"]))


# -- applications ------------------------------------------------------------------------------------------------------


@router.get("/applications", tags=_USERS, summary="List applications", responses={200: {"model": Page}, **problems()})
async def list_applications(request: Request, limit: Limit = 100, after: After = None) -> Response:
    return answer(await page(request, APPLICATION, limit, after))


@router.get(
    "/applications/{id}",
    tags=_USERS,
    summary="Show an application",
    description="The application itself can do so.",
    responses={200: {"model": Document}, **problems(404)},
)
async def show_application(request: Request, id: Id) -> Response:
    _itself(request, id)
    found = await document(request, APPLICATION, id)
    return answer(found, headers=etag(found["version"]))


@router.get(
    "/applications/{id}/users",
    tags=_USERS,
    summary="List the users under an application",
    description="The application itself can do so.",
    responses={200: {"model": Page}, **problems(404)},
)
async def list_users(request: Request, id: Id, limit: Limit = 100, after: After = None) -> Response:
    _itself(request, id)
    await document(request, APPLICATION, id)
    return answer(await page(request, "user", limit, after, owner=id))


@router.delete(
    "/applications/{id}",
    tags=_USERS,
    summary="Remove an application and its users",
    description=f"All of them together, and their tokens. With `If-Match`: only if it is still that version. {STAY}",
    responses={200: {"model": Removed}, **problems(404, 409, 412, 501, 504)},
)
async def remove_application(request: Request, id: Id, dry_run: DryRun = False, why: Why = "") -> Response:
    expected = await wanted(request, APPLICATION, id)
    try:
        done = await ask(request, "application_remove", dry_run=dry_run, why=why, id=id, expected=expected)
    except Problem as problem:
        if problem.kind is Kind.CONFLICT and expected is None:
            raise
        raise told(problem, request) from problem
    return answer({**changed(id, done, dry_run=dry_run), "trouble": done.get("trouble")})


@router.delete(
    "/applications/{id}/users/{name}",
    tags=_USERS,
    summary="Remove a user under an application",
    description="Its tokens go with it. The application itself can do so. With `If-Match`: only if the user is still "
    f"that version. {STAY}",
    responses={200: {"model": Removed}, **problems(404, 409, 412, 501, 504)},
)
async def remove_user(request: Request, id: Id, name: Id, dry_run: DryRun = False, why: Why = "") -> Response:
    itself = _itself(request, id)
    match = if_match(request)
    expected = match if isinstance(match, int) else None
    about = {"under": id, "name": name, "itself": itself, "expected": expected}
    try:
        done = await ask(request, "application_remove_user", dry_run=dry_run, why=why, **about)
    except Problem as problem:
        if expected is None:
            raise
        raise told(problem, request) from problem
    return answer({**changed(name, done, dry_run=dry_run), "trouble": done.get("trouble")})


# -- what they have in common ------------------------------------------------------------------------------------------


async def _read(request: Request, shape: type[Shape]) -> Shape:
    try:
        return shape.model_validate(await json_object(request))
    except ValidationError as error:
        raise invalid(error) from None


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


def _password() -> str:
    return secrets.token_urlsafe(24)


def _credentials(name: str, done: dict[str, Any], password: str | None) -> dict[str, Any]:
    token = done.get("token") or {}
    shown = {
        "name": name,
        "token": token.get("token"),
        "expires": iso(token["expires"]) if token else None,
        "version": done["sequence"],
        "rules": done["rules"],
        "trouble": done.get("trouble"),
    }
    return shown if password is None else {**shown, "password": password}
