"""The pictures of `bench pipeline`: rates and stages, growth, time to a record, and acknowledgements.

matplotlib takes a second to import and is an extra (`tidegate[bench]`), so it is imported when drawing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.pipeline import growth, journal, latency, throughput
from bench.pipeline.sections import Section
from bench.plot import MARK, REFERENCE, SUBJECT

Series = Mapping[str, Sequence[float]]


def draw(found: Sequence[Section], folder: Path, stem: str) -> list[Path]:
    """Draws what was measured; raises ImportError without matplotlib."""
    drawn: dict[str, tuple[int, Callable[[Any, Series], None]]] = {
        throughput.NAME: (2, _throughput),
        growth.NAME: (2, _growth),
        latency.NAME: (1, _latency),
        journal.NAME: (3, _journal),
    }
    made = []
    for section in found:
        if section.series:
            panels, fill = drawn[section.name]
            made.append(_drawn(folder / f"{stem}-{section.name}.png", panels, section.series, fill))
    return made


def _drawn(file: Path, panels: int, series: Series, fill: Callable[[Any, Series], None]) -> Path:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    canvas = Canvas(figsize=(2 + 3.6 * panels, 3.8))
    FigureCanvasAgg(canvas)
    axes = canvas.subplots(1, panels, squeeze=False)[0]
    fill(axes, series)
    for one in axes:
        one.grid(axis="y", alpha=0.3)
    canvas.tight_layout()
    canvas.savefig(file, dpi=110)
    return file


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
