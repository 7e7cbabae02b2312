"""How long messages take through the broker while its API is asked as fast as it answers.

The API is asked for keys, told data and asked for policies, in turn, on connections that stay open. In each round
messages are timed three times on one fresh node: with nobody at the API; under that load with the HTTP process on the
other core; and under it with the HTTP process on the core of the broker, while the load generator keeps the other one.

With two cores there is a choice whom the clients disturb. The generator of the API's load shares the core of the HTTP
process, which then answers less than it could: that is unfair to the API. The publisher and the subscriber whose
messages are timed share the core of the broker, or they would wait for the API's load instead of for the broker: all
three times alike, and they sleep when they have nothing to do. Their rate is a quarter of what they reach with one
message on its way at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from enum import Enum

from bench.harness.figures import Spread, spread
from bench.harness.rounds import Plan
from bench.harness.servers import BenchError, pinned
from bench.keys import direct, generator, node
from bench.keys.latency import Schedule, pingpong
from bench.keys.load import MIXED, Found, Task
from bench.keys.node import Node
from bench.keys.weather import Rules, Station
from bench.load.job import PAYLOAD, LoadError
from bench.load.paced import percentile

CLIENTS = 24
TIMES = 2.0  # that the p99 may be as long, if both have a core
SHARE = 4  # a quarter of what is reached
TRYING = 0.5  # seconds for how much that is


class Where(Enum):
    """Who asks, and where the HTTP process is."""

    ALONE = "nobody asks"
    APART = "API on the other core"
    TOGETHER = "API on the same core"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One measurement, in seconds."""

    rate: float
    messages: int
    p50: float
    p99: float
    p999: float
    load: Found | None
    """What the API did meanwhile."""


@dataclass(slots=True, kw_only=True)
class Beside:
    """What all rounds found; a measurement that failed is None."""

    seen: dict[Where, list[Seen | None]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def of(self, name: str, where: Where) -> Spread | None:
        """A figure of `Seen` over all rounds."""
        return spread(getattr(one, name) for one in self.seen.get(where, ()) if one is not None)

    def answers(self, where: Where) -> Spread | None:
        """Of the API, a second."""
        return spread(one.load.per_second for one in self.seen.get(where, ()) if one is not None and one.load)

    def ratio(self, where: Where) -> Spread | None:
        """How many times as long the p99 is as with nobody at the API, within rounds."""
        pairs = zip(self.seen.get(Where.ALONE, ()), self.seen.get(where, ()), strict=True)
        return spread(there.p99 / alone.p99 for alone, there in pairs if alone and there and alone.p99)

    def goals(self) -> Iterator[tuple[str, str, str, str]]:
        """What, the goal, what was found, and whether that is enough."""
        if self.seen:
            ratio = self.ratio(Where.APART)
            yield (
                "p99 of the broker under full API load, each with a core",
                f"≤ {TIMES:g} times",
                "-" if ratio is None else f"{ratio.median:.2f} times",
                "failed" if ratio is None else "yes" if ratio.median <= TIMES else "no",
            )


def measure(plan: Plan, before: Callable[[str], None], clients: int = CLIENTS) -> Beside:
    """All three in every round, in an order that rotates."""
    found = Beside(seen={where: [] for where in Where})
    station = Station.of(clients)
    for number in range(plan.rounds):
        before(f"beside the API, round {number + 1} of {plan.rounds}")
        try:
            with node.running(station, Rules.PROTECTED, core=plan.server_core, http=True) as started:
                first = number % len(Where)
                for where, seen in _round(started, plan, [*Where][first:] + [*Where][:first]):
                    found.seen[where].append(seen)
        except (BenchError, LoadError, OSError) as error:
            found.failures.append(f"beside the API, round {number + 1}: {error}")
        for outcomes in found.seen.values():
            outcomes.extend([None] * (number + 1 - len(outcomes)))
    return found


def _round(started: Node, plan: Plan, order: Sequence[Where]) -> Iterator[tuple[Where, Seen]]:
    admin = started.token("admin")
    asking = started.station.asking
    api = started.api()
    task = Task(
        way=MIXED,
        port=started.ports.http,
        pids=(started.pid, api),
        readers=dict.fromkeys(asking, ""),
        tokens={name: started.token("user", name) for name in asking},
        admin=admin,
        source=started.source(admin),
        samples=tuple(started.samples()),
        warmup=plan.warmup,
        until_closed=True,
    )
    with ExitStack() as stack:
        stack.enter_context(pinned(plan.server_core))
        path = direct.path(started, PAYLOAD, stack, guest=False)
        rate = pingpong(path, TRYING) / SHARE

        def timed() -> Seen:
            Schedule(paths=[path], rate=rate).run(plan.warmup)
            path.forget()
            Schedule(paths=[path], rate=rate).run(plan.duration)
            ordered = sorted(path.latencies)
            p50, p99, p999 = (percentile(ordered, share) for share in (0.5, 0.99, 0.999))
            return Seen(rate=rate, messages=len(ordered), p50=p50, p99=p99, p999=p999, load=None)

        for where in order:
            if where is Where.ALONE:
                yield where, timed()
                continue
            node.moved(api, plan.load_core if where is Where.APART else plan.server_core)
            with generator.during(started, task, plan.load_core) as going:
                seen = timed()
            yield where, replace(seen, load=going.found)


def count(plan: Plan) -> int:
    """How often `before` will be told something."""
    return plan.rounds
