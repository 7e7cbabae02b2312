"""Runs a scenario in the model and in the engine, without a node: nothing is opened, listens or waits.

The engine is all scopes of the configuration in memory: clients connect, subscribe and publish with MQTT packets, one
after the other in the order of the file, and everything arrives before the next one acts. That is one of the many runs
that the model has, so what clients got must be an outcome of the model.

Clients are who the directory says they are, as if they had proved it. The model knows no policies, preferences, views
and levels, so both plays leave them out (`left_out`); and nobody is refused for a flow that they would open.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from tidegate import wire
from tidegate.config import Config
from tidegate.config.keys import Keys
from tidegate.config.problems import unknown
from tidegate.errors import ConfigError, TidegateError
from tidegate.flow.graph import SCOPE
from tidegate.flow.presence import Presence
from tidegate.gate import RuleSet
from tidegate.keyservice.topic_keys import TopicKeys
from tidegate.monitor import Event
from tidegate.policy import Levels, Preferences, Views
from tidegate.scope import Exchange, Identity, Refused
from tidegate.scope.authenticator import ANONYMOUS, Answer
from tidegate.scope.link_greeting import Peer
from tidegate.scope.scopes import Realm
from tidegate.session import Connection, Limits, Origin, Session, Site, Subject, Volatile
from tidegate.simulate.configured import configured
from tidegate.simulate.run import Outcome
from tidegate.simulate.scenario import Publication, Scenario
from tidegate.simulate.schema import Entity, Link, Schema
from tidegate.simulate.steps import Delivery

CLIENT: Final = "client:"
NOW: Final = 1_000_000_000.0
"""The time, for as long as the play goes on."""
WINDOW: Final = 65535
"""Messages of QoS 1 and 2 that a client gets without acknowledging any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRun:
    """A configuration and a scenario, put together."""

    schema: Schema
    scenario: Scenario
    """As it is in the model: see `configured`."""
    written: Scenario
    """As the file has it."""
    node: str
    rules: RuleSet
    left_out: tuple[str, ...]
    """Sections of the configuration that count in neither play."""
    identities: dict[Link, Identity]
    presences: dict[Link, Presence]

    @classmethod
    def of(cls, config: Config, scenario: Scenario) -> EngineRun:
        """Raises `ConfigError` where the two do not fit, or the model cannot play it."""
        rules = config.built.rules
        identities = {link: _identity(config, scenario, link) for link in scenario.sub}
        presences = {link: _presence(config, link, identity) for link, identity in identities.items()}
        schema, placed = configured(rules.space, rules.brokering, rules.monitors, scenario, presences)
        used = {
            "policies": rules.policies is not None,
            "preferences": len(rules.preferences) > 0,
            "views": bool(rules.views.rows),
            "levels": config.levels is not None,
        }
        bare = replace(rules, policies=None, preferences=Preferences(()), views=Views(()), levels=Levels(), ceiling=())
        return cls(
            schema=schema,
            scenario=placed,
            written=scenario,
            node=config.node.name,
            rules=bare,
            left_out=tuple(name for name, there in used.items() if there),
            identities=identities,
            presences=presences,
        )

    def run(self) -> Outcome:
        return _InMemoryNode(self).run()


# -- who ---------------------------------------------------------------------------------------------------------------


def _identity(config: Config, scenario: Scenario, link: Link) -> Identity:
    directory = config.built.directory
    client = link[1].removeprefix(CLIENT)
    user = scenario.users.get(link)
    if user is not None and user not in directory.users and not config.authentication.methods:
        wrong = unknown("user", user, tuple(directory.users), "directory.users")
        raise ConfigError(f"the scenario's `{link[1]}` {wrong}")
    known = directory.known(user=user, client=client, as_client=user is None)
    principal = ANONYMOUS
    if known.user is not None:
        principal = f"user:{known.user}"
    elif client in directory.clients:
        principal = f"certificate:{client}"
    return Identity(
        principal=principal,
        user=known.user,
        roles=known.roles,
        groups=known.groups,
        attributes=known.attributes,
        level=Levels().highest,
        impostor=known.impostor,
        scopes=known.scopes,
    )


def _presence(config: Config, link: Link, identity: Identity) -> Presence:
    """Where a client is, or why it may not be there."""
    rules = config.built.rules
    scope, client = link[0].removeprefix(SCOPE), link[1].removeprefix(CLIENT)
    subject = Subject(
        kind="client",
        client=client,
        user=identity.user,
        scope=scope,
        node=config.node.name,
        domain=rules.domain,
        roles=identity.roles,
        groups=identity.groups,
        impostor=identity.impostor,
        attributes=identity.attributes,
    )
    why = rules.brokering.objection(subject)
    if identity.scopes and scope not in identity.scopes:
        why = f"the directory lets it connect to {', '.join(identity.scopes)}"
    placed = rules.space.place(scope, identity.roles)
    if isinstance(placed, str) or why:
        why = placed if isinstance(placed, str) else why
        raise ConfigError(f"`{link[1]}` cannot be connected to `{scope}` ({why}): mend the scenario or the directory")
    types = rules.brokering.types(subject)
    return Presence(
        client=link[1],
        enters=placed.publishing,
        leaves=placed.receiving,
        inward=types.inward,
        outward=types.outward,
    )


# -- the engine --------------------------------------------------------------------------------------------------------


class _Listening:
    name = "simulation"
    max_packet = 2**28
    publish_rate: float | None = None
    publish_burst = 1.0


class _InMemoryNode:
    """All scopes, and the clients' ends of their connections. It is also who knows them (scope.Authenticator)."""

    def __init__(self, engine_run: EngineRun) -> None:
        self.engine_run = engine_run
        self.heard: dict[Entity, list[Delivery]] = {}
        self.site = Site(
            store=Volatile(),
            origin=Origin("0" * 16, 1),
            limits=Limits(inflight=WINDOW),
            on_open=self._opened,
            random_id=lambda: "",  # every client says its own
        )
        keyring = TopicKeys(self.site, Keys(), None, None)
        self.realm = Realm(
            node=engine_run.node, site=self.site, authenticator=self, rules=engine_run.rules, keyring=keyring
        )
        self._ends: dict[Link, _End] = {}
        self._coming: Identity | None = None

    def run(self) -> Outcome:
        written = self.engine_run.written
        for link, identity in self.engine_run.identities.items():
            self._coming = identity
            end = self._ends[link] = _End(self, link)
            end.connect()
            end.subscribe(written.sub[link].filters)
        for deed in written.written():
            if isinstance(deed, Publication):
                self._ends[deed.y, deed.x].publish(deed.a)
                continue
            end = self._ends[deed.link]
            end.subscribe(each for each in deed.to.filters if each not in end.filters)
            end.unsubscribe(each for each in end.filters if each not in deed.to.filters)
        return Outcome.of({device: tuple(came) for device, came in self.heard.items()})

    def turn(self) -> None:
        """Ends the turn, and does what was left for the next one."""
        self.site.close()
        self.site.open()
        self.site.rest()
        self.site.close()

    def _opened(self) -> None:
        self.site.now = self.site.wall = NOW

    # scope.Authenticator

    def authenticate(self, connection: Connection, packet: wire.Connect, answer: Answer) -> None:
        assert self._coming is not None
        answer(self._coming)

    def exchange(self, connection: Connection, packet: wire.Connect, method: str) -> Exchange | None:
        return None

    def completed(self, connection: Connection, client: str, identity: Identity) -> Identity | Refused:
        return identity

    def peer(self, connection: Connection, expected: str | None, plain: bool = False) -> Peer | Refused:
        return Refused()

    def reauthorize(self, session: Session) -> Identity | Refused:
        raise AssertionError("the rules never change here")


class _End:
    """A client's end of a connection that is only memory (session.Shell)."""

    def __init__(self, node: _InMemoryNode, link: Link) -> None:
        self.filters: tuple[str, ...] = ()
        self._node = node
        self._link = link
        self._buffer = b""
        self._no_local = link not in node.engine_run.written.echo
        self._over = SCOPE + node.engine_run.presences[link].leaves
        scope = node.realm.scopes[link[0].removeprefix(SCOPE)]
        self._connection = Connection(site=node.site, host=scope, listener=_Listening(), on_bug=_broken)
        self._connection.opened(self, "127.0.0.1", None)

    # session.Shell

    def write(self, data: bytes) -> None:
        self._buffer += data
        while (framed := wire.frame(self._buffer, 0, _Listening.max_packet)) is not None:
            first, start, end = framed
            packet = wire.decode(first, self._buffer[start:end], wire.V5)
            self._buffer = self._buffer[end:]
            self._take(packet)

    def close(self) -> None:
        pass  # the packet before it says why

    def pause_reading(self) -> None:
        pass  # whoever publishes waits for the end of the turn anyway

    def resume_reading(self) -> None:
        pass

    def hold_more(self) -> None:
        pass

    # the client

    def connect(self) -> None:
        self._send(
            wire.Connect(version=wire.V5, client_id=self._link[1].removeprefix(CLIENT), clean_start=True, keep_alive=0)
        )

    def publish(self, event: Event) -> None:
        self._send(wire.Publish(topic=event.topic, payload=event.payload, qos=event.qos, retain=event.retain))

    def subscribe(self, filters: Iterable[str]) -> None:
        for each in tuple(filters):
            self.filters += (each,)
            # all of it as it was published, and nothing that was retained: the model knows neither
            wanted = wire.Subscription(
                filter=each, qos=2, no_local=self._no_local, retain_as_published=True, retain_handling=2
            )
            self._send(wire.Subscribe(packet_id=1, subscriptions=(wanted,)))

    def unsubscribe(self, filters: Iterable[str]) -> None:
        for each in tuple(filters):
            self.filters = tuple(one for one in self.filters if one != each)
            self._send(wire.Unsubscribe(packet_id=1, filters=(each,)))

    def _send(self, packet: wire.Packet) -> None:
        self._connection.reader.receive(wire.encode(packet, wire.V5))
        self._node.turn()

    def _take(self, packet: wire.Packet) -> None:
        match packet:
            case wire.Publish():
                event = Event(packet.topic, bytes(packet.payload), packet.qos, packet.retain)
                self._node.heard.setdefault(self._link[1], []).append((self._over, event))
            case wire.Connack(reason=reason) | wire.Disconnect(reason=reason) if reason:
                raise EngineRefusal(f"the engine refuses `{self._link[1]}` at {self._link[0]}: {_why(packet)}")
            case wire.Suback(reasons=reasons) | wire.Unsuback(reasons=reasons) if any(one >= 0x80 for one in reasons):
                raise EngineRefusal(f"the engine refuses a subscription of `{self._link[1]}`: {_why(packet)}")
            case _:
                pass


class EngineRefusal(TidegateError):
    """The engine does not play along."""


def _why(packet: wire.Connack | wire.Disconnect | wire.Suback | wire.Unsuback) -> str:
    return packet.properties.reason_string or str(packet)


def _broken(connection: Connection, error: BaseException) -> None:
    raise error
