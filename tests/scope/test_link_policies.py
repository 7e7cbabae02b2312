"""Policies and preferences on links between scopes, and what a publisher is told of what happens behind them."""

from __future__ import annotations

from typing import Any

import pytest

from pure import World
from scope.spaces import got, say
from scope.written import rules, written
from session.test_safe import Disk
from tidegate import wire
from tidegate.session import Limits

PAIR = """
scopes: {a: {}, b: {}}
links: [{from: a, to: b}]
"""
THREE = """
scopes: {a: {}, b: {}, c: {}}
links: [{from: a, to: b}, {from: a, to: c}, {from: b, to: c}]
"""
ALL = '  - {id: all, subject: "*", topic: "#", action: [read, write]}\n'
BOTH_LANES = pytest.mark.parametrize("qos", [0, 1])


def reached(here: World, topic: str, qos: int, user: str | None = None, payload: bytes = b"x") -> str:
    """The scopes that a message from `a` gets to, twice the same."""
    ends = {name: here.peer("end", scope=name) for name in sorted(here.realm.scopes)}
    for end in ends.values():
        end.subscribe("#", qos=1)
    source = here.peer("source", scope="a", username=user)
    found = []
    for _ in range(2):
        say(source, topic, payload, qos=qos)
        found.append("".join(name for name, end in ends.items() if got(end)))
    assert found[0] == found[1]
    return found[0]


@BOTH_LANES
@pytest.mark.parametrize(
    ("subject", "action", "expected"),
    [
        ("link:a->b", "write", "ac"),  # and c does not send it on to b by a link that is not there
        ("link:a->b", "read", "ac"),
        ("link:b->a", "write", "abc"),
        ("scope:a", "write", "a"),
        ("scope:a", "read", "abc"),
        ("scope:b", "read", "ac"),
        ("scope:b", "write", "abc"),  # c is reached from a
        ("scope:c", "read", "ab"),
    ],
)
def test_a_link_forwards_what_one_end_may_write_and_the_other_may_read(
    subject: str, action: str, expected: str, qos: int
) -> None:
    text = THREE.replace("{from: b, to: c}", "{from: b, to: c, direction: out}") + f"policies:\n{ALL}"
    deny = f'  - {{id: no, subject: "{subject}", topic: "t/#", action: {action}, effect: deny}}\n'
    assert reached(written(text + deny), "t/1", qos) == expected
    assert reached(written(text + deny), "other", qos) == "abc"


@BOTH_LANES
def test_without_a_policy_for_the_link_nothing_crosses(qos: int) -> None:
    clients = '  - {id: own, subject: ["client:end", "client:source"], topic: "#", action: [read, write]}\n'
    assert reached(written(PAIR + "policies:\n" + clients), "t", qos) == "a"
    link = '  - {id: link, subject: "link:a->b", topic: "#", action: [read, write]}\n'
    assert reached(written(PAIR + "policies:\n" + clients + link), "t", qos) == "ab"
    ends = (
        '  - {id: out, subject: "scope:a", topic: "#", action: write}\n'
        '  - {id: in, subject: "scope:b", topic: "#", action: read}\n'
    )
    assert reached(written(PAIR + "policies:\n" + clients + ends), "t", qos) == "ab"


@BOTH_LANES
def test_both_ends_are_asked_for_the_name_before_the_link(qos: int) -> None:
    text = """
scopes: {a: {}, b: {}}
links: [{from: a, to: b, share: [{topic: "#", remote_prefix: "far/"}]}]
"""
    for action in ("read", "write"):
        for topic, expected in (("t", "a"), ("far/t", "ab")):
            deny = f'  - {{id: no, subject: "link:a->b", topic: {topic}, action: {action}, effect: deny}}\n'
            assert reached(written(text + f"policies:\n{ALL}{deny}"), "t", qos) == expected


@BOTH_LANES
def test_conditions_on_a_link_see_the_message_and_who_published_it(qos: int) -> None:
    def when(condition: str, subject: str = "link:a->b") -> World:
        deny = f'  - {{id: no, subject: "{subject}", topic: "#", action: write, effect: deny, when: "{condition}"}}\n'
        return written(PAIR + f"policies:\n{ALL}{deny}")

    assert reached(when("o.size > 3"), "t", qos, payload=b"long") == "a"
    assert reached(when("o.size > 3"), "t", qos) == "ab"
    assert reached(when("has(p.user) && p.user == 'mary'"), "t", qos, "mary") == "a"
    assert reached(when("has(p.user) && p.user == 'mary'"), "t", qos, "bob") == "ab"
    assert reached(when("s.kind == 'link' && s.scope == 'a' && s.client == 'a->b'"), "t", qos) == "a"
    assert reached(when("o.payload.level > 2"), "t", qos) == "a"  # it fails, and so denies
    assert reached(when("p.scope == 'b'"), "t", qos) == "ab"


def test_a_denial_names_the_rule_and_the_link() -> None:
    here = written(
        PAIR
        + f"""
policies:
{ALL}
  - {{id: static, subject: "link:a->b", topic: s, action: write, effect: deny}}
  - {{id: large, subject: "scope:b", topic: "#", action: read, effect: deny, when: "o.size > 3"}}
"""
    )
    source = here.peer("source", scope="a")
    for topic, payload in (("s", b""), ("t", b"1"), ("t", b"long"), ("t", b"long")):
        say(source, topic, payload)
    heard: list[Any] = here.heard.denials  # type: ignore[attr-defined]
    assert heard[0] == ("plan", "scope:a->scope:b", "s", "static")
    assert [(link, topic, rule) for _, link, topic, rule in heard[1:]] == [("scope:a->scope:b", "t", "large")] * 2


# -- preferences -------------------------------------------------------------------------------------------------------


def preferring(*rows: str) -> World:
    return written(
        THREE
        + "directory: {users: {mary: {password: 'plain:x'}, bob: {password: 'plain:x'}}}\npreferences:\n"
        + "".join(f"  - {{id: u{at}, user: mary, {row}}}\n" for at, row in enumerate(rows))
    )


@BOTH_LANES
def test_an_owner_says_to_which_scopes_it_is_forwarded(qos: int) -> None:
    assert reached(preferring('topic: "#", to: b, when: "false"'), "t", qos, "mary") == "ac"
    assert reached(preferring('topic: "#", to: b, when: "false"'), "t", qos, "bob") == "abc"
    assert reached(preferring('topic: "#", to: "*", when: "false"'), "t", qos, "mary") == "a"
    # those that name a scope replace `*` for it
    only_b = ('topic: "#", to: "*", when: "false"', 'topic: "#", to: b')
    assert reached(preferring(*only_b), "t", qos, "mary") == "ab"
    assert reached(preferring('topic: "#", to: "*"', 'topic: "#", to: b, when: "false"'), "t", qos, "mary") == "ac"
    # one of several is enough
    assert reached(preferring('topic: "#", to: b, when: "false"', "topic: t, to: b"), "t", qos, "mary") == "abc"
    # without `to` it is about those who receive
    assert reached(preferring('topic: "#", when: "s.scope == \'c\'"'), "t", qos, "mary") == "c"


@BOTH_LANES
def test_an_owner_speaks_of_the_topic_it_was_published_under(qos: int) -> None:
    text = """
scopes: {a: {}, b: {}, c: {}}
links:
  - {from: a, to: b, share: [{topic: "#", remote_prefix: "far/"}]}
  - {from: b, to: c, direction: out}
directory: {users: {mary: {password: 'plain:x'}}}
"""
    for topic, expected in (("t", "ab"), ("far/t", "abc")):
        said = f'preferences: [{{id: u, user: mary, topic: {topic}, to: c, when: "false"}}]'
        assert reached(written(text + said), "t", qos, "mary") == expected
        said = f"preferences: [{{id: u, user: mary, topic: {topic}, when: \"s.scope != 'c'\"}}]"
        assert reached(written(text + said), "t", qos, "mary") == expected


def test_what_an_owner_keeps_of_it_is_all_that_is_forwarded() -> None:
    here = preferring('topic: "#", to: b, keep: ["/level"]')
    ends = [here.peer("end", scope=name) for name in "abc"]
    for end in ends:
        end.subscribe("#", qos=1)
    say(here.peer("source", scope="a", username="mary"), "t", b'{"level":1,"name":"n"}', qos=1)
    whole = ("t", b'{"level":1,"name":"n"}')
    assert [got(end) for end in ends] == [[whole], [("t", b'{"level":1}')], [whole]]


# -- acknowledgements --------------------------------------------------------------------------------------------------


def test_an_acknowledgement_waits_for_the_commit_in_every_scope() -> None:
    disk = Disk()
    here = World(rules=rules(THREE), store=disk)
    end = here.peer("end", scope="c", properties=wire.Properties(session_expiry_interval=1000))
    end.subscribe("t", qos=1)
    disk.commit()
    end.lose()
    source = here.peer("source", scope="a")
    source.take()
    for topic, retain in (("t", False), ("kept", True)):
        say(source, topic, qos=1, retain=retain)
        assert source.take() == []
        disk.commit()
        here.turn()
        assert [packet.packet_id for packet in source.take() if isinstance(packet, wire.Puback)] == [7]
    say(source, "nobody", qos=1)
    (answer,) = source.take()
    assert isinstance(answer, wire.Puback)
    assert answer.reason == wire.Reason.NO_MATCHING_SUBSCRIBERS


def test_an_acknowledgement_waits_for_what_a_monitor_remembers() -> None:
    disk = Disk()
    here = World(rules=rules(PAIR + "monitors: [{id: m, link: 'a->b', only: t, after: [u]}]"), store=disk)
    source = here.peer("source", scope="a")
    source.take()
    disk.commit()
    say(source, "u", qos=1)
    assert source.take() == []
    disk.commit()
    here.turn()
    assert len(source.take()) == 1


# -- names -------------------------------------------------------------------------------------------------------------


@BOTH_LANES
@pytest.mark.parametrize("bound", [1, 100_000])
@pytest.mark.parametrize("topic", ["x" * 65533, "/".join("x" * 8)])
def test_a_prefix_that_makes_a_topic_too_long_is_not_its_publishers_fault(topic: str, bound: int, qos: int) -> None:
    text = PAIR.replace("to: b}", 'to: b, share: [{topic: "#", remote_prefix: "far/"}]}')
    here = World(rules=rules(text), limits=Limits(topic_levels=8))
    for scope in here.realm.scopes.values():
        scope.gate.cache.bound = bound
    end = here.peer("end", scope="a")
    end.subscribe("#", qos=1)
    will = wire.Will(topic=topic, payload=b"will", qos=qos, retain=False)
    source = here.peer("source", scope="a", will=will)
    for _ in range(3):
        say(source, topic, qos=qos)
        assert got(end) == [(topic, b"x")]
    assert not source.closed
    source.lose()
    assert got(end) == [(topic, b"will")]


def test_answers_have_the_names_that_links_give_although_the_question_keeps_its_own() -> None:
    share = 'share: [{topic: "ask/#"}, {topic: "answer/#", direction: both, remote_prefix: "far/"}]'
    here = written(PAIR.replace("to: b}", f"to: b, {share}}}"))
    asking, answering = here.peer("asking", scope="a"), here.peer("answering", scope="b")
    answering.subscribe("ask/#", qos=1)
    asking.subscribe("answer/#")
    for qos in (0, 1):
        say(asking, "ask/1", qos=qos, properties=wire.Properties(response_topic="answer/1"))
        (asked,) = [packet for packet in answering.take() if isinstance(packet, wire.Publish)]
        assert asked.properties.response_topic == "far/answer/1"
        say(answering, asked.properties.response_topic, b"42")
        assert got(asking) == [("answer/1", b"42")]


def test_a_flood_of_renamed_topics_leaves_nothing_behind() -> None:
    here = written(PAIR.replace("to: b}", 'to: b, share: [{topic: "#", remote_prefix: "far/"}]}'))
    for scope in here.realm.scopes.values():
        scope.gate.cache.bound = 20
    source = here.peer("source", scope="a")
    for number in range(300):
        say(source, f"t/{number}")
    assert len(source.connection.reader.lane.onward) < 50  # type: ignore[attr-defined]


def test_the_qos_that_it_was_published_with_is_known_behind_a_link_that_lowers_it() -> None:
    here = written(
        "scopes: {a: {}, b: {}}\n"
        "links: [{from: a, to: b, share: [{topic: '#', qos: 0}]}]\n"
        "policies:\n"
        "  - {subject: '*', topic: '#', action: write}\n"
        "  - {subject: 'scope:b', topic: '#', action: read}\n"
        "  - {subject: 'client:end', topic: '#', action: read, when: 'p.qos == 1'}\n"
    )
    end = here.peer("end", scope="b")
    end.subscribe("#", qos=1)
    source = here.peer("source", scope="a")
    say(source, "t", b"one", qos=1)
    say(source, "t", b"none", qos=0)
    assert got(end) == [("t", b"one")]
