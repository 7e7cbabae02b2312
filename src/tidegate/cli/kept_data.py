"""What is kept of somebody in files: a process that the node starts, so that neither it nor its loop waits for it."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tidegate.cli import terminal


def kept() -> None:
    """Erase or read what is kept of somebody. What to do comes from the node, over standard input."""
    import orjson

    from tidegate.errors import TidegateError
    from tidegate.give_way import give_way

    try:
        job = orjson.loads(b"" if sys.stdin.isatty() else sys.stdin.buffer.read())
        do = {"erase": _erase, "read": _read}[job["do"]]
    except (ValueError, TypeError, KeyError):
        terminal.usage("the node starts this itself: see `tidegate me erase` and `tidegate me export`")
    if do is _erase:
        give_way()  # nobody waits for that
    try:
        answer = do(job)
    except (TidegateError, OSError) as error:
        answer = {"error": str(error)}
    sys.stdout.buffer.write(orjson.dumps(answer, default=str, option=orjson.OPT_APPEND_NEWLINE))


def _erase(job: dict[str, Any]) -> dict[str, Any]:
    """From the journals, and from the lake. Done twice it does no harm."""
    from tidegate.store.journal import INGEST
    from tidegate.store.journal.redaction import redact
    from tidegate.store.journal.rows import TRAFFIC

    data, since, before = Path(job["data"]), job["since"], job["before"]
    journals, unread = 0, 0
    for stream in (INGEST, TRAFFIC):
        done = redact(data, stream, since, before)
        journals, unread = journals + done.rows, unread + done.unread
    rows: dict[str, int] = {}
    if job["lake"] is not None:
        for user, began in since.items():
            for table, count in _erase_lake(data, Path(job["lake"]), user, began, before).items():
                rows[table] = rows.get(table, 0) + count
    return {"journals": journals, "unread": unread, "lake": rows if job["lake"] is not None else None}


def _erase_lake(data: Path, lake: Path, user: str, since: float, before: float) -> dict[str, int]:
    from tidegate.pipeline.folders import Folders
    from tidegate.pipeline.lake import Place, erase
    from tidegate.pipeline.sample import Sample
    from tidegate.pipeline.series_statistics import StatisticsStore

    folders = Folders(data=data, lake=lake)
    Place.open(lake, create=True)  # what still waits in the journal must not come there later
    stores = [StatisticsStore(folder) for folder in folders.all_baselines()]
    done = erase(
        lake,
        user,
        since=None if not since else datetime.fromtimestamp(since, UTC),
        now=datetime.fromtimestamp(before, UTC),
        forget=lambda sources: [store.forget(sources) for store in stores],
    )
    Sample(folders.sample, lake).forget({user})
    return dict(done.rows)


def _read(job: dict[str, Any]) -> dict[str, Any]:
    """Rows of the lake, the newest days first, within a bound."""
    from tidegate.pipeline.lake.owned_rows import owned_rows

    rows, complete = owned_rows(Path(job["lake"]), job["since"], rows=job["rows"], size=job["size"])
    return {"rows": rows, "complete": complete}
