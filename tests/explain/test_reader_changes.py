"""Whoever can read more of a topic than before is told of, for random rules before and after."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from explain.test_readers import KNOWN_AT_ONCE, LATER, NOON, SUBJECTS, TOPIC, TOPICS, answers, made, rows
from tidegate import topics
from tidegate.config import Config
from tidegate.explain.reader_changes import Differences, Moment, ReaderChanges, own_filters, sample
from tidegate.explain.readers import Can
from tidegate.session import Subject

CONDITIONS = tuple(each for each in (*KNOWN_AT_ONCE, *LATER) if "o.topic" not in each)
RANK = {Can.NO: 0, Can.IF: 1, Can.YES: 2}
WORLDS = rows(CONDITIONS, SUBJECTS, TOPICS)


def mary(config: Config) -> Subject:
    domain = config.built.rules.domain
    return Subject(kind="client", client="tr1", user="mary", scope="main", node="n", domain=domain, roles=("member",))


@settings(max_examples=60)
@given(WORLDS, WORLDS)
def test_nobody_gains_unnoticed(first: Any, second: Any) -> None:
    before, after = made(first), made(second)
    then, now = answers(before), answers(after)
    gained = {user for user in now if user != "mary" and RANK[now[user].can] > RANK[then[user].can]}
    differences = Differences.between(before, after)
    changes = ReaderChanges(Moment(config=before, at=NOON), Moment(config=after, at=NOON), differences)
    told = {
        gain.reader[1]
        for each in changes.gained(mary(after), ["mary"])
        if topics.matches(each.filter, TOPIC)
        for gain in each.gains
    }
    assert gained <= told


@given(st.sampled_from(("a", "a/b", "+", "a/+/c", "#", "a/#", "+/b/#")))
def test_a_sample_is_one_of_the_topics(filter: str) -> None:
    assert topics.valid_topic(sample(filter))
    assert topics.matches(filter, sample(filter))


def test_the_filters_by_which_rules_make_a_difference() -> None:
    policies = [
        {"subject": "*", "topic": "gym/{s.user}/#", "when": None},
        {"subject": "*", "topic": "+/x", "when": None},
    ]
    config = made(
        (policies, ["allow"] * 2, [{"topic": "gym/mary/#", "when": None, "effect": "deny"}], [], "deny-overrides")
    )
    assert own_filters(config, mary(config)) == ["#", "+/x", "gym/+/#", "gym/mary/#"]
