"""Who can read a topic: what is answered by class is what trying everybody says, for random rules and changes."""

from __future__ import annotations

import json
import time
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.config import Config, Operation, parse
from tidegate.explain.question import Question
from tidegate.explain.readers import Can, Readable, Readers
from tidegate.explain.what_if import WhatIf
from tidegate.session import Subject

TOPIC = "gym/mary/speed"
NOON = 1_767_614_400.0  # a Monday at noon, UTC
USERS = ("mary", "bob", "alice", "rita", "dan")
CLIENTS = ("other", "kiosk", "tr1", "tablet")
UNKNOWN = CLIENTS[:2]  # whoever comes as the others without a user has proven to be them
BASE: dict[str, Any] = {
    "version": 1,
    "node": {"name": "n"},
    "listeners": [{"url": "mqtt://127.0.0.1:1883", "anonymous": True}],
    "directory": {
        "users": {
            "mary": {"roles": ["member"]},
            "bob": {"roles": ["coach"], "attributes": {"age": 30}},
            "alice": {"roles": ["coach", "nurse"]},
            "rita": {"groups": ["visitors"], "attributes": {"age": 20}},
            "dan": {},
        },
        "clients": {
            "tr1": {"user": "mary"},
            "tablet": {"user": "alice", "roles": ["device"], "attributes": {"ward": 3}},
            "door": {"roles": ["nurse"]},
        },
    },
}
WRITE = {"id": "w", "subject": "user:mary", "topic": "#", "action": "write"}
SUBJECTS = ("*", "role:coach", "role:nurse", "group:visitors", "user:bob", "user:mary", "client:tablet", "client:kiosk")
TOPICS = ("#", "gym/#", "gym/mary/+", "gym/{s.user}/#", "gym/{s.client}/#", "+/+/speed", "other")
KNOWN_AT_ONCE = (
    "s.user == 'bob'",
    "s.user != 'alice'",
    "s.user in ['bob', 'rita']",
    "s.age > 25",
    "has(s.age)",
    "'nurse' in s.roles",
    "s.user.startsWith('a')",
    "p.user == s.user",
    "o.topic.endsWith('speed')",
    "s.nothing == 1",
)
LATER = (
    "o.payload.v > 3",
    "s.client == 'kiosk'",
    "s.ward == 3",
    "s.level >= 'tls'",
    "within(e.now, '08:00-14:00')",
    "s.user == 'bob' && o.payload.v > 3",
)
SOMETIMES = st.sampled_from([None, None, "x"])


def rows(conditions: tuple[str, ...], subjects: tuple[str, ...], topics: tuple[str, ...]) -> st.SearchStrategy[Any]:
    when = st.sampled_from((None, None, *conditions))
    effect = st.sampled_from(("allow", "allow", "deny"))
    policy = st.fixed_dictionaries(
        {"subject": st.sampled_from(subjects), "topic": st.sampled_from(topics), "when": when}
    )
    preference = st.fixed_dictionaries(
        {"topic": st.sampled_from(("#", "gym/mary/#", "b")), "when": when, "effect": effect}
    )
    view = st.fixed_dictionaries({"for": st.sampled_from(subjects), "keep": st.sampled_from((["/v"], "all"))})
    effects = st.lists(effect, min_size=4, max_size=4)
    return st.tuples(
        st.lists(policy, max_size=4),
        effects,
        st.lists(preference, max_size=3),
        st.lists(view, max_size=2),
        st.sampled_from(("deny-overrides", "deny-overrides", "permit-overrides", "first-applicable")),
    )


def made(drawn: Any) -> Config:
    policies, effects, preferences, views, combining = drawn
    text = {
        **BASE,
        "combining": combining,
        "policies": [
            WRITE,
            *(
                _without_nothing({"id": f"p{n}", "action": "read", "effect": effect, **policy})
                for n, (policy, effect) in enumerate(zip(policies, effects, strict=False))
            ),
        ],
        "preferences": [
            _without_nothing({"id": f"u{n}", "user": "mary", **each}) for n, each in enumerate(preferences)
        ],
        "views": [{"id": f"v{n}", "topic": "gym/#", **each} for n, each in enumerate(views)],
    }
    return parse(json.dumps(text), "f.yaml")


def _without_nothing(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if value is not None}


def readers(config: Config, topic: str = TOPIC) -> Readers:
    rules = config.built.rules
    owner = Subject(
        kind="client", client="tr1", user="mary", scope="main", node="n", domain=rules.domain, roles=("member",)
    )
    return Readers(rules, config.built.directory, owner, topic, NOON, anonymous=True)


def answers(config: Config) -> dict[str | None, Readable]:
    return {user: each.readable for each in readers(config).classes() for user in each.users}


def tried(config: Config, user: str | None) -> set[bool]:
    """What becomes of a message to somebody, whatever they connect with, and whatever and whenever is published."""
    what_if = WhatIf(config)
    found = set()
    clients = UNKNOWN if user is None else CLIENTS
    for client, payload, level, hour in product(clients, (b'{"v": 1}', b'{"v": 5}', b"x"), ("plain", "tls"), (0, 9)):
        name = f"client:{client}" if user is None else f"user:{user}/client:{client}"
        question = Question(
            subject=name,
            action=Operation.READ,
            topic=TOPIC,
            publisher="user:mary/client:tr1",
            payload=payload,
            at=NOON + 3600 * hour,
            overrides={"s.level": level},
        )
        found.add(what_if.explain(question).allowed)
    return found


@settings(max_examples=40)
@given(rows((*KNOWN_AT_ONCE, *LATER), SUBJECTS, TOPICS), st.sampled_from((*USERS, None)))
def test_the_answers_are_what_trying_says(drawn: Any, user: str | None) -> None:
    config = made(drawn)
    answer, outcomes = answers(config)[user], tried(config, user)
    match answer.can:
        case Can.YES if answer.parts is None:
            assert outcomes == {True}, answer
        case Can.YES:  # of what is no JSON nothing can be shown
            assert True in outcomes, answer
        case Can.NO:
            assert outcomes == {False}, answer
        case Can.IF:
            assert answer.when


@settings(max_examples=60)
@given(rows(KNOWN_AT_ONCE, tuple(one for one in SUBJECTS if "client" not in one), TOPICS[:4]))
def test_where_everything_is_known_nothing_is_left_open(drawn: Any) -> None:
    config = made(drawn)
    found = answers(config)
    assert set(found) == {*USERS, None}
    assert {answer.can for answer in found.values()} <= {Can.YES, Can.NO}
    for user in ("bob", "rita", None):
        [allowed] = tried(config, user) if found[user].parts is None else {found[user].can is Can.YES}
        assert allowed is (found[user].can is Can.YES)


@settings(max_examples=100)
@given(rows((*KNOWN_AT_ONCE, *LATER), SUBJECTS, TOPICS))
def test_a_class_is_asked_once_and_says_what_each_of_its_users_would_be_told(drawn: Any) -> None:
    config = made(drawn)
    together = answers(config)
    for user, answer in together.items():
        assert readers(config).of(user) == answer, "alone"


def test_after_a_change() -> None:
    policy = {"subject": "role:coach", "topic": "gym/#", "when": None}
    before = answers(made(([policy], ["allow"], [], [], "deny-overrides")))
    assert {user for user, each in before.items() if each.can is Can.YES} == {"bob", "alice"}
    stop = {"topic": "#", "when": "s.user == 'bob'", "effect": "deny"}
    after = answers(made(([policy], ["allow"], [stop], [], "deny-overrides")))
    assert after["bob"] == Readable(can=Can.NO, rules=("u0",))
    assert {user for user, each in after.items() if each.can is Can.YES} == {"alice"}


@pytest.mark.parametrize(
    ("when", "user", "left"),
    [
        ("s.user == 'bob' && o.payload.v > 3", "bob", "o.payload.v > 3"),
        ("s.age > 25 || o.payload.v == 'x'", "rita", 'o.payload.v == "x"'),
        ("s.level >= 'tls' && 'coach' in s.roles", "alice", "rank(s.level) >= 1"),
    ],
)
def test_the_condition_that_is_left(when: str, user: str, left: str) -> None:
    found = answers(made(([{"subject": "*", "topic": "#", "when": when}], ["allow"], [], [], "deny-overrides")))
    assert (found[user].can, found[user].when) == (Can.IF, left)


def test_clients_that_rules_speak_of() -> None:
    policy = {"subject": "client:tablet", "topic": "gym/#", "when": None}
    found = answers(made(([policy], ["allow"], [], [], "deny-overrides")))
    assert found["alice"].when == 's.client == "tablet"'
    assert found["bob"].can is Can.NO
    kiosk = answers(made(([{**policy, "subject": "client:kiosk"}], ["deny"], [], [], "deny-overrides")))
    assert all(each.can is Can.NO for each in kiosk.values())


def test_clients_that_are_of_nobody() -> None:
    policy = {"subject": "role:nurse", "topic": "gym/#", "when": None}
    [yes] = [
        each
        for each in readers(made(([policy], ["allow"], [], [], "deny-overrides"))).classes()
        if each.readable.can is Can.YES
    ]
    assert (yes.users, yes.clients) == (("alice",), ("door",))


def test_many_users_are_few_classes() -> None:
    users = {f"u{n}": {"roles": [f"r{n % 7}"]} for n in range(2000)} | {"mary": {}, "bob": {"roles": ["r3"]}}
    policies = [
        {"id": f"p{n}", "subject": f"role:r{n % 10}", "topic": f"gym/{'+' if n % 50 else 'mary'}/#", "action": "read"}
        for n in range(200)
    ]
    policies[0]["when"] = "s.user != 'u7'"
    text = {**BASE, "directory": {"users": users}, "policies": policies}
    text["preferences"] = [{"id": "no", "user": "mary", "topic": "#", "effect": "deny", "when": "s.user == 'bob'"}]
    asked = readers(parse(json.dumps(text), "f.yaml"))
    started = time.perf_counter()
    classes = asked.classes()
    assert time.perf_counter() - started < 60, "it ends"
    assert sum(len(each.users) for each in classes) == len(users) + 1
    assert asked.asked < 30
