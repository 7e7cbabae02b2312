"""Whether the process lives, whether the node does its work, and everything it counts, for Prometheus.

Readiness tells the truth of this moment: the node was asked just now (at most every `FRESH` seconds) and answered.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from tidegate.api.channel import Channel
from tidegate.api.metrics import CONTENT_TYPE, Meters
from tidegate.api.pipeline import PipelineStatus
from tidegate.api.problems import Problem
from tidegate.api.requests import Route, answer, channel
from tidegate.api.schemas import Alive, Ready, problems

FRESH: Final = 0.5  # seconds
PATIENCE: Final = 2.0  # seconds for a node that is well
_TAGS: list[Any] = ["operation"]

router = APIRouter(route_class=Route)


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
        checks = {"node": False, "rules": False, "store": False, "registry": False}
        reasons = []
        try:
            status = await self._channel.ask("status", patience=PATIENCE)
        except Problem as problem:
            return {"ready": False, "checks": checks, "reasons": [problem.detail]}
        registry = status.get("registry") or {}
        checks = {
            "node": True,
            "rules": bool(status.get("rules")),
            "store": not status.get("refusing"),
            "registry": bool(registry) and not registry.get("trouble"),
        }
        ready = all(checks.values())
        # with these in trouble messages still pass as they should
        checks["journals"] = not (status.get("audit") or {}).get("trouble")
        checks["keys"] = not (status.get("keys") or {}).get("trouble")
        if not checks["rules"]:
            reasons.append("no rules are in force yet")
        if not checks["store"]:
            reasons.append("the node cannot write to its store, and acknowledges nothing meanwhile")
        if registry and not registry.get("reachable"):
            reasons.append("what is administered cannot be read or changed: its database is away")
        elif not checks["registry"]:
            reasons.append("what is administered cannot be put in force here; `tidegate status` on the node says why")
        if not checks["journals"]:
            reasons.append("the journals cannot be written: what is audited waits, and data of sources is refused")
        if not checks["keys"]:
            reasons.append("topic keys cannot be shared with other nodes at the moment; this one goes on with its own")
        return {"ready": ready, "checks": checks, "reasons": reasons}


@router.get("/health/live", tags=_TAGS, summary="Whether the process answers", responses={200: {"model": Alive}})
async def live() -> Response:
    return answer({"alive": True})


@router.get(
    "/health/ready",
    tags=_TAGS,
    summary="Whether the node does its work",
    responses={200: {"model": Ready}, 503: {"model": Ready}},
)
async def ready(request: Request) -> Response:
    health: Health = request.app.state.health
    found = await health.look()
    return answer(found, 200 if found["ready"] else 503)


@router.get(
    "/metrics",
    tags=_TAGS,
    summary="Everything that is counted, for Prometheus",
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **problems(501)},
)
async def metrics(request: Request) -> Response:
    meters: Meters = request.app.state.meters
    try:
        status: dict[str, Any] | None = await channel(request).ask("metrics")
    except Problem:
        status = None  # the process still counts, and that the node is away is a number, too
    watch: PipelineStatus | None = request.app.state.watch
    flowing = None if watch is None else await watch.look()
    return Response(meters.text(status, flowing), media_type=CONTENT_TYPE)
