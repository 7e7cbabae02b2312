"""The seed's experiment: how long a packet takes through the node, with and without protection, at 10 and 20 a second.

The seed measured from the reception of data to its hand-over to the broker; here the node is the broker, and it is the
whole way, from the sensor's send() to the subscriber's recv(), which is more. Three nodes run at the same time on one
core and take turns: without policies (the seed's system without AUPS), with policies and preferences, and with these
and encryption (with AUPS). Six sensors, two users. They are started afresh in every round.

Before anything is timed it is proved that the nodes do what they are called.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field

from bench.harness import procfs
from bench.harness.figures import Spread, median_of, reached, spread
from bench.harness.rounds import Plan
from bench.harness.servers import BenchError, pinned
from bench.keys import connections, node
from bench.keys.latency import Path, Schedule, Sender
from bench.keys.node import VERSION, Node, content
from bench.keys.weather import GUEST, SEEN_BY_GUEST, TOPICS, Rules, Station
from bench.load import frames, sessions
from bench.load.job import PAYLOAD, LoadError

LITTLE = 0.0005  # seconds that gate and protection may add
RATES = (10, 20)
SIZES = (PAYLOAD, 1024)
LONGER = 2.5  # times as long as other rounds, for packets are few
WARM = 12  # packets of each node that come before, two of each sensor
READER = "r000"
SEED_MILLIS = {(10, Rules.OPEN): 3.5, (20, Rules.OPEN): 4.0, (10, Rules.PROTECTED): 5.5, (20, Rules.PROTECTED): 6.0}
"""What the seed tells, in milliseconds on a Raspberry Pi."""


@dataclass(slots=True, kw_only=True)
class Cell:
    """One rate, size and node: seconds of each packet, and the CPU load of each round."""

    rate: int
    size: int
    rules: Rules
    seconds: list[float] = field(default_factory=list)
    load: list[float] = field(default_factory=list)
    """Share of a core that the node used."""
    micros: list[float] = field(default_factory=list)
    """CPU of the node for each packet."""

    @property
    def median(self) -> float:
        return statistics.median(self.seconds) if self.seconds else math.nan

    @property
    def p99(self) -> float:
        ordered = sorted(self.seconds)
        return ordered[max(0, math.ceil(0.99 * len(ordered)) - 1)] if ordered else math.nan

    @property
    def busy(self) -> Spread | None:
        return spread(self.load)

    @property
    def cost(self) -> Spread | None:
        return spread(self.micros)


@dataclass(slots=True, kw_only=True)
class Direct:
    """What all rounds found."""

    cells: list[Cell] = field(default_factory=list)
    neighbours: list[float] = field(default_factory=list)
    """CPU, in cores, that neither the nodes nor the sender used, by round, rate and size."""
    failures: list[str] = field(default_factory=list)

    def of(self, rate: int, size: int, rules: Rules) -> Cell:
        return next(one for one in self.cells if (one.rate, one.size, one.rules) == (rate, size, rules))

    @property
    def foreign(self) -> float:
        return median_of(self.neighbours)

    def pairs(self) -> Iterator[tuple[Cell, Cell]]:
        """Without anything, and with everything."""
        for one in self.cells:
            if one.rules is Rules.OPEN:
                yield one, self.of(one.rate, one.size, Rules.PROTECTED)

    def goals(self) -> Iterator[tuple[str, str, str, str]]:
        """What, the goal, what was found, and whether that is enough."""
        for plain, whole in self.pairs():
            for name, added in (("median", whole.median - plain.median), ("p99", whole.p99 - plain.p99)):
                yield (
                    f"gate and protection add, {plain.rate}/s, {plain.size} bytes, {name}",
                    f"< {LITTLE * 1e3:g} ms",
                    "-" if math.isnan(added) else f"{added * 1e3:+.3f} ms",
                    "failed" if math.isnan(added) else reached(added < LITTLE),
                )


def measure(
    plan: Plan, before: Callable[[str], None], rates: tuple[int, ...] = RATES, sizes: tuple[int, ...] = SIZES
) -> Direct:
    """Every rate and size in every round."""
    found = Direct(
        cells=[Cell(rate=rate, size=size, rules=rules) for rate in rates for size in sizes for rules in Rules]
    )
    station = Station.of(1)
    for number in range(plan.rounds):
        before(f"direct path, round {number + 1} of {plan.rounds}: starting three nodes")
        try:
            with ExitStack() as stack:
                order = list(Rules) if number % 2 == 0 else list(reversed(Rules))
                nodes = {
                    rules: stack.enter_context(node.running(station, rules, core=plan.server_core)) for rules in order
                }
                stack.enter_context(pinned(plan.load_core))
                for rules, started in nodes.items():
                    prove(started, rules)
                for rate in rates:
                    for size in sizes:
                        before(f"direct path, round {number + 1} of {plan.rounds}: {rate}/s, {size} bytes")
                        cells = {rules: found.of(rate, size, rules) for rules in nodes}
                        found.neighbours.append(_timed(nodes, cells, rate, size, LONGER * plan.duration))
        except (BenchError, LoadError, OSError) as error:
            found.failures.append(f"direct path, round {number + 1}: {error}")
    return found


def path(started: Node, size: int, stack: ExitStack, *, guest: bool) -> Path:
    """Six sensors, a reader of everything, and perhaps a guest who reads every second topic."""
    reader = stack.enter_context(started.session(READER))
    sessions.subscribe(reader, ["campodenno/#"], qos=0, version=VERSION)
    others = [stack.enter_context(started.session(GUEST))] if guest else []
    for sock in others:
        sessions.subscribe(sock, SEEN_BY_GUEST, qos=0, version=VERSION)
    senders = [
        Sender.of(stack.enter_context(started.session(f"sensor{number}")), topic, content(size, number))
        for number, topic in enumerate(TOPICS, 1)
    ]
    return Path(senders, reader, others)


def _timed(nodes: dict[Rules, Node], cells: dict[Rules, Cell], rate: int, size: int, seconds: float) -> float:
    """CPU, in cores, that others used meanwhile."""
    with ExitStack() as stack:
        paths = {rules: path(started, size, stack, guest=True) for rules, started in nodes.items()}
        schedule = Schedule(paths=list(paths.values()), rate=rate)
        Schedule(paths=schedule.paths, rate=10 * rate).run(WARM / (10 * rate))
        for one in schedule.paths:
            one.forget()
        spent = {rules: procfs.own_cpu_seconds(started.pid) for rules, started in nodes.items()}
        machine, own, begin = procfs.machine_seconds()[0], time.process_time(), time.perf_counter()
        schedule.run(seconds)
        taken = time.perf_counter() - begin
        others = procfs.machine_seconds()[0] - machine - (time.process_time() - own)
        for rules, started in nodes.items():
            cpu = procfs.own_cpu_seconds(started.pid) - spent[rules]
            latencies = paths[rules].latencies
            cell = cells[rules]
            cell.seconds += [one / 1e9 for one in latencies]
            cell.load.append(cpu / taken)
            cell.micros.append(cpu / len(latencies) * 1e6)
            others -= cpu
        return max(0.0, others) / taken


def prove(started: Node, rules: Rules) -> None:
    """The guest receives what it may and no more; what comes is sealed where it should be, and opened by who may."""
    with ExitStack() as stack:
        reader, guest = (stack.enter_context(started.session(name, f"{name}-prove")) for name in (READER, GUEST))
        for sock in (reader, guest):
            sessions.subscribe(sock, ["campodenno/#"], qos=0, version=VERSION)
        for number, topic in enumerate(TOPICS, 1):
            with started.session(f"sensor{number}") as sensor:
                clear = content(PAYLOAD, number)
                sensor.sendall(frames.publish(topic, clear, qos=0, packet_id=0, version=VERSION))
                _, came = node.parts_of(sessions.read_packet(reader))
            if (came == clear) is (rules is Rules.PROTECTED):
                raise BenchError(f"the node called {rules.value} shows {came[:40]!r}")
        guest.sendall(frames.PINGREQ)
        seen = 0
        while sessions.read_packet(guest) != frames.PINGRESP:
            seen += 1
        expected = len(TOPICS) if rules is Rules.OPEN else len(SEEN_BY_GUEST)
        if seen != expected:
            raise BenchError(f"the guest of the node called {rules.value} received {seen} messages, not {expected}")
    if rules is Rules.PROTECTED:
        samples = started.samples()
        with ExitStack() as stack:
            line = connections.mqtt_line(started.ports.mqtt, READER, samples, None, stack)
            connections.prove(line, READER, started.station.readers[READER], samples, 0)
            denied = connections.mqtt_line(started.ports.mqtt, GUEST, samples, None, stack)
            denied.ask(0)
            try:
                denied.await_answer()
            except LoadError:
                return  # the topic of the first key is not for guests
            raise BenchError("the guest was given a key that it may not have")


def count(plan: Plan, rates: tuple[int, ...] = RATES, sizes: tuple[int, ...] = SIZES) -> int:
    """How often `before` will be told something."""
    return plan.rounds * (1 + len(rates) * len(sizes))
