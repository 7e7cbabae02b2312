"""Step 4 at work, without sockets: what is sealed, where, and what nobody sees in clear after it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pure import End, World
from scope.spaces import got, say
from scope.written import rules, written
from tidegate import wire
from tidegate.config.keys import Keys
from tidegate.gate import Deny, Step
from tidegate.keys import Group, key_id, seal, unseal
from tidegate.keys.sealing import NONCE
from tidegate.keyservice.topic_keys import TopicKeys
from tidegate.session import Link, Subject

CLEAR = b'{"level":3}'
ONE = "scopes: {a: {}}\n"
KEYS = 'keys: {protect: ["p/#"], end_to_end: ["e/#"]}\n'
PAIR = "scopes: {a: {}, b: {}}\nlinks: [{from: a, to: b}]\n" + KEYS
CHAIN = "scopes: {a: {}, b: {}, c: {}}\nlinks: [{from: a, to: b}, {from: b, to: c}]\n" + KEYS
KEEP = wire.Properties(session_expiry_interval=1000)


class Sealing:
    """A node in memory that has keys."""

    def __init__(self, text: str = ONE + KEYS) -> None:
        self.world: World = written(text)
        self.topic_keys = TopicKeys(self.world.site, Keys(), None, None)
        for scope in self.world.realm.scopes.values():
            scope.path.protector.keyring = self.topic_keys

    @property
    def denials(self) -> list[tuple[str, str, str, str]]:
        found: list[tuple[str, str, str, str]] = self.world.heard.denials  # type: ignore[attr-defined]
        return found

    def come(self, client: str, *filters: str, scope: str = "a", **fields: Any) -> End:
        end = self.world.peer(client, scope=scope, username=client, **fields)
        if fields.get("clean_start", True):
            end.take()
        for filter in filters:
            end.subscribe(filter, qos=1)
        return end

    def opened(self, topic: str, payload: bytes) -> bytes:
        """What is in a sealed message, which has no other form than AUPS gives it."""
        assert list(json.loads(payload)) == ["keyId", "data"], payload
        assert b"level" not in payload
        key = self.topic_keys.ring.find(key_id(payload) or "", self.world.site.wall)
        assert key is not None
        return unseal(key.secret, payload, topic=topic)

    def heard(self, end: End) -> list[tuple[str, bytes]]:
        """What came, opened."""
        return [(topic, self.opened(topic, payload)) for topic, payload in got(end)]

    def key(self, end: End, topic: str, group: Group | None = None) -> bytes:
        """A message that somebody has sealed with the key of a topic, or of a group."""
        if group is None:
            lane = self.world.scope.gate.lane(end.connection.session.inward, end.version)
            sealing = self.world.scope.gate.compiler.compile(topic, lane).sealing
            assert sealing is not None
            group = sealing.group
        self.world.site.open()
        return seal(self.topic_keys.current(group), CLEAR, topic=topic, nonce=bytes(NONCE))


def release(end: End) -> None:
    end.send(wire.Pubrel(packet_id=7))


# -- every way in ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("version", [wire.V311, wire.V5])
@pytest.mark.parametrize("reading", [wire.V311, wire.V5])
def test_whatever_the_qos_and_the_protocol(qos: int, version: int, reading: int) -> None:
    here = Sealing()
    source, end = here.come("source", version=version), here.come("end", "#", version=reading)
    for _ in range(3):
        say(source, "p/x", CLEAR, qos=qos)
        if qos == 2:
            assert got(end) == []
            release(source)
        assert here.heard(end) == [("p/x", CLEAR)]
    say(source, "q", CLEAR, qos=qos)
    if qos == 2:
        release(source)
    assert got(end) == [("q", CLEAR)]


def test_each_message_looks_different() -> None:
    here = Sealing()
    source, end = here.come("source"), here.come("end", "#")
    for _ in range(5):
        say(source, "p/x", CLEAR)
    payloads = [payload for _, payload in got(end)]
    assert len(set(payloads)) == 5
    assert len({key_id(payload) for payload in payloads}) == 1


def test_an_empty_message_is_sealed_unless_it_is_retained() -> None:
    here = Sealing()
    source, end = here.come("source"), here.come("end", "#")
    say(source, "p/x", b"")
    assert here.heard(end) == [("p/x", b"")]
    say(source, "p/x", b"", retain=True)
    assert got(end) == [("p/x", b"")]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_retained_messages(qos: int) -> None:
    here = Sealing()
    source = here.come("source")
    say(source, "p/x", CLEAR, retain=True, qos=qos)
    if qos == 2:
        release(source)
    assert here.heard(here.come("late", "p/#")) == [("p/x", CLEAR)]
    say(source, "p/x", b"", retain=True, qos=qos)
    if qos == 2:
        release(source)
    assert got(here.come("later", "p/#")) == []


@pytest.mark.parametrize("retain", [False, True])
def test_wills(retain: bool) -> None:
    here = Sealing()
    end = here.come("end", "#")
    will = wire.Will(topic="p/x", payload=CLEAR, qos=1, retain=retain)
    here.come("source", will=will).lose()
    assert here.heard(end) == [("p/x", CLEAR)]
    assert here.heard(here.come("late", "#")) == ([("p/x", CLEAR)] if retain else [])


def test_services() -> None:
    here = Sealing()
    end = here.come("end", "#")
    scope = here.world.scope
    subject = Subject(kind="service", client="weather", user=None, scope="a", node="n", level="trusted")
    here.world.site.open()
    assert scope.path.send(Link(subject, True, ""), "p/x", CLEAR, qos=1) == 1
    assert here.heard(end) == [("p/x", CLEAR)]


def test_shared_subscriptions() -> None:
    here = Sealing()
    source = here.come("source")
    ends = [here.come(name, "$share/g/p/#") for name in ("one", "two")]
    for _ in range(4):
        say(source, "p/x", CLEAR, qos=1)
    found = [each for end in ends for each in here.heard(end)]
    assert found == [("p/x", CLEAR)] * 4


def test_without_keys_nothing_gets_through() -> None:
    here = Sealing()
    here.world.scope.path.protector.keyring = None
    source, end = here.come("source"), here.come("end", "#")
    say(source, "p/x", CLEAR, qos=1)
    (answer,) = source.take()
    assert isinstance(answer, wire.Puback)
    assert answer.reason == wire.Reason.NOT_AUTHORIZED
    assert got(end) == []
    assert here.denials == [("write", "client:source->scope:a", "p/x", "keys")]


def test_too_large_once_it_is_sealed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.keys.sealing.MAX", 1024)
    here = Sealing()
    source, end = here.come("source"), here.come("end", "#")
    say(source, "p/x", bytes(1000), qos=1)
    (answer,) = source.take()
    assert isinstance(answer, wire.Puback)
    assert answer.reason == wire.Reason.IMPLEMENTATION_SPECIFIC_ERROR
    assert got(end) == []


# -- sessions ------------------------------------------------------------------------------------------------------


def test_what_is_queued_is_sealed() -> None:
    here = Sealing()
    source = here.come("source")
    end = here.come("end", "p/#", properties=KEEP)
    end.lose()
    say(source, "p/x", CLEAR, qos=1)
    say(source, "p/y", CLEAR, qos=2)
    release(source)
    back = here.come("end", clean_start=False, properties=KEEP)
    assert here.heard(back) == [("p/x", CLEAR), ("p/y", CLEAR)]


def test_a_duplicate_is_not_sealed_again_and_delivered_once() -> None:
    here = Sealing()
    source, end = here.come("source", properties=KEEP), here.come("end", "#")
    say(source, "p/x", CLEAR, qos=2)
    say(source, "p/x", CLEAR, qos=2, dup=True)
    source.lose()
    again = here.world.peer("source", username="source", clean_start=False, properties=KEEP)
    say(again, "p/x", CLEAR, qos=2, dup=True)
    release(again)
    release(again)
    assert here.heard(end) == [("p/x", CLEAR)]
    # for the store with the first PUBLISH, and for its readers with PUBREL
    assert [used for _, used in here.topic_keys.ring.listed(here.world.site.wall)] == [2]


@pytest.mark.parametrize("qos", [0, 1, pytest.param(2)])
def test_protection_that_begins_while_messages_flow(qos: int) -> None:
    here = Sealing(ONE + 'keys: {protect: ["other"]}\n')
    source, end = here.come("source"), here.come("end", "#")
    say(source, "p/x", CLEAR, qos=qos)
    if qos < 2:
        assert got(end) == [("p/x", CLEAR)]
        here.world.realm.change(rules(ONE + KEYS))
        say(source, "p/x", CLEAR, qos=qos)
    else:
        here.world.realm.change(rules(ONE + KEYS))
        release(source)
    assert here.heard(end) == [("p/x", CLEAR)]
    here.world.realm.change(rules(ONE))
    say(source, "p/x", CLEAR, qos=qos)
    if qos == 2:
        release(source)
    assert got(end) == [("p/x", CLEAR)]


def test_protection_that_ends_before_a_message_is_released() -> None:
    here = Sealing()
    source, end = here.come("source"), here.come("end", "#")
    say(source, "p/x", CLEAR, qos=2)
    here.world.realm.change(rules(ONE))
    release(source)
    assert got(end) == [("p/x", CLEAR)]  # it is published when it is released


# -- monitors --------------------------------------------------------------------------------------------------------

IN = "monitors:\n  - {id: m, scope: a, direction: im_pub, "


def test_on_the_way_in_monitors_see_what_was_said() -> None:
    machine = 'automaton: {start: s, states: {s: [{on: p/x, when: "o.payload.level > 2"}, {on: "#", emit: []}]}}}'
    here = Sealing(ONE + KEYS + IN + machine)
    source, end = here.come("source"), here.come("end", "#")
    say(source, "p/x", CLEAR, qos=1)
    say(source, "p/x", b'{"level":1}', qos=1)
    assert here.heard(end) == [("p/x", CLEAR)]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_what_they_make_is_sealed_where_its_topic_is_protected(qos: int) -> None:
    outputs = (
        "[same, {topic: p/new}, {topic: q}, {topic: p/own, payload: {level: 9}, qos: 1}, {topic: q, payload: own}]"
    )
    here = Sealing(ONE + KEYS + IN + f"automaton: {{start: s, states: {{s: [{{on: p/x, emit: {outputs}}}]}}}}}}")
    source, end = here.come("source"), here.come("end", "#")
    say(source, "p/x", CLEAR, qos=qos)
    if qos == 2:
        release(source)
    found = got(end)
    assert [topic for topic, _ in found] == ["p/x", "p/new", "q", "p/own", "q"]
    assert [here.opened(topic, payload) for topic, payload in found if topic != "q"] == [CLEAR, CLEAR, b'{"level":9}']
    assert [payload for topic, payload in found if topic == "q"] == [CLEAR, b"own"], "it was on its way there"


def test_a_monitor_cannot_put_what_is_clear_where_it_has_to_come_sealed() -> None:
    here = Sealing(ONE + KEYS + IN + "map: {q: e/x}}")
    source, end = here.come("source"), here.come("end", "#")
    say(source, "q", CLEAR, qos=1)
    answers = [each for each in source.take() if isinstance(each, wire.Puback)]
    assert [each.reason for each in answers] == [wire.Reason.NOT_AUTHORIZED]
    assert got(end) == []
    assert ("write", "client:source->scope:a", "e/x", "keys") in here.denials


def test_what_timers_say_is_sealed() -> None:
    here = Sealing(ONE + KEYS + IN + "silence: 10s, on: p/x, emit: {topic: p/alarm, payload: silent}}")
    source, end = here.come("source"), here.come("end", "#")
    say(source, "p/x", CLEAR, qos=1)
    assert here.heard(end) == [("p/x", CLEAR)]
    here.world.turn(11)
    assert here.heard(end) == [("p/alarm", b"silent")]
    source.lose()
    assert got(end) == []


def test_the_will_is_seen_by_monitors_and_then_sealed() -> None:
    machine = 'automaton: {start: s, states: {s: [{on: p/x, when: "o.payload.level > 2", emit: [{topic: p/y}]}]}}}'
    here = Sealing(ONE + KEYS + IN + machine)
    end = here.come("end", "#")
    here.come("source", will=wire.Will(topic="p/x", payload=CLEAR, qos=1, retain=False)).lose()
    assert here.heard(end) == [("p/y", CLEAR)]


# -- between scopes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("retain", [False, True])
def test_over_links_it_is_sealed_once(qos: int, retain: bool) -> None:
    here = Sealing(CHAIN)
    source, near = here.come("source"), here.come("near", "#")
    far = here.come("far", "#", scope="c")
    say(source, "p/x", CLEAR, qos=qos, retain=retain)
    if qos == 2:
        release(source)
    found = got(far)
    assert found == got(near), "the same bytes"
    assert [(topic, here.opened(topic, payload)) for topic, payload in found] == [("p/x", CLEAR)]
    assert here.heard(here.come("late", "#", scope="b")) == ([("p/x", CLEAR)] if retain else [])


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("retain", [False, True])
def test_what_gets_a_protected_name_on_a_link_is_sealed_there(qos: int, retain: bool) -> None:
    here = Sealing("scopes: {a: {}, b: {}}\nlinks: [{from: a, to: b, share: [{topic: x, remote_prefix: p/}]}]\n" + KEYS)
    source, near = here.come("source"), here.come("near", "#")
    far = here.come("far", "#", scope="b")
    for _ in range(2):
        say(source, "x", CLEAR, qos=qos, retain=retain)
        if qos == 2:
            release(source)
        assert got(near) == [("x", CLEAR)]
        assert here.heard(far) == [("p/x", CLEAR)]
    if retain:
        assert here.heard(here.come("late", "#", scope="b")) == [("p/x", CLEAR)]
        assert got(here.come("later", "#")) == [("x", CLEAR)]


def test_what_is_sealed_and_then_renamed_can_be_opened_under_its_new_name() -> None:
    """Readers know a message only by the name that they receive it under."""
    here = Sealing(
        "scopes: {a: {}, b: {}}\nlinks: [{from: a, to: b, share: [{topic: '#', remote_prefix: r/}]}]\n" + KEYS
    )
    source, far = here.come("source"), here.come("far", "#", scope="b")
    say(source, "p/x", CLEAR, qos=1)
    assert here.heard(far) == [("r/p/x", CLEAR)]


def test_what_a_monitor_renames_on_the_way_out_can_be_opened_under_its_new_name() -> None:
    here = Sealing(ONE + KEYS + "monitors: [{id: m, scope: a, direction: im_sub, map: {p/x: p/y}}]\n")
    source, end = here.come("source"), here.come("end", "#")
    say(source, "p/x", CLEAR, qos=1)
    assert here.heard(end) == [("p/y", CLEAR)]


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("place", ["link: 'a->b'", "scope: a, direction: ex_pub", "scope: b, direction: ex_sub"])
def test_a_monitor_on_a_link_that_makes_its_own_words(qos: int, place: str) -> None:
    outputs = "[same, {topic: p/own, payload: {level: 9}}, {topic: q, payload: own}]"
    machine = f"automaton: {{start: s, states: {{s: [{{on: p/x, emit: {outputs}}}]}}}}"
    here = Sealing(PAIR + f"monitors:\n  - {{id: m, {place}, {machine}}}")
    source = here.come("source")
    far = here.come("far", "#", scope="b")
    say(source, "p/x", CLEAR, qos=qos)
    if qos == 2:
        release(source)
    found = dict(got(far))
    assert list(found) == ["p/x", "p/own", "q"]
    assert here.opened("p/x", found["p/x"]) == CLEAR
    assert here.opened("p/own", found["p/own"]) == b'{"level":9}'
    assert found["q"] == b"own"


def test_timers_on_links() -> None:
    machine = "silence: 10s, on: p/x, emit: {topic: p/alarm, payload: silent}"
    for place in ("link: 'a->b'", "scope: a, direction: ex_pub"):
        here = Sealing(PAIR + f"monitors:\n  - {{id: m, {place}, {machine}}}")
        source = here.come("source")
        far = here.come("far", "#", scope="b")
        say(source, "p/x", CLEAR, qos=1)
        assert here.heard(far) == [("p/x", CLEAR)]
        here.world.turn(11)
        assert here.heard(far) == [("p/alarm", b"silent")], place


# -- after it ----------------------------------------------------------------------------------------------------


def wanting(here: Sealing, client: str, filter: str, where: str) -> End:
    end = here.come(client)
    properties = wire.Properties(user_properties=(("where", where),))
    subscription = wire.Subscription(filter=filter, qos=1)
    end.send(wire.Subscribe(packet_id=1, subscriptions=(subscription,), properties=properties))
    return end


@pytest.mark.parametrize("where", ["o.payload.level == 3", "has(o.payload)", "has(o.payload.keyId)", "o.payload != 1"])
def test_a_condition_on_what_is_in_it_is_never_true(where: str) -> None:
    here = Sealing()
    source = here.come("source")
    end = wanting(here, "end", "#", where)
    say(source, "p/x", CLEAR, qos=1)
    assert got(end) == []
    say(source, "q", b'{"level":3,"keyId":1}', qos=1)
    assert [topic for topic, _ in got(end)] == ["q"]
    say(source, "p/x", CLEAR, qos=1, retain=True)
    assert got(wanting(here, "late", "p/#", where)) == []


def test_a_condition_on_anything_else() -> None:
    here = Sealing()
    source = here.come("source")
    end = wanting(here, "end", "#", "o.topic == 'p/x' && !has(o.payload)")
    say(source, "p/x", CLEAR, qos=1)
    say(source, "p/y", CLEAR, qos=1)
    assert here.heard(end) == [("p/x", CLEAR)]


# -- sealed by their publishers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_end_to_end_it_comes_sealed_or_not_at_all(qos: int) -> None:
    here = Sealing()
    source, end = here.come("source"), here.come("end", "#")
    right = here.key(source, "e/x")
    other = here.key(source, "", Group.of(filter="e/#", conditions=["others"]))
    unknown = right.replace(right[10:14], b"0000")
    for wrong in (CLEAR, b"", other, unknown, right[:-1], right.replace(b"}", b',"more":1}')):
        say(source, "e/x", wrong, qos=qos)
        if qos:
            (answer,) = source.take()
            assert isinstance(answer, wire.Puback | wire.Pubrec)
            assert answer.reason == wire.Reason.NOT_AUTHORIZED
        assert got(end) == []
    assert {rule for _, _, _, rule in here.denials} == {"keys"}
    say(source, "e/x", right, qos=qos)
    if qos == 2:
        release(source)
    assert got(end) == [("e/x", right)], "as it came"


def test_end_to_end_the_denial_tells_the_remedy() -> None:
    here = Sealing()
    source = here.come("source")
    scope = here.world.scope
    lane = scope.gate.lane(source.connection.session.inward, wire.V5)
    plan = scope.gate.compiler.compile("e/x", lane)
    here.world.site.open()
    answer = scope.path.send(source.connection.session.inward, "e/x", CLEAR)
    assert isinstance(answer, Deny)
    assert (answer.step, answer.rule) == (Step.PROTECT, "keys")
    assert "$tidegate/keys/publish" in answer.said
    assert plan.sealing is not None


def test_where_the_node_seals_what_has_the_right_key_is_left_alone_and_all_else_is_sealed() -> None:
    here = Sealing()
    source, end = here.come("source"), here.come("end", "#")
    right = here.key(source, "p/x")
    say(source, "p/x", right, qos=1)
    assert got(end) == [("p/x", right)]
    other = here.key(source, "e/x")
    say(source, "p/x", other, qos=1)
    assert here.heard(end) == [("p/x", other)], "sealed again"
    assert here.opened("e/x", other) == CLEAR


def test_a_key_that_has_ended_or_was_revoked_is_not_taken() -> None:
    here = Sealing()
    source, end = here.come("source"), here.come("end", "#")
    right = here.key(source, "e/x")
    id = key_id(right)
    assert id is not None
    assert here.topic_keys.revoke(id)
    say(source, "e/x", right, qos=1)
    assert got(end) == []
    ending = here.key(source, "e/x")
    say(source, "e/x", ending, qos=1)
    assert got(end) == [("e/x", ending)]
    here.world.turn(2 * 3600)
    say(source, "e/x", ending, qos=1)
    assert got(end) == []


def test_an_empty_retained_message_is_taken_away_end_to_end_too() -> None:
    here = Sealing()
    source = here.come("source")
    right = here.key(source, "e/x")
    say(source, "e/x", right, qos=1, retain=True)
    assert got(here.come("one", "#")) == [("e/x", right)]
    say(source, "e/x", b"", qos=1, retain=True)
    assert got(here.come("two", "#")) == []
