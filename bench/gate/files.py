"""What is kept of `bench gate` beside the report: every figure in one table, and the measurements they come from."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest

from bench.gate import memory
from bench.gate.changes import LONGEST_STALL, Phase
from bench.gate.findings import Findings
from bench.harness.figures import Spread, spread
from bench.harness.report import Line, numbers, places

GOAL = f"≤ {LONGEST_STALL * 1e3:.0f} ms"


def files(found: Findings) -> dict[str, list[Line]]:
    """Lines by what the name of their file has behind the stem."""
    return {
        "": list(_figures(found)),
        "-rounds": list(_rounds(found)),
        "-changes": list(_runs(found)),
        "-line": list(_lines(found)),
        "-levels": list(_forwarded(found)),
    }


def _figure(
    part: str, name: str, figure: str, unit: str, value: Spread | None, goal: str = "", reached: str = ""
) -> Line:
    """What, of which, in which unit, its median and spread, its goal and whether it was reached."""
    what: Line = {"part": part, "name": name, "figure": figure, "unit": unit}
    return what | places(value, 4) | {"goal": goal, "reached": reached}


def _figures(found: Findings) -> Iterator[Line]:
    for contest, name, job, side in found.sides():
        key = f"{contest}/{name}"
        yield _figure("contest", key, f"CPU per message, window {job.window}", "us", side.micros)
        yield _figure("contest", key, "rate", "1/s", side.rate)
        yield _figure("contest", key, "generator busy", "cores", side.load_busy)
    for rounds in found.contests:
        for row in rounds.rows():
            goal = str(row.work.goal or "")
            yield _figure("contest", row.work.name, "throughput ratio", "", row.throughput)
            yield _figure("contest", row.work.name, "CPU ratio", "", row.cost, goal, row.reached.value)
    for cost in found.costs:
        yield _figure("steps", cost.name, cost.group, "ns", cost.nanos)
    for runs in found.changes:
        for kind, made in (("steady", runs.steady), ("changed", runs.changed)):
            seen = [one for one in made if one is not None]
            for phase in Phase:
                parts = [one.phases[phase] for one in seen if one.phases[phase].messages]
                judged = kind == "changed" and phase is Phase.DURING
                for figure in ("stall", "p50", "p99", "slowest"):
                    value = spread(getattr(one, figure) * 1e3 for one in parts)
                    if value is None:
                        continue
                    goal, reached = (GOAL, runs.reached) if judged and figure == "stall" else ("", "")
                    yield _figure(
                        "change", f"{runs.trial.name}/{kind}/{phase.value}", figure, "ms", value, goal, reached
                    )
    for timed in found.levels.forwarded:
        for server, seconds in timed.seconds.items():
            yield _figure("forward", f"{timed.name}/{server}", "one message", "ms", _milli(seconds))
        if timed.seconds:
            p = timed.ranks.p
            yield _figure("forward", timed.name, "p", "", Spread(median=p, low=p, high=p), "< 1 ms", timed.reached)
    for timed in found.levels.connected:
        for server, seconds in timed.seconds.items():
            yield _figure("connect", f"{timed.name}/{server}", "to CONNACK", "ms", _milli(seconds))
    for server in found.memory.bytes_each:
        yield _figure("memory", server, "each connection", "bytes", found.memory.of(server))
    if found.memory.bytes_each:
        goal, reached = str(memory.SMALL), found.memory.reached
        yield _figure("memory", memory.WITH, "added", "bytes", found.memory.added, goal, reached)
    for added in found.levels.added:
        value = Spread(median=added.bytes, low=added.bytes, high=added.bytes)
        yield _figure("bytes", f"{added.packet}/{added.form}", "added", "bytes", value)


def _milli(seconds: list[float]) -> Spread | None:
    return spread(one * 1e3 for one in seconds)


def _rounds(found: Findings) -> Iterator[Line]:
    for rounds in found.contests:
        for name, outcomes in rounds.outcomes.items():
            for number, outcome in enumerate(outcomes, 1):
                if outcome is not None:
                    yield {"work": rounds.contest.name, "round": number, "server": name, **numbers(outcome)}


def _runs(found: Findings) -> Iterator[Line]:
    for runs in found.changes:
        for kind, made in (("steady", runs.steady), ("changed", runs.changed)):
            for number, one in enumerate(made, 1):
                if one is None:
                    continue
                for phase, seen in one.phases.items():
                    if seen.messages:
                        where = {"trial": runs.trial.name, "round": number, "run": kind, "phase": phase.value}
                        times = ("stall", "p50", "p99", "slowest")
                        yield where | {
                            "messages": seen.messages,
                            **{f"{name}_ms": round(getattr(seen, name) * 1e3, 3) for name in times},
                            "in_force_after_s": " ".join(f"{change.seconds:.3f}" for change in one.changes),
                            "delay_at_first_ms": round(one.delay[0] * 1e3, 1),
                            "delay_at_end_ms": round(one.delay[1] * 1e3, 1),
                            "micros": round(one.outcome.micros, 3),
                            "generator_busy": round(one.outcome.load_busy, 3),
                        }


def _lines(found: Findings) -> Iterator[Line]:
    """Latency over time, of the last round of each."""
    for runs in found.changes:
        for kind, made in (("steady", runs.steady), ("changed", runs.changed)):
            one = next((run for run in reversed(made) if run is not None), None)
            for seconds, p50, slowest in one.line if one is not None else ():
                yield {
                    "trial": runs.trial.name,
                    "run": kind,
                    "seconds": round(seconds, 3),
                    "p50_ms": round(p50 * 1e3, 3),
                    "slowest_ms": round(slowest * 1e3, 3),
                }


def _forwarded(found: Findings) -> Iterator[Line]:
    """Every run, in milliseconds."""
    for kind, several in (("forward", found.levels.forwarded), ("connect", found.levels.connected)):
        for timed in several:
            for number, values in enumerate(zip_longest(*timed.seconds.values()), 1):
                shown = (None if one is None else round(one * 1e3, 4) for one in values)
                yield {"kind": kind, "case": timed.name, "run": number, **dict(zip(timed.seconds, shown, strict=True))}
