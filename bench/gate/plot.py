"""The pictures of `bench gate`: cost and ratios, latency over time around changes, and the 500 runs as boxes.

matplotlib takes a second to import and is an extra (`tidegate[bench]`), so it is imported when drawing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench.figures import Side, Spread, side
from bench.gate.changes import LONGEST_STALL, Run, Runs
from bench.gate.findings import Findings
from bench.gate.forwarding import CONTROL, MOSQUITTO, WITH, WITHOUT, Timed
from bench.plot import MARK, REFERENCE, SUBJECT

SERVERS = (MOSQUITTO, WITHOUT, CONTROL, WITH)


def draw(found: Findings, folder: Path, stem: str) -> list[Path]:
    """Draws what was measured; raises ImportError without matplotlib."""
    made = []
    if found.contests:
        made.append(_drawn(folder / f"{stem}.png", (11, 2.0 + 0.45 * _bars(found)), 1, 2, _contests, found))
    if found.changes:
        size = (12, 1.0 + 2.8 * len(found.changes))
        made.append(_drawn(folder / f"{stem}-changes.png", size, len(found.changes), 2, _changes, found))
    if any(one.seconds for one in found.levels.forwarded):
        made.append(_drawn(folder / f"{stem}-levels.png", (12, 5.0), 1, 2, _levels, found))
    return made


def _drawn(
    file: Path,
    size: tuple[float, float],
    rows: int,
    columns: int,
    fill: Callable[[Any, Findings], None],
    found: Findings,
) -> Path:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    canvas = Canvas(figsize=size)
    FigureCanvasAgg(canvas)
    fill(canvas.subplots(rows, columns, squeeze=False), found)
    canvas.tight_layout()
    file.parent.mkdir(parents=True, exist_ok=True)
    canvas.savefig(file, dpi=110)
    return file


# -- over sockets ----------------------------------------------------------------------------------------------------


def _bars(found: Findings) -> int:
    return sum(len(one.contest.contenders) for one in found.contests)


def _error(spreads: Sequence[Spread]) -> list[list[float]]:
    return [[one.median - one.low for one in spreads], [one.high - one.median for one in spreads]]


def _contests(panels: Any, found: Findings) -> None:
    labels: list[str] = []
    shown: list[tuple[Side, str]] = []
    for rounds in found.contests:
        for one in rounds.contest.contenders:
            labels.append(f"{rounds.contest.name}: {one.name}")
            colour = REFERENCE if one is rounds.contest.reference else SUBJECT
            shown.append((side(rounds.outcomes[one.name]), colour))
    costs, ratios = panels[0]
    places = [place for place, (one, _) in enumerate(shown) if one.micros is not None]
    spreads = [one.micros for one, _ in shown if one.micros is not None]
    costs.barh(
        places,
        [one.median for one in spreads],
        xerr=_error(spreads),
        color=[shown[place][1] for place in places],
        error_kw={"lw": 0.8},
    )
    costs.set_yticks(range(len(labels)), labels, fontsize=8)
    costs.set_xlabel("CPU of the server per message, µs")
    place = 0
    for rounds in found.contests:
        place += 1  # the reference
        for row in rounds.rows():
            if row.cost is not None:
                ratios.barh(place, row.cost.median, xerr=_error([row.cost]), color=SUBJECT, error_kw={"lw": 0.8})
            if row.work.goal is not None and row.work.goal.ratio is not None:
                ratios.plot([row.work.goal.ratio] * 2, [place - 0.4, place + 0.4], color=MARK, lw=2)
            place += 1
    ratios.axvline(1.0, color="black", lw=0.8)
    ratios.set_yticks([])
    ratios.set_xlabel("times less CPU than the first of each work (red: goal)")
    for axes in (costs, ratios):
        axes.set_ylim(len(labels) - 0.4, -0.6)
        axes.grid(axis="x", alpha=0.3)


# -- changes ---------------------------------------------------------------------------------------------------------


def _changes(panels: Any, found: Findings) -> None:
    for row, runs in zip(panels, found.changes, strict=True):
        for axes, kind, made in zip(row, ("no change", "changes"), (runs.steady, runs.changed), strict=True):
            run = next((one for one in reversed(made) if one is not None), None)
            _line(axes, runs, kind, run)
        low = min(axes.get_ylim()[0] for axes in row)
        high = max(axes.get_ylim()[1] for axes in row)
        for axes in row:
            axes.set_ylim(low, high)


def _line(axes: Any, runs: Runs, kind: str, run: Run | None) -> None:
    axes.set_title(f"{runs.trial.title}: {kind}", fontsize=9)
    axes.set_xlabel("seconds")
    axes.set_ylabel("latency, ms")
    axes.set_yscale("log")
    if run is None:
        return
    seconds = [at for at, _, _ in run.line]
    axes.plot(seconds, [slowest * 1e3 for _, _, slowest in run.line], color=SUBJECT, lw=0.8, label="slowest in 50 ms")
    axes.plot(seconds, [p50 * 1e3 for _, p50, _ in run.line], color=REFERENCE, lw=0.8, label="median")
    axes.axhline(LONGEST_STALL * 1e3, color="black", lw=0.6, ls=":")
    for number, change in enumerate(run.changes):
        asked, in_force = ((at - run.begin) / 1e9 for at in (change.asked, change.in_force))
        axes.axvspan(asked, in_force, color=MARK, alpha=0.12, label=None if number else "asked for until in force")
        axes.axvline(in_force, color=MARK, lw=1)
    axes.grid(alpha=0.3)
    if run.changes:
        axes.legend(fontsize=7, loc="upper left", framealpha=0.6)


# -- levels ----------------------------------------------------------------------------------------------------------


def _levels(panels: Any, found: Findings) -> None:
    forward, connect = panels[0]
    _boxes(forward, [one for one in found.levels.forwarded if one.seconds], 1e6)
    forward.set_ylabel("one message, µs")
    _boxes(connect, [one for one in found.levels.connected if one.seconds], 1e3)
    connect.set_ylabel("time to connect, ms")


def _boxes(axes: Any, several: Sequence[Timed], scale: float) -> None:
    values, labels = [], []
    for one in several:
        for name in SERVERS:
            if name in one.seconds:
                values.append([second * scale for second in one.seconds[name]])
                labels.append(f"{one.name}\n{name}")
    if values:
        axes.boxplot(values, showfliers=False, widths=0.6, medianprops={"color": MARK})
        axes.set_xticks(range(1, len(labels) + 1), labels, fontsize=6, rotation=60)
    axes.set_yscale("log")
    axes.grid(axis="y", alpha=0.3)
