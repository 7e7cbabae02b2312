"""What plans deny and pass on without asking anybody, read off their counters.

A plan is read soon after it was made, at each flush, and when it is retired. A plan that denies somebody is followed by
one publisher alone (`Gate.own_lane`), and so is every plan while what passes is counted: what a plan counts is what its
publisher sent. What passes is counted here for targets which nothing is left to ask of; the scope reports the others.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator

from tidegate.audit.decisions import DecisionLog
from tidegate.audit.job_queue import JobQueue
from tidegate.gate import Lane, Plan, action_over
from tidegate.session import Site

COSTLY = 16  # how many plans a denial or a delivery that is accounted for is worth

Known = tuple[str, str]  # the publishers, and the version that it was made under


class PlanCounts:
    """Accounts for the messages of plans, in pieces."""

    def __init__(self, site: Site, log: DecisionLog, jobs: JobQueue) -> None:
        self._site = site
        self._log = log
        self._jobs = jobs
        self._plans: OrderedDict[Plan, Known] = OrderedDict()  # in use
        self._fresh: deque[Plan] = deque()
        self._retired: deque[tuple[Plan, Known | None]] = deque()

    def compiled(self, lane: Lane, plan: Plan) -> None:
        if plan.denies or self._log.records_allowed:
            self._plans[plan] = (lane.context.publishers if lane.own else "", self._log.version)
            # its first message is counted after this
            if not self._fresh:
                self._jobs.add(self._settle_fresh())
            self._fresh.append(plan)

    def retired(self, plan: Plan) -> None:
        known = self._plans.pop(plan, None)
        if plan.uncounted and (plan.denies or plan.flat or known is not None):
            if not self._retired:
                self._jobs.add(self._settle_retired())
            self._retired.append((plan, known))

    def settle(self) -> Iterator[None]:
        """Accounts for all plans, those in use and those retired."""
        yield from self._settle_retired()
        for _ in range(len(self._plans)):
            if not self._plans:
                return
            plan = next(iter(self._plans))
            self._plans.move_to_end(plan)  # those that nobody has looked at stay in front, whatever comes and goes
            if plan.uncounted:
                yield from self._settle(plan, self._plans[plan])
            elif self._jobs.tired():
                yield

    def _settle_fresh(self) -> Iterator[None]:
        while self._fresh:
            plan = self._fresh.popleft()
            if plan in self._plans:  # else it is among the retired
                yield from self._settle(plan, self._plans[plan])
            elif self._jobs.tired():
                yield

    def _settle_retired(self) -> Iterator[None]:
        while self._retired:
            yield from self._settle(*self._retired.popleft())

    def _settle(self, plan: Plan, known: Known | None) -> Iterator[None]:
        """Accounts for the messages that a plan has passed on since the last time."""
        log, tired = self._log, self._jobs.tired
        publishers, version = known or ("", log.version)
        for times, part in plan.take_counts():
            for link, why in part.denied:
                self._site.counters.denied += times
                log.denied(action_over(link, "read"), link, part.topic, why, publishers or None, times, version)
                if tired(COSTLY):
                    yield
            for link, why in part.would:
                self._site.counters.shadowed += times
                action = action_over(link, "read")
                log.denied(action, link, part.topic, why, publishers or None, times, version, shadow=True)
                if tired(COSTLY):
                    yield
            if known is not None and log.records_allowed:
                for grant in part.targets:
                    log.delivered(grant.session.outward, part.topic, publishers, times, version)
                    if tired(COSTLY):
                        yield
        if tired(COSTLY):
            yield
