"""The one door. Stages in their fixed order, compiled into plans.

- A plan is valid for one version of the rules and for the subscriptions of its topic. `change` bumps the version
  and empties every lane at once; `touch` reaches only the plans whose topics a changed subscription matches; plans
  that were decided by the clock are made anew when it has moved on.
- A plan that stands in a lane is valid: nobody checks it again. That is why invalidation removes it at once.
- Plans are bounded by their total cost; the oldest go first, one or two per new one, so that a flood of distinct
  topics costs the same per message at any time. Lanes without plans and without peers are gone.
- Links to other scopes of the node are part of a plan: see `plan` and `crossing`. A plan that leads on to one of
  another scope goes when that one goes.
- Each subscription is decided by itself through all steps; what a session gets of a message is combined from those of
  its subscriptions that let it pass.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import replace
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Any, Protocol
from weakref import WeakKeyDictionary, WeakValueDictionary

from tidegate.errors import ProtocolError
from tidegate.gate.attributes import FLOOR, SCORES, Attributes
from tidegate.gate.deferred_free import DeferredFree
from tidegate.gate.links import Branch, ScopeExit
from tidegate.gate.plan import UNSEEN, Members, PartialDecision, Plan, combine, graver, undecided
from tidegate.gate.protection import KeyGroupFinder
from tidegate.gate.publisher_rules import RULES, PublisherRules
from tidegate.gate.rule_set import RuleSet
from tidegate.gate.stages import crossing, stages
from tidegate.gate.verdict import Allow, Deny, Known, Residual, Stage, Step
from tidegate.monitor import Attachment, Direction, ModeCounts, ModeRevision
from tidegate.policy import ALL
from tidegate.policy.control import ANSWER, SAID
from tidegate.routing import Group, Shares, Subscriptions, TopicTree
from tidegate.session import NO_OPTIONS, Context, Grant, Link, Message, MessageOptions, Origin, Session, Subject
from tidegate.topics import matches, overlaps, valid_topic
from tidegate.wire import NONE, V5, Properties, Reason

WHOLESALE = 2000  # plans that one subscription may reach before all are made anew, each when its topic comes
PLAN_COST = 400_000  # about 200 MB in the worst case, 100,000 topics with one target each in 60 MB
DECISIONS = 20_000  # passages of stored messages that are kept for the next of the same kind
SWEEP = 2000  # things let go of at a time
TIDY = 200  # plans of abandoned lanes accounted for at a time
KEY = "key"
NOBODY = Origin("", 0)
WITHDRAWN = Deny(step=Step.READ, rule="withdrawn")
RESERVED = Deny(step=Step.WRITE, rule="reserved")
NOWHERE = -1  # the version of a lane that nobody may take
UNHEARD = Deny(step=Step.READ, rule="reserved")
_OURS = frozenset(("require", "s", "view", "capability", "proof", FLOOR, SCORES))
"""User properties that are said to the node, or by it: what a publisher says of the floor or of scores is never passed
on, for it would be believed."""


class Clock(Protocol):
    """The time of this turn, and when it has to be looked at again."""

    wall: float
    steady: float
    alarm: float
    since: float


class Lane:
    """The plans of all sources that are decided alike, speak the same protocol version and ask for the same."""

    __slots__ = (
        "__weakref__",
        "admitted",
        "context",
        "floor_properties",
        "holder",
        "key",
        "link",
        "monitors",
        "onward",
        "plans",
        "protocol",
        "ruled",
        "variants",
        "version",
        "writer",
    )

    def __init__(self, context: Context, link: str, protocol: int, floor_properties: Properties, version: int) -> None:
        self.version = version  # of the rules
        self.context = context  # of a representative: stages look only at what `cache_key` compares
        self.link = link
        self.protocol = protocol
        self.floor_properties = floor_properties
        self.monitors: tuple[Attachment, ...] = ()  # of the source link
        self.ruled = True  # the publisher has rules of its own; if not, none count, whoever represents the others
        self.writer: Subject | None = None  # the monitor or service that made what takes this lane
        self.admitted = False  # it has been, and is not asked again on the way in
        self.onward: dict[Hashable, Lane] | None = None  # the lanes of the same in other scopes, by the way there
        self.holder: dict[Any, Lane] | None = None  # where it is found, under `key`, as long as it has plans
        self.key: Hashable = None
        self.plans: dict[bytes, Plan] = {}
        self.variants: dict[Any, Lane] | None = None  # of messages that ask for something of their own

    @property
    def entrance(self) -> bool:
        """Whether messages take it first, and not after they have crossed a link from another scope."""
        return not self.admitted or self.writer is not None


class Gate:
    """Decides and compiles for one scope."""

    def __init__(
        self,
        subscriptions: Subscriptions[Session, Grant],
        shares: Shares[Session, Grant],
        *,
        rules: RuleSet,
        clock: Clock,
        fresh: Callable[[Session], bool],
        retired: Callable[[Plan], None],
        publishers: PublisherRules | None = None,
        compiled: Callable[[Lane, Plan], None] = lambda lane, plan: None,
        shift: ModeRevision | None = None,
        bound: int = PLAN_COST,
    ) -> None:
        self.subscriptions = subscriptions
        self.shares = shares
        self.clock = clock
        self.fresh = fresh  # brings a session's subject up to the rules; False if it has no business here any more
        self.retired = retired  # told of plans that are not used any more
        self.publishers = publishers  # what they say of their own messages, if they may
        self.compiled = compiled  # told of plans that are kept from now on
        self.shift = shift or ModeRevision()  # of all posts of the node
        self.bound = bound
        self.version = 0
        self.epoch = 0  # another number: lanes of what monitors made may have gone
        self.attributes = Attributes(rules, clock)
        self.failed: tuple[tuple[str, str], ...] = ()  # of the last `decide`, see `Passage.failed`
        self.watched = False  # every message is written down, so none takes the fast lane
        self.cost = 0
        self.deferred = DeferredFree()
        self._lanes: WeakValueDictionary[Hashable, Lane] = WeakValueDictionary()
        self._index: TopicTree[list[Lane]] = TopicTree()
        self._order: deque[tuple[Lane, bytes, Plan]] = deque()
        self._timed: list[tuple[float, int, Lane, bytes, Plan]] = []  # a heap: those that end soonest first
        self._timed_at = 0.0  # wall clock when the last of them was made
        self._timed_count = 0
        self._decisions: dict[tuple[Link, bool, Grant | None, str, bytes, str], PartialDecision | Deny] = {}
        self._floor_properties: dict[str, Properties] = {}
        self._derived: dict[Any, Lane] = {}
        self._abandoned: deque[tuple[Lane, Plan]] = deque()
        self.nowhere = Lane(Context.decode(b""), "", V5, NONE, NOWHERE)  # for whoever has to look for another
        self.posts: tuple[ModeCounts, ...] = ()  # the monitors of links that leave the scope
        self.exits: tuple[ScopeExit, ...] = ()  # links to other scopes
        self.upstream: tuple[Gate, ...] = ()  # of scopes with links to this one
        self.change(rules)

    # -- plans -------------------------------------------------------------------------------------------------

    def lane(self, source: Link, protocol: int) -> Lane:
        """Where a source of this kind finds its plans."""
        monitors = self.monitors(source)
        names = tuple(one.id for one in monitors)
        key = (protocol, source.type, names, *(stage.cache_key(source) for stage in self.telling))
        lane = self._lanes.get(key)
        if lane is None:
            lane = Lane(
                self.context(source), source.type, protocol, self.floor_properties(source.subject.level), self.version
            )
            lane.monitors = monitors
            lane.ruled = self.publishers is not None and self.publishers.of(source.subject) is not None
            self._lanes[key] = lane
        return lane

    def options_lane(self, lane: Lane, source: Link, options: MessageOptions) -> Lane:
        """The lane of messages from there that ask for something of their own."""
        variants = lane.variants
        if variants is None:
            variants = lane.variants = {}
        found = variants.get(options)
        if found is None:
            found = variants[options] = Lane(
                self.context(source, options), lane.link, lane.protocol, lane.floor_properties, self.version
            )
            found.monitors = lane.monitors
            found.ruled = lane.ruled
            found.holder, found.key = variants, options
        return found

    def derived_lane(self, data: bytes, context: Context, link: str, writer: Subject | None) -> Lane:
        """The lane of what a monitor or a service made: it has the context of what caused it (`data`), and they wrote
        it.

        Without a writer it has come over a link from another scope.
        """
        active_rules = None if self.publishers is None else self.publishers.of(context.subject)
        key = (data, link, writer and writer.name, None if active_rules is None else active_rules.revision)
        found = self._derived.get(key)
        if found is None:
            found = self._derived[key] = Lane(context, link, V5, NONE, self.version)
            found.writer = writer
            found.admitted = writer is None
            found.holder, found.key = self._derived, key
        return found

    def linked_lane(self, lane: Lane, exit: ScopeExit, before: str, after: str, sealed: bool) -> Lane:
        """The lane here of what takes one in another scope and comes over a link from there.

        What is called otherwise here has a context that says what it was published under. `sealed`: it was, there.
        """
        if lane.onward is None:
            lane.onward = {}
        key: Hashable = (exit, sealed) if before == after else (exit, sealed, before)
        found = lane.onward.get(key)
        if found is None or found.version != self.version:
            context = lane.context
            if sealed:
                context = replace(context, sealed=True, under=None)
            if before != after:
                context = context.called(before)
            found = lane.onward[key] = Lane(context, exit.link.type, lane.protocol, lane.floor_properties, self.version)
            found.ruled = lane.ruled
            found.admitted = True
            if before != after:  # one for each topic: gone when that has no plan any more
                found.holder, found.key = lane.onward, key
            self._lanes[id(lane), key] = found
        return found

    def monitors(self, link: Link) -> tuple[Attachment, ...]:
        """Those of a client's link, in their order. The node's own services are no entities, and have none."""
        subject = link.subject
        if not len(self.rules.monitors) or subject.kind != "client":
            return ()
        kind = Direction.IM_PUB if link.inward else Direction.IM_SUB
        return self.rules.monitors.over(link.source, link.target, kind=kind, scope=link.scope)

    def context(self, source: Link, options: MessageOptions = NO_OPTIONS) -> Context:
        """The context of what is published over a link. The innermost demand counts."""
        subject = source.subject
        demand = self.rules.levels.effective(subject.level, options.demand, source.demand)
        return Context(
            subject=subject,
            demand=None if demand.level is None else demand,
            view=options.view,
            surroundings=self.rules.surroundings(subject.listener).added,
        )

    def floor_properties(self, level: str) -> Properties:
        """What MQTT 5 subscribers are told of messages that came over a link of this level."""
        if not self.rules.announces_floor:
            return NONE
        floor = self.rules.levels.floor(level)
        found = self._floor_properties.get(floor)
        if found is None:
            found = self._floor_properties[floor] = Properties(user_properties=((FLOOR, floor),))
        return found

    def plan(self, lane: Lane, name: bytes) -> Plan:
        """Compiles the plan for a topic that has none yet."""
        try:
            topic = name.decode()
        except UnicodeDecodeError:
            raise ProtocolError("topic is not UTF-8", Reason.TOPIC_NAME_INVALID) from None
        if not valid_topic(topic):
            raise ProtocolError("invalid topic name", Reason.TOPIC_NAME_INVALID)
        plan = self.compile(topic, lane)
        if plan.control:
            return plan  # not kept: what its sender publishes next, in the same breath, may need other plans
        if any(branch.lane.plans.get(branch.name) is not other for branch, other in plan.flat):
            return plan  # nor is what leads on to plans that had to make room for each other
        lane.plans[name] = plan
        for _, other in plan.flat:
            if other.users is None:
                other.users = WeakKeyDictionary()
            other.users[plan] = (self, lane, name)
        holders = self._index.get(topic)
        if holders is None:
            self._index.set(topic, [lane])
        else:
            holders.append(lane)
        self._order.append((lane, name, plan))
        self.cost += plan.cost
        if plan.clocked:
            if len(self._timed) > 2 * len(self._order) + 1024:
                self._timed = [one for one in self._timed if one[2].plans.get(one[3]) is one[4]]
                heapify(self._timed)
            self._timed_count += 1
            heappush(self._timed, (plan.until, self._timed_count, lane, name, plan))
            self._timed_at = self.clock.wall
            self.clock.alarm = min(self.clock.alarm, plan.until)
            self.clock.since = self.clock.wall
        while self.cost > self.bound and len(self._order) > 1:
            self._evict()
        self.compiled(lane, plan)
        return plan

    def compile(self, topic: str, lane: Lane) -> Plan:
        """Evaluates every stage with what is known; keeps what is not."""
        context, link, writer = lane.context, lane.link, lane.writer
        plan = Plan(topic, self.version)
        if context.view is not None:
            plan.cost += len(context.view) // 128
        known = Known(topic=topic, context=context, link=link, now=self.clock.wall)
        if not lane.ruled:  # whoever represents the publishers without rules may have some by now
            known.scene[RULES] = []
        entering = known
        if writer is not None:
            entering = Known(topic=topic, context=Context(subject=writer), link=link, now=known.now)
        admission = self.evaluate(() if lane.admitted else self.ingress, entering)
        plan.until, plan.clocked = entering.until, entering.clocked
        if isinstance(admission, Deny):
            plan.refusal = admission
            return plan
        plan.admission = admission.residuals
        if topic in SAID:
            plan.control = True
            return plan
        if self.rules.keyed:
            protection = self.protecting.protection(known)
            if isinstance(protection, Deny):
                plan.refusal = protection
                return plan
            plan.sealing = protection
        # what the pipeline made is not for the pipeline: it would go round for ever
        plan.ingested = not context.scored and any(matches(filter, topic) for filter in self.rules.ingest)
        levels = topic.split("/")
        self._targets(plan, self.subscriptions.match(levels), known)
        if len(self.shares):
            plan.groups = tuple((group, self._members(plan, group, known)) for group in self.shares.match(levels))
        if lane.monitors or self.posts:
            plan.watch(topic, lane.monitors, self.posts)
        plan.branches = tuple(self._branches(plan, lane, known)) if self.exits else ()
        plan.cost += 3 * len(plan.branches) + (lane.admitted and not lane.writer)  # who leads on to it is kept, too
        leads = True
        if plan.branches and lane.entrance:
            leads = plan.lead(list(self._behind(plan)), self.shift)
        plan.settle(lane.protocol, lane.floor_properties, self.watched, leads)
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
        for steps, target in ((self.sending, exit.outward), (self.receiving, exit.inward)):
            known = Known(
                topic=source.topic,
                context=source.context,
                link=source.link,
                now=source.now,
                target=target,
                scene=source.scene,
            )
            way = self.evaluate(steps, known)
            source.until, source.clocked = min(source.until, known.until), source.clocked or known.clocked
            if isinstance(way, Deny):
                return way
            ways.append(way)
        there, here = ways
        return PartialDecision(None, there.residuals + here.residuals, there.view & here.view, ())

    def _behind(self, plan: Plan) -> Iterator[tuple[Branch, Plan]]:
        """The plans of other scopes that messages get to, in the order in which they do: see `scope.journey`."""
        crossed: set[ScopeExit] = set()
        waiting: deque[tuple[Plan, frozenset[Gate]]] = deque([(plan, frozenset((self,)))])
        while waiting:
            here, path = waiting.popleft()
            for branch in here.branches:
                exit = branch.exit
                if exit in crossed or exit.gate in path:
                    continue
                crossed.add(exit)
                found = branch.lane.plans.get(branch.name) or exit.gate.plan(branch.lane, branch.name)
                plan.until, plan.clocked = min(plan.until, found.until), plan.clocked or found.clocked
                yield branch, found
                waiting.append((found, path | {exit.gate}))

    def _targets(self, plan: Plan, found: list[tuple[Session, Grant]], source: Known) -> None:
        targets: list[Grant] = []
        conditional: list[tuple[PartialDecision, ...]] = []
        denied: list[tuple[Link, Deny]] = []
        by_session: dict[Session, list[Grant]] = {}
        for session, grant in found:
            by_session.setdefault(session, []).append(grant)
        for grants in by_session.values():
            ways: list[PartialDecision] = []
            why: Deny | None = None
            for grant in grants:
                way = self._way(plan, grant, source)
                if isinstance(way, PartialDecision):
                    ways.append(way)
                    if way.failed:
                        plan.failed += ((grant.session, way.failed),)
                else:
                    why = graver(why, way)
            if not ways:
                assert why is not None
                if why.step is not Step.WHERE or why.error:
                    denied.append((grants[0].session.outward, why))
            elif all(way.clear for way in ways):
                targets.append(combine([way.grant for way in ways if way.grant is not None]))
            else:
                conditional.append(tuple(ways))
        plan.targets, plan.conditional, plan.denied = tuple(targets), tuple(conditional), tuple(denied)

    def _members(self, plan: Plan, group: Group[Session, Grant], source: Known) -> Members:
        return {session: self._way(plan, grant, source) for session, grant in group.members.items()}

    def _way(self, plan: Plan, grant: Grant, source: Known) -> PartialDecision | Deny:
        session = grant.session
        if not self.fresh(session):
            return WITHDRAWN
        known = Known(
            topic=plan.topic,
            context=source.context,
            link=source.link,
            now=source.now,
            target=session.outward,
            away=session.peer is None,
            terms=grant.terms,
            where=grant.where,
            scene=source.scene,
        )
        way = self.evaluate(self.egress, known, grant)
        plan.until = min(plan.until, known.until)
        plan.clocked = plan.clocked or known.clocked
        return way

    def evaluate(self, stages: tuple[Stage, ...], known: Known, grant: Grant | None = None) -> PartialDecision | Deny:
        """What is left to ask of a message when these stages have said what they can, or who denies every one."""
        residuals: list[Residual] = []
        wants: list[Residual] = []
        view = ALL
        failed: tuple[tuple[str, str], ...] = ()
        for stage in stages:
            answer = stage.evaluate(known)
            match answer:
                case Deny():
                    return answer
                case Residual():
                    (wants if stage.step in _AFTER_THE_VIEW else residuals).append(answer)
                case Allow():
                    if answer.view is not ALL:
                        view &= answer.view
                    failed += answer.errors
        if view.shows_nothing:
            return UNSEEN
        made = PartialDecision(grant, tuple(residuals), view, tuple(wants))
        made.failed = failed
        return made

    # -- decided now, without a plan ---------------------------------------------------------------------------

    def decide(self, message: Message, session: Session, grant: Grant | None = None) -> Message | Deny:
        """What of a queued, retained or resumed message may be sent to `session` at this moment.

        `grant` is the subscription that it is sent for, if that asks for anything itself.
        """
        if not self.fresh(session):
            return WITHDRAWN
        if grant is not None and not grant.terms.asks:
            grant = None
        target = session.outward
        away = session.peer is None
        key = (target, away, grant, message.topic, message.context, message.link)
        way = self._decisions.get(key)
        if way is None:
            known = Known(
                topic=message.topic,
                context=self.attributes.context(message),
                link=message.link,
                now=self.clock.wall,
                target=target,
                away=away,
            )
            if grant is not None:
                known.terms, known.where = grant.terms, grant.where
            way = self.evaluate(self.egress, known, grant)
            if not known.clocked:
                if len(self._decisions) >= DECISIONS:
                    self._drop_decisions()
                self._decisions[key] = way
        if isinstance(way, Deny):
            self.failed = ()
            return way
        known_before = way.failed  # told once, when it was made: showing a message begins anew
        found = way.show(message)
        self.failed = known_before + way.failed
        way.failed = ()
        return found

    def permits(self, message: Message, session: Session, filters: tuple[str, ...] | None = None) -> Message | Deny:
        """The same for what waited: by any of the subscriptions that it may be sent for.

        `filters` are those it came by, if that is known: of a shared subscription.
        """
        asking = [
            grant
            for filter, grant in (session.subscriptions or {}).items()
            if (filter in filters if filters is not None else grant.group is None and matches(filter, message.topic))
        ]
        if not any(grant.terms.asks for grant in asking):
            return self.decide(message, session)
        why: Deny | None = None
        for grant in asking:
            found = self.decide(message, session, grant)
            if isinstance(found, Message):
                return found
            why = graver(why, found)
        assert why is not None
        return why

    def readable(self, topic: str, context: bytes, target: Link) -> Allow | Deny:
        """Whether somebody may have the key of a group at this moment, given by one of its messages (steps 7 and 8)."""
        key = (target, False, None, topic, context, KEY)
        way = self._decisions.get(key)
        if way is None:
            known = Known(
                topic=topic, context=self.attributes.decoded(context), link="", now=self.clock.wall, target=target
            )
            way = self.evaluate(tuple(stage for stage in self.egress if stage.step in _OF_READERS), known)
            if not known.clocked:
                if len(self._decisions) >= DECISIONS:
                    self._drop_decisions()
                self._decisions[key] = way
        if isinstance(way, Deny):
            return way
        if not way.view.shows_all:
            return UNSEEN
        if way.residuals:
            # what is left calls a volatile function, or reads what only a message has, which is an error here
            probe = Message(topic, b"", 0, False, self.clock.wall, NOBODY, 0, context, "")
            return undecided(way.residuals, probe) or Allow()
        return Allow()

    def admits(self, topic: str, source: Link) -> Deny | None:
        """What is static against a will with this topic; None if nothing is."""
        if topic in SAID:
            return RESERVED  # they are sent by those who are there to hear whether they were taken
        known = Known(topic=topic, context=self.context(source), link=source.type, now=self.clock.wall)
        answer = self.evaluate(self.ingress, known)
        # what the clock denies now it may allow when the will fires
        return answer if isinstance(answer, Deny) and not known.clocked else None

    def grant(self, filter: str, target: Link) -> Allow | Deny:
        """Whether a SUBSCRIBE with this filter (without its share) is granted."""
        if filter == ANSWER:
            return Allow(rule=ANSWER)
        if any(overlaps(filter, topic) for topic in (ANSWER, *SAID)):
            return UNHEARD
        for stage in self.egress:
            answer = stage.grant(filter, target)
            if isinstance(answer, Deny):
                return answer
        return Allow()

    def read_options(self, properties: Properties) -> tuple[MessageOptions, tuple[tuple[str, str], ...]]:
        """What user properties of a publish ask for, and those that are left for its receivers."""
        pairs = properties.user_properties
        if not any(name in _OURS for name, _ in pairs):
            return NO_OPTIONS, pairs
        left = tuple((name, value) for name, value in pairs if name not in _OURS)
        views = [value for name, value in pairs if name == "view"]
        # several tables are none that can be read: nobody sees anything
        view = None if not views else views[0] if len(views) == 1 else ""
        options = MessageOptions(self.rules.levels.demand(pairs), view)
        return (NO_OPTIONS if options == NO_OPTIONS else options), left

    # -- invalidation ------------------------------------------------------------------------------------------

    def touch(self, filter: str) -> None:
        """A subscription with this filter came, went or changed."""
        index = self._index
        reached = list(islice(index.iterate(filter), WHOLESALE))
        if len(reached) == WHOLESALE:
            self.forget()
            return
        for topic, holders in reached:
            index.pop(topic)
            name = topic.encode()
            for lane in holders:
                self._drop(lane, name)
        if len(self._order) > 1024 and len(self._order) > 2 * len(index) + 1024:
            self._order = deque(entry for entry in self._order if entry[0].plans.get(entry[1]) is entry[2])

    def change(self, rules: RuleSet) -> None:
        """New rules: from the next message on nothing is decided by the old ones."""
        self.deferred.add(*self.attributes.dismantled())
        self.rules = rules
        self.attributes = Attributes(rules, self.clock)
        self._floor_properties = {}
        self.sending, self.receiving = crossing(rules, self.attributes)
        self.protecting = KeyGroupFinder(rules, self.attributes, self.publishers)
        self.enforce(*stages(rules, self.attributes, self.publishers))

    def enforce(self, ingress: tuple[Stage, ...], egress: tuple[Stage, ...]) -> None:
        """Other steps than those of the rules, for tests of the door itself."""
        self.ingress = ingress
        self.egress = egress
        linked = self.sending + self.receiving if self.rules.space.links else ()
        self.telling = ingress + egress + linked  # those that may tell sources apart
        self.version += 1
        self._forget()  # those that lead on to it change with it: see `Realm.change`
        self._lanes = WeakValueDictionary()

    @property
    def topics(self) -> int:
        """How many topics have plans."""
        return len(self._index)

    def forget(self) -> None:
        """All plans at once; they are made anew as messages come. So do those that lead on to them."""
        reached = [self]
        known = {self}
        for gate in reached:  # it grows: each once, for there may be very many ways
            for other in gate.upstream:
                if other not in known:
                    known.add(other)
                    reached.append(other)
        for gate in reached:
            gate._forget()

    def _forget(self) -> None:
        for lane in list(self._lanes.values()):
            self._empty(lane)
            for variant in (lane.variants or {}).values():
                self._empty(variant)
            lane.variants = lane.onward = None
        for lane in self._derived.values():
            self._empty(lane)
        self._derived = {}
        self.epoch += 1
        self.deferred.add(self._order, *self._index.dismantled())
        self._index = TopicTree()
        self._order = deque()
        self._timed = []
        self._abandoned = deque()
        self._drop_decisions()
        self.cost = 0

    def abandon(self, lanes: Iterable[Lane]) -> None:
        """A publisher has other rules: these were its lanes, and what was decided for it may not stand any more."""
        for outer in lanes:
            for lane in (outer, *(outer.variants or {}).values()):
                self._abandoned.extend((lane, plan) for plan in lane.plans.values())
                lane.plans.clear()  # in place: a peer in the middle of a chunk holds it
                lane.onward = None
            outer.variants = None
            outer.version = NOWHERE  # whoever still holds it looks for another
        self._drop_decisions()

    def tidy(self) -> bool:
        """Accounts for some of the plans of abandoned lanes; True if there are more."""
        for _ in range(min(len(self._abandoned), TIDY)):
            lane, plan = self._abandoned.popleft()
            self.cost -= plan.cost
            self.retired(plan)
            self._unindex(lane, plan.topic)
        return bool(self._abandoned)

    def _empty(self, lane: Lane) -> None:
        if lane.plans:
            # in place: a peer in the middle of a chunk holds it. Letting go of what was in it is for later
            self.deferred.add(lane.plans.copy())
            lane.plans.clear()

    def _drop_decisions(self) -> None:
        self.deferred.add(self._decisions)
        self._decisions = {}

    def tick(self) -> None:
        """The clock has come to where some plan does not hold any more, or was put back."""
        wall = self.clock.wall
        back = wall < self._timed_at  # then none of them holds
        for _ in range(WHOLESALE):
            if not self._timed or not (back or self._timed[0][0] <= wall):
                break
            _, _, lane, name, plan = heappop(self._timed)
            if lane.plans.get(name) is plan:
                self._drop(lane, name)
                self._unindex(lane, plan.topic)
        else:
            self.forget()
        if self._timed:
            self._timed_at = self.clock.since = wall
            self.clock.alarm = min(self.clock.alarm, self._timed[0][0])

    def sweep(self) -> bool:
        """Lets go of some of what is not needed any more; True if there is more."""
        for one in self.deferred.take(SWEEP):
            if isinstance(one, tuple) and isinstance(one[-1], Plan):
                self.retired(one[-1])
        return bool(self.deferred)

    def plans(self) -> list[tuple[Lane, Plan]]:
        """Those in use."""
        return [(lane, plan) for lane, name, plan in self._order if lane.plans.get(name) is plan]

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
            for user, (gate, holding, called) in list(plan.users.items()):
                if holding.plans.get(called) is user:
                    gate._drop(holding, called)
                    gate._unindex(holding, user.topic)

    def _unindex(self, lane: Lane, topic: str) -> None:
        holders = self._index.get(topic)
        if holders is not None and lane in holders:
            holders.remove(lane)
            if not holders:
                self._index.pop(topic)

    def _evict(self) -> None:
        lane, name, plan = self._order.popleft()
        if lane.plans.get(name) is not plan:
            return  # it was invalidated before
        self._drop(lane, name)
        self._unindex(lane, plan.topic)

    def __len__(self) -> int:
        return sum(len(lane.plans) for lane in self._lanes.values())


_OF_READERS = frozenset((Step.LEVELS, Step.READ))
_AFTER_THE_VIEW = frozenset((Step.WHERE, Step.MONITOR_OUT))
