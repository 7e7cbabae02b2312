"""Comparing two checkouts: intervals, what is chosen, and a pair in process of this tree with itself."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from bench.compare import cases, checkout, measure, report
from bench.compare.interval import ratio
from bench.harness.rounds import Plan
from bench.harness.servers import BenchError
from bench.load.job import Outcome

from bench import ROOT

CORES = sorted(os.sched_getaffinity(0))
PLAN = Plan(rounds=2, duration=0.2, warmup=0.05, server_core=CORES[0], load_core=CORES[-1])


def test_the_interval_is_students_of_the_logarithms() -> None:
    same = ratio([(2.0, 1.0)] * 15)
    assert same is not None
    assert (same.mean, same.low, same.high) == pytest.approx((2.0, 2.0, 2.0))
    wide = ratio([(1.0, 1.0), (1.21, 1.0)])
    assert wide is not None
    assert wide.mean == pytest.approx(1.1)
    assert wide.low < 0.5 < 2.0 < wide.high
    assert ratio([(1.0, 1.0)]) is None
    assert ratio([(1.0, 0.0), (1.0, 1.0)]) is None


def test_the_verdict_looks_at_the_lower_end_over_sockets_and_at_the_mean_in_process() -> None:
    costs = {"base": [1.0, 1.0, 1.0], "this": [0.9, 1.0, 1.1]}
    for in_process, verdict in ((False, "no"), (True, "yes")):
        one = measure.Comparison(name="n", title="t", in_process=in_process, unit="µs", **costs)
        assert one.verdict == verdict
    assert measure.Comparison(name="n", title="t", in_process=True, unit="µs").verdict == "failed"


def test_works_are_chosen_by_name_or_beginning() -> None:
    sockets, processes = cases.chosen([], everything=False)
    assert [one.name for one in sockets] == list(cases.ESSENTIAL)
    assert len(processes) == len(cases.in_process())
    sockets, processes = cases.chosen(["broker/qos0-100", "in-process/scopes/NEW"], everything=False)
    assert [one.name for one in sockets] == ["broker/qos0-100/5000", "broker/qos0-100/20"]
    assert {one.name.split(",")[0] for one in processes} == {"scopes/NEW"}
    assert len(cases.chosen([], everything=True)[0]) > 40
    with pytest.raises(BenchError, match="no work named broker/qos7"):
        cases.chosen(["broker/qos7"], everything=False)


def test_the_base_is_a_folder_or_a_revision() -> None:
    for text in (ROOT, str(Path(ROOT) / "src")):
        with checkout.opened(text) as base:
            assert base.source == Path(ROOT) / "src"
    with pytest.raises(BenchError, match="neither a folder"), checkout.opened("no-such-revision"):
        pass


def test_a_pair_in_process_and_its_report(tmp_path: Path) -> None:
    this = checkout.this_tree()
    wanted = ["gate/open", "scopes/NEW, 5 scopes, QoS 1"]
    chosen = [one for one in cases.in_process() if one.name in wanted]
    found = measure.in_process(chosen, this, this, PLAN, lambda words: None)
    assert [(one.name, len(one.base), len(one.this), one.failures) for one in found] == [
        (name, PLAN.rounds, PLAN.rounds, []) for name in wanted
    ]
    found.append(measure.Comparison(name="broker/one", title="", in_process=False, unit="µs"))
    outcome = Outcome(messages=1000, seconds=1.0, server_cpu=0.5, load_cpu=0.99, generator="C")
    found[-1].base, found[-1].this, found[-1].outcomes = [1.0, 1.0], [1.0, 1.0], [(outcome, outcome)]
    made = report.report(found, this, this, PLAN, {})
    table, _machine, pairs = made.write(tmp_path, "compare")
    text = table.read_text()
    assert "| broker/one | 2 | µs | 1.00 | 1.00 | +0.0% (+0.0% to +0.0%) | yes |" in text
    assert "99% (the limit) | C |" in text
    assert str(Path(ROOT)) not in text
    assert len(pairs.read_text().splitlines()) == 1 + 2 * 3


def test_a_worker_that_fails_is_reported() -> None:
    this = checkout.this_tree()
    wrong = cases.ProcessCase(name="wrong", title="", command={"rules": "policies: closed", "version": 4})
    (found,) = measure.in_process([wrong], this, this, PLAN, lambda words: None)
    assert "the worker ended" in found.failures[0]
    assert found.verdict == "failed"
