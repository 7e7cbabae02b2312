"""The pictures of `bench gate`: cost and ratios, latency over time around changes, and the 500 runs as boxes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from bench.gate.changes import LONGEST_STALL, Run, Runs
from bench.gate.findings import Findings
from bench.gate.levels import CONTROL, MOSQUITTO, WITH, WITHOUT, Timed
from bench.harness.figures import Spread, side
from bench.harness.plot import MARK, REFERENCE, SUBJECT, Picture, bars

SERVERS = (MOSQUITTO, WITHOUT, CONTROL, WITH)


def pictures(found: Findings) -> Iterator[Picture]:
    """Of what was measured."""
    if found.contests:
        count = sum(len(one.contest.contenders) for one in found.contests)
        yield Picture(size=(11, 2.0 + 0.45 * count), fill=lambda axes: _contests(axes, found), columns=2)
    if rows := len(found.changes):
        size = (12, 1.0 + 2.8 * rows)
        yield Picture(name="-changes", size=size, fill=lambda axes: _changes(axes, found), rows=rows, columns=2)
    if any(one.seconds for one in found.levels.forwarded):
        yield Picture(name="-levels", size=(12, 5.0), fill=lambda axes: _levels(axes, found), columns=2)


def _contests(panels: Any, found: Findings) -> None:
    labels: list[str] = []
    colours: list[str] = []
    costs: list[Spread | None] = []
    ratios: list[Spread | None] = []
    for rounds in found.contests:
        rows = rounds.rows()
        for number, one in enumerate(rounds.contest.contenders):
            row = rows[number - 1] if number else None
            labels.append(f"{rounds.contest.name}: {one.name}")
            colours.append(SUBJECT if row else REFERENCE)
            costs.append(side(rounds.outcomes[one.name]).micros)
            ratios.append(row.cost if row else None)
            if row and row.work.goal is not None and row.work.goal.ratio is not None:
                place = len(labels) - 1
                panels[0][1].plot([row.work.goal.ratio] * 2, [place - 0.4, place + 0.4], color=MARK, lw=2)
    bars(panels[0][0], labels, ("", colours, costs), label="CPU of the server per message, µs")
    words = "times less CPU than the first of each work (red: goal)"
    bars(panels[0][1], labels, ("", SUBJECT, ratios), label=words)
    panels[0][1].axvline(1.0, color="black", lw=0.8)
    panels[0][1].set_yticks([])


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
