"""SUBSCRIBE and UNSUBSCRIBE: granted, refused or held, with what they ask for beside MQTT's options.

A subscription that nobody allows is refused, or with `subscribe: hold` granted and kept asleep until somebody does.
Whether it is allowed is tested before its condition is compiled. Long requests are done in pieces.
Whoever changes a subscription removes the plans that it concerns, in the same callback.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from tidegate.bounded import Bounded
from tidegate.errors import ProtocolError
from tidegate.gate import Deny, Step
from tidegate.gate.stages.levels import unknown_demand
from tidegate.gate.stages.where import LIMIT, condition
from tidegate.gate.stages.write_and_read_capability import proving
from tidegate.policy import Levels
from tidegate.policy.capability.proof import READ, Asked, filters_of, objection, shown_by
from tidegate.policy.demands import read_demand
from tidegate.policy.publisher_rules import ActiveRule, Rule
from tidegate.predicate import Predicate, PredicateError
from tidegate.scope.forgotten_plans import ForgottenPlans
from tidegate.scope.subscription_patterns import SubscriptionPatterns
from tidegate.session import NO_TERMS, Connection, Grant, Link, Message, Session, Terms
from tidegate.session.packet_costs import CONDITION, FILTER
from tidegate.session.usage import filter_weight
from tidegate.topics import matches, overlaps, share
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

WHERE_SUBSCRIPTIONS = 100  # of one session: each is asked for every message that it matches
WHERES = 1000  # conditions that are kept for others who ask for the same
LOOK = 15  # microseconds to look whether a held subscription is allowed now
OVERLAPS = 1  # and whether what has changed concerns it
PIECE = 500  # of both in one turn


class Request:
    """A SUBSCRIBE under way: what it asks for, and what has become of its filters so far."""

    __slots__ = ("bridge", "denied", "error", "granted", "identifier", "reasons", "session", "terms", "where")

    def __init__(self, session: Session, properties: Properties, levels: Levels) -> None:
        self.session = session
        self.identifier = properties.subscription_identifiers[0] if properties.subscription_identifiers else None
        connection = session.connection
        self.bridge = connection is not None and connection.bridge and session.version != V5
        self.terms = NO_TERMS
        self.where: Predicate | None = None  # the condition of `terms`, compiled once a filter is granted
        self.error = ""  # why it cannot be
        self.reasons: list[int] = []
        self.granted: list[Grant] = []
        self.denied: Deny | None = None  # who was the first to deny a filter
        pairs = properties.user_properties
        if pairs:
            conditions = [value for name, value in pairs if name == "where"]
            if len(conditions) > 1:
                self.error = "give one condition, joined with &&"
            terms = Terms(read_demand(levels, pairs), conditions[0] if conditions else None)
            self.terms = terms if terms.asks else NO_TERMS

    @property
    def lacks_condition(self) -> bool:
        return self.terms.where is not None and self.where is None and not self.error


class Subscribing:
    """The subscribing side of a scope."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.site = scope.site
        self.patterns = SubscriptionPatterns()
        self.plans = ForgottenPlans(scope)
        self._conditions: Bounded[str, Predicate] = Bounded(WHERES, self._condition)  # of subscribers

    def changed(self) -> None:
        """Other rules are in force."""
        self._conditions.clear()  # functions may have changed

    def subscribe(self, session: Session, packet: Subscribe) -> Iterator[float]:
        """In pieces: what comes out is when the next one may begin."""
        connection = session.connection
        if session.version == V5:
            self._check_available(packet)
        if not self.scope.subjects.fresh(session):
            raise ProtocolError("your access has been withdrawn", Reason.NOT_AUTHORIZED)
        refusal, shadow = self._unproven(session, packet) or self._unknown_demand(packet), self.scope.shadow
        if shadow is not None:
            shadow.asked([subscription.filter for subscription in packet.subscriptions], session.outward, refusal)
        if refusal and self.scope.gate.rules.enforcing:
            self.scope.report("subscribe", session.outward, packet.subscriptions[0].filter, refusal)
            refused = tuple(int(refusal.reason) for _ in packet.subscriptions)
            text = refusal.said or (f"denied by {refusal.rule}" if self.site.limits.explain else None)
            said = Properties(reason_string=text)
            session.send(self._suback(session, packet.packet_id, refused, said))
            return
        request = Request(session, packet.properties, self.scope.gate.rules.levels)
        most = self.site.limits.subscriptions
        for subscription in packet.subscriptions[:most]:
            if self.site.effort > self.site.room:
                yield 0.0
            if request.lacks_condition and not self._judge(session, subscription)[0]:
                yield from self._compile(request)
            if session.connection is not connection:
                return
            self._subscribe(request, subscription)
        # more than a session may have: repeats, whose only effect is the work they make
        request.reasons += [int(Reason.QUOTA_EXCEEDED)] * (len(packet.subscriptions) - most)
        if self._waits(session):
            self.site.store.after(self._answer, request, packet, connection, self._said(request))
        else:
            self._answer(request, packet, connection, self._said(request))

    def _answer(self, request: Request, packet: Subscribe, connection: Connection | None, said: Properties) -> None:
        """What was granted is safe: SUBACK is due."""
        session = request.session
        answer = self._suback(session, packet.packet_id, tuple(request.reasons), said)
        self._subscribed(session, connection, answer, request.granted)

    def _said(self, request: Request) -> Properties:
        """What SUBACK says beside its reason codes."""
        if request.error:
            return Properties(reason_string=f"where: {request.error}"[:1000])
        denied = request.denied if self.site.limits.explain else None
        return Properties(
            user_properties=tuple(("held", grant.filter) for grant in request.granted if grant.held),
            reason_string=None if denied is None else f"denied by {denied.rule}",
        )

    def _unproven(self, session: Session, packet: Subscribe) -> Deny | None:
        """A SUBSCRIBE is proven as a whole: all its filters, in their order."""
        capability = proving(session.subject, self.scope.gate.rules.capabilities)
        if capability is None:
            return None
        filters = filters_of(subscription.filter for subscription in packet.subscriptions)
        shown = shown_by(packet.properties.user_properties)
        asked = Asked(qos=tuple(each.qos for each in packet.subscriptions), properties=shown.asked)
        why = objection(capability, shown, READ, filters, asked=asked)
        return Deny(step=Step.READ, rule=capability.rule, error=why) if why else None

    def _unknown_demand(self, packet: Subscribe) -> Deny | None:
        levels = self.scope.gate.rules.levels
        return unknown_demand(levels, read_demand(levels, packet.properties.user_properties))

    def _waits(self, session: Session) -> bool:
        """Whether answers wait until what was noted is safe: subscriptions, and the counters of proofs."""
        return session.row != 0 or proving(session.subject, self.scope.gate.rules.capabilities) is not None

    def _suback(self, session: Session, pid: int, reasons: tuple[int, ...], said: Properties) -> bytes:
        """[MQTT-3.9.2-1] [MQTT-3.9.2-2] without what makes it too long for the client."""
        connection = session.connection
        if connection is not None and connection.old:
            # 3.1 has no word for a refusal: what it is not granted it is told to have with QoS 0, and never gets
            reasons = tuple(0 if reason >= 0x80 else reason for reason in reasons)
        if session.version == V5 and said != NONE and connection is not None and connection.problem_information:
            answer = encode(Suback(packet_id=pid, reasons=reasons, properties=said), V5)
            if not session.maximum or len(answer) <= session.maximum:
                return answer
        return encode(Suback(packet_id=pid, reasons=reasons), session.version)

    def _compile(self, request: Request) -> Iterator[float]:
        """The condition of a request that is granted; it may have to wait for those that came before it."""
        text = request.terms.where
        assert text is not None
        while text not in self._conditions and not self.site.may_begin(CONDITION * len(text[:LIMIT])):
            yield self.site.rested
        try:
            request.where = self._conditions[text]
        except PredicateError as error:
            self.site.counters.denied += 1
            request.error = str(error) if self.scope.gate.rules.enforcing else ""
            request.terms = request.terms if request.error else NO_TERMS

    def _condition(self, text: str) -> Predicate:
        return condition(text, self.scope.gate.rules.functions)

    def _check_available(self, packet: Subscribe) -> None:
        """What CONNACK said is not available is a protocol error (MQTT 5, 3.2.2.3.11 and 3.2.2.3.13)."""
        limits = self.site.limits
        for subscription in packet.subscriptions:
            group, filter = share(subscription.filter)
            if group is not None and not limits.shared:
                raise ProtocolError("no shared subscriptions here", Reason.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED)
            if not limits.wildcards and ("#" in filter or "+" in filter):
                raise ProtocolError("no wildcards here", Reason.WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED)

    def _subscribed(self, session: Session, connection: Connection | None, answer: bytes, granted: list[Grant]) -> None:
        if connection is not None and session.connection is connection:
            session.send(answer)
            self.scope.retained.replay(
                session, connection, [grant for grant in granted if grant.replays and not grant.held]
            )

    def _judge(self, session: Session, subscription: Subscription) -> tuple[int, Deny | None]:
        """The reason code of what cannot be granted, else 0, and who denies it: one that is denied may be held."""
        limits = self.site.limits
        group, filter = share(subscription.filter)
        if group is not None and not limits.shared:
            return Reason.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED, None
        if not limits.wildcards and ("#" in filter or "+" in filter):
            return Reason.WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED, None
        if limits.excess(filter):
            return Reason.TOPIC_FILTER_INVALID, None
        self.site.effort += FILTER
        known = session.subscriptions or {}
        old = known.get(subscription.filter)
        verdict = self.scope.gate.grant(filter, session.outward)
        denied = verdict if isinstance(verdict, Deny) else None
        if denied is not None:
            if not self.scope.gate.rules.holds:
                return denied.reason, denied
            if not (old is not None and old.held) and session.held >= limits.held:
                return Reason.QUOTA_EXCEEDED, denied
        if old is None and (
            len(known) >= limits.subscriptions or (group is not None and session.shares >= limits.shares)
        ):
            return Reason.QUOTA_EXCEEDED, denied
        if old is None and not self.patterns.fits(session, filter, limits.patterns):
            return Reason.QUOTA_EXCEEDED, denied
        if old is None and (bound := self._full(session, "subscriptions", filter_weight(subscription.filter))):
            return Reason.QUOTA_EXCEEDED, Deny(step=Step.READ, rule=bound, reason=Reason.QUOTA_EXCEEDED)
        return Reason.SUCCESS, denied

    def _full(self, session: Session, name: str, more: int = 1) -> str:
        limits = self.site.limits
        return self.site.accounts.full(session.usage, limits.user, limits.node, name, more)

    def _subscribe(self, request: Request, subscription: Subscription) -> None:
        """Grants, holds or refuses one filter of a request."""
        session = request.session
        reason, denied = self._judge(session, subscription)
        if denied is not None:
            self.scope.report("subscribe", session.outward, subscription.filter, denied)
        old = (session.subscriptions or {}).get(subscription.filter)
        if not reason:
            if request.error:
                reason = Reason.IMPLEMENTATION_SPECIFIC_ERROR
            elif request.where is not None and (old is None or old.where is None):
                if session.conditions >= WHERE_SUBSCRIPTIONS or self._full(session, "conditions"):
                    reason = Reason.QUOTA_EXCEEDED
        if request.bridge and not subscription.filter.startswith("$share/"):
            # it cannot ask for it in its version: what it sends does not come back, and retained stays retained
            subscription = replace(subscription, no_local=True, retain_as_published=True)
        if reason:
            session.refused += 1
            request.reasons.append(int(reason))
            request.denied = request.denied or denied
            return
        if session.subscriptions is None:
            session.subscriptions = {}
        grant = self.add(session, subscription, request.identifier, request.terms, request.where)
        self._hold(grant, denied is not None)
        if self.scope.gate.rules.holds:
            self._open(grant, None)
        handling = subscription.retain_handling
        grant.replays = grant.group is None and (handling == 0 or (handling == 1 and old is None))
        self._note(grant, subscription)
        self.scope.audit.subscribed(session, grant)
        if self.scope.shadow is not None:
            self.scope.shadow.subscribed(subscription.filter, session.outward)
        request.reasons.append(int(grant.qos))
        request.granted.append(grant)

    def add(
        self,
        session: Session,
        subscription: Subscription,
        identifier: int | None = None,
        terms: Terms = NO_TERMS,
        where: Predicate | None = None,
    ) -> Grant:
        """Puts a subscription into the routing. It is not in the store before it is noted."""
        group, filter = share(subscription.filter)
        qos = min(subscription.qos, self.site.limits.max_qos)
        grant = Grant(session, subscription, qos, identifier, terms, where)
        assert session.subscriptions is not None
        if (old := session.subscriptions.get(subscription.filter)) is not None:
            self._left(old)
        else:
            self.site.accounts.add(session.usage, "subscriptions", filter_weight(subscription.filter))
            self.patterns.add(session, filter)
        self._count_condition(session, where, 1)
        session.subscriptions[subscription.filter] = grant
        if group is None:
            self.scope.subscriptions.add(filter, session, grant)
        else:
            grant.group = (group, filter)
            session.shares += self.scope.shares.add(group, filter, session, grant)
        self.plans.forget(filter)
        return grant

    def _note(self, grant: Grant, subscription: Subscription) -> None:
        """Keeps a subscription of a lasting session, as it now is."""
        if grant.session.row:
            identifier = grant.ids[0] if grant.ids else None
            terms = replace(grant.terms, held=grant.held)
            self.site.store.subscribe(grant.session.row, subscription, identifier, terms.encode())

    def _hold(self, grant: Grant, held: bool) -> None:
        """Puts a subscription to sleep, or wakes it; how many of a session sleep is counted, not looked for."""
        if held is not grant.held:
            self.plans.spread(share(grant.filter)[1])
        grant.session.held += held - grant.held
        grant.held = held

    def _left(self, grant: Grant) -> None:
        """It is not subscribed any more, or otherwise."""
        self._hold(grant, False)
        self._count_condition(grant.session, grant.where, -1)

    def _count_condition(self, session: Session, where: Predicate | None, more: int) -> None:
        """Somebody's message is asked one condition more, or less."""
        if where is not None:
            session.conditions += more
            self.site.accounts.add(session.usage, "conditions", more)

    def wake(self, session: Session) -> None:
        """What is held of a session that has come back, and is allowed now, comes alive: at once, or in pieces."""
        connection, waking = session.connection, self.waking(session)

        def go_on() -> bool:
            if session.connection is not connection:
                return False  # whoever comes next does it again
            until = self.site.effort + PIECE
            for looked in waking:
                self.site.effort += looked
                if self.site.effort > until:
                    return True
            return False

        if go_on():
            self.site.unfinished.append(go_on)

    def waking(self, session: Session, filters: Iterable[str] | None = None) -> Iterator[int]:
        """Held subscriptions that are allowed now come alive, with their retained messages; others may fall asleep.

        With `filters`, those that overlap one of them: the others are what they were. One that is alive gets the
        retained messages of each publisher that opens it. Comes out for each subscription, with what that has cost.
        """
        if not self.scope.gate.rules.holds:
            return
        alive = []
        for filter, grant in list((session.subscriptions or {}).items()):
            if (session.subscriptions or {}).get(filter) is not grant:
                continue  # unsubscribed, or subscribed anew
            inner = share(filter)[1]
            if filters is not None and not any(overlaps(each, inner) for each in filters):
                yield OVERLAPS
                continue
            denied = isinstance(self.scope.gate.grant(inner, session.outward), Deny)
            before = grant.held
            if grant.held and not denied and session.connection is not None:
                self._hold(grant, False)
                grant.replays = grant.group is None and grant.retain_handling < 2
                alive.append(grant)
            elif denied:
                self._hold(grant, True)
            if grant.held is not before:
                self._note(grant, grant.subscription())
            yield LOOK + self._open(grant, session.connection if not before and not denied else None)
        if alive and session.connection is not None:
            self.scope.retained.replay(session, session.connection, [grant for grant in alive if grant.replays])

    def _open(self, grant: Grant, connection: Connection | None) -> int:
        """Takes note of the publishers' rules that allow a subscription, and returns how many there are; sends over a
        connection the retained messages that those have opened which did not before."""
        session = grant.session
        rules = self.scope.gate.opening(share(grant.filter)[1], session.outward)
        opened = {(active.owner, active.rule): active for active in rules}
        before: frozenset[tuple[str, Rule]] | None = grant.opened
        if before is not None and connection is not None and grant.group is None and grant.retain_handling < 2:
            come = [active for rule, active in opened.items() if rule not in before]
            if come:
                known = [active for rule, active in opened.items() if rule in before]
                choice = partial(self._newly_open, session.outward, come, known)
                self.scope.retained.replay(session, connection, [grant], choice)
        grant.opened = frozenset(opened)
        return len(rules)

    def _newly_open(self, target: Link, come: list[ActiveRule], known: list[ActiveRule], message: Message) -> bool:
        """Whether a rule of its publisher opens a message that has come now, and nothing that was there before does."""
        gate = self.scope.gate
        context = gate.attributes.context(message)
        published = {
            (self.scope.publishers.owner(each.subject), each.topic or message.topic)
            for each in (context, *(other.context for other in context.others))
        }

        def opened(by: list[ActiveRule]) -> set[str]:
            return {
                rule.owner
                for rule in by
                if any(rule.owner == owner and matches(rule.topic, topic) for owner, topic in published)
            }

        return bool(opened(come) - opened(known)) and not gate.allowed_by_policies(message, target)

    def unsubscribe(self, session: Session, packet: Unsubscribe) -> Iterator[float]:
        """In pieces, like `subscribe`. What is owed goes out before the answer."""
        if session.queued:
            session.pump()
        connection = session.connection
        reasons = []
        back = []
        for filter in packet.filters:
            if self.site.effort > self.site.room:
                yield 0.0
                if session.connection is not connection:
                    break
            if session.subscriptions and filter in session.subscriptions:
                self.site.effort += FILTER
                if self.forget(session, filter):
                    back += session.shared_out(filter)
                    session.pump()  # its monitors may have caught up
                del session.subscriptions[filter]
                self.scope.audit.unsubscribed(session, filter)
                if session.row:
                    self.site.store.unsubscribe(session.row, filter)
                reasons.append(int(Reason.SUCCESS))
            else:
                reasons.append(int(Reason.NO_SUBSCRIPTION_EXISTED))
        else:
            answer = encode(Unsuback(packet_id=packet.packet_id, reasons=tuple(reasons)), session.version)
            if self._waits(session):
                self.site.store.after(self._subscribed, session, connection, answer, [])
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
        self.site.accounts.add(session.usage, "subscriptions", -filter_weight(filter))
        self.patterns.remove(session, inner)
        self._left((session.subscriptions or {})[filter])
        self.plans.forget(inner)
        return group is not None

    def retouch(self, session: Session) -> None:
        """It speaks another version or has other limits than before: plans that name it are made anew."""
        self.plans.forget_session(session)

    def restore(self, session: Session, subscription: Subscription, identifier: int | None, terms: Terms) -> None:
        try:
            where = None if terms.where is None else self._condition(terms.where)
        except PredicateError:
            where = None  # a function it called is gone: nothing meets it
        grant = self.add(session, subscription, identifier, replace(terms, held=False), where)
        verdict = self.scope.gate.grant(share(subscription.filter)[1], session.outward)
        # one that was held and is allowed now comes alive with its client: see `wake`
        self._hold(grant, self.scope.gate.rules.holds and (terms.held or isinstance(verdict, Deny)))


def matching(session: Session, topic: str, group: tuple[str, str] | None) -> Iterator[Grant]:
    """The subscriptions of a session that match a topic: those of its own, or of a shared subscription."""
    for filter, grant in (session.subscriptions or {}).items():
        if grant.group == group and matches(filter if group is None else group[1], topic):
            yield grant


class NoSubscriptions:
    """Nobody subscribes over a link (session.Subscribing)."""

    def subscribe(self, session: Session, packet: Subscribe) -> Iterator[float]:
        raise ProtocolError("what crosses a link stands in the configuration of both ends")

    def unsubscribe(self, session: Session, packet: Unsubscribe) -> Iterator[float]:
        raise ProtocolError("what crosses a link stands in the configuration of both ends")
