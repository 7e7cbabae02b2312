"""The gate: a compiled plan decides as its stages do one by one, and no plan outlives what it was made from."""

from __future__ import annotations

import gc
from collections.abc import Hashable
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy.written import policy_of
from pure import End, World
from tidegate import wire
from tidegate.gate import Allow, Deny, Known, RuleSet, Step
from tidegate.gate.stages.write_reserved_topics import ReservedTopicStage
from tidegate.gate.verdict import ALLOW, Answer, Residual
from tidegate.policy import Environment, Policies
from tidegate.session import Link, Message, Subject
from tidegate.topics import matches

USERS = ("ann", "bob", "cyd")
TOPICS = ("a", "a/b", "a/c", "b", "b/c/d")
FILTERS = ("#", "a/#", "+/b", "a", "a/b", "b/+/d", "+")
PAYLOADS = (b"1", b"2")
CLOSED = RuleSet(policies=Policies(()))


@dataclass(frozen=True)
class Rule:
    """A stage for tests: denies some users on some topics, or for some payloads only."""

    step: Step
    name: str
    user: str
    filter: str
    payload: bytes | None

    def _actor(self, known: Known) -> Subject | None:
        if self.step is Step.WRITE:
            return known.context.subject
        return known.target.subject if known.target is not None else None

    def evaluate(self, known: Known) -> Answer:
        actor = self._actor(known)
        if actor is None or actor.user != self.user or not matches(self.filter, known.topic):
            return ALLOW
        no = Deny(step=self.step, rule=self.name)
        if self.payload is None:
            return no
        return Residual(lambda message: no if message.payload == self.payload else ALLOW)

    def cache_key(self, source: Link) -> Hashable:
        return source.subject.user == self.user

    def grant(self, filter: str, target: Link) -> Allow | Deny:
        return ALLOW

    def forbids(self, user: str, topic: str, payload: bytes) -> bool:
        """The same, said plainly and without compiling."""
        return user == self.user and matches(self.filter, topic) and self.payload in (None, payload)


def rules(step: Step) -> st.SearchStrategy[tuple[Rule, ...]]:
    one = st.builds(
        Rule,
        step=st.just(step),
        name=st.sampled_from(("r1", "r2")),
        user=st.sampled_from(USERS),
        filter=st.sampled_from(FILTERS),
        payload=st.sampled_from((None, *PAYLOADS)),
    )
    return st.lists(one, max_size=3).map(tuple)


actions = st.one_of(
    st.tuples(
        st.just("publish"),
        st.sampled_from(USERS),
        st.sampled_from(TOPICS),
        st.sampled_from(PAYLOADS),
        st.integers(0, 2),
        st.booleans(),  # with a property, so that it takes the general path
    ),
    st.tuples(st.just("subscribe"), st.sampled_from(USERS), st.sampled_from(FILTERS), st.integers(0, 2)),
    st.tuples(st.just("unsubscribe"), st.sampled_from(USERS), st.sampled_from(FILTERS)),
    st.tuples(st.just("change"), rules(Step.WRITE), rules(Step.READ)),
)


@settings(max_examples=150, deadline=None)
@given(rules(Step.WRITE), rules(Step.READ), st.lists(actions, max_size=40), st.booleans())
def test_plan_decides_as_its_stages_do(
    write: tuple[Rule, ...], read: tuple[Rule, ...], script: list[tuple[object, ...]], tiny: bool
) -> None:
    """Changes of policies and subscriptions interleaved with traffic, with plans evicted all the time and not."""
    world = World(ingress=write, egress=read)
    if tiny:
        world.scope.gate.cache.bound = 3
    ends = {user: world.peer(user, username=user, version=4 + (user == "bob")) for user in USERS}
    for end in ends.values():
        end.take()
    subscribed: dict[str, dict[str, int]] = {user: {} for user in USERS}
    for action in script:
        match action:
            case ("publish", str(user), str(topic), bytes(payload), int(qos), bool(general)):
                end = ends[user]
                properties = wire.Properties(content_type="x") if general else wire.NONE
                pid = 9 if qos else 0
                end.send(wire.Publish(topic=topic, payload=payload, qos=qos, packet_id=pid, properties=properties))
                if qos == 2:
                    end.send(wire.Pubrel(packet_id=pid))
                admitted = not any(rule.forbids(user, topic, payload) for rule in write)
                for other, filters in subscribed.items():
                    hits = [level for filter, level in filters.items() if matches(filter, topic)]
                    passes = admitted and hits and not any(rule.forbids(other, topic, payload) for rule in read)
                    got = [(m.topic, m.payload, m.qos) for m in ends[other].messages()]
                    assert got == ([(topic, payload, min(qos, max(hits)))] if passes else [])
            case ("subscribe", str(user), str(filter), int(qos)):
                ends[user].subscribe(filter, qos)
                ends[user].take()
                subscribed[user][filter] = qos
            case ("unsubscribe", str(user), str(filter)):
                ends[user].send(wire.Unsubscribe(packet_id=2, filters=(filter,)))
                ends[user].take()
                subscribed[user].pop(filter, None)
            case ("change", tuple(new_write), tuple(new_read)):
                write, read = new_write, new_read
                world.scope.gate.enforce(write, read)
                for end in ends.values():
                    end.connection.reader.lane = world.scope.gate.lane(end.connection.session.inward, end.version)
    assert not world.bugs


def subject(user: str = "ann", kind: str = "client") -> Subject:
    return Subject(kind=kind, client=user, user=user, scope="main", node="n")


def test_sources_alike_share_a_lane() -> None:
    world = World()
    one, two = world.peer("one"), world.peer("two")
    assert one.connection.reader.lane is two.connection.reader.lane
    assert world.peer("three", version=4).connection.reader.lane is not one.connection.reader.lane


def test_a_subscription_reaches_only_the_plans_it_matches() -> None:
    world = World()
    pub = world.peer("pub")
    for topic in ("a/b", "a/c", "b"):
        pub.send(wire.Publish(topic=topic, payload=b"x"))
    plans = dict(pub.connection.reader.lane.plans)
    world.peer("sub").subscribe("a/+")
    assert set(pub.connection.reader.lane.plans) == {b"b"}
    assert pub.connection.reader.lane.plans[b"b"] is plans[b"b"]


def test_plans_are_bounded_and_the_bound_is_kept_by_dropping_the_oldest() -> None:
    world = World()
    gate = world.scope.gate
    gate.cache.bound = 100
    pub = world.peer("pub")
    for number in range(1000):
        pub.send(wire.Publish(topic=f"t/{number}", payload=b"x"))
    assert len(gate.cache) <= 100
    assert gate.cache.cost <= 100
    assert b"t/999" in pub.connection.reader.lane.plans
    assert b"t/0" not in pub.connection.reader.lane.plans


def test_churn_leaves_no_garbage() -> None:
    world = World()
    gate = world.scope.gate
    pub, sub = world.peer("pub"), world.peer("sub")
    for number in range(5000):
        pub.feed(wire.encode(wire.Publish(topic=f"t/{number % 7}", payload=b"x"), wire.V5))
        sub.feed(
            wire.encode(
                wire.Subscribe(packet_id=1, subscriptions=(wire.Subscription(filter=f"t/{number % 7}"),)), wire.V5
            )
        )
    world.turn()
    assert len(gate.cache._order) < 2200
    assert gate.cache.cost == sum(plan.cost for lane in gate.cache.lanes.values() for plan in lane.plans.values())


def test_a_change_of_policy_decides_the_next_message() -> None:
    world = World()
    pub, sub = world.peer("pub"), world.peer("sub")
    sub.subscribe("a")
    sub.take()
    pub.send(wire.Publish(topic="a", payload=b"1"))
    assert [m.payload for m in sub.messages()] == [b"1"]
    world.scope.change(CLOSED)
    pub.send(wire.Publish(topic="a", payload=b"2"))  # even a peer whose lane nobody has replaced
    assert sub.messages() == []


@pytest.mark.parametrize("qos", [1, 2])
def test_what_waits_is_decided_when_it_is_sent(qos: int) -> None:
    world = World()
    pub = world.peer("pub")
    sub = world.peer("sub", properties=wire.Properties(receive_maximum=1))
    sub.subscribe("a", qos)
    sub.take()
    for number in (b"1", b"2", b"3"):
        pub.send(wire.Publish(topic="a", payload=number, qos=qos, packet_id=5))
        if qos == 2:
            pub.send(wire.Pubrel(packet_id=5))
    (first,) = sub.messages()
    assert first.payload == b"1"
    denies_2 = Rule(Step.READ, "no twos", "ann", "a", b"2")
    world.scope.gate.enforce((), (Everybody(denies_2),))
    _acknowledge(sub, first)
    assert [m.payload for m in sub.messages()] == [b"3"]


@dataclass(frozen=True)
class Everybody:
    """Wraps a rule so that it holds for everybody."""

    rule: Rule
    step = Step.READ

    def evaluate(self, known: Known) -> Answer:
        rule = self.rule
        return Residual(lambda m: Deny(step=rule.step, rule=rule.name) if m.payload == rule.payload else ALLOW)

    def cache_key(self, source: Link) -> Hashable:
        return 0

    def grant(self, filter: str, target: Link) -> Allow | Deny:
        return ALLOW


def _acknowledge(end: End, message: wire.Publish) -> None:
    if message.qos == 1:
        end.send(wire.Puback(packet_id=message.packet_id))
    else:
        end.send(wire.Pubrec(packet_id=message.packet_id), wire.Pubcomp(packet_id=message.packet_id))


def test_retained_is_decided_when_it_is_sent() -> None:
    world = World()
    pub = world.peer("pub")
    pub.send(wire.Publish(topic="a", payload=b"1", retain=True), wire.Publish(topic="b", payload=b"2", retain=True))
    world.scope.gate.enforce((), (Everybody(Rule(Step.READ, "no ones", "ann", "#", b"1")),))
    sub = world.peer("sub")
    sub.subscribe("#")
    assert [(m.topic, m.retain) for m in sub.messages()] == [("b", True)]


def test_in_flight_that_is_denied_is_not_sent_again() -> None:
    world = World()
    pub = world.peer("pub")
    keep = wire.Properties(session_expiry_interval=100)
    sub = world.peer("sub", properties=keep)
    sub.subscribe("a", 1)
    for number in (b"1", b"2"):
        pub.send(wire.Publish(topic="a", payload=number, qos=1, packet_id=1))
    assert [m.payload for m in sub.messages()] == [b"1", b"2"]
    sub.lose()
    world.scope.gate.enforce((), (Everybody(Rule(Step.READ, "no ones", "ann", "#", b"1")),))
    again = world.peer("sub", clean_start=False, properties=keep)
    assert [(m.payload, m.dup) for m in again.messages()] == [(b"2", True)]


def test_a_denied_retained_publish_neither_sets_nor_clears() -> None:
    world = World(ingress=(Rule(Step.WRITE, "no", "ann", "a", b""),))
    ann = world.peer("ann", username="ann")
    ann.send(wire.Publish(topic="a", payload=b"1", retain=True))
    ann.send(wire.Publish(topic="a", payload=b"", retain=True))
    kept = world.scope.retained.get("a")
    assert kept is not None
    assert kept.payload == b"1"


def test_reserved_topics_are_for_services() -> None:
    world = World(ingress=(ReservedTopicStage(),))
    end = world.peer("c")
    end.take()
    end.send(wire.Publish(topic="$SYS/x", payload=b"1", qos=1, packet_id=1))
    (ack,) = end.take()
    assert isinstance(ack, wire.Puback)
    assert ack.reason == 0x87
    service = Link(subject("sys", "service"), True, "in")
    assert world.scope.path.send(service, "$SYS/x", b"1") == 0


def test_default_deny() -> None:
    world = World(rules=CLOSED)
    end = world.peer("c")
    end.take()
    end.send(wire.Publish(topic="a", payload=b"1", qos=1, packet_id=1))
    end.subscribe("a")
    ack, suback = end.take()
    assert isinstance(ack, wire.Puback)
    assert isinstance(suback, wire.Suback)
    assert (ack.reason, suback.reasons) == (0x87, (0x87,))


def test_a_will_that_may_not_be_published_refuses_the_connection_and_leaves_the_old_one() -> None:
    world = World(rules=CLOSED)
    first = world.peer("c")
    will = wire.Will(topic="a", payload=b"x", qos=0, retain=False)
    second = world.peer("c", will=will)
    (connack,) = second.take()
    assert isinstance(connack, wire.Connack)
    assert connack.reason == 0x87
    assert second.closed
    assert not first.closed


def test_shared_subscription_chooses_among_allowed_members() -> None:
    world = World(egress=(Rule(Step.READ, "no", "bob", "a", None),))
    members = {user: world.peer(user, username=user) for user in ("ann", "bob", "cyd")}
    for end in members.values():
        end.subscribe("$share/g/a")
        end.take()
    pub = world.peer("pub")
    for _ in range(10):
        pub.send(wire.Publish(topic="a", payload=b"1"))
    counts = {user: len(end.messages()) for user, end in members.items()}
    assert counts == {"ann": 5, "bob": 0, "cyd": 5}


def test_gate_counts_what_passed() -> None:
    world = World()
    pub, sub = world.peer("pub"), world.peer("sub")
    sub.subscribe("a")
    for _ in range(4):
        pub.send(wire.Publish(topic="a", payload=b"1"))
    plan = pub.connection.reader.lane.plans[b"a"]
    assert plan.passed == 4


def test_decide_without_stages_allows() -> None:
    world = World()
    message = Message("a", b"", 0, False, 0.0, world.site.origin, 1, b"", "in")
    assert world.scope.gate.decide(message, world.peer("c").connection.session) is message


def _clocked(when: str) -> RuleSet:
    policy = policy_of(id="p", subject="*", topic="#", action=["read", "write"], when=when)
    return RuleSet(policies=Policies((policy,)), environment=Environment(zone=ZoneInfo("Europe/Rome")))


def test_a_plan_decided_by_the_clock_takes_the_fast_lane_and_ends_with_the_hour() -> None:
    world = World(rules=_clocked("e.hour == 10"))
    world.wall = datetime(2026, 11, 15, 10, 59, 58, tzinfo=ZoneInfo("Europe/Rome")).timestamp()
    world.turn(0.5)
    pub, sub = world.peer("pub"), world.peer("sub")
    sub.subscribe("a")
    sub.take()
    for seconds, expected in ((0.5, [b"1"]), (0.999, [b"1"]), (0.001, []), (1.0, []), (-3.0, [b"1"])):
        world.turn(seconds)
        pub.send(wire.Publish(topic="a", payload=b"1"))
        plan = pub.connection.reader.lane.plans[b"a"]
        assert plan.refusal is not None if not expected else plan.fast is not None
        assert [m.payload for m in sub.messages()] == expected, seconds


def test_messages_that_ask_for_something_leave_no_lanes_behind() -> None:
    world = World()
    gate = world.scope.gate
    gate.cache.bound = 50
    pub = world.peer("pub")
    for number in range(300):
        asks = wire.Properties(user_properties=(("view", f'{{"user:u{number}": "all"}}'),))
        pub.send(wire.Publish(topic="t", payload=b"{}", properties=asks))
    variants = pub.connection.reader.lane.variants
    assert variants is not None
    assert len(variants) <= 50
    assert gate.cache.cost <= 50


def test_lanes_go_with_the_last_who_used_them() -> None:
    policy = policy_of(id="p", subject="*", topic="{s.client}/#", action=["read", "write"])
    world = World(rules=RuleSet(policies=Policies((policy,))))
    world.scope.gate.cache.bound = 10
    for number in range(100):
        end = world.peer(f"c{number}")
        end.send(wire.Publish(topic=f"c{number}/x", payload=b"1"))
        end.lose()
    gc.collect()  # a connection that is over is a cycle of objects
    assert len(world.scope.gate.cache.lanes) <= 12


@pytest.mark.parametrize("when", ["e.now > timestamp('2026-11-20T00:00:00Z')", "within(e.now, '10:00-11:00')"])
def test_a_clock_that_is_put_back_decides_anew(when: str) -> None:
    """Also what would never have changed again, had the clock gone on."""
    world = World(rules=_clocked(when))
    world.wall = datetime(2026, 11, 21, 10, 30, tzinfo=ZoneInfo("Europe/Rome")).timestamp()
    pub, sub = world.peer("pub"), world.peer("sub")
    sub.subscribe("a")
    pub.send(wire.Publish(topic="a", payload=b"1", retain=True))
    assert len(sub.messages()) == 1
    world.turn(-10 * 86400 + 3600)
    pub.send(wire.Publish(topic="a", payload=b"2"))
    assert sub.messages() == []
    sub.subscribe("a")  # and the retained one
    assert sub.messages() == []


def test_a_flood_of_new_topics_is_worked_off_in_pieces() -> None:
    """Who sends thousands of new topics at once waits; the others do not."""
    world = World()
    pub, other, sub = world.peer("pub"), world.peer("other"), world.peer("sub")
    sub.subscribe("#")
    sub.take()
    pub.feed(b"".join(wire.encode(wire.Publish(topic=f"t/{n}", payload=b"x"), wire.V5) for n in range(1000)))
    assert pub.paused
    assert len(world.scope.gate.cache) < 100
    other.feed(wire.encode(wire.Pingreq(), wire.V5))
    assert any(isinstance(packet, wire.Pingresp) for packet in other.take())
    while pub.paused:
        world.turn(0.001)
    assert [message.topic for message in sub.messages()] == [f"t/{n}" for n in range(1000)]
