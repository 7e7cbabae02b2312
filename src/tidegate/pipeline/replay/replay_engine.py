"""One configuration, and what it decides about messages of the past.

It is the engine of a node without a network: its scopes, gates and plans, with the sessions that were there. The clock
is what the record says. Nothing is delivered, and nothing is decided here: plans are, by the gate.

Not in it: what monitors do, except filters of links between scopes that the gate itself knows; capabilities and rules
of publishers, which are not recorded.

Reading a field of a message that was not recorded raises `FieldNotRecorded`, which passes through every evaluator: the
decision counts as undecided. So does a condition that could have been decided without the field, had its parts been
read in another order.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import Any, Final, NoReturn, SupportsIndex

from tidegate.errors import ConfigError
from tidegate.gate import Deny, Gate, Known, Lane, Plan, RuleSet, Step
from tidegate.gate.decision import unsigned
from tidegate.gate.scope_links import Branch, ScopeExit
from tidegate.gate.stages.where import WHERE, condition
from tidegate.gate.verdict import Residual, Stage
from tidegate.policy import ALL, Demand, View
from tidegate.policy.demands import read_demand
from tidegate.scope import Exchange, Identity, Realm, Refused, Scope
from tidegate.scope.authenticator import Answer
from tidegate.scope.link_greeting import Peer
from tidegate.session import (
    NO_OPTIONS,
    NO_TERMS,
    Connection,
    Context,
    Grant,
    Limits,
    Link,
    Message,
    MessageOptions,
    Origin,
    Session,
    Site,
    Subject,
    Terms,
    Volatile,
)
from tidegate.topics import share
from tidegate.wire import V5, Connect, Subscription

PLANS: Final = 50_000  # what the plans of one scope may cost together: some 20 MB
WITHDRAWN: Final = Deny(step=Step.WRITE, rule="withdrawn")
NO_SCOPE: Final = Deny(step=Step.WRITE, rule="no scope")
NO_LINK: Final = Deny(step=Step.BROKERING, rule="no link")

Pairs = tuple[tuple[str, str], ...]

NOWHERE: Final = Origin("0" * 16, 0)


class FieldNotRecorded(BaseException):
    """Not an Exception: an evaluator takes those for failures of a condition, which deny."""


class Payload(bytes):
    """Content that nobody wrote down."""

    def __len__(self) -> int:
        raise FieldNotRecorded("the payload")

    def __getitem__(self, at: SupportsIndex | slice) -> int | bytes:  # type: ignore[override]
        raise FieldNotRecorded("the payload")


PAYLOAD: Final = Payload()


def _not_recorded(field: str) -> property:
    """A field that cannot be read; what is written to it is not kept."""

    def read(_: object) -> NoReturn:
        raise FieldNotRecorded(field)

    return property(read, lambda _, value: None)


class RefusedMessage(Message):
    """A message of which only topic and publisher were written down: it was refused."""

    __slots__ = ()

    def __init__(self, topic: str, published: float, context: bytes, link: str) -> None:
        super().__init__(topic, PAYLOAD, 0, False, published, NOWHERE, 0, context, link)

    qos: Any = _not_recorded("the QoS")
    retain: Any = _not_recorded("the retain flag")
    properties: Any = _not_recorded("the user properties")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedSubscription:
    filter: str
    options: int
    properties: Pairs = ()

    @property
    def no_local(self) -> bool:
        return bool(self.options & 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Publisher:
    """A publisher on one side: who it is by these rules, and where it speaks."""

    scope: Scope
    link: Link
    options: MessageOptions
    context: bytes
    lane: Lane | None
    """None: a monitor made what it says, and how that was found is told by the context alone."""

    def its(self, sealed: bool) -> bytes:
        """The context of a message of its own."""
        return replace(Context.decode(self.context), sealed=True).encode() if sealed else self.context


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    gate: Gate
    lane: Lane
    plan: Plan
    message: Message | None  # as it is there; None where nothing has to be asked of it


class ReplayEngine:
    def __init__(self, rules: RuleSet, node: str) -> None:
        self.rules = replace(rules, capabilities=None)  # nobody's was recorded
        self._wall = 0.0
        self.site = Site(
            store=Volatile(), origin=NOWHERE, limits=Limits(), on_open=self._opened, random_id=lambda: "replayed"
        )
        self.realm = Realm(node=node, site=self.site, authenticator=_Recorded(), rules=self.rules)
        for scope in self.realm.scopes.values():
            scope.gate.watched = True  # no fast lanes, which nobody takes here
            scope.gate.cache.bound = PLANS
        first = next(iter(self.realm.scopes.values()))
        self._there = Connection(site=self.site, host=first, listener=_Listening(), on_bug=_bug)

    # -- the clock -----------------------------------------------------------------------------------------------

    def _opened(self) -> None:
        self.site.now = self.site.wall = self._wall

    def at(self, wall: float) -> None:
        """It is another moment. What was decided by the clock is decided anew if it has to be."""
        self._wall = wall
        self.site.opened = False
        self.site.open()

    # -- who is there --------------------------------------------------------------------------------------------

    def recorded(self, subject: Subject) -> Session | None:
        """A session; None if there is no such scope by these rules."""
        scope = self.realm.scopes.get(subject.scope)
        if scope is None:
            return None
        return Session(site=self.site, decider=scope.path.egress, principal="", client=subject.client, subject=subject)

    def identify(self, session: Session, subject: Subject, properties: Pairs, connected: bool) -> None:
        """Who it is from now on, and whether it is connected."""
        scope = self.realm.scopes[session.home]
        types = self.rules.brokering.types(subject)
        session.identify(subject, read_demand(self.rules.levels, properties), b"", types, scope.entrance.name)
        session.generation = -1 if self.rules.brokering.objection(subject) else self.site.generation
        session.connection = self._there if connected else None
        for filter in session.subscriptions or ():
            self._touch(scope, filter)

    def subscribe(self, session: Session, recorded: RecordedSubscription) -> None:
        self.unsubscribe(session, recorded.filter)
        scope = self.realm.scopes[session.home]
        options = recorded.options
        subscription = Subscription(
            filter=recorded.filter,
            qos=options & 3,
            no_local=recorded.no_local,
            retain_as_published=bool(options & 8),
            retain_handling=options >> 4 & 3,
        )
        text = next((value for name, value in recorded.properties if name == WHERE), None)
        terms = Terms(read_demand(self.rules.levels, recorded.properties), text)
        where = None
        if text is not None:
            try:
                where = condition(text, self.rules.functions)
            except ConfigError:
                where = None  # it calls a function that these rules do not have: nothing meets it
        grant = Grant(session, subscription, options & 3, None, terms if terms.asks else NO_TERMS, where)
        group, inner = share(recorded.filter)
        if session.subscriptions is None:
            session.subscriptions = {}
        session.subscriptions[recorded.filter] = grant
        if group is None:
            scope.subscriptions.add(inner, session, grant)
        else:
            grant.group = (group, inner)
            scope.shares.add(group, inner, session, grant)
        self._touch(scope, recorded.filter)

    def unsubscribe(self, session: Session, filter: str) -> None:
        if not session.subscriptions or session.subscriptions.pop(filter, None) is None:
            return
        scope = self.realm.scopes[session.home]
        group, inner = share(filter)
        if group is None:
            scope.subscriptions.remove(inner, session)
        else:
            scope.shares.remove(group, inner, session)
        self._touch(scope, filter)

    def _touch(self, scope: Scope, filter: str) -> None:
        gate = scope.gate
        gate.cache.touch(share(filter)[1])
        while gate.cache.deferred and gate.cache.sweep():
            pass

    # -- who speaks ----------------------------------------------------------------------------------------------

    def publisher(
        self, context: Context, data: bytes, demand: Demand | None, options: MessageOptions, derived: bool
    ) -> Publisher | Deny:
        """A publisher by these rules; why it may say nothing at all. `derived`: by a monitor, of what it published."""
        subject = context.subject
        home = self.realm.scopes.get(subject.scope)
        if home is None:
            return NO_SCOPE
        if self.rules.brokering.objection(subject):
            return WITHDRAWN
        scope = home.entrance
        link = Link(subject, True, self.rules.brokering.types(subject).inward, demand, scope.name)
        if derived:
            return Publisher(scope=scope, link=link, options=NO_OPTIONS, context=data, lane=None)
        encoded = scope.gate.context(link, options).encode()
        return Publisher(scope=scope, link=link, options=options, context=encoded, lane=scope.gate.lane(link, V5))

    def lane(self, publisher: Publisher) -> Lane:
        """Looked for each time: some lanes go with their last plan."""
        gate = publisher.scope.gate
        if publisher.lane is None:
            data = publisher.context
            return gate.derived_lane(data, gate.attributes.decoded(data), publisher.link.type, None)
        return (
            publisher.lane
            if publisher.options is NO_OPTIONS
            else gate.options_lane(publisher.lane, publisher.link, publisher.options)
        )

    def plan(self, publisher: Publisher, lane: Lane, name: bytes) -> Plan:
        return lane.plans.get(name) or publisher.scope.gate.plan(lane, name)

    # -- where it goes -------------------------------------------------------------------------------------------

    def arrivals(self, publisher: Publisher, lane: Lane, plan: Plan, message: Message | None) -> list[Arrival]:
        """The scopes that a message comes to, in the order of `scope.traversal`.

        Without a message only those that every message comes to: see `steady`.
        """
        scope = publisher.scope
        arrivals: list[Arrival] = []
        crossed: set[ScopeExit] = set()
        first = Arrival(gate=scope.gate, lane=lane, plan=plan, message=message)
        waiting: deque[tuple[Arrival, tuple[str, ...]]] = deque([(first, (scope.name,))])
        while waiting:
            here, path = waiting.popleft()
            arrivals.append(here)
            for branch in here.plan.branches:
                exit = branch.exit
                if exit.target in path or exit in crossed:
                    continue
                come, lane = here.message, branch.lane
                if come is not None:
                    shown = branch.passage.show(come)
                    if isinstance(shown, Deny):
                        continue
                    cut = shown is not come
                    come = _called(shown, branch)
                    context = exit.gate.attributes.context(come)
                    if cut and context.signed:
                        come = unsigned(come, context)
                        context = replace(context, signed=False)
                        lane = exit.gate.derived_lane(come.context, context, exit.link.type, None)
                crossed.add(exit)
                there = lane.plans.get(branch.name) or exit.gate.plan(lane, branch.name)
                waiting.append((Arrival(gate=exit.gate, lane=lane, plan=there, message=come), (*path, exit.target)))
        return arrivals

    def steady(self, arrivals: list[Arrival]) -> bool:
        """Whether every message of this kind comes to these scopes, whatever is in it."""
        return all(branch.clear for each in arrivals for branch in each.plan.branches)

    def unreached(self, arrivals: list[Arrival], scope: str) -> Deny:
        for each in arrivals:
            for link, why in each.plan.denied:
                if link.subject.kind == "link" and link.target == f"scope:{scope}":
                    return why
        return NO_LINK

    # -- by which rule -------------------------------------------------------------------------------------------

    def allowed_in(self, gate: Gate, lane: Lane, topic: str, message: Message | None) -> str:
        known = Known(topic=topic, context=lane.context, link=lane.link, now=self.site.wall)
        return _spoken(gate.stages.ingress, known, message)[0]

    def allowed_out(
        self, arrival: Arrival, session: Session, grant: Grant | None, message: Message | None
    ) -> tuple[str, View]:
        """By which rules somebody may have it, and what of it."""
        known = Known(
            topic=arrival.plan.topic,
            context=arrival.lane.context,
            link=arrival.lane.link,
            now=self.site.wall,
            target=session.outward,
            away=session.connection is None,
            terms=NO_TERMS if grant is None else grant.terms,
            where=None if grant is None else grant.where,
        )
        return _spoken(arrival.gate.stages.egress, known, message)


def _spoken(stages: tuple[Stage, ...], known: Known, message: Message | None) -> tuple[str, View]:
    """The rules that allowed something, in the order of the steps, and what they leave of it."""
    rules: list[str] = []
    view = ALL
    for stage in stages:
        answer = stage.evaluate(known)
        if isinstance(answer, Residual):
            assert message is not None
            answer = answer.decide(message)
        if not isinstance(answer, Deny):
            view &= answer.view
            if answer.rule:
                rules.append(answer.rule)
    return ", ".join(dict.fromkeys(rules)), view


def _called(message: Message, branch: Branch) -> Message:
    context = message.context
    lowered = branch.qos < 2 and branch.qos < message.qos
    if branch.renamed or lowered:
        lane_context = branch.lane.context
        context = replace(
            lane_context, qos=message.qos if lowered and lane_context.qos is None else lane_context.qos
        ).encode()
    qos = branch.qos if lowered else message.qos
    return message.across(branch.topic, qos, context, branch.exit.link.type, message.properties)


class _Recorded:
    """Nobody connects to the past. Whoever is not up to the rules has no business here by them."""

    def authenticate(self, connection: Connection, packet: Connect, answer: Answer) -> None:
        answer(Refused())

    def exchange(self, connection: Connection, packet: Connect, method: str) -> Exchange | None:
        return None

    def completed(self, connection: Connection, client: str, identity: Identity) -> Identity | Refused:
        return Refused()

    def peer(self, connection: Connection, expected: str | None, plain: bool = False) -> Peer | Refused:
        return Refused()

    def reauthorize(self, session: Session) -> Identity | Refused:
        return Refused()


class _Listening:
    name = "replay"
    max_packet = 1
    publish_rate: float | None = None
    publish_burst = 1.0


def _bug(connection: Connection, error: BaseException) -> NoReturn:
    raise error
