"""A scope without sockets, clock or disk: connections that are fed bytes, and what they write is counted and forgotten.

Everything between the bytes that come in and the bytes that go out is the real thing, built from the same
configuration as a node's.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from bench.harness.servers import Setting, tidegate_configuration
from bench.load import frames
from tidegate.config import Built, parse
from tidegate.gate import RuleSet
from tidegate.policy import Directory, Transport
from tidegate.policy.capability import Capability, Proof
from tidegate.scope import Exchange, Identity, Refused, Scope
from tidegate.scope.authenticator import Answer
from tidegate.scope.link_greeting import Peer
from tidegate.session import Connection, Limits, Message, Origin, Session, Site, Volatile
from tidegate.wire import Connect

LISTENER = "mqtt://127.0.0.1:1883"
TURN = 64  # messages that come in one turn of the loop
NOBODY: Mapping[str, Capability] = MappingProxyType({})


class Known:
    """Everybody is who the user name says, with what the directory knows of them, and their capability."""

    def __init__(self, rules: RuleSet, directory: Directory, holders: Mapping[str, Capability]) -> None:
        self._rules = rules
        self._directory = directory
        self._holders = holders

    def _identity(self, user: str | None, client: str) -> Identity:
        known = self._directory.known(user=user, client=client)
        return Identity(
            principal=f"user:{user}",
            user=known.user,
            roles=known.roles,
            groups=known.groups,
            attributes=known.attributes,
            level=self._rules.levels.level_of(Transport(listener=LISTENER)),
            capability=self._holders.get(user or ""),
        )

    def authenticate(self, connection: Connection, packet: Connect, answer: Answer) -> None:
        answer(self._identity(packet.username, packet.client_id))

    def exchange(self, connection: Connection, packet: Connect, method: str) -> Exchange | None:
        return None

    def completed(self, connection: Connection, client: str, identity: Identity) -> Identity | Refused:
        return identity

    def peer(self, connection: Connection, expected: str | None, plain: bool = False) -> Peer | Refused:
        return Refused()

    def reauthorize(self, session: Session) -> Identity | Refused:
        return self._identity(session.subject.user, session.client)


class Door:
    """What connections come in by."""

    name = LISTENER
    max_packet = 1 << 20
    publish_rate: float | None = None
    publish_burst = 1.0


class End:
    """The other end of a connection: counts what is written to it."""

    def __init__(self, site: Site, scope: Scope, name: str, version: int, *, login: bool = True) -> None:
        self.written = 0
        self.connection = Connection(site=site, host=scope, listener=Door(), on_bug=self._bug)
        self.connection.opened(self, "127.0.0.1", None)
        self.connection.reader.receive(frames.connect(name, version=version, clean=True, login=name if login else ""))

    @staticmethod
    def _bug(connection: Connection, error: BaseException) -> None:
        raise error

    def write(self, data: bytes) -> None:
        self.written += len(data)

    def close(self) -> None:
        raise AssertionError("a connection was closed")

    def pause_reading(self) -> None: ...

    def hold_more(self) -> None: ...
    def resume_reading(self) -> None: ...


def site_of(limits: Limits | None = None) -> Site:
    """A site with the clock of the machine, which keeps nothing."""

    def opened() -> None:
        site.now, site.wall = time.monotonic(), time.time()

    site = Site(
        store=Volatile(),
        origin=Origin("00" * 8, 1),
        limits=limits or Limits(),
        on_open=opened,
        random_id=lambda: "nobody",
    )
    return site


class World:
    """A scope with some rules, publishers and subscribers. `holders`: users who come with a capability."""

    def __init__(self, rules: str, *, version: int = 4, holders: Mapping[str, Capability] = NOBODY) -> None:
        self.version = version
        built = read(rules)
        decided = replace(built.rules, capabilities=Proof.NONE) if holders else built.rules
        self.site = site_of()
        self.scope = Scope(
            name="main",
            node="bench",
            site=self.site,
            authenticator=Known(decided, built.directory, holders),
            rules=decided,
        )
        self.gate = self.scope.gate

    def end(self, name: str) -> End:
        made = End(self.site, self.scope, name, self.version)
        self.site.close()
        return made

    def subscriber(self, name: str, filter: str, where: str = "") -> End:
        made = self.end(name)
        pairs = [("where", where)] if where else []
        made.connection.reader.receive(frames.subscribe(1, [filter], qos=0, version=self.version, pairs=pairs))
        self.site.close()
        made.written = 0
        return made

    def frame(self, topic: str, payload: bytes) -> bytes:
        return frames.publish(topic, payload, qos=0, packet_id=0, version=self.version)

    def play(self, ends: Sequence[End], data: Sequence[bytes], count: int) -> None:
        """So many messages, round robin, in turns as a busy loop would have them."""
        site = self.site
        receivers = [end.connection.reader.receive for end in ends]
        order = [(receivers[number % len(receivers)], data[number % len(data)]) for number in range(TURN)]
        for _ in range(max(1, count // TURN)):
            site.open()
            for receive, frame in order:
                receive(frame)
            site.close()
            self.rest()

    def rest(self) -> None:
        """What a node does between two turns."""
        self.site.rest()

    def message(self, end: End, topic: str, payload: bytes) -> Message:
        """As the general path makes it."""
        session = end.connection.session
        self.site.number += 1
        return Message(
            topic,
            payload,
            0,
            False,
            self.site.wall,
            self.site.origin,
            self.site.number,
            session.context,
            session.inward.type,
        )


def read(rules: str) -> Built:
    """What a node would decide by with these rules."""
    return parse(tidegate_configuration(Setting(rules=rules), 1883), "bench.yaml").built
