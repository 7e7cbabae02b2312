"""One event space: sessions, routing and the gate put together.

Everything that is published goes through `publish` or a peer's plan, and so through the gate: clients, wills, and
the node's own services. Everything that is delivered was decided at the moment of sending.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from tidegate.errors import ProtocolError
from tidegate.flow.presence import Presence
from tidegate.flow.watch import Watch
from tidegate.gate import Deny, Gate, Lane, Plan, RuleSet, Step, passed, undecided
from tidegate.monitor import ModeRevision
from tidegate.policy import Demand
from tidegate.policy.brokering import PLAIN
from tidegate.policy.capability import BEFORE, NOTHING
from tidegate.policy.control import KEYS
from tidegate.policy.scopes import Role
from tidegate.routing import Shares, Subscriptions
from tidegate.scope.audit import Audit, Silent
from tidegate.scope.authenticator import ANONYMOUS, Accepted, Authenticator, Identity, Refused
from tidegate.scope.capability_expiry import Validity
from tidegate.scope.handshake import Handshake
from tidegate.scope.journey import Journey, crossed
from tidegate.scope.monitors import Monitoring
from tidegate.scope.protection import Keyring, Protector
from tidegate.scope.publisher_rules import Publishers
from tidegate.scope.retained import Retained
from tidegate.scope.shared_subscriptions import Sharing
from tidegate.scope.subscribing import Subscribing
from tidegate.session import (
    NEVER,
    NO_OPTIONS,
    Context,
    Delivery,
    Grant,
    Line,
    Link,
    Message,
    MessageOptions,
    Peer,
    Refusal,
    Route,
    Session,
    Site,
    StoredSession,
    Subject,
    Terms,
    forwarded,
    with_floor_properties,
)
from tidegate.wire import (
    NONE,
    V5,
    Auth,
    Connect,
    Disconnect,
    Properties,
    Reason,
    Subscribe,
    Unsubscribe,
)

CONTEXTS = 8  # of messages with wishes, kept for each connection
REVIEW = 20  # sessions looked at per turn after a change of the rules: about a millisecond

Key = tuple[str, str]  # principal, client id
NOBODY = Silent()


class Scope:
    """One event space of a node."""

    def __init__(
        self,
        *,
        name: str,
        node: str,
        site: Site,
        authenticator: Authenticator,
        rules: RuleSet,
        audit: Audit = NOBODY,
        stopwatch: Callable[[], float] = lambda: 0.0,
        publishers: Publishers | None = None,
        shift: ModeRevision | None = None,
        keyring: Keyring | None = None,
    ) -> None:
        self.name = name
        self.node = node
        self.site = site
        self.audit = audit
        self.sessions: dict[Key, Session] = {}
        self.subscriptions: Subscriptions[Session, Grant] = Subscriptions()
        self.shares: Shares[Session, Grant] = Shares()
        self.retained = Retained(site, self._send_retained, name)
        self.publishers = Publishers(site, {name: self}, audit) if publishers is None else publishers
        self.entrance = self  # where its clients publish
        self.neighbours: Mapping[str, Scope] = {name: self}  # all scopes of the node
        self.watch = Watch(rules.space, rules.brokering, ())  # over flows that are forbidden
        self._present: dict[Session, Presence] = {}  # of those who are connected, if they could open one
        self.gate = Gate(
            self.subscriptions,
            self.shares,
            rules=rules,
            clock=site,
            fresh=self.fresh,
            retired=audit.retired,
            publishers=self.publishers,
            compiled=self._compiled,
            mode_revision=shift,
        )
        site.on_alarm.append(self.gate.cache.tick)
        self.connected = 0
        self.protector = Protector(self, keyring)
        self.monitoring = Monitoring(self, stopwatch)
        self.monitoring.change()
        self._authenticator = authenticator
        self._sweeping = False
        self.validity = Validity(self)
        self._handshake = Handshake(self, authenticator)
        self._subscribing = Subscribing(self)
        self._sharing = Sharing(self)

    # -- coming (session.Host) ---------------------------------------------------------------------------------

    def connect(self, peer: Peer, packet: Connect) -> None:
        self._handshake.connect(peer, packet)

    def welcome(self, peer: Peer, packet: Connect, identity: Identity, accepted: Accepted | None) -> None:
        """Somebody who has said who it is, and belongs here."""
        self._handshake.welcome(peer, packet, identity, accepted)

    def auth(self, peer: Peer, packet: Auth) -> None:
        self._handshake.auth(peer, packet)

    def plan(self, peer: Line, topic: bytes) -> Route:
        return self._asked(self._lane(peer), topic)

    def _asked(self, lane: Lane, topic: bytes) -> Plan:
        """For what a client publishes."""
        plan = lane.plans.get(topic)
        if plan is not None:
            return plan
        if topic.count(b"/") >= self.site.limits.topic_levels:
            raise ProtocolError("too many topic levels", Reason.TOPIC_NAME_INVALID)
        return self.gate.plan(lane, topic)

    def found(self, lane: Lane, topic: bytes) -> Plan:
        """For what is here already: a link may have put levels in front of its topic."""
        return lane.plans.get(topic) or self.gate.plan(lane, topic)

    def _lane(self, peer: Line) -> Lane:
        """The rules may have changed since it connected."""
        session = peer.session
        if not session.decider.fresh(session):
            raise ProtocolError("your access has been withdrawn", Reason.NOT_AUTHORIZED)
        lane = peer.lane
        if not isinstance(lane, Lane) or lane.version != self.gate.version:
            lane = peer.lane = self.gate.lane(session.inward, peer.version)
        return lane

    def _compiled(self, lane: Lane, plan: Plan) -> None:
        """A plan was made, which it is told of by the gate."""
        self.site.effort += 1 if self.gate.rules.policies is None else 5  # with policies it takes as much longer
        self.audit.compiled(lane, plan)
        self._complain(plan)

    def _complain(self, plan: Plan) -> None:
        """Conditions that failed when the plan was made, and counted as false."""
        for session, errors in plan.failed:
            self.audit.failed(session.outward, plan.topic, errors)

    def read_options(self, properties: Properties) -> tuple[MessageOptions, Properties]:
        options, left = self.gate.read_options(properties)
        if left is properties.user_properties:
            return NO_OPTIONS, properties
        properties = replace(properties, user_properties=left)
        return options, NONE if properties == NONE else properties

    def plan_as(self, peer: Line, topic: bytes, options: MessageOptions) -> tuple[Route, bytes]:
        base, link = self._lane(peer), peer.session.inward
        lane = self.gate.options_lane(base, link, options)
        contexts = peer.contexts
        if contexts is None or contexts[0] is not link:
            contexts = peer.contexts = (link, {})
        context = contexts[1].get(options)
        if context is None:
            if len(contexts[1]) >= CONTEXTS:
                contexts[1].clear()
            context = contexts[1][options] = self.gate.context(link, options).encode()
        return self._asked(lane, topic), context

    def plan_of(self, peer: Line, message: Message) -> Route:
        if not peer.session.decider.fresh(peer.session):
            raise ProtocolError("your access has been withdrawn", Reason.NOT_AUTHORIZED)
        if message.context == peer.session.context and message.link == peer.session.inward.type:
            topic = message.topic.encode()
            route = peer.lane.plans.get(topic) or self.plan(peer, topic)
            if route.refusal is None:
                return self._sealing(route, message, peer.session)
        # It asked for something of its own, came over an earlier connection or under earlier rules. It was admitted
        # then, and is not asked again on the way in.
        # Kept, for the next of the same kind: what lies behind links is found by it.
        lane = self.gate.derived_lane(message.context, self.gate.attributes.context(message), message.link, None)
        return self._sealing(self.found(lane, message.topic.encode()), message, peer.session)

    def _sealing(self, route: Route, message: Message, source: Session) -> Route:
        """Its route, after it was sealed, if it came before its topic was protected."""
        assert isinstance(route, Plan)
        if route.sealing is None or (why := self.protector.protect(route, message)) is None:
            return route
        self.report("write", source.inward, message.topic, why)
        message.retain = False
        return Plan(message.topic, self.gate.version)  # to nobody

    # -- who they are ------------------------------------------------------------------------------------------

    def subject(self, identity: Identity, *, client: str, address: str, listener: str) -> Subject:
        return Subject(
            kind="client",
            client=client,
            user=identity.user,
            scope=self.name,
            node=self.node,
            domain=self.gate.rules.domain,
            level=identity.level,
            address=address,
            listener=listener,
            roles=identity.roles,
            groups=identity.groups,
            tls=identity.tls,
            impostor=identity.impostor,
            principal=identity.principal if identity.user is None and identity.principal != ANONYMOUS else "",
            attributes=identity.attributes,
            capability=identity.capability,
        )

    def identify(self, session: Session, subject: Subject, demand: Demand | None) -> None:
        """Who a session's client is, and what it demands, under the rules in force."""
        types = self.gate.rules.brokering.types(subject)
        context = self.gate.context(Link(subject, True, types.inward, demand))
        old = session.subject
        session.identify(subject, demand, context.encode(), types, self.entrance.name)
        session.generation = self.site.generation
        self.publishers.came(session, old)
        self.monitoring.states.attach(session)

    def objection(self, identity: Identity, subject: Subject) -> str:
        """Why a client may not be connected here; empty if it may."""
        if identity.scopes and self.front not in identity.scopes:
            return f"you may not connect to the scope {self.front}"
        if self.front != self.name:
            placed = self.gate.rules.space.role(self.front, subject.roles)
            if not isinstance(placed, Role):
                return placed or ""
            if placed.receiving != self.name:
                return "brokering: you have another role now; connect again"
        return self.gate.rules.brokering.objection(subject)

    @property
    def front(self) -> str:
        """The scope that its clients connect to: with roles, the bus."""
        return self.gate.rules.space.bus if self.entrance is not self else self.name

    def presence(self, subject: Subject, rules: RuleSet | None = None) -> Presence:
        """Where a client is in the connection graph, under these rules or those in force."""
        types = (rules or self.gate.rules).brokering.types(subject)
        return Presence(
            client=subject.name,
            enters=self.entrance.name,
            leaves=self.name,
            inward=types.inward,
            outward=types.outward,
        )

    def observe(self, watch: Watch) -> None:
        """Another watch over flows, which has to know who is here."""
        self.watch = watch
        self._present.clear()
        for session in list(self.sessions.values()):
            if session.peer is None or not watch.concerns(session.subject.name):
                continue
            if not self.fresh(session):
                continue  # the review of the change sends it away
            if why := watch.objection(self.presence(session.subject)):
                session.peer.close(Reason.NOT_AUTHORIZED, why)  # it came while the rules were changing
            else:
                self.seen(session)

    def seen(self, session: Session) -> None:
        """A client has come, or is somebody else now."""
        self._unseen(session)
        if self.watch.concerns(session.subject.name):
            presence = self._present[session] = self.presence(session.subject)
            self.watch.came(presence)

    def _unseen(self, session: Session) -> None:
        if (presence := self._present.pop(session, None)) is not None:
            self.watch.left(presence)

    def fresh(self, session: Session) -> bool:
        """Brings a session's subject up to the rules in force; False if its access has been withdrawn."""
        if session.generation == self.site.generation:
            return True
        found = self._authenticator.renew(session)
        if isinstance(found, Refused):
            return False
        old = session.subject
        subject = self.subject(found, client=session.client, address=old.address, listener=old.listener)
        if self.objection(found, subject):
            return False
        self.identify(session, subject, session.inward.demand)
        return True

    def change(self, rules: RuleSet) -> None:
        """Other rules. The next message is decided by them; who has to go is told so soon after."""
        before = self.gate.rules
        self.adopt(rules)
        self.publishers.changed(before)
        self.site.generation += 1
        self.review()

    def adopt(self, rules: RuleSet) -> None:
        """Other rules are in force here, and will be in all scopes of the node before anything else happens."""
        self.gate.change(rules)
        self.monitoring.change()
        self.protector.changed()
        self._subscribing.changed()

    def review(self) -> None:
        """Looks at all sessions after a change, in pieces."""
        self.site.unfinished.append(self._review(self.site.generation).__next__)
        self.sweep()

    def _review(self, generation: int) -> Iterator[bool]:
        """Looks at all sessions after a change: those without access go, held subscriptions may come alive."""
        for number, session in enumerate(list(self.sessions.values()), 1):
            if generation != self.site.generation:
                break  # another change has begun another review
            if not self.fresh(session):
                self.drop_will(session)
                if session.peer is not None:
                    session.peer.close(Reason.NOT_AUTHORIZED, "your access has been withdrawn")
            elif session.subscriptions:
                self.wake(session)
            if number % REVIEW == 0:
                yield True
        else:
            self.monitoring.states.settle()
        yield False

    def sweep(self) -> None:
        if self.gate.cache.deferred and not self._sweeping:
            self._sweeping = True
            self.site.unfinished.append(self._swept)

    def _swept(self) -> bool:
        self._sweeping = self.gate.cache.sweep()
        return self._sweeping

    # -- going -------------------------------------------------------------------------------------------------

    def disconnected(self, peer: Line, packet: Disconnect | None, reason: Reason) -> None:
        """A connection ended. The session stays as long as it asked to."""
        session = peer.session
        if session.peer is not peer:
            return
        session.detach()
        self.validity.left(session)
        self._unseen(session)
        self.connected -= 1
        self.monitoring.states.down(session)
        self.audit.disconnected(session, reason)
        if packet is not None:
            asked = packet.properties.session_expiry_interval
            if asked is not None:
                session.expiry = self.allowed_expiry(asked)
            if packet.reason == Reason.SUCCESS:  # [MQTT-3.14.4-3]
                session.will = None
        if self.site.closing and session.will is not None and session.expiry:
            # MQTT 5, 3.1.2.5: at shutdown wills may wait for the next start; those of persistent sessions do
            session.save()
            return
        if not session.expiry:
            self.end(session)
            return
        if session.will is not None:
            delay = min(session.will.properties.will_delay_interval or 0, session.expiry)
            if delay:
                session.will_timer = self.site.timers.at(self.site.now + delay, self._fire, session)
            else:
                self._fire(session)
        self._expire_later(session, session.expiry)
        session.save()
        self.retouch(session)  # what it is owed from now on is sent over another connection

    def allowed_expiry(self, asked: int) -> int:
        longest = self.site.limits.session_expiry
        return asked if longest is None else min(asked, longest)

    def _expire_later(self, session: Session, seconds: float) -> None:
        if session.expiry != NEVER:
            session.timer = self.site.timers.at(self.site.now + seconds, self.end, session)

    def end(self, session: Session) -> None:
        """The session is over: its subscriptions go, its will is due, what others could take is handed to them."""
        self.sessions.pop((session.principal, session.client), None)
        self.publishers.ended(session)
        timers = self.site.timers
        timers.cancel(session.timer)
        timers.cancel(session.will_timer)
        session.timer = session.will_timer = None
        shared = False
        for filter in session.subscriptions or ():
            shared = self._subscribing.forget(session, filter) or shared
        back = session.shared_out() if shared else []
        session.subscriptions = None
        if session.will is not None:
            self._fire(session)
        self._sharing.hand_round(back)
        session.clear()
        self.monitoring.states.ended(session)

    def _fire(self, session: Session) -> None:
        """The will, decided now like any other publish."""
        will = session.will
        session.will = session.will_timer = None
        if will is None or not self.fresh(session):
            return
        properties = will.properties
        capability = session.subject.capability
        if capability is not None and session.will_proven:
            capability.ledger.shown = BEFORE  # with CONNECT
        try:
            self.entrance.publish(
                session.inward,
                will.topic,
                will.payload,
                qos=will.qos,
                retain=will.retain,
                properties=forwarded(properties),
                expiry=properties.message_expiry_interval,
                source=session,
            )
        finally:
            if capability is not None:
                capability.ledger.shown = NOTHING
        if session.row:
            session.save()

    def drop_will(self, session: Session) -> None:
        """semantics.md, Time: a revoked subject's will is dropped."""
        self.site.timers.cancel(session.will_timer)
        session.will = session.will_timer = None
        if session.row:
            session.save()

    # -- publishing --------------------------------------------------------------------------------------------

    def publish(
        self,
        link: Link,
        topic: str,
        payload: bytes,
        *,
        qos: int = 0,
        retain: bool = False,
        properties: Properties = NONE,
        expiry: int | None = None,
        source: Session | None = None,
        recorded: bool = False,
    ) -> Deny | int:
        """What does not come as a PUBLISH packet: wills, services, clients without a connection.

        How many it reached, or why not. `recorded`: it has been written down, whatever monitors make of it now.
        """
        site = self.site
        lane = self.gate.lane(link, V5)
        options = NO_OPTIONS
        if properties.user_properties:
            options, properties = self.read_options(properties)
            if options is not NO_OPTIONS:
                lane = self.gate.options_lane(lane, link, options)
        if lane.floor_properties is not NONE:
            properties = with_floor_properties(properties, lane.floor_properties)
        name = topic.encode()
        plan = lane.plans.get(name) or self.gate.plan(lane, name)
        site.number += 1
        message = Message(
            topic,
            payload,
            qos,
            retain,
            site.wall,
            site.origin,
            site.number,
            self.gate.context(link, options).encode(),
            link.type,
            properties,
            None if expiry is None else site.now + expiry,
        )
        refusal = plan.refusal or self.refusal(plan, message)
        if refusal is None and not plan.monitored:
            refusal = self.protector.protect(plan, message)
        if refusal is not None:
            self.report("write", link, topic, refusal)
            return refusal
        hand_on = self.route if recorded else self.record
        if not plan.monitored:
            return hand_on(plan, message, source)
        if source is None:
            events, _ = self.monitoring.enter_alone(link, message, plan)
        else:
            events, _ = self.monitor(plan, message, source)
        return sum(hand_on(way, one, source) for way, one in events)

    def record(self, plan: Route, message: Message, source: Session | None) -> int:
        """Steps 5 and following, for what nobody waits to see acknowledged: written down if it has to be, and routed.

        That is done once, where a message enters the node, under the topic that it has there: what links between scopes
        make of it is not written down again.
        """
        if plan.ingested:
            self.site.journal.write(message)
        return self.route(plan, message, source)

    def admit(self, route: Route, message: Message) -> Refusal | None:
        assert isinstance(route, Plan)
        if route.control:
            refusal = undecided(route.admission, message)
            return refusal if refusal is not None or message.topic in KEYS else self.publishers.take(message)
        refusal = self.refusal(route, message) if route.admission or message.retain else None
        if refusal is not None or route.monitored:
            return refusal  # monitors see it as it came
        return self.protector.protect(route, message)

    def monitor(
        self, route: Route, message: Message, source: Session
    ) -> tuple[Sequence[tuple[Route, Message]], Refusal | None]:
        return self.monitoring.enter(source, message, route)

    def refusal(self, plan: Plan, message: Message) -> Deny | None:
        return self.retained.refusal(message) or undecided(plan.admission, message)

    def denied(self, session: Session, topic: str, refusal: Refusal) -> None:
        assert isinstance(refusal, Deny)
        self.report("write", session.inward, topic, refusal)

    def report(self, action: str, link: Link, topic: str, why: Deny) -> None:
        if why.step is Step.WHERE:  # it does not want it: nobody has denied anything
            if why.error:
                self.audit.failed(link, topic, ((why.rule, why.error),))
            return
        self.site.counters.denied += 1
        self.audit.denied(action, link, topic, why)

    def explained(self, text: str, why: Deny) -> str:
        """A reason string; it names the rule where the node may say so."""
        return f"{text}: denied by {why.rule}" if self.site.limits.explain else text

    def route(self, plan: Route, message: Message, source: Session | None) -> int:
        """Delivers to everybody the plan names, in all scopes that it leads to; to how many."""
        assert isinstance(plan, Plan)
        if plan.control:
            return self._spoken(message, source)
        if self.gate.watched:
            self.audit.published(message, self.gate.attributes.context(message).subject)
        if not plan.branches:
            return self.arrived(plan, message, source)
        if not plan.plain or message.retain or message.properties.response_topic is not None:
            return Journey(message, source).begin(self, plan, message)
        plan.passed += 1
        busy = plan.busy
        if len(busy) == 1 and plan.idle:
            exit, other = busy[0]
            message.link = exit.link.type  # nobody sees it who would have to know another
            reached: int = exit.scope.hand_out(other, message, source)
            return reached
        seen: set[tuple[object, int]] | None = set() if plan.twice else None
        reached = self.hand_out(plan, message, source, seen)
        for exit, other in busy:
            one = crossed(message, exit)
            reached += exit.scope.hand_out(other, one, source, seen)
            if one.rows or one.noted:
                message.noted = True
        return reached

    def _spoken(self, message: Message, source: Session | None) -> int:
        """Something that was said to the node itself: rules have been taken, a request for a key is answered."""
        keyring = self.protector.keyring
        if message.topic not in KEYS:
            return 1
        return 0 if keyring is None or source is None else keyring.ask(self, source, message)

    def tell(self, session: Session, context: bytes, topic: str, payload: bytes, properties: Properties) -> bool:
        """Something for one client alone, if it has subscribed to that; it is decided like anything else it is sent."""
        grant = (session.subscriptions or {}).get(topic)
        if grant is None or session.peer is None:
            return False
        site = self.site
        site.number += 1
        message = Message(
            topic, payload, 1, False, site.wall, site.origin, site.number, context, PLAIN.inward, properties
        )
        found = self.gate.decide(message, session, grant)
        if isinstance(found, Deny):
            self.report("read", session.outward, topic, found)
            return False
        session.deliver(message, min(1, grant.qos), False, grant.ids, None, found)
        return True

    def arrived(
        self, plan: Plan, message: Message, source: Session | None, seen: set[tuple[object, int]] | None = None
    ) -> int:
        """A message is here: kept if it is retained, and delivered to whomever the plan names here.

        `seen`: who has been delivered it, of those that it could be delivered to more than once.
        """
        if plan.flat:
            plan.apart += 1
        else:
            plan.passed += 1
        if message.retain and (seen is None or _first(seen, (self.retained, message.topic), message)):
            self.retained.keep(message)
        return self.hand_out(plan, message, source, seen)

    def hand_out(
        self, plan: Plan, message: Message, source: Session | None, seen: set[tuple[object, int]] | None = None
    ) -> int:
        """Delivers to whomever a plan names in this scope."""
        retain = message.retain
        qos = message.qos
        for target in plan.targets:
            grant = target
            session = grant.session
            if seen is not None and not _first(seen, session, message):
                continue
            if session is source:
                if grant.no_local:
                    continue
                grant = grant.own or grant
            session.deliver(
                message,
                qos if qos < grant.qos else grant.qos,
                retain and grant.retain_as_published,
                grant.ids,
            )
        reached = len(plan.targets)
        for ways in plan.conditional:
            session = ways[0].session
            if seen is not None and (session, message.output) in seen:
                continue
            found = passed(ways, message)
            if isinstance(found, Deny):
                self.report("read", session.outward, message.topic, found)
                continue
            grant, shown = found
            if seen is not None:
                seen.add((session, message.output))
            for way in ways:
                if way.failed:
                    self.audit.failed(session.outward, message.topic, way.failed)
            reached += 1
            if session is source:
                if grant.no_local:
                    continue
                grant = grant.own or grant
            session.deliver(message, min(qos, grant.qos), retain and grant.retain_as_published, grant.ids, None, shown)
        for group, members in plan.groups:
            if seen is None or (group, message.output) not in seen:
                sent = self._sharing.send(group, message, members)
                reached += sent
                if sent and seen is not None:
                    seen.add((group, message.output))
        if plan.hearing:
            self.monitoring.overhear(plan, message, seen)
        return reached

    # -- decided when it is sent -------------------------------------------------------------------------------

    def _send_retained(self, session: Session, grant: Grant, message: Message) -> None:
        if grant.no_local and self.own(session, message):
            return
        found = self.gate.decide(message, session, grant)
        if isinstance(found, Deny):
            self.report("read", session.outward, message.topic, found)
            return
        if self.gate.stored.failed:
            self.audit.failed(session.outward, message.topic, self.gate.stored.failed)
        session.deliver(message, min(message.qos, grant.qos), True, grant.ids, None, found)

    def own(self, session: Session, message: Message) -> bool:
        publisher, subject = self.gate.attributes.context(message).subject, session.subject
        return (publisher.client, publisher.user, publisher.scope) == (subject.client, subject.user, subject.scope)

    def permits(self, session: Session, delivery: Delivery) -> Message | None:
        """What of something that waited may be sent now (session.Decider)."""
        found = self.decided(session, delivery)
        if isinstance(found, Deny):
            self.report("read", session.outward, delivery.message.topic, found)
            return None
        if self.gate.stored.failed:
            self.audit.failed(session.outward, delivery.message.topic, self.gate.stored.failed)
        return found

    def hand_round(self, back: list[Delivery]) -> None:
        self._sharing.hand_round(back)

    def hand_on(self, delivery: Delivery) -> None:
        self._sharing.hand_round([delivery])

    def decided(self, session: Session, delivery: Delivery) -> Message | Deny:
        group = delivery.group
        filters = None if group is None else (f"$share/{group[0]}/{group[1]}",)
        return self.gate.permits(delivery.message, session, filters)

    def monitored(self, session: Session, delivery: Delivery) -> list[Delivery]:
        return self.monitoring.leave(session, delivery)

    def listened(self, session: Session, topic: str) -> bool:
        return self.monitoring.listened(session, topic)

    def caught_up(self, session: Session) -> None:
        self.monitoring.states.caught_up(session)

    # -- subscribing (session.Host) ----------------------------------------------------------------------------

    def subscribe(self, session: Session, packet: Subscribe) -> None:
        self._subscribing.subscribe(session, packet)

    def unsubscribe(self, session: Session, packet: Unsubscribe) -> None:
        self._subscribing.unsubscribe(session, packet)

    def wake(self, session: Session, filters: Iterable[str] | None = None) -> None:
        self._subscribing.wake(session, filters)

    def retouch(self, session: Session) -> None:
        self._subscribing.retouch(session)

    # -- from the store ----------------------------------------------------------------------------------------

    def restore(self, record: StoredSession) -> None:
        """A session as the store kept it. One that was connected then has lost its connection with the node."""
        site = self.site
        context = Context.decode(record.context)
        subject = replace(context.subject, scope=self.name, node=self.node, client=record.client)
        session = Session(site=site, decider=self, principal=record.principal, client=record.client, subject=subject)
        session.identify(subject, context.demand, record.context, entrance=self.entrance.name)
        session.generation = -1  # what is known of it now is looked up when it matters
        session.version = record.version
        session.expiry = record.expiry
        session.row = record.row
        session.will = record.will
        session.ended = site.wall if record.ended is None else record.ended
        session.incoming = record.incoming or None
        session.incoming_bytes = sum(one.size for messages in record.incoming.values() for one in messages)
        session.restore(record.deliveries)
        self.sessions[session.principal, session.client] = session
        session.subscriptions = {}
        for subscription, identifier, terms in record.subscriptions.values():
            self._subscribing.restore(session, subscription, identifier, Terms.decode(terms))
        away = max(0.0, site.wall - session.ended)
        left = record.expiry - away
        if session.will is not None:
            delay = max(0.0, min((session.will.properties.will_delay_interval or 0) - away, left))
            session.will_timer = site.timers.at(site.now + delay, self._fire, session)
        self._expire_later(session, max(0.0, left))
        if record.ended is None:
            session.save()  # from now on it is away, also for the start after the next crash


def _first(seen: set[tuple[object, int]], where: object, message: Message) -> bool:
    """Whether nobody has delivered it there; from now on somebody has."""
    key = (where, message.output)
    if key in seen:
        return False
    seen.add(key)
    return True
