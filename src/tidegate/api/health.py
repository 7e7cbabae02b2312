"""Whether the process lives, whether the node does its work, and everything it counts, for Prometheus.

Readiness tells the truth of this moment: the node was asked just now (at most every `FRESH` seconds) and answered. The
node says the same in its log (node/readiness.py).
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Any, Final

from fastapi import APIRouter, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

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


class Health:
    """What the node last said of itself."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._lock = asyncio.Lock()
        self._at = -FRESH
        self._found: dict[str, Any] = {}

    async def look(self) -> dict[str, Any]:
        """The checks, and why those failed that did."""
        async with self._lock:
            if time.monotonic() - self._at >= FRESH:
                self._found = await self._look()
                self._at = time.monotonic()
            return self._found

    async def _look(self) -> dict[str, Any]:
        try:
            with self._channel.urgent():
                state: dict[str, Any] = await self._channel.ask("readiness", patience=PATIENCE)
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
    health: Health = request.app.state.health
    state = await health.look()
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


class MetricsPage:
    """`GET /metrics` and nothing else, for a listener that asks for no token. The node is asked at most every `FRESH`
    seconds, however often the page is."""

    def __init__(self, channel: Channel, meters: Meters, watch: PipelineStatus | None) -> None:
        self._look = partial(_metrics, channel, meters, watch)
        self._lock = asyncio.Lock()
        self._at = -FRESH
        self._text = b""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] != "/metrics" or scope["method"] not in ("GET", "HEAD"):
            await Problem(Kind.UNKNOWN, "there is only `GET /metrics` here", "ask for that").response()(
                scope, receive, send
            )
            return
        async with self._lock:
            if time.monotonic() - self._at >= FRESH:
                self._text = await self._look()
                self._at = time.monotonic()
        await Response(self._text, media_type=CONTENT_TYPE)(scope, receive, send)
