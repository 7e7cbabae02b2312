"""Parts of the journal decided by themselves find what all of it together does; and what a record can lack."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from pipeline.replay import naive
from pipeline.replay.naive import Event, Person, Policy, RecordedSubscription, Rules
from pipeline.replay.recording import config, decided, rows, total, write
from pipeline.replay.test_naive import NIGHT, found_in
from tidegate.errors import PipelineError
from tidegate.pipeline.replay.partitions import partitions, span
from tidegate.store.journal import traffic_row

ALICE, BOB, CAROL = Person("one", "alice"), Person("two", "bob"), Person("three", "carol")
ALL = Policy("all", "*", "#", ("read", "write"), "allow", None)
BEFORE = Rules(policies=(ALL,))
AFTER = Rules(policies=(ALL, Policy("no", "user:bob", "a/#", ("read",), "deny", None)))


def story(count: int) -> list[Event]:
    """Bob comes and goes between the messages of alice; carol stays."""
    made = [Event("connect", NIGHT, each) for each in (ALICE, BOB, CAROL)]
    made += [Event("subscribe", NIGHT, CAROL, subscription=RecordedSubscription("#"))]
    here = False
    for number in range(count):
        at = NIGHT + number
        if number % 7 == 0:
            what = "unsubscribe" if here else "subscribe"
            made.append(Event(what, at, BOB, subscription=RecordedSubscription("a/+")))
            here = not here
        made.append(Event("publish", at, ALICE, topic=f"a/{number % 3}", payload=b"x"))
    return made


def state() -> list[Event]:
    return [Event("connect", NIGHT, each) for each in (ALICE, BOB, CAROL)] + [
        Event("subscribe", NIGHT, CAROL, subscription=RecordedSubscription("#"))
    ]


@pytest.mark.parametrize("tasks", [1, 3, 10])
def test_parts_find_what_the_whole_does(tmp_path: Path, tasks: int) -> None:
    events = story(300)
    write(tmp_path, rows(events, BEFORE))
    sums = decided(config(BEFORE, tmp_path), config(AFTER, tmp_path), tasks=tasks, least=10)
    wanted, deliveries = naive.changes(events, BEFORE, AFTER)
    assert found_in(sums) == wanted
    assert total(sums, "deliveries") == deliveries
    assert total(sums, "unknown_sessions") == 0


def test_a_part_begins_with_segments_before_it(tmp_path: Path) -> None:
    """Each segment begins with the state; that is read from segments before, so that none of it is missing."""
    events = story(100)
    for start in range(0, len(events), 25):
        write(tmp_path, [*rows(state(), BEFORE), *rows(events[start : start + 25], BEFORE)], segment_age=0.0)
    whole = span(tmp_path, 0.0, 1e11)
    made = partitions(tmp_path, whole, 4, 10)
    assert len(made) == 4
    assert all(part.state <= part.start for part in made)
    assert made[-1].state > 0  # not all of the journal
    sums = decided(config(BEFORE, tmp_path), config(AFTER, tmp_path), tasks=4, least=10)
    assert found_in(sums) == naive.changes(events, BEFORE, AFTER)[0]


def test_a_state_that_is_not_repeated_is_noticed(tmp_path: Path) -> None:
    """Segments that do not begin with the state, as they should: a part that reads too little says so."""
    events = story(100)
    for start in range(0, len(events), 20):
        write(tmp_path, rows(events[start : start + 20], BEFORE), segment_age=0.0)
    sums = decided(config(BEFORE, tmp_path), config(AFTER, tmp_path), tasks=10, least=5)
    assert found_in(sums) != naive.changes(events, BEFORE, AFTER)[0]
    assert total(sums, "unknown_sessions") > 0


def test_sessions_that_a_crash_ended_are_gone(tmp_path: Path) -> None:
    """Nobody has said that bob's ended, but messages are of another run of the node, and he was not named since."""
    first = [*state(), Event("subscribe", NIGHT, BOB, subscription=RecordedSubscription("a/+"))]
    message = Event("publish", NIGHT + 1, ALICE, topic="a/1", payload=b"x")
    write(tmp_path, rows([*first, message], BEFORE))
    later = [Event("connect", NIGHT + 2, ALICE), message]
    write(tmp_path, rows(later, BEFORE, node="cd" * 8))
    sums = decided(config(BEFORE, tmp_path), config(AFTER, tmp_path))
    assert found_in(sums) == Counter({("user:bob/client:two", "read", "a/1", "user:alice/client:one", True, False): 1})
    assert total(sums, "messages") == 2


def test_what_is_missing_is_counted(tmp_path: Path) -> None:
    lost = traffic_row(NIGHT, event="lost", attributes='{"rows": 5}')
    unknown = rows([Event("subscribe", NIGHT, BOB, subscription=RecordedSubscription("#"))], BEFORE)
    refused = rows([Event("refused", NIGHT, CAROL, topic="a")], BEFORE)
    elsewhere = rows([Event("connect", NIGHT, ALICE), Event("refused", NIGHT, ALICE, topic="a")], BEFORE)
    write(tmp_path, [lost, *unknown, *refused, *elsewhere])
    sums = decided(config(BEFORE, tmp_path), config(AFTER, tmp_path))
    assert total(sums, "lost") == 5
    assert total(sums, "unknown_sessions") == 1
    assert total(sums, "undecided") == 2
    reasons = {row["name"] for row in sums if row["kind"] == "undecided"}
    assert any("who published it is not known" in why for why in reasons)
    assert any("it was refused, but not by these rules" in why for why in reasons)


def test_a_delivery_that_was_decided_later_is_for_one_client(tmp_path: Path) -> None:
    people = [*state(), Event("subscribe", NIGHT, BOB, subscription=RecordedSubscription("a/+"))]
    (row,) = rows([Event("publish", NIGHT + 1, ALICE, topic="a/1", payload=b"x")], BEFORE)
    write(tmp_path, [*rows(people, BEFORE), (*row[:-1], "two")])
    sums = decided(config(BEFORE, tmp_path), config(AFTER, tmp_path))
    assert total(sums, "deliveries") == 1
    assert list(found_in(sums)) == [("user:bob/client:two", "read", "a/1", "user:alice/client:one", True, False)]


def test_nothing_recorded_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="record: traffic"):
        span(tmp_path, 0.0, 1e11)
    write(tmp_path, rows(story(3), BEFORE))
    with pytest.raises(PipelineError, match="choose another"):
        span(tmp_path, NIGHT + 1e6, NIGHT + 2e6)


def test_what_crosses_a_link_between_scopes(tmp_path: Path) -> None:
    """Bob is in another scope: a link brings him what alice publishes, under another name, unless it is denied."""
    linked = {
        "scopes": {"main": {}, "far": {}},
        "listeners": [{"url": "mqtt://127.0.0.1:1883", "anonymous": True, "scope": "main"}],
        "links": [{"from": "main", "to": "far", "share": [{"topic": "a/+", "remote_prefix": "x/"}]}],
    }
    events = [
        Event("connect", NIGHT, ALICE),
        Event("connect", NIGHT, BOB),
        Event("subscribe", NIGHT, BOB, subscription=RecordedSubscription("x/#")),
        Event("publish", NIGHT, ALICE, topic="a/1", payload=b"x"),
        Event("publish", NIGHT, ALICE, topic="b", payload=b"x"),
    ]
    made = rows(events, BEFORE)
    at = [number for number, row in enumerate(made) if row[12] == "two" and row[21]]
    for number in at:
        row = list(made[number])
        row[21] = row[21].replace('"scope": "main"', '"scope": "far"')
        made[number] = tuple(row)
    write(tmp_path, made)
    before = config(BEFORE, tmp_path, **linked)
    same = decided(before, before)
    assert (total(same, "deliveries"), total(same, "changed")) == (1, 0)
    closed = Rules(policies=(ALL, Policy("shut", "link:main->far", "a/#", ("write",), "deny", None)))
    sums = decided(before, config(closed, tmp_path, **linked))
    (change,) = (row for row in sums if row["kind"] == "change")
    assert (change["who"], change["topic"], change["before_allowed"]) == ("user:bob/client:two", "a/1", True)
    assert (change["after_allowed"], change["after_rule"]) == (False, "shut")
