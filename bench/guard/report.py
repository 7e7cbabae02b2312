"""The report of `bench guard`: what the monitors add in each scenario, saturation, and memory, beside the goals."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from bench.guard.deployment import FORWARDING, RECEIVING, Monitors
from bench.guard.load import Timed
from bench.guard.scenarios import QOS, SCENARIOS, SEED, USERS
from bench.guard.works import JOBS, Findings, judgement
from bench.harness import figures
from bench.harness.figures import Spread, spread
from bench.harness.plot import REFERENCE, SUBJECT, Picture, bars
from bench.harness.report import Line, Report, Table, numbers, places, show, who_was_busy
from bench.load.job import PAYLOAD

PACKETS = {0: 1, 2: 4}
"""Control packets of a message in one direction, as the experiments count them."""


def report(found: Findings) -> Report:
    plan = found.plan
    lines = list(_lines(found))
    return Report(
        title="Guard: what it adds in front of Mosquitto",
        machine=found.machine,
        header=[
            f"{PAYLOAD}-byte payloads, MQTT 3.1.1; {plan.rounds} round(s) of {plan.duration:g} s. Scenarios: two "
            "Mosquittos with a bridge, their guards and the bridge on one core, the clients on the other; each "
            f"publisher sends one message a second to one subscriber in the other environment; {USERS} users with one "
            f"to four clients, {FORWARDING} policies for forwarding and {RECEIVING} for receiving in each environment, "
            "one preference for each user. The first message of each publisher, for which guards compile decisions, is "
            "not measured. Saturated and idle: one guard on a core of its own.",
            "The experiments of *sharing* (sections 6.1 and 6.2) ran on Raspberry Pis and desktops and judge latency; "
            "their figures are pictures, of which the text tells the bounds in the last column.",
        ],
        notes=_notes(found),
        tables=[_goals(found), _scenarios(found), _packets(found), _saturated(found)],
        closing=["## Who was busy", "", *who_was_busy(_busy(found), _disturbance(found))] if found.saturated else [],
        files={"": lines, "-saturated": list(_saturated_lines(found))},
        summary={"goals": [_goal_line(*row) for row in found.judged], "scenarios": lines},
        pictures=list(_pictures(found)),
        failures=found.failures,
        missed=found.missed,
    )


def _notes(found: Findings) -> list[str]:
    notes = []
    for (monitors, scenario, qos), rounds in found.timed.items():
        lost = sum(one.sent - one.received for one in rounds if one)
        if lost:
            notes.append(f"**{scenario}, QoS {qos}, {monitors.value}: {lost} messages did not arrive.**")
    average = found.machine["load_average_at_start"]
    return [*notes, f"Load average when it began: {average}; when it ended: {os.getloadavg()[0]:.2f}."]


def _disturbance(found: Findings) -> float:
    sides = [figures.side(outcomes) for outcomes in found.saturated.values()]
    return max((side.foreign.median for side in sides if side.foreign), default=0.0)


def _scaled(value: Spread | None, unit: str) -> str:
    return show(value, 2, 1e3 if unit == "ms" else 1.0)


def _goals(found: Findings) -> Table:
    return Table(
        title="",
        columns=("what", "value", "goal", "reached"),
        lines=[
            (
                name,
                f"{_scaled(value, unit)} {unit}",
                f"≤ {goal * (1e3 if unit == 'ms' else 1):g} {unit}",
                judgement(value, goal),
            )
            for name, value, goal, unit in found.judged
        ],
    )


def _goal_line(name: str, value: Spread | None, goal: float, unit: str) -> Line:
    return {"what": name, **places(value, 6), "goal": goal, "unit": "s" if unit == "ms" else unit}


def _of(rounds: list[Timed | None], name: str) -> Spread | None:
    return spread(getattr(one, name) for one in rounds if one)


def _scenarios(found: Findings) -> Table:
    """Figures 4 and 6."""
    lines = []
    for scenario in SCENARIOS:
        for qos in QOS:
            bare = found.timed.get((Monitors.NONE, scenario.name, qos))
            if bare is None:
                continue
            cells = [f"{show(_of(bare, 'p50'), 2, 1e3)} / {show(_of(bare, 'p99'), 2, 1e3)}"]
            for monitors in list(Monitors)[1:]:
                rounds = found.timed.get((monitors, scenario.name, qos), [])
                added = found.added(monitors, scenario.name, qos, "p50")
                cells += [
                    f"{show(_of(rounds, 'p50'), 2, 1e3)} / {show(_of(rounds, 'p99'), 2, 1e3)}",
                    show(added, 2, 1e3),
                ]
            bounds = [SEED[of, qos] for of in ("bridging", "all")]
            told = ", ".join(f"{bound.figure}: < {bound.added:g}" for bound in bounds)
            lines.append((scenario.name, str(qos), *cells, told))
    head = [words for one in list(Monitors)[1:] for words in (one.value, "added")]
    return Table(
        title="Transmission time: median / p99, ms",
        columns=("scenario", "QoS", Monitors.NONE.value, *head, "sharing added, figure"),
        lines=lines,
        after="`added` is the difference of the medians of one round.",
    )


def _packets(found: Findings) -> Table:
    """Figures 5 and 7."""
    lines = []
    for (monitors, scenario, qos), rounds in found.timed.items():
        done = [one for one in rounds if one and one.cpu]
        if not done:
            continue
        guards = 1 if monitors is Monitors.BRIDGING else 3
        packets = [one.received * PACKETS[qos] * guards for one in done]
        handled = spread(count / one.seconds for count, one in zip(packets, done, strict=True))
        analysis = spread(sum(one.cpu.values()) / count for count, one in zip(packets, done, strict=True) if count)
        lines.append((scenario, str(qos), monitors.value, show(handled, 0), show(analysis, 0, 1e6)))
    return Table(
        title="Control packets that the guards handle each second, and CPU per packet, µs",
        columns=("scenario", "QoS", "guards", "packets/s", "CPU per packet"),
        lines=lines,
        words="CPU of the whole process, timers and pings of idle connections included: at these rates a guard is idle "
        "almost all the time, and pays the way in and out of the kernel for each packet alone.",
    )


def _saturated(found: Findings) -> Table:
    lines = []
    for title, outcomes in found.saturated.items():
        side = figures.side(outcomes)
        lines.append((title, f"{show(side.rate, 1, 1e-3)} k/s", f"{show(side.micros)} µs"))
    return Table(
        title="Saturated: a guard in front of Mosquitto, both passes and the envelope included",
        columns=("load", "delivered", "CPU of the guard per message"),
        lines=lines,
    )


def _busy(found: Findings) -> Iterator[tuple[str, str, Any, figures.Side]]:
    for title, outcomes in found.saturated.items():
        yield title, "guard", JOBS[title], figures.side(outcomes)


def _lines(found: Findings) -> Iterator[Line]:
    for (monitors, scenario, qos), rounds in found.timed.items():
        for number, one in enumerate(rounds, 1):
            if one is not None:
                yield {
                    "scenario": scenario,
                    "qos": qos,
                    "monitors": monitors.value,
                    "round": number,
                    "sent": one.sent,
                    "received": one.received,
                    "p50_ms": round(one.p50 * 1e3, 3),
                    "p99_ms": round(one.p99 * 1e3, 3),
                    "slowest_ms": round(one.slowest * 1e3, 3),
                    "guards_cpu_s": round(sum(one.cpu.values()), 4),
                    "seconds": round(one.seconds, 3),
                }


def _saturated_lines(found: Findings) -> Iterator[Line]:
    for title, outcomes in found.saturated.items():
        for number, outcome in enumerate(outcomes, 1):
            if outcome is not None:
                yield {"load": title, "round": number, **numbers(outcome)}
    for number, outcome in enumerate(found.idle, 1):
        yield {"load": "idle", "round": number, **numbers(outcome)}


def _pictures(found: Findings) -> Iterator[Picture]:
    names = [scenario.name for scenario in SCENARIOS if (Monitors.NONE, scenario.name, 0) in found.timed]
    if not names:
        return

    def fill(panels: Any) -> None:
        for axes, qos in zip(panels[0], QOS, strict=True):
            groups = [
                (
                    monitors.value,
                    REFERENCE if monitors is Monitors.NONE else SUBJECT,
                    [_of(found.timed.get((monitors, name, qos), []), "p50") for name in names],
                )
                for monitors in Monitors
            ]
            bars(axes, names, *groups, across=False, scale=1e3, label=f"QoS {qos}: median transmission time, ms")

    yield Picture(size=(13, 4.2), fill=fill, columns=2)
