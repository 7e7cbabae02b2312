"""The application: routes, the one check of who may use them, and what becomes of everything that goes wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Scope, Send

from tidegate.admin.documents import PIPELINE
from tidegate.admin.roles import Role
from tidegate.api import (
    access,
    analysis,
    audit,
    consumers,
    docs,
    documents,
    erasures,
    health,
    keys,
    links,
    live,
    me,
    openid,
    own_data,
    pipeline,
    sign_in,
    sources,
    tokens,
)
from tidegate.api.callers import Callers
from tidegate.api.channel import Channel
from tidegate.api.limits import Rates, Turns
from tidegate.api.metrics import Meters
from tidegate.api.middleware import KEPT, LimitsMiddleware
from tidegate.api.pipeline_rules import WAYS, PipelineRules
from tidegate.api.places import Places
from tidegate.api.problems import Kind, Problem
from tidegate.api.requests import DirectRouter, Route, answer, places
from tidegate.api.schemas import sections
from tidegate.api.session_cookies import SessionCookies
from tidegate.node.http import Serving

TITLE: Final = "Tidegate"
VERSION: Final = "1"  # of this interface, not of the program
_ABOUT: Final = "Administration, analysis and operation of a Tidegate node. Send `Authorization: Bearer TOKEN`."
_DOCUMENTS: Final = documents.router({PIPELINE: WAYS})  # made once, as those of the other modules: it takes long


@dataclass(frozen=True, slots=True, kw_only=True)
class Pages:
    """What is served beside this interface, for people who have signed in."""

    router: APIRouter
    allowed: Mapping[tuple[str, str], frozenset[Role]]
    """Who may see which page, as `access.ALLOWED`."""


class Application:
    """The application in its shell, and what has to be told that it stops."""

    def __init__(self, serving: Serving, pages: Pages | None = None) -> None:
        self.channel = Channel(serving.control)
        self.rates = Rates(serving.rate, serving.address_rate)
        self.meters = Meters()
        self.stopping = asyncio.Event()
        self.timeout = serving.timeout
        self.fastapi = _fastapi(self, pages)
        state = self.fastapi.state
        state.channel, state.meters, state.stopping = self.channel, self.meters, self.stopping
        state.level = "plain" if serving.cert is None else "tls" if serving.client_ca is None else "mtls"
        state.turns = Turns()
        state.issuers = serving.issuers
        state.source_settings = sources.SourceSettings(self.rates, **serving.sources)
        cookies = SessionCookies(serving.hosts, secure=serving.cert is not None)
        state.callers = Callers(self.channel, self.rates, state.source_settings.free, cookies, allowed=_allowed(pages))
        state.health = health.Fresh(partial(health.readiness, self.channel))
        state.journal = audit.Journal(self.channel, serving.data)
        state.pipeline_rules = PipelineRules(serving.rules) if serving.pipeline else None
        watched = serving.data if serving.pipeline else None
        state.watch = None if watched is None else pipeline.PipelineStatus(watched, serving.lake)
        express = DirectRouter(self.fastapi, keys.direct.routes)
        self.places = Places(serving.max_connections, serving.address_connections)
        self.asgi: ASGIApp = LimitsMiddleware(
            app=express,
            rates=self.rates,
            max_body=serving.max_body,
            timeout=serving.timeout,
            observe=self.meters.observe,
            administers=state.callers.administers,
        )
        self.metrics: ASGIApp = health.metrics_page(self.channel, self.meters, state.watch)

    async def asgi_kept(self, scope: Scope, receive: Receive, send: Send) -> None:
        """For connections in kept places."""
        await self.asgi({**scope, KEPT: True}, receive, send)


def _allowed(pages: Pages | None) -> Mapping[tuple[str, str], frozenset[Role]]:
    return access.ALLOWED if pages is None else {**access.ALLOWED, **pages.allowed}


def _fastapi(whole: Application, pages: Pages | None) -> FastAPI:
    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        with suppress(Problem):  # the node is told that its HTTP process answers from now on, if it is there itself
            await whole.channel.ask("readiness")
        yield
        whole.channel.close()

    app = FastAPI(
        title=TITLE,
        version=VERSION,
        description=_ABOUT,
        docs_url=None,  # that page loads its assets from another server; see `docs`
        redoc_url=None,
        openapi_url=None,
        lifespan=lifespan,
        redirect_slashes=False,
    )
    about = _describe(app)
    modules = (
        sign_in,
        openid,
        own_data,
        erasures,
        me,
        tokens,
        consumers,
        keys,
        sources,
        live,
        analysis,
        audit,
        pipeline,
        health,
        docs,
    )
    first = (keys.direct, links.router)  # before routes with an id in their place
    for router in (*first, _DOCUMENTS, *(module.router for module in modules), about):
        app.router.routes.extend(router.routes)
    if pages is not None:
        app.router.routes.extend(pages.router.routes)
    access.check(((method, route.path) for route in _routes(app) for method in route.methods or ()), _allowed(pages))
    app.add_exception_handler(Problem, _problem)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _refused)
    return app


def _routes(app: FastAPI) -> Iterator[Route]:
    for route in app.routes:
        if not isinstance(route, Route):
            raise RuntimeError(f"nobody checks who uses {route}")
        yield route


def _describe(app: FastAPI) -> APIRouter:
    router = APIRouter(route_class=Route)
    document: dict[str, Any] = {}

    def openapi() -> dict[str, Any]:
        if not document:
            document.update(get_openapi(title=TITLE, version=VERSION, description=_ABOUT, routes=app.routes))
            components = document.setdefault("components", {})
            components["schemas"] = {**sections(), **components.get("schemas", {})}
            components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            for path, methods in document["paths"].items():
                for method, operation in methods.items():
                    roles = access.ALLOWED[method.upper(), path]
                    operation["security"] = [] if roles is access.PUBLIC else [{"token": []}]
                    operation["x-roles"] = sorted(roles)
        return document

    @router.get("/openapi.json", tags=["operation"], summary="This document")
    async def show() -> Response:
        return answer(openapi())

    app.openapi = openapi  # type: ignore[method-assign]  # as FastAPI documents it
    return router


async def _problem(_: Request, problem: Exception) -> Response:
    assert isinstance(problem, Problem)
    return problem.response()


async def _invalid(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    errors = error.errors()
    kind = Kind.MALFORMED if any(each["type"] == "json_invalid" for each in errors) else Kind.INVALID
    text = "the request is not what is needed here"
    return Problem(kind, text, "mend what `errors` names", errors=places(errors)).response()


async def _refused(request: Request, error: Exception) -> Response:
    """What no route was found for, and what the framework refuses by itself."""
    assert isinstance(error, HTTPException)
    match error.status_code:
        case 404:
            return Problem(Kind.UNKNOWN, "there is no such route", "see /docs for those there are").response()
        case 405:
            methods = {
                method
                for route in _routes(request.app)
                if route.matches(request.scope)[0] is not Match.NONE
                for method in route.methods or ()
            }
            allow = ", ".join(sorted(methods))
            return Problem(
                Kind.METHOD, f"{request.method[:20]} cannot be done here", f"use {allow}", headers={"Allow": allow}
            ).response()
        case _:
            return Problem(Kind.MALFORMED, "the request cannot be read", "send it as /docs says").response()
