"""How a pipeline is doing, for whoever looks: what the job says of itself, and how far behind the journal it is."""

from __future__ import annotations

from typing import Any

from tidegate.config import Config
from tidegate.pipeline import status
from tidegate.pipeline.folders import Folders
from tidegate.store.journal import INGEST, Reader


def overview(config: Config) -> dict[str, Any]:
    """Facts for a table, or as JSON."""
    folders = Folders.of(config)
    state = status.read(folders.status)
    oldest, following = Reader(folders.data, INGEST, settled=True).bounds()
    if state.get("state") in ("running", "stopping") and not state["running"]:
        state["state"] = "ended without saying so; start it again: nothing is lost"
    done = int(state.get("next", {}).get("0", oldest))
    return {
        **state,
        "lag": max(0, following - done),
        "journal": {"oldest": oldest, "next": following},
        "lake": str(folders.lake),
    }
