"""What is measured, and in which order: in each round every formation runs once, freshly started, and takes its loads.

The order of the formations rotates. One hop is what two nodes cost more than one for a message that crosses, both sides
together: sending on the one, TLS included, and receiving on the other. Longer chains are in `chain`, and what a message
costs without sockets in `in_process`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.harness import figures, machine
from bench.harness.figures import Spread, spread
from bench.harness.generator import TIMEOUT, Generator
from bench.harness.profiling import LEAD, spied
from bench.harness.rounds import Plan, loading
from bench.harness.servers import BenchError, Peer, Server
from bench.links import chain, in_process
from bench.links.chain import Chains
from bench.links.in_process import Indoors
from bench.links.nodes import SUBSCRIBERS, Formation, certificates, running_all
from bench.load.job import Job, Outcome, Shape

ENOUGH_ROUNDS = 5
BATCHED, SINGLY, LATENCY, GATHERED, DURABLE = "batched", "singly", "latency", "gathered", "durable"
WAITED = (LATENCY, GATHERED)
"""Where time counts, and not CPU."""
CHAIN, INDOORS = "chain", "indoors"
PARTS = {
    BATCHED: "1 publisher, batched, QoS 0, saturated",
    SINGLY: "100 publishers, one message at a time, QoS 0, saturated",
    LATENCY: "100 publishers, 1,000 messages/s, QoS 0",
    GATHERED: "100 publishers, 10,000 messages/s, QoS 0: so many that the link gathers them for a moment",
    DURABLE: "100 publishers, durable QoS 1, saturated, beside Mosquitto's bridge with persistence",
    CHAIN: "one, three and five nodes in a row at six rates, beside as many Mosquittos with bridges",
    INDOORS: "as `batched`, without sockets and TLS",
}
JOBS = {
    BATCHED: Job(publishers=1, batch=6 * SUBSCRIBERS, subscribers=SUBSCRIBERS),
    SINGLY: Job(subscribers=SUBSCRIBERS),
    LATENCY: Job(shape=Shape.RATE, rate=1000, subscribers=SUBSCRIBERS),
    GATHERED: Job(shape=Shape.RATE, rate=10_000, subscribers=SUBSCRIBERS),
    DURABLE: Job(qos=1, persistent=True, subscribers=SUBSCRIBERS),
}
ALONE = Formation()
ALL, HALF, TENTH = (Formation(linked=SUBSCRIBERS // part) for part in (1, 2, 10))
KEPT = Formation(linked=SUBSCRIBERS, durable=True)
BRIDGED = Formation(linked=SUBSCRIBERS, durable=True, peer=Peer.MOSQUITTO)
BRIEF_PARTS = (BATCHED, SINGLY, LATENCY, GATHERED, DURABLE, INDOORS)
"""What is measured where there is little time; chains need more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How much of the parts is measured that need not be whole."""

    chains: chain.Extent = field(default_factory=chain.Extent)
    in_process: tuple[int, float] = (in_process.ROUNDS, in_process.SECONDS)
    """Rounds, and seconds of each formation in them."""


WHOLE = Scale()
BRIEF = Scale(chains=chain.Extent(rates=(5_000, 10_000, 20_000), rounds=1, longer=5))
QUICK = Scale(chains=chain.Extent(lengths=(3,), rates=(5_000,)), in_process=(3, 0.02))
LOADS: dict[Formation, Sequence[str]] = {
    ALONE: (BATCHED, SINGLY, LATENCY, GATHERED),
    ALL: (BATCHED, SINGLY, LATENCY, GATHERED),
    HALF: (BATCHED, SINGLY),
    TENTH: (BATCHED, SINGLY),
    KEPT: (DURABLE,),
    BRIDGED: (DURABLE,),
}


def times(reference: Outcome, linked: Outcome) -> float | None:
    """CPU per delivered message, of all servers."""
    return linked.micros / reference.micros if reference.micros and linked.micros else None


def hop(reference: Outcome, linked: Outcome) -> float | None:
    """In microseconds, where everything crosses."""
    return linked.micros - reference.micros if reference.micros and linked.micros else None


def added(reference: Outcome, linked: Outcome) -> float | None:
    """Median latency, in milliseconds."""
    return (linked.p50 - reference.p50) * 1e3 if reference.p50 and linked.p50 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """Two formations under the same load, and what the linked one may cost at most."""

    load: str
    title: str
    reference: Formation
    linked: Formation
    value: Callable[[Outcome, Outcome], float | None] = times
    unit: str = "x"
    goal: float | None = None


CONTESTS = (
    Contest(
        load=BATCHED, title="all cross: a hop, both sides", reference=ALONE, linked=ALL, value=hop, unit="µs", goal=4
    ),
    Contest(load=BATCHED, title="all cross", reference=ALONE, linked=ALL),
    Contest(load=BATCHED, title="half cross", reference=ALONE, linked=HALF, goal=1.45),
    Contest(load=BATCHED, title="a tenth crosses", reference=ALONE, linked=TENTH, goal=1.1),
    Contest(load=SINGLY, title="all cross", reference=ALONE, linked=ALL),
    Contest(load=SINGLY, title="half cross", reference=ALONE, linked=HALF, goal=1.45),
    Contest(load=SINGLY, title="a tenth crosses", reference=ALONE, linked=TENTH, goal=1.1),
    *(
        Contest(load=load, title="median added", reference=ALONE, linked=ALL, value=added, unit="ms", goal=1)
        for load in WAITED
    ),
    Contest(load=DURABLE, title="all cross, beside Mosquitto", reference=BRIDGED, linked=KEPT, goal=1),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """The rounds of a contest; a measurement that failed is None."""

    contest: Contest
    reference: Sequence[Outcome | None]
    linked: Sequence[Outcome | None]

    @property
    def value(self) -> Spread | None:
        """Of what is judged, within rounds."""
        pairs = zip(self.reference, self.linked, strict=True)
        values = (self.contest.value(one, other) for one, other in pairs if one and other)
        return spread(value for value in values if value is not None)

    @property
    def reached(self) -> str:
        if self.contest.goal is None:
            return ""
        value = self.value
        return figures.reached(value.median <= self.contest.goal) if value else "failed"


@dataclass(slots=True, kw_only=True)
class Findings:
    """Outcomes by formation and load, one for each round."""

    plan: Plan
    machine: dict[str, object]
    parts: Sequence[str]
    outcomes: dict[tuple[Formation, str], list[Outcome | None]] = field(default_factory=dict)
    chains: Chains = field(default_factory=Chains)
    indoors: Sequence[Indoors] = ()
    failures: list[str] = field(default_factory=list)

    @property
    def compared(self) -> list[Compared]:
        return [
            Compared(
                contest=one,
                reference=self.outcomes[one.reference, one.load],
                linked=self.outcomes[one.linked, one.load],
            )
            for one in CONTESTS
            if one.load in self.parts
        ]

    @property
    def missed(self) -> list[str]:
        """Names of what has a goal and did not reach it."""
        names = [f"{one.contest.load}: {one.contest.title}" for one in self.compared if one.reached in ("no", "failed")]
        return names + self.chains.missed

    @property
    def disturbance(self) -> float:
        """The most CPU, in cores, that neighbours used in the median round of anything."""
        series = [
            *self.outcomes.values(),
            *(each for one in self.chains.cells for each in (one.mosquitto, one.tidegate)),
        ]
        sides = map(figures.side, series)
        return max((side.foreign.median for side in sides if side.foreign), default=0.0)


def named(formation: Formation) -> str:
    """For people."""
    if not formation.linked:
        return "one node"
    servers = "bridged Mosquittos" if formation.peer is Peer.MOSQUITTO else "linked nodes"
    return f"two {servers}, {formation.share:.0%} cross"


def formations(parts: Sequence[str]) -> dict[Formation, list[str]]:
    """Those that are needed, each with its loads."""
    wanted = {one: [load for load in loads if load in parts] for one, loads in LOADS.items()}
    return {one: loads for one, loads in wanted.items() if loads}


def count(parts: Sequence[str], plan: Plan, scale: Scale) -> int:
    """How often `before` will be told something."""
    found = plan.rounds * len(formations(parts))
    found += chain.count(plan, scale.chains) if CHAIN in parts else 0
    return found + (INDOORS in parts)


def measure(parts: Sequence[str], plan: Plan, scale: Scale, before: Callable[[str], None]) -> Findings:
    """What fails is kept as words, and the rest goes on."""
    found = Findings(plan=plan, machine=machine.describe(), parts=parts)
    if INDOORS in parts:
        found.indoors = in_process.measure([ALONE, ALL, HALF, TENTH], before, *scale.in_process)
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as name:
        folder = certificates(Path(name))
        _measure_loads(found, folder, before)
        if CHAIN in parts:
            found.chains = chain.measure(plan, folder, before, scale.chains)
            found.failures += found.chains.failures
    return found


def _measure_loads(found: Findings, folder: Path, before: Callable[[str], None]) -> None:
    """One node, two nodes and two Mosquittos."""
    plan, taking = found.plan, list(formations(found.parts).items())
    for number in range(plan.rounds):
        first = number % max(1, len(taking))
        for formation, loads in taking[first:] + taking[:first]:
            before(f"round {number + 1} of {plan.rounds}: {named(formation)}")
            outcomes: list[Outcome | None] = []
            try:
                with running_all(formation, folder, core=plan.server_core) as servers:
                    for load in loads:
                        outcomes.append(_apply(servers, load, formation, plan))
            except BenchError as error:
                found.failures.append(f"{named(formation)}, round {number + 1}: {error}")
                outcomes += [None] * (len(loads) - len(outcomes))
            for load, outcome in zip(loads, outcomes, strict=True):
                found.outcomes.setdefault((formation, load), []).append(outcome)


def profile(load: str, plan: Plan) -> str:
    """Where each of two nodes spends its time when all messages of a load cross."""
    if load not in JOBS:
        raise BenchError(f"there is no load named {load}; there are {', '.join(JOBS)}")
    formation = KEPT if load == DURABLE else ALL
    parts = [f"{PARTS[load]}; {named(formation)}"]
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as name:
        folder = certificates(Path(name))
        for place, title in enumerate(("near", "far")):
            with running_all(formation, folder, core=plan.server_core) as servers:
                longer = {"warmup": LEAD, "duration": plan.duration + 1}
                with _loading(servers, load, formation, plan, **longer) as generator:
                    parts.append(f"-- {title} --\n\n{spied(generator, servers[place], plan)}")
    return "\n\n".join(parts) + "\n"


def _apply(servers: Sequence[Server], load: str, formation: Formation, plan: Plan) -> Outcome:
    """One measurement."""
    with _loading(servers, load, formation, plan) as generator:
        return generator.measure(TIMEOUT + plan.duration)


def _loading(servers: Sequence[Server], load: str, formation: Formation, plan: Plan, **changes: float) -> Generator:
    """With some of the subscribers at the far node if there is one."""
    near, *others = servers
    second: dict[str, float] = {}
    for far in others:
        second = {"linked": formation.linked, "linked_port": far.port, "linked_server": far.process.pid}
    return loading(near, JOBS[load], plan, **second | changes)
