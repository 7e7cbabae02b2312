"""The levels seed's experiment: one message from publisher to subscriber, with and without enforcement, 500 times each.

The seed measured inside its broker; here it is the whole way, from the publisher's send() to the subscriber's recv(),
which is more. Both nodes run at the same time on one core and take turns, so that they meet the same weather; they are
started afresh for every part of the runs, so that no single process decides. A third node, which enforces nothing
either, is the control: two equal nodes differ by that much.

Before anything is timed it is proved that the one enforces and the other does not. Also here: what a demand adds to
real packets, as the kernel counts them, and how long connecting takes.
"""

from __future__ import annotations

import socket
import ssl
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.gate import rank_test
from bench.gate.rank_test import Ranks
from bench.harness import servers
from bench.harness.rounds import Plan
from bench.harness.servers import BenchError, Peer, Server, Setting, pinned, running
from bench.load import frames, sessions
from bench.load.job import LoadError

RUNS = 500
GOAL = 0.001  # seconds that enforcement may add
FOUND = 0.05  # a difference is found if it is less likely than this to be chance
TOPIC = "bench/levels"
ENFORCED = "policies: open\nlevels: {implied: true}"
WITHOUT, WITH, CONTROL, MOSQUITTO = "without", "with", "control", "mosquitto"
TLS_RANK = "1"  # plain is 0
BYTES_ACKED = 120  # where tcpi_bytes_acked stands in struct tcp_info (linux/tcp.h)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """How the clients are connected, and where they demand what."""

    name: str
    title: str
    version: int
    tls: bool
    connect: frames.Pairs = ()
    publish: frames.Pairs = ()


CASES = (
    Case(name="plain", title="unchanged clients, plain, the level implied", version=4, tls=False),
    Case(name="tls", title="unchanged clients, TLS, the level implied", version=4, tls=True),
    Case(name="connect", title="demanded when connecting, TLS", version=5, tls=True, connect=(("s", TLS_RANK),)),
    Case(name="message", title="demanded with each message, TLS", version=5, tls=True, publish=(("s", TLS_RANK),)),
)


@dataclass(slots=True, kw_only=True)
class Timed:
    """Seconds of each run, by server."""

    name: str
    title: str
    seconds: dict[str, list[float]]

    def median(self, server: str) -> float:
        return statistics.median(self.seconds[server])

    @property
    def added(self) -> float:
        """What enforcement adds at the median."""
        return self.median(WITH) - self.median(WITHOUT)

    @property
    def ranks(self) -> Ranks:
        return rank_test.compare(self.seconds[WITHOUT], self.seconds[WITH])

    @property
    def control(self) -> Ranks:
        """The same for two nodes that do the same."""
        return rank_test.compare(self.seconds[WITHOUT], self.seconds[CONTROL])

    @property
    def reached(self) -> str:
        if self.added >= GOAL:
            return "no"
        return "yes" if self.ranks.p >= FOUND else "below 1 ms, but found"


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    """Bytes that a demand adds to a packet."""

    packet: str
    form: str
    bytes: int


@dataclass(slots=True, kw_only=True)
class Forwarding:
    """Everything this part found."""

    forwarded: list[Timed] = field(default_factory=list)
    connected: list[Timed] = field(default_factory=list)
    added: list[Added] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


def measure(plan: Plan, before: Callable[[str], None], runs: int = RUNS) -> Forwarding:
    """As many runs in all, in as many parts as the plan has rounds."""
    found = Forwarding(
        forwarded=[Timed(name=one.name, title=one.title, seconds={}) for one in CASES],
        connected=[Timed(name=name, title=name, seconds={}) for name in ("plain", "tls")],
    )
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
        try:
            certificates = servers.certificates(Path(folder))
            for number in range(plan.rounds):
                share = runs * (number + 1) // plan.rounds - runs * number // plan.rounds
                before(f"levels, round {number + 1} of {plan.rounds}")
                with together(plan, certificates) as nodes:
                    _round(nodes, found, share)
                    if not found.added:
                        found.added = list(added_bytes(nodes))
        except (BenchError, LoadError, OSError) as error:
            found.failures.append(f"levels: {error}")
    return found


class Nodes:
    """The servers that take turns, and how to reach them."""

    def __init__(self, running: dict[str, Server], certificates: Path) -> None:
        self.servers = running
        self._context = ssl.create_default_context(cafile=str(certificates / "ca.pem"))

    def dial(self, name: str, *, tls: bool) -> socket.socket:
        server = self.servers[name]
        sock = socket.create_connection(
            ("127.0.0.1", server.tls_port if tls else server.port), timeout=sessions.PATIENCE
        )
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sessions.never_paced(sock)
        if tls:
            try:
                return self._context.wrap_socket(sock, server_hostname="127.0.0.1")
            except BaseException:
                sock.close()
                raise
        return sock

    def session(self, name: str, client: str, *, tls: bool, version: int, pairs: frames.Pairs = ()) -> socket.socket:
        sock = self.dial(name, tls=tls)
        try:
            greet(sock, client, version, pairs)
        except BaseException:
            sock.close()
            raise
        return sock


@contextmanager
def together(plan: Plan, certificates: Path) -> Iterator[Nodes]:
    """All servers at once on their core, and this thread on the other."""
    settings = {
        WITHOUT: (Peer.TIDEGATE, Setting(certificates=certificates)),
        WITH: (Peer.TIDEGATE, Setting(certificates=certificates, rules=ENFORCED)),
        CONTROL: (Peer.TIDEGATE, Setting(certificates=certificates)),
        MOSQUITTO: (Peer.MOSQUITTO, Setting(certificates=certificates, nodelay=True)),
    }
    with ExitStack() as stack:
        started = {
            name: stack.enter_context(running(peer, setting, core=plan.server_core))
            for name, (peer, setting) in settings.items()
        }
        stack.enter_context(pinned(plan.load_core))
        yield Nodes(started, certificates)


def greet(sock: socket.socket, client: str, version: int, pairs: frames.Pairs = ()) -> None:
    sock.sendall(frames.connect(client, version=version, clean=True, pairs=pairs))
    reply = sessions.read_packet(sock)
    if reply[0] != frames.CONNACK or reply[3]:
        raise LoadError(f"CONNECT was refused: {reply.hex()}")


def _round(nodes: Nodes, found: Forwarding, runs: int) -> None:
    prove(nodes)
    for case, timed in zip(CASES, found.forwarded, strict=True):
        forward(nodes, case, runs, timed.seconds)
    for timed in found.connected:
        connect(nodes, timed.name == "tls", runs, timed.seconds)


# -- forwarding ------------------------------------------------------------------------------------------------------


def prove(nodes: Nodes) -> None:
    """What is published over TLS reaches a plain subscriber where nothing is enforced, and only there."""
    for name, enforced in ((WITHOUT, False), (WITH, True), (CONTROL, False)):
        with ExitStack() as stack:
            plain, secure, sender = (
                stack.enter_context(nodes.session(name, client, tls=tls, version=4))
                for client, tls in (("plain", False), ("secure", True), ("sender", True))
            )
            for sock in (plain, secure):
                sessions.subscribe(sock, [TOPIC], qos=0, version=4)
            sender.sendall(frames.publish(TOPIC, sessions.BODY, qos=0, packet_id=0, version=4))
            sessions.read_packet(secure)
            plain.sendall(frames.PINGREQ)  # it was routed when the other had it, so it would come first
            came = sessions.read_packet(plain) != frames.PINGRESP
            if came is enforced:
                raise BenchError(
                    f"the node {name} enforcement {'lets pass' if came else 'keeps back'} what it should not"
                )


def forward(nodes: Nodes, case: Case, runs: int, seconds: dict[str, list[float]]) -> None:
    """So many runs with each server, in turns whose order alternates."""
    with ExitStack() as stack:
        pairs: dict[str, tuple[socket.socket, socket.socket, bytes]] = {}
        for name in nodes.servers:
            demanding = name == WITH
            connect, publish = (case.connect, case.publish) if demanding else ((), ())
            receiver = stack.enter_context(
                nodes.session(name, f"r-{name}", tls=case.tls, version=case.version, pairs=connect)
            )
            sessions.subscribe(receiver, [TOPIC], qos=0, version=case.version)
            sender = stack.enter_context(
                nodes.session(name, f"p-{name}", tls=case.tls, version=case.version, pairs=connect)
            )
            frame = frames.publish(TOPIC, sessions.BODY, qos=0, packet_id=0, version=case.version, pairs=publish)
            pairs[name] = (sender, receiver, frame)
        order = list(pairs)
        for number in range(-10, runs):  # the first ones warm everything up
            for name in order if number % 2 else reversed(order):
                sender, receiver, frame = pairs[name]
                begin = time.perf_counter()
                sender.sendall(frame)
                sessions.read_packet(receiver)
                taken = time.perf_counter() - begin
                if number >= 0:
                    seconds.setdefault(name, []).append(taken)


# -- connecting ------------------------------------------------------------------------------------------------------


def connect(nodes: Nodes, tls: bool, runs: int, seconds: dict[str, list[float]]) -> None:
    """From opening the socket to CONNACK, with the handshake of TLS if there is one."""
    order = list(nodes.servers)
    for number in range(runs):
        for name in order if number % 2 else reversed(order):
            begin = time.perf_counter()
            with closing(nodes.session(name, f"c{number}", tls=tls, version=4)) as sock:
                taken = time.perf_counter() - begin
                # closed by reset, so that thousands of connections leave no TIME_WAIT behind
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            seconds.setdefault(name, []).append(taken)


# -- bytes on the wire -----------------------------------------------------------------------------------------------


def added_bytes(nodes: Nodes) -> Iterator[Added]:
    """What goes over a plain connection more, by packet, when a demand is in it: short form and long."""
    forms: tuple[tuple[str, frames.Pairs], ...] = (("s", (("s", TLS_RANK),)), ("require", (("require", "tls"),)))
    for packet in ("CONNECT", "PUBLISH", "SUBSCRIBE"):
        plain = _sent(nodes, packet, ())
        for form, pairs in forms:
            yield Added(packet=packet, form=form, bytes=_sent(nodes, packet, pairs) - plain)


def _sent(nodes: Nodes, packet: str, pairs: frames.Pairs) -> int:
    """How many bytes the node acknowledged, as the kernel counts them, of a connection with this packet."""
    with closing(nodes.dial(WITH, tls=False)) as sock:
        greet(sock, "w", 5, pairs if packet == "CONNECT" else ())
        if packet == "PUBLISH":
            # QoS 1, so that there is an answer: it acknowledges the bytes, too
            sock.sendall(frames.publish(TOPIC, sessions.BODY, qos=1, packet_id=1, version=5, pairs=pairs))
            sessions.read_packet(sock)
        elif packet == "SUBSCRIBE":
            sessions.subscribe(sock, [TOPIC], qos=0, version=5, pairs=pairs)
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
        return int.from_bytes(info[BYTES_ACKED : BYTES_ACKED + 8], sys.byteorder)
