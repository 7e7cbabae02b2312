"""How the job is doing, in a file that anybody may read while it runs: written after each batch, and while waiting.

A job that is gone leaves its last word behind; whether it runs is told by the process and the age of the file.
"""

from __future__ import annotations

import json
import os
import time
from collections import deque
from pathlib import Path
from typing import Any, Final

from tidegate.config import Config
from tidegate.pipeline.folders import Folders
from tidegate.store.journal import INGEST, Reader, known_journal

FRESH: Final = 15.0  # seconds; a job that runs writes more often
RATES: Final = 60.0  # seconds over which rates are told


class Status:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._done: deque[tuple[float, int, int]] = deque()
        self._said: dict[str, Any] = {"pid": os.getpid(), "started": time.time(), "state": "starting"}

    def done(self, messages: int, records: int) -> None:
        self._done.append((time.monotonic(), messages, records))

    def write(self, **facts: Any) -> None:
        """Says it, and everything that was said before and has not changed."""
        self._said |= facts
        now = time.monotonic()
        while self._done and self._done[0][0] < now - RATES:
            self._done.popleft()
        span = max(now - self._done[0][0], 1.0) if self._done else 1.0
        rate = sum(records for _, _, records in self._done) / span if len(self._done) > 1 else None
        text = json.dumps({**self._said, "at": time.time(), "records_per_second": rate})
        new = self._path.with_name(self._path.name + ".new")
        self._path.parent.mkdir(parents=True, exist_ok=True)
        new.write_text(text, encoding="utf-8")
        new.replace(self._path)


def read(path: Path) -> dict[str, Any]:
    """What the job said last, and whether it runs; `{"running": False}` if there never was one."""
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        facts = None
    if not isinstance(facts, dict) or not isinstance(facts.get("pid"), int):
        return {"running": False}
    alive = _alive(facts["pid"]) and facts.get("state") != "stopped"
    return {**facts, "running": alive, "silent": alive and time.time() - facts.get("at", 0.0) > FRESH}


def overview(config: Config) -> dict[str, Any]:
    """What `tidegate pipeline status` shows: the job's own status, and how far it is behind the journal."""
    folders = Folders.of(config)
    state = read(folders.status)
    oldest, following = Reader(folders.data, INGEST, settled=True).bounds()
    if state.get("state") in ("running", "stopping") and not state["running"]:
        state["state"] = "ended without saying so; start it again: nothing is lost"
    journal = known_journal(folders.data)
    if state.pop("journal", journal) != journal:  # what the job did was done to another journal
        state.pop("next", None)
    done = int(state.get("next", {}).get("0", oldest))
    return {
        **state,
        "lag": max(0, following - done),
        "journal": {"id": journal, "oldest": oldest, "next": following},
        "lake": str(folders.lake),
    }


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return pid > 0
