"""The load of a scenario: a process of its own. Each line on stdin is a `Trial` as JSON; its answer is a `Timed`.

Every publisher sends one message a second, at a moment of its own within the second; the time from just before send()
to when its subscriber has read it is the transmission time. QoS 2 is played to its end on both sides. The loop sleeps
until something comes or has to be sent: the servers may have this core otherwise.
"""

from __future__ import annotations

import dataclasses
import gc
import json
import math
import select
import socket
import struct
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, field

from bench.guard.scenarios import Scenario, user_of
from bench.harness import procfs
from bench.load import frames, sessions
from bench.load.job import PAYLOAD, LoadError

FAILED = 3
STAMP = struct.Struct(">Q")
FIRST = 30.0  # seconds for the first messages
LAST = 3.0  # seconds for what is on its way when the last has been sent
NEAR, FAR = "near", "far"
"""The environments, and the first level of the topics of what is published there."""
PUBLISH, PUBREC, PUBREL, PUBCOMP = 0x30, 0x50, 0x62, 0x70


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One measurement."""

    scenario: Scenario
    near_port: int
    far_port: int
    qos: int
    duration: float = 5.0
    warmup: float = 0.3
    servers: dict[str, int] = field(default_factory=dict)
    """Processes whose CPU is measured, by name."""

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Trial:
        fields = json.loads(text)
        return cls(**fields | {"scenario": Scenario(**fields["scenario"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """What it found; times in seconds."""

    sent: int
    received: int
    p50: float
    p99: float
    slowest: float
    seconds: float
    cpu: dict[str, float]

    @classmethod
    def from_json(cls, text: str) -> Timed:
        return cls(**json.loads(text))


class _Client:
    """A session, from when the load begins."""

    def __init__(self, sock: socket.socket, topic: bytes) -> None:
        self.sock = sock
        self.topic = topic
        self.buffer = b""
        self.packet_id = 0


class _Run:
    def __init__(self, trial: Trial, stack: ExitStack) -> None:
        self.trial = trial
        self.latencies: list[int] = []
        self.received = self.sent = self.arrived = 0
        self.measuring_from = self.measuring_to = 0
        scenario = trial.scenario
        sides = {
            NEAR: (trial.near_port, scenario.near_publishers, scenario.near_subscribers, FAR),
            FAR: (trial.far_port, scenario.far_publishers, scenario.far_subscribers, NEAR),
        }
        self.publishers: list[_Client] = []
        self.clients: dict[int, _Client] = {}
        number = 0
        for side, (port, publishers, subscribers, others) in sides.items():
            for place in range(subscribers):
                client = self._open(port, f"{side}-s{place}", number, f"{others}/k{place:03d}", stack)
                sessions.subscribe(client.sock, [client.topic.decode()], qos=trial.qos, version=4)
                number += 1
            for place in range(publishers):
                client = self._open(port, f"{side}-p{place}", number, f"{side}/k{place:03d}", stack)
                self.publishers.append(client)
                number += 1
        for client in self.clients.values():
            client.sock.setblocking(False)

    def _open(self, port: int, name: str, number: int, topic: str, stack: ExitStack) -> _Client:
        sock = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=sessions.PATIENCE))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.sendall(frames.connect(name, version=4, clean=True, login=user_of(number)))
        reply = sessions.read_packet(sock)
        if reply[0] != frames.CONNACK or reply[3]:
            raise LoadError(f"CONNECT was refused: {reply.hex()}")
        client = self.clients[sock.fileno()] = _Client(sock, topic.encode())
        return client

    def play(self) -> Timed:
        trial, clock = self.trial, time.perf_counter_ns
        count = len(self.publishers)
        self._first()
        begin = clock()
        self.measuring_from = begin + int(trial.warmup * 1e9)
        self.measuring_to = self.measuring_from + int(trial.duration * 1e9)
        cpu: dict[str, float] = {}
        turn = 0
        with select.epoll() as epoll:
            for number in self.clients:
                epoll.register(number, select.EPOLLIN)
            while (now := clock()) < self.measuring_to or (
                self.received < self.sent and now < self.measuring_to + LAST * 1e9
            ):
                if not cpu and now >= self.measuring_from:
                    cpu = {name: procfs.family_seconds(pid) for name, pid in trial.servers.items()}
                due = begin + turn * 1_000_000_000 // count
                if due <= now and now < self.measuring_to:
                    self._publish(self.publishers[turn % count])
                    turn += 1
                    continue
                wait = max(0.0, (due - now) / 1e9) if now < self.measuring_to else 0.05
                for number, _ in epoll.poll(wait, len(self.clients)):
                    self._read(self.clients[number])
            after = {name: procfs.family_seconds(pid) for name, pid in trial.servers.items()}
        seconds = (clock() - self.measuring_from) / 1e9
        ordered = sorted(self.latencies)
        if not ordered:
            raise LoadError("nothing arrived")
        return Timed(
            sent=self.sent,
            received=self.received,
            p50=_percentile(ordered, 0.5),
            p99=_percentile(ordered, 0.99),
            slowest=ordered[-1] / 1e9,
            seconds=seconds,
            cpu={name: after[name] - value for name, value in cpu.items()},
        )

    def _first(self) -> None:
        """One message of each publisher, and its arrival: guards decide then what they need not decide again."""
        self.measuring_from = time.perf_counter_ns() + int(1e12)
        deadline = time.monotonic() + FIRST
        with select.epoll() as epoll:
            for number in self.clients:
                epoll.register(number, select.EPOLLIN)
            for client in self.publishers:
                self._publish(client)
            while self.arrived < len(self.publishers):
                if time.monotonic() > deadline:
                    raise LoadError(f"of {len(self.publishers)} first messages only {self.arrived} arrived")
                for number, _ in epoll.poll(0.05, len(self.clients)):
                    self._read(self.clients[number])

    def _publish(self, client: _Client) -> None:
        qos = self.trial.qos
        client.packet_id = client.packet_id % 60000 + 1
        moment = time.perf_counter_ns()
        counted = moment >= self.measuring_from
        payload = STAMP.pack(moment if counted else 0) + b"x" * (PAYLOAD - STAMP.size)
        self.sent += counted
        client.sock.sendall(
            frames.publish(client.topic.decode(), payload, qos=qos, packet_id=client.packet_id, version=4)
        )

    def _read(self, client: _Client) -> None:
        data = client.sock.recv(65536)
        now = time.perf_counter_ns()
        if not data:
            raise LoadError("the server closed a connection")
        client.buffer += data
        while (length := frames.total_length(client.buffer)) is not None and len(client.buffer) >= length:
            packet, client.buffer = client.buffer[:length], client.buffer[length:]
            self._take(client, packet, now)

    def _take(self, client: _Client, packet: bytes, now: int) -> None:
        kind = packet[0] & 0xF0
        if kind == PUBLISH:
            self.arrived += 1
            moment = STAMP.unpack_from(packet, len(packet) - PAYLOAD)[0]
            if moment:
                self.received += 1
                self.latencies.append(now - moment)
            if packet[0] & 0b110:
                at = 2 + (packet[1] > 127)  # none of them has more than 16,383 bytes
                at += 2 + (packet[at] << 8 | packet[at + 1])
                client.sock.sendall(bytes((PUBREC, 2)) + packet[at : at + 2])
        elif kind == PUBREC:
            client.sock.sendall(bytes((PUBREL, 2)) + packet[2:4])
        elif kind == PUBREL & 0xF0:
            client.sock.sendall(bytes((PUBCOMP, 2)) + packet[2:4])


def _percentile(ordered: list[int], share: float) -> float:
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] / 1e9


def main() -> int:
    for line in sys.stdin:
        try:
            with ExitStack() as stack:
                run = _Run(Trial.from_json(line), stack)
                gc.collect()
                gc.disable()
                found = run.play()
                gc.enable()
        except (LoadError, OSError) as error:
            print(json.dumps({"error": str(error)}), flush=True)
            return FAILED
        print(json.dumps(dataclasses.asdict(found)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
