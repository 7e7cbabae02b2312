"""In shadow mode everybody gets what a plain broker would send, and what is said to be denied is what is denied.

Random configurations and clients, by the generators of the gate's oracle, on the real scope without sockets: the same
history is played twice, with the rules enforced and not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from gate import dense, worlds
from gate.test_decisions import Engine, oracle_key
from generated import examples
from tidegate import wire
from tidegate.gate import Deny, Lane, Plan, action_over
from tidegate.scope.decision_reports import Silent
from tidegate.session import Link, Message
from tidegate.topics import matches

Counts = Counter[tuple[str, ...]]
Received = list[tuple[str, bytes, int, tuple[tuple[str, str], ...]]]


class Recorder(Silent):
    """Adds up denials, also those that plans count."""

    def __init__(self) -> None:
        self.denials: Counts = Counter()
        self.shadowed: Counts = Counter()
        self._plans: list[tuple[str, Plan]] = []

    def denied(
        self,
        action: str,
        link: Link,
        topic: str,
        why: Deny,
        publishers: str | None = None,
        message: Message | None = None,
        *,
        shadow: bool = False,
        times: int = 1,
    ) -> None:
        counts = self.shadowed if shadow else self.denials
        counts[action, str(link), topic, why.step.value, why.rule, publishers or "", why.error or why.detail] += times

    def compiled(self, lane: Lane, plan: Plan) -> None:
        self._plans.append((lane.context.publishers if lane.own else "", plan))

    def settle(self) -> None:
        for publishers, plan in self._plans:
            for times, part in plan.take_counts():
                for link, why in part.denied:
                    self.denied(action_over(link, "read"), link, part.topic, why, publishers, times=times)
                for link, why in part.would:
                    self.denied(action_over(link, "read"), link, part.topic, why, publishers, times=times, shadow=True)


def played(world: worlds.World, *, enforced: bool) -> tuple[dict[oracle_key, Received], Recorder]:
    recorder = Recorder()
    engine = Engine(world, 10_000, enforced=enforced, audit=recorder)
    received: dict[oracle_key, Received] = {}
    users = {
        step.connection.client: step.connection.user for step in world.operations if isinstance(step, worlds.Connect)
    }
    for operation in world.operations:
        match operation:
            case worlds.Connect():
                assert engine.connect(operation)
            case worlds.Subscribe(client=client, subscription=one):
                engine.ends[users[client], client].send(
                    wire.Subscribe(
                        packet_id=1,
                        subscriptions=(wire.Subscription(filter=one.filter, qos=one.qos),),
                        properties=wire.Properties(user_properties=one.properties),
                    )
                )
            case worlds.Publish(client=client, message=message):
                engine.ends[users[client], client].send(
                    wire.Publish(
                        topic=message.topic,
                        payload=message.payload,
                        qos=message.qos,
                        packet_id=1 if message.qos else 0,
                        properties=wire.Properties(user_properties=message.properties),
                    )
                )
            case worlds.Advance(seconds=seconds):
                engine.world.turn(seconds)
        for key, messages in engine.received().items():
            received.setdefault(key, []).extend(
                (each.topic, each.payload, each.qos, each.properties.user_properties) for each in messages
            )
    recorder.settle()
    assert not engine.world.bugs
    return received, recorder


def plain(world: worlds.World) -> dict[oracle_key, Received]:
    """What a broker without rules sends."""
    received: dict[oracle_key, Received] = {}
    filters: dict[str, dict[str, int]] = {}
    users: dict[str, str | None] = {}
    for operation in world.operations:
        match operation:
            case worlds.Connect(connection=connection):
                users[connection.client] = connection.user
                received[connection.user, connection.client] = []
            case worlds.Subscribe(client=client, subscription=one):
                filters.setdefault(client, {})[one.filter] = one.qos
            case worlds.Publish(message=message):
                for client, known in filters.items():
                    found = [qos for filter, qos in known.items() if matches(filter, message.topic)]
                    if found:
                        qos = min(max(found), message.qos)
                        sent = (message.topic, message.payload, qos, message.properties)
                        received[users[client], client].append(sent)
    return received


def simple(world: worlds.World) -> worlds.World:
    """All clients come once, and stay; nothing is retained or shared, and the rules stay as they are.

    Nobody subscribes to the same filter twice: if the second SUBSCRIBE is refused the first counts under enforcement,
    and in shadow mode the second has replaced it.
    """

    def steps() -> Iterator[worlds.Operation]:
        here: set[str] = set()
        subscribed: set[tuple[str, str]] = set()
        for operation in world.operations:
            match operation:
                case worlds.Connect(connection=connection) if connection.client not in here:
                    here.add(connection.client)
                    calm = replace(connection, properties=())
                    yield replace(operation, connection=calm, will=None, clean=True, persistent=False)
                case worlds.Subscribe(client=client, subscription=one):
                    if not one.filter.startswith("$share") and (client, one.filter) not in subscribed:
                        subscribed.add((client, one.filter))
                        yield operation
                case worlds.Publish(message=message):
                    yield replace(operation, message=replace(message, retain=False))
                case worlds.Advance():
                    yield operation
                case _:
                    pass

    return replace(world, operations=tuple(steps()))


@given(st.integers(0, 2**32))
@settings(max_examples=examples(60, long=2000), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_shadow_sends_what_a_plain_broker_sends_and_says_what_is_denied(seed: int) -> None:
    world = simple(dense.world(seed))
    _, enforced = played(world, enforced=True)
    received, shadow = played(world, enforced=False)
    assert received == plain(world)
    assert shadow.shadowed == enforced.denials
    assert not shadow.denials
    event(f"denials: {min(len(enforced.denials), 5)}")


def test_the_law_can_fail() -> None:
    """Some world has denials of each kind."""
    steps = {key[3] for seed in range(20) for key in played(simple(dense.world(seed)), enforced=True)[1].denials}
    assert {"write", "read", "levels"} <= steps, steps
