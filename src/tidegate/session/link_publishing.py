"""What another node publishes over a link: the same as of a client, but each message brings its own context and id."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from tidegate.bounded import Weighed
from tidegate.errors import ProtocolError
from tidegate.session import unreleased_qos2 as unreleased
from tidegate.session.connection import Connection
from tidegate.session.host import Events, Lane, Refusal, Route
from tidegate.session.message import Message
from tidegate.session.publishing import Publishing
from tidegate.session.reencoding import cross
from tidegate.wire import Publish, Reason, Type, encode_varint
from tidegate.wire.envelope import plain_at

KNOWN: Final = 10_000  # static parts and topics of one connection
KNOWN_BYTES: Final = 8 * 2**20  # and what they have together
STRETCH: Final = 256 * 1024  # bytes that are taken at once: what a socket brings; the rest takes the general path

REPEATED: Final = Reason.PACKET_IDENTIFIER_IN_USE
"""What the other node is told in PUBREC of a message that has been here: it lets go of it."""


@dataclass(frozen=True, slots=True)
class Imported:
    """A message that has come out of its envelope, and the plan that it follows."""

    route: Route
    message: Message
    lane: Lane | None = None
    """Where the route stays as long as it holds."""


class Importer(Protocol):
    """Opens what comes over a link (scope.imports)."""

    def opened(self, connection: Connection, packet: Publish) -> Imported | Refusal | None:
        """A message and its plan, or why it is refused; None: it has been here, or comes back."""
        ...

    @property
    def epoch(self) -> int:
        """Another number: what was found before has to be looked up anew."""
        ...

    def told(self, packet: Publish) -> bool:
        """Whether it is for this node itself, which has taken note of it."""
        ...

    def seen(self, message: Message) -> None:
        """A QoS 1 message has been taken: it is not taken again, whichever way it comes."""
        ...

    def same(self, packet: Publish, messages: tuple[Message, ...]) -> bool:
        """Whether a PUBLISH is the one that these messages came from."""
        ...

    def settled(self, message: Message, published: bool) -> None:
        """A QoS 2 message that was released has been published, or refused."""
        ...


class LinkPublishing(Publishing):
    """What one connection of a link publishes, until it is acknowledged."""

    __slots__ = ("_epoch", "_known", "_refusal", "importer")

    def __init__(self, connection: Connection, importer: Importer) -> None:
        super().__init__(connection)
        self.importer = importer
        self._refusal: Refusal | None = None  # why the last QoS 0 or 1 message was not published
        self._known: Weighed[tuple[bytes, bytes], tuple[Lane, bytes]] = Weighed(
            KNOWN, KNOWN_BYTES, lambda key: len(key[0]) + len(key[1])
        )
        """By static part and topic: the lane of such messages, and the name of their route there."""
        self._epoch = importer.epoch

    def read_ahead(self, data: bytes) -> tuple[int, int]:
        """Takes QoS 0 messages that need nothing but a look-up, up to the first packet that is anything else.

        How many bytes and how many messages that was.
        """
        # hot: two look-ups and one append per target
        known, dirty, limit = self._known, self.site.dirty, self.connection.reader.max_packet
        if self._epoch != self.importer.epoch:
            self._epoch = self.importer.epoch
            known.clear()
        pos = taken = 0
        end = min(len(data), STRETCH)
        while pos + 4 < end and data[pos] == 0x30:
            length = data[pos + 1]
            start = pos + 2
            if length > 127:
                if not 0 < data[pos + 2] < 128:
                    break
                length += (data[pos + 2] - 1) << 7
                start = pos + 3
            stop = start + length
            after = start + 2 + (data[start] << 8 | data[start + 1])
            if stop > len(data) or stop - pos > limit or after >= stop or data[after]:
                break
            edge, body = plain_at(data, after + 1)
            if not edge or body > stop:
                break
            name = data[start:after]
            found = known.get((data[after + 1 : edge], name))
            if found is None:
                break
            lane, topic = found
            route = lane.plans.get(topic)  # none after a change
            if route is None or route.carried or (fast := route.fast) is None:
                break
            if route.guarded and not route.calm(self.session):
                break
            payload = data[body:stop]
            if fast:
                packet = b"0%b%b\0%b" % (encode_varint(len(name) + 1 + len(payload)), name, payload)
                for target in fast:
                    out = target.out
                    if not out:
                        dirty.append(target)
                    out.append(packet)
            if route.cross:
                cross(self.connection, route, name, payload)
            route.passed += 1
            taken += 1
            pos = stop
        return pos, taken

    def publish(self, packet: Publish) -> None:
        if packet.properties.topic_alias is not None or packet.properties.subscription_identifiers:
            raise ProtocolError("neither topic aliases nor subscription identifiers go over a link")
        if packet.topic[:1] == "$" and self.importer.told(packet):
            return
        qos, pid = packet.qos, packet.packet_id
        if qos == 2 and self._resent(packet):
            return
        imported = self.importer.opened(self.connection, packet)
        if isinstance(imported, Imported):
            message = imported.message
            if imported.lane is not None and not qos and imported.route.fast is not None:
                edge, _ = plain_at(packet.payload, 0)
                name = packet.topic.encode()
                if edge:
                    key = packet.payload[:edge], len(name).to_bytes(2, "big") + name
                    self._known[key] = imported.lane, name
            self._refusal = None
            self.take(imported.route, b"", qos, packet.retain, pid, packet.properties, message.expires, message=message)
            if qos == 1 and (self._refusal is None or self._refusal.suppressed):
                self._taken(message)
        elif imported is not None:
            self._refused(qos, pid, imported)
        elif qos:
            # whoever sends it is done with it: 0x10, or PUBREC with a reason, ends the exchange
            type = Type.PUBACK if qos == 1 else Type.PUBREC
            self._acknowledge(type, pid, Reason.NO_MATCHING_SUBSCRIBERS if qos == 1 else REPEATED, wait=False)

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
