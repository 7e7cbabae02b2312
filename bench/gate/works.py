"""The works of `bench gate` by name, and running those that are asked for."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from bench.gate import changes, contests, levels, memory, proofs_in_process, proofs_sockets, steps
from bench.gate.changes import TRIALS, Trial
from bench.gate.contests import Contender, Contest
from bench.gate.findings import Findings
from bench.harness import machine, work
from bench.harness.rounds import Plan
from bench.harness.servers import BenchError, Peer

STEPS = "steps"
PROOF = "proof"
LEVELS = "levels"
MEMORY = "memory"
BRIEF = ("everything", "steps", "where")
"""What is measured where there is little time."""
QUICK_STEPS = steps.Pace(seconds=0.02, policies=(100, 1000), publishers=50)
QUICK_RUNS = 20
QUICK_CLIENTS = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Works:
    """What is to be measured."""

    contests: Sequence[Contest]
    steps: bool
    proof: bool
    trials: Sequence[Trial]
    levels: bool
    memory: bool


def titles() -> dict[str, tuple[str, str]]:
    """Every name, what it measures, and its goal."""
    found = {
        one.name: (one.title, " ".join(str(each.goal) for each in one.contenders if each.goal))
        for one in contests.contests()
    }
    found[STEPS] = ("the cost of each step, of a plan and of a stored message, without sockets", "")
    found[PROOF] = ("a proof with each message, by key: without sockets and over them", "")
    found |= {one.name: (f"changes of policy at {one.rate:,} messages/s: {one.title}", "≤ 10 ms") for one in TRIALS}
    found[LEVELS] = (f"{levels.RUNS} runs with and without enforcement, connecting, bytes", "< 1 ms")
    found[MEMORY] = (f"{memory.CLIENTS:,} connected clients with a monitor each, and without", str(memory.SMALL))
    return found


def chosen(wanted: Iterable[str]) -> Works:
    """Those named, or whose name begins so (`change`, `everything`); all of them if nothing is."""
    names = set(work.chosen(wanted, list(titles()), lambda name, text: name == text or name.startswith(f"{text}-")))
    return Works(
        contests=[one for one in contests.contests() if one.name in names],
        steps=STEPS in names,
        proof=PROOF in names,
        trials=[one for one in TRIALS if one.name in names],
        levels=LEVELS in names,
        memory=MEMORY in names,
    )


def measure(works: Works, plan: Plan, *, quick: bool, before: Callable[[str], None]) -> Findings:
    """Everything that was chosen. What fails is kept as words, and the rest goes on."""
    described = machine.describe()
    proven, unproven = proofs_sockets.measure(plan, before) if works.proof else ([], [])
    pace = QUICK_STEPS if quick else steps.Pace()
    trials = [dataclasses.replace(one, changes=1, rest=0.5, rate=2000) for one in works.trials]
    return Findings(
        plan=plan,
        machine=described,
        contests=[contests.run(one, plan, before) for one in works.contests],
        costs=[
            *(steps.measure(pace, before) if works.steps else ()),
            *(proofs_in_process.measure(pace, before) if works.proof else ()),
            *proven,
        ],
        changes=[changes.run(one, plan, before) for one in (trials if quick else works.trials)],
        levels=levels.measure(plan, before, QUICK_RUNS if quick else levels.RUNS)
        if works.levels
        else levels.Forwarding(),
        unproven=unproven,
        memory=memory.measure(plan, before, QUICK_CLIENTS if quick else memory.CLIENTS)
        if works.memory
        else memory.Memory(),
    )


def count(works: Works, plan: Plan) -> int:
    """How often `before` will be told something."""
    found = sum(len(one.contenders) for one in works.contests) * plan.rounds
    found += 2 * plan.rounds * len(works.trials) + plan.rounds * works.levels
    found += len(memory.SETTINGS) * plan.rounds * works.memory
    found += (1 + len(proofs_sockets.DEMANDS) * plan.rounds) * len(proofs_in_process.KEYS) * works.proof
    return found + len(steps.PARTS) * works.steps


def contender(name: str) -> tuple[Contest, Contender]:
    """What to profile: the node of a contest that has most to decide, or the one named behind a slash."""
    contest, _, which = name.partition("/")
    for one in contests.contests():
        if one.name == contest:
            for each in reversed(one.contenders):
                if each.peer is Peer.TIDEGATE and which in ("", each.name):
                    return one, each
    names = ", ".join(one.name for one in contests.contests())
    raise BenchError(f"there is nothing to profile named {name}; there are {names}")
