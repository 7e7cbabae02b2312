"""Each attack against a node, with other clients' traffic beside it: the others get everything.

The soak test measures what they notice of it, and writes docs/reliability/attacks.md.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from processes import Process, process
from reliability.attacks import ATTACKS, CONNECTIONS
from tidegate import wire
from tidegate.cli import certificates

PATIENCE = 30.0
ROUND = float(os.environ.get("TIDEGATE_ATTACK_SECONDS", "2"))
ROUNDS = 3
BUSY = 0.2  # of a core, that other processes may have while it is measured
NEEDED = "this needs two cores that nobody else uses: end what else runs, and repeat it"
REPORT = Path(__file__).parents[2] / "docs/reliability/attacks.md"
CONFIG = """
version: 1
node: {name: attacked}
listeners:
  - {url: "mqtt://127.0.0.1:PORT", anonymous: true}
  - {url: "mqtts://127.0.0.1:TLS_PORT", anonymous: true, cert: node.pem, key: node.key}
log: {format: json}
sys: {interval: 0s}
authentication: {attempts: 1000000}
directory: {users: {mary: {password: "plain:pw"}, bob: {password: "plain:other"}}}
policies:
  - {id: others, subject: "*", topic: "others/#", action: [read, write]}
  - {id: checked, subject: "*", topic: "checked/#", action: write, when: "o.payload.l.exists(x, x > 5)"}
  - {id: mary, subject: "user:mary", topic: "t/#", action: [read, write]}
"""


Trips = tuple[list[float], list[float]]  # in seconds, with QoS 0 and with QoS 1


class Others:
    """A publisher and a subscriber of the node, one message after the other."""

    def __init__(self, port: int) -> None:
        self._publisher, self._subscriber = self._client(port), self._client(port)
        self._subscriber.sendall(
            wire.encode(wire.Subscribe(packet_id=1, subscriptions=(wire.Subscription(filter="others/x"),)), 4)
        )
        assert self._read(self._subscriber, 5)[0] == 0x90
        self._number = 0
        self._random = random.Random(1)

    def _client(self, port: int) -> socket.socket:
        client = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.sendall(b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x00\x00\x00")
        assert self._read(client, 4) == b"\x20\x02\x00\x00"
        return client

    @staticmethod
    def _read(client: socket.socket, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = client.recv(size - len(data))
            assert piece, "somebody else was thrown out"
            data += piece
        return data

    def trip(self, qos: int) -> float:
        """Seconds until a message has arrived, and with QoS 1 is acknowledged."""
        self._number += 1
        payload = b"%08d" % self._number
        packet = wire.Publish(topic="others/x", payload=payload, qos=qos, packet_id=1 if qos else 0)
        data = wire.encode(packet, 4)
        begin = time.perf_counter()
        self._publisher.sendall(data)
        assert self._read(self._subscriber, 20)[-8:] == payload
        if qos:
            assert self._read(self._publisher, 4) == b"\x40\x02\x00\x01"
        return time.perf_counter() - begin

    def trips(self, seconds: float, measured: Trips) -> None:
        """Measures for so long."""
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            for qos in (0, 1):
                time.sleep(self._random.uniform(0, 0.004))  # at no particular moment of what the node does
                measured[qos].append(self.trip(qos))

    def leave(self) -> None:
        self._publisher.close()
        self._subscriber.close()


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Process]:
    certificates.make_ca(folder, "Test CA", days=2)
    certificates.issue(folder, "node", ["localhost"], client=False, days=2)
    with process(folder, CONFIG) as node:
        yield node


@contextlib.contextmanager
def attacked(node: Process, name: str) -> Iterator[int]:
    """While it goes on; the process that attacks."""
    command = [sys.executable, "-m", "reliability.attacks", name, str(node.ports[ATTACKS[name].port])]
    path = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
    with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE) as attacker:
        assert attacker.stdout is not None
        os.sched_setscheduler(attacker.pid, os.SCHED_IDLE, os.sched_param(0))  # takes no time from the others' own core
        try:
            assert attacker.stdout.readline() == b"attacking\n"
            yield attacker.pid
            assert attacker.poll() is None
        finally:
            attacker.kill()


class Machine:
    """How much of it goes to processes that have nothing to do with the test."""

    def __init__(self, node: Process) -> None:
        self._own = [node.pid, os.getpid()]
        self._began, self._foreign, self._attacker = time.monotonic(), self._busy() - self._spent(*self._own), 0.0

    @staticmethod
    def _busy() -> float:
        """Seconds that all cores have spent in processes; interrupts are nobody's."""
        user, nice, system = map(int, Path("/proc/stat").read_text().split(None, 4)[1:4])
        return (user + nice + system) / os.sysconf("SC_CLK_TCK")

    @staticmethod
    def _spent(*pids: int) -> float:
        times = (Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13] for pid in pids)
        return sum(map(int, itertools.chain(*times))) / os.sysconf("SC_CLK_TCK")

    def attacked(self, attacker: int) -> None:
        """By that process, which is about to end."""
        self._attacker += self._spent(attacker)

    def others(self) -> float:
        """The part of a core that others had since it was made."""
        foreign = self._busy() - self._spent(*self._own) - self._foreign - self._attacker
        return max(0.0, foreign) / (time.monotonic() - self._began)


@contextlib.contextmanager
def cores_apart(node: Process) -> Iterator[None]:
    """The node has one core, clients and attacker have another: what the others notice is what the node does."""
    before = os.sched_getaffinity(0)
    first, *_, last = sorted(before)
    for thread in os.listdir(f"/proc/{node.popen.pid}/task"):
        os.sched_setaffinity(int(thread), {first})
    os.sched_setaffinity(0, {last})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@pytest.mark.timeout(300)
def test_others_get_everything_beside_each_attack(tmp_path: Path) -> None:
    with running(tmp_path) as node:
        others = Others(node.ports["PORT"])
        for name in ATTACKS:
            with attacked(node, name):
                for qos in (0, 1) * 20:
                    others.trip(qos)
        others.leave()
        assert node.ask("status")["bugs"] == 0


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_what_others_notice_of_each_attack(tmp_path: Path) -> None:
    rows = []
    seconds = len(ATTACKS) * ROUNDS * 2 * ROUND
    print(f"\nneeds two cores that nobody else uses, for some {seconds / 60:.0f} minutes", flush=True)
    with running(tmp_path) as node, cores_apart(node):
        machine = Machine(node)
        others = Others(node.ports["PORT"])
        others.trips(ROUND, ([], []))  # nothing is cold
        # busy: attackers that run only while nobody else does hardly attack, and whoever is measured waits for others
        assert (foreign := machine.others()) < BUSY, f"{NEEDED}; others have {foreign:.2f} of a core"
        for name, attack in ATTACKS.items():
            alone: Trips = ([], [])
            beside: Trips = ([], [])
            for _ in range(ROUNDS):
                others.trips(ROUND, alone)
                with attacked(node, name) as attacker:
                    others.trips(ROUND, beside)
                    machine.attacked(attacker)
            rows.append((attack.text, alone, beside))
            print(attack.text, *(_figures(each) for both in (alone, beside) for each in both), sep=" | ", flush=True)
        others.leave()
        status = node.ask("status")
        memory, foreign = node.memory("VmHWM"), machine.others()
    assert status["bugs"] == 0
    print(f"other processes had {foreign:.2f} of a core; {BUSY:g} is too much", flush=True)
    assert foreign < BUSY, f"{NEEDED}; others had {foreign:.2f} of a core"
    REPORT.write_text(_report(rows, memory))
    slower = [
        (text, qos)
        for text, alone, beside in rows
        for qos in (0, 1)
        if statistics.median(beside[qos]) > 2 * statistics.median(alone[qos])
    ]
    assert not slower, slower


def _figures(trips: list[float]) -> str:
    ordered = sorted(trips)
    return f"{1000 * statistics.median(ordered):.2f} / {1000 * ordered[len(ordered) * 99 // 100]:.1f}"


def _report(rows: list[tuple[str, Trips, Trips]], memory: int) -> str:
    text = f"""# Attacks

`make soak` writes this page. One process attacks a node over {CONNECTIONS} connections, as fast as the node lets it.
A publisher and a subscriber beside it send one message after the other. Each cell is the round trip of their messages
in milliseconds, median / 99th percentile, in {ROUNDS} rounds of {ROUND:g} s without the attack and as many with it, in
turn. At QoS 1 it ends when the publisher has its acknowledgement. The node has one core. Clients and attacker share
another, on which the attacker runs only while the clients wait, as if it were on another machine. The node never had
more than {memory >> 20} MiB of memory.

| attack | QoS 0 without | QoS 0 with | QoS 1 without | QoS 1 with |
|---|---|---|---|---|
"""
    for name, alone, beside in rows:
        cells = (_figures(alone[0]), _figures(beside[0]), _figures(alone[1]), _figures(beside[1]))
        text += f"| {name} | {' | '.join(cells)} |\n"
    return text
