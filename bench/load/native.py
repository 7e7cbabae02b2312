"""The closed loop in C (`loop.c`): compiled by `cc` at first use, kept in the user's cache folder, called by ctypes.

Without a compiler, or with `TIDEGATE_BENCH_GENERATOR=python`, there is none, and `window` runs its loop in Python.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from ctypes import POINTER, byref, c_double, c_int, c_int32, c_int64, c_uint8
from functools import cache
from pathlib import Path

from bench.load.job import LoadError
from bench.load.meter import Meter
from bench.load.receiving import CLOSED
from bench.load.sessions import Schedule

SOURCE = Path(__file__).with_name("loop.c")
FLAGS = ("-O2", "-shared", "-fPIC", "-std=gnu11")
FORCED = "TIDEGATE_BENCH_GENERATOR"
SLICE = 0.05  # seconds until Python looks at signals and at the meter again
BACKGROUND_SLICE = 0.001
_ENDED, _CLOSED, _NOT_READING, _UNEXPECTED, _SILENT = 1, -1, -2, -3, -4


class _Session(ctypes.Structure):
    _fields_ = (
        ("fd", c_int32),
        ("subscriber", c_int32),
        ("carried", c_int32),
        ("reserved", c_int32),
        ("carry", c_uint8 * 1024),
    )


class _Loop(ctypes.Structure):
    """The twin of `struct loop`."""

    _fields_ = (
        ("publishers", POINTER(c_int32)),
        ("frames", ctypes.c_char_p),
        ("sessions", POINTER(_Session)),
        *((name, c_int64) for name in ("publisher_count", "frame_count", "write_length", "per_write", "window")),
        *((name, c_int64) for name in ("session_count", "qos", "frame_length", "id_offset", "copies")),
        ("silence", c_double),
        ("patience", c_int64),
        *((name, c_int64) for name in ("sent", "lost", "delivered", "done", "received", "acknowledged")),
        *((name, c_int64) for name in ("written_off", "begun", "unsent")),
        *((name, c_double) for name in ("area", "measured", "heard")),
        *((name, c_int64) for name in ("epoll", "error", "packet_length")),
        ("packet", c_uint8 * 16),
    )


@cache
def library() -> ctypes.CDLL | None:
    """The compiled loop; None if there is no compiler, or none is wanted."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None or os.environ.get(FORCED, "").lower() == "python" or sys.platform != "linux":
        return None
    try:
        loaded = ctypes.CDLL(str(compiled(compiler, cache_folder())))
    except (OSError, subprocess.CalledProcessError):
        return None  # a compiler without headers, or a folder that cannot be written
    loaded.run.argtypes = (POINTER(_Loop), c_double, c_int, c_int)
    loaded.finish.argtypes = (POINTER(_Loop),)
    loaded.finish.restype = None
    return loaded


def cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tidegate-bench"


def compiled(compiler: str, folder: Path) -> Path:
    """The library made of `SOURCE`, named by its content; compiled if it is not there yet."""
    name = hashlib.sha256(SOURCE.read_bytes() + " ".join(FLAGS).encode() + os.uname().machine.encode()).hexdigest()[:16]
    file = folder / f"loop-{name}.so"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as work:
            made = Path(work) / "loop.so"
            subprocess.run([compiler, *FLAGS, "-o", str(made), str(SOURCE)], check=True, capture_output=True)
            made.rename(file)  # at once, so that two generators may do it at the same time
    return file


class NativeLoop:
    """The state of one closed loop. `subscribers` and `publishers` are the sockets that are read."""

    def __init__(
        self,
        loaded: ctypes.CDLL,
        plan: Schedule,
        *,
        subscribers: Sequence[int],
        publishers: Sequence[int],
        qos: int,
        copies: int,
        window: int,
        silence: float,
        patience: int,
    ) -> None:
        self._library = loaded
        self._fds = (c_int32 * len(plan.fds))(*plan.fds)
        self._frames = b"".join(plan.frames)
        readers = [(fd, 1) for fd in subscribers] + [(fd, 0) for fd in publishers]
        self._sessions = (_Session * len(readers))()
        for session, (fd, subscriber) in zip(self._sessions, readers, strict=True):
            session.fd, session.subscriber = fd, subscriber
        self.state = _Loop(
            publishers=self._fds,
            frames=self._frames,
            sessions=self._sessions,
            publisher_count=plan.publishers,
            frame_count=len(plan.frames),
            write_length=plan.write_length,
            per_write=plan.per_write,
            window=window,
            session_count=len(readers),
            qos=qos,
            frame_length=plan.frame_length,
            id_offset=plan.id_offset,
            copies=copies,
            silence=silence,
            patience=patience,
        )

    def run(self, seconds: float, *, sending: bool, measuring: bool) -> bool:
        """For so long; whether everything has arrived that was sent, once nothing is sent any more."""
        state = self.state
        code: int = self._library.run(byref(state), time.perf_counter() + seconds, sending, measuring)
        if code >= 0:
            return code == _ENDED
        match code:
            case _ if code == _CLOSED:
                raise LoadError(f"{CLOSED}: {os.strerror(state.error)}" if state.error else CLOSED)
            case _ if code == _NOT_READING:
                raise LoadError("the server does not read acknowledgements")
            case _ if code == _UNEXPECTED:
                raise LoadError(f"unexpected packet: {bytes(state.packet[: state.packet_length]).hex()}")
            case _ if code == _SILENT:
                raise LoadError(f"the server delivers nothing; {state.lost} of {state.sent} messages are missing")
        raise LoadError(f"epoll failed: {os.strerror(state.error)}")

    def pump(self, meter: Meter, background: object | None) -> tuple[int, float]:
        """As `window.pump`: messages lost, and outstanding on average while measuring."""
        state = self.state
        turn = getattr(background, "turn", None)
        try:
            while meter.turn(now := time.perf_counter(), state.delivered):
                if turn is not None:
                    turn(now)
                left = meter.left(now)
                length = min(left if left > 0 else 0.002, BACKGROUND_SLICE if turn else SLICE)
                self.run(length, sending=True, measuring=meter.begin is not None)
            while not self.run(BACKGROUND_SLICE if turn else SLICE, sending=False, measuring=False):
                if turn is not None:
                    turn(time.perf_counter())
        finally:
            self._library.finish(byref(state))
        carried = sum(session.carried for session in self._sessions)
        if not state.lost and (carried or state.received % state.frame_length):
            raise LoadError("what was received is no whole number of messages")
        return state.lost, state.area / max(state.measured, 1e-9)
