"""The pictures of `bench pipeline`: rates and stages, growth, time to a record, and acknowledgements."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from bench.harness.plot import MARK, REFERENCE, SUBJECT, Picture
from bench.pipeline import growth, journal, latency, throughput
from bench.pipeline.sections import Section

Series = Mapping[str, Sequence[float]]


def pictures(found: Sequence[Section]) -> list[Picture]:
    """Of what was measured."""
    fills: dict[str, tuple[int, Callable[[Any, Series], None]]] = {
        throughput.NAME: (2, _throughput),
        growth.NAME: (2, _growth),
        latency.NAME: (1, _latency),
        journal.NAME: (3, _journal),
    }
    return [
        Picture(
            name=f"-{section.name}",
            size=(2 + 3.6 * fills[section.name][0], 3.8),
            fill=partial(_filled, section.series, fills[section.name][1]),
            columns=fills[section.name][0],
        )
        for section in found
        if section.series
    ]


def _filled(series: Series, fill: Callable[[Any, Series], None], panels: Any) -> None:
    fill(panels[0], series)
    for axes in panels[0]:
        axes.grid(axis="y", alpha=0.3)


def _throughput(panels: Any, series: Series) -> None:
    rates, costs = panels
    rounds = [
        (f"{name.removeprefix('rate/')}\nround {number}", rate, SUBJECT)
        for name, found in series.items()
        if name.startswith("rate/")
        for number, rate in enumerate(found, 1)
    ]
    rounds += [("with\npublishing", rate, REFERENCE) for rate in series.get("published", ())]
    names, heights, colours = zip(*rounds, strict=True) if rounds else ((), (), ())
    rates.bar(range(len(names)), heights, width=0.6, color=colours)
    rates.set_xticks(range(len(names)), names, fontsize=7)
    rates.axhline(throughput.ENOUGH, color=MARK, lw=1)
    rates.set_ylabel("records a second, two cores (red: goal)")
    stages = {name.removeprefix("stage/"): each[0] for name, each in series.items() if name.startswith("stage/")}
    costs.barh(range(len(stages)), list(stages.values()), height=0.6, color=SUBJECT)
    costs.set_yticks(range(len(stages)), list(stages), fontsize=8)
    costs.invert_yaxis()
    costs.axvline(1e6 / throughput.ENOUGH, color=MARK, lw=1)
    costs.set_xlabel("µs of a record (red: all of them together, at the goal)")


def _growth(panels: Any, series: Series) -> None:
    line, tenths = panels
    millions = [count / 1e6 for count in series["messages"]]
    line.plot(millions, series["seconds"], ".", ms=4, color=SUBJECT)
    line.plot([millions[0], millions[-1]], [series["seconds"][0], series["seconds"][-1]], color=REFERENCE, lw=1)
    line.set_xlabel("records, millions")
    line.set_ylabel("seconds")
    tenths.bar(range(1, len(series["tenths"]) + 1), series["tenths"], width=0.6, color=SUBJECT)
    tenths.set_xlabel("tenth of the way")
    tenths.set_ylabel("seconds for a million records")


def _latency(panels: Any, series: Series) -> None:
    (axes,) = panels
    for number, (what, times) in enumerate(series.items()):
        colour, style = (REFERENCE, SUBJECT)[number % 2], ("-", "--")[number // 2 % 2]
        axes.plot(times, range(len(times)), color=colour, ls=style, label=what)
    axes.axvline(latency.SOON, color=MARK, lw=1)
    axes.axhline(95, color=MARK, lw=0.5, ls=":")
    axes.set_xlim(left=0)
    axes.set_xlabel("seconds from publish to arrival (red: goal at 95 %)")
    axes.set_ylabel("% of the records")
    axes.legend(fontsize=8)


def _journal(panels: Any, series: Series) -> None:
    words = ("p50 of PUBACK, ms", "p99 of PUBACK, ms", "CPU of the node, µs a message")
    rates = list(dict.fromkeys(name.rpartition("/")[2] for name in series))
    for place, (axes, label, scale) in enumerate(zip(panels, words, (1e3, 1e3, 1.0), strict=True)):
        for shift, (way, colour) in enumerate(zip(journal.WAYS, (SUBJECT, REFERENCE), strict=True)):
            heights = [series[f"{way}/{rate}"][place] * scale for rate in rates]
            axes.bar([at + 0.35 * shift for at in range(len(rates))], heights, width=0.35, color=colour, label=way)
        axes.set_xticks([at + 0.17 for at in range(len(rates))], [f"{int(rate):,}/s" for rate in rates], fontsize=8)
        axes.set_ylabel(label)
    panels[0].legend(fontsize=8)
