"""The report of `bench keys`: its tables, and the lines of its files."""

from __future__ import annotations

import math
from collections.abc import Iterator

from bench.harness.figures import Spread
from bench.harness.report import BUSY, QUIET, Line, Report, Table, not_quiet, places, show
from bench.keys import busy_api, weather
from bench.keys.busy_api import Where
from bench.keys.direct import SEED_MILLIS, Cell
from bench.keys.plot import pictures
from bench.keys.requests import HTTP_READERS, Way
from bench.keys.weather import Rules
from bench.keys.works import Findings

SEED_STAGES = (
    ("policies looked up", "policies looked up, once for a publisher and topic", "2.4 ms (three queries, each packet)"),
    ("one encryption", "one encryption, 175 bytes", "0.5 ms"),
    ("a key request, in the node", "a key request, as HTTP asks the node, x25519", "3.2 ms (one HTTP call)"),
)
"""What the seed tells of single stages, and which of ours stands beside it."""
SEED_MEMORY = "7.5 MB for the whole middleware, 8 % of it for AUPS"
DIFFERENCES = (
    "The seed ran on a Raspberry Pi with MongoDB and an external broker, and measured from the reception of a packet "
    "to its hand-over to that broker. Here the node is the broker, and times are those of the whole way from send() to "
    "recv(), sockets of both clients included.",
    "The seed measured for 24 hours, here it is some seconds in each round; packets of all rounds are taken together.",
    "Policies are looked up when a publisher's first message on a topic comes and after changes, not for each packet.",
)


def report(found: Findings) -> Report:
    plan = found.plan
    return Report(
        title="Keys: requests, the direct path, and the broker beside its API",
        machine=found.machine,
        header=[
            f"{plan.rounds} round(s) of {plan.duration:g} s. Node on one core, load on another, unless it says "
            "otherwise; CPU from /proc. Medians of the rounds, with the lowest and the highest.",
            f"{len(weather.SENSORS)} sensors, {weather.READERS} readers over MQTT and {HTTP_READERS} over HTTP, each "
            f"with a connection that stays open; {weather.ELSEWHERE} policies of other places beside those that count.",
        ],
        notes=verdict(found),
        tables=list(tables(found)),
        closing=["## What is different from the seed's experiment", "", *(f"- {one}" for one in DIFFERENCES)],
        files={
            "": summary(found),
            "-rounds": list(_rounds(found)),
            "-direct": list(_packets(found)),
            "-beside": list(_loads(found)),
        },
        pictures=list(pictures(found)),
        failures=found.failures,
        missed=found.missed,
    )


# -- tables ------------------------------------------------------------------------------------------------------------


def tables(found: Findings) -> Iterator[Table]:
    """All of them, in order."""
    ways = [way for way in found.asked.ways.values() if any(one.most for one in found.asked.ways.values())]
    yield Table(title="Goals", columns=("what", "goal", "found", "reached"), lines=list(found.goals()))
    yield Table(
        title="Requests for keys: as many as one core answers",
        words="mqtts and https are with TLS, on connections that stay open. Over HTTP, node and HTTP process share one "
        f"core. Held back by: the server, if its processes were busy for {BUSY:.0%} of the time or more, else the "
        "generator, else neighbours; window: they waited for each other. Each reader asks for six keys in turn; what "
        "was decided for a reader and a key is remembered until the rules change, wrapping is done each time.",
        columns=("way", "requests/s", "CPU each, µs", "of the node", "of the HTTP process", "held back by"),
        lines=list(map(_most, ways)),
    )
    yield Table(
        title="Requests for keys: at half of that",
        words="Evenly spaced. From just before a request is sent, or from when it was due if no connection was free, "
        "to when its answer was read.",
        columns=("way", "requests/s", "p50, ms", "p99, ms", "slowest, ms", "sent late (p99), ms", "neighbours, cores"),
        lines=list(map(_half, ways)),
    )
    if found.indoors.costs:
        yield Table(
            title="Without sockets: CPU time",
            words="open, gate, protected: as in the direct path, from the bytes that come in to those that go out. A "
            "key request is decided, wrapped and audited. Memory is resident memory of a process of its own.",
            columns=("what", "µs", "a second"),
            lines=list(_costs(found)),
        )
        yield Table(title="Stages beside the seed's", columns=("what", "here", "seed"), lines=list(_stages(found)))
    yield Table(
        title="The direct path",
        words="open: without policies, the seed's system without AUPS. gate: with policies and preferences. protected: "
        "with encryption, too; with AUPS. Three nodes take turns on one core. The seed's figures are averages, and it "
        "does not tell how long its packets are.",
        columns=("packets/s", "bytes", "node", "median, ms", "p99, ms", "seed, ms", "CPU load", "CPU each, µs"),
        lines=list(map(_cell, found.direct.cells)),
    )
    yield Table(
        title="What gate and protection add at the median",
        columns=("packets/s", "bytes", "gate adds, ms", "protection adds, ms", "both add", "p99: both add", "seed"),
        lines=list(_added(found)),
    )
    yield Table(
        title="The broker beside its API",
        words=f"The API is asked for keys, told data and asked for policies on {busy_api.CLIENTS} connections, each as "
        "fast as it is answered. The generator of that load shares the core of the HTTP process if that is the other "
        "one, which takes answers away from the API. Publisher and subscriber share the core of the broker, all three "
        "times, and send a quarter of what they reach with one message on its way at a time. Messages are protected.",
        columns=("API", "messages/s", "p50, ms", "p99, ms", "p99.9, ms", "p99, times", "API answers/s", "API's CPU"),
        lines=[_beside(found, where) for where in found.beside.seen],
    )


def _most(way: Way) -> tuple[str, ...]:
    rate = way.per_second
    return (
        way.name,
        "failed" if rate is None else rate.show(0),
        show(way.cpu, 0),
        show(way.micros(0), 0),
        show(way.micros(1), 0),
        _held_back(way),
    )


def _held_back(way: Way) -> str:
    if way.per_second is None:
        return "-"
    if way.busy >= BUSY:
        return "server"
    if way.load_busy >= BUSY:
        return "generator"
    return "neighbours" if way.foreign > QUIET else "window"


def _half(way: Way) -> tuple[str, ...]:
    found = [one for one in way.half if one is not None]
    if not found:
        return (way.name, *["failed"] * 6)
    overrun = " (could not be kept)" if any(one.overrun for one in found) else ""
    middle = sorted(found, key=lambda one: one.rate)[len(found) // 2]
    return (
        way.name,
        f"{middle.rate:,.0f}{overrun}",
        show(way.p50, 2, 1e3),
        show(way.p99, 2, 1e3),
        f"{max(one.slowest for one in found) * 1e3:.2f}",
        f"{middle.late * 1e3:.3f}",
        f"{way.foreign:.2f}",
    )


def _costs(found: Findings) -> Iterator[tuple[str, ...]]:
    for one in found.indoors.costs:
        yield one.name, one.nanos.show(2, 1e-3), f"{1e9 / one.nanos.median:,.0f}" if one.nanos.median else "-"
    for keys, each in found.indoors.memory.items():
        yield f"a ring of {keys:,} keys", f"{each.median:,.0f} bytes a key", f"{each.median * keys / 1e6:.1f} MB"


def _stages(found: Findings) -> Iterator[tuple[str, ...]]:
    for what, name, seed in SEED_STAGES:
        yield what, f"{show(found.indoors.of(name), 4, 1e-6)} ms", seed
    if way := found.asked.ways.get("http"):
        yield "a key request over HTTP, median at half of the maximum", f"{show(way.p50, 2, 1e3)} ms", "3.2 ms"
    for keys, each in found.indoors.memory.items():
        yield f"memory of {keys:,} keys", f"{each.median * keys / 1e6:.1f} MB", SEED_MEMORY


def _millis(seconds: float, sign: str = "") -> str:
    return "-" if math.isnan(seconds) else f"{seconds * 1e3:{sign}.3f}"


def _cell(cell: Cell) -> tuple[str, ...]:
    seed = SEED_MILLIS.get((cell.rate, cell.rules))
    return (
        str(cell.rate),
        str(cell.size),
        cell.rules.value,
        _millis(cell.median),
        _millis(cell.p99),
        "-" if seed is None else f"{seed:g}",
        "-" if cell.busy is None else f"{cell.busy.median:.2%}",
        show(cell.cost, 0),
    )


def _added(found: Findings) -> Iterator[tuple[str, ...]]:
    for plain, whole in found.direct.pairs():
        gate = found.direct.of(plain.rate, plain.size, Rules.GATE)
        yield (
            str(plain.rate),
            str(plain.size),
            _millis(gate.median - plain.median, "+"),
            _millis(whole.median - gate.median, "+"),
            f"{_millis(whole.median - plain.median, '+')} ms",
            f"{_millis(whole.p99 - plain.p99, '+')} ms",
            "+2 ms",
        )


def _beside(found: Findings, where: Where) -> tuple[str, ...]:
    part = found.beside
    loads = [one.load for one in part.seen[where] if one is not None and one.load is not None]
    busy = sorted(load.cpu[1] / load.seconds for load in loads)
    return (
        where.value,
        show(part.of("rate", where), 0),
        show(part.of("p50", where), 3, 1e3),
        show(part.of("p99", where), 3, 1e3),
        show(part.of("p999", where), 3, 1e3),
        "-" if where is Where.ALONE else show(part.ratio(where), 2),
        show(part.answers(where), 0),
        f"{busy[len(busy) // 2]:.0%} of a core" if busy else "-",
    )


# -- words -------------------------------------------------------------------------------------------------------------


def verdict(found: Findings) -> list[str]:
    """Whether the goals are reached, and what limits the figures."""
    goals = list(found.goals())
    words = []
    if goals:
        words.append(f"Goals reached: {len(goals) - len(found.missed)} of {len(goals)}.")
    return words + not_quiet(found.disturbance, "Rates and latencies mean little then; CPU for each request says more.")


# -- files -------------------------------------------------------------------------------------------------------------


def summary(found: Findings) -> list[Line]:
    """Every figure, one a line."""
    lines: list[Line] = []

    def add(part: str, what: str, figure: str, value: Spread | float | None, digits: int = 4) -> None:
        if value is not None and not (isinstance(value, float) and math.isnan(value)):
            lines.append({"part": part, "what": what, "figure": figure, **places(value, digits)})

    for way in found.asked.ways.values():
        add("requests", way.name, "requests a second", way.per_second, 1)
        add("requests", way.name, "CPU each, µs", way.cpu, 1)
        for place, process in enumerate(way.processes):
            add("requests", way.name, f"CPU each of the {process}, µs", way.micros(place), 1)
        for name, value in (("p50", way.p50), ("p99", way.p99)):
            add("requests", way.name, f"{name} at half, s", value, 6)
    for cell in found.direct.cells:
        what = f"{cell.rate}/s, {cell.size} bytes, {cell.rules.value}"
        add("direct", what, "median, s", cell.median, 6)
        add("direct", what, "p99, s", cell.p99, 6)
        add("direct", what, "CPU load", cell.busy, 5)
        add("direct", what, "CPU each, µs", cell.cost, 1)
    for where in found.beside.seen:
        for name, value in (
            ("messages a second", found.beside.of("rate", where)),
            ("p50, s", found.beside.of("p50", where)),
            ("p99, s", found.beside.of("p99", where)),
            ("p99.9, s", found.beside.of("p999", where)),
            ("p99, times", found.beside.ratio(where)),
            ("API answers a second", found.beside.answers(where)),
        ):
            add("beside", where.value, name, value, 6)
    for one in found.indoors.costs:
        add("indoors", one.name, "CPU, ns", one.nanos, 1)
    for keys, each in found.indoors.memory.items():
        add("indoors", f"ring of {keys} keys", "bytes a key", each, 1)
    return lines


def _rounds(found: Findings) -> Iterator[Line]:
    for way in found.asked.ways.values():
        for load, outcomes in (("most", way.most), ("half", way.half)):
            for number, one in enumerate(outcomes, 1):
                if one is not None:
                    yield {
                        "way": way.name,
                        "load": load,
                        "round": number,
                        "per_second": round(one.per_second, 1),
                        "offered": round(one.rate, 1),
                        "node_micros": round(one.micros(0), 1),
                        "http_micros": round(one.micros(1), 1) if len(one.cpu) > 1 else "",
                        "generator_busy": round(one.load_busy, 3),
                        "neighbours": round(one.foreign, 3),
                        "overrun": one.overrun,
                        "p50_ms": round(one.p50 * 1e3, 4),
                        "p99_ms": round(one.p99 * 1e3, 4),
                        "slowest_ms": round(one.slowest * 1e3, 4),
                        "late_ms": round(one.late * 1e3, 4),
                    }


def _packets(found: Findings) -> Iterator[Line]:
    for cell in found.direct.cells:
        for seconds in cell.seconds:
            yield {"rate": cell.rate, "bytes": cell.size, "node": cell.rules.value, "micros": round(seconds * 1e6, 1)}


def _loads(found: Findings) -> Iterator[Line]:
    for where, outcomes in found.beside.seen.items():
        for number, one in enumerate(outcomes, 1):
            if one is not None:
                load = one.load
                yield {
                    "where": where.value,
                    "round": number,
                    "rate": round(one.rate, 1),
                    "messages": one.messages,
                    "p50_ms": round(one.p50 * 1e3, 4),
                    "p99_ms": round(one.p99 * 1e3, 4),
                    "p999_ms": round(one.p999 * 1e3, 4),
                    "api_per_second": "" if load is None else round(load.per_second, 1),
                    "node_cpu": "" if load is None else round(load.cpu[0] / load.seconds, 3),
                    "api_cpu": "" if load is None else round(load.cpu[1] / load.seconds, 3),
                }
