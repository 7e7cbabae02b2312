"""Rules of publishers: what a publication may say, what a book keeps, and what rules say of a message."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.people import HOME, Person, alice, mary
from tidegate.errors import StoreError
from tidegate.policy import Effect, Undecided
from tidegate.policy.index import FilterIndex
from tidegate.policy.publisher_rules import (
    MAX_LIFE,
    MAX_RULES,
    ActiveRule,
    ActiveRules,
    Book,
    Fault,
    Publication,
    PublisherDecision,
    Rule,
    Unfit,
    condition,
    decide_rules,
    publisher_of,
    read,
)
from tidegate.policy.selector import Selector
from tidegate.policy.subject import attributes_of
from tidegate.predicate import UNKNOWN, PredicateFailed
from tidegate.topics import matches

NOW = 1_700_000_000.0
CEILING = ("t/#", "+/own")


@dataclass(frozen=True, slots=True, kw_only=True)
class Publisher(Person):
    principal: str = ""


def line(id: str = "r", topic: str = "t/x", subject: Any = "*", **more: Any) -> dict[str, Any]:
    return {"id": id, "topic": topic, "subject": subject, **more}


def taken(*lines: dict[str, Any], sequence: int | None = None) -> Publication:
    body: Any = list(lines) if sequence is None else {"sequence": sequence, "rules": list(lines)}
    found = read(json.dumps(body).encode(), NOW)
    assert isinstance(found, Publication), found
    return found


def refused(*lines: Any, **more: Any) -> Unfit:
    found = read(json.dumps({"rules": list(lines), **more}).encode(), NOW)
    assert isinstance(found, Unfit), found
    return found


# -- whose they are ----------------------------------------------------------------------------------------------------


def test_a_publisher_is_the_user_within_its_domain_else_what_it_authenticated_as() -> None:
    user = Publisher(user="mary", principal="certificate:phone")
    assert publisher_of(user, HOME) == "user:mary"
    assert publisher_of(replace(user, domain="elsewhere"), HOME) == "user:mary@elsewhere"
    assert publisher_of(Publisher(principal="certificate:phone"), HOME) == "certificate:phone"
    assert publisher_of(Publisher(client="phone"), HOME) is None
    assert publisher_of(Publisher(kind="service", user="mary"), HOME) is None
    assert publisher_of(replace(user, user="mary@elsewhere"), HOME) != publisher_of(
        replace(user, domain="elsewhere"), HOME
    )


# -- reading -----------------------------------------------------------------------------------------------------------


def test_what_is_left_out_is_the_default() -> None:
    [rule] = taken(line()).rules
    assert rule == Rule(id="r", topic="t/x", subject=Selector.parse("*"))
    assert rule.allows
    assert taken() == Publication()
    assert taken(line(), {"id": "gone", "remove": True}, sequence=3).ids == ("r", "gone")


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        (90, 90),
        (0.5, 0.5),
        ("90s", 90),
        ("1.5 h", 5400),
        ("500ms", 0.5),
        ("2m", 120),
        ("7d", 7 * 86400),
        ("2023-11-14T22:13:21Z", 1),
        ("2023-11-14T23:13:21+01:00", 1),
    ],
)
def test_it_expires_at_a_time_or_after_a_while(written: Any, seconds: float) -> None:
    [rule] = taken(line(expires=written)).rules
    assert rule.expires == pytest.approx(NOW + seconds)
    assert rule.life == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        (line(expires=0), "`r`: `expires` is past"),
        (line(expires="2023-11-14T22:13:20Z"), "`r`: `expires` is past"),
        (line(expires=MAX_LIFE * 2), "`r`: `expires` is more than 100 years ahead"),
        (line(expires="2023-11-14T22:13:21"), "`r`: `expires` is a time such as"),
        (line(expires="soon"), "`r`: `expires` is a time such as"),
        (line(expires=True), "`r`: `expires` is a time such as"),
        (line(topic="t/{s.user}"), "`r`: `t/{s.user}` has a placeholder"),
        (line(topic="t/#/x"), "`r`: `t/#/x` is no topic filter"),
        (line(topic="$share/g/t"), "`r`: `$share/g/t` is shared"),
        (line(topic="t/" + "x" * 600), "`r`: `topic` has more than 512 characters"),
        (line(topic=1), "`r`: `topic` is missing"),
        (line(subject="mary"), "`r`: `mary` is no subject"),
        (line(subject=[]), "`r`: no subject"),
        (line(subject=[1]), "`r`: a subject is a text"),
        (line(subject=None), "`r`: `subject` is missing"),
        (line(effect="perhaps"), "`r`: `effect` is `allow` or `deny`"),
        (line(effect=1), "`r`: `effect` is `allow` or `deny`"),
        (line(when=True), "`r`: `when` is a text with a condition"),
        (line(when="s.user ="), "`r`: `when` is no condition"),
        (line(when="m.user == 1"), "`r`: `when` is no condition"),
        (line(when="'" + "x" * 600 + "' == 'x'"), "`r`: `when` is no condition"),
        (line(to="x"), "`r`: `to` is not known"),
        (line(remove=True), "`r`: write `{id, remove: true}`"),
        ({"id": "r", "remove": False}, "`r`: write `{id, remove: true}`"),
        ({"id": ""}, "rule 1 has no `id` that can be used"),
        ({"id": "a/b"}, "rule 1 has no `id` that can be used"),
        ({"id": "a" * 65}, "rule 1 has no `id` that can be used"),
        ({}, "rule 1 has no `id` that can be used"),
        ([], "rule 1 has no `id` that can be used"),
    ],
)
def test_what_is_wrong_with_a_rule_is_said_with_its_id(entry: Any, why: str) -> None:
    found = refused(entry)
    assert found.fault is Fault.FORBIDDEN
    assert found.text.startswith(why)


def test_a_publication_is_bounded() -> None:
    assert refused(line("a"), line("a")).text.startswith("`a` stands there twice")
    assert refused(line("a"), {"id": "a", "remove": True}).text.startswith("`a` stands there twice")
    assert refused(*(line(f"r{n}") for n in range(201))).fault is Fault.EXCESSIVE
    assert refused(*(line(f"r{n}", when=f"o.size > {n} || '{'x' * 200}' == 'y'") for n in range(9))) == Unfit(
        Fault.EXCESSIVE, "its conditions have more than 1024 bytes: send it in parts"
    )
    same = taken(*(line(f"r{n}", when="'" + "x" * 200 + "' == 'y'") for n in range(9)))
    assert len(same.conditions) == 1
    for wrong in (-1, 1.0, "1", True, 1 << 63):
        assert refused(sequence=wrong).text == "`sequence` is a whole number from 0 on"


@given(st.binary() | st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists).map(json.dumps))
def test_whatever_comes_is_a_publication_or_refused(payload: bytes | str) -> None:
    found = read(payload if isinstance(payload, bytes) else payload.encode(errors="replace"), NOW)
    assert isinstance(found, Publication | Unfit)


# -- the book ----------------------------------------------------------------------------------------------------------


def test_rules_replace_remove_and_stay() -> None:
    book = Book().after(taken(line("a"), line("b", "t/b")), CEILING)
    assert isinstance(book, Book)
    assert (book.sequence, list(book.rules)) == (1, ["a", "b"])
    later = book.after(taken(line("b", "t/c"), {"id": "a", "remove": True}, {"id": "x", "remove": True}), CEILING)
    assert isinstance(later, Book)
    assert (later.sequence, {id: rule.topic for id, rule in later.rules.items()}) == (2, {"b": "t/c"})
    assert list(book.rules) == ["a", "b"]  # the old one is what it was


def test_a_sequence_only_rises() -> None:
    book = Book().after(taken(sequence=5), CEILING)
    assert book == Book(sequence=5)
    assert isinstance(book, Book)
    for stale in (0, 4, 5):
        found = book.after(taken(line(), sequence=stale), CEILING)
        assert isinstance(found, Unfit)
        assert found.text == f"sequence {stale} is stale: 5 has been seen, send a higher one"
    after = book.after(taken(line()), CEILING)
    assert isinstance(after, Book)
    assert after.sequence == 6


@pytest.mark.parametrize(
    ("topic", "fits"),
    [
        *(("t/#", True), ("t", True), ("t/a/+", True), ("x/own", True), ("+/own", True)),
        *(("#", False), ("+", False), ("+/+", False), ("x/own/y", False), ("$SYS/own", False), ("$t/own", False)),
    ],
)
def test_every_rule_lies_within_the_ceiling(topic: str, fits: bool) -> None:
    found = Book().after(taken(line("ok"), line("r", topic)), CEILING)
    assert isinstance(found, Book) is fits
    if isinstance(found, Unfit):
        assert found.text.startswith(f"`r`: publishers may not grant or deny `{topic}` here")
    assert isinstance(Book().after(taken(line("r", topic)), ()), Unfit)


def test_a_book_is_bounded() -> None:
    full = Book().after(taken(*(line(f"r{n}") for n in range(MAX_RULES))), CEILING)
    assert isinstance(full, Book)
    for more in (
        [line("more")],
        [line(f"r{n}", subject=[f"user:u{m}" for m in range(60)]) for n in range(10)],
        [line(f"r{n}", when="true") for n in range(21)],
    ):
        found = full.after(taken(*more), CEILING)
        assert isinstance(found, Unfit)
        assert found.fault is Fault.EXCESSIVE
    assert isinstance(full.after(taken(line("more"), {"id": "r0", "remove": True}), CEILING), Book)


def test_what_is_stored_is_found_again() -> None:
    book = Book().after(
        taken(
            line("a", subject=["user:mary", "user:bob@elsewhere", "group:ö"], expires=60),
            line("b", "t/+/c", effect="deny", when="o.size > 3"),
        ),
        CEILING,
    )
    assert isinstance(book, Book)
    assert Book.decode(book.encode(), NOW) == book
    assert Book.decode(book.encode(), NOW + 30) == book
    with pytest.raises(StoreError):
        Book.decode(b"\x02" + book.encode()[1:], NOW)


def test_a_clock_put_back_between_two_starts_does_not_prolong_a_rule() -> None:
    book = Book().after(taken(line(expires=60)), CEILING)
    assert isinstance(book, Book)
    assert Book.decode(book.encode(), NOW - 1000).rules["r"].expires == NOW - 1000 + 60


# -- what they say -----------------------------------------------------------------------------------------------------


def active(id: str = "r", **more: Any) -> ActiveRule:
    [rule] = taken(line(id, **more)).rules
    terms = rule.subject.within(HOME).terms
    return ActiveRule(rule, "user:mary", terms, None if rule.when is None else condition(rule.when))


ENV = {
    "s": attributes_of(alice, HOME),
    "o": {"topic": "t/x", "size": 3, "payload": {"a": 1}},
    "e": {"hour": 12},
    "p": attributes_of(mary, HOME),
}


def test_a_denial_beats_an_allowance_and_nothing_is_nothing() -> None:
    allow, deny = active("a"), active("d", effect="deny")
    assert decide_rules([allow], ENV) == PublisherDecision(Effect.ALLOW, "rule:user:mary/a")
    assert (
        decide_rules([allow, deny], ENV)
        == decide_rules([deny, allow], ENV)
        == PublisherDecision(Effect.DENY, "rule:user:mary/d")
    )
    assert decide_rules([], ENV) == decide_rules([active(when="false")], ENV) == PublisherDecision()


def test_a_condition_that_fails_or_is_not_understood_any_more_counts_as_false_and_is_told() -> None:
    bad, deny = active("b", when="o.payload.z == 1"), active("d", when="o.payload.z == 1", effect="deny")
    for active_rules in ([bad], [deny]):
        found = decide_rules(active_rules, ENV)
        assert isinstance(found, PublisherDecision)
        assert found.effect is None
        assert [id for id, _ in found.errors] == [active_rules[0].id]
    found = decide_rules([deny, active("a")], ENV)
    assert isinstance(found, PublisherDecision)
    assert (found.effect, found.rule, len(found.errors)) == (Effect.ALLOW, "rule:user:mary/a", 1)
    [rule] = taken(line("gone")).rules
    assert decide_rules(
        [ActiveRule(rule, "user:mary", rule.subject.terms, "no such function")], ENV
    ) == PublisherDecision(errors=(("rule:user:mary/gone", "no such function"),))


def test_rules_are_about_the_original_topic() -> None:
    denials = [active("d", topic="t/old", effect="deny"), active("e", topic="t/new", effect="deny")]
    active_rules = ActiveRules([active("a", topic="t/old"), *denials, active("n", topic="t/new")], 1)
    assert [each.rule.id for each in active_rules.about("t/old")] == ["a", "d"]
    assert [each.rule.id for each in active_rules.about("t/new")] == ["e", "n"]
    assert active_rules.about("t/other") == []


WHENS = (
    "true",
    "false",
    "o.size > 2",
    "o.size > 5",
    "o.payload.z == 1",
    "s.user == 'alice'",
    "e.hour == 12",
    "s.none > 1",
)
PARTS = st.sampled_from(
    [
        ENV,
        {"s": ENV["s"], "p": ENV["p"]},
        {"s": ENV["s"], "o": {"topic": "t/x", "size": UNKNOWN, "payload": UNKNOWN}, "e": {"hour": 12}},
        {**ENV, "e": {"hour": UNKNOWN}},
        {},
    ]
)


@given(st.lists(st.tuples(st.booleans(), st.sampled_from(WHENS)), max_size=5), PARTS)
def test_asked_with_a_part_and_then_with_all_it_is_the_same(
    rules: list[tuple[bool, str]], part: dict[str, Any]
) -> None:
    active_rules = [
        active(f"r{n}", when=when, effect="allow" if allows else "deny") for n, (allows, when) in enumerate(rules)
    ]
    found = decide_rules(active_rules, part)
    word = found.residual(ENV) if isinstance(found, Undecided) else found
    true = {allows for allows, when in rules if holds(when)}
    assert word.effect is (Effect.DENY if False in true else Effect.ALLOW if True in true else None)


def holds(when: str) -> bool:
    try:
        return condition(when)(ENV)
    except PredicateFailed:
        return False


# -- finding them ------------------------------------------------------------------------------------------------------

LEVELS = st.lists(st.sampled_from(["a", "b", "+", "#"]), min_size=1, max_size=4).filter(
    lambda each: "#" not in each[:-1]
)


@given(st.lists(LEVELS, max_size=8), st.data())
def test_what_is_taken_out_of_an_index_is_gone_and_nothing_else(filters: list[list[str]], data: st.DataObject) -> None:
    index: FilterIndex[int] = FilterIndex()
    for number, levels in enumerate(filters):
        index.add(levels, number)
    gone = data.draw(st.sets(st.sampled_from(range(len(filters))))) if filters else set()
    for number in gone:
        index.discard(filters[number], number)
    for topic in ("a", "b", "a/b", "a/a/b", "b/a/a/b"):
        expected = {n for n, levels in enumerate(filters) if n not in gone and matches("/".join(levels), topic)}
        assert set(index.matching(topic)) == expected
    if len(gone) == len(filters):
        assert not index._root.children
