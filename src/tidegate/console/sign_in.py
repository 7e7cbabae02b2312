"""Signing in to the console with a form: a password, or a token. The session is the node's (`api.sign_in`)."""

from __future__ import annotations

import time
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from tidegate.admin.control_commands import SignIn, SignOut
from tidegate.admin.roles import Role
from tidegate.api.callers import Callers
from tidegate.api.problems import Kind, Problem
from tidegate.api.requests import address, channel
from tidegate.console.page import Page, form, render, to

_LONGEST = 1024

router = APIRouter(route_class=Page, include_in_schema=False)


@router.get("/ui/login")
async def ask(request: Request, next: Annotated[str, Query(max_length=2000)] = "") -> Response:
    callers: Callers = request.app.state.callers
    callers.sessions.check(request)
    if callers.sessions.of(request) is not None:
        try:
            who = await callers.caller(request)
        except Problem as problem:
            if problem.kind is not Kind.UNAUTHENTICATED:
                raise
        else:
            return to(_inside(next) or first_page(who.role))
    return render(request, "login.html", next=_inside(next), error=None, user="", issuers=request.app.state.issuers)


@router.post("/ui/login")
async def sign_in(request: Request) -> Response:
    callers: Callers = request.app.state.callers
    callers.sessions.check(request)
    given = await form(request)
    onward, user = _inside(given.get("next", "")), given.get("user", "").strip()
    command = _command(request, callers, user, given)
    if command is None:
        return _again(request, onward, user, "Give your name and password, or a token.")
    try:
        signed: dict[str, Any] = await channel(request).ask(command)
    except Problem as problem:
        if problem.kind.status not in (401, 403, 422, 429):
            raise
        return _again(request, onward, user, problem.detail, problem.kind.status)
    if command.replaces is not None:
        callers.forget(command.replaces)
    seconds = max(1, int(signed["expires"] - time.time()))
    answer = to(onward or first_page(Role(signed["role"])))
    answer.headers["Set-Cookie"] = callers.sessions.header(signed["session"], seconds)
    return answer


@router.post("/ui/logout")
async def sign_out(request: Request) -> Response:
    callers: Callers = request.app.state.callers
    session = callers.sessions.of(request)
    if session is not None:
        await channel(request).ask(SignOut(session=session), alters=True)
        callers.forget(session)
    answer = to("/ui/login")
    answer.headers["Set-Cookie"] = callers.sessions.header("", 0)
    answer.headers["Clear-Site-Data"] = '"cache"'
    return answer


def first_page(role: Role) -> str:
    return "/ui/my-data" if role is Role.USER else "/ui/now"


def _command(request: Request, callers: Callers, user: str, given: dict[str, str]) -> SignIn | None:
    password, token = given.get("password", ""), given.get("token", "").strip()
    before, whence = callers.sessions.of(request), address(request) or "unknown"
    if token and len(token) <= _LONGEST:
        return SignIn(token=token, address=whence, replaces=before)
    if user and password and max(len(user), len(password)) <= _LONGEST:
        return SignIn(user=user, password=password, address=whence, replaces=before)
    return None


def _again(request: Request, onward: str, user: str, error: str, status: int = 422) -> Response:
    return render(
        request, "login.html", code=status, next=onward, error=error, user=user, issuers=request.app.state.issuers
    )


def _inside(path: str) -> str:
    """A path of the console to go on to; nothing if it would lead anywhere else."""
    plain = path.startswith("/ui/") and "\\" not in path and path.isprintable() and path.isascii()
    return path if plain and not path.startswith(("/ui//", "/ui/login")) else ""
