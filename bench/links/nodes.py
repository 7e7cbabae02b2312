"""The servers: one alone, or several in a row, each linked with the next over mutual TLS on loopback.

Each connects to the one behind it. Only what the last subscribers of the load subscribe to is shared, so that the
number of those at the last server says what share of the messages crosses.
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
MOST = 5
"""Servers in a row."""
PROBE = "bench/probe"
AGAIN = 0.05  # seconds between two probes
VERSION = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Formation:
    """Which servers run."""

    linked: int = 0
    """Subscribers at the last server; 0: there is only one server."""
    peer: Peer = Peer.TIDEGATE
    durable: bool = False
    servers: int = 2
    """If there are several."""

    @property
    def count(self) -> int:
        return self.servers if self.linked else 1

    @property
    def share(self) -> float:
        """Of the messages, those that cross."""
        return self.linked / SUBSCRIBERS

    def topics(self) -> list[str]:
        """What crosses."""
        return [PROBE, *(f"bench/k{number:02d}" for number in range(SUBSCRIBERS - self.linked, SUBSCRIBERS))]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One server of a formation, with its ports; 0: it does not have that one."""

    number: int
    """From 1 on."""
    port: int
    tls_port: int = 0
    """Where the one before it connects."""
    next_port: int = 0

    @property
    def name(self) -> str:
        return named(self.number)

    @property
    def next(self) -> str:
        return named(self.number + 1)

    @property
    def before(self) -> str:
        return named(self.number - 1)


def named(number: int) -> str:
    """A server, and its scope."""
    return f"n{number}"


def certificates(folder: Path) -> Path:
    """An authority in `folder`, with a certificate for each server."""
    authority.make_ca(folder, "Bench CA", days=2)
    for number in range(1, MOST + 1):
        authority.issue(folder, named(number), ["127.0.0.1"], client=True, days=2)
    return folder


@contextmanager
def running_all(formation: Formation, folder: Path, *, core: int | None) -> Iterator[list[Server]]:
    """The servers of `formation`, the first one first, from when their links carry messages; `folder` holds the
    certificates. On one core, or on any."""
    text = bridged if formation.peer is Peer.MOSQUITTO else linked
    servers: list[Server] = []
    with ExitStack() as stack:
        for number in range(formation.count, 0, -1):
            next_port = servers[0].ports[1] if servers else 0

            def configured(ports: tuple[int, ...], number: int = number, next_port: int = next_port) -> str:
                tls_port = ports[1] if number > 1 else 0
                place = Place(number=number, port=ports[0], tls_port=tls_port, next_port=next_port)
                return text(formation, folder, place)

            setting = Setting(text=configured, listeners=2 if number > 1 else 1)
            servers.insert(0, stack.enter_context(running(formation.peer, setting, core=core)))
        if formation.linked:
            _await_link(servers[0], servers[-1])
        yield servers


def _await_link(first: Server, last: Server) -> None:
    """Publishes until something arrives."""
    deadline = time.monotonic() + START_TIMEOUT
    packet = frames.publish(PROBE, b"", qos=0, packet_id=0, version=VERSION)
    try:
        with ExitStack() as stack:
            (reader,) = sessions.open_sessions(last.port, ["reader"], version=VERSION, clean=True, stack=stack)
            sessions.subscribe(reader, [PROBE], qos=0, version=VERSION)
            (writer,) = sessions.open_sessions(first.port, ["writer"], version=VERSION, clean=True, stack=stack)
            while not select.select([reader], [], [], AGAIN)[0]:
                if time.monotonic() > deadline:
                    raise BenchError(f"nothing crosses the link after {START_TIMEOUT:.0f} s{first.last_words()}")
                writer.sendall(packet)
    except (LoadError, OSError) as error:
        raise BenchError(first.obituary() or last.obituary() or f"the link cannot be tried: {error}") from None


def linked(formation: Formation, folder: Path, place: Place) -> str:
    """A node. They are of one organisation, and so of one domain."""
    name, lines = place.name, []
    node, listeners = f"name: {name}, domain: bench", [_plain(place)]
    if place.next_port:
        shared = ", ".join(f"{{topic: {topic}}}" for topic in formation.topics())
        node += f", {_pair(folder, name)}, ca: {folder}/ca.pem"
        lines.append(
            f'{{from: {name}, to: {place.next}, via: ["mqtts://127.0.0.1:{place.next_port}"], peer: CN={place.next}, '
            f"share: [{shared}]}}"
        )
    if place.tls_port:
        listeners.append(
            f'{{url: "mqtts://127.0.0.1:{place.tls_port}", scope: {name}, {_pair(folder, name)}, '
            f"client_ca: {folder}/ca.pem, client_cert: required}}"
        )
        lines.append(f"{{from: {place.before}, to: {name}, peer: CN={place.before}, direction: out}}")
    others = ", ".join(named(number) for number in range(1, formation.count + 1) if number != place.number)
    return "\n".join(
        (
            "version: 1",
            f"node: {{{node}{', data: data' if formation.durable else ''}}}",
            f"listeners: [{', '.join(listeners)}]",
            f"scopes: {{{name}: {{}}}}",
            *([f"trust: {{otherwise: degrade, domains: {{bench: {{nodes: [{others}]}}}}}}"] if lines else []),
            *([f"links: [{', '.join(lines)}]"] if lines else []),
            "policies: open",
            LIMITS,
            "log: {level: error}",
            "",
        )
    )


def _plain(place: Place) -> str:
    return f'{{url: "mqtt://127.0.0.1:{place.port}", scope: {place.name}, anonymous: true}}'


def _pair(folder: Path, name: str) -> str:
    return f"cert: {folder}/{name}.pem, key: {folder}/{name}.key"


def bridged(formation: Formation, folder: Path, place: Place) -> str:
    """Mosquitto, with a bridge that connects at once and keeps what it owes if that is asked for. It runs in its own
    folder."""
    text, lines = mosquitto_configuration(Setting(durable=formation.durable), place.port, Path()), []
    if place.next_port:
        lines += [
            f"connection {place.next}",
            f"address 127.0.0.1:{place.next_port}",
            f"bridge_cafile {folder}/ca.pem",
            f"bridge_certfile {folder}/{place.name}.pem",
            f"bridge_keyfile {folder}/{place.name}.key",
            f"cleansession {'false' if formation.durable else 'true'}",
            "notifications false",
            "restart_timeout 1",
            *(f"topic {topic} out {int(formation.durable)}" for topic in formation.topics()),
        ]
    if place.tls_port:
        lines += [
            f"listener {place.tls_port} 127.0.0.1",
            f"certfile {folder}/{place.name}.pem",
            f"keyfile {folder}/{place.name}.key",
            f"cafile {folder}/ca.pem",
            "require_certificate true",
        ]
    return text + "".join(f"{line}\n" for line in lines)
