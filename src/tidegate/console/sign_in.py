"""Signing in to the console with a form: a password, or a token. The session is the node's (`api.sign_in`)."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import ValidationError
from starlette.responses import Response

from tidegate.admin.roles import Role
from tidegate.api.callers import Callers
from tidegate.api.problems import Kind, Problem
from tidegate.api.sign_in import Credentials, begin, end
from tidegate.console.page import Page, form, render, to

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
    credentials = _credentials(user, given)
    if credentials is None:
        return _again(request, onward, user, "Give your name and password, or a token.")
    try:
        signed, cookie = await begin(request, credentials)
    except Problem as problem:
        if problem.kind.status not in (401, 403, 422, 429):
            raise
        return _again(request, onward, user, problem.detail, problem.kind.status)
    answer = to(onward or first_page(Role(signed["role"])))
    answer.headers.update(cookie)
    return answer


@router.post("/ui/logout")
async def sign_out(request: Request) -> Response:
    _, cookie = await end(request)
    answer = to("/ui/login")
    answer.headers.update(cookie)
    answer.headers["Clear-Site-Data"] = '"cache"'
    return answer


def first_page(role: Role) -> str:
    return "/ui/my-data" if role is Role.USER else "/ui/now"


def _credentials(user: str, given: dict[str, str]) -> Credentials | None:
    password, token = given.get("password", ""), given.get("token", "").strip()
    try:
        return Credentials.model_validate({"token": token} if token else {"user": user, "password": password})
    except ValidationError:  # nothing, or too long
        return None


def _again(request: Request, onward: str, user: str, error: str, status: int = 422) -> Response:
    return render(
        request, "login.html", code=status, next=onward, error=error, user=user, issuers=request.app.state.issuers
    )


def _inside(path: str) -> str:
    """A path of the console to go on to; nothing if it would lead anywhere else."""
    plain = path.startswith("/ui/") and "\\" not in path and path.isprintable() and path.isascii()
    return path if plain and not path.startswith(("/ui//", "/ui/login")) else ""
