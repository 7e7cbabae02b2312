"""Requests for keys: how many a second on one core, and how long one takes at half of that.

In each round a node without TLS and one with TLS are started afresh, in alternating order, and asked first over MQTT
and then over HTTP. Node and HTTP process share one core, the generator has the other. Each connection is a reader of
its own, since one reader may not ask as often as this. The keys are those of six topics.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bench.harness import servers
from bench.harness.figures import Spread, median_of, reached, spread
from bench.harness.rounds import Plan
from bench.harness.servers import BenchError
from bench.keys import generator, node
from bench.keys.load import HTTP, MQTT, Found, Task
from bench.keys.node import Node
from bench.keys.weather import READERS, Rules, Station
from bench.load.job import LoadError

ENOUGH = 2000.0  # requests a second
SOON = 0.003  # seconds, for 99 of 100 at half of the maximum
HTTP_READERS = 48
"""Connections over HTTP; the HTTP process lets 72 questions wait for the node."""
WAYS = ("mqtt", "http", "mqtts", "https")


@dataclass(slots=True, kw_only=True)
class Way:
    """How keys are asked for. A measurement that failed is None."""

    name: str
    most: list[Found | None] = field(default_factory=list)
    half: list[Found | None] = field(default_factory=list)

    @property
    def processes(self) -> tuple[str, ...]:
        return ("node", "HTTP process") if self.name.startswith("http") else ("node",)

    @property
    def per_second(self) -> Spread | None:
        return spread(one.per_second for one in self.most if one is not None)

    def micros(self, place: int) -> Spread | None:
        """CPU of one of the processes for each request, at the maximum."""
        return spread(one.micros(place) for one in self.most if one is not None and len(one.cpu) > place)

    @property
    def cpu(self) -> Spread | None:
        """CPU of all processes for each request: a million divided by it is what one core can do."""
        return spread(sum(one.cpu) / one.answers * 1e6 for one in self.most if one is not None and one.answers)

    @property
    def p50(self) -> Spread | None:
        return spread(one.p50 for one in self.half if one is not None)

    @property
    def p99(self) -> Spread | None:
        return spread(one.p99 for one in self.half if one is not None)

    @property
    def busy(self) -> float:
        """Share of a core that all processes used at the maximum."""
        return median_of(sum(one.cpu) / one.seconds for one in self.most if one is not None)

    @property
    def load_busy(self) -> float:
        """The same of the generator."""
        return median_of(one.load_busy for one in self.most if one is not None)

    @property
    def foreign(self) -> float:
        return median_of(one.foreign for one in (*self.most, *self.half) if one is not None)

    def goals(self) -> Iterator[tuple[str, str, str, str]]:
        """What, the goal, what was found, and whether that is enough."""
        rate, p99 = self.per_second, self.p99
        overrun = any(one.overrun for one in self.half if one is not None)
        yield (
            f"key requests a second, {self.name}",
            f"≥ {ENOUGH:,.0f}",
            "-" if rate is None else f"{rate.median:,.0f}",
            "failed" if rate is None else reached(rate.median >= ENOUGH),
        )
        yield (
            f"p99 of a key request at half of that, {self.name}",
            f"< {SOON * 1e3:g} ms",
            "-" if p99 is None else f"{p99.median * 1e3:.2f} ms",
            "failed" if p99 is None else reached(p99.median < SOON and not overrun),
        )


@dataclass(slots=True, kw_only=True)
class Asked:
    """What all rounds found."""

    ways: dict[str, Way] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)


def measure(plan: Plan, before: Callable[[str], None], readers: int = READERS) -> Asked:
    """Every way in every round."""
    found = Asked(ways={name: Way(name=name) for name in WAYS})
    station = Station.of(readers)
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
        try:
            certificates = servers.certificates(Path(folder))
        except BenchError as error:
            found.failures.append(f"requests: {error}")
            return found
        for number in range(plan.rounds):
            for tls in (False, True) if number % 2 == 0 else (True, False):
                names = ("mqtts", "https") if tls else ("mqtt", "http")
                before(f"requests, round {number + 1} of {plan.rounds}: {' and '.join(names)}")
                try:
                    with node.running(
                        station,
                        Rules.PROTECTED,
                        core=plan.server_core,
                        http=True,
                        certificates=certificates if tls else None,
                    ) as started:
                        _both(started, [found.ways[name] for name in names], plan)
                except (BenchError, LoadError, OSError) as error:
                    found.failures.append(f"requests, {' and '.join(names)}, round {number + 1}: {error}")
                for name in names:
                    way = found.ways[name]
                    for outcomes in (way.most, way.half):
                        outcomes.extend([None] * (number + 1 - len(outcomes)))
    return found


def _both(started: Node, ways: list[Way], plan: Plan) -> None:
    samples = tuple(started.samples())
    station = started.station
    keys = {name: station.readers[name].text() for name in station.asking}
    few = dict(list(keys.items())[:HTTP_READERS])
    tokens = {name: started.token("user", name) for name in few}
    over_mqtt = Task(
        way=MQTT,
        port=started.ports.mqtt,
        authority=None if started.authority is None else str(started.authority),
        pids=(started.pid,),
        readers=keys,
        samples=samples,
        warmup=plan.warmup,
        duration=plan.duration,
    )
    over_http = dataclasses.replace(
        over_mqtt, way=HTTP, port=started.ports.http, pids=(started.pid, started.api()), readers=few, tokens=tokens
    )
    for way, task in zip(ways, (over_mqtt, over_http), strict=True):
        most = generator.apply(started, task, plan.load_core)
        way.most.append(most)
        half = dataclasses.replace(task, rate=max(1.0, most.per_second / 2))
        way.half.append(generator.apply(started, half, plan.load_core))


def count(plan: Plan) -> int:
    """How often `before` will be told something."""
    return plan.rounds * 2
