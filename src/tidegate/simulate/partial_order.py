"""Fewer runs with the same outcomes: what commutes need not be tried in every order.

Under normal QoS a work list is a set of queues (`order`), and steps meet in few places:
- two publications, if they are in the same scope;
- two tasks that arrive at the same entity from different queues: a scope passes their events on, and a device hears
  them, in the order of arrival;
- brokering meets nothing: what it appends to, only brokering in the same scope appends to, and there is one at a time.
  The same holds for what has crossed a link, if events cross it once.

So if every queue that can still bring something to an entity has something now, it is enough to try their first tasks,
and to leave all other steps for later: none of those can change what these do, nor be changed by it. The same holds for
all clients that have yet to publish in a scope, if each would do it next. Such a set of steps is called persistent
(Godefroid, 1996). Trying only these leads to every final state, though not to every state on the way.

With another order nothing is left out.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from tidegate.simulate.order import NORMAL, queue
from tidegate.simulate.run import Run, moves
from tidegate.simulate.scenario import Change
from tidegate.simulate.schema import Link, Schema, Transmit
from tidegate.simulate.steps import Rule, apart


class PersistentMoves:
    """The moves of runs that are enough to find every outcome."""

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
