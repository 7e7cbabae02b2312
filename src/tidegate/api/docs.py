"""The page at `/docs`: Swagger UI over the OpenAPI document, with schemas and requests to try.

Its assets come from the package fastapi-swagger and are served here, so the page needs no other server and works where
there is no internet. Its policy allows scripts and requests of this origin only, and no inline script.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Annotated, Final

from fastapi import APIRouter, Path
from starlette.responses import HTMLResponse, Response

from tidegate.api.problems import Kind, Problem
from tidegate.api.requests import Route
from tidegate.api.schemas import problems

_ASSETS: Final = {
    "swagger-ui-bundle.js": "text/javascript",
    "swagger-ui.css": "text/css",
    "favicon-32x32.png": "image/png",
}
_START: Final = "start.js"
# Addresses are relative to the page, so that it works behind a proxy with a path prefix.
_SCRIPT: Final = b"""\
window.addEventListener("load", () => {
  SwaggerUIBundle({
    url: "openapi.json", dom_id: "#ui", deepLinking: true, docExpansion: "none", filter: true,
    showExtensions: true, validatorUrl: null,
  });
});
"""
_PAGE: Final = f"""\
<!doctype html><html lang="en"><meta charset="utf-8"><title>Tidegate</title>
<link rel="icon" href="docs/favicon-32x32.png"><link rel="stylesheet" href="docs/swagger-ui.css">
<body><div id="ui"></div><noscript>This page needs JavaScript. The same, for programs: /openapi.json</noscript>
<script src="docs/swagger-ui-bundle.js"></script><script src="docs/{_START}"></script></body></html>
"""
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "style-src 'self' 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

router = APIRouter(route_class=Route, tags=["operation"])


@router.get("/docs", summary="This document, for people", response_class=HTMLResponse)
async def docs() -> Response:
    return HTMLResponse(_PAGE, headers={"Content-Security-Policy": _POLICY})


@router.get(
    "/docs/{asset}",
    summary="Scripts and styles of that page",
    response_class=Response,
    responses={200: {"content": {media: {} for media in _ASSETS.values()}}, **problems(404)},
)
async def asset(asset: Annotated[str, Path(max_length=100)]) -> Response:
    if asset == _START:
        return Response(_SCRIPT, media_type="text/javascript")
    if asset not in _ASSETS:
        raise Problem(Kind.UNKNOWN, "the page at /docs has no such asset", "see /docs")
    return Response(_content(asset), media_type=_ASSETS[asset], headers={"Cache-Control": "private, max-age=3600"})


@cache
def _content(asset: str) -> bytes:
    return resources.files("fastapi_swagger.resources").joinpath(asset).read_bytes()
