"""Messages of a broker on their way to Spark: the journal stream `ingest` in a folder of its own.

A thread with a loop keeps the subscription alive, connects again when it breaks, and writes. What the broker has been
told is taken is on the disk; what is on the disk stays until Spark has committed it and it is older than `keep`.

An `id` names one message: when the broker delivers one again because it did not hear our acknowledgement, the second
row has the id of the first. MQTT tells a repetition only by a flag and by a packet identifier that is used again later,
so the content must be the same too. Both rows are in the journal in any case.

One process at a time: the journal's lock sees to that.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from threading import Thread
from typing import Any, Final

import structlog

from tidegate.errors import PacketError, PipelineError, StoreError
from tidegate.pipeline.source.receiver import Broker, Receiver
from tidegate.store.journal import INGEST, Reader, Retention, Writer, ingest_row
from tidegate.wire import Publish

RELEASE: Final = 10.0  # seconds for a query that has just ended to let go of the spool
FIRST_PAUSE: Final = 0.2  # seconds before connecting again, doubled each time
LONGEST_PAUSE: Final = 10.0
TAIL: Final = 10_000  # rows in which a message that comes again may be
_LOOK: Final = 0.05

log = structlog.get_logger("tidegate.pipeline")


class Names:
    """The id of each message, the same for one that comes again."""

    def __init__(self, written: Iterable[dict[str, Any]] = ()) -> None:
        """`written` are the last rows, of whoever wrote them."""
        self._prefix = os.urandom(8).hex()
        self._count = 0
        self._last: dict[int, tuple[int, str]] = {}  # packet identifier: content, id
        for row in written:
            _, mark, packet_id = str(row["id"]).rpartition("/")
            if mark:
                self._last[int(packet_id, 16)] = (hash((row["topic"], row["payload"])), row["id"])

    def of(self, message: Publish) -> str:
        content = hash((message.topic, message.payload))
        if message.qos and message.dup:
            before = self._last.get(message.packet_id)
            if before is not None and before[0] == content:
                return before[1]
        self._count += 1
        if not message.qos:
            return f"{self._prefix}-{self._count:x}"
        id = f"{self._prefix}-{self._count:x}/{message.packet_id:x}"
        self._last[message.packet_id] = (content, id)
        return id

    def forget(self) -> None:
        self._last.clear()


class Spool:
    """The journal in `path`, and the subscription that fills it."""

    def __init__(self, path: Path, broker: Broker, *, keep: float) -> None:
        self._path = path
        self._loop = asyncio.new_event_loop()
        self._writer = Writer(
            path,
            INGEST,
            call=self._loop.call_soon_threadsafe,
            retention=Retention(age=keep),
            keep_from=0,  # until Spark says what it has
        )
        self._receiver = Receiver(broker, self)
        self._broker = broker
        self._names = Names()
        self._failure: Exception | None = None
        self._task: asyncio.Task[None] | None = None
        self._thread = Thread(target=self._run, name="tidegate-spool", daemon=True)

    # for the process beside the driver

    def start(self) -> None:
        """PipelineError if another query has the spool."""
        try:
            self._open()
        except BaseException:
            self._loop.close()
            raise
        with Reader(self._path, INGEST, settled=True) as reader:
            self._names = Names(row for batch in reader.tail(TAIL) for row in batch.to_pylist())
        self._writer.start()
        self._thread.start()

    def stop(self) -> None:
        """No harm if it is not called: what was not acknowledged comes again."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._cancel)
            self._thread.join(RELEASE)

    def check(self) -> None:
        """PipelineError if there is no subscription any more, and will not be."""
        if self._failure is not None:
            raise PipelineError(str(self._failure)) from self._failure

    def keep_from(self, offset: int) -> None:
        """Spark needs nothing before this offset."""
        self._writer.keep_from(offset)

    def wait_until_quiet(self, patience: float) -> None:
        """Returns when the broker has given what it had, see `Receiver.drained`. After `patience`, anyway.

        PipelineError if it could not be reached in all that time.
        """
        deadline = time.monotonic() + patience
        reached, self._receiver.draining = False, True
        while time.monotonic() < deadline:
            self.check()
            ready = self._receiver.ready
            reached = reached or ready
            if ready and self._receiver.drained and not self._writer.backlog:
                return
            time.sleep(_LOOK)
        if not reached:
            raise PipelineError(f"{self._broker.place} was not reached in {patience:g} s; look at the option url")

    # for the receiver, on the loop

    def take(self, message: Publish) -> None:
        taken = self._writer.append(
            ingest_row(
                time.time(),
                id=self._names.of(message),
                topic=message.topic,
                payload=message.payload,
                qos=message.qos,
                retain=message.retain,
                content_type=message.properties.content_type,
                properties=message.properties.user_properties,
            )
        )
        if not taken:
            raise ConnectionError(f"the spool takes no more: {self._writer.trouble}")

    def after(self, callback: Callable[..., None], *args: Any) -> None:
        self._writer.after(callback, *args)

    def forget(self) -> None:
        self._names.forget()

    @property
    def full(self) -> bool:
        return self._writer.full

    # the thread

    def _open(self) -> None:
        deadline = time.monotonic() + RELEASE
        while True:
            try:
                self._writer.open()
            except StoreError as error:
                if time.monotonic() > deadline:
                    raise PipelineError(
                        f"the spool cannot be opened: {error} A spool belongs to one query; others read it with the "
                        "format `tidegate`"
                    ) from error
                time.sleep(_LOOK)
            else:
                return

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._task = self._loop.create_task(self._stay_connected())
            self._loop.run_until_complete(self._task)
        except asyncio.CancelledError:
            log.debug("the spool is stopped", path=str(self._path))
        except Exception as error:  # noqa: BLE001 - the query is told
            self._failure = error
        finally:
            try:
                self._writer.close()
            except StoreError as error:
                self._failure = self._failure or error
            self._loop.close()

    def _cancel(self) -> None:
        self._receiver.leave()
        if self._task is not None:
            self._task.cancel()

    async def _stay_connected(self) -> None:
        pause = FIRST_PAUSE
        while True:
            began = time.monotonic()
            try:
                await self._receiver.run()
            except (OSError, PacketError) as error:
                log.warning("no connection to the broker; trying again", broker=self._broker.place, error=str(error))
            if time.monotonic() - began > LONGEST_PAUSE:
                pause = FIRST_PAUSE  # it had held for a while
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)
