"""The application: routes, the one check of who may use them, and what becomes of everything that goes wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp

from tidegate.admin.documents import PIPELINE
from tidegate.api import (
    access,
    analysis,
    audit,
    consumers,
    docs,
    documents,
    health,
    keys,
    me,
    pipeline,
    tokens,
)
from tidegate.api import (
    sources as source_routes,
)
from tidegate.api.callers import Callers
from tidegate.api.channel import Channel
from tidegate.api.limits import Rates, Turns
from tidegate.api.metrics import Meters
from tidegate.api.middleware import LimitsMiddleware
from tidegate.api.pipeline import PipelineStatus
from tidegate.api.pipeline_rules import WAYS, PipelineRules
from tidegate.api.problems import Kind, Problem
from tidegate.api.requests import DirectRouter, Route, answer
from tidegate.api.schemas import sections
from tidegate.api.sources import SourceSettings

TITLE: Final = "Tidegate"
VERSION: Final = "1"  # of this interface, not of the program
_ABOUT: Final = "Administration, analysis and operation of a Tidegate node. Send `Authorization: Bearer TOKEN`."


class Application:
    """The application in its shell, and what has to be told that it stops."""

    def __init__(
        self,
        *,
        control: Path,
        data: Path | None,
        rate: float,
        address_rate: float,
        max_body: int,
        timeout: float,
        level: str = "plain",
        sources: Mapping[str, Any] | None = None,
        pipeline: bool = False,
        rules: Path | None = None,
    ) -> None:
        """`sources`: the settings of `SourceSettings`. `pipeline`: if the node has one. `rules`: its rules file."""
        self.channel = Channel(control)
        self.rates = Rates(rate, address_rate)
        self.meters = Meters()
        self.stopping = asyncio.Event()
        self.timeout = timeout
        self.fastapi = _fastapi(self)
        state = self.fastapi.state
        state.channel, state.meters, state.stopping = self.channel, self.meters, self.stopping
        state.level = level
        state.turns = Turns()
        state.source_settings = SourceSettings(self.rates, **(sources or {}))
        state.callers = Callers(self.channel, self.rates, state.source_settings.free)
        state.health = health.Health(self.channel)
        state.journal = audit.Journal(self.channel, data)
        state.pipeline_rules = PipelineRules(rules) if pipeline else None
        state.watch = PipelineStatus(data) if pipeline and data is not None else None
        express = DirectRouter(self.fastapi, keys.direct.routes)
        self.asgi: ASGIApp = LimitsMiddleware(
            express, rates=self.rates, max_body=max_body, timeout=timeout, observe=self.meters.observe
        )


def _fastapi(whole: Application) -> FastAPI:
    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
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
    modules = (me, tokens, consumers, keys, source_routes, analysis, audit, pipeline, health, docs)
    for router in (keys.direct, documents.router({PIPELINE: WAYS}), *(module.router for module in modules), about):
        app.router.routes.extend(router.routes)
    access.check((method, route.path) for route in _routes(app) for method in route.methods or ())
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
    """The OpenAPI document."""
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
    errors = [{"at": ".".join(map(str, each["loc"])), "error": each["msg"]} for each in error.errors()]
    malformed = any(each["type"] == "json_invalid" for each in error.errors())
    kind = Kind.MALFORMED if malformed else Kind.INVALID
    return Problem(kind, "the request is not what is needed here", "mend what `errors` names", errors=errors).response()


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
