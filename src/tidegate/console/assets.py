"""Styles, scripts and pictures of the console, shipped with the package: it needs no other server."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import resources
from typing import Annotated, Final

from fastapi import APIRouter, Path, Request
from starlette.responses import RedirectResponse, Response

from tidegate.api.problems import Kind, Problem
from tidegate.console.page import Page

_MEDIA: Final = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_NAMES: Final = ("console.css", "console.js", "editor.js", "events.js", "graph.js", "htmx.min.js", "tide.svg")

router = APIRouter(route_class=Page, include_in_schema=False)


@router.get("/")
@router.get("/ui")
@router.get("/ui/")
async def start() -> Response:
    return RedirectResponse("/ui/login", 303)  # which leads on to the first page of whoever has signed in


@router.get("/ui/assets/{name}")
async def asset(request: Request, name: Annotated[str, Path(max_length=100)]) -> Response:
    if name not in _NAMES:
        raise Problem(Kind.UNKNOWN, "the console has no such asset", "go back to its first page")
    content, tag = _content(name)
    headers = {
        "Cache-Control": "private, no-cache",  # another release has other ones
        "ETag": tag,
        "Content-Security-Policy": "default-src 'none'; connect-src 'self'",  # of the worker that listens to events
    }
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers, media_type=_MEDIA[name.rpartition(".")[2]])


@cache
def _content(name: str) -> tuple[bytes, str]:
    content = resources.files("tidegate.console").joinpath("assets", name).read_bytes()
    return content, f'"{hashlib.sha256(content).hexdigest()[:16]}"'
