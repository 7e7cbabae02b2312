"""The gate of one scope: finds the lane of a source, has plans compiled and kept, and decides what has no plan.

- A plan is valid for one version of the rules and for the subscriptions of its topic. `change` bumps the version and
  removes every plan at once; `PlanCache` removes those that a subscription or the clock makes wrong.
- `PlanCompiler` evaluates the stages in their fixed order; `StoredMessageDecider` decides stored messages again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import replace
from typing import Final
from weakref import WeakValueDictionary

from tidegate.bounded import Bounded
from tidegate.errors import ProtocolError
from tidegate.gate.attributes import FLOOR, SCORES, Attributes
from tidegate.gate.compiler import PlanCompiler
from tidegate.gate.decision import evaluate
from tidegate.gate.deferred_free import DeferredFree
from tidegate.gate.lane import NOWHERE, Lane
from tidegate.gate.plan import Plan
from tidegate.gate.plan_cache import PLAN_COST, AlarmClock, PlanCache
from tidegate.gate.rule_set import RuleSet
from tidegate.gate.scope_links import ScopeExit
from tidegate.gate.stages.order import StageSet
from tidegate.gate.stages.read_preferences import ForeignOwners
from tidegate.gate.stages.read_publisher_rules import PublisherRules, PublisherRuleStage, possible, reader
from tidegate.gate.stages.write_and_read_capability import proving
from tidegate.gate.stored import StoredMessageDecider
from tidegate.gate.verdict import Allow, Deny, Known, Residual, Stage, Step
from tidegate.monitor import Attachment, Direction, ModeRevision
from tidegate.policy.control_topics import ANSWER, SAID
from tidegate.policy.demands import effective_demand, read_demand
from tidegate.policy.publisher_rules import ActiveRule
from tidegate.routing import Shares, Subscriptions
from tidegate.session import (
    NO_OPTIONS,
    Context,
    Grant,
    Link,
    Message,
    MessageOptions,
    NodeLinkEnd,
    Session,
    Subject,
)
from tidegate.session.carried_proof import HIDDEN
from tidegate.topics import overlaps, valid_topic
from tidegate.wire import NONE, V5, Properties, Reason

RESERVED = Deny(step=Step.WRITE, rule="reserved")
UNHEARD = Deny(step=Step.READ, rule="reserved")
SAMPLES = 1000  # topics of a shared lane for which its own lanes need not compile
_OURS = frozenset(("require", "s", "view", "capability", "proof", FLOOR, SCORES)) | HIDDEN
"""User properties for the node, or from it. Those of a publisher are not passed on: receivers would believe them."""

ORDINARY: Final = 1024  # bytes of a context
PIECE: Final = 32  # bytes beyond them that count like one target: what is made of them is larger


class Gate:
    """Decides for one scope."""

    def __init__(
        self,
        subscriptions: Subscriptions[Session, Grant],
        shares: Shares[Session, Grant],
        *,
        rules: RuleSet,
        clock: AlarmClock,
        fresh: Callable[[Session], bool],
        retired: Callable[[Plan], None],
        publishers: PublisherRules | None = None,
        foreign: ForeignOwners | None = None,
        compiled: Callable[[Lane, Plan], None] = lambda lane, plan: None,
        mode_revision: ModeRevision | None = None,
        bound: int = PLAN_COST,
        stopwatch: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """`fresh` brings a session's subject up to the rules; it returns False if the session may not stay.

        `compiled` is called with each plan that is kept, `retired` with each that is removed.
        """
        self.clock = clock
        self.publishers = publishers  # their rules for their own messages, if they may have any
        self.foreign = foreign  # owners of other domains whose messages come here, if any do
        self.version = 0
        self.watched = False  # every message is recorded, so none takes the fast lane
        self.counts_denied = False  # what plans deny is counted by source,
        self.counts_allowed = False  # and what they pass on, too: see `own_lane`
        self.shadow: Gate | None = None  # decides by all rules, where this one does not enforce them
        self.rules = rules
        self.attributes = Attributes(rules, clock)
        self.stages = StageSet.of(rules, self.attributes, publishers, foreign)
        deferred = DeferredFree()
        self.stored = StoredMessageDecider(self.stages, clock=clock, fresh=fresh, deferred=deferred)
        self.compiler = PlanCompiler(
            subscriptions,
            shares,
            self.stages,
            clock=clock,
            fresh=fresh,
            mode_revision=mode_revision or ModeRevision(),
            stopwatch=stopwatch,
        )
        self.cache = PlanCache(
            clock,
            bound=bound,
            compiled=compiled,
            retired=retired,
            invalidated=self.stored.clear,
            deferred=deferred,
        )
        # hot: as bound methods they cost one attribute
        self.decide = self.stored.decide
        self.permits = self.stored.permits
        self.nowhere = Lane(Context.decode(b""), "", V5, NONE, NOWHERE)  # for whoever has to look for another
        self._floor_properties: dict[str, Properties] = {}
        self._enforce(self.stages)

    # -- lanes and plans ---------------------------------------------------------------------------------------

    def lane(self, source: Link, protocol: int) -> Lane:
        """Where a source of this kind finds its plans: a lane that it shares, or the one that it has for itself."""
        monitors = self.monitors(source)
        names = tuple(attachment.id for attachment in monitors)
        shadow = None if self.shadow is None else self.shadow.lane(source, protocol)
        key = (protocol, source.type, names, shadow, *(stage.cache_key(source) for stage in self.stages.distinguishing))
        lane = self.cache.lanes.get(key)
        if lane is None:
            context = self.context(source)
            floor_properties = self.floor_properties(context)
            lane = Lane(context, source.type, protocol, floor_properties, self.version, monitors)
            lane.ruled = self.publishers is not None and self.publishers.of(source.subject) is not None
            lane.shadow = shadow
            self.cache.lanes[key] = lane
        return self.cache.lanes.get(_own_key(lane, source), lane)

    def own_lane(self, shared: Lane, source: Link) -> Lane:
        """A lane for one source alone, of those that are decided alike: what its plans count is known to be its."""
        context, samples = self.context(source), shared.samples or Bounded(SAMPLES)
        shared.samples = samples
        lane = replace(shared, context=context, own=True, shared=shared, plans={}, variants=None, onward=None)
        self.cache.lanes[_own_key(shared, source)] = lane
        return lane

    def counted_apart(self, lane: Lane, plan: Plan) -> bool:
        """Whether the audit has to know which of several sources of a lane a message of this plan comes from."""
        return not lane.own and (self.counts_allowed or (self.counts_denied and plan.denies))

    def options_lane(self, lane: Lane, source: Link, options: MessageOptions) -> Lane:
        """The lane of messages from there that ask for something of their own."""
        variants = lane.variants
        if variants is None:
            variants = lane.variants = {}
        variant = variants.get(options)
        if variant is None:
            context = self.context(source, options)
            variant = Lane(context, lane.link, lane.protocol, lane.floor_properties, self.version, lane.monitors)
            variant.ruled, variant.own, variant.holder, variant.key = lane.ruled, lane.own, variants, options
            if self.shadow is not None and lane.shadow is not None:
                variant.shadow = self.shadow.options_lane(lane.shadow, source, options)
            variants[options] = variant
        return variant

    def derived_lane(self, data: bytes, context: Context, link: str, writer: Subject | None) -> Lane:
        """The lane of what a monitor or a service made: it has the context of what caused it (`data`), and they wrote
        it.

        Without a writer it has come over a link from another scope.
        """
        key = (data, link, writer and writer.name, *self._revisions(context))
        lane = self.cache.derived.get(key)
        if lane is None:
            lane = Lane(context, link, V5, NONE, self.version, writer=writer, admitted=writer is None, own=True)
            lane.holder, lane.key = self.cache.derived, key
            self.cache.derived[key] = lane
        return lane

    def imported_lane(self, data: bytes, context: Context, source: NodeLinkEnd) -> Lane:
        """The lane of messages with this context that come over a link from another node."""
        key = (data, source, *self._revisions(context))
        lane = self.cache.derived.get(key)
        if lane is None:
            monitors = self.monitors(source)
            lane = Lane(context, source.type, V5, self.floor_properties(context), self.version, monitors)
            lane.importer, lane.own, lane.holder, lane.key = source, True, self.cache.derived, key
            lane.cost = max(0, len(data) - ORDINARY) // PIECE  # another node chooses how much it says
            self.cache.derived[key] = lane
        return lane

    def _revisions(self, context: Context) -> Iterator[int | None]:
        """Of the rules of all publishers that a message comes from, and of the preferences of other domains' people."""
        for each in (context, *(other.context for other in context.others)):
            active_rules = None if self.publishers is None else self.publishers.of(each.subject)
            yield None if active_rules is None else active_rules.revision
            if each.foreign is not None and self.foreign is not None:
                yield self.foreign.revision

    def linked_lane(self, lane: Lane, exit: ScopeExit, before: str, after: str, sealed: bool) -> Lane:
        """The lane here of what takes one in another scope and comes over a link from there.

        What is called otherwise here has a context that says what it was published under. `sealed`: it was, there.
        """
        if lane.onward is None:
            lane.onward = {}
        key: Hashable = (exit, sealed) if before == after else (exit, sealed, before)
        beyond = lane.onward.get(key)
        if beyond is None or beyond.version != self.version:
            context = lane.context.crossed()
            if sealed:
                context = replace(context, sealed=True, under=None)
            if before != after:
                context = context.called(before)
            beyond = Lane(context, exit.link.type, lane.protocol, lane.floor_properties, self.version, admitted=True)
            beyond.ruled, beyond.own = lane.ruled, lane.own
            lane.onward[key] = beyond
            if before != after:  # one for each topic: gone when that has no plan any more
                beyond.holder, beyond.key = lane.onward, key
            self.cache.lanes[id(lane), key] = beyond
        return beyond

    def monitors(self, link: Link) -> tuple[Attachment, ...]:
        """Those of a client's link, in their order. The node's own services are no entities, and have none."""
        if not len(self.rules.monitors):
            return ()
        if isinstance(link, NodeLinkEnd):
            kind = Direction.EX_SUB if link.inward else Direction.EX_PUB
        elif link.subject.kind == "client":
            kind = Direction.IM_PUB if link.inward else Direction.IM_SUB
        else:
            return ()
        return self.rules.monitors.over(link.source, link.target, kind=kind, scope=link.scope)

    def context(self, source: Link, options: MessageOptions = NO_OPTIONS) -> Context:
        """The context of what is published over a link. The innermost demand counts."""
        subject = source.subject
        demand = effective_demand(self.rules.levels, subject.level, options.demand, source.demand)
        return Context(
            subject=subject,
            demand=demand if demand.names else None,
            view=options.view,
            surroundings=self.rules.surroundings(subject.listener).added,
            signed=proving(subject, self.rules.capabilities) is not None,
            foreign=subject.foreign,
            token="" if subject.capability is None else subject.capability.token,
        )

    def floor_properties(self, context: Context) -> Properties:
        """What MQTT 5 subscribers are told of the way of messages with this context."""
        if not self.rules.announces_floor:
            return NONE
        levels, contexts = self.rules.levels, (context, *(other.context for other in context.others))
        signed = all(each.signed for each in contexts)
        facts = levels.floor_facts(*(each.facts for each in contexts), signed=signed)
        floor = levels.told(levels.floor(*(each.level for each in contexts)), facts)
        properties = self._floor_properties.get(floor)
        if properties is None:
            properties = self._floor_properties[floor] = Properties(user_properties=((FLOOR, floor),))
        return properties

    def with_floor(self, properties: Properties, context: Context) -> Properties:
        """The properties of a message, with the floor of this context in place of another one."""
        pairs, floor = properties.user_properties, self.floor_properties(context).user_properties
        if pairs[-1:] == floor:
            return properties
        if pairs and pairs[-1][0] == FLOOR:
            pairs = pairs[:-1]
        properties = replace(properties, user_properties=(*pairs, *floor))
        return NONE if properties == NONE else properties

    def plan(self, lane: Lane, name: bytes) -> Plan:
        """The plan for a topic that has none yet in this lane: compiled, or copied from that of all who share it."""
        try:
            topic = name.decode()
        except UnicodeDecodeError:
            raise ProtocolError("topic is not UTF-8", Reason.TOPIC_NAME_INVALID) from None
        if not valid_topic(topic):
            raise ProtocolError("invalid topic name", Reason.TOPIC_NAME_INVALID)
        known = self._known(lane.shared or lane, name)
        if known is not None and not lane.own:
            return known  # its sources follow it in lanes of their own
        shadow = self._shadow(lane, name)
        watched = self.watched or (shadow is not None and shadow.asks)
        plan = self.compiler.compile(topic, lane, watched) if known is None else known.copied()
        if shadow is not None:
            plan.follow(shadow, self.cache, lane, name)
        # what its sender publishes next, in the same breath, may need other plans than a control message now;
        # and plans that had to make room for each other lead nowhere
        whole = all(branch.lane.plans.get(branch.name) is other for branch, other in plan.flat)
        if not plan.control and whole and not self.counted_apart(lane, plan):
            self.cache.add(lane, name, plan)
            if lane.shared is not None and lane.samples is not None:
                lane.samples[name] = lane
        return plan

    def _shadow(self, lane: Lane, name: bytes) -> Plan | None:
        """What the shadow decides of the same messages; None if this scope enforces its rules."""
        if self.shadow is None or (there := lane.shadow) is None:
            return None
        return there.plans.get(name) or self.shadow.plan(there, name)

    def _known(self, shared: Lane, name: bytes) -> Plan | None:
        """A plan that each source of a shared lane could follow as its own; None if it leads over links, or is none."""
        if self.compiler.exits:
            return None
        plan = shared.plans.get(name)
        if plan is None and shared.samples and (lane := shared.samples.get(name)) is not None:
            plan = lane.plans.get(name)
        return plan

    def admits(self, topic: str, source: Link) -> Deny | None:
        """What is static against a will with this topic; None if nothing is."""
        if topic in SAID:
            return RESERVED  # they are sent by those who are there to hear whether they were taken
        known = Known(topic=topic, context=self.context(source), link=source.type, now=self.clock.wall)
        answer = evaluate(self.stages.ingress, known)
        # what the clock denies now it may allow when the will fires
        return answer if isinstance(answer, Deny) and not known.clocked else None

    def grant(self, filter: str, target: Link) -> Allow | Deny:
        """Whether a SUBSCRIBE with this filter (without its share) is granted."""
        if filter == ANSWER:
            return Allow(rule=ANSWER)
        if any(overlaps(filter, topic) for topic in (ANSWER, *SAID)):
            return UNHEARD
        for stage in self.stages.egress:
            answer = stage.grant(filter, target)
            if isinstance(answer, Deny):
                return answer
        return Allow()

    def opening(self, filter: str, target: Link) -> tuple[ActiveRule, ...]:
        """The rules of publishers that let somebody read some topics of a filter."""
        if not self.rules.ceiling or self.publishers is None:
            return ()
        actor = target.subject
        around, attributes = self.attributes.environment(actor).known, self.attributes
        rules = self.publishers.allowing(filter, actor.scope, attributes.person(actor).terms)
        return tuple(
            rule for rule in rules if possible(rule.asked({"s": reader(attributes, actor, rule.home), "e": around}))
        )

    def allowed_by_policies(self, message: Message, target: Link) -> bool:
        """Whether policies alone let somebody read a message, whatever rules publishers have."""
        reading = next((stage for stage in self.stages.egress if isinstance(stage, PublisherRuleStage)), None)
        if reading is None or reading.access is None:
            return True
        context = self.attributes.context(message)
        known = Known(topic=message.topic, context=context, link=message.link, now=self.clock.wall, target=target)
        answer = reading.access.evaluate(known)
        return isinstance(answer.decide(message) if isinstance(answer, Residual) else answer, Allow)

    def read_options(self, properties: Properties) -> tuple[MessageOptions, tuple[tuple[str, str], ...]]:
        """What user properties of a publish ask for, and those that are left for its receivers."""
        pairs = properties.user_properties
        if not any(name in _OURS for name, _ in pairs):
            return NO_OPTIONS, pairs
        left = tuple((name, value) for name, value in pairs if name not in _OURS)
        views = [value for name, value in pairs if name == "view"]
        # several tables are none that can be read: nobody sees anything
        view = None if not views else views[0] if len(views) == 1 else ""
        options = MessageOptions(read_demand(self.rules.levels, pairs), view)
        return (NO_OPTIONS if options == NO_OPTIONS else options), left

    # -- rules -------------------------------------------------------------------------------------------------

    def change(self, rules: RuleSet) -> None:
        """New rules: from the next message on nothing is decided by the old ones."""
        self.cache.deferred.add(*self.attributes.dismantled())
        self.rules = rules
        self.attributes = Attributes(rules, self.clock)
        self._floor_properties = {}
        self._enforce(StageSet.of(rules, self.attributes, self.publishers, self.foreign))

    def enforce(self, ingress: tuple[Stage, ...], egress: tuple[Stage, ...]) -> None:
        """Other stages than those of the rules, for tests of the gate itself."""
        self._enforce(replace(self.stages, ingress=ingress, egress=egress))

    def _enforce(self, stages: StageSet) -> None:
        self.stages = self.stored.stages = self.compiler.stages = stages
        self.version += 1
        self.compiler.version = self.version
        self.cache.clear_own()  # the plans of other scopes that lead to these change with them: see `Realm.change`
        self.cache.lanes = WeakValueDictionary()


def _own_key(shared: Lane, source: Link) -> Hashable:
    """Of the lane that a source has for itself, which keeps the shared one alive."""
    subject = source.subject
    return id(shared), subject.kind, subject.client, subject.user, subject.scope
