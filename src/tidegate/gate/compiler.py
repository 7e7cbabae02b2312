"""Compiles plans: evaluates every stage with what is known before a message comes, and keeps what is not.

The subscriptions of a session that ask for the same are decided together through all steps; what the session gets of a
message is combined from those that let it pass. Links to other scopes of the node are part of a plan (`Branch`).

It keeps no plans: see `plan_cache`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from tidegate.gate.attributes import Clock
from tidegate.gate.decision import UNSIGNED, PartialDecision, alike, combine, evaluate, graver
from tidegate.gate.lane import Lane
from tidegate.gate.plan import Members, Plan
from tidegate.gate.scope_links import Branch, ScopeExit
from tidegate.gate.stages.levels import demands_signed
from tidegate.gate.stages.order import StageSet
from tidegate.gate.stages.read_publisher_rules import RULES
from tidegate.gate.verdict import Deny, Known, Step
from tidegate.monitor import ModeCounts, ModeRevision
from tidegate.policy.control_topics import SAID
from tidegate.routing import Group, Shares, Subscriptions
from tidegate.session import Context, Grant, Link, Session
from tidegate.topics import matches

LONGEST = 0.005  # seconds that may be spent on the receivers of one plan if each takes long: see `Plan.postponed`
COSTLY = 0.0001  # seconds that one takes then
WITHDRAWN = Deny(step=Step.READ, rule="withdrawn")


class PlanCompiler:
    """Compiles the plans of one scope under one set of stages."""

    def __init__(
        self,
        subscriptions: Subscriptions[Session, Grant],
        shares: Shares[Session, Grant],
        stages: StageSet,
        *,
        clock: Clock,
        fresh: Callable[[Session], bool],
        mode_revision: ModeRevision,
        stopwatch: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._stopwatch = stopwatch
        self.subscriptions = subscriptions
        self.shares = shares
        self.stages = stages
        self.version = 0  # of the rules
        self.clock = clock
        self.fresh = fresh
        self.mode_revision = mode_revision
        self.mode_counts: tuple[ModeCounts, ...] = ()  # of the monitors of links that leave the scope
        self.exits: tuple[ScopeExit, ...] = ()  # links to other scopes

    def compile(self, topic: str, lane: Lane, watched: bool = False) -> Plan:
        """The plan of a topic. `watched`: every message is recorded, so none takes the fast lane."""
        context, link, writer = lane.context, lane.link, lane.writer
        plan = Plan(topic, self.version)
        stages = self.stages
        if context.view is not None:
            plan.cost += len(context.view) // 128
        if context.demand is not None:
            plan.cost += len(context.demand.text) // 128
        plan.cost += len(context.others)
        plan.cost += lane.cost
        known = Known(topic=topic, context=context, link=link, now=self.clock.wall)
        if not lane.ruled:  # whoever represents the publishers without rules may have some by now
            known.scene[RULES] = []
        entering = known
        if writer is not None:
            entering = Known(topic=topic, context=Context(subject=writer), link=link, now=known.now)
        ingress = stages.ingress
        if lane.importer is not None:
            before = lane.importer.before(topic) or topic  # policies know it as the other node calls it
            entering = Known(topic=before, context=context, link=link, now=known.now, target=lane.importer)
            ingress = stages.importing
        admission = evaluate(() if lane.admitted else ingress, entering)
        plan.until, plan.clocked = entering.until, entering.clocked
        if isinstance(admission, Deny):
            plan.refusal = admission
            return plan
        plan.admission = admission.residuals
        if topic in SAID:
            plan.control = True
            return plan
        if stages.rules.keyed:
            protection = stages.key_groups.protection(known)
            if isinstance(protection, Deny):
                plan.refusal = protection
                return plan
            plan.sealing = protection
        # what the pipeline made is not for the pipeline: it would go round for ever
        plan.ingested = not context.scored and any(matches(filter, topic) for filter in stages.rules.ingest)
        levels = topic.split("/")
        self._targets(plan, self.subscriptions.match(levels), known)
        if len(self.shares):
            plan.groups = tuple((group, self._members(plan, group, known)) for group in self.shares.match(levels))
        if lane.monitors or self.mode_counts:
            plan.watch(topic, lane.monitors, self.mode_counts)
        plan.branches = tuple(self._branches(plan, lane, known)) if self.exits else ()
        plan.cost += 3 * len(plan.branches) + (lane.admitted and not lane.writer)  # who leads on to it is kept, too
        leads = True
        if plan.branches and lane.entrance:
            leads = plan.lead(list(self._behind(plan)), self.mode_revision)
            plan.plain = plan.plain and not context.others  # these change on each link
        relayed = lane.entrance and lane.importer is None
        plan.settle(lane.protocol, lane.floor_properties, watched, leads, relayed)
        return plan

    def _branches(self, plan: Plan, lane: Lane, source: Known) -> Iterator[Branch]:
        """The links to other scopes that a topic may cross."""
        for exit in self.exits:
            crossed = exit.link.crossing(plan.topic)
            if crossed is None:
                continue
            topic, qos = crossed
            way = self.over(exit, source)
            barred = None if isinstance(way, Deny) else exit.barred(plan.topic, topic)
            if barred is not None:
                filtering, step = barred
                if filtering.silent:
                    continue
                way = Deny(step=step, rule=filtering.id)
            plan.until, plan.clocked = min(plan.until, source.until), plan.clocked or source.clocked
            if isinstance(way, Deny):
                if way.step is not Step.BROKERING:  # where links lead is nobody's offence
                    plan.denied += ((exit.outward, way),)
            else:
                sealed = plan.sealing is not None
                there = exit.gate.linked_lane(lane, exit, plan.topic, topic, sealed)
                yield Branch(exit, topic, qos, way, there, plan.topic)

    def over(self, exit: ScopeExit, source: Known) -> PartialDecision | Deny:
        """What is left to ask before a message crosses a link to another scope, or who denies every one."""
        ways: list[PartialDecision] = []
        for steps, target in ((self.stages.sending, exit.outward), (exit.gate.stages.receiving, exit.inward)):
            known = Known(
                topic=source.topic,
                context=source.context,
                link=source.link,
                now=source.now,
                target=target,
                scene=source.scene,
            )
            way = evaluate(steps, known)
            source.until, source.clocked = min(source.until, known.until), source.clocked or known.clocked
            if isinstance(way, Deny):
                return way
            ways.append(way)
        there, here = ways
        decision = PartialDecision(None, there.residuals + here.residuals, there.view & here.view, ())
        sources = (source.context, *(other.context for other in source.context.others))
        decision.whole = any(demands_signed(one.demand) for one in sources)
        return UNSIGNED if decision.whole and not decision.view.shows_all else decision

    def _behind(self, plan: Plan) -> Iterator[tuple[Branch, Plan]]:
        """The plans of other scopes that messages get to, in the order in which they do: see `scope.traversal`."""
        crossed: set[ScopeExit] = set()
        waiting: deque[tuple[Plan, frozenset[PlanCompiler]]] = deque([(plan, frozenset((self,)))])
        while waiting:
            here, path = waiting.popleft()
            for branch in here.branches:
                exit = branch.exit
                if exit in crossed or exit.gate.compiler in path:
                    continue
                crossed.add(exit)
                behind = branch.lane.plans.get(branch.name) or exit.gate.plan(branch.lane, branch.name)
                plan.until, plan.clocked = min(plan.until, behind.until), plan.clocked or behind.clocked
                yield branch, behind
                waiting.append((behind, path | {exit.gate.compiler}))

    def _targets(self, plan: Plan, matching: list[tuple[Session, Grant]], source: Known) -> None:
        targets: list[Grant] = []
        conditional: list[tuple[PartialDecision, ...]] = []
        deferred: list[tuple[Deny, tuple[PartialDecision, ...]]] = []
        denied: list[tuple[Link, Deny]] = []
        by_session: dict[Session, list[Grant]] = {}
        for session, grant in matching:
            by_session.setdefault(session, []).append(grant)
        plan.overlapping = len(matching) - len(by_session)
        postponed: list[Grant] = []
        begun = self._stopwatch()
        for decided, grants in enumerate(by_session.values()):
            spent = self._stopwatch() - begun
            if spent > LONGEST and spent > decided * COSTLY and not grants[0].session.leaving:
                postponed.append(combine(grants))
                continue
            ways: list[PartialDecision] = []
            why: Deny | None = None
            for each in alike(grants):
                way = self._way(plan, each[0], source)
                if isinstance(way, PartialDecision):
                    way.grant = combine(each)
                    ways.append(way)
                    if way.failed:
                        plan.failed += ((each[0].session, way.failed),)
                else:
                    why = graver(why, way)
            if why is not None and why.waits and (later := self._later(plan, grants, source)):
                deferred.append((why, later))
            elif not ways:
                assert why is not None
                if why.step is Step.WHERE:
                    plan.unwanted += 1
                if why.step is not Step.WHERE or why.error:
                    denied.append((grants[0].session.outward, why))
            elif all(way.clear for way in ways):
                targets.append(combine([way.grant for way in ways if way.grant is not None]))
            else:
                conditional.append(tuple(ways))
        plan.targets, plan.conditional, plan.denied = tuple(targets), tuple(conditional), tuple(denied)
        plan.deferred, plan.postponed = tuple(deferred), tuple(postponed)

    def _later(self, plan: Plan, grants: list[Grant], source: Known) -> tuple[PartialDecision, ...]:
        """What is left to ask of QoS 1 and 2 messages that wait for a better connection of a session.

        Over which one they will be sent is not known, as of a session that is away.
        """
        if not grants[0].session.expiry:
            return ()
        ways: list[PartialDecision] = []
        lasting = [grant for grant in grants if grant.qos]
        for each in alike(lasting) if lasting else ():
            way = self._way(plan, each[0], source, away=True)
            if isinstance(way, PartialDecision):
                way.grant = combine(each)
                ways.append(way)
        return tuple(ways)

    def _members(self, plan: Plan, group: Group[Session, Grant], source: Known) -> Members:
        return {session: self._way(plan, grant, source) for session, grant in group.members.items()}

    def _way(self, plan: Plan, grant: Grant, source: Known, away: bool = False) -> PartialDecision | Deny:
        session = grant.session
        if not self.fresh(session):
            return WITHDRAWN
        known = Known(
            topic=plan.topic,
            context=source.context,
            link=source.link,
            now=source.now,
            target=session.outward,
            away=away or session.connection is None,
            terms=grant.terms,
            where=grant.where,
            scene=source.scene,
        )
        way = evaluate(self.stages.towards(session.outward, known.away), known, grant)
        plan.until = min(plan.until, known.until)
        plan.clocked = plan.clocked or known.clocked
        return way
