"""What is measured, and in which order: in each round every deployment runs once, freshly started, with all scenarios.

The order of the deployments rotates. What a deployment adds is its median less that of the same round without monitors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bench.guard.deployment import LIMITS, SECRET, Deployment, Monitors, deployed
from bench.guard.load import Timed, Trial
from bench.guard.scenarios import QOS, SCENARIOS, Scenario
from bench.harness import machine
from bench.harness.figures import Spread, reached, spread
from bench.harness.generator import TIMEOUT, Generator
from bench.harness.rounds import Plan, apply
from bench.harness.servers import BenchError, Peer, Server, Setting, running
from bench.load.job import Job, Outcome, Shape

SCENARIO, SATURATED, IDLE = "scenarios", "saturated", "idle"
PARTS = {
    SCENARIO: "nine scenarios with two bridged Mosquittos, QoS 0 and 2, one message a second and publisher",
    SATURATED: "one guard in front of one Mosquitto, window of 5000",
    IDLE: "memory of a guard per connection that does nothing",
}
ENOUGH_ROUNDS = 3
JOBS = {
    "1 publisher, batched, QoS 0": Job(publishers=1, batch=112),
    "100 publishers, one message at a time, QoS 0": Job(),
    "100 publishers, QoS 1": Job(qos=1),
    "100 publishers, QoS 2": Job(qos=2),
}
GOAL_MICROS, GOAL_KIB, GOAL_MEDIAN, GOAL_P99 = 10.0, 8.0, 1e-3, 5e-3
CONNECTIONS = 3000
QUICK_SCENARIOS = (SCENARIOS[0], SCENARIOS[2])
Key = tuple[Monitors, str, int]
"""Deployment, scenario and QoS."""


@dataclass(slots=True, kw_only=True)
class Findings:
    """One value for each round; a measurement that failed is None."""

    plan: Plan
    machine: dict[str, object]
    parts: Sequence[str]
    timed: dict[Key, list[Timed | None]] = field(default_factory=dict)
    saturated: dict[str, list[Outcome | None]] = field(default_factory=dict)
    idle: list[Outcome] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def added(self, monitors: Monitors, scenario: str, qos: int, name: str) -> Spread | None:
        """What these monitors add to the median or another figure, in seconds, within rounds."""
        without = self.timed.get((Monitors.NONE, scenario, qos), [])
        with_them = self.timed.get((monitors, scenario, qos), [])
        pairs = zip(without, with_them, strict=False)
        return spread(getattr(other, name) - getattr(one, name) for one, other in pairs if one and other)

    @property
    def judged(self) -> list[tuple[str, Spread | None, float, str]]:
        """Name, value, goal and unit of what has a goal."""
        rows: list[tuple[str, Spread | None, float, str]] = []
        last = list(Monitors)[-1]
        if SCENARIO in self.parts:
            for qos in QOS:
                for name, goal, title in (("p50", GOAL_MEDIAN, "median"), ("p99", GOAL_P99, "p99")):
                    most = [
                        one for scenario in SCENARIOS if (one := self.added(last, scenario.name, qos, name)) is not None
                    ]
                    worst = max(most, key=lambda one: one.median, default=None)
                    rows.append((f"{title} added by {last.value}, QoS {qos}, worst scenario", worst, goal, "ms"))
        if SATURATED in self.parts:
            for title, outcomes in list(self.saturated.items())[:2]:
                found = spread(one.micros for one in outcomes if one is not None and one.messages)
                rows.append((f"CPU per message, {title}", found, GOAL_MICROS, "µs"))
        if IDLE in self.parts:
            rows.append(("memory per idle connection", spread(one.kib_each for one in self.idle), GOAL_KIB, "KiB"))
        return rows

    @property
    def missed(self) -> list[str]:
        return [name for name, value, goal, _ in self.judged if value is None or value.median > goal]


def judgement(value: Spread | None, goal: float) -> str:
    return "failed" if value is None else reached(value.median <= goal)


def scenarios(*, quick: bool) -> Sequence[Scenario]:
    return QUICK_SCENARIOS if quick else SCENARIOS


def count(parts: Sequence[str], plan: Plan, *, quick: bool) -> int:
    """How often `before` will be told something."""
    found = plan.rounds * len(Monitors) * len(scenarios(quick=quick)) if SCENARIO in parts else 0
    found += plan.rounds * len(JOBS) if SATURATED in parts else 0
    return found + (plan.rounds if IDLE in parts else 0)


def measure(parts: Sequence[str], plan: Plan, *, quick: bool, before: Callable[[str], None]) -> Findings:
    """What fails is kept as words, and the rest goes on."""
    found = Findings(plan=plan, machine=machine.describe(), parts=parts)
    if SCENARIO in parts:
        _scenarios(found, before, quick)
    for number in range(plan.rounds):
        if SATURATED in parts:
            for title, job in JOBS.items():
                before(f"round {number + 1} of {plan.rounds}: {title}")
                found.saturated.setdefault(title, []).append(_alone(found, title, job))
        if IDLE in parts:
            before(f"round {number + 1} of {plan.rounds}: {IDLE}")
            job = Job(shape=Shape.IDLE, connections=300 if quick else CONNECTIONS)
            if (outcome := _alone(found, IDLE, job)) is not None:
                found.idle.append(outcome)
    return found


def _scenarios(found: Findings, before: Callable[[str], None], quick: bool) -> None:
    plan, kinds = found.plan, list(Monitors)
    for number in range(plan.rounds):
        first = number % len(kinds)
        for monitors in kinds[first:] + kinds[:first]:
            try:
                with (
                    deployed(monitors, core=plan.server_core) as deployment,
                    Generator(deployment.near, plan.load_core, "bench.guard.load") as generator,
                ):
                    for scenario in scenarios(quick=quick):
                        before(f"round {number + 1} of {plan.rounds}: {monitors.value}, {scenario.name}")
                        for qos in QOS:
                            _try(found, generator, deployment, (monitors, scenario.name, qos), scenario)
            except BenchError as error:
                found.failures.append(f"{monitors.value}, round {number + 1}: {error}")
            for scenario in scenarios(quick=quick):
                for qos in QOS:
                    rounds = found.timed.setdefault((monitors, scenario.name, qos), [])
                    rounds += [None] * (number + 1 - len(rounds))


def _try(found: Findings, generator: Generator, deployment: Deployment, key: Key, scenario: Scenario) -> None:
    trial = Trial(
        scenario=scenario,
        near_port=deployment.near.port,
        far_port=deployment.far.port,
        qos=key[2],
        duration=found.plan.duration,
        servers=deployment.guards,
    )
    generator.tell(trial.to_json())
    found.timed.setdefault(key, []).append(Timed.from_json(generator.line(TIMEOUT + trial.duration)))


def _alone(found: Findings, title: str, job: Job) -> Outcome | None:
    """A guard on the core of the server; its broker shares that of the load."""
    plan = found.plan
    try:
        with (
            running(Peer.MOSQUITTO, Setting(), core=plan.load_core) as broker,
            running(Peer.TIDEGATE, _guarding(broker), core=plan.server_core) as guard,
        ):
            return apply(guard, job, plan)
    except BenchError as error:
        found.failures.append(f"{title}: {error}")
        return None


def _guarding(broker: Server) -> Setting:
    def text(ports: tuple[int, ...]) -> str:
        return (
            "version: 1\nnode: {name: bench}\n"
            f'listeners: [{{url: "mqtt://127.0.0.1:{ports[0]}", anonymous: true}}]\n'
            f'scopes: {{main: {{backend: "mqtt://127.0.0.1:{broker.port}", secret: "{SECRET}"}}}}\n'
            f"policies: open\n{LIMITS}\nlog: {{level: error}}\n"
        )

    return Setting(text=text)
