"""What can happen: every run of a scenario for small systems, some runs for larger ones.

Which of several possible steps comes next is nobody's choice, so a scenario has a set of outcomes.

- `reachable`: every state, once. `outcomes`: every outcome, by fewer states.
- `find_run`: a run with a given outcome, if there is one. It leaves out what has heard something else, so it goes far
  beyond what `outcomes` can do. What a real system delivered is right iff there is such a run.
- `chosen_run`: one run, chosen by whoever asks: `chosen_run(schema, rounds, random.Random(7).randrange)`.
- `sequential_run`: the run in which everything arrives before the next publication, the oldest first.

Invariants: nothing is left out silently. Whoever would meet more states, or take more steps, than the bound raises
`Unfinished`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Final, TypeAlias

from tidegate.errors import TidegateError
from tidegate.simulate.order import NORMAL, queue
from tidegate.simulate.run import Outcome, Run, begin, moves
from tidegate.simulate.scenario import Change, Rounds
from tidegate.simulate.schema import Link, Schema, Transmit
from tidegate.simulate.steps import Rule, apart, key

BOUND: Final = 100_000

Choice: TypeAlias = Callable[[int], int]
"""Of n possibilities, one of 0 to n - 1."""


class Unfinished(TidegateError):
    """The bound was reached."""


def reachable(schema: Schema, rounds: Rounds, *, bound: int = BOUND) -> Iterator[Run]:
    """A run to every reachable state. States that differ in the clock only count as one."""
    return _search(schema, rounds, lambda run: moves(schema, run), bound)


def outcomes(schema: Schema, rounds: Rounds, *, bound: int = BOUND) -> frozenset[Outcome]:
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


class PersistentMoves:
    """The moves of runs that are enough to find every outcome: what commutes need not be tried in every order.

    Under normal QoS a work list is a set of queues (`order`), and steps meet in few places:
    - two publications, if they are in the same scope;
    - two tasks that arrive at the same entity from different queues: a scope passes their events on, and a device hears
      them, in the order of arrival;
    - brokering meets nothing: what it appends to, only brokering in the same scope appends to, and there is one at a
      time. The same holds for what has crossed a link, if events cross it once.

    So if every queue that can still bring something to an entity has something now, it is enough to try their first
    tasks, and to leave all other steps for later: none of those can change what these do, nor be changed by it. The
    same holds for all clients that have yet to publish in a scope, if each would do it next. Such a set of steps is
    called persistent (Godefroid, 1996). Trying only these leads to every final state, though not to every state on the
    way.

    With another order nothing is left out.
    """

    __slots__ = ("_follows", "_schema")

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        link = sorted(schema.cg.link)
        self._follows = {one: [other for other in link if self._follow(one, other)] for one in link}

    def __call__(self, run: Run) -> list[Run]:
        possible = list(moves(self._schema, run))
        if self._schema.order is not NORMAL:
            return possible
        groups: dict[tuple[str, str], list[Run]] = {}
        for each in possible:
            assert each.last is not None
            if each.last.rule is Rule.BROKER:
                return [each]
            meet = "publish" if each.last.rule is Rule.PUBLISH else "arrive"
            groups.setdefault((meet, each.last.task.task.y), []).append(each)
        expected = self._expected(run)
        return min((each for at, each in groups.items() if len(each) == expected[at]), key=len, default=possible)

    def _expected(self, run: Run) -> dict[tuple[str, str], int]:
        """How many can meet at a place, now or before the next round."""
        now = run.todo[0] if run.todo else ()
        assert not isinstance(now, Change)  # those are made when a round is over
        meeting: dict[tuple[str, str], set[Hashable]] = {}
        for at, todo in enumerate(now):
            for each in todo:
                meeting.setdefault(("publish", each.y), set()).add(at)
        waiting = [(each.task.x, each.task.y) for each in run.state.wl if isinstance(each.task, Transmit)]
        for link in self._alive([*waiting, *((each.x, each.y) for todo in now for each in todo)]):
            meeting.setdefault(("arrive", link[1]), set()).add(queue(self._schema.cg, *link))
        return {at: len(those) for at, those in meeting.items()}

    def _alive(self, links: Iterable[Link]) -> set[Link]:
        """These, and those over which something may come that begins with these."""
        alive: set[Link] = set()
        waiting = list(links)
        while waiting:
            link = waiting.pop()
            if link not in alive:
                alive.add(link)
                waiting += self._follows[link]
        return alive

    def _follow(self, one: Link, other: Link) -> bool:
        """Whether an event of one link may go on over the other, whatever event it is."""
        (x, y), (v, z) = one, other
        schema = self._schema
        heard = schema.cg.bridge(y, z) or (y, z) in schema.sub or (y, z) in schema.ep
        return y == v and y in schema.cg.scopes and heard and apart(schema, x, y, z) and schema.propagate(x, y, z)
