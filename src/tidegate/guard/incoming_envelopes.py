"""What the broker delivers to one client: out of its envelope, decided, and passed on (steps 6 to 11 of the path).

A message that this client may not have is acknowledged to the broker and audited: it would come again and again.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from tidegate.config.scopes import Unenveloped
from tidegate.gate import Deny, Step
from tidegate.gate.attributes import FLOOR
from tidegate.guard import envelopes
from tidegate.guard.envelopes import ALTERED, CALLED, PROPERTY, Unauthentic, altered
from tidegate.policy.brokering import PLAIN
from tidegate.session import Message, forwarded, with_floor_properties
from tidegate.wire import NONE, V5, Publish, Pubrel, decode, encode, encode_properties, encode_varint
from tidegate.wire.envelope import Envelope, authentic_at

if TYPE_CHECKING:
    from tidegate.guard.bridging import Bridge
    from tidegate.guard.guarded_scope import GuardedScope
    from tidegate.guard.guarded_session import GuardedSession
    from tidegate.guard.upstream import Upstream

UNENVELOPED: Final = Deny(step=Step.WRITE, rule="unenveloped")


class IncomingEnvelopes:
    """Takes what one client's connection to the broker brings."""

    __slots__ = ("_opened", "own", "scope", "session", "upstream", "v5")

    def __init__(self, scope: GuardedScope, session: GuardedSession, upstream: Upstream) -> None:
        self.scope = scope
        self.session = session
        self.upstream = upstream
        self.v5 = upstream.v5
        self._opened: Envelope | None = None  # of the message that is being taken
        self.own: set[int] | None = None  # QoS 2 messages that the guard answers in place of its client

    def unacknowledged(self, data: bytes, start: int, stop: int) -> None:
        """A QoS 0 message that is not retained."""
        # hot: one MAC, one look-up, one append
        session, v5 = self.session, self.v5
        after = stop if stop - start < 3 else start + 2 + (data[start] << 8 | data[start + 1])
        if after < stop and not (v5 and data[after]) and (known := session.last) is not None:
            edge, body, origin, number, micros = authentic_at(data, after + v5, stop, self.scope.settings.key)
            last = known.get(data[start:edge])
            if (
                last is not None
                and (head := last.head)
                and last.origin == origin
                and last.numbers[0] < number
                and last.epoch == self.scope.gate.stored.epoch
                and last.link is session.outward
                and micros >= self.scope.oldest
                and not session.shut
            ):
                last.numbers[0], last.micros = number, micros
                out = session.out
                if not out:
                    self.scope.site.dirty.append(session)
                out.append(b"0%b%b%b" % (encode_varint(len(head) + stop - body), head, data[body:stop]))
                return
        packet = decode(0x30, data[start:stop], self.upstream.version)
        assert isinstance(packet, Publish)
        self.published(packet)

    def published(self, packet: Publish) -> None:
        """A message."""
        if packet.qos and (window := self.session.taking) is not None:
            if not window.has_room(packet.packet_id, partial(self._later, packet)):
                return
        message = self._message(packet)
        if message is None or (not self.v5 and self._own(message)):
            self._done_with(packet)
            return
        if self.session.bridge is not None:
            self._over_bridge(packet, message, self.session.bridge)
            return
        events = self.scope.path.egress.received(self.session, message)
        if isinstance(events, Deny):
            self._denied(packet, message, events)
            return
        if not packet.qos and len(events) == 1 and events[0][1] is message:
            self._note_clear(packet, message)
        waits = False
        for delivery, shown in events:
            if delivery is None:
                waits = self._passed_on(packet, shown) or waits
            else:  # a monitor has made it
                self.session.add(delivery, shown)
        if not waits:
            self._done_with(packet)

    def _later(self, packet: Publish) -> None:
        """The client has room for it by now."""
        if self.upstream.opened:  # else it comes again over another connection
            self.published(packet)

    def _over_bridge(self, packet: Publish, message: Message, bridge: Bridge) -> None:
        """The client is another broker's bridge: the message goes to another environment."""
        verdict = bridge.leaving(message)
        if isinstance(verdict, Deny):
            self.scope.report("write", bridge.outward, message.topic, verdict, message.context)
            self._done_with(packet)
        elif not self._passed_on(packet, verdict):
            self._done_with(packet)

    def _denied(self, packet: Publish, message: Message, why: Deny) -> None:
        """Another member of a shared subscription may have it; else nobody."""

        def done(taken: bool) -> None:
            if taken and self.upstream.opened:
                self._done_with(packet)  # else the broker still owes it

        if not self.scope.members.hand_on(self.session, message, packet.qos, done):
            self.scope.report("read", self.session.outward, message.topic, why, message.context)
            self._done_with(packet)

    def _own(self, message: Message) -> bool:
        """Whether its client has published it and does not want it, which a broker of MQTT 3.1.1 is not told."""
        return self.scope.path.egress.own(self.session, message) and self.session.wants_no_own(message.topic)

    def _message(self, packet: Publish) -> Message | None:
        """What a packet brings, out of its envelope; None: nothing that anybody may have."""
        scope, site = self.scope, self.scope.site
        topic = packet.topic
        self._opened = None
        if topic[:1] == "$" and topic.startswith("$SYS/"):
            return self._plain(packet, envelopes.backend(scope))
        if topic[:1] == "$" and scope.settings.abilities.internal:
            return None  # of the broker with itself
        if not scope.enforcing and not self._enveloped(packet):
            return scope.passed.attributed(self._plain(packet, b""))
        try:
            if scope.settings.as_property:
                pairs = packet.properties.user_properties
                envelope, payload = scope.envelopes.opened_property(pairs, packet.payload), packet.payload
                pairs = tuple(pair for pair in pairs if pair[0] != PROPERTY)
                packet = replace(packet, properties=replace(packet.properties, user_properties=pairs))
            else:
                envelope, payload = scope.envelopes.opened(packet.payload)
        except Unauthentic as error:
            if not packet.payload:
                return None  # a retained message was cleared: what says so to clients comes in an envelope
            if scope.settings.unenveloped is Unenveloped.PLAIN and not packet.payload.startswith(b"TG"):
                return self._plain(packet, envelopes.nobody(scope))
            self._report(topic, Deny(step=Step.WRITE, rule="unenveloped", detail=str(error)))
            return None
        static, id = envelope.static, envelope.id
        if altered(packet.properties, static):
            self._report(topic, Deny(step=Step.WRITE, rule="unenveloped", detail=ALTERED))
            return None
        if (why := self.session.replayed(packet, topic, envelope, scope.oldest)) is not None:
            self._report(topic, why)
            return None
        if static.publisher.get(CALLED, static.topic) != topic:
            self._report(topic, Deny(step=Step.WRITE, rule="unenveloped", detail="it is under another topic"))
            return None
        self._opened = envelope
        context = scope.envelopes.context(static, topic, envelope.qos if envelope.qos != packet.qos else None)
        properties = packet.properties
        expires = None
        if properties is not NONE:
            if (interval := properties.message_expiry_interval) is not None:
                expires = site.now + interval
            properties = forwarded(properties)
        if envelope.expiry is not None and scope.service.version != V5:  # the broker does not know that it expires
            left = envelope.published + envelope.expiry - site.wall
            if left <= 0:
                site.counters.expired += 1
                return None
            expires = site.now + left
        floor = scope.gate.floor_properties(scope.gate.attributes.decoded(context))
        if floor is not NONE:
            properties = with_floor_properties(properties, floor)
        return Message(
            topic,
            payload,
            packet.qos,
            envelope.retain,
            envelope.published,
            scope.envelopes.maker(id.origin),
            id.number,
            context,
            static.link,
            properties,
            expires,
            id.output,
        )

    def _enveloped(self, packet: Publish) -> bool:
        """Whether a message has an envelope all the same: it was published while the scope enforced its rules."""
        scope = self.scope
        try:
            if scope.settings.as_property:
                scope.envelopes.opened_property(packet.properties.user_properties, packet.payload)
            else:
                scope.envelopes.opened(packet.payload)
        except Unauthentic:
            return False
        return True

    def _plain(self, packet: Publish, context: bytes) -> Message:
        """What comes without an envelope, and may."""
        site = self.scope.site
        site.number += 1
        properties = forwarded(packet.properties)
        pairs = tuple(pair for pair in properties.user_properties if pair[0] != FLOOR)
        if pairs != properties.user_properties and self.scope.enforcing:
            properties = NONE
        interval = packet.properties.message_expiry_interval
        return Message(
            packet.topic,
            packet.payload,
            packet.qos,
            packet.retain,
            site.wall,
            site.origin,
            site.number,
            context,
            PLAIN.inward,
            properties,
            None if interval is None else site.now + interval,
        )

    def _note_clear(self, packet: Publish, message: Message) -> None:
        """Notes that what follows of the same publisher and topic just passes, if that is so."""
        session, scope = self.session, self.scope
        if not self.v5 and session.version == V5:  # what the broker does not know is looked up for each
            return
        if session.asks or session.leaving or not session.plain or scope.gate.counts_allowed or packet.retain:
            return
        if self._opened is None or not scope.gate.stored.clear_for(message, session):
            return
        last = session.last_of(packet.topic, self._opened)
        name = packet.topic.encode()
        block = b""
        if session.version == V5:
            floor = scope.gate.floor_properties(scope.gate.attributes.context(message))
            block = b"\0" if floor is NONE else encode_properties(floor)
        last.head = scope.interned[len(name).to_bytes(2, "big") + name + block]
        last.epoch, last.link = scope.gate.stored.epoch, session.outward

    def _passed_on(self, packet: Publish, message: Message) -> bool:
        """Sends a message that was decided to the client; whether there is room for it in a packet."""
        session = self.session
        retain = packet.retain or (
            message.retain and not message.payload and session.retains_as_published(packet.topic)
        )
        if session.shut and not packet.qos:  # before its topic gets an alias that the client would not learn
            self.scope.site.counters.dropped += 1
            return True
        ids = packet.properties.subscription_identifiers if self.v5 else session.identifiers(packet.topic)
        fitting = session._fitting(message, packet.qos, retain, ids)
        if fitting is None:
            self.scope.site.counters.dropped += 1
            return False
        head, tail = fitting
        if not packet.qos:
            session.append(head + tail, acknowledged=False)
            return True
        if session.lent is not None and packet.packet_id in session.lent:
            self.upstream.end("the broker has come to a packet identifier that the guard uses")
            return True
        if packet.dup:
            head = bytes((head[0] | 0x08,)) + head[1:]
        if session.taking is not None:
            session.taking.sent(packet.packet_id)
        session.append(b"%b%b%b" % (head, packet.packet_id.to_bytes(2, "big"), tail), acknowledged=True)
        return True

    def _done_with(self, packet: Publish) -> None:
        """The client does not get it: the broker is told that it has been taken."""
        pid = packet.packet_id
        if packet.qos == 1:
            self.upstream.send(b"\x40\x02" + pid.to_bytes(2, "big"))
        elif packet.qos == 2:
            if not packet.dup:  # else the client may have had it before, and waits for PUBREL
                if self.own is None:
                    self.own = set()
                self.own.add(pid)
            self.upstream.send(b"\x50\x02" + pid.to_bytes(2, "big"))

    def released(self, packet: Pubrel) -> None:
        """PUBREL of the broker."""
        pid = packet.packet_id
        if self.own is not None and pid in self.own:
            self.own.discard(pid)
            self.upstream.send(b"\x70\x02" + pid.to_bytes(2, "big"))
        else:
            self.session.send(encode(packet, self.session.version))

    def _report(self, topic: str, why: Deny) -> None:
        self.scope.report("read", self.session.outward, topic, why)
