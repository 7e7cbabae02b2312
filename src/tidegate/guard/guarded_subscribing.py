"""SUBSCRIBE and UNSUBSCRIBE in a guarded scope: what nobody allows is refused here, the rest is asked of the broker.

The client gets one SUBACK with the answers of both. What it has subscribed to is kept here for what the broker does not
know: conditions, demands, and who may read what. Nothing is routed by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from tidegate.errors import ProtocolError
from tidegate.gate import Deny
from tidegate.guard.guarded_session import Asked, GuardedSession
from tidegate.policy.demands import REQUIRE
from tidegate.predicate import Predicate
from tidegate.scope.subscribing import Request, Subscribing
from tidegate.session import NO_TERMS, Connection, Grant, LinkSession, Session, Terms
from tidegate.session.usage import filter_weight
from tidegate.topics import share
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
    from tidegate.guard.guarded_scope import GuardedScope
    from tidegate.guard.upstream import Upstream

OURS = frozenset((REQUIRE, "s", "where", "capability", "proof"))
"""User properties of a SUBSCRIBE that are for the guard."""


ASKS = frozenset((REQUIRE, "s", "where"))
"""Those that count for a subscription as long as it lasts."""
ASKED_OF_ONE = "another guard would not know of it when this session comes back there"


class GuardedSubscribing(Subscribing):
    """The subscribing side of a guarded scope."""

    scope: GuardedScope

    def _judge(self, session: Session, subscription: Subscription) -> tuple[int, Deny | None]:
        if isinstance(session, GuardedSession) and session.bridge is not None:
            return Reason.SUCCESS, None  # what crosses is decided message by message
        if not isinstance(session, LinkSession):
            abilities, (group, filter) = self.scope.settings.abilities, share(subscription.filter)
            if group is not None and not abilities.shared:
                return Reason.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED, None
            if not abilities.names(filter):
                return Reason.TOPIC_FILTER_INVALID, None
        return super()._judge(session, subscription)

    def _answer(self, request: Request, packet: Subscribe, connection: Connection | None, said: Properties) -> None:
        session = request.session
        assert isinstance(session, GuardedSession)
        if session.connection is not connection:
            return
        asked = [index for index, reason in enumerate(request.reasons) if reason < 0x80]
        if not asked:
            session.send(self._suback(session, packet.packet_id, tuple(request.reasons), said))
            return
        filters = tuple(packet.subscriptions[index] for index in asked)
        pairs = tuple(pair for pair in packet.properties.user_properties if pair[0] not in OURS)
        properties = NONE
        version = session.relaying.upstream.version
        if version == V5 and packet.properties is not NONE:
            properties = replace(packet.properties, user_properties=pairs)
        pid = self._free(session, packet.packet_id)
        forwarded = Subscribe(packet_id=pid, subscriptions=filters, properties=properties)
        self._ask(session, pid, Asked(packet, encode(forwarded, version), request, said, asked))

    def subscribe(self, session: Session, packet: Subscribe) -> Iterator[float]:
        asks = any(name in ASKS for name, _ in packet.properties.user_properties)
        if not (asks and session.expiry and self.scope.settings.several):
            yield from super().subscribe(session, packet)
            return
        refused = tuple(int(Reason.IMPLEMENTATION_SPECIFIC_ERROR) for _ in packet.subscriptions)
        session.send(self._suback(session, packet.packet_id, refused, Properties(reason_string=ASKED_OF_ONE)))

    @staticmethod
    def _free(session: GuardedSession, wanted: int = 65535) -> int:
        """A packet identifier that nothing was asked with."""
        asked = session.asked or {}
        return wanted if wanted not in asked else next((pid for pid in range(65535, 0, -1) if pid not in asked), wanted)

    def _ask(self, session: GuardedSession, pid: int, asked: Asked) -> None:
        """Asks the broker: now, or when it is back."""
        if session.asked is None:
            session.asked = {}
        session.asked[pid] = asked
        session.rounds += 1
        if session.upstream is not None:
            session.upstream.send(asked.data)

    def ask_again(self, session: GuardedSession, present: bool) -> None:
        """The broker is back, with or without the session: it is asked what it has not answered, or does not know."""
        upstream = session.upstream
        assert upstream is not None
        known = {} if present else session.subscriptions or {}
        # what is retained there the client has
        self._ask_for(session, upstream, known.values(), 2 if upstream.v5 else 0)
        for asked in list((session.asked or {}).values()):
            if asked.request is not None or isinstance(asked.packet, Unsubscribe):
                upstream.send(asked.data)

    def waking(self, session: Session, filters: Iterable[str] | None = None) -> Iterator[int]:
        """Held subscriptions that come alive are asked of the broker again, for what is retained there."""
        held = [grant for grant in (session.subscriptions or {}).values() if grant.held]
        yield from super().waking(session, filters)
        alive = [grant for grant in held if not grant.held and grant.replays]
        if isinstance(session, GuardedSession) and session.upstream is not None:
            self._ask_for(session, session.upstream, alive)

    def _ask_for(
        self, session: GuardedSession, upstream: Upstream, grants: Iterable[Grant], handling: int | None = None
    ) -> None:
        """Asks for subscriptions that the client has: in one SUBSCRIBE for each identifier, which that applies to."""
        by_ids: dict[tuple[int, ...], list[Subscription]] = {}
        for grant in grants:
            subscription = grant.subscription()
            if handling is not None:
                subscription = replace(subscription, retain_handling=handling)
            by_ids.setdefault(grant.ids if upstream.v5 else (), []).append(subscription)
        for ids, subscriptions in by_ids.items():
            pid = self._free(session)
            properties = Properties(subscription_identifiers=ids) if ids else NONE
            packet = Subscribe(packet_id=pid, subscriptions=tuple(subscriptions), properties=properties)
            self._ask(session, pid, Asked(packet, encode(packet, upstream.version)))

    def unsubscribe(self, session: Session, packet: Unsubscribe) -> Iterator[float]:
        assert isinstance(session, GuardedSession)
        version = session.relaying.upstream.version
        pid = self._free(session, packet.packet_id)
        forwarded = replace(packet, packet_id=pid, properties=packet.properties if version == V5 else NONE)
        self._ask(session, pid, Asked(packet, encode(forwarded, version)))
        yield from ()

    def answered(self, session: GuardedSession, packet: Suback | Unsuback) -> None:
        """The broker has answered."""
        if session is self.scope.service:  # type: ignore[comparison-overlap]
            self.scope.service.asked(packet)
            return
        asked = (session.asked or {}).pop(packet.packet_id, None)
        if asked is None or isinstance(asked.packet, Subscribe) is not isinstance(packet, Suback):
            raise ProtocolError("an answer to nothing that was asked")
        if isinstance(packet, Unsuback):
            assert isinstance(asked.packet, Unsubscribe)
            self._gone(session, asked.packet, packet)
        elif asked.request is not None:
            self._granted(session, asked, asked.request, packet)

    def _granted(self, session: GuardedSession, asked: Asked, request: Request, packet: Suback) -> None:
        if len(packet.reasons) != len(asked.positions):
            raise ProtocolError("SUBACK with another number of answers than there were filters")
        for index, grant, reason in zip(asked.positions, request.granted, packet.reasons, strict=True):
            request.reasons[index] = reason
            known = (session.subscriptions or {}).get(grant.filter)
            if reason >= 0x80:
                if known is grant and session.subscriptions is not None:
                    self.forget(session, grant.filter)
                    del session.subscriptions[grant.filter]
                    if session.row:
                        self.site.store.unsubscribe(session.row, grant.filter)
            else:
                grant.qos = reason
        said = asked.said
        if said is NONE and packet.properties.reason_string is not None:
            said = Properties(reason_string=packet.properties.reason_string)
        session.send(self._suback(session, asked.packet.packet_id, tuple(request.reasons), said))

    def _gone(self, session: GuardedSession, asked: Unsubscribe, packet: Unsuback) -> None:
        known = session.subscriptions or {}
        reasons = packet.reasons
        if not reasons:  # MQTT 3.1.1 has none
            none = Reason.NO_SUBSCRIPTION_EXISTED
            reasons = tuple(int(Reason.SUCCESS if filter in known else none) for filter in asked.filters)
        for filter, reason in zip(asked.filters, reasons, strict=False):
            if filter in known and reason < 0x80:
                self.forget(session, filter)
                del known[filter]
                self.scope.audit.unsubscribed(session, filter)
                if session.row:
                    self.site.store.unsubscribe(session.row, filter)
        answer = Unsuback(packet_id=asked.packet_id, reasons=reasons, properties=NONE)
        session.send(encode(answer, session.version))

    # -- what is known here, and not routed --------------------------------------------------------------------

    def add(
        self,
        session: Session,
        subscription: Subscription,
        identifier: int | None = None,
        terms: Terms = NO_TERMS,
        where: Predicate | None = None,
    ) -> Grant:
        if isinstance(session, LinkSession):
            return super().add(session, subscription, identifier, terms, where)
        group, filter = share(subscription.filter)
        grant = Grant(session, subscription, min(subscription.qos, self.site.limits.max_qos), identifier, terms, where)
        assert session.subscriptions is not None
        assert isinstance(session, GuardedSession)
        session.asks += grant.terms.asks
        if (old := session.subscriptions.get(subscription.filter)) is not None:
            session.asks -= old.terms.asks
            self._left(old)
            session.shares -= old.group is not None
        else:
            self.site.accounts.add(session.usage, "subscriptions", filter_weight(subscription.filter))
        self._count_condition(session, where, 1)
        session.subscriptions[subscription.filter] = grant
        if group is not None:
            grant.group = (group, filter)
            session.shares += 1
            self.scope.members.join(grant.filter, session)
        return grant

    def forget(self, session: Session, filter: str) -> bool:
        if isinstance(session, LinkSession):
            return super().forget(session, filter)
        grant = (session.subscriptions or {})[filter]
        assert isinstance(session, GuardedSession)
        session.asks -= grant.terms.asks
        if grant.group is not None:
            self.scope.members.leave(filter, session)
        session.shares -= grant.group is not None
        self.site.accounts.add(session.usage, "subscriptions", -filter_weight(filter))
        self._left(grant)
        return False

    def retouch(self, session: Session) -> None:
        """Only links and the broker are routed to."""
        if isinstance(session, LinkSession):
            super().retouch(session)
