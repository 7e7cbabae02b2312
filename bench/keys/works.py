"""The parts of `bench keys` by name, running those that are asked for, and all that they found."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from bench.harness import machine
from bench.harness.rounds import Plan
from bench.keys import busy_api, direct, in_process, requests
from bench.keys.busy_api import Beside
from bench.keys.direct import Direct
from bench.keys.in_process import Indoors
from bench.keys.requests import Asked

ENOUGH_ROUNDS = 5
REQUESTS, DIRECT, BESIDE, INDOORS = "requests", "direct", "beside", "indoors"
PARTS = {
    REQUESTS: "requests for keys over MQTT and HTTP, with and without TLS",
    DIRECT: "the seed's experiment: 10 and 20 packets a second, with and without protection",
    BESIDE: "messages through the broker while the API is asked as fast as it answers",
    INDOORS: "policies looked up, encryption and key requests without sockets, and memory",
}
QUICK_SECONDS, QUICK_MEMORY = 0.05, 1
Goal = tuple[str, str, str, str]
"""What, the goal, what was found, and whether that is enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What was not asked for is empty."""

    plan: Plan
    machine: dict[str, object]
    asked: Asked = field(default_factory=Asked)
    direct: Direct = field(default_factory=Direct)
    beside: Beside = field(default_factory=Beside)
    indoors: Indoors = field(default_factory=Indoors)

    @property
    def failures(self) -> list[str]:
        return [*self.asked.failures, *self.direct.failures, *self.beside.failures, *self.indoors.failures]

    def goals(self) -> Iterator[Goal]:
        for way in self.asked.ways.values():
            yield from way.goals()
        yield from self.direct.goals()
        yield from self.beside.goals()

    @property
    def missed(self) -> list[str]:
        """Names of what has a goal and did not reach it."""
        return [what for what, _, _, reached in self.goals() if reached != "yes"]

    @property
    def disturbance(self) -> float:
        """The most CPU, in cores, that neighbours used in the median round of the requests or of the direct path."""
        return max(self.direct.foreign, *(way.foreign for way in self.asked.ways.values()), 0.0)


def measure(parts: Sequence[str], plan: Plan, *, quick: bool, before: Callable[[str], None]) -> Findings:
    """What fails is kept as words, and the rest goes on. What is over soonest comes first."""
    described = machine.describe()
    inside = _indoors(before, quick) if INDOORS in parts else Indoors()
    return Findings(
        plan=plan,
        machine=described,
        asked=requests.measure(plan, before) if REQUESTS in parts else Asked(),
        direct=direct.measure(plan, before) if DIRECT in parts else Direct(),
        beside=busy_api.measure(plan, before) if BESIDE in parts else Beside(),
        indoors=inside,
    )


def _indoors(before: Callable[[str], None], quick: bool) -> Indoors:
    return in_process.measure(before, QUICK_SECONDS, QUICK_MEMORY) if quick else in_process.measure(before)


def count(parts: Sequence[str], plan: Plan) -> int:
    """How often `before` will be told something."""
    found = requests.count(plan) if REQUESTS in parts else 0
    found += direct.count(plan) if DIRECT in parts else 0
    found += busy_api.count(plan) if BESIDE in parts else 0
    return found + (in_process.count() if INDOORS in parts else 0)
