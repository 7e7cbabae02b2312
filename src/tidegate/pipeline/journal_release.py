"""Stops keeping journals for a pipeline that no longer exists.

It releases only journals that the configuration gives to no pipeline: all of them without `pipeline`, the audit without
`pipeline.audit`. It deletes nothing: rows are removed by the retention of their journal.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.config import Config
from tidegate.errors import PipelineError
from tidegate.pipeline.folders import READER, Folders, alone
from tidegate.store.journal import AUDIT, INGEST, Reader, Stream, readers


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasedJournal:
    """A journal that is not kept for the pipeline any more."""

    stream: str
    rows: int
    """That are in it and may go."""
    unread: int
    """Of these, what the pipeline has not worked on."""


def release_journals(config: Config) -> tuple[ReleasedJournal, ...]:
    """Releases them. PipelineError if a pipeline is running, or is configured to read all of them."""
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
