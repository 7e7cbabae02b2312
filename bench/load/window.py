"""The closed loop: keep `window` messages outstanding, for as long as the meter says.

`saturate` runs it in C where there is a compiler (see `native`), in Python otherwise. In both nothing is encoded and
nothing is parsed but packet ids, and no message is sent twice: a short write is completed before anything else.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from bench.load.job import LoadError
from bench.load.meter import Meter
from bench.load.native import NativeLoop, library
from bench.load.receiving import CLOSED, Acknowledging, Counted, Inbox
from bench.load.sessions import Schedule

BETWEEN = 1000  # sent at most between two looks at what has arrived
SILENCE = 5.0  # seconds without anything received before what is outstanding counts as lost: machines may be busy
SATURATED = 1000
# With thousands outstanding the generator has time. Napping instead of waiting in epoll spares the server the
# wake-up of a sleeping neighbour for each message it writes, which no remote subscriber would cost it either.
NAP = 0.0003
C, PYTHON = "C", "Python"
PATIENCE = 5  # times in a row that everything outstanding may be written off


class Background(Protocol):
    """Something that happens beside the load, such as subscription changes."""

    def turn(self, now: float) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Pumped:
    """What only the loop knows."""

    lost: int
    outstanding: float
    """Messages outstanding on average while measuring; far below the window, the generator was too slow."""
    generator: str = PYTHON


def saturate(
    plan: Schedule,
    *,
    subscribers: Sequence[int],
    qos: int,
    window: int,
    meter: Meter,
    copies: int = 1,
    background: Background | None = None,
    native: bool = True,
) -> Pumped:
    """The closed loop, in C unless there is no compiler or it is not wanted. Every socket is non-blocking."""
    publishers = plan.fds if qos else []
    loaded = library() if native else None
    if loaded is not None:
        loop = NativeLoop(
            loaded,
            plan,
            subscribers=subscribers,
            publishers=publishers,
            qos=qos,
            copies=copies,
            window=window,
            silence=SILENCE,
            patience=PATIENCE,
        )
        lost, outstanding = loop.pump(meter, background)
        return Pumped(lost=lost, outstanding=outstanding, generator=C)
    inbox: Inbox = (
        Acknowledging(plan.frame_length, plan.id_offset, qos, subscribers, publishers)
        if qos
        else Counted(plan.frame_length, copies)
    )
    return pump(plan, inbox, [*subscribers, *publishers], window=window, meter=meter, background=background)


class _Sender:
    """Writes frames in turn."""

    def __init__(self, plan: Schedule) -> None:
        self._plan = plan
        self._begun = 0
        self._rest: tuple[int, bytes] | None = None

    @property
    def stuck(self) -> bool:
        """A frame was begun and could not be finished."""
        return self._rest is not None

    def finish(self) -> bool:
        """Whether the frame that was begun has gone out."""
        if self._rest is None:
            return True
        fd, data = self._rest
        size = _write(fd, data)
        self._rest = (fd, data[size:]) if size < len(data) else None
        return self._rest is None

    def send(self, count: int) -> int:
        """So many frames, or until one does not fit; how many were begun."""
        plan = self._plan
        for number in range(count):
            fd = plan.fds[self._begun % plan.publishers]
            frame = plan.frames[self._begun % len(plan.frames)]
            self._begun += 1
            # hot: one system call per message
            if (size := _write(fd, frame)) < plan.write_length:
                self._rest = fd, frame[size:]
                return number + 1
        return count


def _write(fd: int, data: bytes) -> int:
    try:
        return os.write(fd, data)
    except BlockingIOError:
        return 0
    except OSError as error:
        raise LoadError(f"{CLOSED}: {error}") from None


def pump(
    plan: Schedule, inbox: Inbox, listen: Sequence[int], *, window: int, meter: Meter, background: Background | None
) -> Pumped:
    """Runs the load until the meter has seen enough and everything has arrived, or is lost."""
    clock, sender = time.perf_counter, _Sender(plan)
    sent = lost = written_off = outstanding = 0
    area = measured = 0.0
    going = True
    heard = before = clock()
    with select.epoll() as epoll:
        for fd in listen:
            epoll.register(fd, select.EPOLLIN)
        while True:
            now = clock()
            if going and meter.begin is not None:
                area += outstanding * (now - before)
                measured += now - before
            before = now
            going = going and meter.turn(now, inbox.delivered)
            if background is not None:
                background.turn(now)
            outstanding = sent - lost - inbox.done
            if outstanding < 0:  # what was written off arrived after all
                lost += outstanding
                outstanding = 0
            if not going and not outstanding and not sender.stuck:
                break
            room = (window - outstanding) // plan.per_write if going and sender.finish() else 0
            begun = sender.send(min(room, BETWEEN)) if room > 0 else 0
            sent += begun * plan.per_write
            timeout = 0.0
            if begun < BETWEEN:
                timeout = 0.001 if background or sender.stuck else 0.05
                if window >= SATURATED:
                    time.sleep(NAP)
            if not going:
                sender.finish()
            events = epoll.poll(timeout, len(listen))
            if events:
                heard, written_off = now, 0
                try:
                    inbox.take([fd for fd, _ in events])
                except OSError as error:
                    raise LoadError(f"{CLOSED}: {error}") from None
            elif now - heard > SILENCE and outstanding and not sender.stuck:
                lost += outstanding
                heard = now
                written_off += 1
                if written_off == PATIENCE:
                    raise LoadError(f"the server delivers nothing; {lost} of {sent} messages are missing")
    if not lost and inbox.remainder():
        raise LoadError("what was received is no whole number of messages")
    return Pumped(lost=lost, outstanding=area / max(measured, 1e-9))
