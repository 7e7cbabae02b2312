"""A process that writes a journal, says what is safe, and is killed.

`load FOLDER STREAM SEED`: appends numbered rows as fast as the disk takes them, in groups of random size and with
segments so small that they roll all the time. Each `safe N` on stdout comes from a callback of `after`: the rows up to
N are on the disk. Every line is written with one system call.

`points FOLDER`: on copies of the journal in `FOLDER/start`, again and again, opens it, writes some batches, rolls,
deletes old segments and closes; is killed before the first of the system calls that change anything, then before the
second, and so on, until it comes to its end. The copies stay in `FOLDER/1` and so on, with what it said in `said`.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

from store.journal.trial import NOON, Loop, Trial, audit
from tidegate.store.journal import STREAMS, Reader, Retention, Writer


def say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


def load(data: Path, name: str, seed: int) -> None:
    sys.setswitchinterval(0.0005)  # as a node does
    chance = Random(seed)
    stream = STREAMS[name]
    loop = Loop()
    writer = Writer(
        data,
        stream,
        call=loop.queue.put,
        interval=0.001,
        linger=0.0,
        segment_size=chance.choice([3_000, 30_000, 300_000]),
        retention=Retention(size=3_000_000),
        compress=chance.random() < 0.5,
    )
    writer.open()
    with Reader(data, stream) as reader:
        (last,) = reader.tail(1) or (None,)
    number = 0 if last is None else int(last.column(key(name))[0].as_py().split()[0]) + 1
    assert writer.next == number
    writer.start()
    say(f"safe {number - 1}")
    while True:
        for _ in range(chance.choice([1, 3, 50, 5000])):
            text = f"{number} {'x' * chance.randrange(300)}"
            row = stream.row(NOON + number, **{key(name): text})
            while not writer.append(row):
                loop.turn()
            number += 1
        writer.after(say, f"safe {number - 1}")
        while not loop.queue.empty() or writer.full:
            loop.turn()


def key(name: str) -> str:
    """The column that holds a row's number."""
    return "detail" if name == "audit" else "topic"


def point(data: Path, nth: int) -> None:
    seen = 0

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            nonlocal seen
            seen += 1
            if seen == nth:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **options)

        return call

    for name in ("pwrite", "fsync", "fdatasync", "ftruncate", "truncate", "replace", "rename", "unlink"):
        setattr(os, name, counted(getattr(os, name)))
    trial = Trial(data, segment_size=6_000, retention=Retention(size=15_000))
    start = trial.writer.next
    say(f"safe {start - 1}")
    for number in range(start, start + 16, 2):
        trial.write(audit(number), audit(number + 1))
        say(f"safe {number + 1}")
    trial.close()


def points(folder: Path) -> None:
    for nth in count(1):
        data = folder / str(nth)
        shutil.copytree(folder / "start", data)
        pid = os.fork()
        if pid == 0:
            os.dup2(os.open(data / "said", os.O_WRONLY | os.O_CREAT), 1)
            try:
                point(data, nth)
            except BaseException:  # noqa: BLE001 - a child must not go on as its parent
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if status != -signal.SIGKILL:
            sys.exit(status)


if __name__ == "__main__":
    if sys.argv[1] == "load":
        load(Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
    else:
        points(Path(sys.argv[2]))
