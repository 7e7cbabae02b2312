"""The journal's writer: rows are left on the loop, and written by a thread of its own.

`append` puts a row into a queue and is done; it does no I/O, never waits and never fails. The thread takes what has
gathered, makes batches of it and writes each with one write, one fdatasync (with `sync`) and one entry in the index.
There is no lock: the loop only ever counts up what it has put in, the thread what it has written.

Invariants
- Offsets rise by one from row to row, over segments, restarts and crashes.
- A callback given to `after` runs on the loop, never inside `after`, in the order given, when every row accepted before
  it is on the disk.
- A batch that cannot be written is tried again until it can, with the same offsets; `trouble` says why. Meanwhile rows
  wait, up to `backlog` bytes. Beyond that `append` answers False: `ingest` must not acknowledge such a row (and
  should have stopped reading when it saw `full`); of the other streams the row is lost and counted in `dropped`, and
  a row that says how many is written where they are missing.
- Rows given to `append_all` are in one batch, so all of them are found after a crash, or none. While they cannot be
  written they can be withdrawn.
- A row that does not fit its columns is a bug of whoever made it. It is left out, counted in `spoilt` and logged,
  and the rows beside it are written; of rows that belong together all are left out.
- Retention deletes whole old segments, on this thread, and before that asks how far the readers have come. What one of
  them has not read stays, whatever its age and size; that is said once.

Rows that nobody waits for are written within `interval`; once somebody waits, within `linger`.
Times come in with the rows and may jump; only retention asks the clock, and believes the earlier of two.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Event, Thread
from typing import Any, Final

import structlog

from tidegate.errors import StoreError
from tidegate.store.disk import create_folder
from tidegate.store.journal import frame
from tidegate.store.journal.closed_segments import ClosedSegments
from tidegate.store.journal.identity import journal_id
from tidegate.store.journal.repair import open_shard
from tidegate.store.journal.retention import Closed, Retention
from tidegate.store.journal.rows import Row, Stream
from tidegate.store.journal.segment import Segment, folder_of
from tidegate.store.journal.together import Together
from tidegate.store.lock import Lock

ROWS: Final = 4096  # in a batch
BYTES: Final = 8 << 20  # of waiting rows, after which a batch is full
LOOK: Final = 0.05  # seconds between looks at how many rows have gathered
TURN: Final = 500  # callbacks run in one turn of the loop
SILENCE: Final = 10.0  # seconds between complaints about lost rows
TICK: Final = 30.0  # seconds between looks at what is too old
_CLOSED: Final = -1  # a limit that nothing is within
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 5.0

log = structlog.get_logger("tidegate.store")


class Writer:
    """Writes one shard of one stream. Everything but the thread is on the loop."""

    def __init__(
        self,
        data: Path,
        stream: Stream,
        *,
        call: Callable[[Callable[[], None]], object],
        shard: int = 0,
        sync: bool = True,
        interval: float = 0.05,
        linger: float = 0.002,
        backlog: int = 64 << 20,
        segment_size: int = 64 << 20,
        segment_age: float = 3600.0,
        retention: Retention | None = None,
        keep_from: int | None = None,
        compress: bool = True,
        rolled: Callable[[int], None] | None = None,
    ) -> None:
        """`call` runs a function on the loop, from any thread. `rolled` is told, there, that a segment begins."""
        self.stream = stream
        self.folder = folder_of(data, stream, shard)
        self._data = data
        self.dropped = 0
        self.spoilt = 0
        self.trouble: str | None = None
        self._call = call
        self._shard = shard
        self._sync = sync
        self._interval = interval
        self._linger = linger
        self._backlog = backlog
        self._segment_size = segment_size
        self._segment_age = segment_age
        self._compress = compress
        self._rolled = rolled
        self._lock = Lock(self.folder)
        # the loop's
        self._weigh = stream.weigh
        self._limit = _CLOSED
        self._in = 0  # bytes accepted
        self._count = 0  # rows accepted
        self._lost = 0  # rows dropped that no row speaks of yet
        self._lost_at = 0.0
        self._silent_until = 0.0
        self._waiting: deque[tuple[int, Callable[..., None], tuple[Any, ...]]] = deque()
        self._settling = False
        # shared: each is written by one side only, or set to True by one and to False by the other
        self._inbox: deque[Row | Together] = deque()
        self._put = self._inbox.append
        self._bell: SimpleQueue[None] = SimpleQueue()
        self._woken = False
        self._hurried = False
        self._closing = False
        self._give_up = Event()
        # the thread's
        self._out = 0
        self._done = 0
        self._segment: Segment  # since `open`
        self._opened = False
        self._closed = ClosedSegments(self.folder, shard, retention or Retention(), keep_from)
        self._began = 0.0
        self._failure: Exception | None = None
        self._wanted: Event | None = None  # somebody waits for the next segment
        self._stuck = False  # the segment should be followed by another, and cannot
        self._ended = False
        self._thread: Thread | None = None

    # on the loop

    def open(self) -> None:
        """Lock, mend what a crash has left; blocks. StoreError says what is wrong and what helps."""
        if self._opened:
            raise StoreError(f"{self.folder} was opened before")
        create_folder(self.folder)
        self._lock.acquire()
        try:
            journal_id(self._data)
            self._lock.write(database=self.stream.name, durability="sync" if self._sync else "async")
            self._segment, self._closed.segments = open_shard(self.folder, self.stream, sync=self._sync)
        except OSError as error:
            self._lock.release()
            raise StoreError(
                f"the journal in {self.folder} cannot be opened: {error.strerror} ({error.filename}). Remedy: free "
                "some space, mend the disk, and let the user that runs Tidegate own the folder and what is in it."
            ) from error
        except BaseException:
            self._lock.release()
            raise
        self._opened = True
        self._closed.begin()
        self._limit = self._backlog
        self._speak_of_lost()

    def start(self) -> None:
        """From now on what is appended is written; before, since `open`, it waited."""
        if not self._opened:
            raise StoreError(f"{self.folder} is not open")
        self._began = time.monotonic()
        self._thread = Thread(target=self._run, name=f"tidegate-{self.stream.name}", daemon=True)
        self._thread.start()

    def append(self, row: Row) -> bool:
        """Take the row. False: there is no room, and it will not be written."""
        # hot: under half a microsecond
        if self._in - self._out >= self._limit:
            self._drop(row)
            return False
        self._in += self._weigh(row)
        self._count += 1
        self._put(row)
        if not self._woken:
            self._woken = True
            self._bell.put(None)
        return True

    def append_all(self, rows: Sequence[Row], weight: int) -> Together | None:
        """Take rows that are written together or not at all; `weight` is what they weigh. None: there is no room."""
        if self._in - self._out >= self._limit:
            return None
        made = Together(rows, weight)
        self._in += weight
        self._count += len(rows)
        self._put(made)
        if not self._woken:
            self._woken = True
            self._bell.put(None)
        return made

    def after(self, callback: Callable[..., None], *args: Any) -> None:
        """Run it when everything accepted so far is on the disk."""
        # The order matters: the thread first counts as done, then looks whether somebody waits.
        self._waiting.append((self._count, callback, args))
        if self._done >= self._count:
            self._schedule()
        else:
            self._hurry()

    def keep_from(self, offset: int | None) -> None:
        """Retention keeps everything from this offset on; None: nobody needs it any more."""
        self._closed.keep_from = offset

    def roll(self, timeout: float = 10.0) -> bool:
        """Begins another segment, if there is anything in this one; whether that is done. Blocks."""
        wanted = self._wanted = Event()
        self._bell.put(None)
        return wanted.wait(timeout)

    def close(self, timeout: float = 10.0) -> None:
        """Write everything, close; the callbacks whose time has come run here.

        StoreError if not everything could be written within `timeout` seconds; no callback has run for the rest.
        """
        if not self._opened or self._closing:
            return
        self._speak_of_lost()
        self._limit = _CLOSED
        self._closing = True
        if self._thread is None:
            self.start()
        assert self._thread is not None
        self._bell.put(None)
        self._thread.join(timeout)
        if self._thread.is_alive():
            self._give_up.set()
            self._thread.join(1.0)
        self._settle()
        if self._thread.is_alive():
            # The lock stays: the disk may yet finish what it has been told.
            raise StoreError(f"{self.folder}: the disk did not answer within {timeout:g} s; the end was not written")
        self._lock.release()
        if self._done < self._count:
            raise StoreError(
                f"{self.folder}: the last {self._count - self._done} rows could not be written ({self.trouble}). "
                "Remedy: free some space or mend the disk."
            ) from self._failure

    @property
    def backlog(self) -> int:
        """Rows that wait to be written."""
        return self._count - self._done

    @property
    def full(self) -> bool:
        """Half of the room for waiting rows is taken: whoever may not lose any should bring no more.

        `after` tells when they are all written.
        """
        return self._in - self._out >= self._limit // 2

    @property
    def next(self) -> int:
        """The offset of the next row to be written; all before it is on the disk."""
        return self._segment.next

    @property
    def size(self) -> int:
        """Bytes on the disk."""
        return self._segment.size + self._closed.size

    def _drop(self, row: Row) -> None:
        if self._closing or self.stream.lost is None:
            return
        if not self._lost:
            self._lost_at = row[0]
            self._limit = _CLOSED  # until there is room again: then all that is lost is lost in one place
            self._hurry()
        self._lost += 1
        self.dropped += 1

    def _speak_of_lost(self) -> None:
        """Accepts rows again, and first of all one that stands for the lost ones."""
        if not self._lost or self.stream.lost is None or self._ended:
            return
        if time.monotonic() >= self._silent_until:
            self._silent_until = time.monotonic() + SILENCE
            log.error("rows of the journal were lost", folder=str(self.folder), all=self.dropped, trouble=self.trouble)
        row = self.stream.lost(self._lost_at, self._lost)
        self._lost = 0
        self._limit = self._in - self._out + 1  # room for it, whatever waits
        self.append(row)
        self._limit = self._backlog

    def _hurry(self) -> None:
        if not self._hurried:
            self._hurried = True
            self._bell.put(None)

    def _schedule(self) -> None:
        if not self._settling:
            self._settling = True
            self._call(self._settle)

    def _settle(self) -> None:
        """What the thread has written is safe; there may be room again."""
        self._settling = False
        done, left = self._done, len(self._waiting) if self._closing else TURN
        while left and self._waiting and self._waiting[0][0] <= done:
            left -= 1
            _, callback, args = self._waiting.popleft()
            try:
                callback(*args)
            except Exception:
                log.exception("a callback of the journal failed", callback=repr(callback))
        if not left and not self._closing:
            self._schedule()
        if self._lost and not self._closing and self._in - self._out < self._backlog // 2:
            self._speak_of_lost()

    # on the thread

    def _run(self) -> None:
        try:
            while not self._closing:
                self._turn()
            while self._inbox and not self._give_up.is_set():
                self._drain(len(self._inbox))
            self._finish()
        except Exception as error:
            self._failure = error
            self._ended = True
            self._limit = _CLOSED
            self.trouble = f"the writer ended because of a bug: {error}"
            log.exception("the journal's writer ended", folder=str(self.folder))

    def _turn(self) -> None:
        try:
            self._bell.get(timeout=TICK)
        except Empty:
            self._roll()
            self._closed.clean(writing=self._segment.size)
            return
        if self._inbox:
            self._gather()
        if self._hurried and not self._closing:
            time.sleep(self._linger)
        # Before looking: whoever appends after this rings again.
        self._woken = False
        self._hurried = False
        self._drain(len(self._inbox))
        if self._wanted is not None:
            self._roll()

    def _gather(self) -> None:
        """Waits until the interval is over, there is enough for a batch, or somebody is in a hurry.

        Looks by itself from time to time, so that `append` need not count. An old ring of the bell is no hurry.
        """
        until = time.monotonic() + self._interval
        while not self._hurried and not self._closing and len(self._inbox) < ROWS:
            left = until - time.monotonic()
            if left <= 0:
                return
            try:
                self._bell.get(timeout=min(left, LOOK))
            except Empty:
                continue

    def _drain(self, pending: int) -> None:
        """Writes so many rows, in batches. Rows that come meanwhile wait for their own turn."""
        take, weigh = self._inbox.popleft, self._weigh
        while pending and not self._give_up.is_set():
            taken: list[Row | Together] = []
            weight = rows = 0
            while pending and rows < ROWS and weight < BYTES:
                one = take()
                taken.append(one)
                if isinstance(one, Together):
                    weight += one.weight
                    rows += len(one.rows)
                else:
                    weight += weigh(one)
                    rows += 1
                pending -= 1
            if not self._write(taken):
                return
            self._out += weight
            self._done += rows
            if self._waiting or self._limit == _CLOSED:
                self._tell(self._settle)

    def _write(self, taken: list[Row | Together]) -> bool:
        """As many batches as it takes; False: given up, because the journal is to be closed."""
        pause = _FIRST_PAUSE
        while rows := _claimed(taken):
            try:
                message, place = frame.encode(
                    self.stream, self._shard, self._segment.next, rows, compress=self._compress
                )
            except Exception as error:  # noqa: BLE001 - whatever it is, it is these rows
                if len(taken) > 1:
                    half = len(taken) // 2
                    return self._write(taken[:half]) and self._write(taken[half:])
                self.spoilt += len(rows)
                log.error(
                    "bug: a row does not fit the journal", stream=self.stream.name, row=repr(rows[0])[:500], error=error
                )
                return True
            try:
                self._segment.append(message, place)
            except OSError as error:
                if self._complain(error):
                    for each in _groups(taken):
                        each.release()
                if self._give_up.wait(pause):
                    return False
                pause = min(pause * 2, _LONGEST_PAUSE)
                self._mend()
            else:
                break
        else:
            return True  # all of them were withdrawn
        for each in _groups(taken):
            each.settle()
        if self.trouble is not None:
            self.trouble = None
            log.info("the journal is written again", folder=str(self.folder))
        self._roll()
        return True

    def _complain(self, error: OSError) -> bool:
        """Says so once; whether nothing is left of the attempt."""
        self._failure = error
        if self.trouble is None:
            log.error("the journal cannot be written; rows wait", folder=str(self.folder), error=str(error))
        self.trouble = str(error)
        try:
            self._segment.cut()
        except OSError as worse:
            self.trouble = f"{error}; {worse}"  # the next attempt overwrites what is there
            return False
        return True

    def _mend(self) -> None:
        """A segment that somebody has deleted is followed by a new one."""
        if not self._segment.gone:
            return
        try:
            create_folder(self.folder)
            self._replace()
        except (OSError, StoreError) as error:
            self.trouble = str(error)

    def _roll(self) -> None:
        """Begins a new segment if this one is full or old. If that fails, this one goes on."""
        segment = self._segment
        old = time.monotonic() - self._began >= self._segment_age
        wanted, self._wanted = self._wanted, None
        if segment.last is None or not (old or wanted or segment.end >= self._segment_size):
            if wanted is not None:
                wanted.set()
            return
        try:
            segment.flush()
            self._replace()
        except OSError as error:
            if not self._stuck:
                log.warning("a new journal segment cannot be made yet", folder=str(self.folder), error=str(error))
            self._stuck = True
            return
        self._stuck = False
        if wanted is not None:
            wanted.set()
        self._closed.clean(writing=self._segment.size)
        if self._rolled is not None:
            self._tell(partial(self._rolled, self.next))

    def _replace(self) -> None:
        old = self._segment
        self._segment = Segment.create(self.folder, old.next, frame.header(self.stream), sync=self._sync)
        self._began = time.monotonic()
        if old.last is not None and not old.gone:
            high = old.last.high / 1_000_000
            self._closed.segments.append(Closed(first=old.first, next=old.next, size=old.size, high=high))
            try:
                old.finish()
            except OSError as error:  # the mark is a courtesy
                log.warning("a journal segment stays without its end mark", path=str(old.path), error=str(error))
                old.cut()
        old.close()

    def _finish(self) -> None:
        try:
            if self._give_up.is_set():
                self._segment.cut()
            self._segment.flush()
        except OSError as error:
            self._failure = error
            self.trouble = str(error)
        self._segment.close()

    def _tell(self, function: Callable[[], None]) -> None:
        try:
            self._call(function)
        except RuntimeError:
            # The loop is closed. What is left to do is done by close().
            log.debug("the loop is closed", folder=str(self.folder))


def _claimed(taken: Iterable[Row | Together]) -> list[Row]:
    """The rows to be written, without those that were withdrawn."""
    rows: list[Row] = []
    for one in taken:
        if not isinstance(one, Together):
            rows.append(one)
        elif one.claim():
            rows.extend(one.rows)
    return rows


def _groups(taken: Iterable[Row | Together]) -> list[Together]:
    return [one for one in taken if isinstance(one, Together)]
