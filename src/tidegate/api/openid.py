"""Signing in at an OpenID Connect issuer: the browser is sent there, and comes back with a code.

The node makes and checks everything that matters (admin/openid_sign_in). Where a browser is sent comes from the node's
file and the issuer's discovery, never from a request; `next` is a path on this host.
"""

from __future__ import annotations

import time
from html import escape
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from tidegate.admin.control_commands import OpenIdBegin, OpenIdFinish
from tidegate.api.callers import Callers
from tidegate.api.problems import Kind, Problem
from tidegate.api.requests import Route, address, channel
from tidegate.api.schemas import problems

PATIENCE: Final = 30.0  # seconds for the issuer to answer the node
# The session's cookie is not sent when another site leads somewhere (`SameSite=Strict`), and a redirection from here
# would count as the issuer's. A page of this host counts as ours.
_PAGE: Final = """\
<!doctype html><html lang="en"><meta charset="utf-8"><title>Tidegate</title>
<meta http-equiv="refresh" content="0; url={next}">
<body><p>You have signed in as {user}. <a href="{next}">Go on</a></p></body></html>
"""
_SENT: Final[dict[int | str, dict[str, Any]]] = {303: {"description": "To the issuer.", "content": {}}}


class FromIssuer(Route):
    """Issuers add parameters of their own to the address that browsers come back to."""

    tolerant = True


router = APIRouter(route_class=Route, tags=["sign-in"])
_returning = APIRouter(route_class=FromIssuer, tags=["sign-in"])


@router.get(
    "/oidc/login",
    summary="Sign in at an OpenID Connect issuer",
    status_code=303,
    response_class=RedirectResponse,
    responses={**_SENT, **problems(403, 404, 422, 503)},
)
async def login(
    request: Request,
    issuer: Annotated[
        str | None, Query(min_length=1, max_length=64, description="Its `name` in `http.oidc`, if there are several.")
    ] = None,
    next: Annotated[
        str | None, Query(min_length=1, max_length=1024, description="Where to go then: a path on this host.")
    ] = None,
) -> Response:
    """Sends the browser there. It comes back to `/oidc/callback`, and has a session then."""
    callers: Callers = request.app.state.callers
    callers.sessions.check(request)
    begun = await channel(request).ask(OpenIdBegin(issuer=issuer, next=next), patience=PATIENCE)
    cookie = callers.sessions.binding_header(begun["binding"], int(begun["seconds"]))
    return Response(status_code=303, headers={"Location": begun["location"], "Set-Cookie": cookie})


@_returning.get(
    "/oidc/callback",
    summary="Come back from an issuer",
    response_class=HTMLResponse,
    responses=problems(401, 403, 422, 503),
)
async def callback(
    request: Request,
    state: Annotated[str, Query(min_length=1, max_length=512, description="As it was sent there.")],
    code: Annotated[str | None, Query(min_length=1, max_length=4096, description="For which there is a token.")] = None,
    iss: Annotated[str | None, Query(min_length=1, max_length=1024, description="The issuer (RFC 9207).")] = None,
    error: Annotated[str | None, Query(max_length=1024, description="Why there is no code.")] = None,
) -> Response:
    """The issuer sends browsers here. The session is a cookie, as after `POST /login`."""
    callers: Callers = request.app.state.callers
    callers.sessions.check(request)
    binding = callers.sessions.binding(request)
    if binding is None:
        raise Problem(Kind.UNAUTHENTICATED, "this browser has begun no sign-in", "begin at /oidc/login")
    before = callers.sessions.of(request)
    command = OpenIdFinish(
        binding=binding,
        state=state,
        code=None if error is not None else code,
        iss=iss,
        address=address(request) or "unknown",
        replaces=before,
    )
    signed = await channel(request).ask(command, patience=PATIENCE)
    if before is not None:
        callers.forget(before)
    seconds = max(1, int(signed["expires"] - time.time()))
    page = HTMLResponse(_PAGE.format(next=escape(signed["next"]), user=escape(signed["user"])))
    page.headers.append("Set-Cookie", callers.sessions.header(signed["session"], seconds))
    page.headers.append("Set-Cookie", callers.sessions.binding_header("", 0))
    return page


router.routes.extend(_returning.routes)
