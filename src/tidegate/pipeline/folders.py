"""Where the pipeline keeps what it has to remember, below the data folder of the node; what is kept there for it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidegate.errors import PipelineError
from tidegate.store.journal import AUDIT, INGEST, Reader, Stream, readers

if TYPE_CHECKING:
    from tidegate.config import Config

READER: Final = "pipeline"  # its name among the readers of the journal


@dataclass(frozen=True, slots=True, kw_only=True)
class Folders:
    data: Path  # the data folder of the node: the journals are in it
    lake: Path

    @classmethod
    def of(cls, config: Config) -> Folders:
        """PipelineError if the configuration has no pipeline."""
        if config.pipeline is None or config.node.data is None:
            raise PipelineError('there is no pipeline in this configuration; add `pipeline: {ingest: ["raw/#"]}`')
        return cls(data=config.node.data, lake=config.pipeline.lake or config.node.data / "lake")

    @property
    def own(self) -> Path:
        return self.data / "pipeline"

    @property
    def ledger(self) -> Path:
        return self.own / "ledger.db"

    @property
    def sample(self) -> Path:
        return self.own / "sample.parquet"

    @property
    def status(self) -> Path:
        return self.own / "status.json"

    def checkpoint(self, journal: str, stream: str) -> Path:
        return self.own / "checkpoint" / journal / stream

    def baselines(self, journal: str) -> Path:
        return self.own / "baselines" / journal

    def all_baselines(self) -> list[Path]:
        """Of this journal, of those that were here before it, and what `adopt` has not moved yet."""
        folder = self.own / "baselines"
        return [folder, *sorted(path for path in folder.iterdir() if path.is_dir())] if folder.is_dir() else []

    def adopt(self, journal: str, streams: Iterable[str]) -> None:
        """Moves what a version of Tidegate has left that knew one journal only to the place of this journal."""
        for stream in streams:
            self._move(self.own / "checkpoint" / stream, self.checkpoint(journal, stream))
        for file in sorted((self.own / "baselines").glob("*.parquet")):
            self._move(file, self.baselines(journal) / file.name)

    def _move(self, old: Path, new: Path) -> None:
        if old.exists() and not new.exists():
            new.parent.mkdir(parents=True, exist_ok=True)
            old.rename(new)


@contextmanager
def alone(folders: Folders) -> Iterator[None]:
    """While it lasts no other job, nor anything else that writes to the lake, runs for this node."""
    try:
        folders.own.mkdir(parents=True, exist_ok=True)
        file = os.open(folders.own / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise PipelineError(f"{folders.own} cannot be written: {error}; let this user write there") from error
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PipelineError(f"another pipeline runs for {folders.data}; stop that first") from None
        yield
    finally:
        os.close(file)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasedJournal:
    stream: str
    rows: int  # that are in it and may go
    unread: int  # of these, what the pipeline has not worked on


def release_journals(config: Config) -> tuple[ReleasedJournal, ...]:
    """Stops keeping journals for a pipeline that no longer exists.

    Only those that the configuration gives to no pipeline: all without `pipeline`, the audit without `pipeline.audit`.
    It deletes nothing: rows are removed by the retention of their journal. PipelineError if a pipeline is running, or
    is configured to read all of them.
    """
    if config.node.data is None:
        raise PipelineError("this node keeps no journal: there is no `node.data` in its configuration")
    streams: list[Stream] = []
    if config.pipeline is None:
        streams.append(INGEST)
    if config.pipeline is None or not config.pipeline.audit:
        streams.append(AUDIT)
    if not streams:
        raise PipelineError(
            "the pipeline of this configuration reads the journal; remove `pipeline` from it first, or set "
            "`pipeline.audit: false` to give up the audit alone"
        )
    with alone(Folders(data=config.node.data, lake=config.node.data / "lake")):
        released = [_released(config, stream) for stream in streams]
    return tuple(each for each in released if each is not None)


def _released(config: Config, stream: Stream) -> ReleasedJournal | None:
    assert config.node.data is not None
    at = readers.withdraw(readers.readers_of(config.node.data, stream), READER)
    if at is None:
        return None
    with Reader(config.node.data, stream) as journal:
        first, following = journal.bounds()
    done = min(max(first, at.get("0", 0)), following)
    return ReleasedJournal(stream=stream.name, rows=following - first, unread=following - done)
