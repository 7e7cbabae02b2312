"""What is written: tables that agree with the figures, and a picture."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from bench.broker import plot, report
from bench.broker.report import Findings
from bench.broker.works import BASE, work
from bench.harness import figures
from bench.harness.rounds import Plan, Series
from bench.load.job import Outcome
from rich.console import Console


def flow(rate: int, micros: float, foreign: float = 0.0) -> Outcome:
    cpu = rate * micros / 1e6
    return Outcome(messages=rate, seconds=1.0, server_cpu=cpu, load_cpu=0.5, foreign=foreign, lost=0)


def late(p99: float) -> Outcome:
    return Outcome(
        messages=100, seconds=1.0, server_cpu=0.1, p50=p99 / 4, p99=p99, p999=p99 * 2, histogram=[(p99, 99), (1.0, 1)]
    )


@pytest.fixture
def made() -> Findings:
    series = [
        Series(work=work(BASE), reference=[flow(100_000, 8)] * 2, subject=[flow(180_000, 4), flow(170_000, 5)]),
        Series(work=work("topics-100k/5000"), reference=[flow(90_000, 9)] * 2, subject=[flow(90_000, 6)] * 2),
        Series(work=work("latency"), reference=[late(0.002)] * 2, subject=[late(0.003)] * 2),
        Series(work=work("idle-10k"), reference=[Outcome(bytes_each=800)] * 2, subject=[Outcome(bytes_each=2048)] * 2),
        Series(work=work("durable/20"), reference=[flow(1000, 20)], subject=[None], failures=["durable/20: it died"]),
    ]
    rows = [figures.row(one) for one in series]
    return Findings(
        plan=Plan(rounds=2),
        machine={"cpu": "of a kind"},
        series=series,
        rows=rows,
        growth=figures.growth(rows),
        notes=["a note"],
    )


def test_markdown(made: Findings) -> None:
    text = report.report(made).markdown()
    assert (
        "| 100 publishers, one message at a time, QoS 0 (`qos0-100`) | 5000 | 100.0 k/s, 8.00 µs | 175.0 k/s, 4.50 µs "
        "| 1.75 (1.70..1.80) | 1.80 (1.60..2.00) | ≥ 1.7 | yes |"
    ) in text
    assert "| - | p99 2.00 ms | p99 3.00 ms | - | 0.67 | ≥ 1.0 | no |" in text
    assert "| 0.78 KiB | 2.00 KiB | - | 0.39 | ≤ 4 KiB | yes |" in text
    assert "| 1.0 k/s, 20.00 µs | failed | - | - | ≥ 1.0 | failed |" in text
    assert "| 1.12 | 1.33 | no |" in text
    assert "- a note" in text
    assert "- durable/20: it died" in text
    assert "not quiet" not in text


def test_neighbours_are_told_of() -> None:
    series = [Series(work=work(BASE), reference=[flow(1, 1, foreign=0.7)], subject=[flow(1, 1)])]
    rows = [figures.row(one) for one in series]
    noisy = Findings(plan=Plan(), machine={}, series=series, rows=rows, growth=[], notes=[])
    assert "neighbours used up to 0.70 cores" in report.report(noisy).markdown()


@pytest.mark.parametrize(
    ("busy", "load", "outstanding", "foreign", "expected"),
    [
        (0.99, 0.60, 4900, 0.0, "server"),
        (0.99, 0.99, 4900, 0.0, "server"),
        (0.99, 0.99, 900, 0.0, "generator"),
        (0.50, 0.60, 4900, 0.9, "neighbours"),
        (0.50, 0.60, 4900, 0.0, "window"),
    ],
)
def test_what_held_the_server_back(busy: float, load: float, outstanding: int, foreign: float, expected: str) -> None:
    one = Outcome(messages=1000, seconds=1.0, server_cpu=busy, load_cpu=load, outstanding=outstanding, foreign=foreign)
    series = [Series(work=work(BASE), reference=[one], subject=[one])]
    rows = [figures.row(both) for both in series]
    found = Findings(plan=Plan(), machine={}, series=series, rows=rows, growth=[], notes=[])
    told = report.report(found).markdown()
    assert f"| {outstanding} | {expected} | 0 |" in told


def test_what_was_missed(made: Findings) -> None:
    assert [one.work.key for one in made.missed] == ["latency", "durable/20"]


def test_files_hold_what_was_measured(made: Findings, tmp_path: Path) -> None:
    files = report.report(made).write(tmp_path / "new", "broker")
    assert sorted(file.name for file in files) == [
        "broker-machine.json",
        "broker-rounds.csv",
        "broker.csv",
        "broker.md",
    ]
    lines = list(csv.DictReader(io.StringIO((tmp_path / "new/broker.csv").read_text())))
    assert [line["work"] for line in lines] == ["qos0-100", "topics-100k", "latency", "idle-10k", "durable"]
    assert float(lines[0]["cost_median"]) == pytest.approx(1.8)
    rounds = list(csv.DictReader(io.StringIO((tmp_path / "new/broker-rounds.csv").read_text())))
    assert len(rounds) == 4 * 4 + 1
    assert json.loads((tmp_path / "new/broker-machine.json").read_text()) == {"cpu": "of a kind"}


def test_table_on_a_terminal(made: Findings) -> None:
    sink = io.StringIO()
    console = Console(file=sink, width=200)
    for table in report.report(made).terminal():
        console.print(table)
    assert "CPU per message" in " ".join(report.report(made).words())
    text = sink.getvalue()
    assert "175.0 k/s, 4.50 µs" in text


def test_the_same_server_twice_is_told_apart(made: Findings) -> None:
    plan = Plan(reference=made.plan.reference, subject=made.plan.reference)
    twice = Findings(plan=plan, machine={}, series=[], rows=[], growth=[], notes=[])
    assert twice.names == ("mosquitto", "mosquitto (again)")


def test_plot(made: Findings, tmp_path: Path) -> None:
    (file,) = report.report(made).draw(tmp_path / "deep", "plot")
    assert file.read_bytes().startswith(b"\x89PNG")


def test_share_beyond_each_bound() -> None:
    rounds = [Outcome(histogram=[(0.001, 90), (0.002, 9), (0.5, 1)])] * 2
    bounds, shares = plot.beyond(rounds)
    assert bounds == pytest.approx([1.0, 2.0])
    assert shares == pytest.approx([0.1, 0.01])
