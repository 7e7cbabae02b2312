"""The engine decides as semantics.md says: random worlds, played on the real scope and on a plain model.

The model keeps what MQTT says of sessions, queues and retained messages in the simplest way there is, and asks the
oracle for every single decision. The engine compiles. Configurations change in the middle, clients come and go, the
clock moves; whatever a client receives must be what the model says.

Where the specification leaves a choice the model allows all of it:
- which member of a shared subscription receives a message, and for which of those who are away, or whose connections
  are too weak, it waits;
- what is owed to a session that is away is kept unless it is denied for good: a message that is denied when it is
  published, whatever connection its receiver comes back with, may be left out even if a later configuration allows it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

import yaml
from hypothesis import HealthCheck, event, given, note, settings
from hypothesis import strategies as st

import pure
from gate import dense, oracle, worlds
from generated import examples
from pure import End
from tidegate import wire
from tidegate.config import Config, parse
from tidegate.scope import Identity, Refused
from tidegate.scope.authenticator import Answer
from tidegate.scope.decision_reports import Audit
from tidegate.scope.scope import NOBODY
from tidegate.session import Connection, Session
from tidegate.topics import matches, share

Owed = tuple[oracle.Message, oracle.Context]
Stream = tuple[str, str | None, str]


def stream_of(message: oracle.Message, context: oracle.Context) -> Stream:
    """ "of the same publisher and topic" """
    return context.client, context.owner, message.topic


def built(configuration: worlds.Configuration) -> Config:
    # forwarding to other scopes is not configurable yet, and concerns no receiver
    preferences = [row for row in configuration["preferences"] if "to" not in row]
    text = yaml.safe_dump({**configuration, "preferences": preferences}, sort_keys=False, allow_unicode=True)
    return parse(text, "world.yaml")


# -- the engine --------------------------------------------------------------------------------------------------------


class People(pure.Anybody):
    """Who is connected how, as the history says."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.coming: oracle.Connection
        self.came: dict[tuple[str | None, str], oracle.Connection] = {}

    def _identity(self, user: str | None, client: str) -> Identity:
        connection = self.came[user, client]
        known = self.config.built.directory.known(user=user, client=client)
        return Identity(
            principal=f"user:{user}" if user else "anonymous",
            user=user,
            roles=known.roles,
            groups=known.groups,
            attributes=known.attributes,
            level=connection.level,
            facts=tuple(name for name in self.config.built.rules.levels.facts if name in connection.facts),
            impostor=known.impostor,
        )

    def authenticate(self, connection: Connection, packet: wire.Connect, answer: Answer) -> None:
        self.came[packet.username, packet.client_id] = self.coming
        answer(self._identity(packet.username, packet.client_id))

    def reauthorize(self, session: Session) -> Identity | Refused:
        user = session.subject.user
        if user is not None and user not in self.config.directory.users:
            return Refused(text="your access has been withdrawn")
        return self._identity(user, session.client)


class Engine:
    """The real scope, without sockets."""

    def __init__(self, world: worlds.World, bound: int, *, enforced: bool = True, audit: Audit = NOBODY) -> None:
        self.config = built(world.configuration if enforced else {**world.configuration, "enforce": False})
        self.people = People(self.config)
        self.world = pure.World(rules=self.config.built.rules, authenticator=self.people, audit=audit)
        self.world.wall = float(world.start)
        self.world.scope.gate.cache.bound = bound
        self.ends: dict[oracle_key, End] = {}

    def connect(self, operation: worlds.Connect) -> bool:
        connection = operation.connection
        self.people.coming = connection
        key = (connection.user, connection.client)
        before = self.people.came.get(key)
        will = operation.will
        end = self.world.peer(
            connection.client,
            username=connection.user,
            clean_start=operation.clean,
            will=None
            if will is None
            else wire.Will(
                topic=will.topic,
                payload=will.payload,
                qos=will.qos,
                retain=will.retain,
                properties=wire.Properties(user_properties=will.properties),
            ),
            properties=wire.Properties(
                session_expiry_interval=10**7 if operation.persistent else None, user_properties=connection.properties
            ),
        )
        if end.closed:
            if before is not None:  # an earlier connection is still there
                self.people.came[key] = before
            return False
        self.ends[key] = end
        return True

    def received(self) -> dict[oracle_key, list[wire.Publish]]:
        """What everybody has received since the last time; QoS 1 is acknowledged."""
        found: dict[oracle_key, list[wire.Publish]] = {}
        self.world.turn()
        self.world.turn()  # what a first one has left
        for key, end in list(self.ends.items()):
            messages = end.messages()
            found[key] = messages
            if end.closed:
                del self.ends[key]
                continue
            for message in messages:
                if message.qos:
                    end.send(wire.Puback(packet_id=message.packet_id))
        return found


oracle_key = tuple[str | None, str]


# -- the model -----------------------------------------------------------------------------------------


@dataclass
class Client:
    """A session of the model."""

    connection: oracle.Connection
    connected: bool = True
    persistent: bool = False
    will: oracle.Message | None = None
    subscriptions: dict[str, oracle.Subscription] = field(default_factory=dict)
    queue: list[Waiting] = field(default_factory=list)
    deferred: list[Waiting] = field(default_factory=list)
    """What the present connection is too weak for, and what waits behind that."""


@dataclass
class Waiting:
    """Owed to a session that is away, or whose connection is too weak."""

    message: oracle.Message
    context: oracle.Context
    shared: str | None
    certain: bool
    """It must be there; otherwise it may."""
    subscribed: dict[str, oracle.Subscription]
    retain: bool = False

    @property
    def stream(self) -> Stream:
        return stream_of(self.message, self.context)


@dataclass
class Expected:
    """What a client must receive, and what it may: (kind of delivery, what, QoS, retain flag)."""

    must: list[Delivery] = field(default_factory=list)
    may: list[Delivery] = field(default_factory=list)
    one_of: list[tuple[list[tuple[oracle_key, Delivery]], bool]] = field(default_factory=list)


@dataclass(frozen=True)
class Delivery:
    topic: str
    content: Any
    whole: bool
    properties: oracle.Properties
    floor: str
    qos: int
    retain: bool

    def is_(self, packet: wire.Publish) -> bool:
        content: Any = packet.payload if self.whole else oracle.read_json(packet.payload)
        floors = [value for name, value in packet.properties.user_properties if name == "floor"]
        others = tuple(pair for pair in packet.properties.user_properties if pair[0] != "floor")
        return (
            packet.topic == self.topic
            and _same(content, self.content)
            and others == self.properties
            and floors == [self.floor]
            and packet.qos == self.qos
            and packet.retain == self.retain
        )


def _same(a: Any, b: Any) -> bool:
    return type(a) is type(b) and a == b


class Model:
    """Sessions, queues and retained messages, said plainly."""

    def __init__(self, world: worlds.World) -> None:
        self.config: worlds.Configuration = world.configuration
        self.now = float(world.start)
        self.clients: dict[oracle_key, Client] = {}
        self.retained: dict[str, Owed] = {}
        self.expected: dict[oracle_key, list[tuple[Delivery, bool]]] = {}
        self.shared: list[tuple[list[tuple[oracle_key, Delivery]], bool]] = []
        self.loose: list[tuple[Owed, str]] = []  # waits for one member of a group, and may be handed to another

    def expect(self, key: oracle_key, delivery: Delivery, certain: bool = True) -> None:
        self.expected.setdefault(key, []).append((delivery, certain))

    # -- deciding --------------------------------------------------------------------------------------------------

    def shown(
        self, owed: Owed, client: Client, subscription: oracle.Subscription, connection: oracle.Connection | None = None
    ) -> oracle.Delivered | None:
        message, context = owed
        return oracle.decide_read(
            self.config, context, message, connection or client.connection, subscription, self.now
        )[1]

    def made(
        self, owed: Owed, delivered: oracle.Delivered, qos: int, retain: bool, subscriptions: list[oracle.Subscription]
    ) -> Delivery:
        message, _ = owed
        granted = max(subscription.qos for subscription in subscriptions)
        return Delivery(
            topic=message.topic,
            content=delivered.payload if delivered.whole else json.loads(delivered.payload),
            whole=delivered.whole,
            properties=delivered.properties,
            floor=delivered.floor,
            qos=min(qos, granted),
            retain=retain,
        )

    # -- what happens ----------------------------------------------------------------------------------------------

    def publish(self, client: Client, message: oracle.Message) -> None:
        if not oracle.decide_write(self.config, client.connection, message, self.now).allowed:
            return
        event("published")
        context = oracle.context_of(self.config, client.connection, message, self.now)
        owed = (message, context)
        if message.retain:
            if message.payload:
                self.retained[message.topic] = owed
            else:
                self.retained.pop(message.topic, None)
        groups: dict[str, list[tuple[oracle_key, Client, oracle.Subscription]]] = {}
        for key, other in self.clients.items():
            plain = []
            for filter, subscription in other.subscriptions.items():
                group, inner = share(filter)
                if not matches(inner, message.topic):
                    continue
                if group is None:
                    plain.append(subscription)
                else:
                    groups.setdefault(filter, []).append((key, other, subscription))
            if plain:
                self.offer(key, other, owed, plain)
        for filter, members in groups.items():
            self.offer_one(filter, owed, members)

    def offer(self, key: oracle_key, other: Client, owed: Owed, plain: list[oracle.Subscription]) -> None:
        message = owed[0]
        if other.connected:
            if self.weak(owed, other):
                event("too weak")
                if message.qos and other.persistent and any(one.qos for one in plain):
                    self.wait(other, owed, None, plain, into=other.deferred)
                return
            passing = [(one, found) for one in plain if (found := self.shown(owed, other, one)) is not None]
            if passing and min(message.qos, max(one.qos for one, _ in passing)) and self.behind(other, owed):
                event("behind")
                certain = any(one.certain for one in self.behind(other, owed))
                if not certain:
                    delivery = self.made(owed, passing[0][1], message.qos, False, [one for one, _ in passing])
                    self.expect(key, delivery, certain=False)
                self.wait(other, owed, None, plain, certain, into=other.deferred)
            elif passing:
                event("delivered")
                if not passing[0][1].whole:
                    event("shown in part")
                if len(passing) < len(plain):
                    event("by some of its subscriptions")
                self.expect(key, self.made(owed, passing[0][1], message.qos, False, [one for one, _ in passing]))
        elif min(message.qos, max(one.qos for one in plain)):
            self.wait(other, owed, None, plain)

    def weak(self, owed: Owed, client: Client) -> bool:
        """Whether it would be denied because of the connection, and nothing before that step denies it."""
        decision = oracle.decide_read(
            self.config, owed[1], owed[0], client.connection, oracle.Subscription(filter="#"), self.now
        )[0]
        return decision.step is oracle.Step.LEVELS and oracle.too_weak(self.config, owed[1], client.connection)

    def behind(self, client: Client, owed: Owed) -> list[Waiting]:
        """What it has to wait behind: "Later messages of the same publisher and topic" """
        stream = stream_of(*owed)
        certain = [one for one in client.deferred if one.stream == stream]
        return certain + [  # for which member of its group they wait is not said
            Waiting(message=before[0], context=before[1], shared=filter, certain=False, subscribed={})
            for before, filter in self.loose
            if filter in client.subscriptions and stream_of(*before) == stream
        ]

    def offer_one(self, filter: str, owed: Owed, members: list[tuple[oracle_key, Client, oracle.Subscription]]) -> None:
        message = owed[0]
        there = []
        away = []
        for key, other, subscription in members:
            if not other.connected:
                if message.qos and other.persistent:
                    away.append((other, subscription))
            elif (found := self.shown(owed, other, subscription)) is not None:
                there.append((key, self.made(owed, found, message.qos, False, [subscription])))
            elif min(message.qos, subscription.qos) and other.persistent and self.weak(owed, other):
                away.append((other, subscription))
        waits = any(filter == one and stream_of(*owed) == stream_of(*before) for before, one in self.loose)
        if there:
            self.shared.append((there, not (waits and message.qos)))
        if (not there or (waits and message.qos)) and (away or there):
            self.loose.append((owed, filter))

    def handed(self, key: oracle_key, packet: wire.Publish) -> bool:
        """Whether a message is one that waited for another member of a group, and may be received by this one now."""
        client = self.clients.get(key)
        for entry in self.loose if client is not None else ():
            owed, filter = entry
            subscription = client.subscriptions.get(filter) if client is not None else None
            if subscription is None or client is None:
                continue
            found = self.shown(owed, client, subscription)
            if found is not None and self.made(owed, found, owed[0].qos, False, [subscription]).is_(packet):
                self.loose.remove(entry)
                return True
        return False

    def wait(
        self,
        other: Client,
        owed: Owed,
        shared: str | None,
        subscriptions: list[oracle.Subscription],
        certain: bool = True,
        into: list[Waiting] | None = None,
        retain: bool = False,
    ) -> None:
        message, context = owed
        (other.queue if into is None else into).append(
            Waiting(
                message=message,
                context=context,
                shared=shared,
                certain=certain and any(one.qos and self.possible(owed, other, one) for one in subscriptions),
                subscribed=dict(other.subscriptions),
                retain=retain,
            )
        )

    def possible(self, owed: Owed, client: Client, subscription: oracle.Subscription) -> bool:
        """Whether it might be sent over some connection."""
        who = client.connection
        ways = [
            oracle.Connection(client=who.client, user=who.user, level=level, facts=facts)
            for level in worlds.LEVELS
            for facts in worlds.FACTS
        ]
        return any(self.shown(owed, client, subscription, way) is not None for way in ways)

    def resume(self, key: oracle_key, client: Client) -> None:
        """What waited is decided now."""
        waited, client.deferred, client.queue = [*client.deferred, *client.queue], [], []
        for waiting in waited:
            owed = (waiting.message, waiting.context)
            if self.weak(owed, client):
                if client.persistent:
                    asked = [s for f, s in client.subscriptions.items() if _concerns(f, waiting)]
                    certain = waiting.certain and any(self.possible(owed, client, one) for one in asked)
                    client.deferred.append(replace(waiting, certain=certain))
                continue
            before = self.behind(client, owed)
            # what has been unsubscribed since is still owed; with which terms is not said
            now = {f: s for f, s in client.subscriptions.items() if _concerns(f, waiting)}
            asked = now or {f: s for f, s in waiting.subscribed.items() if _concerns(f, waiting)}
            passing = [(one, found) for one in asked.values() if (found := self.shown(owed, client, one)) is not None]
            if passing:
                event("resumed")
                delivery = replace(self.made(owed, passing[0][1], 1, waiting.retain, [passing[0][0]]), qos=1)
                if not any(one.certain for one in before):
                    self.expect(key, delivery, certain=waiting.certain and bool(now) and not before)
            if before:
                client.deferred.append(replace(waiting, certain=waiting.certain and any(one.certain for one in before)))

    def subscribe(self, key: oracle_key, client: Client, subscription: oracle.Subscription) -> bool:
        if not oracle.decide_subscribe(self.config, client.connection, subscription.filter, subscription.properties):
            return False
        client.subscriptions[subscription.filter] = subscription
        group, filter = share(subscription.filter)
        if group is None:
            for topic, owed in self.retained.items():
                if not matches(filter, topic):
                    continue
                lasting = min(owed[0].qos, subscription.qos) > 0
                found = self.shown(owed, client, subscription)
                before = self.behind(client, owed) if lasting and found is not None else []
                if before or (lasting and client.persistent and self.weak(owed, client)):
                    certain = not before or any(one.certain for one in before)
                    if found is not None and not certain:
                        self.expect(key, self.made(owed, found, owed[0].qos, True, [subscription]), certain=False)
                    self.wait(client, owed, None, [subscription], certain, into=client.deferred, retain=True)
                elif found is not None:
                    event("retained")
                    self.expect(key, self.made(owed, found, owed[0].qos, True, [subscription]))
        return True

    def lost(self, key: oracle_key, client: Client, fires: bool) -> None:
        will, client.will = client.will, None
        client.connected = False
        client.queue, client.deferred = [*client.deferred, *client.queue], []
        if not client.persistent:
            del self.clients[key]
        if will is not None and fires:
            self.publish(client, will)

    def reconfigure(self, configuration: worlds.Configuration) -> None:
        self.config = configuration
        for key, client in list(self.clients.items()):
            user = client.connection.user
            if user is not None and user not in configuration["directory"]["users"]:
                client.will = None
                if client.connected:
                    self.lost(key, client, fires=False)
            elif client.connected and client.deferred:
                self.resume(key, client)


def _concerns(filter: str, waiting: Waiting) -> bool:
    group, inner = share(filter)
    if waiting.shared is not None:
        return filter == waiting.shared
    return group is None and matches(inner, waiting.message.topic)


# -- both ----------------------------------------------------------------------------------------------


class Play:
    """One history, on both."""

    def __init__(self, world: worlds.World, bound: int) -> None:
        self.engine = Engine(world, bound)
        self.model = Model(world)

    def run(self, operation: worlds.Operation) -> None:
        engine, model = self.engine, self.model
        match operation:
            case worlds.Connect():
                self.connect(operation)
            case worlds.Disconnect(client=name) | worlds.Drop(client=name):
                for key, client in self.of(name):
                    fires = isinstance(operation, worlds.Drop)
                    if fires:
                        engine.ends[key].lose()
                    else:
                        engine.ends[key].send(wire.Disconnect(reason=0))
                    engine.ends.pop(key, None)
                    model.lost(key, client, fires)
                    self.check()
            case worlds.Subscribe(client=name, subscription=subscription):
                for key, client in self.of(name):
                    granted = model.subscribe(key, client, subscription)
                    end = engine.ends[key]
                    packet = wire.Subscribe(
                        packet_id=7,
                        subscriptions=(wire.Subscription(filter=subscription.filter, qos=subscription.qos),),
                        properties=wire.Properties(user_properties=subscription.properties),
                    )
                    end.send(packet)
                    self.check(suback=(key, granted))
            case worlds.Unsubscribe(client=name, filter=filter):
                for key, client in self.of(name):
                    client.subscriptions.pop(filter, None)
                    engine.ends[key].send(wire.Unsubscribe(packet_id=8, filters=(filter,)))
            case worlds.Publish(client=name, message=message):
                for key, client in self.of(name):
                    model.publish(client, message)
                    engine.ends[key].send(
                        wire.Publish(
                            topic=message.topic,
                            payload=message.payload,
                            qos=message.qos,
                            retain=message.retain,
                            packet_id=9 if message.qos else 0,
                            properties=wire.Properties(user_properties=message.properties)
                            if message.properties
                            else wire.NONE,
                        )
                    )
                    self.check()
            case worlds.Advance(seconds=seconds):
                model.now += seconds
                engine.world.turn(seconds)
            case worlds.Reconfigure(configuration=configuration):
                model.reconfigure(configuration)
                engine.people.config = built(configuration)
                engine.world.scope.change(engine.people.config.built.rules)
        self.check()

    def of(self, name: str) -> list[tuple[oracle_key, Client]]:
        """The sessions of that client id which are connected: one per principal."""
        return [(key, one) for key, one in self.model.clients.items() if key[1] == name and one.connected]

    def connect(self, operation: worlds.Connect) -> None:
        engine, model = self.engine, self.model
        connection = operation.connection
        key = (connection.user, connection.client)
        if connection.user is not None and connection.user not in model.config["directory"]["users"]:
            return  # it would not be let in
        said = (connection.properties, () if operation.will is None else operation.will.properties)
        if any(oracle.refused(model.config, properties) for properties in said):
            event("refused for its demand")
            assert not engine.connect(operation)
            return
        if not engine.connect(operation):
            # a will that is refused for good is denied now as well
            assert operation.will is not None
            assert not oracle.decide_write(model.config, connection, operation.will, model.now).allowed
            return
        old = model.clients.get(key)
        if old is not None and old.connected:
            model.lost(key, old, fires=True)
            old = model.clients.get(key)
        if operation.clean or old is None:
            old = Client(connection)
        model.clients.pop(key, None)
        model.clients[key] = old
        old.connection, old.connected, old.persistent = connection, True, operation.persistent
        old.will = operation.will
        model.resume(key, old)

    def check(self, suback: tuple[oracle_key, bool] | None = None) -> None:
        """What was received is what was expected, in any order, and nothing else."""
        model = self.model
        if suback is not None:
            key, granted = suback
            end = self.engine.ends[key]
            packets = end.take()
            (answer,) = [packet for packet in packets if isinstance(packet, wire.Suback)]
            assert (answer.reasons[0] < 0x80) == granted, answer
            found = {key: [packet for packet in packets if isinstance(packet, wire.Publish)]}
            for packet in found[key]:
                if packet.qos:
                    end.send(wire.Puback(packet_id=packet.packet_id))
            for other, more in self.engine.received().items():
                found.setdefault(other, []).extend(more)
        else:
            found = self.engine.received()
        left = {key: list(messages) for key, messages in found.items()}
        for key, expected in model.expected.items():
            for delivery, certain in sorted(expected, key=lambda one: not one[1]):  # others may look just the same
                got = left.get(key, [])
                hit = next((packet for packet in got if delivery.is_(packet)), None)
                if hit is not None:
                    got.remove(hit)
                else:
                    assert not certain, f"{key} did not receive {delivery}, but {found.get(key)}"
        for candidates, certain in sorted(model.shared, key=lambda one: len(one[0])):  # who has least choice first
            for key, delivery in candidates:
                hit = next((packet for packet in left.get(key, []) if delivery.is_(packet)), None)
                if hit is not None:
                    left[key].remove(hit)
                    break
            else:
                assert not certain, f"nobody received {candidates}"
        model.expected.clear()
        model.shared.clear()
        for key, packets in left.items():
            left[key] = [packet for packet in packets if not model.handed(key, packet)]
        assert not any(left.values()), f"received, but not allowed: {left}"
        assert not self.engine.world.bugs


HEALTH = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]


@settings(max_examples=examples(100, 2000), deadline=None, suppress_health_check=HEALTH)
@given(worlds.worlds(), st.sampled_from([400_000, 3]))
def test_what_clients_receive_is_what_the_specification_says(world: worlds.World, bound: int) -> None:
    """Plans compiled and kept, and plans thrown away all the time: the same decisions as without any."""
    played(world, bound)


@settings(max_examples=examples(50, 1500), deadline=None, suppress_health_check=HEALTH)
@given(st.integers(0, 2**32 - 1), st.sampled_from([400_000, 3]))
def test_and_also_in_long_histories(seed: int, bound: int) -> None:
    played(dense.world(seed), bound)


def played(world: worlds.World, bound: int) -> None:
    play = Play(world, bound)
    for operation in world.operations:
        note(repr(operation))
        play.run(operation)
