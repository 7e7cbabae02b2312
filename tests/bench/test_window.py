"""The closed loop against servers made of a thread: nothing is sent twice, nothing hangs, losses are counted."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest
from bench.load import window as pumping
from bench.load.job import LoadError
from bench.load.meter import Meter
from bench.load.native import library
from bench.load.sessions import Schedule
from bench.load.window import Pumped, saturate

from processes import missing

FRAME = 20


@contextmanager
def thread(run: Callable[[], None]) -> Iterator[None]:
    one = threading.Thread(target=run)
    one.start()
    try:
        yield
    finally:
        one.join(10)
        assert not one.is_alive()


class Rig:
    """Publishers and one subscriber, whose other ends a test plays the server of."""

    def __init__(self, stack: ExitStack, publishers: int, native: bool) -> None:
        self.native = native
        pairs = [socket.socketpair() for _ in range(publishers + 1)]
        for near, far in pairs:
            stack.enter_context(near)
            stack.enter_context(far)
            near.setblocking(False)
        self.near = [near for near, _ in pairs]
        self.far = [far for _, far in pairs]
        self.subscriber = self.near[-1].fileno()

    def plan(self, frames: list[bytes]) -> Schedule:
        return Schedule(
            fds=[sock.fileno() for sock in self.near[:-1]],
            frames=frames,
            write_length=len(frames[0]),
            per_write=len(frames[0]) // FRAME,
            frame_length=FRAME,
            id_offset=0,
            publishers=len(self.near) - 1,
        )

    def run(self, plan: Schedule, *, window: int, duration: float = 0.2) -> tuple[Pumped, Meter]:
        meter = Meter(server=os.getpid(), warmup=0.02, duration=duration, at_least=0)
        try:
            seen = saturate(plan, subscribers=[self.subscriber], qos=0, window=window, meter=meter, native=self.native)
            return seen, meter
        finally:
            for sock in self.near[:-1]:
                sock.shutdown(socket.SHUT_WR)


@pytest.fixture(params=[False, True], ids=["Python", "C"])
def native(request: pytest.FixtureRequest) -> bool:
    if request.param and library() is None:
        missing("a C compiler")
    return bool(request.param)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as one:
        yield one


def test_frames_go_out_in_turn_and_are_counted(stack: ExitStack, native: bool) -> None:
    rig = Rig(stack, 3, native)
    frames = [bytes([65 + number]) * FRAME for number in range(6)]
    arrived: list[bytes] = [b"", b"", b""]

    def serve() -> None:
        open_ends = {0, 1, 2}
        while open_ends:
            for number in list(open_ends):
                data = rig.far[number].recv(FRAME, socket.MSG_WAITALL)
                if not data:
                    open_ends.discard(number)
                    continue
                arrived[number] += data
                rig.far[-1].sendall(data)

    with thread(serve):
        seen, meter = rig.run(rig.plan(frames), window=2)
    assert seen.lost == 0
    assert 0 < seen.outstanding <= 2
    outcome = meter.outcome()
    assert 0 < outcome.messages <= sum(map(len, arrived)) // FRAME
    for number in range(3):
        turns = len(arrived[number]) // FRAME
        expected = b"".join(frames[(number + 3 * turn) % 6] for turn in range(turns))
        assert arrived[number] == expected


def test_short_writes_are_completed_before_anything_else(stack: ExitStack, native: bool) -> None:
    rig = Rig(stack, 1, native)
    block = b"".join(bytes([48 + number % 10]) * FRAME for number in range(5000))
    rig.near[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 5000)
    received: list[bytes] = []

    def serve() -> None:
        while data := rig.far[0].recv(3000):
            received.append(data)
            rig.far[-1].sendall(data)

    with thread(serve):
        seen, _meter = rig.run(rig.plan([block]), window=10_000)
    stream = b"".join(received)
    assert seen.lost == 0
    assert len(stream) % len(block) == 0
    assert stream == block * (len(stream) // len(block))


def test_lost_messages_are_counted_and_do_not_stop_the_load(
    stack: ExitStack, native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pumping, "SILENCE", 0.05)
    rig = Rig(stack, 2, native)
    dropped = 0

    def serve() -> None:
        nonlocal dropped
        turn, open_ends = 0, {0, 1}
        while open_ends:
            for number in list(open_ends):
                data = rig.far[number].recv(FRAME, socket.MSG_WAITALL)
                turn += 1
                if not data:
                    open_ends.discard(number)
                elif turn % 50 == 0:
                    dropped += 1
                else:
                    rig.far[-1].sendall(data)

    with thread(serve):
        seen, meter = rig.run(rig.plan([b"a" * FRAME]), window=4, duration=0.5)
    assert seen.lost == dropped > 0
    assert meter.outcome().messages > 0


def test_a_server_that_delivers_nothing_is_given_up(
    stack: ExitStack, native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pumping, "SILENCE", 0.02)
    rig = Rig(stack, 1, native)

    def serve() -> None:
        while rig.far[0].recv(4096):
            pass

    with thread(serve), pytest.raises(LoadError, match="delivers nothing"):
        rig.run(rig.plan([b"a" * FRAME]), window=4, duration=5)


def test_a_server_that_hangs_up_is_an_error(stack: ExitStack, native: bool) -> None:
    rig = Rig(stack, 1, native)

    def serve() -> None:
        rig.far[0].recv(FRAME)
        rig.far[-1].close()

    with thread(serve), pytest.raises(LoadError, match="closed"):
        rig.run(rig.plan([b"a" * FRAME]), window=4, duration=5)
