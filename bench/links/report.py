"""The report of `bench links`: what two nodes cost beside one, what each side uses, chains, and who was busy."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from bench.harness import figures
from bench.harness.figures import Spread, spread
from bench.harness.plot import REFERENCE, SUBJECT, Picture, bars
from bench.harness.report import Line, Report, Table, not_quiet, numbers, places, show, who_was_busy
from bench.links import chain_report, in_process
from bench.links.nodes import SUBSCRIBERS, Formation
from bench.links.works import ALL, JOBS, LOADS, PARTS, WAITED, Compared, Findings, named
from bench.load.job import PAYLOAD, Outcome

JUDGEMENT = (
    "CPU per delivered message is that of all servers together. What is judged is the median of the values of single "
    "rounds, with the lowest and highest; less is better. A hop is what two nodes use more than one for a message that "
    "crosses: what the near node does to send it and the far node to receive it, TLS of both included. The goal is "
    "2 µs on each side, 4 µs together."
)


def report(found: Findings) -> Report:
    plan = found.plan
    lines = [_line(one) for one in found.compared]
    return Report(
        title="Links: two nodes beside one",
        machine=found.machine,
        header=[
            f"{PAYLOAD}-byte payloads, MQTT 3.1.1, {SUBSCRIBERS} topics with one subscriber each, some of them at the "
            f"far node; mutual TLS on loopback between the nodes; {plan.rounds} round(s) of {plan.duration:g} s, all "
            "servers on one core, load on another. Saturated: window of 5000 messages outstanding.",
            JUDGEMENT,
        ],
        notes=_notes(found),
        tables=[_contests(found), _sides(found), _indoors(found), *chain_report.tables(found.chains)],
        closing=["## Who was busy", "", *who_was_busy(_busy(found), found.disturbance)] if found.outcomes else [],
        files={
            "": lines,
            "-rounds": list(_rounds(found)),
            "-indoors": list(_indoor_lines(found)),
            "-chain": list(chain_report.lines(found.chains)),
        },
        summary={
            "loads": lines,
            "indoors": list(_indoor_lines(found)),
            "chain": list(chain_report.lines(found.chains)),
        },
        pictures=[*_pictures(found), *chain_report.pictures(found.chains)],
        failures=found.failures,
        missed=found.missed,
    )


def _notes(found: Findings) -> list[str]:
    notes = not_quiet(found.disturbance, "Throughput and latency mean little then; CPU per message says more.")
    for formation, load, outcomes in _measured(found):
        if lost := figures.side(outcomes).lost:
            notes.append(
                f"**{load}, {named(formation)}: {lost} messages did not arrive**, so its figures prove nothing."
            )
    average = found.machine["load_average_at_start"]
    return [*notes, f"Load average when it began: {average}; when it ended: {os.getloadavg()[0]:.2f}."]


def _contests(found: Findings) -> Table:
    def cell(one: Compared, outcomes: Sequence[Outcome | None]) -> str:
        values = figures.side(outcomes)
        return f"{show(values.p50, 3, 1e3)} ms" if one.contest.load in WAITED else f"{show(values.micros)} µs"

    return Table(
        title="",
        columns=("load", "what", "reference", "two nodes", "judged", "goal", "reached"),
        lines=[
            (
                one.contest.load,
                one.contest.title,
                cell(one, one.reference),
                cell(one, one.linked),
                f"{show(one.value)} {one.contest.unit}",
                f"≤ {one.contest.goal:g} {one.contest.unit}" if one.contest.goal else "-",
                one.reached or "-",
            )
            for one in found.compared
        ],
        after="\n".join(f"- `{name}`: {PARTS[name]}" for name in found.parts),
    )


def _indoors(found: Findings) -> Table:
    """Without sockets."""
    return Table(
        title="Without sockets and TLS: CPU of each side per message, µs",
        columns=("servers", "near", "far", "both"),
        lines=[(named(one.formation), show(one.near), show(one.far), show(one.both)) for one in found.indoors],
        words="What comes in goes out as bytes, in one process: reads of "
        f"{in_process.BATCH} messages of one publisher, {in_process.TURN} of them in each turn of the loop.",
    )


def _indoor_lines(found: Findings) -> Iterator[Line]:
    for one in found.indoors:
        line: Line = {"servers": named(one.formation)}
        for name, value in (("near_micros", one.near), ("far_micros", one.far), ("both_micros", one.both)):
            line |= _prefixed(name, value)
        yield line


def near_micros(outcome: Outcome) -> float:
    """CPU of the near server per delivered message."""
    return outcome.micros - far_micros(outcome)


def far_micros(outcome: Outcome) -> float:
    return outcome.linked_cpu / outcome.messages * 1e6 if outcome.messages else 0.0


def _per_side(outcomes: Sequence[Outcome | None]) -> tuple[Spread | None, Spread | None]:
    done = [one for one in outcomes if one is not None and one.messages]
    return spread(map(near_micros, done)), spread(value for value in map(far_micros, done) if value)


def _measured(found: Findings) -> Iterator[tuple[Formation, str, Sequence[Outcome | None]]]:
    """By load."""
    for load in found.parts:
        for formation in LOADS:
            if (formation, load) in found.outcomes:
                yield formation, load, found.outcomes[formation, load]


def _sides(found: Findings) -> Table:
    lines = []
    for formation, load, outcomes in _measured(found):
        near, far = _per_side(outcomes)
        rate = figures.side(outcomes).rate
        lines.append((load, named(formation), f"{show(rate, 1, 1e-3)} k/s", show(near), show(far)))
    return Table(
        title="CPU of each side per delivered message, µs",
        columns=("load", "servers", "delivered", "near", "far"),
        lines=lines,
    )


def _busy(found: Findings) -> Iterator[tuple[str, str, Any, figures.Side]]:
    for formation, load, outcomes in _measured(found):
        yield load, named(formation), JOBS[load], figures.side(outcomes)


def _line(one: Compared) -> Line:
    line: Line = {"load": one.contest.load, "what": one.contest.title, "window": JOBS[one.contest.load].window}
    line |= _prefixed("reference_micros", figures.side(one.reference).micros)
    near, far = _per_side(one.linked)
    for name, value in (("linked_micros", figures.side(one.linked).micros), ("near_micros", near), ("far_micros", far)):
        line |= _prefixed(name, value)
    line |= _prefixed("judged", one.value)
    return line | {"unit": one.contest.unit, "goal": one.contest.goal, "reached": one.reached}


def _prefixed(name: str, value: Spread | None) -> Line:
    return {f"{name}_{place}".removesuffix("_median"): one for place, one in places(value, 4).items()}


def _rounds(found: Findings) -> Iterator[Line]:
    for formation, load, outcomes in _measured(found):
        for number, outcome in enumerate(outcomes, 1):
            if outcome is not None:
                line: Line = {"load": load, "servers": named(formation), "round": number, **numbers(outcome)}
                yield line | {
                    "near_micros": round(near_micros(outcome), 3),
                    "far_micros": round(far_micros(outcome), 3),
                }


def _pictures(found: Findings) -> Iterator[Picture]:
    """None if nothing of it was measured."""
    shown = [one for one in _measured(found) if one[1] not in WAITED]
    waited = [one for one in _measured(found) if one[1] in WAITED]
    heights = [max(1.0, 0.5 * len(each) + 0.8) for each in (shown, waited) if each]

    def fill(panels: Any) -> None:
        rows = iter(panels[:, 0])
        if shown:
            sides = [_per_side(outcomes) for _, _, outcomes in shown]
            bars(
                next(rows),
                [f"{load}: {named(formation)}" for formation, load, _ in shown],
                ("near", REFERENCE, [near for near, _ in sides]),
                ("far", SUBJECT, [far for _, far in sides]),
                label="CPU per delivered message, µs (whiskers: lowest and highest round)",
            )
        if waited:
            bars(
                next(rows),
                [f"{load}: {named(formation)}" for formation, load, _ in waited],
                ("", [SUBJECT if one is ALL else REFERENCE for one, _, _ in waited], _medians(waited)),
                scale=1e3,
                label="median latency, ms",
            )

    if heights:
        yield Picture(size=(11, sum(heights) + 0.8), fill=fill, rows=len(heights), heights=heights)


def _medians(waited: Sequence[tuple[Formation, str, Sequence[Outcome | None]]]) -> list[Spread | None]:
    return [figures.side(outcomes).p50 for _, _, outcomes in waited]
