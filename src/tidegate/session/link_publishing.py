"""What another node publishes over a link: the same as of a client, but each message brings its own context and id."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from tidegate.bounded import Weighed
from tidegate.errors import ProtocolError
from tidegate.session import unreleased_qos2 as unreleased
from tidegate.session.connection import Connection
from tidegate.session.host import Events, Lane, Refusal, Route
from tidegate.session.message import Message
from tidegate.session.packet_costs import AMPLE_LINK, STALLED
from tidegate.session.phase import OPEN
from tidegate.session.publishing import Publishing
from tidegate.session.reencoding import Onward, onward, pass_on, relay
from tidegate.wire import NONE, Publish, Reason, Type, encode_varint
from tidegate.wire.envelope import (
    BUNDLED,
    bundled_lengths,
    dynamic_at,
    flags_at,
    is_bundle,
    plain_at,
    relayed_at,
    single,
)

KNOWN: Final = 10_000  # static parts and topics of one connection
KNOWN_BYTES: Final = 8 * 2**20  # and what they have together
STRETCH: Final = 256 * 1024  # bytes that are taken at once: what a socket brings; the rest takes the general path
QOS_1: Final = 0x32  # PUBLISH, neither DUP nor retained

REPEATED: Final = Reason.PACKET_IDENTIFIER_IN_USE
"""What the other node is told in PUBREC of a message that has been here: it lets go of it."""


@dataclass(frozen=True, slots=True)
class Imported:
    """A message that has come out of its envelope, and the plan that it follows."""

    route: Route
    message: Message
    lane: Lane | None = None
    """Where the route stays as long as it holds."""
    once: bool = False
    """Its id is remembered, also if it has QoS 0."""
    ringed: bool = False
    """It has QoS 0, and may come another way too."""


@dataclass(slots=True)
class Alike:
    """What QoS 0 or QoS 1 messages of one static part and topic have in common."""

    lane: Lane
    name: bytes
    """Of their route there."""
    message: Message
    """One of them, without its payload."""
    route: Route | None = None
    """The one for which `onward` was found."""
    onward: tuple[Onward, ...] = ()
    """How they begin on their way to other nodes."""


class Importer(Protocol):
    """Opens what comes over a link (scope.imports)."""

    def opened(self, connection: Connection, packet: Publish) -> Imported | Refusal | None:
        """A message and its plan, or why it is refused; None: it has been here, or comes back."""
        ...

    def alike(
        self, other: Message, origin: bytes, number: int, output: int, published: float, payload: bytes
    ) -> Message | None:
        """A QoS 1 message that differs from another one in nothing but these; None: to be looked at more closely."""
        ...

    @property
    def epoch(self) -> object:
        """Another value: what was found before has to be looked up anew."""
        ...

    def told(self, packet: Publish) -> bool:
        """Whether it is for this node itself, which has taken note of it."""
        ...

    def seen(self, message: Message) -> None:
        """A message has been taken: it is not taken again, whichever way it comes."""
        ...

    def note(self, message: Message) -> None:
        """A QoS 0 message has been taken, and may come another way too."""
        ...

    def same(self, packet: Publish, messages: tuple[Message, ...]) -> bool:
        """Whether a PUBLISH is the one that these messages came from."""
        ...

    def settled(self, message: Message, published: bool) -> None:
        """A QoS 2 message that was released has been published, or refused."""
        ...


class LinkPublishing(Publishing):
    """What one connection of a link publishes, until it is acknowledged."""

    __slots__ = ("_alike", "_epoch", "_known", "_refusal", "importer")

    def __init__(self, connection: Connection, importer: Importer) -> None:
        super().__init__(connection)
        self.importer = importer
        self._refusal: Refusal | None = None  # why the last QoS 0 or 1 message was not published
        self._known: Weighed[tuple[bytes, bytes], Alike] = Weighed(
            KNOWN, KNOWN_BYTES, lambda key: len(key[0]) + len(key[1])
        )
        """By static part and topic: what QoS 0 messages have in common,"""
        self._alike: Weighed[tuple[bytes, bytes], Alike] = Weighed(
            KNOWN, KNOWN_BYTES, lambda key: len(key[0]) + len(key[1])
        )
        """and QoS 1 messages."""
        self._epoch = importer.epoch

    def read_ahead(self, data: bytes, room: int) -> tuple[int, int]:
        """Takes messages that need nothing but a look-up, up to the first packet that is anything else: QoS 0, and
        QoS 1 as long as less than `room` has been spent in this turn.

        How many bytes and how many messages that was.
        """
        # hot: two look-ups and one append per target
        known, site, limit = self._known, self.site, self.connection.reader.max_packet
        dirty = site.dirty
        if self.connection.reader.has_to_rest():
            room = -1
        elif not site.contended and not site.waiting.heap:
            room = max(room, site.effort + AMPLE_LINK)
        if self._epoch != self.importer.epoch:
            self._epoch = self.importer.epoch
            known.clear()
            self._alike.clear()
        pos = taken = 0
        end = min(len(data), STRETCH)
        while pos + 4 < end and ((first := data[pos]) == 0x30 or first == QOS_1):
            length = data[pos + 1]
            start = pos + 2
            if length > 127:
                length += (data[pos + 2] - 1) << 7
                start = pos + 3
                if data[pos + 2] > 127:
                    length += (data[pos + 3] - 1) << 14
                    start = pos + 4
                if not 0 < data[start - 1] < 128:
                    break
            stop = start + length
            after = start + 2 + (data[start] << 8 | data[start + 1])
            if stop > len(data) or stop - pos > limit:
                break
            if first == QOS_1:
                if site.effort > room or after + 2 >= stop or not self._take_alike(data, start, after, stop):
                    break
                taken += 1
                pos = stop
                if self.stalled or self.connection.phase is not OPEN:
                    self.connection.reader.need = STALLED
                    site.publishes += taken
                    site.read += pos
                    return pos, taken
                continue
            if after >= stop or data[after]:
                break
            edge, body, flags = flags_at(data, after + 1, stop)
            lengths: Sequence[int] = ()  # of several in one envelope
            if flags == BUNDLED:
                lengths = bundled_lengths(data, edge, stop)
            elif flags:
                break
            name = data[start:after]
            found = known.get((data[after + 1 : edge], name))
            if found is None:
                break
            route = found.lane.plans.get(found.name)  # none after a change
            if route is None or (fast := route.fast) is None:
                break
            if route.guarded and not route.calm(self.session):
                break
            if route.carried and not self._relays(route, found, data, edge, stop, len(lengths) or 1):
                break
            if lengths:
                pass_on(self.connection, route, name, data, stop - sum(lengths), lengths)
            elif route.cross:
                pass_on(self.connection, route, name, data, body, (stop - body,))
            elif fast:
                packet = b"0%b%b\0%b" % (encode_varint(len(name) + 1 + stop - body), name, data[body:stop])
                for target in fast:
                    out = target.out
                    if not out:
                        dirty.append(target)
                    out.append(packet)
            count = len(lengths) or 1
            route.passed += count
            taken += count
            pos = stop
        return pos, taken

    def _relays(self, route: Route, alike: Alike, data: bytes, edge: int, stop: int, count: int) -> bool:
        """QoS 0 messages go on to other nodes as they came, as far as the node that they came from has the say."""
        # hot: one join per link
        latest = self.site.wall + self.site.limits.clock_skew
        if not route.relayed or not relayed_at(data, edge, alike.message.origin.key, latest):
            return False
        body = data[edge:stop]
        if alike.route is route:
            if relay(alike.onward, body, count):
                return True
            if all(link.exporter is exporter for link, exporter, _ in alike.onward):
                return False
        alike.route, alike.onward = route, onward(route, alike.message)
        return relay(alike.onward, body, count)

    def _take_alike(self, data: bytes, start: int, after: int, stop: int) -> bool:
        """Takes a QoS 1 message whose topic ends at `after`, if it is like an earlier one; whether it is."""
        # hot: two look-ups, and what every QoS 1 message takes
        body = after + 3
        edge, behind = plain_at(data, body, 1)
        pid = data[after] << 8 | data[after + 1]
        if not edge or behind > stop or data[body - 1] or not pid:
            return False
        alike = self._alike.get((data[body:edge], data[start:after]))
        id = None if alike is None else dynamic_at(data, edge)
        if alike is None or id is None:
            return False
        route = alike.lane.plans.get(alike.name)  # none after a change
        message = None if route is None else self.importer.alike(alike.message, *id, data[behind:stop])
        if route is None or message is None:
            return False
        self._begin()
        self.take(route, b"", 1, False, pid, NONE, None, message=message)
        if self._refusal is None or self._refusal.suppressed:
            self._taken(message)
        return True

    def publish(self, packet: Publish) -> None:
        if packet.properties.topic_alias is not None or packet.properties.subscription_identifiers:
            raise ProtocolError("neither topic aliases nor subscription identifiers go over a link")
        if packet.topic[:1] == "$" and self.importer.told(packet):
            return
        qos, pid = packet.qos, packet.packet_id
        if qos == 2 and self._resent(packet):
            return
        if not qos and is_bundle(packet.payload):
            self._publish_each(packet)
            return
        imported = self.importer.opened(self.connection, packet)
        if isinstance(imported, Imported):
            message = imported.message
            if imported.lane is not None and qos < 2 and not packet.retain and packet.properties is NONE:
                self._remember(packet, imported, imported.lane)
            self._begin()
            self.take(imported.route, b"", qos, packet.retain, pid, packet.properties, message.expires, message=message)
            taken = self._refusal is None or self._refusal.suppressed
            if imported.ringed and taken:
                self.importer.note(message)
            elif qos < 2 and imported.once and taken:
                self._taken(message)
        elif imported is not None:
            self._refused(qos, pid, imported)
        elif qos:
            # whoever sends it is done with it: 0x10, or PUBREC with a reason, ends the exchange
            type = Type.PUBACK if qos == 1 else Type.PUBREC
            self._acknowledge(type, pid, Reason.NO_MATCHING_SUBSCRIBERS if qos == 1 else REPEATED, wait=False)

    def _publish_each(self, packet: Publish) -> None:
        """Several messages in one packet that have to be decided one by one."""
        connection = self.connection
        count = -1
        for payload in single(packet.payload):
            count += 1
            self.publish(replace(packet, payload=payload))
            if connection.phase is not OPEN:
                return
        self.site.publishes += count
        connection.throttle(count)

    def _remember(self, packet: Publish, imported: Imported, lane: Lane) -> None:
        """Those that are like this one take the shorter way."""
        message = imported.message
        edge, _ = plain_at(packet.payload, 0, packet.qos)
        if not edge or message.qos != packet.qos:
            return
        name = packet.topic.encode()
        key = packet.payload[:edge], len(name).to_bytes(2, "big") + name
        if packet.qos or imported.route.fast is not None:
            like = message.copied()
            like.payload = b""
            (self._alike if packet.qos else self._known)[key] = Alike(lane, name, like)

    def _resent(self, packet: Publish) -> bool:
        """Whether it waits for PUBREL already: it is acknowledged again. Another message under the same identifier says
        that the other node has let go of the one that waits."""
        pid = packet.packet_id
        kept = (self.session.incoming or {}).get(pid)
        if kept is None:
            return False
        if self.importer.same(packet, kept.messages):
            if self.inherited:
                self.inherited.discard(pid)
            self._acknowledge(Type.PUBREC, pid, Reason.SUCCESS, wait=self.session.row != 0)
            return True
        if kept.journaled:
            return False
        unreleased.forget(self.session, pid)
        if self.inherited:
            self.inherited.discard(pid)
        if self.session.row:
            self.site.store.release(self.session.row, pid)
        return False

    def _taken(self, message: Message) -> None:
        """Its id is in the store with what becomes of it; if that is in the journal, not before it."""
        if message.journaled:
            self.site.journal.after(self.importer.seen, message)
        else:
            self.importer.seen(message)

    def _begin(self) -> None:
        self._refusal = None  # in a method: what checks types would hold it to be None after `take`, too

    def _not_published(self, message: Message, pid: int, why: Refusal) -> None:
        self._refusal = why
        super()._not_published(message, pid, why)

    def _publish_released(self, pid: int, released: list[tuple[Message, Events]]) -> None:
        kept = (self.session.incoming or {}).get(pid)
        messages = () if kept is None else kept.messages
        super()._publish_released(pid, released)
        for message in messages:
            self.importer.settled(message, any(message is each for each, _ in released))

    def _full(self, qos: int, pid: int) -> None:
        """Nothing can be made safe. A reason in PUBACK or PUBREC would end the exchange; without one the other node
        keeps the message."""
        self.connection.close(Reason.QUOTA_EXCEEDED, "nothing can be made safe here at the moment")
