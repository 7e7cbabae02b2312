"""Signing in and out: a person shows a password or a token once, and has a session of the node.

The node verifies and keeps the session; here it becomes a cookie. Every sign-in makes a new one, whatever there was.
"""

from __future__ import annotations

import time
from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from tidegate.admin.control_commands import SignIn, SignOut
from tidegate.api.callers import Callers
from tidegate.api.documents import iso
from tidegate.api.requests import Route, address, answer, channel, read
from tidegate.api.schemas import BODY, body_of, returns

router = APIRouter(route_class=Route, tags=["sign-in"])


class Credentials(BaseModel):
    """Either `user` and `password`, or `token`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    user: str | None = Field(None, min_length=1, max_length=1024)
    password: str | None = Field(None, min_length=1, max_length=1024)
    token: str | None = Field(None, min_length=1, max_length=512)


class SignedIn(BaseModel):
    """Who has signed in."""

    user: str | None
    role: str
    expires: str


class SignedOut(BaseModel):
    ended: bool = Field(description="Whether there was a session that counted.")


@router.post(
    "/login",
    summary="Sign in",
    responses=returns(SignedIn, 401, 403, 429, 503, *BODY),
    openapi_extra=body_of(Credentials),
)
async def login(request: Request) -> Response:
    """With a password or a token. The session is a cookie for the console; `http.roles` has the roles."""
    callers: Callers = request.app.state.callers
    callers.sessions.check(request)
    given = await read(request, Credentials)
    signed, cookie = await begin(request, given)
    shown = {"user": signed["user"], "role": signed["role"], "expires": iso(signed["expires"])}
    return answer(shown, headers=cookie)


async def begin(request: Request, given: Credentials) -> tuple[dict[str, Any], dict[str, str]]:
    """A new session instead of the one that the browser has, and the header that keeps it there."""
    callers: Callers = request.app.state.callers
    before = callers.sessions.of(request)
    command = SignIn(**given.model_dump(), address=address(request) or "unknown", replaces=before)
    signed: dict[str, Any] = await channel(request).ask(command)
    if before is not None:
        callers.forget(before)
    seconds = max(1, int(signed["expires"] - time.time()))
    return signed, {"Set-Cookie": callers.sessions.header(signed["session"], seconds)}


async def end(request: Request) -> tuple[bool, dict[str, str]]:
    """Ends the session in the node, if there is one, and in the browser."""
    callers: Callers = request.app.state.callers
    session = callers.sessions.of(request)
    ended = False
    if session is not None:
        ended = (await channel(request).ask(SignOut(session=session), alters=True))["ended"]
        callers.forget(session)
    return ended, {"Set-Cookie": callers.sessions.header("", 0)}


@router.post("/logout", summary="Sign out", responses=returns(SignedOut, 403))
async def logout(request: Request) -> Response:
    """The session ends in the node: a copy of the cookie is worth nothing then."""
    callers: Callers = request.app.state.callers
    callers.sessions.check(request)
    ended, cookie = await end(request)
    return answer({"ended": ended}, headers=cookie)
