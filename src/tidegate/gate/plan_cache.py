"""The plans of one gate: bounded, indexed by topic, and removed as soon as they are wrong.

- A plan in a lane is valid: nobody checks it again. Invalidation therefore removes it at once.
- `touch` removes the plans whose topics a changed subscription matches, `tick` those whose time is over, `clear` all.
- Plans are bounded by their total cost. The oldest go first, one or two for each new one, so a flood of distinct
  topics costs the same per message at any time. Lanes without plans and without peers are removed.
- A plan that leads to a plan of another scope is removed with it.

It compiles nothing and knows no rules.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Any, Protocol
from weakref import WeakKeyDictionary, WeakValueDictionary

from tidegate.gate.attributes import Clock
from tidegate.gate.deferred_free import DeferredFree
from tidegate.gate.lane import NOWHERE, Lane
from tidegate.gate.plan import Plan
from tidegate.routing import TopicTree

WHOLESALE = 2000  # plans that one change may remove one by one; beyond that all go
PLAN_COST = 400_000  # about 200 MB in the worst case, 100,000 topics with one target each in 60 MB
SWEEP = 2000  # objects freed at a time
TIDY = 200  # plans of abandoned lanes accounted for at a time


class AlarmClock(Clock, Protocol):
    """The time of this turn, and when it has to be looked at again."""

    alarm: float
    since: float


class PlanCache:
    """The lanes and plans of one gate."""

    def __init__(
        self,
        clock: AlarmClock,
        *,
        bound: int,
        compiled: Callable[[Lane, Plan], None],
        retired: Callable[[Plan], None],
        invalidated: Callable[[], None],
        deferred: DeferredFree,
    ) -> None:
        self.clock = clock
        self.bound = bound
        self.compiled = compiled  # called with each plan that is kept
        self.retired = retired  # called with each plan that is removed
        self.invalidated = invalidated  # called when all plans go, or those of a publisher
        self.deferred = deferred
        self.cost = 0
        self.epoch = 0  # changes when derived lanes may have gone, or have others in their place
        self.lanes: WeakValueDictionary[Hashable, Lane] = WeakValueDictionary()
        self.derived: dict[Any, Lane] = {}
        self.upstream: tuple[PlanCache, ...] = ()  # of scopes with links to this one
        self.shadow: PlanCache | None = None  # of what is decided here and not obeyed
        self._index: TopicTree[list[Lane]] = TopicTree()
        self._order: deque[tuple[Lane, bytes, Plan]] = deque()
        self._timed: list[tuple[float, int, Lane, bytes, Plan]] = []  # a heap: those that end soonest first
        self._timed_at = 0.0  # wall clock when the last of them was compiled
        self._timed_count = 0
        self._abandoned: deque[tuple[Lane, Plan]] = deque()

    def __len__(self) -> int:
        return sum(len(lane.plans) for lane in self.lanes.values())

    @property
    def topics(self) -> int:
        """How many topics have plans."""
        return len(self._index)

    def cached_topics(self) -> list[str]:
        """Those."""
        return [topic for topic, _ in self._index.items()]

    def plans(self) -> list[tuple[Lane, Plan]]:
        """Those in use."""
        return [(lane, plan) for lane, name, plan in self._order if lane.plans.get(name) is plan]

    def add(self, lane: Lane, name: bytes, plan: Plan) -> None:
        """Keeps a plan, and evicts the oldest where the bound asks for it."""
        lane.plans[name] = plan
        for _, other in plan.flat:
            if other.users is None:
                other.users = WeakKeyDictionary()
            other.users[plan] = (self, lane, name)
        holders = self._index.get(plan.topic)
        if holders is None:
            self._index.set(plan.topic, [lane])
        else:
            holders.append(lane)
        self._order.append((lane, name, plan))
        self.cost += plan.cost
        if plan.clocked:
            self._add_timed(lane, name, plan)
        while self.cost > self.bound and len(self._order) > 1:
            oldest, key, evicted = self._order.popleft()
            if oldest.plans.get(key) is evicted:  # it was not invalidated before
                self._remove(oldest, key, evicted.topic)
        self.compiled(lane, plan)

    def _add_timed(self, lane: Lane, name: bytes, plan: Plan) -> None:
        if len(self._timed) > 2 * len(self._order) + 1024:
            self._timed = [entry for entry in self._timed if entry[2].plans.get(entry[3]) is entry[4]]
            heapify(self._timed)
        self._timed_count += 1
        heappush(self._timed, (plan.until, self._timed_count, lane, name, plan))
        self._timed_at = self.clock.wall
        self.clock.alarm = min(self.clock.alarm, plan.until)
        self.clock.since = self.clock.wall

    # -- invalidation ------------------------------------------------------------------------------------------

    def touch(self, filter: str) -> int:
        """A subscription with this filter came, went or changed; how many targets the plans had that are gone."""
        if self.shadow is not None:
            self.shadow.touch(filter)
        index = self._index
        before = self.cost
        reached = list(islice(index.iterate(filter), WHOLESALE))
        if len(reached) == WHOLESALE:
            self.clear()
            return before
        for topic, holders in reached:
            index.pop(topic)
            name = topic.encode()
            for lane in holders:
                self._drop(lane, name)
        if len(self._order) > 1024 and len(self._order) > 2 * len(index) + 1024:
            self._order = deque(entry for entry in self._order if entry[0].plans.get(entry[1]) is entry[2])
        return before - self.cost

    def tick(self) -> None:
        """The clock has reached the end of some plan, or was put back."""
        wall = self.clock.wall
        back = wall < self._timed_at  # then none of them holds
        for _ in range(WHOLESALE):
            if not self._timed or not (back or self._timed[0][0] <= wall):
                break
            _, _, lane, name, plan = heappop(self._timed)
            if lane.plans.get(name) is plan:
                self._remove(lane, name, plan.topic)
        else:
            self.clear()
        if self._timed:
            self._timed_at = self.clock.since = wall
            self.clock.alarm = min(self.clock.alarm, self._timed[0][0])

    def clear(self) -> None:
        """Removes all plans, and all that lead to them from other scopes."""
        reached = [self]
        known = {self}
        for cache in reached:  # it grows: each once, for there may be very many ways
            for other in cache.upstream:
                if other not in known:
                    known.add(other)
                    reached.append(other)
        for cache in reached:
            cache.clear_own()
            if cache.shadow is not None:
                cache.shadow.clear_own()

    def clear_own(self) -> None:
        """Removes all plans of this scope alone."""
        for lane in list(self.lanes.values()):
            self._empty(lane)
            for variant in (lane.variants or {}).values():
                self._empty(variant)
            lane.variants = lane.onward = None
            if lane.samples:
                lane.samples.clear()  # in place: lanes that refer to each other wait for the garbage collector
        for lane in self.derived.values():
            self._empty(lane)
        self.derived = {}
        self.epoch += 1
        self.deferred.add(self._order, *self._index.dismantled())
        self._index = TopicTree()
        self._order = deque()
        self._timed = []
        self._abandoned = deque()
        self.cost = 0
        self.invalidated()

    def abandon(self, lanes: Iterable[Lane]) -> None:
        """Empties the lanes of a publisher whose rules have changed; whoever holds one looks for another."""
        if self.shadow is not None:
            self.shadow.clear_own()
        for outer in lanes:
            for lane in (outer, *(outer.variants or {}).values()):
                self._abandoned.extend((lane, plan) for plan in lane.plans.values())
                lane.plans.clear()  # in place: a connection in the middle of a chunk holds it
                lane.onward = None
            outer.variants = None
            outer.version = NOWHERE
        self.invalidated()

    def renew(self) -> None:
        """What has been decided of other domains' people does not hold any more: their lanes are looked up anew."""
        if self.shadow is not None:
            self.shadow.renew()
        self.epoch += 1
        self.invalidated()

    def tidy(self) -> bool:
        """Accounts for some of the plans of abandoned lanes; True if there are more."""
        for _ in range(min(len(self._abandoned), TIDY)):
            lane, plan = self._abandoned.popleft()
            self.cost -= plan.cost
            self.retired(plan)
            self._unindex(lane, plan.topic)
        return bool(self._abandoned)

    def sweep(self) -> bool:
        """Frees some of what is not needed any more; True if there is more."""
        for value in self.deferred.take(SWEEP):
            if isinstance(value, tuple) and isinstance(value[-1], Plan):
                self.retired(value[-1])
        return bool(self.deferred)

    def _empty(self, lane: Lane) -> None:
        if lane.plans:
            self.deferred.add(lane.plans.copy())
            lane.plans.clear()  # in place: a connection in the middle of a chunk holds it

    def _remove(self, lane: Lane, name: bytes, topic: str) -> None:
        self._drop(lane, name)
        self._unindex(lane, topic)

    def _drop(self, lane: Lane, name: bytes) -> None:
        plan = lane.plans.pop(name, None)
        if plan is None:
            return
        self.cost -= plan.cost
        self.retired(plan)
        if not lane.plans and lane.holder is not None:
            lane.holder.pop(lane.key, None)
            self.epoch += 1
        if plan.users:
            for user, (cache, holding, called) in list(plan.users.items()):
                if holding.plans.get(called) is user:
                    cache._remove(holding, called, user.topic)

    def _unindex(self, lane: Lane, topic: str) -> None:
        holders = self._index.get(topic)
        if holders is not None and lane in holders:
            holders.remove(lane)
            if not holders:
                self._index.pop(topic)
