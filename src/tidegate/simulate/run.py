"""Runs: the publications of a scenario and the rules, step by step, and what comes of them.

A run publishes what the scenario says and applies the rules until nothing is left to do. What each device has heard at
the end, in its order, is the outcome. Subscriptions change between rounds, when nothing is on its way: that is no step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count

from tidegate.simulate.scenario import Change, Round, Rounds
from tidegate.simulate.schema import Entity, Schema, Symbol
from tidegate.simulate.steps import Delivery, State, Step, initial, steps, t_publish


@dataclass(frozen=True, slots=True)
class Outcome:
    """What each device has heard, by name."""

    heard: tuple[tuple[Entity, tuple[Delivery, ...]], ...]

    @classmethod
    def of(cls, heard: Mapping[Entity, tuple[Delivery, ...]]) -> Outcome:
        return cls(tuple(sorted((device, tuple(came)) for device, came in heard.items() if came)))

    def __getitem__(self, device: Entity) -> tuple[Symbol, ...]:
        """What a device has heard over all its scopes."""
        return tuple(symbol for _, symbol in dict(self.heard).get(device, ()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A state, what is still to be published, and how it came to this."""

    state: State
    todo: Rounds
    last: Step | None = None
    past: Run | None = None

    @property
    def trace(self) -> tuple[Step, ...]:
        steps: list[Step] = []
        run: Run | None = self
        while run is not None and run.last is not None:
            steps.append(run.last)
            run = run.past
        return tuple(reversed(steps))

    @property
    def outcome(self) -> Outcome:
        return Outcome.of(self.state.heard)

    @property
    def finished(self) -> bool:
        return not self.todo and not self.state.wl


def begin(schema: Schema, rounds: Rounds) -> Run:
    """Before anything happens. Publications are numbered, so that each is told from the others."""
    number = count(1)
    todo: list[Round | Change] = []
    for each in rounds:
        if isinstance(each, Change):
            todo.append(each)
        elif full := tuple(queue for queue in each if queue):
            todo.append(
                tuple(tuple(replace(publication, number=next(number)) for publication in queue) for queue in full)
            )
    state, left = _changed(initial(schema), tuple(todo))
    return Run(state=state, todo=left)


def moves(schema: Schema, run: Run) -> Iterator[Run]:
    """Everything that can come next: a publication that is due, or a task that is selected."""
    if run.todo:
        now, *later = run.todo
        assert not isinstance(now, Change)
        for at, (first, *rest) in enumerate(now):
            queues = (*now[:at], *((tuple(rest),) if rest else ()), *now[at + 1 :])
            step = t_publish(schema, run.state, first.x, first.y, first.a, first.number)
            yield _moved(run, step, (queues, *later))
    for step in steps(schema, run.state):
        yield _moved(run, step, run.todo)


def _moved(run: Run, step: Step, todo: Rounds) -> Run:
    state = step.after
    if todo and not todo[0] and not state.wl:
        state, todo = _changed(state, todo[1:])  # the round is over when the work list is empty
    return Run(state=state, todo=todo, last=step, past=run)


def _changed(state: State, todo: Rounds) -> tuple[State, Rounds]:
    """The subscriptions that change before the next round."""
    while todo and isinstance(todo[0], Change):
        state = replace(state, sub={**state.sub, todo[0].link: todo[0].to})
        todo = todo[1:]
    return state, todo
