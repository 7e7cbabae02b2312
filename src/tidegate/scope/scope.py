"""One event space: sessions, routing and the gate put together.

Everything that is published goes through `publish` or a peer's plan, and so through the gate: clients, wills, and
the node's own services. Everything that is delivered was decided at the moment of sending.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from tidegate.errors import ProtocolError
from tidegate.flow.presence import Presence
from tidegate.flow.watch import Watch
from tidegate.gate import Deny, Gate, Lane, Plan, RuleSet
from tidegate.monitor import ModeRevision
from tidegate.policy import Demand
from tidegate.policy.capability import BEFORE, NOTHING
from tidegate.policy.scopes import Role
from tidegate.routing import Shares, Subscriptions
from tidegate.scope.audit import Audit, Silent
from tidegate.scope.authenticator import ANONYMOUS, Accepted, Authenticator, Identity, Refused
from tidegate.scope.capability_expiry import Validity
from tidegate.scope.handshake import Handshake
from tidegate.scope.path import Path
from tidegate.scope.protection import Keyring
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
    Route,
    Session,
    Site,
    StoredSession,
    Subject,
    Terms,
    forwarded,
)
from tidegate.topics import matches
from tidegate.wire import (
    NONE,
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
        self.retained = Retained(site, self._deliver_retained, name)
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
        self.sharing = Sharing(self)
        self.path = Path(self, keyring, stopwatch)
        self.path.change()
        self._authenticator = authenticator
        self._sweeping = False
        self.validity = Validity(self)
        self._handshake = Handshake(self, authenticator)
        self._subscribing = Subscribing(self)

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
        self.path.monitoring.states.attach(session)

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
        self.path.change()
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
            self.path.monitoring.states.settle()
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
        self.path.monitoring.states.down(session)
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
        self.sharing.hand_round(back)
        session.clear()
        self.path.monitoring.states.ended(session)

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
            self.entrance.path.send(
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

    # -- what the path asks of its scope ---------------------------------------------------------------------------

    def _deliver_retained(self, session: Session, grant: Grant, message: Message) -> None:
        self.path.deliver_retained(session, grant, message)

    def matching(self, session: Session, topic: str, group: tuple[str, str] | None) -> Iterator[Grant]:
        """The subscriptions of a session that match a topic: those of its own, or of a shared subscription."""
        for filter, grant in (session.subscriptions or {}).items():
            if grant.group == group and matches(filter if group is None else group[1], topic):
                yield grant

    def explained(self, text: str, why: Deny) -> str:
        """A reason string; it names the rule where the node may say so."""
        return f"{text}: denied by {why.rule}" if self.site.limits.explain else text

    def permits(self, session: Session, delivery: Delivery) -> Message | None:
        return self.path.permits(session, delivery)

    def monitored(self, session: Session, delivery: Delivery, shown: Message | None) -> list[tuple[Delivery, Message]]:
        return self.path.monitored(session, delivery, shown)

    def listened(self, session: Session, topic: str) -> bool:
        return self.path.monitoring.listened(session, topic)

    def caught_up(self, session: Session) -> None:
        self.path.monitoring.states.caught_up(session)

    def hand_on(self, delivery: Delivery) -> None:
        self.sharing.hand_round([delivery])

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
