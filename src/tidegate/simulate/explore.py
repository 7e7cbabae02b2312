"""What can happen: every run of a scenario for small systems, some runs for larger ones.

Which of several possible steps comes next is nobody's choice, so a scenario has a set of outcomes.

- `reachable`: every state, once. `outcomes`: every outcome, by fewer states.
- `realise`: a run with a given outcome, if there is one. It leaves out what has heard something else, so it goes far
  beyond what `outcomes` can do. What a real system delivered is right iff it can be realised.
- `walk`: one run, chosen by whoever asks: `walk(schema, rounds, random.Random(7).randrange)`.
- `patient`: the run in which everything arrives before the next publication, the oldest first.

Invariants: nothing is left out silently. Whoever would meet more states, or take more steps, than the bound raises
`Unfinished`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Final, TypeAlias

from tidegate.errors import TidegateError
from tidegate.simulate.partial_order import PersistentMoves
from tidegate.simulate.run import Outcome, Run, begin, moves
from tidegate.simulate.scenario import Rounds
from tidegate.simulate.schema import Schema
from tidegate.simulate.state import key
from tidegate.simulate.steps import Rule

BOUND: Final = 100_000

Choice: TypeAlias = Callable[[int], int]
"""Of n possibilities, one of 0 to n - 1."""


class Unfinished(TidegateError):
    """The bound was reached."""


def reachable(schema: Schema, rounds: Rounds, *, bound: int = BOUND) -> Iterator[Run]:
    """A run to every reachable state. States that differ in the clock only count as one."""
    return _search(schema, rounds, lambda run: moves(schema, run), bound)


def outcomes(schema: Schema, rounds: Rounds, *, bound: int = BOUND) -> frozenset[Outcome]:
    """All outcomes."""
    return frozenset(run.outcome for run in _search(schema, rounds, PersistentMoves(schema), bound) if run.finished)


def find_run(schema: Schema, rounds: Rounds, outcome: Outcome, *, bound: int = BOUND) -> Run | None:
    """A run with this outcome; None: the model does not allow it."""
    wanted = dict(outcome.heard)
    fewer = PersistentMoves(schema)

    def promising(run: Run) -> bool:
        return all(wanted.get(device, ())[: len(came)] == came for device, came in run.state.heard.items())

    runs = _search(schema, rounds, lambda run: filter(promising, fewer(run)), bound)
    return next((run for run in runs if run.finished and run.outcome == outcome), None)


def _search(schema: Schema, rounds: Rounds, moves: Callable[[Run], Iterable[Run]], bound: int) -> Iterator[Run]:
    """Everything that these moves lead to, depth first."""
    start = begin(schema, rounds)
    met: set[Hashable] = {(key(schema, start.state), start.todo)}
    waiting = [start]
    while waiting:
        run = waiting.pop()
        yield run
        for after in moves(run):
            state = (key(schema, after.state), after.todo)
            if state in met:
                continue
            if len(met) == bound:
                raise Unfinished(
                    f"more than {bound} states: shorten the scenario, let it settle in between, or walk at random"
                )
            met.add(state)
            waiting.append(after)


def chosen_run(schema: Schema, rounds: Rounds, choose: Choice, *, bound: int = BOUND) -> Run:
    """One run to its end."""
    return _one(schema, rounds, lambda possible: possible[choose(len(possible))], bound)


def sequential_run(schema: Schema, rounds: Rounds, *, bound: int = BOUND) -> Run:
    """The run of somebody who waits before publishing."""

    def choose(possible: list[Run]) -> Run:
        waiting = (each for each in possible if each.last is not None and each.last.rule is not Rule.PUBLISH)
        return next(waiting, possible[0])

    return _one(schema, rounds, choose, bound)


def _one(schema: Schema, rounds: Rounds, choose: Callable[[list[Run]], Run], bound: int) -> Run:
    run = begin(schema, rounds)
    for _ in range(bound):
        possible = list(moves(schema, run))
        if not possible:
            return run
        run = choose(possible)
    raise Unfinished(
        f"no end after {bound} steps: does an event travel in a cycle of scopes? Then set `loops` to false"
    )
