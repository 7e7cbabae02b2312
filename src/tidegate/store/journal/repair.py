"""Opening a shard: whatever a crash has left becomes a row of segments that can be gone on with.

The last segment is read and checked as a whole. What stands after its last whole batch was never acknowledged and is
cut off. A batch that is not whole with whole ones after it is no torn tail but damage: those are kept, the segment
is left as it is, and a new one begins; readers pass over the damaged part and say so. Indexes are made again where
they do not agree with their segment.
"""

from __future__ import annotations

import os
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import structlog

from tidegate.errors import StoreError
from tidegate.store.disk import sync_path
from tidegate.store.journal import frame, index
from tidegate.store.journal.frame import Place
from tidegate.store.journal.retention import Closed
from tidegate.store.journal.rows import Stream
from tidegate.store.journal.schema import read_schema
from tidegate.store.journal.segment import NEW, Segment, Window, first_offsets, index_of, segment_of

log = structlog.get_logger("tidegate.store")


def open_shard(folder: Path, stream: Stream, *, sync: bool) -> tuple[Segment, list[Closed]]:
    """The segment to write to, and those before it. OSError or StoreError if that cannot be."""
    firsts = first_offsets(folder)
    _sweep(folder, firsts)
    header = frame.header(stream)
    if not firsts:
        return Segment.create(folder, 0, header, sync=sync), []
    closed = [_closed(segment_of(folder, first), first, follower) for first, follower in pairwise(firsts)]
    path, first = segment_of(folder, firsts[-1]), firsts[-1]
    survey = _Survey(path, first)
    if not survey.legible(stream):
        log.error("a journal segment has no legible header and is put aside", path=str(path))
        path.rename(path.with_name(path.name + ".damaged"))
        index_of(path).unlink(missing_ok=True)
        sync_path(folder)
        return Segment.create(folder, survey.next, header, sync=sync), closed
    if survey.size > survey.end and not survey.finished:
        log.warning("the torn end of a journal is cut off", path=str(path), bytes=survey.size - survey.end)
        os.truncate(path, survey.end)
    if survey.damaged:
        log.error("a journal segment is damaged; what can be read of it is kept", path=str(path))
    sync_path(path)  # its entries in the index promise readers that the batches are on the disk
    last = index.write_new(index_of(path), survey.places)
    if survey.damaged or survey.finished or survey.header != header:
        if survey.places:
            closed.append(_as_closed(path, first, survey.next, last))
        return Segment.create(folder, survey.next, header, sync=sync), closed
    return Segment(path, first=first, end=survey.end, last=last, entries=len(survey.places), sync=sync), closed


class _Survey:
    """What is in a segment: its header, its whole batches, and what stands after them."""

    def __init__(self, path: Path, first: int) -> None:
        self.path = path
        self.places: list[Place] = []
        self.damaged = False
        with closing(Window(path)) as window:
            self.size = window.size
            self.header = window.read_header()
            self.end = 0 if self.header is None else len(self.header)
            self.next = first
            self._look(window)
            self.finished = self.size == self.end + len(frame.END) and bytes(window.at(self.end, 8)) == frame.END

    def legible(self, stream: Stream) -> bool:
        if self.header is None:
            return False
        try:
            return read_schema(self.header, stream) is not None
        except StoreError as error:
            raise StoreError(f"{self.path} cannot be written to: {error}") from error

    def _look(self, window: Window) -> None:
        while True:
            for place in frame.walk(window, self.end, self.next):
                self._add(place)
            beyond = next_whole(window, self.end, self.next)
            if beyond is None:
                return
            self.damaged = True
            self._add(beyond)

    def _add(self, place: Place) -> None:
        self.places.append(place)
        self.end, self.next = place.end, place.next


def next_whole(window: Window, position: int, least: int) -> Place | None:
    """The first whole batch at or after this position that the index knows of."""
    with index.Index(index_of(window.path)) as known:
        for place in known.from_position(position):
            if place.first >= least and frame.peek(window, place.position) == place and frame.whole(window, place):
                return place
    return None


def _closed(path: Path, first: int, follower: int) -> Closed:
    """An older segment, with an index that agrees with it."""
    last = index.read_last(index_of(path))
    size = path.stat().st_size
    if last is None or last.place.end not in (size, size - len(frame.END)):
        last = index.write_new(index_of(path), _Survey(path, first).places)
    return _as_closed(path, first, follower, last)


def _as_closed(path: Path, first: int, following: int, last: index.Entry | None) -> Closed:
    status = path.stat()
    size = status.st_size + index_of(path).stat().st_size
    high = status.st_mtime if last is None else last.high / 1_000_000
    return Closed(first=first, next=following, size=size, high=high)


def _sweep(folder: Path, firsts: list[int]) -> None:
    """Removes what was being made when the process ended, and indexes whose segment retention has taken."""
    known = {index_of(segment_of(folder, first)).name for first in firsts}
    for path in folder.iterdir():
        if path.name.endswith(NEW) or (path.suffix == ".index" and path.name not in known):
            path.unlink(missing_ok=True)
