"""What a client publishes: quotas, topic aliases, QoS 2 until it is released, and acknowledgements in their order.

What becomes of a message is decided in `scope.path`. QoS 1 is published with its PUBLISH, QoS 2 with its PUBREL.
PUBACK and PUBCOMP wait until what they acknowledge is safe: in the store, and in the journal if it has to be there.
While the journal is behind, nothing more is read from a client that publishes to it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tidegate.errors import ProtocolError
from tidegate.policy.capability import NOTHING
from tidegate.policy.capability.proof import shown_by
from tidegate.session.connection import Hold, Line, Listening, Phase
from tidegate.session.context import NO_OPTIONS
from tidegate.session.frames import form
from tidegate.session.host import Host, Refusal, Route
from tidegate.session.message import Message
from tidegate.session.runtime import Site
from tidegate.wire import NONE, V5, Properties, Puback, Publish, Pubrec, Reason, Type, encode

BACKLOG = 64 * 2**20  # bytes waiting for the disk before publishers are paused
PROOF = 5  # what verifying one counts for against the work of a turn
RETRY = 1.0  # seconds after which what found no room in the journal is tried again
PENDING = 20_000  # acknowledgements waiting for the disk before their publisher is paused

_FORWARDED = (
    "payload_format_indicator",
    "content_type",
    "response_topic",
    "correlation_data",
)


class Ack:
    """An acknowledgement that waits until what it acknowledges is safe (session.Waiter)."""

    __slots__ = ("batch", "peer", "safe", "sent", "written")

    def __init__(self, peer: Intake, sent: bytes, batch: int, safe: bool, written: bool) -> None:
        self.peer = peer
        self.sent = sent
        self.batch = batch
        self.safe = safe  # by the store
        self.written = written  # by the journal

    def settle(self) -> None:
        self.safe = True
        self.peer.drain()

    def settle_written(self) -> None:
        self.written = True
        self.peer.drain()


class Intake(Line):
    """The publishing side of a connection."""

    __slots__ = ("acks", "aliases", "asked", "inherited", "owed", "quota", "releases", "stalled")

    def __init__(self, *, site: Site, host: Host, listener: Listening) -> None:
        super().__init__(site=site, host=host, listener=listener)
        self.acks: deque[Ack] | None = None  # what is acknowledged when it is safe, in order
        self.asked = 0  # the last batch whose commit we asked to be told of
        self.owed = 0  # those of `acks` that end an exchange
        self.quota = site.limits.receive_maximum  # as CONNACK said; a reload does not change it
        self.inherited: set[int] | None = None  # QoS 2 of an earlier connection, not heard of on this one
        self.aliases: dict[int, bytes] | None = None
        self.releases: deque[int] | None = None  # QoS 2: released by the publisher, and waiting for the journal
        self.stalled = False  # nothing more is taken before the journal has caught up

    def _publish(self, packet: Publish) -> None:
        limits = self.site.limits
        properties = packet.properties
        if packet.retain and not limits.retain:
            raise ProtocolError("retained messages are not supported", Reason.RETAIN_NOT_SUPPORTED)
        topic = packet.topic.encode()
        if properties is not NONE:
            if properties.subscription_identifiers:
                raise ProtocolError("a client may not send subscription identifiers")  # [MQTT-3.3.4-6]
            if (alias := properties.topic_alias) is not None:
                topic = self._resolve(alias, topic)
        expires = None
        options = NO_OPTIONS
        if properties is not NONE:
            if (interval := properties.message_expiry_interval) is not None:
                expires = self.site.now + interval
            properties = forwarded(properties)
            if properties.user_properties:
                options, properties = self.host.read_options(properties)
        context = b""
        if options is NO_OPTIONS:
            route = self.lane.plans.get(topic) or self.host.plan(self, topic)
        else:
            route, context = self.host.plan_as(self, topic, options)
        capability = self.session.subject.capability
        if capability is None:
            self._take(route, packet.payload, packet.qos, packet.retain, packet.packet_id, properties, expires, context)
            return
        ledger = capability.ledger
        ledger.shown, before = shown_by(packet.properties.user_properties, repeated=packet.dup), ledger.verified
        try:
            self._take(route, packet.payload, packet.qos, packet.retain, packet.packet_id, properties, expires, context)
        finally:
            ledger.shown = NOTHING
            self.site.effort += PROOF * (ledger.verified - before)

    def _resolve(self, alias: int, topic: bytes) -> bytes:
        if not 0 < alias <= self.site.limits.topic_aliases:
            raise ProtocolError("topic alias out of range", Reason.TOPIC_ALIAS_INVALID)
        aliases = self.aliases
        if aliases is None:
            aliases = self.aliases = {}
        if topic:
            aliases[alias] = topic
            return topic
        known = aliases.get(alias)
        if known is None:
            raise ProtocolError("unknown topic alias")  # MQTT 5, 3.3.2.3.4
        return known

    def _take(
        self,
        route: Route,
        payload: bytes,
        qos: int,
        retain: bool,
        pid: int,
        properties: Properties,
        expires: float | None,
        context: bytes = b"",
        head: bytes = b"",
        tail: bytes = b"",
    ) -> None:
        """A publish, whichever way it was read. `head` and `tail` are its own bytes, if others may be sent them.

        `context` is given if it is not that of everything else from here.
        """
        session = self.session
        site = self.site
        if qos > site.limits.max_qos:
            raise ProtocolError("QoS not supported", Reason.QOS_NOT_SUPPORTED)
        if qos == 2 and session.incoming and pid in session.incoming:
            # [MQTT-4.3.3-10] seen before: acknowledge again, publish once
            if self.inherited:
                self.inherited.discard(pid)
            self._acknowledge(Type.PUBREC, pid, Reason.SUCCESS, wait=session.row != 0)
            return
        if qos and self.version == V5:
            # 3.3.4: publishes without PUBACK or PUBCOMP; those that wait for PUBREL are in `incoming`.
            # 4.9: the quota begins anew with each connection, whatever an earlier one left unfinished
            if len(session.incoming or ()) - len(self.inherited or ()) + self.owed >= self.quota:
                raise ProtocolError("receive maximum exceeded", Reason.RECEIVE_MAXIMUM_EXCEEDED)
        floor = self.lane.floor_properties
        if floor is not NONE:
            properties = with_floor_properties(properties, floor)
            if self.version == V5:
                head = b""  # subscribers are told more than it says
        site.number += 1
        message = Message(
            route.topic,
            payload,
            qos,
            retain,
            site.wall,
            site.origin,
            site.number,
            context or session.context,
            session.inward.type,
            properties,
            expires,
        )
        if head:
            message.form = form(self.version, qos, False)
            message.head = head
            message.tail = tail
        if qos == 2:
            self._accept(route, message, pid)
            return
        reached = self.path.publish(route, message, session)
        if message.journaled:
            self._hold_for_journal()
        if not isinstance(reached, int):
            self._not_published(message, pid, reached)
        elif qos:
            reason = Reason.SUCCESS if reached else Reason.NO_MATCHING_SUBSCRIBERS
            wait = message.rows > 0 or message.noted or (retain and site.store.noted)
            self._acknowledge(
                Type.PUBACK,
                pid,
                reason,
                wait=wait,
                message=None if message.noted or route.monitored else message,
                written=not message.journaled,
            )

    def _not_published(self, message: Message, pid: int, why: Refusal) -> None:
        """Tells the publisher of a QoS 0 or 1 message why it did not go on."""
        if why.suppressed:
            if message.qos:
                said = self._explained(1, pid, why, "suppressed by")
                self._acknowledge(Type.PUBACK, pid, why.reason, wait=message.noted, said=said)
        elif why.no_room:
            self._full(message.qos, pid)
        else:
            self._refused(message.qos, pid, why)

    # -- step 5: written down ----------------------------------------------------------------------------------

    def _hold_for_journal(self) -> None:
        """A publisher that is too fast for the disk has to wait for it."""
        journal = self.site.journal
        if journal.full and not self.stalled:
            self.stalled = True
            self.hold_reading(Hold.JOURNAL)
            journal.after(self.caught_up)

    def caught_up(self) -> None:
        """Everything that was taken before is safe: it goes on."""
        self.stalled = False
        self.release_reading(Hold.JOURNAL)
        waiting, self.releases = self.releases, None
        for pid in waiting or ():
            if self.phase is Phase.OPEN:  # else the client releases it again when it is back
                self._released(pid)

    # -- acknowledged ------------------------------------------------------------------------------------------

    def _accept(self, route: Route, message: Message, pid: int) -> None:
        """QoS 2: kept until the publisher releases it, if it may be written."""
        session = self.session
        kept = self.path.accept(route, message, session)
        if not isinstance(kept, Message):
            if kept.no_room:
                self._full(2, pid)
            else:
                self._refused(2, pid, kept)
            return
        if session.incoming and session.incoming_bytes + message.size > self.site.limits.queue_bytes:
            self._full(2, pid)  # it sends and sends, and releases nothing
            return
        if session.incoming is None:
            session.incoming = {}
        session.incoming[pid] = (message,)
        session.incoming_bytes += message.size
        if session.row:
            self.site.store.receive(session.row, pid, (kept,))
        self._acknowledge(Type.PUBREC, pid, Reason.SUCCESS, wait=session.row != 0 or message.noted)

    def _released(self, pid: int) -> None:
        """PUBREL: a QoS 2 message is published, once."""
        session = self.session
        incoming = session.incoming
        if incoming is None or pid not in incoming:
            if not pid:
                raise ProtocolError("packet identifier is 0")  # [MQTT-2.2.1-3]
            self._acknowledge(Type.PUBCOMP, pid, Reason.PACKET_IDENTIFIER_NOT_FOUND, wait=False)
            return
        if self.stalled:
            self._release_later(pid)
            return
        messages = incoming[pid]
        if any(message.journaled for message in messages):
            self.site.journal.after(self._completed, pid)  # released before, over an earlier connection
            return
        released: list[tuple[Message, Sequence[Any]]] = []
        for message in messages:
            events = self.path.release(self, message)
            if isinstance(events, Sequence):
                released.append((message, events))
            elif events.no_room:
                self._release_later(pid)  # PUBCOMP cannot say no: it waits until there is room
                return
        if any(message.journaled for message in messages):
            # delivered and forgotten in one commit, after the journal has it: a crash in between repeats its row
            self.site.journal.after(self._publish_released, pid, released)
            self._hold_for_journal()
        else:
            self._publish_released(pid, released)

    def _publish_released(self, pid: int, released: list[tuple[Message, Sequence[Any]]]) -> None:
        """Delivers what goes on of a QoS 2 message, and forgets it, in one commit."""
        session = self.session
        messages = (session.incoming or {}).pop(pid, ())
        session.incoming_bytes -= sum(message.size for message in messages)
        if self.inherited:
            self.inherited.discard(pid)
        self.site.open()
        wait = False
        for message, events in released:
            self.path.deliver_released(events, message, session)
        for message in messages:
            wait = wait or message.rows > 0 or message.noted or (message.retain and self.site.store.noted)
        if session.row:
            self.site.store.release(session.row, pid)
            wait = True
        self._completed(pid, wait)

    def _completed(self, pid: int, wait: bool = True) -> None:
        """A QoS 2 message was published; its publisher may be gone meanwhile."""
        if self.phase is Phase.OPEN:
            self.site.open()
            self._acknowledge(Type.PUBCOMP, pid, Reason.SUCCESS, wait=wait)

    def _release_later(self, pid: int) -> None:
        """There is no room for it in the journal: it is released when there is, and what comes behind it waits."""
        if self.releases is None:
            self.releases = deque()
        self.releases.append(pid)
        if not self.stalled:
            self.stalled = True
            self.hold_reading(Hold.JOURNAL)
            if self.site.journal.full:
                self.site.journal.after(self.caught_up)
            else:
                self.site.timers.at(self.site.now + RETRY, self.caught_up)

    def _acknowledge(
        self,
        type: Type,
        pid: int,
        reason: int,
        wait: bool,
        said: bytes = b"",
        message: Message | None = None,
        written: bool = True,
    ) -> None:
        """Acknowledgements leave in the order of what they acknowledge [MQTT-4.6.0-2].

        With `wait`, after the commit of what has been noted; or, with `message`, as soon as nobody is owed it. Unless
        it is `written`, also after what the journal has taken is on the disk.
        """
        if said:
            sent = said
        elif reason and self.version == V5:
            sent = bytes((type << 4, 3, pid >> 8, pid & 0xFF, reason))
        else:
            sent = bytes((type << 4, 2, pid >> 8, pid & 0xFF))
        acks = self.acks
        if not wait and written and not acks:
            self.session.send(sent)
            return
        store = self.site.store
        ack = Ack(self, sent, store.sequence, safe=not wait, written=written)
        if acks is None:
            acks = self.acks = deque()
        acks.append(ack)
        self.owed += type is not Type.PUBREC
        if wait:
            if message is not None:
                message.waiter = ack
            if not store.noted:
                store.after(ack.settle)  # what it waits for was noted before
            elif self.asked != ack.batch:
                self.asked = ack.batch
                store.after(self._committed, ack.batch)
        if not written:
            self.site.journal.after(ack.settle_written)
        if len(acks) > PENDING or store.backlog > BACKLOG:
            self.hold_reading(Hold.STORE)

    def _committed(self, batch: int) -> None:
        for ack in self.acks or ():
            if ack.batch > batch:
                break
            ack.safe = True
        self.drain()

    def drain(self) -> None:
        """Sends the acknowledgements whose time has come, in their order."""
        acks = self.acks
        while acks and acks[0].safe and acks[0].written:
            sent = acks.popleft().sent
            self.owed -= sent[0] != Type.PUBREC << 4
            if self.phase is Phase.OPEN:
                self.session.send(sent)
        if self.held and len(acks or ()) * 2 < PENDING:
            self.release_reading(Hold.STORE)

    def _refused(self, qos: int, pid: int, refusal: Refusal) -> None:
        """A denied publish is acknowledged as such; 3.1.1 has no way to say no but closing."""
        if self.version != V5 and self.site.limits.disconnect_denied_311:
            self.close(Reason.NOT_AUTHORIZED)
        elif qos:
            type = Type.PUBACK if qos == 1 else Type.PUBREC
            self._acknowledge(type, pid, refusal.reason, wait=False, said=self._explained(qos, pid, refusal))
            if qos == 2 and self.version != V5:
                # 3.1.1 goes on with PUBREL whatever PUBREC says; nothing is handed on for it
                if self.session.incoming is None:
                    self.session.incoming = {}
                self.session.incoming[pid] = ()

    def _explained(self, qos: int, pid: int, refusal: Refusal, word: str = "denied by") -> bytes:
        """An acknowledgement that says why, where it may; nothing if it may not."""
        if self.version != V5 or not self.site.limits.explain or not self.problem_information:
            return b""
        packet = Puback if qos == 1 else Pubrec
        why = Properties(reason_string=refusal.said or f"{word} {refusal.rule}")
        explained = encode(packet(packet_id=pid, reason=refusal.reason, properties=why), V5)
        return b"" if self.maximum and len(explained) > self.maximum else explained  # [MQTT-3.4.2-2]

    def _full(self, qos: int, pid: int) -> None:
        """Nothing can be made safe: refuse. 3.1.1 cannot be told; without an acknowledgement it keeps the message.

        Nor can a publisher whose earlier messages still wait for the disk: the refusal would wait behind them.
        """
        if self.version == V5 and not self.acks:
            self._acknowledge(Type.PUBACK if qos == 1 else Type.PUBREC, pid, Reason.QUOTA_EXCEEDED, wait=False)
        else:
            self.close(Reason.QUOTA_EXCEEDED)


def with_floor_properties(properties: Properties, floor: Properties) -> Properties:
    """The properties of a message, then the floor that the node announces, which stands last."""
    if properties is NONE:
        return floor
    return replace(properties, user_properties=(*properties.user_properties, *floor.user_properties))


def forwarded(properties: Properties) -> Properties:
    """What of the properties of a PUBLISH or a will is the message's own and goes to its receivers."""
    if properties.user_properties or any(getattr(properties, name) is not None for name in _FORWARDED):
        return Properties(
            payload_format_indicator=properties.payload_format_indicator,
            content_type=properties.content_type,
            response_topic=properties.response_topic,
            correlation_data=properties.correlation_data,
            user_properties=properties.user_properties,
        )
    return NONE
