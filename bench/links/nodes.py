"""The servers: one alone, or two that are linked over mutual TLS on loopback, both on the server's core.

The first one connects to the second one. Only what the last subscribers of the load subscribe to is shared, so that the
number of those at the second server says what share of the messages crosses.
"""

from __future__ import annotations

import select
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.harness.servers import START_TIMEOUT, BenchError, Peer, Server, Setting, mosquitto_configuration, running
from bench.load import frames, sessions
from bench.load.job import LoadError
from bench.scopes.chain import LIMITS
from tidegate.cli import certificates as authority

SUBSCRIBERS = 20
NEAR, FAR = "near", "far"
PROBE = "bench/probe"
AGAIN = 0.05  # seconds between two probes
VERSION = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Formation:
    """Which servers run."""

    linked: int = 0
    """Subscribers at the second server; 0: there is none."""
    peer: Peer = Peer.TIDEGATE
    durable: bool = False

    @property
    def share(self) -> float:
        """Of the messages, those that cross."""
        return self.linked / SUBSCRIBERS

    def topics(self) -> list[str]:
        """What crosses."""
        return [PROBE, *(f"bench/k{number:02d}" for number in range(SUBSCRIBERS - self.linked, SUBSCRIBERS))]


def certificates(folder: Path) -> Path:
    """An authority in `folder`, with a certificate for each of the two nodes."""
    authority.make_ca(folder, "Bench CA", days=2)
    for name in (NEAR, FAR):
        authority.issue(folder, name, ["127.0.0.1"], client=True, days=2)
    return folder


@contextmanager
def running_all(formation: Formation, folder: Path, *, core: int) -> Iterator[tuple[Server, Server | None]]:
    """The servers of `formation`, from when their link carries messages; `folder` holds the certificates."""
    far, near = (far_bridged, near_bridged) if formation.peer is Peer.MOSQUITTO else (far_node, near_node)
    with ExitStack() as stack:
        second, port = None, 0
        if formation.linked:
            setting = Setting(text=lambda ports: far(formation, folder, *ports), listeners=2)
            second = stack.enter_context(running(formation.peer, setting, core=core))
            port = second.ports[1]
        setting = Setting(text=lambda ports: near(formation, folder, ports[0], port))
        first = stack.enter_context(running(formation.peer, setting, core=core))
        if second is not None:
            _await_link(first, second)
        yield first, second


def _await_link(near: Server, far: Server) -> None:
    """Publishes until something arrives."""
    deadline = time.monotonic() + START_TIMEOUT
    packet = frames.publish(PROBE, b"", qos=0, packet_id=0, version=VERSION)
    try:
        with ExitStack() as stack:
            (reader,) = sessions.open_sessions(far.port, ["reader"], version=VERSION, clean=True, stack=stack)
            sessions.subscribe(reader, [PROBE], qos=0, version=VERSION)
            (writer,) = sessions.open_sessions(near.port, ["writer"], version=VERSION, clean=True, stack=stack)
            while not select.select([reader], [], [], AGAIN)[0]:
                if time.monotonic() > deadline:
                    raise BenchError(f"nothing crosses the link after {START_TIMEOUT:.0f} s{near.last_words()}")
                writer.sendall(packet)
    except (LoadError, OSError) as error:
        raise BenchError(near.obituary() or far.obituary() or f"the link cannot be tried: {error}") from None


def near_node(formation: Formation, folder: Path, port: int, far_port: int) -> str:
    """The node at which everything is published; without a second one it has no link."""
    if not formation.linked:
        return _node(formation, f"name: {NEAR}", NEAR, _plain(port, NEAR))
    shared = ", ".join(f"{{topic: {topic}}}" for topic in formation.topics())
    return _node(
        formation,
        f"name: {NEAR}, {_pair(folder, NEAR)}, ca: {folder}/ca.pem",
        NEAR,
        _plain(port, NEAR),
        f"trust: {{otherwise: degrade, domains: {{{FAR}: {{nodes: [{FAR}]}}}}}}",
        f'links: [{{from: {NEAR}, to: {FAR}, via: ["mqtts://127.0.0.1:{far_port}"], peer: CN={FAR}, '
        f"share: [{shared}]}}]",
    )


def far_node(formation: Formation, folder: Path, port: int, tls_port: int) -> str:
    secure = (
        f'{{url: "mqtts://127.0.0.1:{tls_port}", scope: {FAR}, {_pair(folder, FAR)}, client_ca: {folder}/ca.pem, '
        "client_cert: required}"
    )
    return _node(
        formation,
        f"name: {FAR}",
        FAR,
        f"{_plain(port, FAR)}, {secure}",
        f"trust: {{otherwise: degrade, domains: {{{NEAR}: {{nodes: [{NEAR}]}}}}}}",
        f"links: [{{from: {NEAR}, to: {FAR}, peer: CN={NEAR}, direction: out}}]",
    )


def _node(formation: Formation, node: str, scope: str, listeners: str, *rules: str) -> str:
    lines = (
        "version: 1",
        f"node: {{{node}{', data: data' if formation.durable else ''}}}",
        f"listeners: [{listeners}]",
        f"scopes: {{{scope}: {{}}}}",
        *rules,
        "policies: open",
        LIMITS,
        "log: {level: error}",
    )
    return "\n".join(lines) + "\n"


def _plain(port: int, scope: str) -> str:
    return f'{{url: "mqtt://127.0.0.1:{port}", scope: {scope}, anonymous: true}}'


def _pair(folder: Path, name: str) -> str:
    return f"cert: {folder}/{name}.pem, key: {folder}/{name}.key"


def near_bridged(formation: Formation, folder: Path, port: int, far_port: int) -> str:
    """Mosquitto with a bridge, which connects at once and keeps what it owes."""
    lines = (
        f"connection {FAR}",
        f"address 127.0.0.1:{far_port}",
        f"bridge_cafile {folder}/ca.pem",
        f"bridge_certfile {folder}/{NEAR}.pem",
        f"bridge_keyfile {folder}/{NEAR}.key",
        "cleansession false",
        "notifications false",
        "restart_timeout 1",
        *(f"topic {topic} out 1" for topic in formation.topics()),
    )
    return _mosquitto(formation, port, *lines)


def far_bridged(formation: Formation, folder: Path, port: int, tls_port: int) -> str:
    lines = (
        f"listener {tls_port} 127.0.0.1",
        f"certfile {folder}/{FAR}.pem",
        f"keyfile {folder}/{FAR}.key",
        f"cafile {folder}/ca.pem",
        "require_certificate true",
    )
    return _mosquitto(formation, port, *lines)


def _mosquitto(formation: Formation, port: int, *lines: str) -> str:
    """It runs in its own folder."""
    return mosquitto_configuration(Setting(durable=formation.durable), port, Path()) + "\n".join(lines) + "\n"
