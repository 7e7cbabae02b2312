"""What is generalised, what is not, and what is said about it."""

from __future__ import annotations

from typing import Any

import pytest

from tidegate.learn import table as tabular
from tidegate.learn.as_yaml import plain, to_yaml
from tidegate.learn.propose import Options, Proposals, propose
from tidegate.learn.table import READ, SUBSCRIBE, WRITE, Person, Table, tabulate
from tidegate.learn.templates import Evidence

DAY = 86400.0


def table(*uses: tuple[Any, ...], roles: dict[str, tuple[str, ...]] | None = None, **attributes: Any) -> Table:
    """Uses: user, action, topic; then perhaps count, rule, hour, day."""
    rows = []
    for user, action, topic, *more in uses:
        count, rule, hour, day = [*more, *[5, "", 9, 0][len(more) :]]
        at = 1_700_006_400.0 + day * DAY + hour * 3600
        rows.append((user, user, action, topic, hour, rule, "", count, at, at))
    made = tabulate(rows)
    for user in {use[0] for use in uses}:
        said = {name: values[user] for name, values in attributes.items() if user in values}
        made.people[user, user] = Person.of(user, user, {"client": user, "roles": (roles or {}).get(user, ()), **said})
    return made


def rules(found: Proposals) -> set[tuple[str, str, str]]:
    return {(", ".join(each.subjects.selectors), "+".join(each.actions), each.topic) for each in found.policies}


def test_placeholders_and_roles() -> None:
    devices = ("tm1", "tm2", "tm3")
    found = propose(
        table(*[(name, WRITE, f"gym/{name}/speed") for name in devices], roles=dict.fromkeys(devices, ("treadmill",)))
    )
    assert rules(found) == {("role:treadmill", "write", "gym/{s.user}/speed")}
    assert found.policies[0].used == 15
    assert "role:treadmill (3 of 3 who were there) publish gym/{s.user}/speed" in found.policies[0].reasons


def test_a_part_of_a_level() -> None:
    found = propose(table(("mary", WRITE, "m/meter-mary"), ("rita", WRITE, "m/meter-rita")))
    assert rules(found) == {("user:mary, user:rita", "write", "m/meter-{s.user}")}


def test_attributes() -> None:
    machines = {"a": "tm", "b": "bike"}
    found = propose(table(("a", WRITE, "x/tm/y"), ("b", WRITE, "x/bike/y"), machine=machines))
    assert rules(found) == {("user:a, user:b", "write", "x/{s.machine}/y")}


def test_lists() -> None:
    reads = {"ada": ["wind", "air"], "ugo": ["air", "rain"]}
    uses = [(name, READ, f"f/{kind}") for name, kinds in reads.items() for kind in kinds]
    found = propose(table(*uses, reads=reads))
    assert rules(found) == {("user:ada, user:ugo", "read", "f/+")}
    assert found.policies[0].when == "o.levels[1] in s.reads"


def test_an_attribute_tells_who_may() -> None:
    people = ("mary", "bob", "luca")
    made = table(
        ("mary", READ, "class/ts1/x"),
        ("bob", READ, "class/ts1/x"),
        ("luca", READ, "class/ts1/x", 1, "default"),
        roles=dict.fromkeys(people, ("frequenter",)),
        enrolled={"mary": ["ts1", "a"], "bob": ["ts1"], "luca": ["a"]},
    )
    found = propose(made)
    assert [(each.subject, each.when) for each in found.policies] == [("role:frequenter", "'ts1' in s.enrolled")]
    assert [each.person.user for each, _ in found.denied] == ["luca"]


def test_a_plus_needs_evidence() -> None:
    two = [("hub", WRITE, f"r/room{number}/t") for number in (1, 2)]
    assert len(propose(table(*two)).policies) == 2
    assert rules(propose(table(*two, ("hub", WRITE, "r/room3/t")))) == {("user:hub", "write", "r/+/t")}
    words = [("hub", WRITE, f"r/{word}/t") for word in ("kitchen", "hall", "cellar")]
    assert len(propose(table(*words)).policies) == 3
    assert len(propose(table(*two, ("hub", WRITE, "r/room3/t")), Options(evidence=Evidence(topics=4))).policies) == 3


def test_different_people_with_different_topics_are_no_pattern() -> None:
    uses = [(name, WRITE, topic) for name, topic in (("bell", "ring"), ("phone", "grant"), ("hub", "lock"))]
    assert rules(propose(table(*uses))) == {(f"user:{name}", "write", topic) for name, _, topic in uses}


def test_a_wildcard_that_a_reader_asked_for() -> None:
    uses = [("view", READ, f"r/{word}/t") for word in ("kitchen", "hall")]
    assert len(propose(table(*uses)).policies) == 2
    assert rules(propose(table(*uses, ("view", SUBSCRIBE, "r/+/t")))) == {("user:view", "read", "r/+/t")}
    # to ask for everything is no reason to give everything
    assert rules(propose(table(*uses, ("view", SUBSCRIBE, "#")))) == {("user:view", "read", "r/+/t")}


def test_subscriptions_that_nothing_came_by() -> None:
    found = propose(table(("view", SUBSCRIBE, "alarm/view/#"), ("hub", WRITE, "x")))
    assert ("user:view", "read", "alarm/{s.user}/#") in rules(found)
    assert found.policies[0].used == 0 or found.policies[1].used == 0


def test_hours_that_matter() -> None:
    office = [("clerk", WRITE, "door/open", 4, "", hour, day) for hour in (9, 12, 16) for day in range(3)]
    around = [("meter", WRITE, "meter/power", 4, "", hour, 0) for hour in range(24)]
    found = {each.subject: each.when for each in propose(table(*office, *around)).policies}
    assert found == {"user:clerk": "within(e.now, '09:00-17:00')", "user:meter": None}
    alone = propose(table(*office))
    assert [each.when for each in alone.policies] == [None]  # nothing else was recorded at other hours


def test_what_was_denied_is_not_learned_and_limits_what_is() -> None:
    uses = [("hub", WRITE, f"r/room{number}/t") for number in (1, 2, 3)]
    found = propose(table(*uses, ("hub", WRITE, "r/room4/t", 1, "default")))
    assert len(found.policies) == 3
    assert [each.topic for each, _ in found.denied] == ["r/room4/t"]
    all_of_it = propose(table(*uses, ("hub", WRITE, "r/room4/t", 1, "default")), Options(include_denied=True))
    assert rules(all_of_it) == {("user:hub", "write", "r/+/t")}


def test_seen_once_only() -> None:
    found = propose(table(("hub", WRITE, "a", 1), ("hub", WRITE, "b", 2)))
    assert [each.topic for each in found.once] == ["a"]
    assert "SEEN ONCE ONLY" in to_yaml(found, [])


def test_what_cannot_be_said_is_said() -> None:
    made = tabulate([("*", "*", WRITE, "a", 1, "", "", 1, 1.0, 1.0), (None, "", WRITE, "b", 1, "", "", 1, 1.0, 1.0)])
    found = propose(made)
    assert found.policies == ()
    assert {each["topic"] for each in plain(found)["not_expressed"]} == {"a", "b"}


def test_a_table_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tabular, "MOST", 3)
    made = table(*[("hub", WRITE, topic) for topic in "abc"], ("hub", WRITE, "d", 7), ("hub", WRITE, "a", 2))
    assert made.left_out == 7
    assert len(made.uses) == 3
    assert "7 uses are left out" in propose(made).notes[0]
