"""The segments of a journal that nobody writes to any more, and the deletion of old ones (`retention` says which).

Before anything is deleted the readers are asked how far they have come. What one of them has not read stays, whatever
its age and size; that is said once. Everything runs on the writer's thread, except that `keep_from` is set on the loop.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import structlog

from tidegate.errors import StoreError
from tidegate.store.journal import readers
from tidegate.store.journal.retention import Closed, Retention, expired
from tidegate.store.journal.segment import index_of, segment_of

log = structlog.get_logger("tidegate.store")


class ClosedSegments:
    """Those of one shard, the oldest first."""

    def __init__(self, folder: Path, shard: int, retention: Retention, keep_from: int | None) -> None:
        self.segments: list[Closed] = []
        self.keep_from = keep_from  # everything from this offset on stays; None: nobody needs it
        self._folder = folder
        self._shard = shard
        self._retention = retention
        self._broken: set[Path] = set()  # files of readers that cannot be read, and that was said
        self._held_back = False  # readers keep what is too old, and that was said

    def begin(self) -> None:
        """From now on a wall clock that is set ahead is not believed."""
        self._clock = time.time() - time.monotonic()

    @property
    def size(self) -> int:
        """Bytes on the disk."""
        return sum(closed.size for closed in self.segments)

    def clean(self, *, writing: int) -> None:
        """Deletes what is too old or too much; `writing` is the size of the segment being written."""
        # A clock that was set ahead must not make everything look old; nor one that was set back while we run.
        now = min(time.time(), self._clock + time.monotonic())
        which = partial(expired, self.segments, self._retention, writing=writing, now=now)
        for closed in which(keep_from=self._needed()) if which(keep_from=None) else ():
            path = segment_of(self._folder, closed.first)
            try:
                path.unlink(missing_ok=True)
                index_of(path).unlink(missing_ok=True)
            except OSError as error:
                log.warning("an old journal segment cannot be deleted", path=str(path), error=str(error))
                return
            self.segments.remove(closed)
            log.info("an old journal segment is deleted", path=str(path), until=closed.next)

    def _needed(self) -> int | None:
        """The offset from which on somebody needs what is there."""
        broken: set[Path] = set()

        def tell(path: Path, why: StoreError) -> None:
            broken.add(path)
            if path not in self._broken:
                log.error("a reader of the journal keeps everything", path=str(path), reason=str(why))

        read = readers.lowest(self._folder.parent / readers.FOLDER, shard=self._shard, broken=tell)
        self._broken = broken
        held = read is not None and read < self.segments[0].next
        if held and not self._held_back:
            log.warning(
                "old journal segments stay, because a reader needs them. Remedy: start whoever reads, or remove its "
                "file in `readers`",
                folder=str(self._folder),
                read=read,
            )
        self._held_back = held
        return min((one for one in (read, self.keep_from) if one is not None), default=None)
