"""What a trace means, on traces that are written down here."""

from __future__ import annotations

from array import array
from pathlib import Path

import pytest
from bench.gate.changes import Change, Figures, Phase, Run, Runs, Trial, evaluated
from bench.harness.servers import BenchError
from bench.load import paced
from bench.load.job import Outcome

MS = 1_000_000
TRIAL = Trial(policies=200, publishers=100, changes=1)


def trace(*, hole: tuple[int, int] | None = None, slow: int = 0) -> tuple[array[int], array[int]]:
    """Five seconds with a message each millisecond, but for a hole; in the fourth second each takes `slow` more."""
    moments = array("q", (at * MS for at in range(5000) if hole is None or not hole[0] < at < hole[1]))
    return moments, array("q", (MS + (slow * MS if 3000 <= at // MS < 4000 else 0) for at in moments))


CHANGE = Change(asked=2000 * MS, in_force=2500 * MS, version="2-x")


def run(hole: tuple[int, int] | None = None, pauses: tuple[int, ...] = (), slow: int = 0) -> Run:
    moments, latencies = trace(hole=hole, slow=slow)
    return evaluated(Outcome(), moments, latencies, array("q", (at * MS for at in pauses)), (CHANGE,))


def test_phases() -> None:
    made = run(slow=7)
    assert {phase: seen.messages for phase, seen in made.phases.items()} == {
        Phase.BEFORE: 1700,  # without the first 300 ms
        Phase.DURING: 1500,  # until a second after it is in force
        Phase.AFTER: 1500,
    }
    assert made.phases[Phase.BEFORE].slowest == pytest.approx(0.001)
    assert made.phases[Phase.DURING].slowest == pytest.approx(0.008)
    assert made.phases[Phase.DURING].p50 == pytest.approx(0.001)
    assert made.judged is made.phases[Phase.DURING]


def test_a_stall_belongs_to_the_phase_in_which_it_ends() -> None:
    made = run((2490, 2530))
    assert made.phases[Phase.DURING].stall == pytest.approx(0.040)
    assert made.phases[Phase.BEFORE].stall == made.phases[Phase.AFTER].stall == pytest.approx(0.001)
    assert run((1995, 2010)).phases[Phase.DURING].stall == pytest.approx(0.015)


@pytest.mark.parametrize(
    ("pauses", "stall"),
    [
        ((2495, 2520), 0.015),  # of the 40 ms the generator slept 25 itself
        ((2480, 2500), 0.030),
        ((2520, 2600), 0.030),
        ((2480, 2600), 0.001),
        ((2400, 2410, 2495, 2500, 2505, 2510, 2700, 2710), 0.030),
        ((100, 200), 0.040),
    ],
)
def test_what_the_generator_slept_is_not_the_nodes_fault(pauses: tuple[int, ...], stall: float) -> None:
    assert run((2490, 2530), pauses).phases[Phase.DURING].stall == pytest.approx(stall)


def test_without_changes_all_of_it_is_before() -> None:
    made = evaluated(Outcome(), *trace(hole=(3000, 3020)), array("q"))
    assert made.judged.stall == pytest.approx(0.020)
    assert made.phases[Phase.DURING] == Figures()


def test_the_line_over_time_begins_where_the_figures_do() -> None:
    made = run(slow=5)
    assert made.line[0] == pytest.approx((0.3, 0.001, 0.001))
    assert made.line[-1] == pytest.approx((4.95, 0.001, 0.001))
    assert len(made.line) == 94
    assert max(slowest for _, _, slowest in made.line) == pytest.approx(0.006)


def test_nothing_delivered_is_no_figure() -> None:
    with pytest.raises(BenchError, match="nothing was delivered"):
        evaluated(Outcome(), array("q"), array("q"), array("q"))


def some(stall: float, slowest: float, changed: bool) -> Run:
    seen = Figures(messages=1, stall=stall, slowest=slowest)
    return Run(
        outcome=Outcome(),
        phases=dict.fromkeys(Phase, seen),
        changes=(CHANGE,) if changed else (),
    )


@pytest.mark.parametrize(
    ("stall", "slowest", "expected"),
    [
        (0.009, 0.014, "yes"),
        (0.009, 0.016, "no stall, but messages wait"),
        (0.011, 0.014, "no"),
    ],
)
def test_the_goal(stall: float, slowest: float, expected: str) -> None:
    steady, quiet = some(0.001, 0.005, False), some(0.001, 0.005, True)
    made = some(stall, slowest, True)
    assert Runs(trial=TRIAL, steady=[steady] * 3, changed=[quiet, made, made]).reached == expected
    assert Runs(trial=TRIAL, steady=[steady], changed=[None]).reached == "failed"


def test_a_trace_survives_the_process_border(tmp_path: Path) -> None:
    seen = paced.Paced(
        moments=array("q", [5, 6]),
        latencies=array("q", [1, 2]),
        delays=array("q", [0]),
        pauses=array("q", [3, 4]),
        lost=0,
        overrun=False,
        working=0.0,
    )
    file = str(tmp_path / "trace")
    paced.write_trace(seen, file)
    assert paced.read_trace(file) == (seen.moments, seen.latencies, seen.pauses)
