"""The report of `bench compare`: a line for each work, and every pair as CSV."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from bench.compare.checkout import Checkout
from bench.compare.measure import ALLOWED, PAIRS_PER_START, Comparison
from bench.harness.report import BUSY, Line, Report, Table, not_quiet
from bench.harness.rounds import Plan

COLUMNS = ("work", "pairs", "unit", "base", "this tree", "change of speed (95 % interval)", "not slower")
LOAD_COLUMNS = (
    "work",
    "messages/s, base",
    "this tree",
    "node busy",
    "generator busy",
    "generator",
    "neighbours, cores",
)


def report(
    comparisons: Sequence[Comparison], base: Checkout, this: Checkout, plan: Plan, machine: Mapping[str, object]
) -> Report:
    """Of everything that was compared so far."""
    sockets = [one for one in comparisons if not one.in_process]
    processes = [one for one in comparisons if one.in_process]
    missed = [one.name for one in comparisons if one.verdict != "yes"]
    foreign = [outcome.foreign for one in comparisons for pair in one.outcomes for outcome in pair]
    return Report(
        title=f"Compared: {this.name} with {base.name}",
        machine=machine,
        header=[
            f"Base: {base.name}. This tree: {this.name}. Base and this tree in turn, pinned to one core, load on "
            f"another; over sockets {plan.duration:g} s each, and fresh nodes after every {PAIRS_PER_START} pairs. "
            "Costs are medians of the pairs. The change of speed is the geometric mean of base cost / this tree's cost "
            "within pairs, less 1, with Student's 95 % interval of its logarithm; above zero, this tree costs less. "
            f"Not slower: over sockets the lower end of the interval is above -{ALLOWED:.0%}; in process the mean is.",
        ],
        notes=[
            f"Not slower: {len(comparisons) - len(missed)} of {len(comparisons)} works.",
            *not_quiet(statistics.median(foreign) if foreign else 0.0),
        ],
        tables=[
            Table(title="Over sockets: CPU of the node per message", columns=COLUMNS, lines=list(map(_line, sockets))),
            Table(
                title="In process: CPU of the scopes per message", columns=COLUMNS, lines=list(map(_line, processes))
            ),
            Table(
                title="The load over sockets (medians of both sides)",
                columns=LOAD_COLUMNS,
                lines=[_load_line(one) for one in sockets if one.outcomes and one.outcomes[0][0].messages],
            ),
        ],
        files={"-pairs": _pairs(comparisons)},
        summary=[_figures(one) for one in comparisons],
        failures=[words for one in comparisons for words in one.failures],
        missed=missed,
    )


def _line(one: Comparison) -> tuple[str, ...]:
    speed = one.speed
    if speed is None:
        return (one.name, str(len(one.base)), one.unit, "-", "-", "-", one.verdict)
    change = f"{speed.mean - 1:+.1%} ({speed.low - 1:+.1%} to {speed.high - 1:+.1%})"
    base, this = statistics.median(one.base), statistics.median(one.this)
    return (one.name, str(len(one.base)), one.unit, f"{base:.2f}", f"{this:.2f}", change, one.verdict)


def _load_line(one: Comparison) -> tuple[str, ...]:
    both = [outcome for pair in one.outcomes for outcome in pair]
    rates = [statistics.median(pair[side].per_second for pair in one.outcomes) / 1e3 for side in (0, 1)]
    busy, load, foreign = (
        statistics.median(getattr(outcome, name) for outcome in both) for name in ("busy", "load_busy", "foreign")
    )
    limited = " (the limit)" if load >= BUSY and busy < BUSY else ""
    shares = (f"{busy:.0%}", f"{load:.0%}{limited}", both[0].generator, f"{foreign:.2f}")
    return (one.name, f"{rates[0]:.1f} k", f"{rates[1]:.1f} k", *shares)


def _where(one: Comparison) -> Line:
    return {"work": one.name, "where": "in process" if one.in_process else "sockets"}


def _figures(one: Comparison) -> Line:
    speed = one.speed
    return _where(one) | {
        "pairs": len(one.base),
        "unit": one.unit,
        "base": round(statistics.median(one.base), 4) if one.base else None,
        "this": round(statistics.median(one.this), 4) if one.this else None,
        "speed": round(speed.mean, 4) if speed else None,
        "speed_low": round(speed.low, 4) if speed else None,
        "speed_high": round(speed.high, 4) if speed else None,
        "not_slower": one.verdict,
    }


def _pairs(comparisons: Sequence[Comparison]) -> list[Line]:
    return [
        _where(one) | {"pair": number, "unit": one.unit, "base": round(base, 4), "this": round(this, 4)}
        for one in comparisons
        for number, (base, this) in enumerate(zip(one.base, one.this, strict=True), 1)
    ]
