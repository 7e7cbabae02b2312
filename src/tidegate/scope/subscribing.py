"""SUBSCRIBE and UNSUBSCRIBE: granted, refused or held, with what they ask for beside MQTT's options.

A subscription that nobody allows is refused, or with `subscribe: hold` granted and kept asleep until somebody does.
Whoever changes a subscription removes the plans that it concerns, in the same callback.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from tidegate.errors import ProtocolError
from tidegate.gate import Deny, Step
from tidegate.gate.capability import proving
from tidegate.gate.where import condition
from tidegate.policy.capability.proof import READ, filters_of, objection, shown_by
from tidegate.predicate import Predicate, PredicateError
from tidegate.session import NO_TERMS, Grant, Peer, Session, Terms
from tidegate.topics import overlaps, share
from tidegate.wire import (
    NONE,
    V5,
    Properties,
    Reason,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    encode,
)

if TYPE_CHECKING:
    from tidegate.scope.scope import Scope

TOUCH = 100_000  # cached topics looked at per turn because of changed subscriptions, unless one filter costs more
WHERE_SUBSCRIPTIONS = 100  # of one session: each is asked for every message that it matches
WHERES = 1000  # conditions that are kept for others who ask for the same


class Subscribing:
    """The subscribing side of a scope."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.site = scope.site
        self._touched = 0  # cached topics looked at in this turn
        self._touched_at = -1.0
        self._conditions: dict[str, Predicate] = {}  # of subscribers

    def changed(self) -> None:
        """Other rules are in force."""
        self._conditions.clear()  # functions may have changed

    def subscribe(self, session: Session, packet: Subscribe) -> None:
        if session.version == V5:
            self._check_available(packet)
        if not self.scope.fresh(session):
            raise ProtocolError("your access has been withdrawn", Reason.NOT_AUTHORIZED)
        identifier = packet.properties.subscription_identifiers
        most = self.site.limits.subscriptions
        granted: list[Grant] = []
        if unproven := self._unproven(session, packet):
            self.scope.path.report("subscribe", session.outward, packet.subscriptions[0].filter, unproven)
            refused = tuple(unproven.reason for _ in packet.subscriptions)
            said = Properties(reason_string=f"denied by {unproven.rule}" if self.site.limits.explain else None)
            session.send(self._suback(session, packet.packet_id, refused, said))
            return
        try:
            terms, where = self._terms(packet.properties.user_properties)
        except PredicateError as error:
            self.site.counters.denied += 1
            reasons = [int(Reason.IMPLEMENTATION_SPECIFIC_ERROR)] * len(packet.subscriptions)
            said = Properties(reason_string=f"where: {error}"[:1000])
        else:
            reasons = []
            held: list[str] = []
            why: Deny | None = None
            for subscription in packet.subscriptions[:most]:
                number = identifier[0] if identifier else None
                reason, grant, refusal = self._subscribe(session, subscription, number, terms, where)
                reasons.append(int(reason))
                why = why or refusal
                if grant is not None:
                    if grant.held:
                        held.append(subscription.filter)
                    granted.append(grant)
            # more than a session may have: repeats, whose only effect is the work they make
            reasons += [int(Reason.QUOTA_EXCEEDED)] * (len(packet.subscriptions) - most)
            said = Properties(
                user_properties=tuple(("held", filter) for filter in held),
                reason_string=f"denied by {why.rule}" if why is not None and self.site.limits.explain else None,
            )
        answer = self._suback(session, packet.packet_id, tuple(reasons), said)
        if self._waits(session):
            self.site.store.after(self._subscribed, session, session.peer, answer, granted)
        else:
            self._subscribed(session, session.peer, answer, granted)

    def _unproven(self, session: Session, packet: Subscribe) -> Deny | None:
        """A SUBSCRIBE is proven as a whole: all its filters, in their order."""
        capability = proving(session.subject, self.scope.gate.rules.capabilities)
        if capability is None:
            return None
        filters = filters_of(subscription.filter for subscription in packet.subscriptions)
        why = objection(capability, shown_by(packet.properties.user_properties), READ, filters)
        return Deny(step=Step.READ, rule=capability.rule, error=why) if why else None

    def _waits(self, session: Session) -> bool:
        """Whether answers wait until what was noted is safe: subscriptions, and the counters of proofs."""
        return session.row != 0 or proving(session.subject, self.scope.gate.rules.capabilities) is not None

    def _suback(self, session: Session, pid: int, reasons: tuple[int, ...], said: Properties) -> bytes:
        """[MQTT-3.9.2-1] [MQTT-3.9.2-2] without what makes it too long for the client."""
        peer = session.peer
        if session.version == V5 and said != NONE and peer is not None and peer.problem_information:
            answer = encode(Suback(packet_id=pid, reasons=reasons, properties=said), V5)
            if not session.maximum or len(answer) <= session.maximum:
                return answer
        return encode(Suback(packet_id=pid, reasons=reasons), session.version)

    def _terms(self, pairs: tuple[tuple[str, str], ...]) -> tuple[Terms, Predicate | None]:
        """What a SUBSCRIBE asks for beside MQTT's options; PredicateError if its condition is none."""
        if not pairs:
            return NO_TERMS, None
        conditions = [value for name, value in pairs if name == "where"]
        if len(conditions) > 1:
            raise PredicateError("give one condition, joined with &&", 1, 1)
        text = conditions[0] if conditions else None
        terms = Terms(self.scope.gate.rules.levels.demand(pairs), text)
        return (terms if terms.asks else NO_TERMS), None if text is None else self._condition(text)

    def _condition(self, text: str) -> Predicate:
        known = self._conditions.get(text)
        if known is None:
            known = condition(text, self.scope.gate.rules.functions)
            if len(self._conditions) >= WHERES:
                self._conditions.clear()
            self._conditions[text] = known
        return known

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
            self.scope.retained.replay(session, peer, [grant for grant in granted if grant.replays and not grant.held])

    def _subscribe(
        self,
        session: Session,
        subscription: Subscription,
        identifier: int | None,
        terms: Terms,
        where: Predicate | None,
    ) -> tuple[int, Grant | None, Deny | None]:
        """The reason code, the grant if there is one and who denied it otherwise."""
        limits = self.site.limits
        group, filter = share(subscription.filter)
        if group is not None and not limits.shared:
            return Reason.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED, None, None
        if not limits.wildcards and ("#" in filter or "+" in filter):
            return Reason.WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED, None, None
        if filter.count("/") >= limits.topic_levels:
            return Reason.TOPIC_FILTER_INVALID, None, None
        verdict = self.scope.gate.grant(filter, session.outward)
        known = session.subscriptions
        if known is None:
            known = session.subscriptions = {}
        old = known.get(subscription.filter)
        if isinstance(verdict, Deny):
            self.scope.path.report("subscribe", session.outward, subscription.filter, verdict)
            if not self.scope.gate.rules.holds:
                return verdict.reason, None, verdict
            if not (old is not None and old.held) and session.held >= limits.held:
                return Reason.QUOTA_EXCEEDED, None, verdict
        if old is None and (
            len(known) >= limits.subscriptions or (group is not None and session.shares >= limits.shares)
        ):
            return Reason.QUOTA_EXCEEDED, None, None
        if where is not None and (old is None or old.where is None) and session.conditions >= WHERE_SUBSCRIPTIONS:
            return Reason.QUOTA_EXCEEDED, None, None
        grant = self._add(session, subscription, identifier, terms, where)
        self._hold(grant, isinstance(verdict, Deny))
        handling = subscription.retain_handling
        grant.replays = group is None and (handling == 0 or (handling == 1 and old is None))
        self._note(grant, subscription)
        self.scope.audit.subscribed(session, grant)
        return grant.qos, grant, None

    def _add(
        self,
        session: Session,
        subscription: Subscription,
        identifier: int | None,
        terms: Terms,
        where: Predicate | None,
    ) -> Grant:
        group, filter = share(subscription.filter)
        qos = min(subscription.qos, self.site.limits.max_qos)
        grant = Grant(session, subscription, qos, identifier, terms, where)
        assert session.subscriptions is not None
        if (old := session.subscriptions.get(subscription.filter)) is not None:
            self._left(old)
        session.conditions += where is not None
        session.subscriptions[subscription.filter] = grant
        if group is None:
            self.scope.subscriptions.add(filter, session, grant)
        else:
            grant.group = (group, filter)
            session.shares += self.scope.shares.add(group, filter, session, grant)
        self._touch(filter)
        return grant

    def _note(self, grant: Grant, subscription: Subscription) -> None:
        """Keeps a subscription of a lasting session, as it now is."""
        if grant.session.row:
            identifier = grant.ids[0] if grant.ids else None
            terms = replace(grant.terms, held=grant.held)
            self.site.store.subscribe(grant.session.row, subscription, identifier, terms.encode())

    def _hold(self, grant: Grant, held: bool) -> None:
        """Puts a subscription to sleep, or wakes it; how many of a session sleep is counted, not looked for."""
        grant.session.held += held - grant.held
        grant.held = held

    def _left(self, grant: Grant) -> None:
        """It is not subscribed any more, or otherwise."""
        self._hold(grant, False)
        grant.session.conditions -= grant.where is not None

    def wake(self, session: Session, filters: Iterable[str] | None = None) -> None:
        """Held subscriptions that are allowed now come alive, with their retained messages; others may fall asleep.

        With `filters`, those that overlap one of them: the others are what they were.
        """
        if not self.scope.gate.rules.holds:
            return
        alive = []
        for filter, grant in (session.subscriptions or {}).items():
            inner = share(filter)[1]
            if filters is not None and not any(overlaps(each, inner) for each in filters):
                continue
            denied = isinstance(self.scope.gate.grant(inner, session.outward), Deny)
            before = grant.held
            if grant.held and not denied and session.peer is not None:
                self._hold(grant, False)
                grant.replays = grant.group is None and grant.retain_handling < 2
                alive.append(grant)
            elif denied:
                self._hold(grant, True)
            if grant.held is not before:
                self._note(grant, grant.subscription())
        if alive and session.peer is not None:
            self.scope.retained.replay(session, session.peer, [grant for grant in alive if grant.replays])

    def unsubscribe(self, session: Session, packet: Unsubscribe) -> None:
        reasons = []
        back = []
        for filter in packet.filters:
            if session.subscriptions and filter in session.subscriptions:
                if self.forget(session, filter):
                    back += session.shared_out(filter)
                    session.pump()  # its monitors may have caught up
                self._left(session.subscriptions.pop(filter))
                self.scope.audit.unsubscribed(session, filter)
                if session.row:
                    self.site.store.unsubscribe(session.row, filter)
                reasons.append(int(Reason.SUCCESS))
            else:
                reasons.append(int(Reason.NO_SUBSCRIPTION_EXISTED))
        answer = encode(Unsuback(packet_id=packet.packet_id, reasons=tuple(reasons)), session.version)
        if self._waits(session):
            self.site.store.after(self._subscribed, session, session.peer, answer, [])
        else:
            session.send(answer)
        self.scope.sharing.hand_round(back)

    def forget(self, session: Session, filter: str) -> bool:
        """Takes a subscription out of the routing; whether it was a shared one."""
        group, inner = share(filter)
        if group is None:
            self.scope.subscriptions.remove(inner, session)
        else:
            session.shares -= self.scope.shares.remove(group, inner, session)
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
            topics = self.scope.gate.cache.topics
            if self._touched and self._touched + topics > TOUCH:
                self.scope.gate.cache.clear()
                self.scope.sweep()
                self._touched = 0
                return
            self._touched += topics
        self.scope.gate.cache.touch(filter)
        self.scope.sweep()

    def restore(self, session: Session, subscription: Subscription, identifier: int | None, terms: Terms) -> None:
        try:
            where = None if terms.where is None else self._condition(terms.where)
        except PredicateError:
            where = None  # a function it called is gone: nothing meets it
        grant = self._add(session, subscription, identifier, replace(terms, held=False), where)
        verdict = self.scope.gate.grant(share(subscription.filter)[1], session.outward)
        # one that was held and is allowed now comes alive with its client: see `wake`
        self._hold(grant, self.scope.gate.rules.holds and (terms.held or isinstance(verdict, Deny)))
