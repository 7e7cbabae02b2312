"""Messages of many sensors at a steady pace over MQTT with QoS 1: when each is acknowledged, and when its record comes.

Open loop: a message is sent when it is due, whatever became of those before it. Records of a sensor come in the order
of its messages, so that also those that are sealed are told apart.
"""

from __future__ import annotations

import select
import socket
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from bench.keys.node import VERSION, parts_of
from bench.load import frames
from bench.load.job import LoadError
from bench.pipeline import weather

BUFFER: Final = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Sender:
    """A sensor with its connection, which it may share."""

    sock: socket.socket
    sensor: weather.Sensor
    topic: str


@dataclass(slots=True, kw_only=True)
class Flow:
    """What is on its way, and what has come. All times in seconds."""

    senders: Sequence[Sender]
    receiver: socket.socket | None = None
    """Who is sent the records; None: nobody, and they are not waited for."""
    acknowledged: list[float] = field(default_factory=list)
    arrived: list[float] = field(default_factory=list)
    late: list[float] = field(default_factory=list)
    """How much later than planned each was sent; it counts, for time begins when a message is due."""
    _values: list[float] = field(default_factory=weather.values)
    _sent: int = 0
    _unacknowledged: dict[tuple[int, int], float] = field(default_factory=dict)
    _on_way: dict[str, deque[float]] = field(default_factory=dict)
    _waits: int = 0
    _rest: dict[socket.socket, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._rest = {one.sock: b"" for one in self.senders}
        if self.receiver is not None:
            self._rest[self.receiver] = b""

    @property
    def waiting(self) -> int:
        return len(self._unacknowledged) + self._waits

    def forget(self) -> None:
        """What was measured so far was to warm up."""
        self.acknowledged, self.arrived, self.late = [], [], []

    def run(self, rate: float, seconds: float, patience: float) -> None:
        """So many a second for so long, then until the last has come. LoadError if that takes too long."""
        clock = time.perf_counter
        start = clock()
        for number in range(max(1, int(seconds * rate))):
            due = start + number / rate
            while (left := due - clock()) > 0:
                self._take(left)
            self.late.append(clock() - due)
            self._send(due)
            if not number % 16:
                self._take(0.0)  # also if it is always late
        end = clock() + patience
        while self.waiting:
            if clock() > end:
                raise LoadError(f"{self.waiting} of {self._sent} messages or records did not come in {patience:.0f} s")
            self._take(0.1)

    def _send(self, due: float) -> None:
        sender = self.senders[self._sent % len(self.senders)]
        value = self._values[self._sent % len(self._values)]
        self._sent += 1
        packet_id = self._sent % 0xFFFF + 1
        payload = sender.sensor.payload(time.time(), value)
        self._unacknowledged[sender.sock.fileno(), packet_id] = due
        if self.receiver is not None:
            self._on_way.setdefault(sender.sensor.target, deque()).append(due)
            self._waits += 1
        sender.sock.sendall(frames.publish(sender.topic, payload, qos=1, packet_id=packet_id, version=VERSION))

    def _take(self, seconds: float) -> None:
        ready, _, _ = select.select(self._rest, (), (), seconds)
        for sock in ready:
            data = sock.recv(BUFFER)
            now = time.perf_counter()
            if not data:
                raise LoadError("the node closed a connection")
            data = self._rest[sock] + data
            while (length := frames.total_length(data)) is not None and len(data) >= length:
                packet, data = data[:length], data[length:]
                if sock is self.receiver:
                    self._arrive(packet, now)
                else:
                    due = self._unacknowledged.pop((sock.fileno(), int.from_bytes(packet[2:4], "big")))
                    self.acknowledged.append(now - due)
            self._rest[sock] = data

    def _arrive(self, packet: bytes, now: float) -> None:
        topic = parts_of(packet)[0].decode()
        if not (begun := self._on_way.get(topic)):
            raise LoadError(f"a record came under {topic} that nobody waits for")
        self.arrived.append(now - begun.popleft())
        self._waits -= 1
