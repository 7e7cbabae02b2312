"""One event space: sessions, routing and the gate put together.

Everything that is published goes through `publish` or a peer's plan, and so through the gate: clients, wills, and
the node's own services. Everything that is delivered was decided at the moment of sending.
"""

from __future__ import annotations

from collections.abc import Callable

import cbor2

from tidegate.errors import ProtocolError
from tidegate.gate import ALLOW, Deny, Gate, Plan, Stage, Step, undecided
from tidegate.routing import Group, Shares, Subscriptions
from tidegate.scope.handshake import Handshake
from tidegate.scope.identity import Authenticator
from tidegate.scope.retained import Retained
from tidegate.session import (
    NEVER,
    Delivery,
    Grant,
    Line,
    Link,
    Message,
    Peer,
    Refusal,
    Route,
    Session,
    Site,
    StoredSession,
    Subject,
    forwarded,
)
from tidegate.topics import share
from tidegate.wire import (
    NONE,
    V5,
    Auth,
    Connect,
    Disconnect,
    Properties,
    Reason,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    encode,
)

TOUCH = 100_000  # cached topics looked at per turn because of changed subscriptions, unless one filter costs more

Key = tuple[str, str]  # principal, client id
Audit = Callable[[str, Subject, str, Deny], None]  # action, who, topic, why


class Scope:
    """One event space of a node."""

    def __init__(
        self,
        *,
        name: str,
        node: str,
        site: Site,
        authenticator: Authenticator,
        ingress: tuple[Stage, ...] = (),
        egress: tuple[Stage, ...] = (),
        audit: Audit | None = None,
    ) -> None:
        self.name = name
        self.node = node
        self.site = site
        self.sessions: dict[Key, Session] = {}
        self.subscriptions: Subscriptions[Session, Grant] = Subscriptions()
        self.shares: Shares[Session, Grant] = Shares()
        self.retained = Retained(site, self._send_retained)
        self.gate = Gate(self.subscriptions, self.shares, ingress=ingress, egress=egress)
        self.connected = 0
        self._touched = 0  # cached topics looked at in this turn
        self._touched_at = -1.0
        self._audit = audit
        self._handshake = Handshake(self, authenticator)

    # -- coming (session.Host) ---------------------------------------------------------------------------------

    def connect(self, peer: Peer, packet: Connect) -> None:
        self._handshake.connect(peer, packet)

    def auth(self, peer: Peer, packet: Auth) -> None:
        self._handshake.auth(peer, packet)

    def plan(self, peer: Line, topic: bytes) -> Route:
        if topic.count(b"/") >= self.site.limits.topic_levels:
            raise ProtocolError("too many topic levels", Reason.TOPIC_NAME_INVALID)
        lane = self.gate.lane(peer.session.inward, peer.version)
        peer.lane = lane  # the policies may have changed since it connected
        return lane.plans.get(topic) or self.gate.plan(lane, topic)

    # -- going -------------------------------------------------------------------------------------------------

    def disconnected(self, peer: Line, packet: Disconnect | None, reason: Reason) -> None:
        """A connection ended. The session stays as long as it asked to."""
        session = peer.session
        if session.peer is not peer:
            return
        session.detach()
        self.connected -= 1
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

    def allowed_expiry(self, asked: int) -> int:
        longest = self.site.limits.session_expiry
        return asked if longest is None else min(asked, longest)

    def _expire_later(self, session: Session, seconds: float) -> None:
        if session.expiry != NEVER:
            session.timer = self.site.timers.at(self.site.now + seconds, self.end, session)

    def end(self, session: Session) -> None:
        """The session is over: its subscriptions go, its will is due, what others could take is handed to them."""
        self.sessions.pop((session.principal, session.client), None)
        timers = self.site.timers
        timers.cancel(session.timer)
        timers.cancel(session.will_timer)
        session.timer = session.will_timer = None
        shared = False
        for filter in session.subscriptions or ():
            shared = self._forget(session, filter) or shared
        back = session.shared_out() if shared else []
        session.subscriptions = None
        if session.will is not None:
            self._fire(session)
        self._hand_round(back)
        session.clear()

    def _fire(self, session: Session) -> None:
        """The will, decided now like any other publish."""
        will = session.will
        session.will = session.will_timer = None
        if will is None:
            return
        properties = will.properties
        self.publish(
            session.inward,
            session.context,
            will.topic,
            will.payload,
            qos=will.qos,
            retain=will.retain,
            properties=forwarded(properties),
            expiry=properties.message_expiry_interval,
            source=session,
        )
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
        context: bytes,
        topic: str,
        payload: bytes,
        *,
        qos: int = 0,
        retain: bool = False,
        properties: Properties = NONE,
        expiry: float | None = None,
        source: Session | None = None,
    ) -> Deny | int:
        """What does not come as a PUBLISH packet: wills and services. How many it reached, or why not."""
        site = self.site
        lane = self.gate.lane(link, V5)
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
            context,
            link.type,
            properties,
            None if expiry is None else site.now + expiry,
        )
        refusal = plan.refusal or self._refusal(plan, message)
        if refusal is not None:
            site.counters.denied += 1
            self._report("write", link.subject, topic, refusal)
            return refusal
        return self.route(plan, message, source)

    def admit(self, route: Route, message: Message) -> Refusal | None:
        assert isinstance(route, Plan)
        if not route.admission and not message.retain:
            return None
        return self._refusal(route, message)

    def _refusal(self, plan: Plan, message: Message) -> Deny | None:
        if message.retain and message.payload and self.retained.full_for(message):
            return Deny(step=Step.WRITE, rule="limits.retained", reason=Reason.QUOTA_EXCEEDED)
        return undecided(plan.admission, message)

    def denied(self, session: Session, topic: str, refusal: Refusal) -> None:
        assert isinstance(refusal, Deny)
        self._report("write", session.subject, topic, refusal)

    def _report(self, action: str, subject: Subject, topic: str, why: Deny) -> None:
        if self._audit is not None:
            self._audit(action, subject, topic, why)

    def route(self, plan: Route, message: Message, source: Session | None) -> int:
        """Delivers to everybody the plan names; to how many."""
        assert isinstance(plan, Plan)
        plan.passed += 1
        retain = message.retain
        if retain:
            self.retained.keep(message)
        qos = message.qos
        for target in plan.targets:
            grant = target
            session = grant.session
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
        for target, residuals in plan.conditional:
            grant = target
            if grant.session is source:
                if grant.no_local:
                    continue
                grant = grant.own or grant
            why = undecided(residuals, message)
            if why is None:
                grant.session.deliver(message, min(qos, grant.qos), retain and grant.retain_as_published, grant.ids)
            else:
                self._report("read", grant.session.subject, message.topic, why)
        for group in plan.groups:
            self._to_one(group, message)
        return len(plan.targets) + len(plan.conditional) + len(plan.groups)

    # -- shared subscriptions ----------------------------------------------------------------------------------

    def _to_one(self, group: Group[Session, Grant], message: Message) -> bool:
        """To one member that may have it: with room if possible, else connected, else one that will come back."""
        gate = self.gate

        def allowed(session: Session) -> bool:
            return gate.decide(message, session.outward) is ALLOW

        def free(session: Session) -> bool:
            return not session.shut and (session.window > 0 or not message.qos) and allowed(session)

        def there(session: Session) -> bool:
            return session.peer is not None and allowed(session)

        def later(session: Session) -> bool:
            return message.qos > 0 and session.expiry > 0 and allowed(session)

        def waiting(session: Session) -> bool:
            return session.room(message) and there(session)

        def kept(session: Session) -> bool:
            return session.room(message) and later(session)

        chosen = group.pick(free) or group.pick(waiting) or group.pick(kept) or group.pick(there) or group.pick(later)
        if chosen is None:
            return False
        session, grant = chosen
        session.deliver(
            message,
            min(message.qos, grant.qos),
            message.retain and grant.retain_as_published,
            grant.ids,
            grant.group,
        )
        return True

    def _hand_round(self, back: list[Delivery]) -> None:
        """What a member that left had not acknowledged goes to another."""
        for delivery in back:
            assert delivery.group is not None
            group = self.shares.get(*delivery.group)
            if group is not None:
                self._to_one(group, delivery.message)
            self.site.store.done(delivery)  # after it is owed to the other

    # -- decided when it is sent -------------------------------------------------------------------------------

    def _send_retained(self, session: Session, grant: Grant, message: Message) -> None:
        if grant.no_local and message.context == session.context:
            return
        verdict = self.gate.decide(message, session.outward)
        if isinstance(verdict, Deny):
            self.site.counters.denied += 1
            self._report("read", session.subject, message.topic, verdict)
            return
        session.deliver(message, min(message.qos, grant.qos), True, grant.ids)

    def permits(self, session: Session, delivery: Delivery) -> bool:
        """Whether something that waited may be sent now (session.Decider)."""
        verdict = self.gate.decide(delivery.message, session.outward)
        if isinstance(verdict, Deny):
            self.site.counters.denied += 1
            self._report("read", session.subject, delivery.message.topic, verdict)
            return False
        return True

    # -- subscribing -------------------------------------------------------------------------------------------

    def subscribe(self, session: Session, packet: Subscribe) -> None:
        if session.version == V5:
            self._check_available(packet)
        identifier = packet.properties.subscription_identifiers
        granted = []
        reasons = []
        most = self.site.limits.subscriptions
        for subscription in packet.subscriptions[:most]:
            reason, grant = self._subscribe(session, subscription, identifier[0] if identifier else None)
            reasons.append(reason)
            if grant is not None:
                granted.append(grant)
        # more than a session may have: repeats, whose only effect is the work they make
        reasons += [int(Reason.QUOTA_EXCEEDED)] * (len(packet.subscriptions) - most)
        answer = encode(Suback(packet_id=packet.packet_id, reasons=tuple(reasons)), session.version)
        if session.row:
            self.site.store.after(self._subscribed, session, session.peer, answer, granted)
        else:
            self._subscribed(session, session.peer, answer, granted)

    def _check_available(self, packet: Subscribe) -> None:
        """What CONNACK said is not available is a protocol error (MQTT 5, 3.2.2.3.11 and 3.2.2.3.13)."""
        limits = self.site.limits
        for subscription in packet.subscriptions:
            group, filter = share(subscription.filter)
            if group is not None and not limits.shared:
                raise ProtocolError("no shared subscriptions here", Reason.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED)
            if not limits.wildcards and ("#" in filter or "+" in filter):
                raise ProtocolError("no wildcards here", Reason.WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED)

    def _subscribed(self, session: Session, peer: Peer | None, answer: bytes, granted: list[Grant]) -> None:
        if peer is not None and session.peer is peer:
            session.send(answer)
            self.retained.replay(session, peer, granted)

    def _subscribe(
        self, session: Session, subscription: Subscription, identifier: int | None
    ) -> tuple[int, Grant | None]:
        """The reason code, and the grant if it is to be sent retained messages."""
        limits = self.site.limits
        group, filter = share(subscription.filter)
        if group is not None and not limits.shared:
            return Reason.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED, None
        if not limits.wildcards and ("#" in filter or "+" in filter):
            return Reason.WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED, None
        if filter.count("/") >= limits.topic_levels:
            return Reason.TOPIC_FILTER_INVALID, None
        verdict = self.gate.grant(filter, session.outward)
        if isinstance(verdict, Deny):
            self.site.counters.denied += 1
            self._report("subscribe", session.subject, subscription.filter, verdict)
            return verdict.reason, None
        known = session.subscriptions
        if known is None:
            known = session.subscriptions = {}
        old = known.get(subscription.filter)
        if old is None and (
            len(known) >= limits.subscriptions or (group is not None and session.shares >= limits.shares)
        ):
            return Reason.QUOTA_EXCEEDED, None
        grant = self._add(session, subscription, identifier)
        if session.row:
            self.site.store.subscribe(session.row, subscription, identifier)
        handling = subscription.retain_handling
        wants = group is None and (handling == 0 or (handling == 1 and old is None))
        return grant.qos, grant if wants else None

    def _add(self, session: Session, subscription: Subscription, identifier: int | None) -> Grant:
        group, filter = share(subscription.filter)
        grant = Grant(session, subscription, min(subscription.qos, self.site.limits.max_qos), identifier)
        assert session.subscriptions is not None
        session.subscriptions[subscription.filter] = grant
        if group is None:
            self.subscriptions.add(filter, session, grant)
        else:
            grant.group = (group, filter)
            session.shares += self.shares.add(group, filter, session, grant)
        self._touch(filter)
        return grant

    def unsubscribe(self, session: Session, packet: Unsubscribe) -> None:
        reasons = []
        back = []
        for filter in packet.filters:
            if session.subscriptions and filter in session.subscriptions:
                if self._forget(session, filter):
                    back += session.shared_out(filter)
                del session.subscriptions[filter]
                if session.row:
                    self.site.store.unsubscribe(session.row, filter)
                reasons.append(int(Reason.SUCCESS))
            else:
                reasons.append(int(Reason.NO_SUBSCRIPTION_EXISTED))
        answer = encode(Unsuback(packet_id=packet.packet_id, reasons=tuple(reasons)), session.version)
        if session.row:
            self.site.store.after(self._subscribed, session, session.peer, answer, [])
        else:
            session.send(answer)
        self._hand_round(back)

    def _forget(self, session: Session, filter: str) -> bool:
        """Takes a subscription out of the routing; whether it was a shared one."""
        group, inner = share(filter)
        if group is None:
            self.subscriptions.remove(inner, session)
        else:
            session.shares -= self.shares.remove(group, inner, session)
        self._touch(inner)
        return group is not None

    def retouch(self, session: Session) -> None:
        """It speaks another version or has other limits than before: plans that name it are made anew."""
        for filter in session.subscriptions or ():
            self._touch(share(filter)[1])

    def _touch(self, filter: str) -> None:
        """Plans that a changed subscription concerns are made anew.

        A filter with wildcards may have to look at all of them. Many in one turn (one client with thousands of
        filters, or thousands of clients that come back) forget them all at once instead.
        """
        if "+" in filter or "#" in filter:
            if self._touched_at != self.site.now:
                self._touched_at = self.site.now
                self._touched = 0
            topics = self.gate.topics
            if self._touched and self._touched + topics > TOUCH:
                self.gate.forget()
                self._touched = 0
                return
            self._touched += topics
        self.gate.touch(filter)

    # -- from the store ----------------------------------------------------------------------------------------

    def restore(self, record: StoredSession) -> None:
        """A session as the store kept it. One that was connected then has lost its connection with the node."""
        site = self.site
        session = Session(
            site=site,
            decider=self,
            principal=record.principal,
            client=record.client,
            subject=self._remembered(record),
        )
        session.version = record.version
        session.expiry = record.expiry
        session.row = record.row
        session.will = record.will
        session.ended = site.wall if record.ended is None else record.ended
        session.incoming = record.incoming or None
        session.incoming_bytes = sum(each.size for each in record.incoming.values() if each is not None)
        session.restore(record.deliveries)
        self.sessions[session.principal, session.client] = session
        session.subscriptions = {}
        for subscription, identifier in record.subscriptions.values():
            self._add(session, subscription, identifier)
        away = max(0.0, site.wall - session.ended)
        left = record.expiry - away
        if session.will is not None:
            delay = max(0.0, min((session.will.properties.will_delay_interval or 0) - away, left))
            session.will_timer = site.timers.at(site.now + delay, self._fire, session)
        self._expire_later(session, max(0.0, left))
        if record.ended is None:
            session.save()  # from now on it is away, also for the start after the next crash

    def _remembered(self, record: StoredSession) -> Subject:
        known = cbor2.loads(record.context[1:]) if record.context else {}
        return Subject(
            kind="client",
            client=record.client,
            user=known.get("user"),
            scope=self.name,
            node=self.node,
            level=known.get("level", "plain"),
            roles=tuple(known.get("roles", ())),
            groups=tuple(known.get("groups", ())),
        )
