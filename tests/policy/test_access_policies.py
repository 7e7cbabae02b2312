"""Access policies: the seeds' examples, the algorithms, partial evaluation, the index."""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from policy.people import HOME, Person, alice, bob, john, mary, stranger
from policy.written import policy_of
from tidegate import topics
from tidegate.errors import ConfigError
from tidegate.policy.access_policies import Action, Combining, Effect, Policies, Policy
from tidegate.policy.outcome import Permit, Refuse, Undecided
from tidegate.policy.selector import terms_of
from tidegate.policy.subject import Subject, attributes_of
from tidegate.predicate import UNKNOWN, PredicateError, PredicateFailed, compile

READ, WRITE = Action.READ, Action.WRITE


def rule(id: str, subject: Any = "*", topic: str = "#", action: Any = "read", **more: Any) -> Policy:
    return policy_of(id=id, subject=subject, topic=topic, action=action, **more)


def key(policies: Policies, action: Action, actor: Subject) -> object:
    return policies.cache_key(action, terms_of(actor), attributes_of(actor, policies.domain))


def at(hour: int) -> dict[str, Any]:
    return {"e": {"now": datetime(2026, 3, 2, hour, 30, tzinfo=UTC)}, "o": {}, "p": {}}


gym = Policies(
    [
        rule("p1", "role:frequenter", "+/performance/ts1/+", ["read", "write"], when="'ts1' in s.enrolled"),
        rule("p2", "role:coach", "+/performance/#", when="within(e.now, s.shift)"),
    ],
    domain=HOME,
)

# -- the seeds ---------------------------------------------------------------------------------------------------


def test_sharing_example_4_p1() -> None:
    topic = "tr1/performance/ts1/speed"
    assert gym.decide(WRITE, mary, topic, {}) == Permit("p1")
    assert gym.decide(READ, bob, topic, {}) == Permit("p1")
    assert gym.decide(READ, replace(bob, attributes={"enrolled": []}), topic, {}) == Refuse("default")
    assert gym.decide(READ, bob, "tr1/performance/ts2/speed", {}) == Refuse("default")
    assert gym.decide(WRITE, alice, topic, {}) == Refuse("default")
    assert gym.decide(READ, stranger, topic, {}) == Refuse("default")


def test_sharing_example_4_p2_in_the_working_hours_only() -> None:
    answer = gym.decide(READ, alice, "tr1/performance/ts1/speed", {})
    assert isinstance(answer, Undecided)
    assert answer.reads == {"e.now"}
    assert answer.residual(at(9)) == Permit("p2")
    assert answer.residual(at(15)) == Refuse("default")
    assert gym.decide(READ, alice, "tr1/performance/ts1/speed", at(9)) == Permit("p2")


def test_sharing_example_6_a_scope_forwards_over_each_of_its_links() -> None:
    policies = Policies(
        [
            rule("p3", "scope:MyGym", "+/performance/ts/+", ["read", "write"]),
            rule("p5", "scope:Analyzer", "+/performance/#", "read"),
        ]
    )
    link = Person(kind="link", client="MyGym->RemoteGym", scope="MyGym")
    assert policies.decide(WRITE, link, "tr1/performance/ts/speed", {}) == Permit("p3")
    analyzer = Person(kind="link", client="MyGym->Analyzer", scope="Analyzer")
    assert policies.decide(READ, analyzer, "tr1/performance/x/y", {}) == Permit("p5")
    assert policies.decide(WRITE, analyzer, "tr1/performance/x/y", {}) == Refuse("default")


def test_sharing_note_5_one_link_of_a_scope() -> None:
    policies = Policies([rule("p3a", "link:MyGym->RemoteGym", "+/performance/ts/+", ["read", "write"])])
    there = Person(kind="link", client="MyGym->RemoteGym", scope="MyGym")
    elsewhere = Person(kind="link", client="MyGym->Analyzer", scope="MyGym")
    assert policies.decide(WRITE, there, "tr1/performance/ts/speed", {}) == Permit("p3a")
    assert policies.decide(WRITE, elsewhere, "tr1/performance/ts/speed", {}) == Refuse("default")


# -- the algorithms ----------------------------------------------------------------------------------------------


def both(combining: Combining, *policies: Policy) -> object:
    return Policies(policies, combining, domain=HOME).decide(READ, mary, "a/b", {"o": {}, "e": {}, "p": {}})


yes, no = rule("yes"), rule("no", effect="deny")
never = rule("never", effect="deny", when="s.user == 'nobody'")
wrong = rule("wrong", when="s.nothing == 1")


@pytest.mark.parametrize(
    ("combining", "policies", "expected"),
    [
        (Combining.DENY_OVERRIDES, [yes, no], Refuse("no")),
        (Combining.PERMIT_OVERRIDES, [no, yes], Permit("yes")),
        (Combining.PERMIT_OVERRIDES, [no], Refuse("no")),
        (Combining.FIRST_APPLICABLE, [yes, no], Permit("yes")),
        (Combining.FIRST_APPLICABLE, [no, yes], Refuse("no")),
        (Combining.FIRST_APPLICABLE, [never, yes, no], Permit("yes")),
        *((each, [never], Refuse("default")) for each in Combining),
        *((each, [], Refuse("default")) for each in Combining),
    ],
)
def test_combining(combining: Combining, policies: list[Policy], expected: object) -> None:
    assert both(combining, *policies) == expected


def test_file_order_counts_also_among_many() -> None:
    many = [rule(f"p{n}", topic=f"x/{n}") for n in range(1000)]
    policies = Policies([*many[:3], no, *many[3:], yes], Combining.FIRST_APPLICABLE)
    assert policies.decide(READ, mary, "a/b", {}) == Refuse("no")


@pytest.mark.parametrize("combining", list(Combining))
@pytest.mark.parametrize("order", [1, -1])
def test_an_error_in_an_applicable_policy_denies(combining: Combining, order: int) -> None:
    answer = both(combining, *[yes, wrong][::order])
    assert isinstance(answer, Refuse)
    assert answer.rule == "wrong"
    assert answer.error is not None
    assert "nothing" in answer.error


@pytest.mark.parametrize("combining", list(Combining))
def test_an_error_in_another_policy_does_not(combining: Combining) -> None:
    elsewhere = rule("elsewhere", topic="b/#", when="s.nothing")
    others = rule("others", subject="role:coach", when="s.nothing")
    writing = rule("writing", action="write", when="s.nothing")
    assert both(combining, elsewhere, others, writing, yes) == Permit("yes")


@pytest.mark.parametrize("combining", list(Combining))
def test_a_condition_that_can_still_fail_keeps_it_open(combining: Combining) -> None:
    policies = Policies([yes, rule("size", when="o.payload.n > 3")], combining)
    answer = policies.decide(READ, mary, "a", {})
    assert isinstance(answer, Undecided)
    assert answer.residual({"o": {"payload": {"n": 1}}}) == Permit("yes")
    failed = answer.residual({"o": {"payload": {}}})
    assert isinstance(failed, Refuse)
    assert failed.rule == "size"
    assert failed.error


@pytest.mark.parametrize(
    ("combining", "policies", "expected"),
    [
        (Combining.DENY_OVERRIDES, [rule("later", when="o.size > 3"), no], Refuse("no")),
        (Combining.DENY_OVERRIDES, [rule("later", effect="deny", when="o.size > 3")], Refuse("default")),
        (Combining.PERMIT_OVERRIDES, [rule("later", effect="deny", when="o.size > 3"), no], Refuse("no")),
        (Combining.FIRST_APPLICABLE, [rule("later", effect="deny", when="o.size > 3"), no, yes], Refuse("no")),
    ],
)
def test_what_nothing_can_permit_is_refused_at_once(
    combining: Combining, policies: list[Policy], expected: object
) -> None:
    assert Policies(policies, combining).decide(READ, mary, "a", {}) == expected


def test_volatile_is_told() -> None:
    answer = Policies([rule("young", when="age(p.time) < duration('5m')")]).decide(READ, mary, "a", {})
    assert isinstance(answer, Undecided)
    assert answer.volatile
    assert "p.time" in answer.reads


# -- against an independent reading of semantics.md ---------------------------------------------------------------


def straightforward(
    policies: list[Policy], combining: Combining, action: Action, actor: Subject, topic: str, env: dict[str, Any]
) -> tuple[bool, bool]:
    """(allowed, by an error), read off semantics.md without index or partial evaluation."""
    true: list[Effect] = []
    error = False
    for policy in policies:
        if action not in policy.action or not policy.subject.matches(actor, HOME):
            continue
        filter = policy.topic.text
        user = env["s"].get("user")
        if "{s.user}" in filter:
            if not isinstance(user, str) or not user or any(mark in user for mark in "/+#"):
                continue
            filter = filter.replace("{s.user}", user)
        if not topics.matches(filter, topic):
            continue
        try:
            if policy.when is None or policy.when(env):
                true.append(policy.effect)
        except PredicateFailed:
            error = True
    if error:
        return False, True
    if combining is Combining.DENY_OVERRIDES:
        return Effect.ALLOW in true and Effect.DENY not in true, False
    if combining is Combining.PERMIT_OVERRIDES:
        return Effect.ALLOW in true, False
    return bool(true) and true[0] is Effect.ALLOW, False


CONDITIONS = [
    None,
    "true",
    "s.user == 'mary'",
    "s.role == 'coach'",
    "s.zone == 'a'",
    "has(s.zone) && s.zone == 'a'",
    "o.size > 3",
    "o.payload.v > 1",
    "o.qos == 1 || s.role == 'coach'",
    "p.user == s.user",
    "e.hour >= 8 && e.hour < 20",
    "o.topic == 'a/b'",
]
compiled = {text: None if text is None else compile(text) for text in CONDITIONS}
subjects = [
    "*",
    "user:mary",
    "user:bob",
    "role:coach",
    "role:frequenter",
    "group:g",
    "client:c1",
    ["user:mary", "role:coach"],
]
filters = ["#", "a/#", "a/b", "+/b", "a/+", "{s.user}/#", "+/{s.user}", "$SYS/#", "b"]
names = ["a", "a/b", "b", "a/mary", "mary/b", "bob/x", "$SYS/b", "c/b"]

people = st.builds(
    Person,
    client=st.sampled_from(["c1", "c2"]),
    user=st.sampled_from([None, "mary", "bob", "a/b", "+"]),
    domain=st.sampled_from([HOME, "elsewhere"]),
    roles=st.sampled_from([(), ("coach",), ("frequenter", "coach"), ("frequenter",)]),
    groups=st.sampled_from([(), ("g",)]),
    attributes=st.sampled_from([{}, {"zone": "a"}, {"zone": 1}]),
)


@st.composite
def sets(draw: st.DrawFn) -> list[Policy]:
    return [
        Policy(
            id=f"p{number}",
            subject=rule("x", draw(st.sampled_from(subjects))).subject,
            topic=rule("x", topic=draw(st.sampled_from(filters))).topic,
            action=draw(st.sampled_from([frozenset([READ]), frozenset([WRITE]), frozenset(Action)])),
            effect=draw(st.sampled_from([Effect.ALLOW, Effect.ALLOW, Effect.DENY])),
            when=compiled[draw(st.sampled_from(CONDITIONS))],
        )
        for number in range(draw(st.integers(0, 8)))
    ]


@st.composite
def messages(draw: st.DrawFn) -> dict[str, Any]:
    payload = draw(st.sampled_from([None, {"v": 1}, {"v": 2}, {"v": "x"}, {}]))
    o: dict[str, Any] = {"size": draw(st.integers(0, 6)), "qos": draw(st.integers(0, 2))}
    if payload is not None:
        o["payload"] = payload
    p = draw(st.sampled_from([{}, {"user": "mary"}, {"user": "bob"}]))
    return {"o": o, "p": p, "e": {"hour": draw(st.integers(0, 23))}}


@given(
    sets(), st.sampled_from(Combining), st.sampled_from(Action), people, st.sampled_from(names), messages(), st.data()
)
def test_partial_then_the_rest_is_the_straightforward_decision(
    policies: list[Policy],
    combining: Combining,
    action: Action,
    actor: Person,
    topic: str,
    message: dict[str, Any],
    data: st.DataObject,
) -> None:
    env = {**message, "s": attributes_of(actor, HOME)}
    env["o"]["topic"] = topic
    expected, error = straightforward(policies, combining, action, actor, topic, env)
    made = Policies(policies, combining, domain=HOME)
    whole = made.decide(action, actor, topic, env)
    assert not isinstance(whole, Undecided)
    assert isinstance(whole, Permit) is expected
    assert bool(isinstance(whole, Refuse) and whole.error) is error

    known: dict[str, Any] = {}
    for root in data.draw(st.sets(st.sampled_from(["s", "e", "p"]))):
        known[root] = env[root]
    unknown = data.draw(st.sets(st.sampled_from(["size", "qos", "payload"])))
    known["o"] = {**env["o"], **dict.fromkeys(unknown, UNKNOWN)}
    answer = made.decide(action, actor, topic, known)
    if isinstance(answer, Undecided):
        assert answer.reads
        answer = answer.residual(env)
    assert isinstance(answer, Permit) is expected
    if expected:
        assert answer == whole


@given(sets(), st.sampled_from(Combining), st.sampled_from(Action), people, people, st.sampled_from(names), messages())
def test_kin_are_decided_alike(
    policies: list[Policy],
    combining: Combining,
    action: Action,
    one: Person,
    other: Person,
    topic: str,
    message: dict[str, Any],
) -> None:
    made = Policies(policies, combining, domain=HOME)
    assume(key(made, action, one) == key(made, action, other))
    message["o"]["topic"] = topic
    assert made.decide(action, one, topic, message) == made.decide(action, other, topic, message)
    assert made.overlaps(action, one, topic) == made.overlaps(action, other, topic)


@given(sets(), st.sampled_from(Action), people, st.sampled_from([*filters[:5], "$SYS/#", "+/+", "b/#"]), messages())
def test_a_subscription_is_granted_where_something_could_be_allowed(
    policies: list[Policy], action: Action, actor: Person, filter: str, message: dict[str, Any]
) -> None:
    made = Policies(policies, domain=HOME)
    granted = made.overlaps(action, actor, filter)
    for topic in names:
        message["o"]["topic"] = topic
        if topics.matches(filter, topic) and isinstance(made.decide(action, actor, topic, message), Permit):
            assert isinstance(granted, Permit)
    if isinstance(granted, Permit):
        policy = next(policy for policy in policies if policy.id == granted.rule)
        assert policy.allows
        assert policy.topic.overlaps(attributes_of(actor, HOME), filter)


# -- sharing plans -----------------------------------------------------------------------------------------------


def test_a_thousand_sensors_of_one_role_are_kin() -> None:
    policies = Policies(
        [
            rule("p1", "role:sensor", "data/#", "write", when="s.zone == 'a'"),
            rule("p2", "user:mary", "{s.client}/#", "write", when="s.level == 'tls'"),
        ],
        domain=HOME,
    )
    sensors = [
        Person(client=f"sensor{n}", user=f"u{n}", roles=("sensor",), attributes={"zone": "a", "serial": n})
        for n in range(1000)
    ]
    assert len({key(policies, WRITE, sensor) for sensor in sensors}) == 1
    assert key(policies, WRITE, sensors[0]) != key(policies, WRITE, replace(sensors[0], attributes={"zone": "b"}))
    maries = [Person(client=f"c{n}", user="mary") for n in range(3)]
    assert len({key(policies, WRITE, mary) for mary in maries}) == 3
    assert len({key(policies, READ, mary) for mary in maries}) == 1


def test_reads() -> None:
    assert gym.reads(READ) == {"s.enrolled", "e.now", "s.shift"}
    assert gym.reads(WRITE) == {"s.enrolled"}


# -- subscribing -------------------------------------------------------------------------------------------------


def test_a_subscription_outside_the_shift_is_granted() -> None:
    assert gym.overlaps(READ, alice, "+/performance/#") == Permit("p2")
    assert gym.overlaps(READ, alice, "#") == Permit("p2")
    assert gym.overlaps(READ, alice, "news/today") == Refuse("default")
    assert gym.overlaps(READ, replace(mary, attributes={"enrolled": []}), "#") == Refuse("default")
    failing = gym.overlaps(READ, replace(mary, attributes={}), "#")  # it can only fail, and says so
    assert isinstance(failing, Refuse)
    assert failing.rule == "p1"
    assert failing.error


def test_a_placeholder_with_a_wildcard_grants_nothing() -> None:
    policies = Policies([rule("own", topic="{s.user}/#")], domain=HOME)
    assert policies.overlaps(READ, mary, "mary/#") == Permit("own")
    assert policies.overlaps(READ, mary, "bob/#") == Refuse("default")
    assert policies.overlaps(READ, replace(mary, user="+"), "#") == Refuse("default")
    assert policies.overlaps(READ, replace(mary, domain="elsewhere"), "mary/#") == Refuse("default")


# -- loading -----------------------------------------------------------------------------------------------------


def test_errors_say_what_is_wrong() -> None:
    with pytest.raises(ConfigError, match="two policies have the id `yes`"):
        Policies([yes, yes])
    with pytest.raises(PredicateError):
        rule("x", when="s.user ==")


@pytest.mark.parametrize(
    ("combining", "policies", "expected"),
    [
        (Combining.DENY_OVERRIDES, [rule("a", when="1 > 2"), yes], {"a": "its condition is always false"}),
        (
            Combining.DENY_OVERRIDES,
            [rule("a", topic="x/+"), rule("d", topic="x/#", effect="deny")],
            {"a": "always decided by d"},
        ),
        (Combining.DENY_OVERRIDES, [rule("a", topic="#"), rule("d", topic="x/#", effect="deny")], {}),
        (Combining.DENY_OVERRIDES, [rule("a"), rule("d", effect="deny", when="o.size > 3")], {}),
        (Combining.DENY_OVERRIDES, [rule("a", action=["read", "write"]), rule("d", effect="deny")], {}),
        (Combining.DENY_OVERRIDES, [rule("a"), rule("d", "role:coach", effect="deny")], {}),
        (Combining.PERMIT_OVERRIDES, [rule("d", "role:coach", effect="deny"), yes], {"d": "always decided by yes"}),
        (Combining.FIRST_APPLICABLE, [yes, no], {"no": "always decided by yes"}),
        (Combining.FIRST_APPLICABLE, [rule("a", topic="{s.user}/x"), yes], {}),
        (
            Combining.FIRST_APPLICABLE,
            [rule("b", topic="+/x"), rule("a", topic="{s.user}/x")],
            {"a": "always decided by b"},
        ),
        (Combining.FIRST_APPLICABLE, [rule("a", topic="{s.user}/x"), rule("b", topic="+/x")], {}),
    ],
)
def test_rules_that_never_decide(combining: Combining, policies: list[Policy], expected: dict[str, str]) -> None:
    assert Policies(policies, combining).never_decides() == expected


@given(sets(), st.sampled_from(Combining), people, st.sampled_from(names), messages())
def test_what_never_decides_never_decides(
    policies: list[Policy], combining: Combining, actor: Person, topic: str, message: dict[str, Any]
) -> None:
    made = Policies(policies, combining, domain=HOME)
    dead = made.never_decides()
    message["o"]["topic"] = topic
    for action in Action:
        answer = made.decide(action, actor, topic, message)
        assert isinstance(answer, (Permit, Refuse))
        if isinstance(answer, Permit) or not answer.error:
            assert answer.rule not in dead
        rest = Policies([policy for policy in policies if policy.id not in dead], combining, domain=HOME)
        if not (isinstance(answer, Refuse) and answer.error):
            assert rest.decide(action, actor, topic, message) == answer


# -- size --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", ["subjects", "topics"])
def test_ten_thousand_policies_cost_as_much_as_a_hundred(shape: str) -> None:
    """Counted in calls, which are the same on every machine."""

    def calls(count: int) -> int:
        policies = Policies(
            [
                rule(f"p{n}", "role:coach" if shape == "topics" else f"user:u{n}", f"site/floor/room{n}/+")
                for n in range(count)
            ],
            domain=HOME,
        )
        actor, seen = replace(john, user="u7"), 0

        def count_call(*_: object) -> None:
            nonlocal seen
            seen += 1

        before = sys.getprofile()
        sys.setprofile(count_call)
        try:
            answer = policies.decide(READ, actor, "site/floor/room7/x", {})
            granted = policies.overlaps(READ, actor, "site/floor/room7/#")
        finally:
            sys.setprofile(before)
        assert answer == granted == Permit("p7")
        return seen

    assert calls(10_000) == calls(100)
