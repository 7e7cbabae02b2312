"""What plans deny and pass on without asking anybody, read off their counters.

A plan is read soon after it was made, at each flush, and when it is retired. What passes is counted by source, topic
and receiver, for targets which nothing is left to ask of: deliveries that depend on the message, and those of shared
subscriptions, are not counted. The source is one of those that share the plan.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator

from tidegate.audit.decisions import DecisionLog
from tidegate.audit.job_queue import JobQueue
from tidegate.gate import Lane, Plan, Step
from tidegate.session import Site, Subject

COSTLY = 16  # how many plans a denial or a delivery that is accounted for is worth

Known = tuple[Subject, str]


class PlanCounts:
    """Accounts for the messages of plans, in pieces."""

    def __init__(self, site: Site, log: DecisionLog, jobs: JobQueue) -> None:
        self._site = site
        self._log = log
        self._jobs = jobs
        self._plans: OrderedDict[Plan, Known] = OrderedDict()  # in use: a source, and the version they were made under
        self._fresh: deque[Plan] = deque()
        self._retired: deque[tuple[Plan, Known | None]] = deque()

    def compiled(self, lane: Lane, plan: Plan) -> None:
        if plan.denied or self._log.records_allowed or any(other.denied for _, other in plan.flat):
            self._plans[plan] = (lane.context.subject, self._log.version)
            # its first message is counted after this
            if not self._fresh:
                self._jobs.add(self._settle_fresh())
            self._fresh.append(plan)

    def retired(self, plan: Plan) -> None:
        known = self._plans.pop(plan, None)
        if plan.uncounted and (plan.denied or plan.flat or known is not None):
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
        version = log.version if known is None else known[1]
        for times, part in plan.take_counts():
            for link, why in part.denied:
                self._site.counters.denied += times
                action = "write" if why.step is Step.WRITE else "read"  # a link forwards, or imports
                log.denied(action, link, part.topic, why, times, version)
                if tired(COSTLY):
                    yield
            if known is not None and log.records_allowed:
                for grant in part.targets:
                    log.passed(known[0], grant, part.topic, times, version)
                    if tired(COSTLY):
                        yield
        if tired(COSTLY):
            yield
