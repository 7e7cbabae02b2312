"""What the Python loops do with what they receive: count by length, acknowledge, read the time of sending.

All have `take(fds)` for sockets that are readable, `delivered` (messages that reached a subscriber) and `done`
(messages whose whole flow is over, which is what a window counts). Frames have one length per work, proved by
`sessions.prove`, so of a message only its packet id is read.
"""

from __future__ import annotations

import os
import time
from array import array
from collections.abc import Sequence
from itertools import repeat
from struct import Struct
from typing import Protocol

from bench.load import frames
from bench.load.job import LoadError

BUFFER = 1 << 18
CLOSED = "the server closed a connection"
STAMP = Struct("<Q")


class Inbox(Protocol):
    """What the loops need."""

    delivered: int
    done: int

    def take(self, fds: list[int]) -> None:
        """Reads every socket of `fds` once; each is readable."""

    def remainder(self) -> int:
        """Bytes of an unfinished frame; 0 once everything has arrived."""


class Counted:
    """QoS 0: subscribers only, counted by bytes."""

    __slots__ = ("_buffers", "_copies", "_length", "_total", "delivered", "done")

    def __init__(self, frame_length: int, copies: int = 1) -> None:
        self._buffers = [bytearray(BUFFER)]
        self._length = frame_length
        self._copies = copies
        self._total = 0
        self.delivered = 0
        self.done = 0

    def take(self, fds: list[int]) -> None:
        # hot: the loop over the sockets runs inside sum() and map()
        received = sum(map(os.readv, fds, repeat(self._buffers)))
        if not received:
            raise LoadError(CLOSED)
        self._total += received
        self.delivered = self._total // self._length
        self.done = self.delivered // self._copies

    def remainder(self) -> int:
        return self._total % self._length


class Stamped:
    """QoS 0, with the time of sending in each payload: latencies, and when each message arrived, in nanoseconds."""

    __slots__ = ("_carry", "_length", "_offset", "delivered", "latencies", "measuring", "moments")

    def __init__(self, frame_length: int, offset: int, fds: Sequence[int]) -> None:
        self._length = frame_length
        self._offset = offset
        self._carry = dict.fromkeys(fds, b"")
        self.delivered = 0
        self.forget()

    @property
    def done(self) -> int:
        return self.delivered

    def forget(self) -> None:
        """What arrived so far does not count; nor does what comes, until `measuring`."""
        self.latencies, self.moments = array("q"), array("q")
        self.measuring = False

    def take(self, fds: list[int]) -> None:
        length, unpack = self._length, STAMP.unpack_from
        for fd in fds:
            data = os.read(fd, BUFFER)
            moment = time.perf_counter_ns()
            if not data:
                raise LoadError(CLOSED)
            data = self._carry[fd] + data
            count = len(data) // length
            if self.measuring:
                places = range(self._offset, count * length, length)
                self.latencies.extend(moment - unpack(data, place)[0] for place in places)
                self.moments.extend(repeat(moment, count))
            self.delivered += count
            self._carry[fd] = data[count * length :]

    def remainder(self) -> int:
        return sum(map(len, self._carry.values()))


class Acknowledging:
    """QoS 1 and 2, both ends of the flow: what arrives is answered, as subscriber and as publisher."""

    __slots__ = ("_carry", "_finished", "_length", "_offset", "_qos", "_subscribers", "delivered", "done")

    def __init__(
        self, frame_length: int, id_offset: int, qos: int, subscribers: Sequence[int], publishers: Sequence[int]
    ) -> None:
        self._length = frame_length
        self._offset = id_offset
        self._qos = qos
        self._subscribers = frozenset(subscribers)
        self._carry = dict.fromkeys((*subscribers, *publishers), b"")
        self._finished = 0
        self.delivered = 0
        self.done = 0

    def take(self, fds: list[int]) -> None:
        for fd in fds:
            data = os.read(fd, BUFFER)
            if not data:
                raise LoadError(CLOSED)
            data = self._carry[fd] + data
            taken, replies = self._answered(data, fd in self._subscribers)
            self._carry[fd] = data[taken:]
            if replies:
                _acknowledge(fd, replies)
        self.done = min(self.delivered, self._finished)

    def _answered(self, data: bytes, subscriber: bool) -> tuple[int, bytearray]:
        """How many bytes the whole packets have, and what answers them."""
        message = frames.PUBLISH | self._qos << 1
        received, last = (frames.PUBACK,) * 2 if self._qos == 1 else (frames.PUBREC, frames.PUBCOMP)
        length, offset = self._length, self._offset
        place, replies = 0, bytearray()
        while len(data) - place >= 4:
            first = data[place]
            if subscriber and first == message:
                if len(data) - place < length:
                    break
                replies += bytes((received, 2)) + data[place + offset : place + offset + 2]
                self.delivered += 1
                place += length
                continue
            if subscriber and self._qos == 2 and first == frames.PUBREL:
                replies += bytes((frames.PUBCOMP, 2)) + data[place + 2 : place + 4]
            elif not subscriber and self._qos == 2 and first == frames.PUBREC:
                replies += bytes((frames.PUBREL, 2)) + data[place + 2 : place + 4]
            elif not subscriber and first == last:
                self._finished += 1
            else:
                raise LoadError(f"unexpected packet: {data[place : place + 16].hex()}")
            place += 4
        return place, replies

    def remainder(self) -> int:
        return sum(map(len, self._carry.values()))


def _acknowledge(fd: int, data: bytearray) -> None:
    """Acknowledgements are small; a server that does not take them at once has stopped reading."""
    try:
        taken = os.write(fd, data)
    except BlockingIOError:
        taken = 0
    if taken != len(data):
        raise LoadError("the server does not read acknowledgements")
