"""How many subscriptions of one session can match one topic: as many as they have patterns of wildcards."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pure import World
from tidegate import wire
from tidegate.scope.subscription_patterns import pattern_of
from tidegate.session import Limits
from tidegate.topics import matches

QUOTA = 0x97
levels = st.sampled_from(["", "a", "b", "$c", "+"])
filters = st.tuples(st.lists(levels, min_size=1, max_size=6), st.booleans()).map(
    lambda drawn: "/".join([*drawn[0], *(["#"] if drawn[1] else [])])
)


@given(filters, filters, st.lists(st.sampled_from(["", "a", "b", "$c"]), min_size=1, max_size=7).map("/".join))
def test_filters_of_one_pattern_never_match_the_same_topic(one: str, other: str, topic: str) -> None:
    if one != other and pattern_of(one) == pattern_of(other) != "":
        assert not (matches(one, topic) and matches(other, topic))


@pytest.mark.parametrize(
    ("filter", "pattern"),
    [
        ("a/b", ""),
        ("$share/group/a/b", ""),
        ("a/+", "/+"),
        ("bb/+", "/+"),
        ("$share/group/bb/+", "/+"),
        ("+/a", "+/"),
        ("a//+", "//+"),
        ("a/b/#", "//#"),
        ("#", "#"),
    ],
)
def test_patterns(filter: str, pattern: str) -> None:
    assert pattern_of(filter) == pattern


def granted(answers: list[wire.Packet]) -> list[int]:
    return [int(reason) for each in answers if isinstance(each, wire.Suback) for reason in each.reasons]


def test_a_session_has_so_many_patterns() -> None:
    world = World(limits=Limits(patterns=3))
    end = world.peer("greedy", properties=wire.Properties(session_expiry_interval=1000))
    end.take()

    def subscribe(*names: str) -> list[int]:
        subscriptions = tuple(wire.Subscription(filter=name) for name in names)
        end.send(wire.Subscribe(packet_id=1, subscriptions=subscriptions))
        return granted(end.take())

    assert subscribe("a/+", "+/a", "#", "+/+") == [0, 0, 0, QUOTA]
    assert subscribe("b/+", "c/+", "a/b", "a/b/c/d", "a/+") == [0] * 5, "names alone make no pattern"
    assert subscribe("a/#", "$share/g/+/+") == [QUOTA] * 2
    end.send(wire.Unsubscribe(packet_id=2, filters=("+/a", "b/+")))
    end.take()
    assert subscribe("+/+", "x/y/+") == [0, QUOTA], "one of two filters of a pattern leaves, and the pattern stays"
    scope = world.scope
    (session,) = [each for each in scope.sessions.values() if each.client == "greedy"]
    assert scope.subscribing.patterns.count(session) == 3
    scope.lifetime.end(session)
    assert scope.subscribing.patterns.count(session) == 0


def test_hostile_filters_are_no_longer_found_by_thousands() -> None:
    """All filters of 12 levels that are `a` or `+`: 4,096 of them matched one topic."""
    world = World()
    end = world.peer("hostile")
    end.take()
    names = ["/".join(each) for each in product("a+", repeat=12)]
    reasons: list[int] = []
    for at in range(0, len(names), 512):
        subscriptions = tuple(wire.Subscription(filter=name) for name in names[at : at + 512])
        end.send(wire.Subscribe(packet_id=1, subscriptions=subscriptions))
        for _ in range(200):  # a heavy client is served with rests in between
            if len(reasons) > at:
                break
            world.turn(0.1)
            reasons += granted(end.take())
    assert len(reasons) == 4096
    most = world.site.limits.patterns
    assert reasons.count(0) == most + 1  # and one without wildcards
    found = world.scope.subscriptions.match(["a"] * 12)
    assert len(found) == most + 1
    assert world.scope.subscriptions.visited <= 3 * most
