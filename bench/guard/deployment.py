"""Which servers run: two Mosquittos with a bridge between them, and some of the three monitors of *sharing*.

A local monitor is a guard between the clients of one environment and its broker, the bridging monitor one between the
near broker, which bridges to it, and the far broker. All share a secret. With the bridging monitor alone, clients use
the brokers themselves, and what crosses comes to them with its envelope.
"""

from __future__ import annotations

import select
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from bench.guard.load import FAR, NEAR
from bench.guard.scenarios import USERS
from bench.harness.servers import START_TIMEOUT, BenchError, Peer, Server, Setting, mosquitto_configuration, running
from bench.load import frames, sessions
from bench.load.job import LoadError

SECRET = "0123456789abcdef" * 2
FORWARDING = RECEIVING = 40
"""Policies of each environment."""
AGAIN = 0.05  # seconds between two probes
PROBE = "probe"
LIMITS = "limits: {inflight: 65535, receive_maximum: 65535, queue: {messages: 1000000, bytes: 1GiB}}"


class Monitors(Enum):
    """Which of them there are."""

    NONE = "no monitor"
    BRIDGING = "bridging monitor"
    ALL = "all three"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """Running servers, by their names."""

    servers: dict[str, Server]
    near: Server
    """Where the clients of an environment connect."""
    far: Server

    @property
    def guards(self) -> dict[str, int]:
        """Process ids."""
        return {name: one.process.pid for name, one in self.servers.items() if one.peer is Peer.TIDEGATE}


@contextmanager
def deployed(monitors: Monitors, *, core: int | None) -> Iterator[Deployment]:
    """From when messages cross between the environments."""
    with ExitStack() as stack:
        servers: dict[str, Server] = {}

        def start(name: str, peer: Peer, text: str) -> Server:
            setting = Setting(text=lambda ports: text.replace("PORT", str(ports[0])), listeners=1)
            servers[name] = stack.enter_context(running(peer, setting, core=core))
            return servers[name]

        broker = mosquitto_configuration(Setting(nodelay=True), 0, Path()).replace("listener 0", "listener PORT")
        far = start("broker far", Peer.MOSQUITTO, broker)
        end = far
        if monitors is not Monitors.NONE:
            text = bridging(far.port, unenveloped="deny" if monitors is Monitors.ALL else "plain")
            end = start("bridging guard", Peer.TIDEGATE, text)
        near = start("broker near", Peer.MOSQUITTO, broker + bridge(end.port))
        if monitors is Monitors.ALL:
            near = start("guard near", Peer.TIDEGATE, guard(NEAR, near.port))
            far = start("guard far", Peer.TIDEGATE, guard(FAR, far.port))
        made = Deployment(servers=servers, near=near, far=far)
        _await_bridge(made)
        yield made


def bridge(port: int) -> str:
    """Lines of the near broker: what is published here goes there, and the other way round."""
    lines = [
        "connection far",
        f"address 127.0.0.1:{port}",
        "remote_username bridge",
        "remote_password bridge",
        "restart_timeout 1",
        "notifications false",
        f"topic {NEAR}/# out 2",
        f"topic {FAR}/# in 2",
    ]
    return "".join(f"{line}\n" for line in lines)


def guard(scope: str, backend: int) -> str:
    """A local monitor, which knows who a client is: the broker takes any name. A user may have a preference of what may
    be forwarded, and most have."""
    other = FAR if scope == NEAR else NEAR
    return "\n".join(
        (
            "version: 1",
            f"node: {{name: {scope}, domain: bench}}",
            'listeners: [{url: "mqtt://127.0.0.1:PORT", anonymous: true}]',
            f'scopes: {{{scope}: {{backend: "mqtt://127.0.0.1:{backend}", authenticate: here, secret: "{SECRET}"}}}}',
            *_people(f"u{user:02d}" for user in range(USERS)),
            "policies:",
            *_policies(scope, "write", FORWARDING),
            *_policies(other, "read", RECEIVING),
            "preferences:",
            *(
                f"- {{id: up{user:02d}, user: u{user:02d}, topic: '{scope}/#', when: 's.user != p.user'}}"
                for user in range(USERS)
            ),
            LIMITS,
            "log: {level: error}",
            "",
        )
    )


def bridging(backend: int, *, unenveloped: str) -> str:
    """The bridging monitor, with the policies of both environments, and a preference of each user."""
    bridges = f'{{{NEAR}: {{user: bridge, secret: "{SECRET}"}}}}'
    out, back = f"link:{NEAR}->{FAR}", f"link:{FAR}->{NEAR}"
    return "\n".join(
        (
            "version: 1",
            "node: {name: bridging, domain: bench}",
            'listeners: [{url: "mqtt://127.0.0.1:PORT"}]',
            f'scopes: {{{FAR}: {{backend: "mqtt://127.0.0.1:{backend}", authenticate: here, secret: "{SECRET}", '
            f"unenveloped: {unenveloped}, bridges: {bridges}}}}}",
            *_people(["bridge", *(f"u{user:02d}" for user in range(USERS))]),
            "policies:",
            *_policies(NEAR, "write", FORWARDING, out, "near-write"),
            *_policies(FAR, "read", RECEIVING, back, "near-read"),
            *_policies(FAR, "write", FORWARDING, back, "far-write"),
            *_policies(NEAR, "read", RECEIVING, out, "far-read"),
            "preferences:",
            *(
                f"- {{id: to{user:02d}, user: u{user:02d}, topic: '+/#', to: {to}, when: 'o.size < 1000'}}"
                for user in range(USERS)
                for to in (NEAR if user % 2 else FAR,)
            ),
            LIMITS,
            "log: {level: error}",
            "",
        )
    )


def _people(names: Iterable[str]) -> Iterator[str]:
    """Users, each with the password of their name."""
    yield "directory:"
    yield "  users:"
    for name in names:
        yield f'    {name}: {{password: "plain:{name}"}}'


def _policies(topic: str, action: str, count: int, subject: str = "*", name: str = "") -> Iterator[str]:
    """All are about the topics of the load, and the last of them allow it: each has a predicate that is asked."""
    for number in range(count):
        yield (
            f"- {{id: {name or action}{number}, subject: '{subject}', topic: '{topic}/#', action: {action}, "
            f"""when: "o.size < {200 + number} && s.kind != 'x{number}'"}}"""
        )


def _await_bridge(made: Deployment) -> None:
    """Publishes until something arrives, each way."""
    for first, last, topic in ((made.near, made.far, NEAR), (made.far, made.near, FAR)):
        deadline = time.monotonic() + START_TIMEOUT
        packet = frames.publish(f"{topic}/{PROBE}", b"x", qos=0, packet_id=0, version=4)
        try:
            with ExitStack() as stack:
                (reader,) = sessions.open_sessions(last.port, ["u98"], version=4, clean=True, stack=stack, login=True)
                sessions.subscribe(reader, [f"{topic}/{PROBE}"], qos=0, version=4)
                (writer,) = sessions.open_sessions(first.port, ["u99"], version=4, clean=True, stack=stack, login=True)
                while not select.select([reader], [], [], AGAIN)[0]:
                    if time.monotonic() > deadline:
                        raise BenchError(f"nothing crosses the bridge after {START_TIMEOUT:.0f} s{first.last_words()}")
                    writer.sendall(packet)
        except (LoadError, OSError) as error:
            words = first.obituary() or last.obituary() or f"the bridge cannot be tried: {error}"
            raise BenchError(words) from None
