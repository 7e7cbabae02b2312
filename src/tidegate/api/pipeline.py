"""How the pipeline is doing: what its job says of itself, and what the journal says of the job.

The job writes a status every few seconds; whether it still lives is not believed but looked up (`pipeline.status`).
What is left to do is counted here, from the journal and from how far its readers are, so that it is right also when
nothing runs. Nothing is asked of the node.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from tidegate.api.documents import iso
from tidegate.api.problems import Kind, Problem
from tidegate.api.requests import Route, answer
from tidegate.api.schemas import LONG, Pipeline, Quality, returns
from tidegate.errors import PipelineError, StoreError
from tidegate.pipeline import status
from tidegate.pipeline.columns import DIMENSIONS
from tidegate.pipeline.folders import READER, Folders
from tidegate.store.journal import INGEST, Reader, readers

MOST: Final = 10_000  # rows of one answer
_START = "start it with `tidegate pipeline run`"

router = APIRouter(route_class=Route, tags=["rules of the pipeline"])


class PipelineStatus:
    """Looks at the pipeline of one node, whose data folder this is."""

    def __init__(self, data: Path, lake: Path | None = None) -> None:
        self._folders = Folders(data=data, lake=lake or data / "lake")

    async def look(self) -> dict[str, Any]:
        """As `schemas.Pipeline` has it; off the loop."""
        return await asyncio.to_thread(self._look)

    async def quality(self, since: date, source: str | None, dimension: str | None) -> dict[str, Any]:
        """As `schemas.Quality` has it; off the loop."""
        return await asyncio.to_thread(self._quality, since, source, dimension)

    def _quality(self, since: date, source: str | None, dimension: str | None) -> dict[str, Any]:
        from tidegate.pipeline import lake  # brings pyarrow's reader of Parquet

        path = self._folders.lake
        if not path.exists():
            return {"trends": [], "quarantine": [], "complete": True}
        try:
            rows = lake.trends(path, since=since, source=source, dimension=dimension)
            faults = lake.faults(path, since=since, source=source)
        except (OSError, PipelineError) as error:
            raise Problem(Kind.UNAVAILABLE, f"the lake cannot be read: {error}", "look into its folder") from None
        return {
            "trends": [{**asdict(row), "date": row.date.isoformat()} for row in rows[:MOST]],
            "quarantine": [asdict(row) for row in faults],
            "complete": len(rows) <= MOST,
        }

    def _look(self) -> dict[str, Any]:
        told = _told(status.read(self._folders.status))
        try:
            with Reader(self._folders.data, INGEST, settled=True) as journal:
                first, following = journal.bounds()
            offsets = self._offsets(first)
        except (OSError, StoreError) as error:  # the job is told of nevertheless
            unread = f"the journal cannot be read: {error}"
            why = unread if told["why"] is None else f"{told['why']}; {unread}"
            return {**told, "why": why, "journal": None, "readers": {}, "lag": None}
        # The job knows sooner than its reader, which gives up rows only when they are safe.
        said = (told["job"] or {}).get("next")
        done = said.get("0") if isinstance(said, dict) else None  # the offset up to which everything is done
        done = max(offsets.get(READER, first), done if isinstance(done, int) else 0)
        return {
            **told,
            "journal": {"first": first, "next": following},
            "readers": {name: {"next": at, "lag": max(following - at, 0)} for name, at in offsets.items()},
            "lag": max(following - done, 0),
        }

    def _offsets(self, first: int) -> dict[str, int]:
        """How far each reader is for whom the journal is kept; one that is broken has read nothing."""
        found: dict[str, int] = {}
        for name, path in readers.known(readers.readers_of(self._folders.data, INGEST)).items():
            try:
                at = readers.offsets_of(path).get("0", 0)
            except StoreError:
                at = 0  # the node says so in its log, and keeps everything for it
            found[name] = max(first, at)
        return found


def _told(said: dict[str, Any]) -> dict[str, Any]:
    job = {name: value for name, value in said.items() if name not in ("running", "silent")}
    if not job:
        return {"state": "never", "why": f"no job has run here yet; {_START}", "heard": None, "job": None}
    state, why = "running", None
    if not said["running"]:
        state, why = "stopped", f"there is no job; {_START}"
    elif said["silent"]:
        state, why = "silent", "its process lives and says nothing; look into its log"
    at = job.get("at")
    return {"state": state, "why": why, "heard": iso(at) if isinstance(at, float | int) else None, "job": job}


@router.get("/pipeline", summary="Show how the pipeline is doing", responses=returns(Pipeline, 404))
async def show(request: Request) -> Response:
    watch: PipelineStatus | None = request.app.state.watch
    if watch is None:
        raise missing()
    return answer(await watch.look())


@router.get("/pipeline/quality", summary="Show how good the data were", responses=returns(Quality, 404, 503))
async def quality(
    request: Request,
    days: Annotated[int, Query(ge=1, le=3660, description="So many days back.")] = 30,
    source: Annotated[str | None, Query(min_length=1, max_length=LONG, description="Of this source only.")] = None,
    dimension: Annotated[Literal[DIMENSIONS] | None, Query(description="Of this score only.")] = None,  # type: ignore[valid-type]
) -> Response:
    """Scores by day, source and dimension, as they were summed up last, and what is in quarantine, by reason."""
    watch: PipelineStatus | None = request.app.state.watch
    if watch is None:
        raise missing()
    since = datetime.now(UTC).date() - timedelta(days=days)
    return answer(await watch.quality(since, source, dimension))


def missing() -> Problem:
    return Problem(Kind.UNKNOWN, "this node has no pipeline", "set `pipeline` in its file")
