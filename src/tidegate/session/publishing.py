"""What a client publishes: quotas, topic aliases, QoS 2 until it is released, and acknowledgements in their order.

What becomes of a message is decided in `scope.path`. QoS 1 is published with its PUBLISH, QoS 2 with its PUBREL.
PUBACK and PUBCOMP wait until what they acknowledge is safe: in the store, and in the journal if it has to be there.
While the journal is behind, nothing more is read from a client that publishes to it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

from tidegate.errors import ProtocolError
from tidegate.native import mypyc_attr
from tidegate.policy.capability import NOTHING, Shown
from tidegate.policy.capability.proof import shown_by
from tidegate.session import unreleased_qos2 as unreleased
from tidegate.session.carried_proof import carrying
from tidegate.session.context import NO_OPTIONS
from tidegate.session.frames import form
from tidegate.session.host import Events, Path, Refusal, Route
from tidegate.session.message import Message
from tidegate.session.packet_costs import COPIED, TAKEN
from tidegate.session.phase import OPEN, Hold
from tidegate.session.session import Session
from tidegate.wire import NONE, V5, V311, Properties, Puback, Publish, Pubrec, Reason, Type, encode

if TYPE_CHECKING:
    from tidegate.session.connection import Connection

BACKLOG = 64 * 2**20  # bytes waiting for the disk before publishers are paused
PROOF = 100  # what verifying one costs: see `packet_costs`
RETRY = 1.0  # seconds after which what found no room in the journal is tried again
PENDING = 20_000  # acknowledgements waiting for the disk before their publisher is paused

FORMS = tuple(tuple(form(version, qos, False) for qos in range(3)) for version in (V311, V5))
"""How frames that are passed on as they came are encoded, by whether the client speaks MQTT 5, and by QoS."""
_FORWARDED = (
    "payload_format_indicator",
    "content_type",
    "response_topic",
    "correlation_data",
)


@mypyc_attr(allow_interpreted_subclasses=True)
class Ack:
    """An acknowledgement that waits until what it acknowledges is safe (session.Waiter)."""

    __slots__ = ("batch", "frame", "publishing", "safe", "written")

    def __init__(self, publishing: Publishing, frame: bytes, batch: int, safe: bool, written: bool) -> None:
        self.publishing = publishing
        self.frame = frame
        self.batch = batch
        self.safe = safe  # by the store
        self.written = written  # by the journal

    def settle(self) -> None:
        self.safe = True
        self.publishing.drain()

    def settle_written(self) -> None:
        self.written = True
        self.publishing.drain()


@mypyc_attr(allow_interpreted_subclasses=True)
class Publishing:
    """What one connection publishes, until it is acknowledged."""

    __slots__ = (
        "acks",
        "aliases",
        "connection",
        "deadline",
        "forms",
        "inherited",
        "notified",
        "path",
        "quota",
        "releases",
        "session",
        "site",
        "stalled",
        "unfinished",
        "v5",
    )

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.site = connection.site
        self.session: Session
        self.path: Path
        self.v5 = False
        self.forms = FORMS[False]
        self.acks: deque[Ack] | None = None  # what is acknowledged when it is safe, in order
        self.notified = 0  # the last batch whose commit we asked to be told of
        self.unfinished = 0  # those of `acks` that end an exchange
        self.quota = 0
        self.deadline = unreleased.Deadline(connection)
        self.inherited: set[int] | None = None  # QoS 2 of an earlier connection, not heard of on this one
        self.aliases: dict[int, bytes] | None = None
        self.releases: deque[int] | None = None  # QoS 2: released by the publisher, and waiting for the journal
        self.stalled = False  # nothing more is taken before the journal has caught up

    def begin(self, session: Session, path: Path) -> None:
        """The connection is open."""
        self.session = session
        self.path = path
        self.v5 = self.connection.version == V5
        self.forms = FORMS[self.v5]
        self.quota = self.site.limits.receive_maximum  # as CONNACK says; a reload does not change it
        self.inherited = set(session.incoming) if session.incoming else None
        self.deadline.begin(session)

    def publish(self, packet: Publish) -> None:
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
                options, properties = self.connection.host.plans.read_options(properties)
        context = b""
        if options is NO_OPTIONS:
            connection = self.connection
            route = connection.reader.lane.plans.get(topic) or connection.host.plans.plan(connection, topic)
        else:
            route, context = self.connection.host.plans.plan_as(self.connection, topic, options)
        capability = self.session.subject.capability
        if capability is None:
            self.take(route, packet.payload, packet.qos, packet.retain, packet.packet_id, properties, expires, context)
            return
        ledger = capability.ledger
        ledger.shown, before = _shown(packet), ledger.verified
        if capability.token:
            properties = carrying(properties, ledger.shown, packet.qos, packet.retain)
        try:
            self.take(route, packet.payload, packet.qos, packet.retain, packet.packet_id, properties, expires, context)
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

    def ask(self, route: Route, payload: bytes, frame: bytes) -> None:
        """A QoS 0 publish without properties, of a route whose messages have to be looked at."""
        outcome = self.path.asked.publish(route, route.asked, payload, frame, self.session)
        if outcome is True:
            return
        if outcome is False:
            self.take(route, payload, 0, False, 0, NONE, None)
        else:
            self._refused(0, 0, outcome)

    def take(
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
        message: Message | None = None,
    ) -> None:
        """A publish, whichever way it was read. `head` and `tail` are its own bytes, if others may be sent them.

        `context` is given if it is not that of everything else from here, and `message` if it comes from another node.
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
        if qos and self.v5:
            # 3.3.4: publishes without PUBACK or PUBCOMP; those that wait for PUBREL are in `incoming`.
            # 4.9: the quota begins anew with each connection, whatever an earlier one left unfinished
            if len(session.incoming or ()) - len(self.inherited or ()) + self.unfinished >= self.quota:
                raise ProtocolError("receive maximum exceeded", Reason.RECEIVE_MAXIMUM_EXCEEDED)
        if message is None:
            floor = route.floor_properties
            if floor is not NONE:
                properties = with_floor_properties(properties, floor)
                if self.v5:
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
                message.form = self.forms[qos]
                message.head = head
                message.tail = tail
        if qos == 2:
            site.effort += TAKEN
            self._accept(route, message, pid)
            return
        reached = self.path.publish(route, message, session)
        if message.journaled:
            self._hold_for_journal()
        if not isinstance(reached, int):
            site.effort += TAKEN
            self._not_published(message, pid, reached)
            return
        site.effort += TAKEN + reached * (1 + (len(payload) >> COPIED))
        if qos:
            if reached and not (retain or self.acks or message.rows or message.noted or message.journaled):
                session.send(bytes((0x40, 2, pid >> 8, pid & 0xFF)))  # hot: PUBACK, nothing to wait for or to tell
                return
            reason = Reason.SUCCESS if reached else self._nobody(Reason.NO_MATCHING_SUBSCRIBERS)
            explanation = b""
            if retain and not message.retain:
                reason = Reason.QUOTA_EXCEEDED
                explanation = self._unkept(Puback, pid, reason)
            wait = message.rows > 0 or message.noted or (retain and site.store.noted)
            self._acknowledge(
                Type.PUBACK,
                pid,
                reason,
                wait=wait,
                explanation=explanation,
                message=None if message.noted or route.monitored else message,
                written=not message.journaled,
            )

    def _not_published(self, message: Message, pid: int, why: Refusal) -> None:
        """Tells the publisher of a QoS 0 or 1 message why it did not go on."""
        if why.suppressed:
            if message.qos:
                reason = self._nobody(why.reason)
                explanation = self._explained(1, pid, why, "suppressed by") if reason else b""
                self._acknowledge(Type.PUBACK, pid, reason, wait=message.noted, explanation=explanation)
        elif why.no_room:
            self._full(message.qos, pid)
        else:
            self._refused(message.qos, pid, why)

    def _nobody(self, reason: int) -> int:
        """What a publisher is told of a message that has reached nobody."""
        told = reason != Reason.NO_MATCHING_SUBSCRIBERS or self.site.limits.tell_no_subscribers
        return reason if told else Reason.SUCCESS

    # -- step 5: written down ----------------------------------------------------------------------------------

    def _hold_for_journal(self) -> None:
        """A publisher that is too fast for the disk has to wait for it."""
        journal = self.site.journal
        if journal.full and not self.stalled:
            self.stalled = True
            self.connection.hold_reading(Hold.JOURNAL)
            journal.after(self.caught_up)

    def caught_up(self) -> None:
        """Everything that was taken before is safe: it goes on."""
        self.stalled = False
        self.connection.release_reading(Hold.JOURNAL)
        waiting, self.releases = self.releases, None
        for pid in waiting or ():
            if self.connection.phase is OPEN:  # else the client releases it again when it is back
                self.release(pid)
        if self.connection.phase is OPEN:
            self.connection.reader.resume()

    # -- acknowledged ------------------------------------------------------------------------------------------

    def _accept(self, route: Route, message: Message, pid: int) -> None:
        """QoS 2: kept until the publisher releases it, if it may be written."""
        session, retain = self.session, message.retain
        kept = self.path.accept(route, message, session)
        if not isinstance(kept, Message):
            if kept.no_room:
                self._full(2, pid)
            else:
                self._refused(2, pid, kept)
            return
        size = message.size
        if not unreleased.room(session, size):
            self._full(2, pid)  # it sends and sends, and releases nothing
            return
        unreleased.keep(session, pid, (message,), size)
        self.deadline.start()
        if session.row:
            self.site.store.receive(session.row, pid, (kept,))
        elif not (self.acks or retain or message.noted):
            session.send(bytes((0x50, 2, pid >> 8, pid & 0xFF)))  # hot: PUBREC, nothing to wait for or to tell
            return
        explanation = b"" if message.retain is retain else self._unkept(Pubrec, pid, Reason.SUCCESS)
        wait = session.row != 0 or message.noted
        self._acknowledge(Type.PUBREC, pid, Reason.SUCCESS, wait=wait, explanation=explanation)

    def pinged(self) -> None:
        """PINGREQ: the answer comes behind everything that was sent before, and a piece of what is to be decided."""
        session = self.session
        if session.postponed or session.pumping or session.queued:
            session.pump()
        session.send(b"\xd0\x00")

    def release(self, pid: int) -> None:
        """PUBREL: a QoS 2 message is published, once."""
        incoming = self.session.incoming
        kept = None if incoming is None else incoming.get(pid)
        if kept is None:
            if not pid:
                raise ProtocolError("packet identifier is 0")  # [MQTT-2.2.1-3]
            self._acknowledge(Type.PUBCOMP, pid, Reason.PACKET_IDENTIFIER_NOT_FOUND, wait=False)
            return
        if self.stalled:
            self._release_later(pid)
            return
        if kept.journaled:
            self.site.journal.after(self._completed, pid)  # released before, over an earlier connection
            return
        released: list[tuple[Message, Events]] = []
        for message in kept.messages:
            events = self.path.release(self.connection, message)
            if isinstance(events, tuple):
                released.append((message, events))
            elif events.no_room:
                self._release_later(pid)  # PUBCOMP cannot say no: it waits until there is room
                return
        if kept.journaled:
            # delivered and forgotten in one commit, after the journal has it: a crash in between repeats its row
            self.site.journal.after(self._publish_released, pid, released)
            self._hold_for_journal()
        else:
            self._publish_released(pid, released)

    def _publish_released(self, pid: int, released: list[tuple[Message, Events]]) -> None:
        """Delivers what goes on of a QoS 2 message, and forgets it, in one commit."""
        session, site = self.session, self.site
        messages = unreleased.forget(session, pid)
        if self.inherited:
            self.inherited.discard(pid)
        if not site.opened:
            site.open()
        for message, events in released:
            reached = self.path.deliver_released(events, message, session)  # which has a price of its own
            site.effort += TAKEN + reached * (1 + (len(message.payload) >> COPIED))
        wait = False
        for message in messages:
            wait = wait or message.rows > 0 or message.noted or (message.retain and site.store.noted)
        if session.row:
            site.store.release(session.row, pid)
            wait = True
        if self.connection.phase is OPEN:  # else its publisher is gone meanwhile
            if wait or self.acks:
                self._acknowledge(Type.PUBCOMP, pid, Reason.SUCCESS, wait=wait)
            else:
                session.send(bytes((0x70, 2, pid >> 8, pid & 0xFF)))  # hot: nothing to wait for

    def _completed(self, pid: int) -> None:
        """A QoS 2 message that was released over an earlier connection is safe."""
        if self.connection.phase is OPEN:
            self.site.open()
            self._acknowledge(Type.PUBCOMP, pid, Reason.SUCCESS, wait=True)

    def _release_later(self, pid: int) -> None:
        """There is no room for it in the journal: it is released when there is, and what comes behind it waits."""
        if self.releases is None:
            self.releases = deque()
        self.releases.append(pid)
        if not self.stalled:
            self.stalled = True
            self.connection.hold_reading(Hold.JOURNAL)
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
        explanation: bytes = b"",
        message: Message | None = None,
        written: bool = True,
    ) -> None:
        """Acknowledgements leave in the order of what they acknowledge [MQTT-4.6.0-2].

        With `wait`, after the commit of what has been noted; or, with `message`, as soon as nobody is owed it. Unless
        it is `written`, also after what the journal has taken is on the disk.
        """
        if explanation:
            frame = explanation
        elif reason and self.v5:
            frame = bytes((type << 4, 3, pid >> 8, pid & 0xFF, reason))
        else:
            frame = bytes((type << 4, 2, pid >> 8, pid & 0xFF))
        acks = self.acks
        if not wait and written and not acks:
            self.session.send(frame)
            return
        store = self.site.store
        ack = Ack(self, frame, store.sequence, safe=not wait, written=written)
        if acks is None:
            acks = self.acks = deque()
        acks.append(ack)
        self.unfinished += type is not Type.PUBREC
        if wait:
            if message is not None:
                message.waiter = ack
            if not store.noted:
                store.after(ack.settle)  # what it waits for was noted before
            elif self.notified != ack.batch:
                self.notified = ack.batch
                store.after(self._committed, ack.batch)
        if not written:
            self.site.journal.after(ack.settle_written)
        if len(acks) > PENDING or store.backlog > BACKLOG:
            self.connection.hold_reading(Hold.STORE)

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
            frame = acks.popleft().frame
            self.unfinished -= frame[0] != Type.PUBREC << 4
            if self.connection.phase is OPEN:
                self.session.send(frame)
        if self.connection.holds and len(acks or ()) * 2 < PENDING:
            self.connection.release_reading(Hold.STORE)

    def _refused(self, qos: int, pid: int, refusal: Refusal) -> None:
        """A denied publish is acknowledged as such; 3.1.1 has no way to say no but closing."""
        if not self.v5 and self.site.limits.disconnect_denied_311:
            self.connection.close(Reason.NOT_AUTHORIZED)
        elif qos:
            type = Type.PUBACK if qos == 1 else Type.PUBREC
            self._acknowledge(type, pid, refusal.reason, wait=False, explanation=self._explained(qos, pid, refusal))
            if qos == 2 and not self.v5:
                # 3.1.1 goes on with PUBREL whatever PUBREC says; nothing is handed on for it
                if not unreleased.room(self.session, 0):
                    self.connection.close(Reason.QUOTA_EXCEEDED)
                    return
                unreleased.keep(self.session, pid, (), 0)
                self.deadline.start()

    def _explained(self, qos: int, pid: int, refusal: Refusal, word: str = "denied by") -> bytes:
        """An acknowledgement that says why, where it may; nothing if it may not."""
        # 0x83 says nothing by itself: what is wrong with the packet is told, whoever may be told of rules
        told = self.site.limits.explain or refusal.reason == Reason.IMPLEMENTATION_SPECIFIC_ERROR
        if not told:
            return b""
        packet = Puback if qos == 1 else Pubrec
        return self._reasoned(packet, pid, refusal.reason, refusal.said or f"{word} {refusal.rule}")

    def _unkept(self, packet: type[Puback | Pubrec], pid: int, reason: int) -> bytes:
        """An acknowledgement of a retained message that there is no room for."""
        return self._reasoned(packet, pid, reason, "delivered, but not kept: too many messages are retained")

    def _reasoned(self, packet: type[Puback | Pubrec], pid: int, reason: int, text: str) -> bytes:
        """An acknowledgement with a reason string; nothing if the client cannot take one [MQTT-3.4.2-2]."""
        if not self.v5 or not self.connection.problem_information:
            return b""
        explained = encode(packet(packet_id=pid, reason=reason, properties=Properties(reason_string=text)), V5)
        most = self.connection.client_max_packet
        return b"" if most and len(explained) > most else explained

    def _full(self, qos: int, pid: int) -> None:
        """Nothing can be made safe: refuse. 3.1.1 cannot be told; without an acknowledgement it keeps the message.

        Nor can a publisher whose earlier messages still wait for the disk: the refusal would wait behind them.
        """
        if self.v5 and not self.acks:
            self._acknowledge(Type.PUBACK if qos == 1 else Type.PUBREC, pid, Reason.QUOTA_EXCEEDED, wait=False)
        else:
            self.connection.close(Reason.QUOTA_EXCEEDED)


def _shown(packet: Publish) -> Shown:
    """What a message brings as proof, with what that covers."""
    properties = packet.properties
    expiry = properties.message_expiry_interval
    return shown_by(properties.user_properties, repeated=packet.dup, expiry=expiry)


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
