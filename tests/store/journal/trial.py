"""What the journal's tests share: a writer with a loop that they turn by hand, rows, and a look at the files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pyarrow as pa

from tidegate.store.journal import AUDIT, Reader, Stream, Writer, audit_row
from tidegate.store.journal.rows import Row
from tidegate.store.journal.segment import first_offsets, folder_of, segment_of

NOON = 1_760_000_000.0


class Loop:
    """A loop that turns only when told to."""

    def __init__(self) -> None:
        self.queue: SimpleQueue[Callable[[], None]] = SimpleQueue()

    def turn(self) -> None:
        self.queue.get(timeout=20.0)()

    def until(self, happened: Callable[[], Any]) -> None:
        while not happened():
            self.turn()


class Trial:
    """An open writer with its loop."""

    def __init__(self, data: Path, stream: Stream = AUDIT, *, start: bool = True, **options: Any) -> None:
        options = {"interval": 1000.0, "linger": 0.0} | options  # nothing is written before somebody asks for it
        self.data = data
        self.stream = stream
        self.loop = Loop()
        self.writer = Writer(data, stream, call=self.loop.queue.put, **options)
        self.writer.open()
        if start:
            self.writer.start()

    @property
    def folder(self) -> Path:
        return self.writer.folder

    def write(self, *rows: Any) -> None:
        """One batch, on the disk when this returns."""
        for row in rows:
            assert self.writer.append(row)
        self.commit()

    def commit(self) -> None:
        done: list[int] = []
        self.writer.after(done.append, 1)
        self.loop.until(lambda: done)

    def close(self) -> None:
        self.writer.close(20.0)

    def again(self, **options: Any) -> Trial:
        self.close()
        return Trial(self.data, self.stream, **options)


def audit(number: int, **values: Any) -> Row:
    """The row of that number: its time and its detail tell it from others."""
    usual: dict[str, Any] = {"at": NOON + number, "node": "n1", "topic": "a/b", "detail": str(number)}
    return audit_row(**usual | values)


def audits(numbers: range) -> list[Row]:
    return [audit(number) for number in numbers]


def details(data: Path, stream: Stream = AUDIT, **options: Any) -> list[int]:
    """The numbers of the rows in a journal of `audit` rows; their offsets must have no gap."""
    with Reader(data, stream, **options) as reader:
        rows = list(reader.rows())
    offsets = [row["offset"] for row in rows]
    assert offsets == list(range(offsets[0], offsets[0] + len(offsets))) if offsets else True
    return [int(row["detail"]) for row in rows]


def segments(data: Path, stream: Stream = AUDIT) -> list[Path]:
    folder = folder_of(data, stream, 0)
    return [segment_of(folder, first) for first in first_offsets(folder)]


def one_line(path: Path) -> pa.Table:
    """What any Arrow tool makes of a segment."""
    return pa.ipc.open_stream(path).read_all()
