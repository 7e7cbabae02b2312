"""Messages over links between scopes of one node."""

from __future__ import annotations

import pytest

from scope.spaces import COMPONENT, both, chain, got, hierarchy, say, world
from tidegate import wire
from tidegate.policy.brokering import Brokering, Types
from tidegate.policy.scopes import ScopeGraph, ScopeLink, TopicMapping


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("version", [wire.V311, wire.V5])
def test_a_message_goes_through_a_chain(qos: int, version: int) -> None:
    here = world(chain("a", "b", "c", "d", "e"))
    far, near = here.peer("far", scope="e"), here.peer("near", scope="a")
    for end in (far, near):
        end.subscribe("t/#", qos=1)
    source = here.peer("source", scope="a", version=version)
    for number in (b"1", b"2", b"3"):
        say(source, "t/1", number, qos=qos)
        if qos == 2:
            source.send(wire.Pubrel(packet_id=7))
        assert got(far) == got(near) == [("t/1", number)]


def test_the_fast_lane_leads_through_all_scopes() -> None:
    here = world(chain("a", "b", "c"))
    far = here.peer("far", scope="c")
    far.subscribe("t")
    source = here.peer("source", scope="a")
    say(source, "t")
    assert got(far) == [("t", b"x")]
    plan = source.connection.reader.lane.plans[b"t"]
    assert plan.fast == (far.connection.session,)
    far.send(wire.Unsubscribe(packet_id=3, filters=("t",)))
    assert b"t" not in source.connection.reader.lane.plans  # a subscription two scopes away has gone
    say(source, "t")
    assert got(far) == []


def test_components_do_not_lead_down_and_up_again() -> None:
    here = world(
        hierarchy({"left": ["top"], "right": ["top"], "shared": ["left", "other"], "other": []}), brokering=COMPONENT
    )
    ends = {name: here.peer(name, scope=name) for name in ("left", "right", "top", "shared", "other")}
    for end in ends.values():
        end.subscribe("#")

    def reached(source: str) -> set[str]:
        say(here.peer("speaker", scope=source), "t")
        return {name for name, end in ends.items() if got(end)}

    assert reached("top") == {"top", "left", "right", "shared"}
    assert reached("shared") == {"shared", "left", "other", "top", "right"}
    assert reached("other") == {"other", "shared"}
    assert reached("left") == {"left", "top", "right", "shared"}


def test_nobody_gets_it_twice_over_a_diamond() -> None:
    links = (*both("a", "b"), *both("a", "c"), *both("b", "d"), *both("c", "d"))
    here = world(ScopeGraph(scopes=("a", "b", "c", "d"), links=links))
    end = here.peer("end", scope="d")
    end.subscribe("#", qos=1)
    source = here.peer("source", scope="a")
    for qos in (0, 1):
        say(source, "t", qos=qos)
        assert got(end) == [("t", b"x")]


def test_a_complete_graph_of_scopes_is_no_trouble() -> None:
    names = tuple(f"s{number}" for number in range(12))
    links = tuple(ScopeLink(source=one, target=other) for one in names for other in names if one != other)
    here = world(ScopeGraph(scopes=names, links=links))
    ends = [here.peer("end", scope=name) for name in names]
    for end in ends:
        end.subscribe("#", qos=1)
    source = here.peer("source", scope="s0")
    for qos in (0, 1):
        say(source, "t", qos=qos)
        assert [got(end) for end in ends] == [[("t", b"x")]] * 12


def test_shares_rename_and_limit() -> None:
    shares = (
        TopicMapping(filter="+/speed", there="gym/", qos=0),
        TopicMapping(filter="in/#", here="local/", there="remote/"),
    )
    here = world(ScopeGraph(scopes=("a", "b"), links=both("a", "b", *shares)))
    end = here.peer("end", scope="b")
    end.subscribe("#", qos=2)
    source = here.peer("source", scope="a")
    say(source, "t1/speed", qos=1)
    say(source, "t1/heartbeat", qos=1)
    say(source, "local/in/x", qos=1)
    found = [packet for packet in end.take() if isinstance(packet, wire.Publish)]
    assert [(packet.topic, packet.qos) for packet in found] == [("gym/t1/speed", 0), ("remote/in/x", 1)]


def test_retained_messages_are_kept_in_every_scope_that_they_reach() -> None:
    here = world(chain("a", "b", "c"))
    source = here.peer("source", scope="a")
    say(source, "t", b"kept", retain=True)
    end = here.peer("end", scope="c")
    end.subscribe("t")
    assert got(end) == [("t", b"kept")]
    say(source, "t", b"", retain=True)
    assert got(end) == [("t", b"")]
    late = here.peer("late", scope="b")
    late.subscribe("t")
    assert got(late) == []


def test_a_retained_message_keeps_the_types_of_ways_that_rename_it_and_back() -> None:
    links = (
        ScopeLink(source="a", target="c", type="direct"),
        ScopeLink(source="a", target="b", type="direct", shares=(TopicMapping(filter="#", there="b/"),)),
        ScopeLink(source="b", target="c", type="around", shares=(TopicMapping(filter="#", here="b/"),)),
    )
    brokering = Brokering(
        [("in", "direct"), ("direct", "around"), ("around", "out")], default=Types(inward="in", outward="out")
    )
    here = world(ScopeGraph(scopes=("a", "b", "c"), links=links), brokering=brokering)
    say(here.peer("source", scope="a"), "t", retain=True)
    end = here.peer("end", scope="c")
    end.subscribe("t")
    assert got(end) == [("t", b"x")]


def test_answers_come_back_under_the_names_that_links_give() -> None:
    here = world(ScopeGraph(scopes=("a", "b"), links=both("a", "b", TopicMapping(filter="#", there="from-a/"))))
    asking, answering = here.peer("asking", scope="a"), here.peer("answering", scope="b")
    answering.subscribe("from-a/question")
    asking.subscribe("answer/1")
    say(asking, "question", properties=wire.Properties(response_topic="answer/1"))
    (asked,) = [packet for packet in answering.take() if isinstance(packet, wire.Publish)]
    assert asked.properties.response_topic == "from-a/answer/1"
    say(answering, asked.properties.response_topic, b"42")
    assert got(asking) == [("answer/1", b"42")]


def test_wills_and_shared_subscriptions_cross() -> None:
    here = world(chain("a", "b"))
    members = [here.peer(f"m{number}", scope="b") for number in range(2)]
    for member in members:
        member.subscribe("$share/g/gone", qos=1)
    dying = here.peer("dying", scope="a", will=wire.Will(topic="gone", payload=b"bye", qos=1, retain=False))
    dying.connection.lost()
    assert sorted(got(member) for member in members) == [[], [("gone", b"bye")]]


def test_the_nodes_own_topics_do_not_cross() -> None:
    here = world(chain("a", "b"))
    end = here.peer("end", scope="b")
    end.subscribe("$own/#")
    say(here.peer("source", scope="a"), "$own/x")
    assert got(end) == []
