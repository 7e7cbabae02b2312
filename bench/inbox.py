"""What the generator does with what it receives: count by length, acknowledge from tables.

One class per QoS, all with `take(fds)` for sockets that are readable, `delivered` (messages that reached a
subscriber) and `done` (messages whose whole flow is over, which is what the window counts). Frames have one
length per work, proved by `crowd.prove`, so nothing is parsed; QoS 1 ids are cut out by slices with a stride.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from itertools import repeat
from typing import Protocol

from bench import frames
from bench.job import LoadError

BUFFER = 1 << 18
CLOSED = "the server closed a connection"


class Inbox(Protocol):
    """What `pump` needs."""

    delivered: int
    done: int

    def take(self, fds: list[int]) -> None:
        """Reads every socket of `fds` once; each is readable."""

    def remainder(self) -> int:
        """Bytes of an unfinished frame; 0 once everything has arrived."""


class Counted:
    """QoS 0: subscribers only, counted by bytes."""

    __slots__ = ("_buffers", "_copies", "_length", "_total", "delivered", "done")

    def __init__(self, frame_length: int, copies: int) -> None:
        self._buffers = [bytearray(BUFFER)]
        self._length = frame_length
        self._copies = copies
        self._total = 0
        self.delivered = 0
        self.done = 0

    def take(self, fds: list[int]) -> None:
        # hot: the loop over the sockets runs inside sum() and map()
        got = sum(map(os.readv, fds, repeat(self._buffers)))
        if not got:
            raise LoadError(CLOSED)
        self._total += got
        self.delivered = self._total // self._length
        self.done = self.delivered // self._copies

    def remainder(self) -> int:
        return self._total % self._length


class Acknowledged:
    """QoS 1: PUBACK to the server for each message, PUBACKs from the server counted by bytes."""

    __slots__ = ("_acks", "_buffers", "_carry", "_length", "_place", "delivered", "done")

    def __init__(self, frame_length: int, id_offset: int, subscribers: Sequence[int]) -> None:
        self._buffers = [bytearray(BUFFER)]
        self._length = frame_length
        self._place = id_offset
        self._carry = dict.fromkeys(subscribers, b"")
        self._acks = 0
        self.delivered = 0
        self.done = 0

    def take(self, fds: list[int]) -> None:
        carry, length, place = self._carry, self._length, self._place
        for fd in fds:
            rest = carry.get(fd)
            if rest is None:
                got = os.readv(fd, self._buffers)
                if not got:
                    raise LoadError(CLOSED)
                self._acks += got
                continue
            data = os.read(fd, BUFFER)
            if not data:
                raise LoadError(CLOSED)
            if rest:
                data = rest + data
            count = len(data) // length
            whole = count * length
            carry[fd] = data[whole:]
            if not count:
                continue
            if data[0:whole:length] != b"\x32" * count:
                raise LoadError(f"unexpected packet beside PUBLISH: {data[:16].hex()}")
            out = bytearray(b"\x40\x02\x00\x00" * count)
            out[2::4] = data[place:whole:length]
            out[3::4] = data[place + 1 : whole : length]
            acknowledge(fd, out)
            self.delivered += count
        self.done = min(self.delivered, self._acks >> 2)

    def remainder(self) -> int:
        return self._acks % 4 + sum(map(len, self._carry.values()))


class Assured:
    """QoS 2, both ends of it: PUBREC and PUBCOMP as subscriber, PUBREL as publisher."""

    __slots__ = ("_carry", "_comp", "_finished", "_length", "_place", "_rec", "_rel", "delivered", "done")

    def __init__(self, frame_length: int, id_offset: int, fds: Sequence[int], subscribers: Sequence[int]) -> None:
        self._length = frame_length
        self._place = id_offset
        self._carry = {fd: (b"", fd in set(subscribers)) for fd in fds}
        self._rec = frames.answers(frames.PUBREC)
        self._comp = frames.answers(frames.PUBCOMP)
        self._rel = _releases()
        self._finished = 0
        self.delivered = 0
        self.done = 0

    def take(self, fds: list[int]) -> None:
        carry = self._carry
        for fd in fds:
            rest, subscriber = carry[fd]
            data = os.read(fd, BUFFER)
            if not data:
                raise LoadError(CLOSED)
            if rest:
                data = rest + data
            if subscriber:
                self._subscriber(fd, data)
            else:
                self._publisher(fd, data)
        self.done = min(self.delivered, self._finished)

    def _publisher(self, fd: int, data: bytes) -> None:
        whole = len(data) & ~3
        replies = []
        rel = self._rel
        for place in range(0, whole, 4):
            packet = data[place : place + 4]
            reply = rel.get(packet)
            if reply is not None:
                replies.append(reply)
            elif packet[0] == frames.PUBCOMP:
                self._finished += 1
            else:
                raise LoadError(f"unexpected packet for a publisher: {packet.hex()}")
        self._carry[fd] = (data[whole:], False)
        if replies:
            acknowledge(fd, b"".join(replies))

    def _subscriber(self, fd: int, data: bytes) -> None:
        length, offset = self._length, self._place
        place, end = 0, len(data)
        replies = []
        while end - place >= 4:
            first = data[place]
            if first == frames.PUBREL:
                replies.append(self._comp[data[place + 2] << 8 | data[place + 3]])
                place += 4
            elif first == 0x34:
                if end - place < length:
                    break
                at = place + offset
                replies.append(self._rec[data[at] << 8 | data[at + 1]])
                self.delivered += 1
                place += length
            else:
                raise LoadError(f"unexpected packet for a subscriber: {data[place : place + 16].hex()}")
        self._carry[fd] = (data[place:], True)
        if replies:
            acknowledge(fd, b"".join(replies))

    def remainder(self) -> int:
        return sum(len(rest) for rest, _ in self._carry.values())


@cache
def _releases() -> dict[bytes, bytes]:
    """PUBREL for every PUBREC."""
    return dict(zip(frames.answers(frames.PUBREC), frames.answers(frames.PUBREL), strict=True))


def acknowledge(fd: int, data: bytes | bytearray) -> None:
    """Acknowledgements are small; a server that does not take them at once has stopped reading."""
    try:
        taken = os.write(fd, data)
    except BlockingIOError:
        taken = 0
    if taken != len(data):
        raise LoadError("the server does not read acknowledgements")
