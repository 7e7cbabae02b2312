"""What scopes report becomes rows: without sockets, loop or disk."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy.written import policy_of, preference_of
from pure import World
from tidegate import wire
from tidegate.audit.auditor import Auditor
from tidegate.audit.decisions import LONG
from tidegate.audit.journals import Journals
from tidegate.gate import Deny, Lane, Plan, RuleSet, Step
from tidegate.policy import Policies, Preferences
from tidegate.session import Context, Link, Subject
from tidegate.session.runtime import Counters
from tidegate.store.journal.rows import AuditRow
from tidegate.wire import Reason


@dataclass
class Turns:
    """A site with nothing but the time and a place for long work."""

    now: float = 0.0
    wall: float = 1000.0
    unfinished: deque[Callable[[], bool]] = field(default_factory=deque)
    counters: Counters = field(default_factory=Counters)

    def open(self) -> None: ...

    def work(self) -> None:
        while self.unfinished:
            piece = self.unfinished.popleft()
            if piece():
                self.unfinished.append(piece)


def auditor(site: Any, **settings: Any) -> Auditor:
    made = Auditor(site, Journals(lambda callback: None), node="n", **settings)
    made.log.version = "17-abc"
    return made


def link(client: str = "tr1", user: str | None = "mary", *, inward: bool = True) -> Link:
    return Link(Subject(kind="client", client=client, user=user, scope="main", node="n"), inward, "in")


def taken(audit: Auditor) -> list[AuditRow]:
    found = audit.sink.recent()
    audit.sink._recent.clear()
    return found


def flushed(audit: Auditor, site: Turns) -> list[AuditRow]:
    audit.flush()
    site.work()
    return taken(audit)


WRITE = Deny(step=Step.WRITE, rule="p1")


# -- denials -----------------------------------------------------------------------------------------------------


def test_a_denial_has_everything_that_semantics_lists() -> None:
    """semantics.md, What a denial looks like."""
    audit = auditor(Turns())
    audit.denied("write", link(), "a/b", WRITE)
    assert taken(audit) == [
        AuditRow(
            at=1000.0,
            node="n",
            kind="deny",
            link="client:tr1->scope:main",
            user="mary",
            client="tr1",
            action="write",
            topic="a/b",
            stage="write",
            rule="p1",
            policy_version="17-abc",
            count=1,
            detail=None,
            publisher="user:mary/client:tr1",
        )
    ]


def test_repeats_are_counted() -> None:
    site = Turns()
    audit = auditor(site)
    for _ in range(10):
        audit.denied("write", link(), "a/b", WRITE)  # each time another link, as after a new connection
    assert [row.count for row in taken(audit)] == [1]
    site.wall = 1010.0
    (row,) = flushed(audit, site)
    assert (row.count, row.at, row.topic, row.client) == (9, 1010.0, "a/b", "tr1")
    assert flushed(audit, site) == []


@pytest.mark.parametrize(
    "other",
    [
        ("subscribe", link(), "a/b", WRITE),
        ("write", link("tr2"), "a/b", WRITE),
        ("write", link(user="bob"), "a/b", WRITE),
        ("write", link(), "a/c", WRITE),
        ("write", link(), "a/b", Deny(step=Step.READ, rule="p1")),
        ("write", link(), "a/b", Deny(step=Step.WRITE, rule="p2")),
        ("write", link(), "a/b", Deny(step=Step.WRITE, rule="p1", error="no such attribute")),
    ],
)
def test_anything_else_is_another_denial(other: tuple[Any, ...]) -> None:
    audit = auditor(Turns())
    audit.denied("write", link(), "a/b", WRITE)
    audit.denied(*other)
    assert [row.count for row in taken(audit)] == [1, 1]


def test_another_version_is_another_denial() -> None:
    site = Turns()
    audit = auditor(site)
    audit.denied("write", link(), "a", WRITE)
    audit.denied("write", link(), "a", WRITE)
    audit.changed("18-def", "tidegate.yaml")
    audit.denied("write", link(), "a", WRITE)
    told = [(row.kind, row.policy_version, row.count) for row in taken(audit) + flushed(audit, site)]
    assert told == [("deny", "17-abc", 1), ("change", "18-def", 1), ("deny", "18-def", 1), ("deny", "17-abc", 1)]


def test_a_rule_that_fails_is_one_row_that_says_what_went_wrong() -> None:
    site = Turns()
    audit = auditor(site)
    audit.denied("read", link(inward=False), "a", Deny(step=Step.READ, rule="p1", error="no attribute s.shift"))
    (row,) = taken(audit)
    assert (row.kind, row.rule, row.stage, row.detail) == ("deny", "p1", "read", "no attribute s.shift")
    assert row.link == "scope:main->client:tr1"
    assert flushed(audit, site) == []


def test_conditions_that_count_as_false_are_errors() -> None:
    site = Turns()
    audit = auditor(site)
    for _ in range(3):
        audit.failed(link(inward=False), "a", [("up1", "no attribute s.x"), ("up2", "not a number")])
    rows = taken(audit)
    assert [(row.kind, row.rule, row.stage, row.detail, row.count) for row in rows] == [
        ("error", "up1", "read", "no attribute s.x", 1),
        ("error", "up2", "read", "not a number", 1),
    ]
    assert [(row.rule, row.count) for row in flushed(audit, site)] == [("up1", 2), ("up2", 2)]


def test_long_texts_are_cut() -> None:
    audit = auditor(Turns())
    audit.denied("write", link("c" * 60_000), "t" * 60_000, WRITE)
    (row,) = taken(audit)
    assert row.topic == "t" * (LONG - 1) + "…"
    assert row.client is not None
    assert row.link is not None
    assert len(row.client) == len(row.link) == LONG


# -- those who come and go ---------------------------------------------------------------------------------------


def test_refused_connections_are_denials() -> None:
    site = Turns()
    audit = auditor(site)
    for _ in range(5):
        audit.refused("10.0.0.1", "tr1", "mary", Reason.BAD_USER_NAME_OR_PASSWORD, "")
    audit.refused("10.0.0.2", "tr1", None, Reason.NOT_AUTHORIZED, "who are you?")
    first, second = taken(audit)
    assert (first.kind, first.action, first.stage, first.rule) == ("deny", "connect", "connect", "connect")
    assert (first.user, first.client, first.link) == ("mary", "tr1", None)
    assert first.detail == "bad user name or password (0x86), from 10.0.0.1"
    assert second.detail == "who are you?, from 10.0.0.2"
    assert [row.count for row in flushed(audit, site)] == [4]


def session(audit: Auditor, client: str) -> Any:
    inward = link(client)
    return SimpleNamespace(
        subject=inward.subject, inward=inward, outward=link(client, inward=False), connection=object()
    )


def test_a_reconnect_storm_is_no_write_storm() -> None:
    site = Turns()
    audit = auditor(site, rate=2.0)
    for number in range(100):
        audit.connected(session(audit, f"c{number}"))
        audit.disconnected(session(audit, f"c{number}"), Reason.UNSPECIFIED_ERROR)
    rows = taken(audit)
    assert len(rows) == 20
    assert {(row.kind, row.rule) for row in rows} == {("connect", "connect"), ("disconnect", "connect")}
    assert rows[1].detail == "connection lost"
    left = flushed(audit, site)
    assert [(row.kind, row.count, row.detail) for row in left] == [
        ("connect", 90, "left out"),
        ("disconnect", 90, "left out"),
    ]


def test_a_client_may_come_and_go_for_any_reason() -> None:
    audit = auditor(Turns(), rate=1000.0)
    for reason in Reason:
        audit.disconnected(session(audit, "c"), reason)
    assert all(row.detail for row in taken(audit))


# -- plans -------------------------------------------------------------------------------------------------------


def plan(topic: str, *denied: tuple[str, Deny], targets: tuple[str, ...] = ()) -> Plan:
    made = Plan(topic, 1)
    made.denied = tuple((grant(client).session.outward, why) for client, why in denied)
    made.targets = tuple(map(grant, targets))
    return made


def grant(client: str) -> Any:
    return SimpleNamespace(session=SimpleNamespace(outward=link(client, inward=False)))


READ = Deny(step=Step.READ, rule="p2")
LANE = Lane(Context(subject=link("sender").subject), "in", wire.V5, wire.NONE, 1, own=True)
SENDER = "user:mary/client:sender"


def test_what_a_plan_denies_is_read_off_its_counter() -> None:
    site = Turns()
    audit = auditor(site)
    one = plan("a", ("b", READ), ("c", READ))
    audit.compiled(LANE, one)
    one.passed += 1
    site.work()  # soon after, not at the next flush
    assert [(row.client, row.publisher, row.count, row.action, row.rule) for row in taken(audit)] == [
        ("b", SENDER, 1, "read", "p2"),
        ("c", SENDER, 1, "read", "p2"),
    ]
    one.passed += 5
    assert [(row.client, row.count) for row in flushed(audit, site)] == [("b", 5), ("c", 5)]
    assert flushed(audit, site) == []
    one.passed += 2
    audit.retired(one)
    audit.retired(one)
    assert [(row.client, row.count) for row in flushed(audit, site)] == [("b", 2), ("c", 2)]
    assert not audit._plans._plans


def test_a_plan_that_nothing_passes_denies_nothing() -> None:
    """The message it was made for may have been refused on the way in."""
    site = Turns()
    audit = auditor(site)
    one = plan("a", ("b", READ))
    audit.compiled(LANE, one)
    site.work()
    audit.retired(one)
    assert flushed(audit, site) == []


def test_plans_that_are_made_again_and_again_are_no_flood() -> None:
    site = Turns()
    audit = auditor(site)
    for _ in range(50):
        one = plan("a", ("b", READ))
        audit.compiled(LANE, one)
        one.passed += 1
        audit.retired(one)
        site.work()
    assert [row.count for row in taken(audit)] == [1]
    assert [row.count for row in flushed(audit, site)] == [49]


def test_a_retired_plan_counts_for_the_version_it_was_made_under() -> None:
    site = Turns()
    audit = auditor(site)
    one = plan("a", ("b", READ))
    audit.compiled(LANE, one)
    one.passed += 3
    audit.changed("18-def", "f")
    audit.retired(one)
    rows = [row for row in flushed(audit, site) if row.kind == "deny"]
    assert [(row.policy_version, row.count) for row in rows] == [("17-abc", 3)]


def test_many_targets_are_accounted_for_in_pieces() -> None:
    site = Turns()
    audit = auditor(site, rate=1e6)
    one = plan("a", *((f"c{number}", READ) for number in range(5000)))
    audit.compiled(LANE, one)
    one.passed += 2
    pieces = 0
    while site.unfinished:
        before = audit.sink.written
        again = site.unfinished.popleft()
        began = time.process_time()
        if again():
            site.unfinished.append(again)
        assert time.process_time() - began < 0.05  # what counts is the number below
        assert audit.sink.written - before <= 200
        pieces += 1
    assert pieces > 25
    assert sum(row.count for row in taken(audit)) == 10_000


def test_allowed_is_counted_by_source_topic_and_receiver() -> None:
    site = Turns()
    audit = auditor(site)
    one = plan("a", targets=("b", "c"))
    audit.compiled(LANE, one)  # nothing is denied and nothing recorded
    one.passed += 1
    assert flushed(audit, site) == []
    audit.log.records_allowed = True
    two = plan("a", ("d", READ), targets=("b", "c"))
    audit.compiled(LANE, two)
    two.passed += 4
    audit.retired(two)
    three = plan("a", targets=("b",))
    audit.compiled(LANE, three)
    three.passed += 2
    rows = flushed(audit, site)
    allowed = [(row.link, row.client, row.topic, row.count, row.publisher) for row in rows if row.kind == "allowed"]
    assert allowed == [
        ("scope:main->client:b", "b", "a", 6, SENDER),
        ("scope:main->client:c", "c", "a", 4, SENDER),
    ]
    assert [(row.client, row.count) for row in rows if row.kind == "deny"] == [("d", 4)]


def test_a_job_that_fails_does_not_stop_the_others() -> None:
    site = Turns()
    audit = auditor(site)
    broken = plan("a", ("b", READ))
    broken.denied = ((None, READ),)  # type: ignore[assignment]
    audit.compiled(LANE, broken)
    broken.passed += 1
    with pytest.raises(AttributeError):
        site.work()
    one = plan("a", ("b", READ))
    audit.compiled(LANE, one)
    one.passed += 1
    assert [row.count for row in flushed(audit, site)] == [1]


RULES = st.sampled_from([Deny(step=Step.READ, rule=f"p{number}") for number in range(3)])
STEPS = st.one_of(
    st.tuples(st.just("deny"), st.sampled_from("abcd"), st.sampled_from("tuv"), RULES),
    st.tuples(
        st.just("compile"), st.sampled_from("tuv"), st.lists(st.tuples(st.sampled_from("abcd"), RULES), max_size=3)
    ),
    st.tuples(st.just("pass"), st.integers(0, 5), st.integers(1, 3)),
    st.tuples(st.just("retire"), st.integers(0, 5)),
    st.tuples(st.just("change")),
    st.tuples(st.just("time"), st.floats(0, 3)),
    st.tuples(st.just("flush")),
    st.tuples(st.just("piece")),
)


@settings(deadline=None)
@given(steps=st.lists(STEPS, max_size=100), rate=st.sampled_from([0.2, 2.0, 1000.0]), most=st.integers(1, 10))
def test_the_counts_of_all_rows_are_the_denials_that_happened(steps: list[Any], rate: float, most: int) -> None:
    site = Turns()
    audit = auditor(site, rate=rate)
    audit.log.denials._most = most
    happened: Counter[tuple[str, str]] = Counter()
    plans: list[tuple[Plan, str]] = []
    number = 17
    for step in steps:
        match step:
            case "deny", client, topic, why:
                audit.denied("read", link(client, inward=False), topic, why)
                happened[why.rule, audit.version] += 1
            case "compile", topic, denied:
                one = plan(topic, *denied)
                plans.append((one, audit.version))
                audit.compiled(LANE, one)
            case "pass", index, times if plans:
                one, version = plans[index % len(plans)]
                one.passed += times
                for _, why in one.denied:
                    happened[why.rule, version] += times
            case "retire", index if plans:
                # as the gate does it: a plan is not used after it was retired, but may be retired again
                one, _ = plans.pop(index % len(plans))
                audit.retired(one)
                audit.retired(one)
            case ("change",):
                number += 1
                audit.changed(f"{number}-x", "f")
            case "time", seconds:
                site.now += seconds
            case ("flush",):
                audit.flush()
            case ("piece",) if site.unfinished:
                piece = site.unfinished.popleft()
                if piece():
                    site.unfinished.append(piece)
    audit.close()
    written: Counter[tuple[str, str]] = Counter()
    for row in audit.sink.recent():
        if row.kind == "deny":
            assert row.rule is not None
            assert row.policy_version is not None
            assert row.count > 0
            written[row.rule, row.policy_version] += row.count
    assert written == happened


# -- a scope that reports to it ----------------------------------------------------------------------------------


def policies(*said: dict[str, Any]) -> Policies:
    return Policies([policy_of(**each) for each in said])


def world(rules: RuleSet, **settings: Any) -> tuple[World, Auditor]:
    made = World(rules=rules)
    audit = auditor(made.site, **settings)
    audit.scopes["main"] = made.scope
    made.scope.audit = audit
    made.scope.gate.cache.retired = audit.retired
    made.scope.gate.counts_denied = True
    return made, audit


def settled(made: World, audit: Auditor) -> list[AuditRow]:
    audit.flush()
    for _ in range(20):
        made.turn()
    return [row for row in taken(audit) if row.kind not in ("connect", "disconnect", "change")]


def test_every_denial_of_a_scope_is_counted_once() -> None:
    rules = RuleSet(
        version="3-x",
        policies=policies(
            {"id": "p1", "subject": "user:mary", "topic": "a/#", "action": ["read", "write"]},
            {"id": "p2", "subject": "user:bob", "topic": "a/open/#", "action": "read"},
            {"id": "p3", "subject": "user:eve", "topic": "a/#", "action": "read", "when": "o.payload.n > 3"},
        ),
    )
    made, audit = world(rules)
    mary = made.peer("m", username="mary")
    bob = made.peer("b", username="bob")
    eve = made.peer("e", username="eve")
    bob.subscribe("a/#")  # overlaps p2
    eve.subscribe("a/#")
    bob.subscribe("b/#")  # nobody allows it
    for _ in range(4):
        mary.send(wire.Publish(topic="a/1", payload=b'{"n": 3}'))  # by the plan against bob, by its content eve
    for _ in range(2):
        mary.send(wire.Publish(topic="a/open/1", payload=b'{"n": 4}'))
    mary.send(wire.Publish(topic="x", payload=b""))
    mary.send(wire.Publish(topic="a/2", payload=b"no JSON"))
    rows = settled(made, audit)
    total: Counter[tuple[str | None, str | None, str | None]] = Counter()
    for row in rows:
        assert row.policy_version == "17-abc"
        assert row.publisher == (None if row.action == "subscribe" else "user:mary/client:m")
        total[row.client, row.action, row.topic] += row.count
    assert total == {
        ("b", "subscribe", "b/#"): 1,
        ("b", "read", "a/1"): 4,
        ("e", "read", "a/1"): 4,
        ("m", "write", "x"): 1,
        ("b", "read", "a/2"): 1,
        ("e", "read", "a/2"): 1,
    }
    (failure,) = [row for row in rows if row.detail]
    assert (failure.kind, failure.rule, failure.client, failure.topic) == ("deny", "p3", "e", "a/2")
    assert len(bob.messages()) == 2
    assert len(eve.messages()) == 2


def test_nothing_is_lost_when_the_rules_change_under_traffic() -> None:
    rules = RuleSet(policies=policies({"id": "p1", "subject": "user:mary", "topic": "#", "action": ["read", "write"]}))
    made, audit = world(rules)
    mary = made.peer("m", username="mary")
    bob = made.peer("b", username="bob")
    made.scope.gate.change(RuleSet())
    bob.subscribe("#")
    made.scope.change(rules)
    for number in range(30):
        mary.send(wire.Publish(topic=f"t/{number % 3}", payload=b""))
        if number % 7 == 0:
            made.scope.change(rules)
            audit.changed(f"{20 + number}-x", "f")
    rows = settled(made, audit)
    assert {(row.client, row.publisher) for row in rows} == {("b", "user:mary/client:m")}
    assert sum(row.count for row in rows) == 30


def test_a_preference_that_fails_counts_as_false_and_is_told() -> None:
    rules = RuleSet(
        preferences=Preferences(
            [
                preference_of(id="up1", user="mary", topic="a", when="o.payload.x == 1"),
                preference_of(id="up2", user="mary", topic="a", when="o.size > 0"),
            ]
        )
    )
    made, audit = world(rules)
    bob = made.peer("b", username="bob")
    bob.subscribe("a")
    mary = made.peer("m", username="mary")
    for _ in range(3):
        mary.send(wire.Publish(topic="a", payload=b"[]"))
    assert len(bob.messages()) == 3
    rows = settled(made, audit)
    assert {(row.kind, row.rule, row.client, row.topic) for row in rows} == {("error", "up1", "b", "a")}
    assert sum(row.count for row in rows) == 3
    assert all(row.detail for row in rows)


# -- cost --------------------------------------------------------------------------------------------------------


def test_a_repeated_denial_is_cheap() -> None:
    """About half a microsecond; ten times that means that somebody has put something slow in its way."""
    audit = auditor(Turns())
    one = link()
    for number in range(1000):
        audit.denied("write", one, f"a/{number}", WRITE)
    best = float("inf")
    for _ in range(5):
        began = time.process_time()
        for _ in range(10_000):
            audit.denied("write", one, "a/7", WRITE)
        best = min(best, (time.process_time() - began) / 10_000)
    assert best < 5e-6, f"{best * 1e6:.2f} µs"
