"""The pictures of `bench scopes`: those of the seed (throughput over rate), and what five scopes cost beside one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from bench.harness.plot import MARK, REFERENCE, SUBJECT, Picture, bars, whiskers
from bench.scopes.chain import COMPARABLE, HSUP, MULTI, Configuration, counted
from bench.scopes.contest import GOAL, Compared, cost
from bench.scopes.works import Findings

FIGURES: tuple[Sequence[Configuration], ...] = (COMPARABLE, (HSUP,), (MULTI,))
"""The rows of the picture; the columns are the lengths of the chain."""
LOOKS = {"ORI": ("o", REFERENCE), "NEW": ("s", SUBJECT), "SEM": ("^", "#2e8b57"), "CEM": ("v", MARK)}


def pictures(found: Findings) -> Iterator[Picture]:
    """Of what was measured."""
    if found.rates.cells:
        columns = len(found.rates.lengths)
        size = (4.2 * columns, 3.4 * len(FIGURES))
        yield Picture(size=size, fill=lambda axes: _rates(axes, found), rows=len(FIGURES), columns=columns)
    sides = [("without sockets", found.indoors), ("saturated, over sockets", found.saturated.compared())]
    if shown := [(title, compared) for title, compared in sides if compared]:
        size = (11, 2.2 + 0.5 * max(len(compared) for _, compared in shown))
        yield Picture(name="-costs", size=size, fill=lambda axes: _costs(axes[0], shown), columns=len(shown))


def _rates(panels: Any, found: Findings) -> None:
    for row, configurations in zip(panels, FIGURES, strict=True):
        for axes, scopes in zip(row, found.rates.lengths, strict=True):
            for one in configurations:
                _line(axes, found, one, scopes)
            cells = found.rates.of(configurations[0], scopes)
            rates = [cell.rate / 1e3 for cell in cells]
            axes.plot(rates, [cell.calculated / 1e3 for cell in cells], "--", color="black", lw=0.9, label="CMT")
            axes.set_title(counted(scopes), fontsize=10)
            axes.set_xlabel("published, k messages/s", fontsize=8)
            axes.set_ylabel("arrived, k messages/s", fontsize=8)
            axes.set_ylim(bottom=0)
            axes.grid(alpha=0.3)
            axes.legend(fontsize=7)


def _line(axes: Any, found: Findings, configuration: Configuration, scopes: int) -> None:
    points = [(cell.rate / 1e3, cell.arrived) for cell in found.rates.of(configuration, scopes)]
    known = [(rate, arrived) for rate, arrived in points if arrived is not None]
    marker, colour = LOOKS.get(configuration.name, ("o", SUBJECT))
    middle = [arrived.median / 1e3 for _, arrived in known]
    error = whiskers([arrived for _, arrived in known], 1e-3)
    rates = [rate for rate, _ in known]
    axes.errorbar(rates, middle, yerr=error, marker=marker, ms=4, lw=1, color=colour, label=configuration.name)


def _costs(panels: Any, shown: Sequence[tuple[str, Sequence[Compared]]]) -> None:
    for axes, (title, compared) in zip(panels, shown, strict=True):
        bars(
            axes,
            [
                f"{one.contest.name}, QoS {one.qos}: {one.ratio.median:.2f} times" if one.ratio else one.contest.name
                for one in compared
            ],
            ("one scope", REFERENCE, [cost(one.one) for one in compared]),
            ("five scopes", SUBJECT, [cost(one.several) for one in compared]),
            label=f"CPU per message, µs (goal: {GOAL:g} times at most)",
        )
        axes.set_title(title, fontsize=10)
