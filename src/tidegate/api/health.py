"""Whether the process lives, whether the node does its work, and everything it counts, for Prometheus.

Readiness tells the truth of this moment: the node was asked just now (at most every `FRESH` seconds) and answered. The
node says the same in its log (node/readiness.py).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, Generic, TypeVar

from fastapi import APIRouter, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from tidegate.api.channel import Channel
from tidegate.api.metrics import CONTENT_TYPE, Meters
from tidegate.api.pipeline import PipelineStatus
from tidegate.api.problems import Kind, Problem
from tidegate.api.requests import Route, answer
from tidegate.api.schemas import Alive, Ready, problems

FRESH: Final = 0.1  # seconds
PATIENCE: Final = 2.0  # seconds for a node that is well
CHECKS: Final = ("node", "rules", "store", "registry")

router = APIRouter(route_class=Route, tags=["operation"])


T = TypeVar("T")


class Fresh(Generic[T]):
    """What `look` finds. It looks at most every `FRESH` seconds, however often it is asked."""

    def __init__(self, look: Callable[[], Awaitable[T]]) -> None:
        self._look = look
        self._lock = asyncio.Lock()
        self._found: tuple[float, T] | None = None

    async def __call__(self) -> T:
        async with self._lock:
            if self._found is None or time.monotonic() - self._found[0] >= FRESH:
                found = await self._look()
                self._found = time.monotonic(), found
            return self._found[1]


async def readiness(channel: Channel) -> dict[str, Any]:
    """The checks of the node, and why those failed that did."""
    try:
        with channel.urgent():
            state: dict[str, Any] = await channel.ask("readiness", patience=PATIENCE)
    except Problem as problem:
        return {"ready": False, "checks": dict.fromkeys(CHECKS, False), "reasons": [problem.detail]}
    return state


@router.get("/health/live", summary="Whether the process answers", responses={200: {"model": Alive}})
async def live() -> Response:
    return answer({"alive": True})


@router.get(
    "/health/ready",
    summary="Whether the node does its work",
    responses={200: {"model": Ready}, 503: {"model": Ready}},
)
async def ready(request: Request) -> Response:
    state = await request.app.state.health()
    return answer(state, 200 if state["ready"] else 503)


@router.get(
    "/metrics",
    summary="Everything that is counted, for Prometheus",
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **problems(501)},
)
async def metrics(request: Request) -> Response:
    state = request.app.state
    return Response(await _metrics(state.channel, state.meters, state.watch), media_type=CONTENT_TYPE)


async def _metrics(channel: Channel, meters: Meters, watch: PipelineStatus | None) -> bytes:
    try:
        with channel.urgent():
            status: dict[str, Any] | None = await channel.ask("metrics")
    except Problem:
        status = None  # the process still counts, and that the node is away is a number, too
    flowing = None if watch is None else await watch.look()
    return meters.text(status, flowing)


def metrics_page(channel: Channel, meters: Meters, watch: PipelineStatus | None) -> ASGIApp:
    """`GET /metrics` and nothing else, for a listener that asks for no token."""
    text = Fresh(partial(_metrics, channel, meters, watch))

    async def page(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/metrics" and scope["method"] in ("GET", "HEAD"):
            response = Response(await text(), media_type=CONTENT_TYPE)
        else:
            response = Problem(Kind.UNKNOWN, "there is only `GET /metrics` here", "ask for that").response()
        await response(scope, receive, send)

    return page
