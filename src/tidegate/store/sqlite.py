"""The store of sessions and messages: notes on the loop, commits on a thread of its own.

The loop notes changes in the current batch (`Notes`) and hands it to the writer thread, which writes it in
one transaction; the loop then runs the callbacks that waited for it. The loop never waits, and there is no
lock: the batch changes hands on the loop, between two of its turns.

Invariants
- A callback given to `after` runs when everything noted before it is committed, in the order given, on the loop,
  never inside `after`.
- Everything noted within one callback of the loop is committed together or not at all: the batch is only handed
  over between callbacks. That is what makes QoS 2 exact: the packet id is released in the very commit that holds the
  deliveries.
- After a crash at any moment the tables hold the state at the end of some turn of the loop, no older than the last
  one whose callbacks ran.
- A batch that cannot be written is kept and written again until it can; meanwhile `refusing` is true and no callback
  runs.

A batch is handed over `interval` after its first note, and after the commit before it. If all it holds are QoS 1
deliveries on their way to online subscribers it waits a little longer (`PATIENCE`): their acknowledgements are coming,
so that most of it need not be written, and a publisher whose message has reached everybody is acknowledged at once.
A batch of which nothing is left is never handed over, and the writer sleeps on.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

import structlog

from tidegate.errors import StoreError
from tidegate.store.backup import copy_database
from tidegate.store.batch import Batch, Callback, Notes
from tidegate.store.disk import create_folder
from tidegate.store.load import Snapshot
from tidegate.store.lock import Lock
from tidegate.store.opening import Durability, open_database
from tidegate.store.write import write

PATIENCE: Final = 20  # intervals that a batch may wait whose deliveries are all on their way to online subscribers
_TURN: Final = 500  # callbacks run in one turn of the loop

log = structlog.get_logger("tidegate.store")


class SqliteStore(Notes):
    """`path` is the database file, the folder it is in the data folder. Everything but the writer is on the loop."""

    def __init__(
        self,
        path: Path,
        *,
        call: Callable[[Callable[[], None]], object],
        later: Callable[[float, Callable[[], None]], object] | None = None,
        interval: float = 0.002,
        durability: Durability = "sync",
        retry: float = 1.0,
    ) -> None:
        """`call` runs a function on the loop, from any thread; `later` in so many seconds, asked on the loop."""
        super().__init__()
        self.refusing = False
        self._path = path
        self._call = call
        self._in = later or (lambda _, function: call(function))
        self._interval = interval
        self._durability: Durability = durability
        self._retry = retry
        self._lock = Lock(path.parent)
        self._connection: sqlite3.Connection | None = None
        self._writing: Batch | None = None
        self._ready: deque[Callback] = deque()  # callbacks whose turn it is
        self._scheduled = False
        self._closed = False
        # shared with the writer
        self._inbox: SimpleQueue[tuple[Batch, bool] | Callback] = SimpleQueue()  # the flag: the writer ends after it
        self._safe: deque[Batch] = deque()
        self._give_up = threading.Event()
        self._failure: Exception | None = None
        self._writer: threading.Thread | None = None

    @property
    def backlog(self) -> int:
        return self._batch.size + (self._writing.size if self._writing is not None else 0)

    def open(self, *, first: str, now_wall: float | None = None, now_mono: float | None = None) -> Snapshot:
        """Lock, check, migrate and load; blocks. StoreError says what is wrong and what helps.

        `first` is the first scope of the node: it gets what an older Tidegate wrote, which knew of one scope only.
        """
        if self._connection is not None or self._closed:
            raise StoreError(f"{self._path} was opened before")
        create_folder(self._path.parent)
        last = self._lock.acquire()
        try:
            wall = time.time() if now_wall is None else now_wall
            mono = time.monotonic() if now_mono is None else now_mono
            self._connection, snapshot = open_database(
                self._path, self._lock, last, self._durability, first=first, now_wall=wall, now_mono=mono
            )
        except BaseException:
            self._lock.release()
            raise
        self._last_session = snapshot.last_session
        self._last_body = snapshot.last_body
        self._last_delivery = snapshot.last_delivery
        self._adopt(snapshot.sessions, snapshot.retained)
        return snapshot

    def start(self) -> None:
        if self._connection is None:
            raise StoreError(f"{self._path} is not open")
        self._writer = threading.Thread(target=self._write, name="tidegate-store", daemon=True)
        self._writer.start()

    def close(self, timeout: float = 10.0) -> None:
        """Commit everything noted, checkpoint, close; the callbacks whose time has come run here.

        StoreError if not everything could be written within `timeout` seconds; none of that was acknowledged.
        """
        if self._connection is None or self._closed:
            return
        self._closed = True
        self._woken = self._urgent = True  # nobody is left to wake
        last = self._batch
        self._batch = Batch()
        if self._writer is None:
            self._give_up.set()
            self._finish(last)
        else:
            self._inbox.put((last, True))
            self._writer.join(timeout)
            if self._writer.is_alive():
                self._give_up.set()
                self._writer.join(1.0)
        self._settle()
        while self._ready:
            self._run()
        if self._writer is not None and self._writer.is_alive():
            # The lock stays: the disk may yet finish what it has been told.
            raise StoreError(f"{self._path}: the disk did not answer within {timeout:g} s; the end was not written")
        self._lock.release()
        if self._failure is not None:
            raise StoreError(
                f"{self._path}: the last changes could not be written ({self._failure}). They were not acknowledged; "
                "what was is safe. Remedy: free some space or mend the disk."
            ) from self._failure

    def after(self, callback: Callable[..., None], *args: Any) -> None:
        """Run it when everything noted so far is safe."""
        if self._woken:
            self._batch.callbacks.append((callback, args))
        elif self._writing is not None:
            self._writing.callbacks.append((callback, args))
        else:
            self._ready.append((callback, args))
            self._schedule()

    def copy(self, target: Path, told: Callable[[Exception | None], None]) -> None:
        """A copy of the database in a new file; `told` runs on the loop. Commits wait until it is made."""
        if self._writer is None or self._closed:
            told(StoreError(f"{self._path} is not open"))
        else:
            self._inbox.put((self._copy, (target, told)))

    # on the loop

    def _wake(self) -> None:
        self._woken = True
        self._time()

    def _hurry(self) -> None:
        if not self._urgent:
            self._woken = self._urgent = True
            self._time()

    def _time(self) -> None:
        """Sees to it that the current batch is handed over, unless one is being written: then its end does."""
        if self._writing is None and not self._closed:
            wait = self._interval if self._urgent else self._interval * PATIENCE
            self._in(wait, partial(self._hand_over, self.sequence))

    def _later(self, function: Callable[[], None]) -> None:
        self._call(function)

    def _hand_over(self, sequence: int) -> None:
        """To the writer, if anything of it has to be written."""
        if self._closed or self._writing is not None or sequence != self.sequence:
            return  # a hurried one was faster
        batch = self._batch
        self._batch = Batch()
        self.sequence += 1
        self._woken = self._urgent = False
        if batch.void:
            self._ready.extend(batch.callbacks)
            self._run()
        else:
            self._writing = batch
            self._inbox.put((batch, False))

    def _settle(self) -> None:
        """What the writer has committed is safe."""
        while self._safe:
            self._ready.extend(self._safe.popleft().callbacks)
            self._writing = None
        if self._woken:
            self._time()
        self._run()

    def _schedule(self) -> None:
        if not self._scheduled and not self._closed:
            self._scheduled = True
            self._call(self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        self._run()

    def _run(self) -> None:
        for _ in range(min(len(self._ready), _TURN)):
            callback, args = self._ready.popleft()
            try:
                callback(*args)
            except Exception:
                log.exception("a callback after a commit failed", callback=repr(callback))
        if self._ready:
            self._schedule()

    # on the writer's thread

    def _write(self) -> None:
        try:
            last = False
            while not last:
                match self._inbox.get():
                    case Batch() as batch, True:
                        last = True
                        self._finish(batch)
                    case Batch() as batch, _:
                        if self._commit(batch):
                            self._tell(self._settle)
                    case function, arguments:
                        function(*arguments)
        except Exception as error:
            self._failure = error
            self.refusing = True
            log.exception("the store's writer ended; durable publishes are refused", path=str(self._path))

    def _copy(self, target: Path, told: Callable[[Exception | None], None]) -> None:
        assert self._connection is not None
        failure: Exception | None = None
        try:
            copy_database(self._connection, target)
        except (sqlite3.Error, OSError) as error:
            failure = error
        self._tell(partial(told, failure))

    def _commit(self, batch: Batch) -> bool:
        """Write it, however long it takes. False: given up, because the store is to be closed."""
        assert self._connection is not None
        while True:
            try:
                write(self._connection, batch, time.time() - time.monotonic())
            except Exception as error:  # noqa: BLE001 - whatever it is: nothing is lost, and nothing acknowledged
                self._failure = error
                if not self.refusing:
                    self.refusing = True
                    text = "the store cannot write; durable publishes are refused"
                    log.error(text, path=str(self._path), error=str(error))
                if self._give_up.wait(self._retry):
                    return False
            else:
                self._failure = None
                self._safe.append(batch)
                if self.refusing:
                    self.refusing = False
                    log.info("the store writes again", path=str(self._path))
                return True

    def _finish(self, batch: Batch) -> None:
        """The last batch; then the log is emptied into the database and the database closed."""
        assert self._connection is not None
        if self._failure is None:  # else an earlier one was given up, and this one must not overtake it
            if batch.void:
                self._safe.append(batch)
            else:
                self._commit(batch)
        try:
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except sqlite3.Error as error:
            # No loss: the log is read when the store is opened the next time.
            log.warning("the store's log could not be emptied", path=str(self._path), error=str(error))
        finally:
            self._connection.close()

    def _tell(self, function: Callable[[], None]) -> None:
        try:
            self._call(function)
        except RuntimeError:
            # The loop is closed. What is left to do is done by close().
            log.debug("the loop is closed", path=str(self._path))
