"""*Quality*: how the pipeline is doing, the scores of each source and dimension, and what is in quarantine and why."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from tidegate.api.pipeline import PipelineStatus
from tidegate.console.page import Page, render

router = APIRouter(route_class=Page, include_in_schema=False)


@router.get("/ui/quality")
async def quality(request: Request) -> Response:
    watch: PipelineStatus | None = request.app.state.watch
    told = None if watch is None else await watch.look()
    return render(request, "quality.html", pipeline=told)
