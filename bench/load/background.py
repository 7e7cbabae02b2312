"""What happens beside the load: sessions that change subscriptions, sessions that hold very many."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import ExitStack

from bench.load import frames, sessions
from bench.load.job import Job, LoadError
from bench.load.receiving import BUFFER, CLOSED

CHURNERS = 10
HOLDERS = 100
LOOK = 0.001  # seconds between two looks at sockets that receive little


class Churn:
    """`rate` subscription changes a second: each session subscribes, and ten changes later unsubscribes.

    One pair in ten concerns a topic of the load itself, so that the server must take notice of it; the rest
    are wildcards elsewhere in the tree. What these sessions receive is read and thrown away.
    """

    def __init__(self, sessions: Sequence[socket.socket], *, rate: int, topics: int, version: int) -> None:
        self._sessions = sessions
        self._gap = 1.0 / rate
        self._next = 0.0
        self._version = version
        self._topics = topics
        self._buffer = bytearray(BUFFER)
        self.changes = 0

    def turn(self, now: float) -> None:
        if now < self._next:
            return
        if not self._next:
            self._next = now
        while self._next <= now:
            self._change()
            self._next += self._gap

    def _change(self) -> None:
        sock = self._sessions[self.changes % len(self._sessions)]
        pair, undo = divmod(self.changes // len(self._sessions), 2)
        number = pair * len(self._sessions) + self.changes % len(self._sessions)
        if number % 10 == pair % 10:
            text = f"bench/k{number % self._topics:02d}"
        else:
            text = f"other/{number % 5000:04d}/+/state"
        packet_id = (self.changes * 2 + 1) & 0xFFFF  # odd, so that no SUBACK ends like a PINGRESP
        if undo:
            packet = frames.unsubscribe(packet_id, [text], version=self._version)
        else:
            packet = frames.subscribe(packet_id, [text], qos=0, version=self._version)
        _discard(sock, self._buffer)
        if sock.send(packet) != len(packet):
            raise LoadError("the server does not read subscription changes")
        self.changes += 1

    def finish(self) -> None:
        """A PINGRESP after all that was sent proves that every change was processed.

        Reading may start in the middle of a packet, so only the end of the stream is looked at.
        """
        for sock in self._sessions:
            sock.settimeout(sessions.PATIENCE)
            sock.sendall(frames.PINGREQ)
            end = b""
            while end != frames.PINGRESP:
                try:
                    data = sock.recv(BUFFER)
                except TimeoutError:
                    raise LoadError("the server did not process every subscription change") from None
                if not data:
                    raise LoadError(CLOSED)
                end = (end + data)[-2:]
            sock.setblocking(False)


class Holders:
    """Sessions with very many wildcard subscriptions, of which two match topics of the load."""

    def __init__(self, job: Job, *, stack: ExitStack) -> None:
        names = [f"holder{number:03d}" for number in range(HOLDERS)]
        holders = sessions.open_sessions(job.port, names, version=job.version, clean=True, stack=stack)
        each = job.wildcards // HOLDERS
        for number, sock in enumerate(holders):
            filters = [wildcard(number * each + place) for place in range(each)]
            sessions.subscribe(sock, filters, qos=0, version=job.version)
        self._sessions = holders[:MATCHING]
        for sock in self._sessions:
            sessions.subscribe(sock, [f"+/k{self._sessions.index(sock):02d}/#"], qos=0, version=job.version)
            sock.setblocking(False)
        self._buffer = bytearray(BUFFER)
        self._next = 0.0

    def turn(self, now: float) -> None:
        if now < self._next:
            return
        self._next = now + LOOK
        for sock in self._sessions:
            _discard(sock, self._buffer)


MATCHING = 2


def wildcard(number: int) -> str:
    """The filters of `Holders`: half below a plain level, half below a leading `+`."""
    if number % 2:
        return f"fleet/{number // 100:04d}/+/{number % 100:02d}/#"
    return f"+/f{number // 100:04d}/n{number % 100:02d}"


def _discard(sock: socket.socket, buffer: bytearray) -> None:
    try:
        if not sock.recv_into(buffer):
            raise LoadError(CLOSED)
    except BlockingIOError:
        pass
