"""The state of a pipeline for people and programs: the job's own status, and how far it is behind the journal."""

from __future__ import annotations

from typing import Any

from tidegate.config import Config
from tidegate.pipeline import status
from tidegate.pipeline.folders import Folders
from tidegate.store.journal import INGEST, Reader, known_journal


def overview(config: Config) -> dict[str, Any]:
    """The facts that `tidegate pipeline status` shows."""
    folders = Folders.of(config)
    state = status.read(folders.status)
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
