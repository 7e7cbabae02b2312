"""Publishers that are decided alike, and whose messages the audit has to tell apart: lanes of their own."""

from __future__ import annotations

import gc
import weakref

import pytest

from policy.written import policy_of
from pure import End, World
from tidegate import wire
from tidegate.gate import Lane, Plan, RuleSet
from tidegate.policy import Policies

RULES = RuleSet(
    policies=Policies(
        [
            policy_of(id="w", subject="*", topic="#", action="write"),
            policy_of(id="r", subject="*", topic="open/#", action="read"),
        ]
    )
)
SENDERS = 50


class Counted(World):
    """A world whose gate counts by source, and where compilations are counted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(rules=RULES)
        self.compiled: list[str] = []
        gate = self.scope.gate
        gate.counts_denied = True
        compile = gate.compiler.compile

        def counted(topic: str, lane: Lane, watched: bool = False) -> Plan:
            self.compiled.append(topic)
            return compile(topic, lane, watched)

        monkeypatch.setattr(gate.compiler, "compile", counted)


def say(end: End, topic: str) -> None:
    end.send(wire.Publish(topic=topic, payload=b"x"))


def plans(end: End) -> dict[bytes, Plan]:
    found: dict[bytes, Plan] = end.connection.reader.lane.plans  # type: ignore[assignment]
    return found


def test_the_first_compiles_for_all_of_its_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Counted(monkeypatch)
    reader = world.peer("reader")
    reader.subscribe("#")
    senders = [world.peer(f"s{number}") for number in range(SENDERS)]
    for number, sender in enumerate(senders):
        for _ in range(number + 1):
            say(sender, "shut")
        say(sender, "open/1")
    assert world.compiled.count("shut") == 2  # to find out that somebody is denied, and for the first of them
    assert world.compiled.count("open/1") == 1
    assert [plans(sender)[b"shut"].passed for sender in senders] == list(range(1, SENDERS + 1))
    assert {plans(sender)[b"open/1"].passed for sender in senders} == {1}
    assert len(reader.messages()) == SENDERS
    assert all(plans(sender)[b"shut"].cost == 1 for sender in senders[1:])


def test_nobody_follows_a_plan_that_denies_in_a_shared_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Counted(monkeypatch)
    one, two = world.peer("one"), world.peer("two")
    say(one, "t")
    say(two, "t")
    assert plans(one) is plans(two)
    world.peer("reader").subscribe("#")
    assert not plans(one)
    say(one, "t")
    assert b"t" not in plans(two)
    assert plans(one)[b"t"].denied
    say(two, "t")
    assert plans(two)[b"t"].passed == plans(one)[b"t"].passed == 1


def test_copies_are_removed_with_what_they_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a subscription, by other rules, by an evicted sample."""
    world = Counted(monkeypatch)
    reader, other = world.peer("reader"), world.peer("other")
    reader.subscribe("#")
    senders = [world.peer(f"s{number}") for number in range(3)]
    for sender in senders:
        say(sender, "t")
    other.subscribe("+/#")
    assert not any(plans(sender) for sender in senders)
    for sender in senders:
        say(sender, "t")
        assert {link.subject.client for link, _ in plans(sender)[b"t"].denied} == {"reader", "other"}
    world.scope.change(RuleSet())
    for sender in senders:
        say(sender, "t")
    assert plans(senders[0]) is plans(senders[1])  # nobody is denied anything any more
    assert not plans(senders[0])[b"t"].denied
    assert len(other.messages()) == 3


def test_own_lanes_keep_within_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Counted(monkeypatch)
    world.peer("reader").subscribe("#")
    cache = world.scope.gate.cache
    cache.bound = 100
    senders = [world.peer(f"s{number}") for number in range(20)]
    for number in range(400):
        say(senders[number % 20], f"t/{number % 37}")
        assert cache.cost <= 100
    assert cache.cost == sum(plan.cost for _, plan in cache.plans())


def test_somebody_who_comes_back_has_the_same_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Counted(monkeypatch)
    world.peer("reader").subscribe("#")
    first = world.peer("sender")
    say(first, "t")
    before = plans(first)
    again = world.peer("sender")
    assert plans(again) is before
    say(again, "t")
    assert before[b"t"].passed == 2


def test_options_of_a_message_too(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Counted(monkeypatch)
    world.peer("reader").subscribe("#")
    demanding = wire.Properties(user_properties=(("require", "tls"),))
    for name in ("one", "two"):
        end = world.peer(name)
        end.send(wire.Publish(topic="t", payload=b"x", properties=demanding))
        lane = end.connection.reader.lane
        assert isinstance(lane, Lane)
        assert lane.own
        (variant,) = (lane.variants or {}).values()
        assert variant.own
        assert (variant.context.publishers, variant.plans[b"t"].passed) == (f"client:{name}", 1)


def test_lanes_go_with_their_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the garbage collector, which would look at everything else as well."""
    world = Counted(monkeypatch)
    world.peer("reader").subscribe("#")
    ends = [world.peer(f"s{number}") for number in range(5)]
    for end in ends:
        say(end, "t")
    known = [weakref.ref(end.connection.reader.lane) for end in ends]
    gc.disable()
    try:
        world.scope.change(RuleSet())
        for end in ends:
            say(end, "t")
        for _ in range(10):
            world.turn()
        assert [lane() for lane in known] == [None] * 5
    finally:
        gc.enable()


def test_what_comes_without_a_packet_is_not_compiled_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Counted(monkeypatch)
    world.peer("reader").subscribe("#")
    link = world.peer("sender", version=wire.V311).connection.session.inward
    for _ in range(5):
        assert world.scope.plans.over(link, b"t").denied
        world.scope.path.send(link, "t", b"x")
    assert world.compiled.count("t") == 2
    assert world.scope.plans.over(link, b"t").passed == 5
