"""The table of works: complete, without doubles, and with the goals that were set."""

from __future__ import annotations

import pytest
from bench.broker.works import BASE, BRIEF, WORKS, chosen, work
from bench.harness.servers import BenchError
from bench.load.job import Job, Outcome, Shape
from bench.scopes.chain import SEM, Chain

from bench.gate import works as gate_works

GOALS = {
    "qos0-100/5000": "≥ 1.7",
    "qos0-100/20": "≥ 1.1",
    "qos0-1000/5000": "≥ 1.7",
    "qos0-1000/200": "≥ 1.1",
    "qos1-100/5000": "≥ 1.4",
    "qos2-100/5000": "≥ 1.4",
    "fanout-1000/1": "≥ 1.4",
    "fanout-1000/10": "≥ 1.4",
    "topics-100k/5000": "≥ 1.0",
    "churn-1k/5000": "≥ 1.0",
    "wildcards-100k/5000": "≥ 1.0",
    "latency": "≥ 1.0",
    "idle-10k": "≤ 4 KiB",
    "durable/5000": "≥ 1.0",
    "durable/20": "≥ 1.0",
}


def test_keys_are_unique() -> None:
    keys = [one.key for one in WORKS]
    assert len(set(keys)) == len(keys)


def test_there_is_something_for_little_time() -> None:
    assert [one.key for one in chosen(BRIEF)] == [
        "qos0-100/5000",
        "qos0-100/20",
        "qos0-1000/5000",
        "qos1-100/5000",
        "qos2-100/5000",
        "fanout-1000/10",
        "durable/5000",
    ]
    gate_brief = gate_works.chosen(gate_works.BRIEF)
    assert [one.name for one in gate_brief.contests] == ["everything-100", "everything-1000", "where"]
    assert gate_brief.steps


def test_goals() -> None:
    assert {one.key: str(one.goal) for one in WORKS if one.goal is not None} == GOALS


def test_latency_comes_after_what_it_is_derived_from() -> None:
    keys = [one.key for one in WORKS]
    assert all(keys.index(BASE) < keys.index(one.key) for one in WORKS if one.half or one.grows)


def test_choosing() -> None:
    assert chosen([]) == list(WORKS)
    assert [one.key for one in chosen(["qos0-100"])] == ["qos0-100/5000", "qos0-100/20"]
    assert [one.key for one in chosen(["idle-10k", "qos0-100/20"])] == ["qos0-100/20", "idle-10k"]
    with pytest.raises(BenchError, match=r"no work named qos3.*qos0-100, qos0-100-x4, qos0-1000"):
        chosen(["qos3"])


def test_durable_works_are_durable_on_both_ends() -> None:
    one = work("durable/20")
    assert one.setting.durable
    assert one.job.persistent
    assert one.job.qos == 1


def test_jobs_and_outcomes_survive_the_process_border() -> None:
    chained = Chain(configuration=SEM, scopes=5).job(window=7)
    assert (chained.arrives, chained.more, chained.rewritten) == ("step5", 1, False)
    for job in (Job(shape=Shape.RATE, rate=5, topics=7, fanout=True, shown=("a", "b")), chained):
        assert Job.from_json(job.to_json()) == job
    outcome = Outcome(messages=5, seconds=2.0, server_cpu=0.5, histogram=[(0.1, 3), (1.0, 2)])
    assert Outcome.from_json(outcome.to_json()) == outcome
    assert (outcome.per_second, outcome.micros, outcome.busy) == (2.5, 1e5, 0.25)
