"""Reading a journal, also while another process writes it.

Only whole batches are seen. A tail that is being written, or was torn by a crash, is no error: there is just nothing
more yet. Segments that retention deletes meanwhile, and batches that are damaged, are passed over and counted in
`missed`. Nothing here writes, locks or waits; `poll` says what is new, and whoever follows brings the waiting.

A batch is visible as soon as it is written. With `settled` it is only visible once it is on the disk: for readers
that remember offsets, which a power failure would otherwise give to other rows.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tidegate.errors import StoreError
from tidegate.store.journal import frame, index
from tidegate.store.journal.frame import Place
from tidegate.store.journal.repair import next_whole
from tidegate.store.journal.rows import Stream
from tidegate.store.journal.schema import conform, read_schema
from tidegate.store.journal.segment import Window, first_offsets, folder_of, index_of, segment_of
from tidegate.store.journal.selection import Selection

if TYPE_CHECKING:
    import pyarrow as pa

_POLL: Final = 4 << 20  # bytes that one poll hands out


class _Segment(Window):
    """A segment being read. FileNotFoundError if it is gone; `layout` is None if its header cannot be read."""

    def __init__(self, folder: Path, first: int, stream: Stream) -> None:
        super().__init__(segment_of(folder, first))
        self.first = first
        try:
            self.header = self.read_header() or b""
            self.layout = read_schema(self.header, stream) if self.header else None
        except StoreError as error:
            self.close()
            raise StoreError(f"{self.path} cannot be read: {error}") from error
        except BaseException:
            self.close()
            raise


class Reader:
    """One shard of one stream, from `start` (default: the oldest row) to before `stop` (default: no end)."""

    def __init__(
        self,
        data: Path,
        stream: Stream,
        shard: int = 0,
        *,
        start: int | None = None,
        stop: int | None = None,
        select: Selection | None = None,
        settled: bool = False,
    ) -> None:
        self.stream = stream
        self.folder = folder_of(data, stream, shard)
        self.next = start or 0  # the offset that comes next
        self.missed = 0  # offsets that were asked for and cannot be had
        self._from_oldest = start is None
        self._stop = stop
        self._select = select or Selection()
        self._settled = settled
        self._open: _Segment | None = None
        self._position = 0
        self._bound: int | None = None  # up to where the segment may be read
        self._select.check(stream)

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """No harm if it is polled again."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def rows(self) -> Iterator[dict[str, Any]]:
        for batch in self.batches():
            yield from batch.to_pylist()

    def batches(self) -> Iterator[pa.RecordBatch]:
        while batches := self.poll():
            yield from batches

    def poll(self) -> list[pa.RecordBatch]:
        """The batches not seen before, in order, a few megabytes at a time; none: there are no more for now."""
        batches: list[pa.RecordBatch] = []
        size = 0
        while size < _POLL and (batch := self._batch()) is not None:
            if batch.num_rows:
                batches.append(batch)
                size += batch.nbytes
        return batches

    def tail(self, rows: int) -> list[pa.RecordBatch]:
        """The newest so many rows that are wanted, the newest last. `poll` goes on after them."""
        self.close()
        batches: list[pa.RecordBatch] = []
        end: int | None = None
        for segment in self._newest_first():
            for place in reversed(self._places(segment)):
                end = place.next if end is None else end
                batch = self._read(segment, place) if self._select.may_hold(place.low, place.high) else None
                if batch is not None and batch.num_rows and rows > 0:
                    batches.append(batch.slice(max(0, batch.num_rows - rows)))
                    rows -= batches[-1].num_rows
                if rows <= 0:
                    break
            if end is not None and (rows <= 0 or segment.first <= self.next):
                break
        self.next = max(self.next, end or 0)
        self._from_oldest = self._from_oldest and end is None
        return batches[::-1]

    def bounds(self) -> tuple[int, int]:
        """The oldest offset there is, and the one after the newest."""
        oldest = next(iter(first_offsets(self.folder)), 0)
        for segment in self._newest_first():
            position, following = len(segment.header), segment.first
            if (last := index.read_last(index_of(segment.path))) is not None:
                position, following = last.place.end, last.place.next
            if not self._settled:
                for place in frame.walk(segment, position, following):
                    following = place.next
            return oldest, following
        return 0, 0

    # one batch after the other

    def _batch(self) -> pa.RecordBatch | None:
        """The next batch with its wanted rows, perhaps none; None: nothing more for now."""
        while self._stop is None or self.next < self._stop:
            if self._open is None:
                firsts = first_offsets(self.folder)
                # the segment that holds the next offset, or else the first after it, and all that follow
                if not self._enter(firsts[max(0, bisect_right(firsts, self.next) - 1) :]):
                    return None
            segment = self._open
            assert segment is not None
            place = self._peek(segment)
            if place is None or place.end > segment.size:
                if not self._leave(segment):
                    return None
            elif place.next <= self.next:
                self._position = place.end
            elif not self._select.may_hold(place.low, place.high):
                self._advance(place)
            else:
                batch = self._read(segment, place)
                if batch is not None:
                    self._advance(place)
                    return batch
                if not self._leave(segment):
                    return None
        return None

    def _peek(self, segment: _Segment) -> Place | None:
        if self._bound is not None and self._position >= self._bound:
            return None
        return frame.peek(segment, self._position)

    def _read(self, segment: _Segment, place: Place) -> pa.RecordBatch | None:
        """The wanted rows of this batch; None if it is not whole."""
        message = frame.whole(segment, place)
        if message is None or segment.layout is None:
            return None
        batch = conform(frame.decode(message, segment.layout), self.stream)
        skip = max(0, self.next - place.first)
        keep = place.rows if self._stop is None else max(0, min(place.rows, self._stop - place.first))
        if skip or keep < place.rows:
            batch = batch.slice(skip, max(0, keep - skip))
        return self._select.of(batch, place, self.stream)

    def _advance(self, place: Place) -> None:
        self._miss(place.first)
        self._position, self.next = place.end, place.next

    def _miss(self, first: int) -> None:
        """What comes next begins at `first`."""
        if first > self.next:
            if not self._from_oldest:
                self.missed += first - self.next
            self.next = first
        self._from_oldest = False

    # from one segment to the next

    def _newest_first(self) -> Iterator[_Segment]:
        """Every segment, open until the next one is asked for."""
        for first in reversed(first_offsets(self.folder)):
            try:
                segment = _Segment(self.folder, first, self.stream)
            except FileNotFoundError:
                continue  # retention was faster
            try:
                yield segment
            finally:
                segment.close()

    def _enter(self, firsts: list[int]) -> bool:
        """Opens the first of these segments that can have anything for us."""
        for number, first in enumerate(firsts):
            follower = firsts[number + 1] if number + 1 < len(firsts) else None
            if follower is not None and (follower <= self.next or self._nothing_in(first)):
                self._miss(first)
                self.next = max(self.next, follower)
                continue
            try:
                segment = _Segment(self.folder, first, self.stream)
            except FileNotFoundError:
                continue  # retention was faster
            if segment.layout is None:
                segment.close()
                continue
            self._open = segment
            self._miss(first)
            with index.Index(index_of(segment.path)) as known:
                place = known.at_offset(self.next)
            if place is not None and frame.peek(segment, place.position) != place:
                place = None  # the segment was replaced meanwhile (`redaction`): look from its beginning
            self._position = len(segment.header) if place is None else place.position
            self._bound = self._settled_end(segment) if follower is None else None
            return True
        return False

    def _leave(self, segment: _Segment) -> bool:
        """Nothing whole stands here: more of it has come, or it is damaged, or it goes on elsewhere. False: wait."""
        # The order matters: a segment that has a follower is complete, so look for that first and into it afterwards.
        followers = [first for first in first_offsets(self.folder) if first > segment.first]
        segment.forget()
        self._bound = None if followers else self._settled_end(segment)
        place = self._peek(segment)
        if place is not None and frame.whole(segment, place) is not None:
            return True
        beyond = next_whole(segment, self._position, self.next)
        if beyond is not None:
            self._position = beyond.position
            return True
        if followers:
            self.close()
            return self._enter(followers)
        if self._position > segment.size:
            self.close()  # the end was cut off and may be written anew: look for our place again next time
        return False

    def _nothing_in(self, first: int) -> bool:
        """Whether the index of a complete segment rules out that anything in it is wanted."""
        if self._select.since is None and self._select.until is None:
            return False
        path = segment_of(self.folder, first)
        last = index.read_last(index_of(path))
        try:
            size = path.stat().st_size
        except FileNotFoundError:
            return False
        if last is None or last.place.end not in (size, size - len(frame.END)):
            return False
        return not self._select.may_hold(last.low, last.high)

    def _settled_end(self, segment: _Segment) -> int | None:
        if not self._settled:
            return None
        last = index.read_last(index_of(segment.path))
        return 0 if last is None else last.place.end

    def _places(self, segment: _Segment) -> list[Place]:
        places: list[Place] = []
        position, least = len(segment.header), segment.first
        with index.Index(index_of(segment.path)) as known:
            for indexed in known.from_position(0):
                if indexed.position > position:  # the index lacks batches before one that it has
                    for place in frame.walk(segment, position, least):
                        if place.end > indexed.position:
                            break
                        places.append(place)
                places.append(indexed)
                position, least = indexed.end, indexed.next
        if not self._settled:
            places.extend(frame.walk(segment, position, least))
        return places
