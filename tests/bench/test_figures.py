"""Medians, ratios and verdicts, on rounds that are written down here."""

from __future__ import annotations

import dataclasses

import pytest
from bench.broker.works import BASE, work
from bench.harness import figures
from bench.harness.figures import Reached
from bench.harness.rounds import Series
from bench.harness.work import Goal, Work
from bench.load.job import Outcome


def flow(per_second: int, micros: float, **more: int | bool) -> Outcome:
    return Outcome(messages=per_second, seconds=1.0, server_cpu=per_second * micros / 1e6, **more)  # type: ignore[arg-type]


def series(one: Work, reference: list[Outcome | None], subject: list[Outcome | None]) -> Series:
    return Series(work=one, reference=reference, subject=subject)


FLOW = work(BASE)


def test_ratios_are_taken_within_rounds() -> None:
    # The machine was twice as slow in the second round; the ratio of each round does not notice.
    made = figures.row(
        series(
            FLOW,
            [flow(100_000, 8), flow(50_000, 16), flow(100_000, 8)],
            [flow(200_000, 4), flow(100_000, 8), flow(190_000, 5)],
        )
    )
    assert made.cost is not None
    assert made.throughput is not None
    assert (made.cost.median, made.cost.low, made.cost.high) == pytest.approx((2.0, 1.6, 2.0))
    assert made.throughput.median == pytest.approx(2.0)
    assert made.reached is Reached.YES


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        (flow(170_000, 8.0 / 1.7), Reached.YES),
        (flow(100_000, 8.0 / 1.75), Reached.YES),
        (flow(180_000, 8.0 / 1.2), Reached.BY_THROUGHPUT),
        (flow(160_000, 5.0), Reached.NO),
        (Outcome(overrun=True), Reached.NO),
        (None, Reached.FAILED),
    ],
)
def test_the_ratio_of_cpu_judges(subject: Outcome | None, expected: Reached) -> None:
    assert figures.row(series(FLOW, [flow(100_000, 8.0)], [subject])).reached is expected


def test_without_a_goal_nothing_is_reached() -> None:
    plain = dataclasses.replace(FLOW, goal=None)
    assert figures.row(series(plain, [flow(1, 1)], [flow(1, 1)])).reached is Reached.NO_GOAL


def test_latency_and_memory_have_their_own_figures() -> None:
    late = figures.row(series(work("latency"), [Outcome(p99=0.002)], [Outcome(p99=0.001)]))
    assert late.cost is not None
    assert late.cost.median == pytest.approx(2.0)
    assert late.throughput is None
    assert late.reached is Reached.YES
    for size, expected in ((4096, Reached.YES), (4200, Reached.NO)):
        small = figures.row(series(work("idle-10k"), [Outcome(bytes_each=800)], [Outcome(bytes_each=size)]))
        assert small.reached is expected


def test_a_failed_round_does_not_spoil_the_others() -> None:
    made = figures.row(series(FLOW, [flow(100, 8), None, flow(100, 8)], [flow(100, 4), flow(100, 4), None]))
    assert made.cost is not None
    assert made.cost.median == pytest.approx(2.0)
    assert (made.reference.rounds, made.subject.rounds) == (2, 2)


def test_a_reference_that_cannot_keep_the_rate_gives_no_ratio() -> None:
    made = figures.row(series(work("rate-50k"), [Outcome(overrun=True)], [flow(50_000, 5)]))
    assert made.cost is None
    assert made.throughput is None


def test_growth_is_against_the_base_of_the_same_run() -> None:
    rows = [
        figures.row(series(FLOW, [flow(100, 8)], [flow(100, 4)])),
        figures.row(series(work("topics-100k/5000"), [flow(100, 12)], [flow(100, 8)])),
        figures.row(series(work("qos1-100/5000"), [flow(100, 12)], [flow(100, 8)])),
    ]
    (grown,) = figures.growth(rows)
    assert (grown.reference, grown.subject) == pytest.approx((1.5, 2.0))
    assert not grown.no_faster
    assert figures.growth(rows[1:]) == []


def test_lost_messages_are_summed() -> None:
    assert figures.side([flow(1, 1, lost=2), None, flow(1, 1, lost=3)]).lost == 5


def test_goals_read_like_the_table() -> None:
    assert str(Goal(ratio=1.7)) == "≥ 1.7"
    assert str(Goal(kib=4.0)) == "≤ 4 KiB"
