"""What `bench links` says of chains: CPU of all servers at each rate, what arrived, and the seed's figures beside."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from bench.harness import figures
from bench.harness.plot import REFERENCE, SUBJECT, Picture, whiskers
from bench.harness.report import Line, Table, places, show
from bench.links.chain import CORES, GOAL, Cell, Chains, cores
from bench.load.job import Outcome
from bench.scopes.chain import ORI

WORDS = (
    "CPU of all servers of a chain together per delivered message, QoS 0; everything passes (ORI of the seed). A rate "
    "is optimal when all arrives, give or take 2 %. The servers may use all cores, and the generator sleeps between "
    f"messages. Rates at which either chain uses more than {CORES:g} cores are listed and not judged."
)


def tables(chains: Chains) -> Iterator[Table]:
    for length in chains.lengths:
        yield Table(
            title=f"A chain of {length}" if length > 1 else "One server",
            columns=(
                "rate",
                "Mosquitto, µs",
                "Tidegate, µs",
                "ratio",
                "Mosquitto, cores",
                "Tidegate, cores",
                "optimal: Mosquitto, Tidegate, seed",
                "goal",
                "reached",
            ),
            lines=[_line(one) for one in chains.of(length)],
            words=WORDS,
        )
    yield Table(
        title="The highest rate that is optimal, k messages/s",
        columns=("servers", "Mosquitto", "Tidegate", "seed (ORI)"),
        lines=[
            (
                str(length),
                _best(chains.of(length), mosquitto=True),
                _best(chains.of(length), mosquitto=False),
                _thousand(ORI.best[length]),
            )
            for length in chains.lengths
        ],
    )


def _line(cell: Cell) -> tuple[str, ...]:
    both = (cell.mosquitto, cell.tidegate)
    optimal = [*(_yes(cell.optimal(one)) for one in both), _yes(cell.seed)]
    return (
        f"{_thousand(cell.rate)} k/s",
        *(show(figures.side(one).micros, 1) for one in both),
        show(cell.ratio),
        *(show(cores(one)) for one in both),
        ", ".join(optimal),
        f"≤ {GOAL:g} x" if cell.judged else f"over {CORES:g} cores",
        cell.reached or "-",
    )


def _yes(yes: bool) -> str:
    return "yes" if yes else "no"


def _best(cells: Sequence[Cell], *, mosquitto: bool) -> str:
    rates = [one.rate for one in cells if one.optimal(one.mosquitto if mosquitto else one.tidegate)]
    return _thousand(max(rates)) if rates else "none"


def _thousand(rate: float) -> str:
    return f"{rate / 1e3:.1f}".removesuffix(".0")


def lines(chains: Chains) -> Iterator[Line]:
    """For the CSV file."""
    for cell in chains.cells:
        line: Line = {"servers": cell.length, "rate": cell.rate}
        for name, outcomes in (("mosquitto", cell.mosquitto), ("tidegate", cell.tidegate)):
            side = figures.side(outcomes)
            line |= _named(f"{name}_micros", side.micros) | {f"{name}_cores": places(cores(outcomes), 3)["median"]}
            line |= {f"{name}_per_second": places(side.rate, 1)["median"], f"{name}_lost": side.lost}
            line |= {f"{name}_optimal": cell.optimal(outcomes)}
        yield (
            line
            | _named("ratio", cell.ratio)
            | {
                "seed_optimal": cell.seed,
                "judged": cell.judged,
                "goal": GOAL,
                "reached": cell.reached,
            }
        )


def _named(name: str, value: figures.Spread | None) -> Line:
    return {f"{name}_{place}".removesuffix("_median"): one for place, one in places(value, 3).items()}


def pictures(chains: Chains) -> Iterator[Picture]:
    """CPU over rate."""
    if chains.cells:
        columns = len(chains.lengths)
        yield Picture(
            name="-chain", size=(4.2 * columns, 3.8), fill=lambda axes: _fill(axes[0], chains), columns=columns
        )


def _fill(panels: Any, chains: Chains) -> None:
    for axes, length in zip(panels, chains.lengths, strict=True):
        cells = chains.of(length)
        _curve(axes, [(one.rate, one.mosquitto) for one in cells], "Mosquitto", REFERENCE)
        _curve(axes, [(one.rate, one.tidegate) for one in cells], "Tidegate", SUBJECT)
        axes.set_title(f"chain of {length}" if length > 1 else "one server", fontsize=10)
        axes.set_xlabel("published, k messages/s", fontsize=8)
        axes.set_ylabel("CPU of all servers per message, µs", fontsize=8)
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
        axes.legend(fontsize=7)


def _curve(axes: Any, points: Sequence[tuple[int, Sequence[Outcome | None]]], name: str, colour: str) -> None:
    known = [(rate / 1e3, micros) for rate, outcomes in points if (micros := figures.side(outcomes).micros) is not None]
    spreads = [micros for _, micros in known]
    axes.errorbar(
        [rate for rate, _ in known],
        [micros.median for micros in spreads],
        yerr=whiskers(spreads),
        marker="o",
        ms=4,
        lw=1,
        color=colour,
        label=name,
    )
