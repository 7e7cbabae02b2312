"""*Quality*: how the pipeline is doing, the scores of each source and dimension, and what is in quarantine and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from tidegate.api.pipeline import PipelineStatus
from tidegate.console import chart
from tidegate.console.page import Page, render

DAYS: Final = 30
ROWS: Final = 300

router = APIRouter(route_class=Page, include_in_schema=False)


@router.get("/ui/quality")
async def quality(request: Request) -> Response:
    watch: PipelineStatus | None = request.app.state.watch
    if watch is None:
        return render(request, "quality.html", pipeline=None, sources=[], quarantine=[])
    found = await watch.quality(datetime.now(UTC).date() - timedelta(days=DAYS), None, None)
    return render(
        request,
        "quality.html",
        pipeline=await watch.look(),
        sources=by_source(found["trends"]),
        quarantine=found["quarantine"],
    )


def by_source(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One entry a source and dimension: the mean over all, and of each day in order, the lowest first."""
    found: dict[tuple[str, str], dict[str, tuple[float, int]]] = {}
    for row in rows:
        if row["mean"] is None or not row["assessed"]:
            continue
        days = found.setdefault((row["source"] or "", row["dimension"]), {})
        mean, count = days.get(row["date"], (0.0, 0))
        total = count + row["assessed"]
        days[row["date"]] = (mean * count + row["mean"] * row["assessed"]) / total, total
    listed = []
    for (source, dimension), days in found.items():
        counted = sum(count for _, count in days.values())
        mean = sum(mean * count for mean, count in days.values()) / counted
        trend = chart.sparkline([mean for _, (mean, _) in sorted(days.items())], f"{dimension} of {source} by day")
        listed.append({"source": source, "dimension": dimension, "mean": mean, "records": counted, "trend": trend})
    return sorted(listed, key=lambda each: (each["mean"], each["source"], each["dimension"]))[:ROWS]
