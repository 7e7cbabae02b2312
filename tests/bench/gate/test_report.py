"""What is written, from figures that are written down here."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from bench.gate.changes import Change, Figures, Phase, Run, Runs, Trial
from bench.gate.contests import Rounds
from bench.gate.findings import Findings
from bench.gate.levels import CONTROL, MOSQUITTO, WITH, WITHOUT, Added, Forwarding, Timed
from bench.gate.memory import WITH as MONITORED
from bench.gate.memory import WITHOUT as WITHOUT_MONITORS
from bench.gate.memory import Memory
from bench.gate.steps import Cost
from bench.harness.figures import Spread
from bench.harness.rounds import Plan
from bench.load.job import Outcome
from rich.console import Console

from bench.gate import contests, findings, report


def flow(rate: int, micros: float, foreign: float = 0.0) -> Outcome:
    cpu = rate * micros / 1e6
    return Outcome(messages=rate, seconds=1.0, server_cpu=cpu, load_cpu=0.5, foreign=foreign)


def run(stall: float, changed: bool) -> Run:
    seen = Figures(messages=9, p50=0.0005, p99=0.002, slowest=0.004, stall=stall)
    return Run(
        outcome=flow(20_000, 10),
        phases={phase: seen if changed or phase is Phase.BEFORE else Figures() for phase in Phase},
        changes=(Change(asked=2_000_000_000, in_force=2_400_000_000, version="2-abc"),) if changed else (),
        delay=(0.02, 0.03),
        begin=1_000_000_000,
        line=((0.3, 0.0005, 0.001), (0.35, 0.0005, 0.004)),
    )


def timed(name: str, enforced: float) -> Timed:
    times = {MOSQUITTO: 60e-6, WITHOUT: 80e-6, CONTROL: 80e-6, WITH: enforced}
    return Timed(
        name=name,
        title=f"clients of {name}",
        seconds={server: [one + number * 1e-7 for number in range(50)] for server, one in times.items()},
    )


def cost(group: str, name: str, nanos: float) -> Cost:
    return Cost(group=group, name=name, nanos=Spread(median=nanos, low=nanos * 0.9, high=nanos * 1.1))


@pytest.fixture
def found() -> Findings:
    everything = next(one for one in contests.contests() if one.name == "everything-100")
    return Findings(
        plan=Plan(rounds=2),
        machine={"cpu": "of a kind"},
        contests=[
            Rounds(
                contest=everything,
                outcomes={
                    "mosquitto": [flow(100_000, 8.0)] * 2,
                    "open": [flow(180_000, 4.0), flow(170_000, 5.0)],
                    "everything": [flow(170_000, 5.0), None],
                },
                failures=["everything-100/everything, round 2: it died"],
            )
        ],
        costs=[
            cost("asked", "write", 150_000),
            cost("content", "write", 4_000),
            cost("path", "fast lane, policies: open", 600),
            cost("path", "views", 9_600),
            cost("compile", "1,000 policies", 300_000),
            cost("stored", "decided before", 300),
            cost("proof proven each", "Ed25519", 150_000),
            cost("proof proven each", "ES256", 100_000),
        ],
        changes=[
            Runs(
                trial=Trial(policies=200, publishers=100, changes=1),
                steady=[run(0.001, False)],
                changed=[run(0.012, True)],
            )
        ],
        levels=Forwarding(
            forwarded=[timed("plain", 80e-6), timed("message", 120e-6)],
            connected=[timed("tls", 81e-6)],
            added=[Added(packet="PUBLISH", form="s", bytes=7)],
        ),
        memory=Memory(bytes_each={WITHOUT_MONITORS: [4000.0, 4000.0, None], MONITORED: [4900.0, 5100.0, 9000.0]}),
    )


def test_markdown(found: Findings) -> None:
    text = report.report(found).markdown()
    for line in (
        "| everything-100 | 5000 | Mosquitto, without any security | 100.0 k/s, 8.00 µs | - | - | - | - | - |",
        "| everything-100 | 5000 | the same users, `policies: open` | 175.0 k/s, 4.50 µs | 1.75 (1.70..1.80) "
        "| 1.80 (1.60..2.00) | - | - | - |",
        "| everything-100 | 5000 | 200 policies with conditions, a preference per user, levels, brokering, a monitor "
        "on every link, audit | 170.0 k/s, 5.00 µs | 1.70 | 1.60 | +1.00 µs | ≥ 1.4 | yes |",
        "| write | 150000 (135000..165000) | 0 | 4000 (3600..4400) | - | - |",
        "| views of two groups (two deliveries) | 9600 (8640..10560) | +9000 |",
        "| a plan, with 1,000 policies | 300.0 (270.0..330.0) |",
        "| a message, proven each | 150.0 (135.0..165.0) | 100.0 (90.0..110.0) |",
        "| without monitors | 3.91 | - | - |",
        "| what that adds | 0.98 (0.88..1.07) | ≤ 2 KiB | yes |",
        "| 200 policies, 100 publishers | no change | 1.00 | 0.50 | 2.00 | 4.00 | - |",
        "| 200 policies, 100 publishers | during changes | 12.00 | 0.50 | 2.00 | 4.00 | no |",
        "| 200 policies, 100 publishers | changes | 1 | 400.00 | 20.00 | 30.00 | 10.00 | 0.50 | 0 |",
        "| clients of plain | 50 | 62 | 82 | 82 | 82 | +0 | 1.000 | 1.000 | yes |",
        "| PUBLISH | `s` | +7 |",
        "- everything-100/everything, round 2: it died",
    ):
        assert line in text
    assert "below 1 ms, but found" in text
    assert "| everything-100 | everything | 85% | 50% | 2.94 µs, Python | 0.00 | - | window | 0 |" in text
    assert "not quiet" not in text


def test_what_was_missed(found: Findings) -> None:
    assert found.missed == ["change-200-100", "levels/message"]
    assert found.failures == ["everything-100/everything, round 2: it died"]


def test_too_much_memory_is_missed(found: Findings) -> None:
    found.memory.bytes_each[MONITORED] = [4000.0 + 2049.0, None, 5000.0]
    assert found.memory.reached == "no"
    assert found.missed == ["change-200-100", "levels/message", "memory"]
    found.memory.bytes_each[MONITORED] = [None, None, None]
    assert found.memory.reached == "failed"
    assert "| what that adds | failed | ≤ 2 KiB | failed |" in report.report(found).markdown()


def test_neighbours_are_told_of(found: Findings) -> None:
    found.contests[0].outcomes["open"] = [flow(1, 1, foreign=0.6)] * 2
    assert found.disturbance == pytest.approx(0.6)
    assert "neighbours used up to 0.60 cores" in report.report(found).markdown()


def test_what_the_gate_adds_is_taken_within_rounds(found: Findings) -> None:
    rounds = found.contests[0]
    rounds.outcomes["everything"] = [flow(1000, 4.5), flow(1000, 6.0)]
    bare, plain, everything = rounds.contest.contenders
    added = findings.beyond_open(rounds, everything)
    assert added is not None
    assert (added.median, added.low, added.high) == pytest.approx((0.75, 0.5, 1.0))
    assert findings.beyond_open(rounds, plain) is None
    assert bare is rounds.contest.reference


def test_files_hold_what_was_measured(found: Findings, tmp_path: Path) -> None:
    written = report.report(found).write(tmp_path / "new", "gate")
    assert {file.name for file in written} == {
        "gate.md",
        "gate.csv",
        "gate-rounds.csv",
        "gate-changes.csv",
        "gate-line.csv",
        "gate-levels.csv",
        "gate-machine.json",
    }

    def lines(name: str) -> list[dict[str, str]]:
        return list(csv.DictReader(io.StringIO((tmp_path / "new" / name).read_text())))

    by = {(line["part"], line["name"], line["figure"]): line for line in lines("gate.csv")}
    assert by["contest", "everything-100/everything", "CPU ratio"]["reached"] == "yes"
    assert float(by["contest", "everything-100/everything", "CPU ratio"]["median"]) == pytest.approx(1.6)
    assert by["change", "change-200-100/changed/during", "stall"]["reached"] == "no"
    assert float(by["steps", "write", "asked"]["high"]) == pytest.approx(165_000)
    assert float(by["bytes", "PUBLISH/s", "added"]["median"]) == 7
    assert float(by["memory", "monitored", "added"]["median"]) == 1000
    assert by["memory", "monitored", "added"]["reached"] == "yes"
    assert len(lines("gate-rounds.csv")) == 5
    assert [line["phase"] for line in lines("gate-changes.csv")] == ["before", "before", "during", "after"]
    assert len(lines("gate-line.csv")) == 4
    assert len(lines("gate-levels.csv")) == 150
    assert lines("gate-levels.csv")[0] == {
        "kind": "forward",
        "case": "plain",
        "run": "1",
        "mosquitto": "0.06",
        "without": "0.08",
        "control": "0.08",
        "with": "0.08",
    }
    assert json.loads((tmp_path / "new" / "gate-machine.json").read_text()) == {"cpu": "of a kind"}


def test_nothing_measured_is_nothing_written(tmp_path: Path) -> None:
    nothing = Findings(plan=Plan(), machine={})
    assert [file.name for file in report.report(nothing).write(tmp_path, "gate")] == ["gate.md", "gate-machine.json"]
    assert report.report(nothing).terminal() == []
    assert report.report(nothing).draw(tmp_path, "gate") == []


def test_tables_on_a_terminal(found: Findings) -> None:
    sink = io.StringIO()
    console = Console(file=sink, width=200)
    for table in report.report(found).terminal():
        console.print(table)
    assert "170.0 k/s, 5.00 µs" in sink.getvalue()
    assert "during changes" in sink.getvalue()


def test_plots(found: Findings, tmp_path: Path) -> None:
    made = report.report(found).draw(tmp_path / "deep", "gate")
    assert [file.name for file in made] == ["gate.png", "gate-changes.png", "gate-levels.png"]
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in made)


def test_plots_of_what_failed(found: Findings, tmp_path: Path) -> None:
    runs = found.changes[0]
    runs.steady, runs.changed = [None], [None]
    found.contests[0].outcomes["everything"] = [None, None]
    assert len(report.report(found).draw(tmp_path, "gate")) == 3
    assert "failed" in report.report(found).markdown()
