"""The oracle itself: against the examples of the seeds and the sentences of the specification, worked out by hand.

And the worlds: that they reach every outcome, and that every one of them can be written into a file.
"""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from gate import worlds
from gate.oracle import (
    Absent,
    Connection,
    Decision,
    Delivered,
    Message,
    Properties,
    Step,
    Subscription,
    Whole,
    context_of,
    decide_read,
    decide_subscribe,
    decide_write,
    demand_of,
    environment_attributes,
    filled,
    intersected,
    kept,
    meets,
    object_attributes,
    selects,
    subject_attributes,
    united,
    what_is_left,
)
from tidegate.predicate import compile as compile_predicate

NOON = int(datetime(2026, 2, 11, 12, 0, tzinfo=UTC).timestamp())  # a Wednesday
ALLOW_ALL = [{"id": "all", "subject": "*", "topic": "#", "action": ["read", "write"]}]


def config(**sections: Any) -> dict[str, Any]:
    return {"version": 1, "node": {"name": "here"}, "policies": ALLOW_ALL, **sections}


def people(**roles: str) -> dict[str, Any]:
    """A directory of users with one role or group each: `mary="runner"`, `mark="group:cardiologists"`."""
    users = {
        name: {"groups": [held[6:]]} if held.startswith("group:") else {"roles": [held] if held else []}
        for name, held in roles.items()
    }
    return {"users": users}


def as_user(user: str | None, level: str = "plain", properties: Properties = (), client: str = "") -> Connection:
    return Connection(client=client or f"{user}-phone", user=user, level=level, properties=properties)


def send(
    conf: dict[str, Any],
    sender: Connection,
    message: Message,
    receiver: Connection,
    properties: Properties = (),
    now: int = NOON,
) -> tuple[Decision, Delivered | None]:
    """One message all the way, which the sender may write."""
    assert decide_write(conf, sender, message, now).allowed
    subscription = Subscription(filter="#", properties=properties)
    return decide_read(conf, context_of(conf, sender, message, now), message, receiver, subscription, now)


def got(*arguments: Any, **more: Any) -> Any:
    """The JSON that arrives, or None."""
    delivered = send(*arguments, **more)[1]
    return None if delivered is None else json.loads(delivered.payload)


# --- sharing: MyGym ---

P1 = {
    "id": "p1",
    "subject": "role:frequenter",
    "topic": "+/performance/ts1/+",
    "action": ["read", "write"],
    "when": "'ts1' in s.enrolled",
}
P2 = {
    "id": "p2",
    "subject": "role:coach",
    "topic": "+/performance/#",
    "action": "read",
    "when": "within(e.now, s.shift)",
}
UP1 = {"id": "up1", "user": "mary", "topic": "+/performance/ts1/+", "when": "s.role == 'coach' && s.user == 'alice'"}
UP2 = {"id": "up2", "user": "mary", "topic": "+/performance/ts1/+", "to": "analyzer", "when": "false"}
MYGYM = config(
    node={"name": "mygym", "domain": "mygymbrand", "timezone": "Europe/Rome"},
    directory={
        "users": {
            "mary": {"roles": ["frequenter"], "attributes": {"enrolled": ["ts1"]}},
            "bob": {"roles": ["frequenter"], "attributes": {"enrolled": ["ts1"]}},
            "eve": {"roles": ["frequenter"], "attributes": {"enrolled": []}},
            "carl": {"roles": ["frequenter"]},
            "alice": {"roles": ["coach"], "attributes": {"shift": "08:00-14:00"}},
            "john": {"roles": ["coach"], "attributes": {"shift": "08:00-14:00"}},
        },
    },
    policies=[P1, P2],
)
SPEED = Message(topic="tr1/performance/ts1/speed", payload=b"9.5")
EVENING = NOON + 8 * 3600


@pytest.mark.parametrize(
    ("user", "filter", "granted"),
    [
        ("mary", "+/performance/ts1/+", True),
        ("alice", "+/performance/#", True),
        ("mary", "+/performance/#", True),  # overlaps p1; each message is decided
        ("mary", "+/performance/ts2/+", False),
        ("eve", "+/performance/ts1/+", False),  # not enrolled: p1 is certainly false for her
        ("carl", "+/performance/ts1/+", False),  # p1 is certain to fail for him
        ("alice", "salaries/it", False),
        (None, "+/performance/#", False),
    ],
)
def test_sharing_example_1_subscriptions_of_treadmills_and_tablets(
    user: str | None, filter: str, granted: bool
) -> None:
    assert decide_subscribe(MYGYM, as_user(user), filter) is granted
    assert decide_subscribe(MYGYM, as_user(user), f"$share/hall/{filter}") is granted


def test_sharing_example_3_bob_forbids_john() -> None:
    conf = {**MYGYM, "preferences": [{"id": "not-john", "user": "bob", "topic": "#", "when": "s.user != 'john'"}]}
    assert send(conf, as_user("bob"), SPEED, as_user("alice"))[0].allowed
    refused = Decision(allowed=False, step=Step.READ, rule="not-john")
    assert send(conf, as_user("bob"), SPEED, as_user("john"))[0] == refused
    assert send(conf, as_user("mary"), SPEED, as_user("john"))[0].allowed  # it is Bob's preference, not Mary's


@pytest.mark.parametrize(
    ("user", "topic", "allowed", "rule"),
    [
        ("mary", "tr1/performance/ts1/speed", True, "p1"),
        ("mary", "tr1/performance/ts2/speed", False, None),
        ("eve", "tr1/performance/ts1/speed", False, None),
        ("carl", "tr1/performance/ts1/speed", False, "p1"),  # no such attribute: an error denies
        ("alice", "tr1/performance/ts1/speed", False, None),  # p2 is for reading
        (None, "tr1/performance/ts1/speed", False, None),
    ],
)
def test_sharing_example_4_who_may_publish(user: str | None, topic: str, allowed: bool, rule: str | None) -> None:
    decision = decide_write(MYGYM, as_user(user), Message(topic=topic), NOON)
    assert decision == Decision(allowed=allowed, step=Step.WRITE, rule=rule)


@pytest.mark.parametrize(
    ("user", "now", "allowed"),
    [
        ("bob", NOON, True),
        ("bob", EVENING, True),
        ("alice", NOON, True),
        ("alice", EVENING, False),
        ("eve", NOON, False),
    ],
)
def test_sharing_example_4_who_may_receive(user: str, now: int, allowed: bool) -> None:
    decision, delivered = send(MYGYM, as_user("mary"), SPEED, as_user(user), now=now)
    assert (decision.allowed, delivered is not None) == (allowed, allowed)


@pytest.mark.parametrize(
    ("sender", "receiver", "now", "decision"),
    [
        ("mary", "alice", NOON, Decision(allowed=True, step=Step.WHERE, rule="p2")),
        ("mary", "alice", EVENING, Decision(allowed=False, step=Step.READ)),  # the policy must allow it too
        ("mary", "bob", NOON, Decision(allowed=False, step=Step.READ, rule="up1")),
        ("mary", "john", NOON, Decision(allowed=False, step=Step.READ, rule="up1")),
        ("mary", "mary", NOON, Decision(allowed=False, step=Step.READ, rule="up1")),  # nothing excepts the owner
        ("bob", "mary", NOON, Decision(allowed=True, step=Step.WHERE, rule="p1")),  # "Mary can see Bob's performance"
    ],
)
def test_sharing_examples_5_7_and_8_only_alice_sees_mary(
    sender: str, receiver: str, now: int, decision: Decision
) -> None:
    conf = {**MYGYM, "preferences": [UP1, UP2]}
    assert send(conf, as_user(sender), SPEED, as_user(receiver), now=now)[0] == decision


def test_a_preference_with_to_says_nothing_about_receivers() -> None:
    assert send({**MYGYM, "preferences": [UP2]}, as_user("mary"), SPEED, as_user("bob"))[0].allowed


def test_preferences_unite_errors_in_them_are_false_and_the_anonymous_have_none() -> None:
    rows = [
        {"id": "broken", "user": "mary", "topic": "#", "when": "s.nothing == 1"},
        {"id": "team", "user": "mary", "topic": "#", "when": "s.user == 'bob'", "keep": ["/speed"]},
        {"id": "place", "user": "mary", "topic": "#", "when": "s.user in ['bob', 'john']", "keep": ["/place"]},
        {"id": "trainer", "user": "mary", "topic": "#", "when": "s.user == 'alice'"},
    ]
    conf = config(directory=people(mary="", bob="", john="", alice="", eve=""), preferences=rows)
    message = Message(topic="t", payload=b'{"name":"Mary","speed":9,"place":"hall"}')
    assert got(conf, as_user("mary"), message, as_user("bob")) == {"speed": 9, "place": "hall"}
    assert got(conf, as_user("mary"), message, as_user("john")) == {"place": "hall"}
    assert got(conf, as_user("mary"), message, as_user("alice")) == {"name": "Mary", "speed": 9, "place": "hall"}
    refused = send(conf, as_user("mary"), message, as_user("eve"))[0]
    assert refused == Decision(allowed=False, step=Step.READ, rule="broken")
    assert send(conf, as_user(None), message, as_user("eve"))[0].allowed


def test_preferences_hold_under_open_policies_and_match_the_topic() -> None:
    rows = [{"id": "u", "user": "mary", "topic": "private/#", "when": "false"}]
    conf = config(policies="open", directory=people(mary="", bob=""), preferences=rows)
    assert not send(conf, as_user("mary"), Message(topic="private/x"), as_user("bob"))[0].allowed
    assert send(conf, as_user("mary"), Message(topic="public/x"), as_user("bob"))[0].allowed


# --- levels ---

TLS: Properties = (("require", "tls"),)
NONE: Properties = (("require", "none"),)


@pytest.mark.parametrize("implied", [False, True])
@pytest.mark.parametrize(
    ("case", "publisher", "subscriber", "enforced"),
    [(1, "tls", "tls", True), (2, "tls", "plain", False), (3, "plain", "tls", False), (4, "plain", "plain", True)],
)
def test_levels_figure_1_four_cases_with_unmodified_clients(
    case: int, publisher: str, subscriber: str, enforced: bool, implied: bool
) -> None:
    conf = config(levels={"implied": implied})
    decision = send(conf, as_user(None, publisher), Message(topic="t"), as_user(None, subscriber))[0]
    assert decision.allowed is (enforced or not implied), case
    assert decision.step is (Step.WHERE if decision.allowed else Step.LEVELS)


@pytest.mark.parametrize(
    ("scenario", "connect", "packet", "allowed"),
    [
        ("1st: extends it, on CONNECT", TLS, (), False),
        ("1st: extends it, per message", (), TLS, False),
        ("1st: short form", (), (("s", "1"),), False),
        ("3rd: relaxes it", TLS, NONE, True),
        ("3rd: relaxes it to plain", TLS, (("s", "0"),), True),
        ("relaxed on CONNECT, demanded per message", NONE, TLS, False),
        ("nothing said", (), (), True),
    ],
)
@pytest.mark.parametrize("who", ["publisher", "subscriber"])
def test_levels_scenarios_of_publishers_and_subscribers(
    who: str, scenario: str, connect: Properties, packet: Properties, allowed: bool
) -> None:
    """The secured one demands, the other one is connected without TLS. Subscribers: 2nd and 4th scenario."""
    one, other = as_user(None, "tls", connect), as_user(None, "plain")
    if who == "publisher":
        decision = send(config(), one, Message(topic="t", properties=packet), other)[0]
    else:
        decision = send(config(), other, Message(topic="t"), one, packet)[0]
    assert decision.allowed is allowed, scenario


@pytest.mark.parametrize(
    ("implied", "connect", "packet", "demand"),
    [
        (False, (), (), None),
        (True, (), (), "mtls"),
        (True, NONE, (), None),
        (True, (), NONE, None),
        (True, TLS, (), "tls"),
        (True, NONE, TLS, "tls"),
        (False, TLS, (("s", "3"),), "trusted"),
        (False, TLS, (("other", "x"),), "tls"),
    ],
)
def test_what_is_said_in_the_packet_counts_before_connect_and_that_before_implied(
    implied: bool, connect: Properties, packet: Properties, demand: str | None
) -> None:
    assert demand_of(config(levels={"implied": implied}), packet, as_user(None, "mtls", connect)) == demand


@pytest.mark.parametrize("properties", [(("require", "warp"),), (("s", "4"),), (("s", "-1"),), (("s", "tls"),)])
def test_a_level_that_is_unknown_is_never_met(properties: Properties) -> None:
    demand = demand_of(config(), properties, as_user(None))
    assert demand is not None
    assert not any(meets(config(), level, demand) for level in ("plain", "tls", "mtls", "trusted"))


def test_levels_follow_the_configured_order() -> None:
    conf = config(levels={"order": ["plain", "vpn", "tls"]})
    assert demand_of(conf, (("s", "1"),), as_user(None)) == "vpn"
    assert [meets(conf, level, "vpn") for level in ("plain", "vpn", "tls", "mtls")] == [False, True, True, False]
    assert meets(conf, "mtls", None)


def test_the_connection_at_the_moment_of_sending_counts() -> None:
    message = Message(topic="t", properties=TLS)
    context = context_of(config(), as_user(None, "tls"), message, NOON)
    for level, allowed in (("tls", True), ("plain", False), ("mtls", True)):
        receiver = as_user(None, level, client="same")
        assert decide_read(config(), context, message, receiver, Subscription(filter="t"), NOON)[0].allowed is allowed


def test_the_floor_is_told_and_instructions_are_not_delivered() -> None:
    said = (("k", "v"), ("floor", "trusted"), ("require", "plain"), ("view", '{"*":"all"}'), ("k", "w"))
    delivered = send(config(), as_user(None, "tls"), Message(topic="t", properties=said), as_user(None))[1]
    assert delivered == Delivered(payload=b"", whole=True, properties=(("k", "v"), ("k", "w")), floor="tls")


# --- SEC-REDS: views ---

PATIENT = Message(
    topic="angina",
    payload=b'{"identity":{"name":"John"},"illness":"steady angina","therapy":"Carvasin 10mg"}',
    properties=(("view", '{"group:cardiologists": ["/illness"], "user:andrew": "all"}'), ("ward", "7")),
)
HOSPITAL = config(directory=people(john="", andrew="group:cardiologists", mark="group:cardiologists", eve=""))


def test_sec_reds_appendix_b_the_patient_and_the_cardiologists() -> None:
    whole = json.loads(PATIENT.payload)
    assert got(HOSPITAL, as_user("john"), PATIENT, as_user("andrew")) == whole
    assert got(HOSPITAL, as_user("john"), PATIENT, as_user("mark")) == {"illness": "steady angina"}
    decision, delivered = send(HOSPITAL, as_user("john"), PATIENT, as_user("eve"))
    assert (decision, delivered) == (Decision(allowed=False, step=Step.VIEW), None)


def test_user_properties_count_as_content() -> None:
    andrew = send(HOSPITAL, as_user("john"), PATIENT, as_user("andrew"))[1]
    mark = send(HOSPITAL, as_user("john"), PATIENT, as_user("mark"))[1]
    assert andrew is not None
    assert mark is not None
    assert (andrew.whole, andrew.properties, andrew.payload) == (True, (("ward", "7"),), PATIENT.payload)
    assert (mark.whole, mark.properties) == (False, ())


@pytest.mark.parametrize(
    ("student", "seen"),
    [("one", ["socrates"]), ("two", ["socrates", "kant"]), ("three", ["socrates", "kant", "hegel"]), ("none", None)],
)
def test_sec_reds_figures_2_14_to_2_16_the_teacher_and_the_students(student: str, seen: list[str] | None) -> None:
    lesson = {"socrates": "knew nothing", "kant": "was punctual", "hegel": "was long"}
    table = {"group:I": ["/socrates"], "group:II": ["/socrates", "/kant"], "group:III": "all"}
    message = Message(
        topic="phylosophy", payload=json.dumps(lesson).encode(), properties=(("view", json.dumps(table)),)
    )
    conf = config(directory=people(teacher="", one="group:I", two="group:II", three="group:III", none=""))
    expected = None if seen is None else {name: lesson[name] for name in seen}
    assert got(conf, as_user("teacher"), message, as_user(student)) == expected


def test_rows_of_the_administrator_unite_and_tables_intersect() -> None:
    rows = [
        {"id": "v1", "topic": "angina", "for": "group:cardiologists", "keep": ["/illness", "/therapy"]},
        {"id": "v2", "topic": "+", "for": ["user:mark", "user:john"], "keep": ["/identity"]},
    ]
    conf = {**HOSPITAL, "views": rows}
    plain = Message(topic="angina", payload=PATIENT.payload)
    assert got(conf, as_user("john"), plain, as_user("andrew")) == {
        "illness": "steady angina",
        "therapy": "Carvasin 10mg",
    }
    assert got(conf, as_user("john"), plain, as_user("mark")) == json.loads(PATIENT.payload)
    assert got(conf, as_user("john"), plain, as_user("eve")) is None  # no row for her: nothing
    assert got(conf, as_user("john"), PATIENT, as_user("andrew")) == {
        "illness": "steady angina",
        "therapy": "Carvasin 10mg",
    }
    assert got(conf, as_user("john"), PATIENT, as_user("mark")) == {"illness": "steady angina"}
    elsewhere = Message(topic="a/b", payload=b"1")
    assert got(conf, as_user("john"), elsewhere, as_user("eve")) == 1  # no row for the topic: no restriction


@pytest.mark.parametrize(
    "table", ["{", "[]", '{"*":"some"}', '{"*":["level"]}', '{"*":["/~2"]}', '{"who":"all","*":"all"}', ""]
)
def test_a_table_that_cannot_be_read_shows_nothing(table: str) -> None:
    message = Message(topic="t", payload=b'{"level":1}', properties=(("view", table),))
    assert send(config(), as_user(None), message, as_user(None))[0] == Decision(allowed=False, step=Step.VIEW)


@pytest.mark.parametrize("payload", [b"", b"text", b"\xff", b'{"level":NaN}', b'{"level":1'])
def test_content_that_is_not_json_is_all_or_nothing(payload: bytes) -> None:
    for table, passes in (('{"*":"all"}', True), ('{"*":["/level"]}', False)):
        message = Message(topic="t", payload=payload, properties=(("view", table),))
        delivered = send(config(), as_user(None), message, as_user(None))[1]
        assert (delivered is not None) is passes
        assert delivered is None or delivered.payload == payload


@pytest.mark.parametrize(
    ("content", "keep", "left"),
    [
        ({"a": 1, "b": 2}, ["/a"], {"a": 1}),
        ({"a": {"b": 1, "c": 2}}, ["/a/b"], {"a": {"b": 1}}),
        ({"a": {"b": 1, "c": 2}}, ["/a", "/a/b"], {"a": {"b": 1, "c": 2}}),
        ({"a": None, "b": {}}, ["/a", "/b"], {"a": None, "b": {}}),
        ({"a/b": 1, "m~n": 2, "": 3}, ["/a~1b", "/m~0n"], {"a/b": 1, "m~n": 2}),
        ({"": 3, "a": 1}, ["/"], {"": 3}),
        ({"list": [{"x": 1, "y": 2}, {"x": 3}]}, ["/list/0/x"], {"list": [{"x": 1}]}),
        ({"list": [1, 2, 3]}, ["/list/1"], {"list": [None, 2]}),
        ({"list": [1]}, ["/list/-", "/list/00", "/list/7"], Absent.ABSENT),
        ({"a": 1}, ["/a/b", "/c"], Absent.ABSENT),
        (5, ["/a"], Absent.ABSENT),
        ({}, ["/a"], Absent.ABSENT),
        ({"a": 1}, [], Absent.ABSENT),
        (5, [""], 5),
        ([], "all", []),
    ],
)
def test_what_is_left_of_json(content: Any, keep: Any, left: Any) -> None:
    assert what_is_left(content, kept(keep)) == left


FULL = {a: {b: dict.fromkeys("ab", 0) for b in "ab"} for a in "ab"}
POINTERS = st.lists(st.sampled_from("ab"), min_size=1, max_size=4).map(
    lambda names: "".join(f"/{name}" for name in names)
)
KEEPS = st.lists(POINTERS, max_size=4) | st.sampled_from(["all", [""]])


def leaves(tree: Any, path: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    if isinstance(tree, dict):
        return {leaf for name, inner in tree.items() for leaf in leaves(inner, (*path, name))}
    return set() if tree is Absent.ABSENT else {path}


@example(first=["/a"], second=["/a/b", "/b"])
@given(first=KEEPS, second=KEEPS)
def test_views_unite_and_intersect_leaf_by_leaf(first: Any, second: Any) -> None:
    one, other = (leaves(what_is_left(FULL, kept(keep))) for keep in (first, second))
    assert leaves(what_is_left(FULL, united([kept(first), kept(second)]))) == one | other
    assert leaves(what_is_left(FULL, intersected([kept(first), kept(second)]))) == one & other
    assert intersected([]) is Whole.WHOLE
    assert united([]) == frozenset()


# --- where ---


@pytest.mark.parametrize(
    ("where", "table", "allowed"),
    [
        ("o.payload.level > 2", "all", True),
        ("o.payload.level > 3", "all", False),
        ("o.payload.name == 'John'", "all", True),
        ("o.payload.name == 'John'", ["/level"], False),  # hidden: an error, not an answer
        ("!(o.payload.name == 'John')", ["/level"], False),
        ("!has(o.payload.name)", ["/level"], True),
        ("o.size == 27", "all", True),
        ("o.size == 11", ["/level"], True),
        ("o.properties.k == 'v'", "all", True),
        ("size(o.properties) == 1", "all", True),  # the table of visibility is no content
        ("size(o.properties) == 0", ["/level"], True),
        ("e.hour == 12 && o.topic == 't'", ["/level"], True),
        ("has(s.user) || true", "all", True),  # CEL: `error || true` is true
        ("s.client == 'None-phone'", "all", False),
        ("p.topic == 't'", "all", False),
    ],
)
def test_where_sees_what_the_view_leaves_and_nothing_of_people(where: str, table: Any, allowed: bool) -> None:
    properties = (("k", "v"), ("view", json.dumps({"*": table})))
    message = Message(topic="t", payload=b'{"level": 3,"name": "John"}', properties=properties)
    decision = send(config(), as_user(None), message, as_user(None), (("where", where),))[0]
    assert decision == Decision(allowed=allowed, step=Step.WHERE, rule="all" if allowed else None)


# --- policies ---

ALLOW, DENY, NO, ERROR = {"effect": "allow"}, {"effect": "deny"}, {"when": "false"}, {"when": "s.nothing == 1"}
ELSEWHERE = {"when": "s.nothing == 1", "topic": "elsewhere"}


@pytest.mark.parametrize(
    ("rows", "deny_overrides", "permit_overrides", "first_applicable"),
    [
        ([], None, None, None),
        ([NO], None, None, None),
        ([ALLOW], 1, 1, 1),
        ([DENY], -1, -1, -1),
        ([ALLOW, DENY], -2, 1, 1),
        ([DENY, ALLOW], -1, 2, -1),
        ([NO, ALLOW, DENY], -3, 2, 2),
        ([ALLOW, ERROR], -2, -2, -2),
        ([ERROR, ALLOW], -1, -1, -1),
        ([DENY, ERROR], -2, -2, -2),
        ([{**ERROR, **DENY}, ALLOW], -1, -1, -1),
        ([ELSEWHERE, ALLOW], 2, 2, 2),
    ],
)
def test_combining(
    rows: list[dict[str, str]], deny_overrides: int | None, permit_overrides: int | None, first_applicable: int | None
) -> None:
    """The number of the rule that decides, negative if it denies; None: nothing matches, so deny."""
    policies = [
        {"id": str(at), "subject": "*", "topic": "#", "action": "write", **row} for at, row in enumerate(rows, 1)
    ]
    for combining, expected in (
        ("deny-overrides", deny_overrides),
        ("permit-overrides", permit_overrides),
        ("first-applicable", first_applicable),
    ):
        decision = decide_write(config(policies=policies, combining=combining), as_user(None), Message(topic="t"), NOON)
        rule = None if expected is None else str(abs(expected))
        assert decision == Decision(allowed=(expected or 0) > 0, step=Step.WRITE, rule=rule), combining


def test_open_must_be_written_out() -> None:
    for policies, allowed in (("open", True), ([], False), (None, False)):
        conf = config(policies=policies)
        assert decide_write(conf, as_user(None), Message(topic="t"), NOON).allowed is allowed
        assert decide_subscribe(conf, as_user(None), "t") is allowed


def test_open_switches_off_neither_levels_nor_views() -> None:
    conf = config(policies="open", views=[{"id": "v", "topic": "t", "for": "user:nobody", "keep": "all"}])
    assert send(conf, as_user(None), Message(topic="t"), as_user(None))[0].step is Step.VIEW
    assert send(conf, as_user(None), Message(topic="u", properties=TLS), as_user(None))[0].step is Step.LEVELS


def test_who_is_removed_from_the_directory_neither_sends_nor_gets() -> None:
    conf = config(policies="open", directory=people(mary=""))
    message = Message(topic="t")
    context = context_of(config(directory=people(bob="")), as_user("bob"), message, NOON)
    assert not decide_write(conf, as_user("bob"), message, NOON).allowed
    assert not decide_subscribe(conf, as_user("bob"), "t")
    assert not decide_read(conf, context, message, as_user("bob"), Subscription(filter="t"), NOON)[0].allowed
    assert decide_read(conf, context, message, as_user("mary"), Subscription(filter="t"), NOON)[0].allowed


def test_selectors() -> None:
    conf = config(directory={"users": {"mary": {"roles": ["coach", "runner"], "groups": ["team"]}}})
    s = subject_attributes(conf, as_user("mary", client="c1"))
    chosen = ["*", "user:mary", "role:coach", "role:runner", "group:team", "client:c1", ["user:bob", "group:team"]]
    others = ["user:bob", "role:team", "client:mary", "scope:main", "link:c1->main", "service:c1", "monitor:c1"]
    assert [selector for selector in chosen if not selects(selector, s)] == []
    assert [selector for selector in [*others, others, []] if selects(selector, s)] == []


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        ("x/{s.user}/t", "x/mary/t"),
        ("{s.user}", "mary"),
        ("x/{s.user}-{s.bay}/{s.user}", "x/mary-7/mary"),
        ("x/{s.slash}", None),
        ("x/{s.plus}", None),
        ("x/{s.hash}", None),
        ("x/{s.list}", None),
        ("x/{s.on}", None),
        ("x/{s.nothing}", None),
        ("x/{s.user.more}", None),
        ("x/{s.brace}", "x/{s.user}"),
        ("x/+/#", "x/+/#"),
    ],
)
def test_placeholders(topic: str, expected: str | None) -> None:
    s = {
        "user": "mary",
        "bay": 7,
        "slash": "a/b",
        "plus": "+",
        "hash": "a#",
        "list": ["a"],
        "on": True,
        "brace": "{s.user}",
    }
    assert filled(topic, s) == expected


@pytest.mark.parametrize(
    ("filter", "topic", "allowed"),
    [("#", "$dev/b", False), ("+/b", "$dev/b", False), ("$dev/#", "$dev/b", True), ("#", "dev/$b", True)],
)
def test_wildcards_never_match_a_leading_dollar(filter: str, topic: str, allowed: bool) -> None:
    conf = config(policies=[{"id": "p", "subject": "*", "topic": filter, "action": ["read", "write"]}])
    assert decide_write(conf, as_user(None), Message(topic=topic), NOON).allowed is allowed
    assert decide_subscribe(conf, as_user(None), topic) is allowed


@pytest.mark.parametrize(
    ("row", "granted"),
    [
        ({}, True),
        ({"effect": "deny"}, False),
        ({"action": "write"}, False),
        ({"when": "false"}, False),
        ({"when": "s.user == 'bob'"}, False),
        ({"when": "s.nothing == 1"}, False),
        ({"when": "o.payload.level > 3"}, True),
        ({"when": "e.hour == 3"}, True),
        ({"when": "p.user == s.user"}, True),
        ({"when": "s.user == 'bob' && o.qos == 0"}, False),
        ({"topic": "x/{s.user}/#"}, True),
        ({"topic": "x/bob/#"}, False),
        ({"topic": "x/{s.nothing}/#"}, False),
    ],
)
def test_a_subscription_needs_an_allowing_policy_that_may_come_true(row: dict[str, Any], granted: bool) -> None:
    policy = {"id": "p", "subject": "*", "topic": "#", "action": "read", **row}
    conf = config(policies=[policy], directory=people(mary=""))
    assert decide_subscribe(conf, as_user("mary"), "x/mary/+") is granted
    denied = {"id": "d", "subject": "*", "topic": "#", "action": "read", "effect": "deny", "when": "o.qos == 1"}
    assert decide_subscribe({**conf, "policies": [denied, policy]}, as_user("mary"), "x/mary/+") is granted


# --- attributes ---


def test_attributes_of_the_subject() -> None:
    directory = {
        "roles": {"coach": {"attributes": {"a": "coach", "b": "coach", "c": "coach", "d": "coach", "user": "evil"}}},
        "groups": {"team": {"attributes": {"b": "team", "c": "team", "d": "team", "role": "evil"}}},
        "users": {
            "mary": {"roles": ["coach", "runner"], "groups": ["team"], "attributes": {"c": "mary", "d": "mary"}},
            "bob": {},
        },
        "clients": {"c1": {"user": "mary", "attributes": {"d": "c1", "level": "trusted", "machine": "treadmill"}}},
    }
    conf = config(node={"name": "here", "domain": "world"}, scopes={"gym": {}}, directory=directory)
    facts = {"domain": "world", "scope": "gym", "node": "here", "kind": "client", "level": "plain", "facts": []}
    facts |= {"address": "127.0.0.1", "listener": "mqtt://127.0.0.1:1883"}
    mary = {
        "user": "mary",
        "role": "coach",
        "roles": ["coach", "runner"],
        "groups": ["team"],
        "a": "coach",
        "b": "team",
    }
    theirs = {"c": "mary", "d": "c1", "machine": "treadmill"}
    assert subject_attributes(conf, as_user("mary", client="c1")) == {**facts, "client": "c1", **mary, **theirs}
    assert subject_attributes(conf, as_user("mary", client="c2")) == {
        **facts,
        "client": "c2",
        **mary,
        "c": "mary",
        "d": "mary",
    }
    nobody: dict[str, Any] = {"roles": [], "groups": []}
    # c1 is Mary's: whoever else says so is no client that a rule could mean
    assert subject_attributes(conf, as_user("bob", client="c1")) == {**facts, "user": "bob", **nobody}
    assert subject_attributes(conf, as_user(None, client="c1")) == {**facts, **nobody}
    secured = Connection(client="c3", tls=("1.3", "AES"))
    assert subject_attributes(conf, secured)["tls"] == {"version": "1.3", "cipher": "AES"}
    assert subject_attributes(config(), as_user(None))["domain"] == "here"


def test_attributes_of_the_message() -> None:
    conf = config(classify=[{"topic": "a/#", "category": "personal"}, {"topic": "a/b", "category": "sensitive"}])
    properties = (("k", "v"), ("require", "tls"), ("n", "1"), ("n", "2"))
    message = Message(topic="a/b", payload=b'{"level": 3}', qos=1, retain=True, properties=properties)
    assert object_attributes(conf, message) == {
        "topic": "a/b",
        "levels": ["a", "b"],
        "qos": 1,
        "retain": True,
        "size": 12,
        "properties": {"k": "v", "n": ["1", "2"]},  # without instructions
        "payload": {"level": 3},
        "category": "personal",
    }
    bare = {"topic": "b", "levels": ["b"], "qos": 0, "retain": False, "size": 2, "properties": {}}
    assert object_attributes(conf, Message(topic="b", payload="é".encode())) == bare
    assert object_attributes(conf, Message(topic="b", payload=b"null"))["payload"] is None


@pytest.mark.parametrize(
    ("now", "hour", "minute", "weekday", "date"),
    [
        ("2026-02-11T23:05:00+00:00", 0, 5, 3, "2026-02-12"),
        ("2026-03-29T00:59:59+00:00", 1, 59, 6, "2026-03-29"),
        ("2026-03-29T01:00:00+00:00", 3, 0, 6, "2026-03-29"),  # the clocks go forward
        ("2026-10-25T00:30:00+00:00", 2, 30, 6, "2026-10-25"),
        ("2026-10-25T01:30:00+00:00", 2, 30, 6, "2026-10-25"),  # and back
    ],
)
def test_attributes_of_the_environment(now: str, hour: int, minute: int, weekday: int, date: str) -> None:
    conf = config(node={"name": "here", "timezone": "Europe/Rome"}, environment={"location": "milan", "hour": 99})
    instant = datetime.fromisoformat(now)
    e = environment_attributes(conf, instant.timestamp())
    assert e.pop("now").astimezone(UTC) == instant
    assert e == {"location": "milan", "hour": hour, "minute": minute, "weekday": weekday, "date": date}


def test_the_publish_context_stays_as_it_was() -> None:
    before = config(directory=people(mary="coach"), environment={"location": "milan"}, levels={"implied": True})
    after = config(
        directory=people(mary="runner", bob="coach"),
        environment={"location": "rome"},
        policies=[
            {
                "id": "p",
                "subject": "*",
                "topic": "#",
                "action": "read",
                "when": "p.role == 'coach' && s.role == 'coach' && p.e.location == 'milan' && e.location == 'rome'"
                " && p.e.hour == 12 && e.hour == 14 && age(p.time) == duration('2h') && p.level == 'tls'"
                " && p.floor == 'tls' && p.topic == 't' && p.qos == 1 && p.size == 3 && p.node == 'here'"
                " && p.client == 'mary-phone' && p.user == 'mary'",
            }
        ],
    )
    message = Message(topic="t", payload=b"abc", qos=1)
    context = context_of(before, as_user("mary", "tls"), message, NOON)
    subscription = Subscription(filter="t", properties=NONE)
    later = NOON + 7200
    receive = decide_read(after, context, message, as_user("bob", "tls"), subscription, later)[0]
    assert receive == Decision(allowed=True, step=Step.WHERE, rule="p")
    # The demand was implied when it was published, and goes with the message.
    assert decide_read(after, context, message, as_user("bob"), subscription, later)[0].step is Step.LEVELS


def test_there_is_no_publisher_on_the_way_in() -> None:
    conf = config(policies=[{**ALLOW_ALL[0], "when": "p.user == s.user"}], directory=people(mary=""))
    assert decide_write(conf, as_user("mary"), Message(topic="t"), NOON) == Decision(
        allowed=False, step=Step.WRITE, rule="all"
    )


def test_policies_see_the_message_before_the_view() -> None:
    conf = config(policies=[{**ALLOW_ALL[0], "when": "o.payload.name == 'John' && o.size == 25"}])
    message = Message(topic="t", payload=b'{"level":3,"name":"John"}', properties=(("view", '{"*":["/level"]}'),))
    assert got(conf, as_user(None), message, as_user(None)) == {"level": 3}


# --- worlds ---

SEEN: Counter[str] = Counter()
QUICKLY = settings(
    max_examples=1200,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)


@QUICKLY
@given(worlds.situations())
def see(situation: worlds.Situation) -> None:
    conf, message, properties = situation.configuration, situation.message, situation.subscription.properties
    written = decide_write(situation.then, situation.publisher, message, situation.published)
    SEEN[f"write {written.allowed} {'by rule' if written.rule else ''}"] += 1
    SEEN[f"subscribe {decide_subscribe(conf, situation.subscriber, situation.subscription.filter)}"] += 1
    context = context_of(situation.then, situation.publisher, message, situation.published)
    arguments = (context, message, situation.subscriber, situation.subscription, situation.sent)
    decision, delivered = decide_read(conf, *arguments)
    SEEN[f"{decision.step} {decision.allowed} {(decision.rule or '-')[0]}"] += 1
    assert (delivered is not None) is decision.allowed
    if delivered is not None:
        SEEN[f"delivered whole {delivered.whole}"] += 1
        SEEN[f"delivered with where {any(name == 'where' for name, _ in properties)}"] += 1
        assert not {name for name, _ in delivered.properties} & {"require", "s", "view", "floor"}
    if conf != situation.then:
        SEEN[f"changed {decide_read(situation.then, *arguments)[0].allowed} {decision.allowed}"] += 1


def test_situations_reach_every_outcome() -> None:
    see()
    expected = {
        *("write True by rule", "write True ", "write False by rule", "write False "),
        *("subscribe True", "subscribe False", "brokering False -", "levels False -"),
        *(
            "read False -",
            "read False p",
            "read False u",
            "view False -",
            "where False -",
            "where True p",
            "where True -",
        ),
        *("delivered whole True", "delivered whole False", "delivered with where True"),
        *("changed True False", "changed False True", "changed True True"),
    }
    assert expected <= set(SEEN), f"never seen: {expected - set(SEEN)}"


@settings(QUICKLY, max_examples=100)
@given(worlds.worlds())
def test_worlds_can_be_written_into_files_and_every_condition_compiles(world: worlds.World) -> None:
    changed = [one.configuration for one in world.operations if isinstance(one, worlds.Reconfigure)]
    for conf in (world.configuration, *changed):
        assert json.loads(json.dumps(conf)) == conf
        rows = [*(conf["policies"] if conf["policies"] != "open" else ()), *conf["preferences"], *conf["views"]]
        assert len({row["id"] for row in rows}) == len(rows)
        for row in rows:
            compile_predicate(row.get("when", "true"))
            kept(row.get("keep", "all"))
        users = conf["directory"]["users"]
        owners = [row["user"] for row in conf["preferences"]]
        assert {*owners, *(one["user"] for one in conf["directory"].get("clients", {}).values())} <= set(users)
    for operation in world.operations:
        if isinstance(operation, worlds.Subscribe):
            for name, text in operation.subscription.properties:
                if name == "where":
                    compile_predicate(text, names=frozenset({"o", "e"}))
