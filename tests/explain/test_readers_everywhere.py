"""Readers over links and brokering, where levels are implied, and of other domains: yes means yes, as trying says."""

from __future__ import annotations

import json
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
NOON = 1_767_614_400.0
USERS = ("mary", "bob", "alice", "dan")
TYPES = ("red", "blue")
BASE: dict[str, Any] = {
    "version": 1,
    "node": {"name": "n", "domain": "home"},
    "scopes": {"a": {}, "b": {}, "c": {}},
    "listeners": [
        {"url": "mqtt://127.0.0.1:1883", "scope": "a"},
        {"url": "mqtt://127.0.0.1:1884", "scope": "b"},
        {"url": "mqtt://127.0.0.1:1885", "scope": "c"},
    ],
    "directory": {
        "users": {"mary": {}, "bob": {"roles": ["coach"]}, "alice": {"roles": ["nurse"]}, "dan": {}},
        "clients": {"tr1": {"user": "mary"}},
    },
}
WRITE = {"id": "w", "subject": "user:mary", "topic": "#", "action": "write"}
CONDITIONS = (None, None, "o.payload.v > 3", "s.user == 'bob'", "s.scope == 'b'", "s.nothing == 1")
PRESENT = st.booleans()


@st.composite
def worlds(draw: st.DrawFn) -> Config:
    """Some links among three scopes, with names that change; types of links and clients; policies; preferences."""
    pairs = draw(st.lists(st.sampled_from((("a", "b"), ("b", "c"), ("a", "c"))), unique=True, max_size=3))
    types = st.sampled_from(TYPES)
    links = [
        {
            "from": source,
            "to": target,
            "share": [{"topic": draw(st.sampled_from(("#", "gym/#", "other"))), "direction": "out"}],
        }
        for source, target in pairs
    ]
    renamed = draw(st.booleans())
    for link in links[:1] if renamed else ():
        link["share"] = [{"topic": "#", "direction": "out", "remote_prefix": "far/"}]
    who = st.sampled_from(("role:coach", "role:nurse", "user:mary", "user:bob", "*"))
    assign = [{"client": draw(who), "in": draw(types), "out": draw(types)} for _ in range(draw(st.integers(0, 2)))]
    assign.append({"client": "*", "in": draw(types), "out": draw(types)})
    assign += [{"link": f"{source}->{target}", "type": draw(types)} for source, target in pairs]
    allow = draw(st.lists(st.sampled_from(list(product(TYPES, TYPES))), unique=True, min_size=1))
    subjects = ("*", "role:coach", "user:bob", "user:dan", *(f"link:{source}->{target}" for source, target in pairs))
    policies = [
        {
            "id": f"p{n}",
            "subject": draw(st.sampled_from(subjects)),
            "topic": draw(st.sampled_from(("#", "gym/#", "far/#"))),
            "action": ["read", "write"],
            "effect": draw(st.sampled_from(("allow", "allow", "allow", "deny"))),
            "when": draw(st.sampled_from(CONDITIONS)),
        }
        for n in range(draw(st.integers(1, 4)))
    ]
    preferences = [
        {
            "id": f"u{n}",
            "user": "mary",
            "topic": "gym/#",
            "to": draw(st.sampled_from((None, "b", "*"))),
            "effect": draw(st.sampled_from(("allow", "deny"))),
            "when": draw(st.sampled_from((None, "s.user == 'bob'", "o.payload.v > 3"))),
        }
        for n in range(draw(st.integers(0, 2)))
    ]
    text: dict[str, Any] = {
        **BASE,
        "links": links,
        "policies": [WRITE, *({k: v for k, v in each.items() if v is not None} for each in policies)],
        "preferences": [{k: v for k, v in each.items() if v is not None} for each in preferences],
    }
    if draw(PRESENT):
        text["brokering"] = {"allow": [*([each, "unused"] for each in TYPES), *map(list, allow)], "assign": assign}
    return parse(json.dumps(text), "f.yaml")


def readers(config: Config) -> Readers:
    rules = config.built.rules
    owner = Subject(kind="client", client="tr1", user="mary", scope="a", node="n", domain=rules.domain)
    return Readers.of_config(config, owner, TOPIC, NOON)


def answers(config: Config) -> dict[str | None, Readable]:
    return {user: each.readable for each in readers(config).classes() for user in each.users}


def tried(config: Config, user: str) -> set[bool]:
    """What becomes of a message at each scope, under each name, with each content."""
    what_if, found = WhatIf(config), set()
    for scope, payload in product(("a", "b", "c"), (b'{"v": 1}', b'{"v": 5}')):
        question = Question(
            subject=f"user:{user}/client:other",
            action=Operation.READ,
            topic=TOPIC,
            publisher="user:mary/client:tr1",
            payload=payload,
            at=NOON,
            overrides={"s.scope": scope},
        )
        found.add(what_if.explain(question).allowed)
    return found


@settings(max_examples=60)
@given(worlds(), st.sampled_from(USERS))
def test_yes_means_yes_over_links_and_brokering(config: Config, user: str) -> None:
    answer, outcomes = answers(config)[user], tried(config, user)
    match answer.can:
        case Can.YES:
            assert outcomes == {True}, answer
        case Can.NO:
            assert outcomes == {False}, answer
        case Can.IF:
            assert answer.when


@settings(max_examples=30)
@given(worlds())
def test_a_class_says_what_each_of_its_users_would_be_told(config: Config) -> None:
    for user, answer in answers(config).items():
        assert readers(config).of(user) == answer


def one(**more: Any) -> Config:
    scopes = {"scopes": {"a": {}}, "listeners": [{"url": "mqtt://127.0.0.1:1883"}]}
    text = {**BASE, **scopes, "policies": [WRITE, {"id": "p", "subject": "*", "topic": "#", "action": "read"}], **more}
    return parse(json.dumps(text), "f.yaml")


def test_where_levels_are_implied() -> None:
    """Each connection demands its own of the other: with one sort of listener that is always so."""
    levels = {"implied": True}
    assert answers(one(levels=levels))["bob"].can is Can.YES
    two = [*one().model_dump()["listeners"][:0], {"url": "mqtt://127.0.0.1:1883"}, {"url": "mqtts://127.0.0.1:8883"}]
    tls = {"cert": "c.pem", "key": "k.pem"}
    config = one(levels=levels, listeners=[two[0], {**two[1], **tls}])
    assert (answers(config)["bob"].can, answers(config)["bob"].when) == (Can.IF, "s.level == p.level")


def test_where_capabilities_are_needed() -> None:
    config = one(capabilities={"required": True, "issuers": [{"name": "n", "jwks": "https://keys.example/set"}]})
    assert (answers(config)["bob"].can, answers(config)["bob"].when) == (Can.IF, "capability(read)")


@pytest.mark.parametrize(
    ("subject", "can"),
    [
        ("role:coach", {"anybody@far": Can.NO, "role:trainer@far": Can.YES, "user:zoe@far": Can.NO}),
        ("user:zoe@far", {"anybody@far": Can.NO, "role:trainer@far": Can.NO, "user:zoe@far": Can.YES}),
        ("*", {"anybody@far": Can.YES, "role:trainer@far": Can.YES, "user:zoe@far": Can.YES}),
    ],
)
def test_people_of_other_domains_by_role(subject: str, can: dict[str, Can]) -> None:
    policies = [
        WRITE,
        {"id": "p", "subject": subject, "topic": "gym/#", "action": "read"},
        {"id": "zoe", "subject": "user:zoe@far", "topic": "gym/x", "action": "read"},
        {"id": "z", "subject": "user:zoe@far", "topic": TOPIC, "action": "read", "when": "false"},
    ]
    config = one(policies=policies, trust={"domains": {"far": {"nodes": ["far-1"], "roles": {"trainer": "coach"}}}})
    found = {other: each.readable.can for each in readers(config).classes() for other in each.others}
    assert found == can


@pytest.mark.parametrize(
    ("monitor", "can", "when"),
    [
        ({"filter": ["other"]}, Can.IF, 's.scope == "a"'),
        ({"rate": "1/s"}, Can.IF, 's.scope == "a" || s.scope == "b" && (monitor(m))'),
        ({"filter": ["gym/#"]}, Can.YES, None),
    ],
)
def test_monitors_on_links(monitor: dict[str, Any], can: Can, when: str | None) -> None:
    config = parse(
        json.dumps(
            {
                **BASE,
                "scopes": {"a": {}, "b": {}},
                "listeners": BASE["listeners"][:2],
                "links": [{"from": "a", "to": "b", "share": [{"topic": "#", "direction": "out"}]}],
                "monitors": [{"id": "m", "link": "a->b", **monitor}],
                "policies": [WRITE, {"id": "p", "subject": "*", "topic": "#", "action": ["read", "write"]}],
            }
        ),
        "f.yaml",
    )
    assert (answers(config)["bob"].can, answers(config)["bob"].when) == (can, when)


def test_links_to_other_nodes() -> None:
    """Whether it leaves; who reads it there, the other node decides."""
    link = {
        "from": "a",
        "to": "far",
        "via": ["mqtts://127.0.0.1:8999"],
        "peer": "CN=far",
        "share": [{"topic": "gym/#", "direction": "out"}],
    }
    node = {"node": {"name": "n", "domain": "home", "ca": "ca.pem", "cert": "c.pem"}}
    forbidden = [{"id": "u", "user": "mary", "topic": "#", "to": "far", "effect": "deny"}]
    forward = {"id": "f", "subject": "link:a->far", "topic": "#", "action": "write"}
    for policies, preferences, can in (
        ([WRITE], [], Can.NO),
        ([WRITE, forward], [], Can.YES),
        ([WRITE, forward], forbidden, Can.NO),
    ):
        config = one(links=[link], policies=policies, preferences=preferences, **node)
        [found] = [
            each.readable.can for each in readers(config).classes() for other in each.others if other == "link:a->far"
        ]
        assert found is can
