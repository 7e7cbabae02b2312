"""The report of `bench live`: the latency of each round, without callers and with them."""

from __future__ import annotations

import statistics
from collections.abc import Mapping

from bench.harness.report import Line, Report, Table, not_quiet
from bench.live import listing
from bench.live.listing import CALLERS, GOAL, Findings, Run


def report(found: Findings, machine: Mapping[str, object]) -> Report:
    plan = found.plan
    reached = "yes" if found.reached else "no"
    foreign = max((run.outcome.foreign for pair in found.rounds for run in pair), default=0.0)
    summary = []
    if found.rounds:
        alone, there = ([pair[side].outcome.p99 * 1e3 for pair in found.rounds] for side in range(2))
        pages = statistics.median(pair[1].pages / pair[1].outcome.seconds for pair in found.rounds)
        cells = (f"{statistics.median(alone):.3f}", f"{statistics.median(there):.3f}", f"{pages:,.0f}")
        summary = [
            (
                f"{found.rate:,} a second, {listing.CLIENTS:,} clients",
                *cells,
                f"{found.ratio:.2f}",
                f"<= {GOAL:g}",
                reached,
            )
        ]
    return Report(
        title=f"Live view: latency with ten {found.visitors.name.lower()}",
        machine=machine,
        header=[
            f"{plan.rounds} round(s) of {plan.duration:g} s, each without and with {CALLERS} "
            f"{found.visitors.value}. {found.rate:,} messages a second of "
            f"{listing.CLIENTS:,} publishers, under policies, preferences, levels, types of links and monitors. Node "
            "on one core, load, callers and the HTTP process on another; the callers give way to the load there. The "
            "ratio is the median of those of the rounds.",
        ],
        notes=not_quiet(foreign, "Their own work on the core of the load counts as that of neighbours."),
        tables=[
            Table(
                title="99th percentile of the latency",
                columns=(
                    "load",
                    "alone, ms",
                    f"with {found.visitors.name.lower()}, ms",
                    "pages a second",
                    "ratio",
                    "goal",
                    "reached",
                ),
                lines=summary,
            )
        ],
        files={"": [line for number, pair in enumerate(found.rounds, 1) for line in _lines(number, *pair)]},
        failures=found.failures,
        missed=[] if found.reached else ["the 99th percentile with them"],
    )


def _lines(number: int, alone: Run, there: Run) -> list[Line]:
    return [
        {
            "round": number,
            "callers": callers,
            "pages": run.pages,
            **{name: round(getattr(run.outcome, name) * 1e3, 4) for name in ("p50", "p99", "p999", "slowest", "late")},
            "messages": run.outcome.messages,
            "server_cpu": round(run.outcome.server_cpu, 4),
            "foreign": round(run.outcome.foreign, 3),
        }
        for callers, run in ((0, alone), (CALLERS, there))
    ]
