"""Counting and acknowledging, with frames that arrive split at every byte."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from bench.load import frames
from bench.load.job import LoadError
from bench.load.receiving import Acknowledging, Counted, Inbox

TOPIC, PAYLOAD = "bench/k00", bytes(range(48, 88))
OFFSET = frames.packet_id_offset(TOPIC, len(PAYLOAD), version=4)


def message(qos: int, packet_id: int = 0) -> bytes:
    return frames.publish(TOPIC, PAYLOAD, qos=qos, packet_id=packet_id, version=4)


class Wire:
    """A connected pair: the generator's end by its descriptor, and the server's end."""

    def __init__(self, stack: ExitStack) -> None:
        near, self.server = (stack.enter_context(sock) for sock in socket.socketpair())
        near.setblocking(False)
        self.server.settimeout(5)
        self.fd = near.fileno()
        self._keep = near

    def feed(self, inbox: Inbox, *chunks: bytes) -> None:
        for chunk in chunks:
            self.server.sendall(chunk)
            inbox.take([self.fd])

    def answered(self) -> bytes:
        os.write(self.fd, b"END")
        data = b""
        while not data.endswith(b"END"):
            data += self.server.recv(65536)
        return data[:-3]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as one:
        yield one


def test_qos_0_is_counted_by_length(stack: ExitStack) -> None:
    wire = Wire(stack)
    frame = message(0)
    inbox = Counted(len(frame), 1)
    wire.feed(inbox, frame * 3 + frame[:10])
    assert (inbox.delivered, inbox.done, inbox.remainder()) == (3, 3, 10)
    wire.feed(inbox, frame[10:])
    assert (inbox.delivered, inbox.done, inbox.remainder()) == (4, 4, 0)


def test_fan_out_is_done_when_everybody_has_it(stack: ExitStack) -> None:
    wire = Wire(stack)
    frame = message(0)
    inbox = Counted(len(frame), 3)
    wire.feed(inbox, frame * 5)
    assert (inbox.delivered, inbox.done) == (5, 1)


def test_qos_1_acknowledges_every_id_however_the_frames_are_split(stack: ExitStack) -> None:
    ids = [1, 2, 0x1234, 0xFFFF, 7]
    stream = b"".join(message(1, packet_id) for packet_id in ids)
    expected = b"".join(frames.answer(frames.PUBACK, packet_id) for packet_id in ids)
    for cut in range(1, len(stream)):
        subscriber, publisher = Wire(stack), Wire(stack)
        inbox = Acknowledging(len(message(1)), OFFSET, 1, [subscriber.fd], [publisher.fd])
        subscriber.feed(inbox, stream[:cut], stream[cut:])
        assert subscriber.answered() == expected
        assert (inbox.delivered, inbox.done) == (5, 0)
        publisher.feed(inbox, expected[: 4 * 4])
        assert inbox.done == 4
        stack.close()


def test_qos_1_refuses_to_count_what_is_no_publish(stack: ExitStack) -> None:
    wire = Wire(stack)
    inbox = Acknowledging(len(message(1)), OFFSET, 1, [wire.fd], [])
    with pytest.raises(LoadError, match="unexpected packet"):
        wire.feed(inbox, frames.DISCONNECT + message(1))


def test_qos_2_both_ends_however_the_frames_are_split(stack: ExitStack) -> None:
    to_subscriber = message(2, 5) + message(2, 6) + frames.answer(frames.PUBREL, 5) + message(2, 7)
    from_subscriber = b"".join(
        frames.answer(kind, number)
        for kind, number in [(frames.PUBREC, 5), (frames.PUBREC, 6), (frames.PUBCOMP, 5), (frames.PUBREC, 7)]
    )
    to_publisher = frames.answer(frames.PUBREC, 9) + frames.answer(frames.PUBCOMP, 8)
    for cut in range(1, len(to_subscriber)):
        subscriber, publisher = Wire(stack), Wire(stack)
        inbox = Acknowledging(len(message(2)), OFFSET, 2, [subscriber.fd], [publisher.fd])
        subscriber.feed(inbox, to_subscriber[:cut], to_subscriber[cut:])
        assert subscriber.answered() == from_subscriber
        at = cut % 7 + 1
        publisher.feed(inbox, to_publisher[:at], to_publisher[at:] or b"")
        assert publisher.answered() == frames.answer(frames.PUBREL, 9)
        assert (inbox.delivered, inbox.done, inbox.remainder()) == (3, 1, 0)
        stack.close()


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_closed_connection_is_an_error(stack: ExitStack, qos: int) -> None:
    wire = Wire(stack)
    inbox: Inbox = Acknowledging(10, 4, qos, [wire.fd], []) if qos else Counted(10)
    wire.server.close()
    with pytest.raises(LoadError, match="closed"):
        inbox.take([wire.fd])
