"""A scope without sockets: peers are fed bytes and what they write is kept. The clock is a number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidegate import wire
from tidegate.gate import RuleSet
from tidegate.gate.verdict import Stage
from tidegate.scope import Authenticator, Exchange, Identity, Realm, Refused
from tidegate.scope.authenticator import Answer
from tidegate.scope.decision_reports import Audit
from tidegate.scope.scope import NOBODY
from tidegate.session import Connection, Limits, Origin, Session, Site, Store, Volatile


class Anybody:
    """Everybody is who their user name says."""

    def authenticate(self, connection: Connection, packet: wire.Connect, answer: Answer) -> None:
        answer(Identity(principal=packet.username or "anonymous", user=packet.username))

    def exchange(self, connection: Connection, packet: wire.Connect, method: str) -> Exchange | None:
        return None

    def completed(self, connection: Connection, client: str, identity: Identity) -> Identity | Refused:
        return identity

    def reauthorize(self, session: Session) -> Identity | Refused:
        return Identity(principal=session.principal, user=session.subject.user)


class Listening:
    name = "pure"
    max_packet = 2**20
    publish_rate: float | None = None
    publish_burst = 1.0


class World:
    """A site, a scope, and the time."""

    def __init__(
        self,
        *,
        limits: Limits | None = None,
        store: Store | None = None,
        rules: RuleSet | None = None,
        authenticator: Authenticator | None = None,
        ingress: tuple[Stage, ...] = (),
        egress: tuple[Stage, ...] = (),
        stopwatch: Callable[[], float] = lambda: 0.0,
        audit: Audit = NOBODY,
    ) -> None:
        self.now = 1000.0
        self.wall = 1_700_000_000.0
        self.bugs: list[BaseException] = []
        self.site = Site(
            store=store or Volatile(),
            origin=Origin("ab" * 8, 1),
            limits=limits or Limits(),
            on_open=self._open,
            random_id=lambda: f"auto-{len(self.scope.sessions)}",
        )
        self.realm = Realm(
            node="n",
            site=self.site,
            authenticator=authenticator or Anybody(),
            rules=rules or RuleSet(),
            stopwatch=stopwatch,
            audit=audit,
        )
        self.scope = next(iter(self.realm.scopes.values()))
        if ingress or egress:
            self.scope.gate.enforce(ingress, egress)

    def _open(self) -> None:
        self.site.now = self.now
        self.site.wall = self.wall

    def turn(self, seconds: float = 0.0) -> None:
        """Ends the turn; then time passes and what is due happens."""
        self.site.close()
        self.now += seconds
        self.wall += seconds
        self.site.open()
        self.site.rest()
        self.site.close()

    def peer(self, client: str = "c", *, version: int = wire.V5, scope: str | None = None, **fields: Any) -> End:
        end = End(self, scope)
        end.version = version
        fields.setdefault("clean_start", True)
        fields.setdefault("keep_alive", 0)
        end.send(wire.Connect(version=version, client_id=client, **fields))
        return end


class End:
    """The client's end of a connection that is only memory."""

    def __init__(self, world: World, scope: str | None = None) -> None:
        self.world = world
        self.version = wire.V5
        self.buffer = b""
        self.closed = False
        self.paused = False
        host = world.scope if scope is None else world.realm.scopes[scope]
        self.connection = Connection(site=world.site, host=host, listener=Listening(), on_bug=self._bug)
        self.connection.opened(self, "127.0.0.1", None)

    def _bug(self, connection: Connection, error: BaseException) -> None:
        self.world.bugs.append(error)
        raise error

    # session.Shell

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.buffer += data

    def close(self) -> None:
        self.closed = True

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def hold_more(self) -> None: ...

    # the client

    def feed(self, data: bytes) -> None:
        self.connection.reader.receive(data)

    def send(self, *packets: wire.Packet) -> None:
        for packet in packets:
            self.feed(wire.encode(packet, self.version))
        self.world.turn()

    def subscribe(self, filter: str, qos: int = 0, **options: Any) -> None:
        subscription = wire.Subscription(filter=filter, qos=qos, **options)
        self.send(wire.Subscribe(packet_id=1, subscriptions=(subscription,)))

    def take(self) -> list[wire.Packet]:
        """Everything that was written since the last time."""
        self.world.turn()
        data, self.buffer = self.buffer, b""
        found: list[wire.Packet] = []
        pos = 0
        while pos < len(data):
            framed = wire.frame(data, pos, 2**28)
            assert framed is not None
            first, start, pos = framed
            found.append(wire.decode(first, data[start:pos], self.version))
        return found

    def messages(self) -> list[wire.Publish]:
        return [packet for packet in self.take() if isinstance(packet, wire.Publish)]

    def lose(self) -> None:
        """The connection breaks."""
        self.closed = True
        self.connection.lost()
        self.world.turn()
