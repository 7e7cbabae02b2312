"""Monitors on links between scopes: their order, what they see and remember, and what becomes of their outputs."""

from __future__ import annotations

from typing import Any

import pytest

from scope.spaces import got, say
from scope.written import rules, written
from tidegate import wire
from tidegate.session import Message, Session

DIAMOND = """
scopes: {a: {}, b: {}, c: {}, d: {}}
links:
  - {from: a, to: b, direction: out}
  - {from: a, to: c, direction: out}
  - {from: b, to: d, direction: out}
  - {from: c, to: d, direction: out}
"""
PAIR = """
scopes: {a: {}, b: {}}
links: [{from: a, to: b}]
"""
CHAIN = """
scopes: {a: {}, b: {}, c: {}}
links: [{from: a, to: b}, {from: b, to: c}]
"""


@pytest.mark.parametrize("qos", [0, 1])
def test_they_act_in_their_order_where_it_leaves_and_where_it_enters(qos: int) -> None:
    """Leaving the one first; where it enters the other, in file order."""
    here = written(
        PAIR
        + """
monitors:
  - {id: late, link: "a->b", map: {t1: t12, t3: never}}
  - {id: out, scope: a, direction: ex_pub, map: {t: t1}}
  - {id: in, scope: b, direction: ex_sub, map: {t12: t123, t1: never}}
"""
    )
    end, near = here.peer("end", scope="b"), here.peer("near", scope="a")
    end.subscribe("#", qos=1)
    near.subscribe("#", qos=1)
    source = here.peer("source", scope="a")
    for _ in range(2):
        say(source, "t", qos=qos)
        assert got(end) == [("t123", b"x")]
        assert got(near) == [("t", b"x")]


def test_towards_a_parent_and_towards_a_child_they_are_called_otherwise() -> None:
    here = written(
        """
scopes: {top: {}, a: {parents: [top]}}
monitors:
  - {id: up-out, scope: a, direction: ex_pub, map: {up: up1}}
  - {id: up-in, scope: top, direction: im_pub, map: {up1: up2}}
  - {id: down-out, scope: top, direction: im_sub, map: {down: down1}}
  - {id: down-in, scope: a, direction: ex_sub, map: {down1: down2}}
"""
    )
    above, below = here.peer("above", scope="top"), here.peer("below", scope="a")
    above.subscribe("#")
    below.subscribe("#")
    say(below, "up")
    assert (got(above), got(below)) == ([("up2", b"x")], [("up", b"x")])
    say(above, "down")
    assert got(below) == [("down2", b"x")]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_monitor_sees_what_nobody_subscribes_to(qos: int) -> None:
    here = written(CHAIN + "monitors: [{id: door, link: 'a->b', only: unlock, after: [request, granted]}]")
    lock = here.peer("lock", scope="c")
    lock.subscribe("unlock", qos=1)
    phone = here.peer("phone", scope="a")

    def tell(*topics: str) -> None:
        for topic in topics:
            say(phone, topic, qos=qos)
            if qos == 2:
                phone.send(wire.Pubrel(packet_id=7))

    tell("unlock")
    assert got(lock) == []
    tell("request", "granted", "unlock", "unlock")
    assert got(lock) == [("unlock", b"x")]


def test_what_they_remember_survives_other_rules_and_a_link_that_was_gone() -> None:
    text = PAIR + "monitors: [{id: door, link: 'a->b', only: unlock, after: [request]}]"
    here = written(text)
    lock, phone = here.peer("lock", scope="b"), here.peer("phone", scope="a")
    lock.subscribe("unlock")
    say(phone, "request")
    without = text.replace("links: [{from: a, to: b}]", "links: [{from: b, to: a, direction: out}]")
    for said in (text, without.replace("'a->b'", "'b->a'"), text):
        here.realm.change(rules(said))
        here.turn()
    say(phone, "unlock")
    assert got(lock) == [("unlock", b"x")]
    say(phone, "unlock")
    assert got(lock) == []


def test_the_fast_lane_is_taken_while_they_are_calm() -> None:
    here = written(
        PAIR
        + """
monitors:
  - id: tap
    link: "a->b"
    automaton: {start: on, states: {on: [{on: close, go: off}], off: [{on: open, go: on}, {on: data, emit: []}]}}
"""
    )
    end, source = here.peer("end", scope="b"), here.peer("source", scope="a")
    end.subscribe("data")

    def heard() -> bool:
        say(source, "data")
        return bool(got(end))

    assert heard()
    plan = source.connection.reader.lane.plans[b"data"]
    assert plan.fast
    assert plan.calm(source.connection.session)
    say(source, "close")
    assert not plan.calm(source.connection.session)
    assert not heard()
    say(source, "open")
    assert heard()


def test_a_timer_speaks_over_its_link() -> None:
    here = written(
        CHAIN + "monitors: [{id: q, link: 'a->b', silence: 10s, on: temp, emit: {topic: alarm, payload: silent}}]"
    )
    ends = {name: here.peer("end", scope=name) for name in "abc"}
    for end in ends.values():
        end.subscribe("alarm")
    source = here.peer("source", scope="a", username="mary")
    say(source, "temp")
    source.lose()
    here.turn(9.0)
    assert [got(end) for end in ends.values()] == [[], [], []]
    here.turn(1.5)
    assert [got(end) for end in ends.values()] == [[], [("alarm", b"silent")], [("alarm", b"silent")]]
    here.turn(60.0)
    assert [got(end) for end in ends.values()] == [[], [], []]
    assert not here.bugs


def test_a_timer_where_it_leaves_needs_a_share() -> None:
    text = """
scopes: {a: {}, b: {}}
links: [{from: a, to: b, share: [{topic: "temp"}, {topic: "%s", remote_prefix: "far/"}]}]
monitors: [{id: q, scope: a, direction: ex_pub, silence: 10s, on: temp, emit: {topic: alarm, payload: silent}}]
"""
    for shared, expected in (("alarm", [("far/alarm", b"silent")]), ("other", [])):
        here = written(text % shared)
        end = here.peer("end", scope="b")
        end.subscribe("far/#")
        say(here.peer("source", scope="a"), "temp")
        here.turn(11.0)
        assert got(end) == expected


@pytest.mark.parametrize("qos", [0, 1])
def test_what_is_made_where_it_leaves_has_to_be_shared_and_allowed(qos: int) -> None:
    here = written(
        """
scopes: {a: {}, b: {}}
links: [{from: a, to: b, share: [{topic: raw}, {topic: "new/#"}]}]
policies:
  - {id: all, subject: "*", topic: "#", action: [read, write]}
  - {id: no, subject: "link:a->b", topic: new/3, action: write, effect: deny}
monitors:
  - id: m
    scope: a
    direction: ex_pub
    automaton: {start: s, states: {s: [{on: raw, emit: [{topic: new/1}, {topic: old}, same, {topic: new/3}]}]}}
"""
    )
    end = here.peer("end", scope="b")
    end.subscribe("#", qos=1)
    say(here.peer("source", scope="a"), "raw", qos=qos)
    assert got(end) == [("new/1", b"x"), ("raw", b"x")]
    assert ("forward", "scope:a->scope:b", "new/3", "no") in here.heard.denials  # type: ignore[attr-defined]


@pytest.mark.parametrize("qos", [0, 1])
def test_what_is_made_where_it_enters_has_to_be_writable_by_the_monitor(qos: int) -> None:
    here = written(
        PAIR
        + """
policies:
  - {id: all, subject: ["*", "monitor:names"], topic: "#", action: [read, write]}
  - {id: no, subject: "monitor:names", topic: "old/#", action: write, effect: deny}
monitors:
  - {id: names, link: "a->b", map: {"x/#": "new/#", "y/#": "old/#"}}
"""
    )
    end = here.peer("end", scope="b")
    end.subscribe("#", qos=1)
    source = here.peer("source", scope="a")
    for topic in ("x/1", "y/1", "z"):
        say(source, topic, qos=qos)
    assert got(end) == [("new/1", b"x"), ("z", b"x")]
    assert [rule for _, _, topic, rule in here.heard.denials if topic == "old/1"] == ["no"]  # type: ignore[attr-defined]


@pytest.mark.parametrize("qos", [0, 1])
def test_what_is_suppressed_on_one_way_comes_by_the_other(qos: int) -> None:
    for link in ("b->d", "c->d", "a->b"):
        here = written(DIAMOND + f"monitors: [{{id: f, link: '{link}', filter: [other]}}]")
        end = here.peer("end", scope="d")
        end.subscribe("#", qos=1)
        source = here.peer("source", scope="a")
        for _ in range(2):
            say(source, "t", qos=qos)
            assert got(end) == [("t", b"x")]


@pytest.fixture
def delivered(monkeypatch: pytest.MonkeyPatch) -> list[Message]:
    """Every message that any session was owed."""
    found: list[Message] = []
    deliver = Session.deliver

    def delivering(session: Session, message: Message, *rest: Any) -> None:
        found.append(message)
        deliver(session, message, *rest)

    monkeypatch.setattr(Session, "deliver", delivering)
    return found


@pytest.mark.pure
def test_outputs_have_ids_of_their_own(delivered: list[Message]) -> None:
    two = "automaton: {start: s, states: {s: [{on: t, emit: [same, {topic: u}]}]}}"
    watched = {"m1": "a->b", "m2": "b->d", "m3": "c->d"}
    here = written(
        DIAMOND
        + f"monitors:\n  - {{id: m0, scope: a, direction: im_pub, {two}}}\n"
        + "".join(f"  - {{id: {id}, link: '{link}', {two}}}\n" for id, link in watched.items())
    )
    end = here.peer("end", scope="d")
    end.subscribe("#", qos=1)
    say(here.peer("source", scope="a"), "t", qos=1)
    # the message, one output of the client's link, one of the way to b, and one of each link to d
    assert sorted(topic for topic, _ in got(end)) == ["t", "u", "u", "u", "u"]
    assert len({message.id for message in delivered}) == len(delivered) == 5


def test_a_clients_monitor_sees_a_message_once_although_it_comes_by_two_ways() -> None:
    here = written(
        DIAMOND
        + """
monitors:
  - {id: extra, link: "b->d", automaton: {start: s, states: {s: [{on: t, emit: [same, {topic: u}]}]}}}
  - {id: twice, link: "d->client:lock", only: open, after: [t, t]}
  - {id: other, link: "d->client:lock", only: never, after: [u, u]}
"""
    )
    lock, source = here.peer("lock", scope="d"), here.peer("source", scope="a")
    lock.subscribe("open")
    say(source, "t")
    say(source, "open")
    assert got(lock) == []
    say(source, "t")
    say(source, "open")
    assert got(lock) == [("open", b"x")]


def test_a_copy_that_a_client_may_not_see_does_not_hide_the_other_from_its_monitor() -> None:
    here = written(
        DIAMOND
        + """
brokering:
  allow: [[x, x], [x, bad]]
  assign: [{link: "a->b", type: x}, {link: "a->c", type: x}, {link: "b->d", type: bad}, {link: "c->d", type: x}]
  default: {in: x, out: x}
monitors: [{id: door, link: "d->client:lock", only: open, after: [t]}]
"""
    )
    lock, source = here.peer("lock", scope="d"), here.peer("source", scope="a")
    lock.subscribe("open")
    say(source, "t")
    say(source, "open")
    assert got(lock) == [("open", b"x")]


def test_a_default_one_acts_where_no_other_does() -> None:
    here = written(
        """
scopes: {a: {}, b: {}, c: {}}
links: [{from: a, to: b}, {from: a, to: c}]
monitors:
  - {id: usual, scope: a, direction: ex_pub, default: true, filter: [usual]}
  - {id: other, scope: b, direction: ex_sub, filter: [t, usual]}
  - {id: own, link: "a->c", filter: [t, usual]}
"""
    )
    ends = [here.peer("end", scope=name) for name in "bc"]
    for end in ends:
        end.subscribe("#")
    source = here.peer("source", scope="a")
    say(source, "t")
    say(source, "usual")
    # where it leaves a nothing else acts on either link
    assert [got(end) for end in ends] == [[("usual", b"x")]] * 2


@pytest.mark.pure
def test_what_a_timer_puts_out_has_an_id_of_its_own(delivered: list[Message]) -> None:
    here = written(
        "scopes: {a: {}, b: {}, c: {}}\n"
        "links: [{from: a, to: b}, {from: b, to: c}]\n"
        "monitors:\n"
        "  - {id: quiet, link: 'a->b', silence: 5s, on: t, emit: {topic: alarm, payload: x}}\n"
        "  - id: more\n"
        "    link: 'b->c'\n"
        "    automaton: {start: s, states: {s: [{on: t, emit: [same, {topic: u}, {topic: v}]}]}}\n"
    )
    end = here.peer("end", scope="c")
    end.subscribe("#", qos=1)
    say(here.peer("source", scope="a"), "t")
    here.turn(6)
    assert [message.topic for message in delivered] == ["t", "u", "v", "alarm"]
    assert len({message.id for message in delivered}) == 4
