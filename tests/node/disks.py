"""A disk that fails, or takes its time, where the journal `ingest` is written; and what is on it."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow as pa
import pytest

from harness import PATIENCE


class Disk:
    """The disk of the journal: what is written there can fail, or take its time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full = Event()
        self.slow = Event()
        self.tried = Event()
        self.go = Event()
        write, sync = os.pwrite, os.fdatasync

        def journal(file: int) -> bool:
            return "/journal/ingest/" in os.readlink(f"/proc/self/fd/{file}")

        def pwrite(file: int, data: Any, position: int) -> int:
            if self.full.is_set() and journal(file):
                self.tried.set()
                raise OSError(errno.ENOSPC, "no space left")
            return write(file, data, position)

        def fdatasync(file: int) -> None:
            if self.slow.is_set() and journal(file):
                self.tried.set()
                assert self.go.wait(20)
            sync(file)

        monkeypatch.setattr(os, "pwrite", pwrite)
        monkeypatch.setattr(os, "fdatasync", fdatasync)

    async def trying(self) -> None:
        """Until the writer is stuck, or has failed."""
        assert await asyncio.get_running_loop().run_in_executor(None, self.tried.wait, PATIENCE)
        self.tried.clear()

    def mend(self) -> None:
        self.full.clear()
        self.slow.clear()
        self.go.set()


def ingested(data: Path) -> list[dict[str, Any]]:
    """All rows of the journal, as plain pyarrow sees them."""
    found: list[dict[str, Any]] = []
    for path in sorted((data / "journal/ingest/0").glob("*.arrow")):
        found += pa.ipc.open_stream(path.read_bytes()).read_all().to_pylist()
    return found
