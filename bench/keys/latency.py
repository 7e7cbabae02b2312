"""Messages at a steady pace, and how long each is on its way: from just before send() to just after recv().

The sender sleeps until a message is due or has come, so it can share a core with the server. It does not look into
what comes, which may be sealed: with QoS 0 and one connection for each publisher and topic, messages of a topic come in
the order in which they were sent.
"""

from __future__ import annotations

import select
import socket
import time
from array import array
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.keys.node import VERSION, parts_of
from bench.load import frames, sessions
from bench.load.job import LoadError

BUFFER = 1 << 16
LATE = 2.0  # seconds for the last message


@dataclass(frozen=True, slots=True, kw_only=True)
class Sender:
    """A publisher with its topic."""

    sock: socket.socket
    topic: str
    frame: bytes

    @classmethod
    def of(cls, sock: socket.socket, topic: str, payload: bytes) -> Sender:
        return cls(sock=sock, topic=topic, frame=frames.publish(topic, payload, qos=0, packet_id=0, version=VERSION))


class Path:
    """Publishers that take turns, and the subscriber who receives everything. Others are read and counted."""

    def __init__(
        self, senders: Sequence[Sender], receiver: socket.socket, others: Sequence[socket.socket] = ()
    ) -> None:
        self.latencies = array("q")
        self.others = 0
        self._senders = senders
        self._receiver = receiver
        self._sent = 0
        self._times: dict[bytes, deque[int]] = {sender.topic.encode(): deque() for sender in senders}
        self._rest: dict[socket.socket, bytes] = dict.fromkeys((receiver, *others), b"")
        self._waits = 0

    @property
    def sockets(self) -> list[socket.socket]:
        return list(self._rest)

    @property
    def waiting(self) -> bool:
        return self._waits > 0

    def send(self) -> None:
        sender = self._senders[self._sent % len(self._senders)]
        self._sent += 1
        self._waits += 1
        self._times[sender.topic.encode()].append(time.perf_counter_ns())
        sender.sock.sendall(sender.frame)

    def take(self, sock: socket.socket) -> None:
        """What has come on a socket that is readable."""
        data = sock.recv(BUFFER)
        moment = time.perf_counter_ns()
        if not data:
            raise LoadError("the server closed a connection")
        data = self._rest[sock] + data
        while (length := frames.total_length(data)) is not None and len(data) >= length:
            packet, data = data[:length], data[length:]
            if sock is self._receiver:
                begun = self._times[parts_of(packet)[0]].popleft()
                self.latencies.append(moment - begun)
                self._waits -= 1
            else:
                self.others += 1
        self._rest[sock] = data

    def forget(self) -> None:
        """What was measured so far was to warm up."""
        self.latencies = array("q")
        self.others = 0


@dataclass(slots=True, kw_only=True)
class Schedule:
    """Paths that take turns, each with `rate` messages a second."""

    paths: Sequence[Path]
    rate: float
    _sockets: dict[socket.socket, Path] = field(init=False)

    def __post_init__(self) -> None:
        self._sockets = {sock: path for path in self.paths for sock in path.sockets}

    def run(self, seconds: float) -> None:
        """For so long, and then until the last message has come."""
        clock = time.perf_counter
        gap = 1.0 / (self.rate * len(self.paths))
        start = clock()
        for number in range(max(1, int(seconds / gap))):
            due = start + number * gap
            while (left := due - clock()) > 0:
                self._take(left)
            self.paths[number % len(self.paths)].send()
        end = clock() + LATE
        while any(path.waiting for path in self.paths):
            if clock() > end:
                raise LoadError(f"a message did not arrive within {LATE:.0f} s")
            self._take(LATE)

    def _take(self, seconds: float) -> None:
        # select() and not epoll, whose timeout counts in milliseconds
        ready, _, _ = select.select(self._sockets, (), (), seconds)
        for sock in ready:
            self._sockets[sock].take(sock)


def pingpong(path: Path, seconds: float) -> float:
    """Messages a second with one on its way at a time."""
    receiver = path.sockets[0]
    end, count, begin = time.perf_counter() + seconds, 0, time.perf_counter()
    while time.perf_counter() < end:
        path.send()
        while path.waiting:
            ready, _, _ = select.select([receiver], (), (), sessions.PATIENCE)
            if not ready:
                raise LoadError("a message did not arrive")
            path.take(receiver)
        count += 1
    return count / (time.perf_counter() - begin)
