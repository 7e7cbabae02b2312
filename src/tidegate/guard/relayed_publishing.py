"""What a client of a guarded scope publishes: it goes to the broker under the same packet identifier.

PUBACK, PUBREC and PUBCOMP are the broker's. What the guard denies it answers itself, behind everything that came before
and that the broker has not acknowledged yet [MQTT-4.6.0-2].
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tidegate.errors import ProtocolError
from tidegate.gate import Deny
from tidegate.guard.guarded_session import GuardedSession
from tidegate.session import Connection, Hold, Message
from tidegate.session import unreleased_qos2 as unreleased
from tidegate.session.host import Events, Refusal, Route
from tidegate.session.packet_costs import TAKEN
from tidegate.session.phase import OPEN
from tidegate.session.publishing import Ack, Publishing, with_floor_properties
from tidegate.wire import NONE, Properties, Puback, Pubcomp, Publish, Pubrec, Reason, Type, encode

if TYPE_CHECKING:
    from tidegate.guard.bridging import Bridge
    from tidegate.guard.upstream import Upstream

PINGREQ: Final = b"\xc0\x00"
NEVER: Final = 1 << 62
"""In place of the number of a commit: an acknowledgement that waits for the broker waits for no commit."""


class Awaited(Ack):
    """An acknowledgement that waits for several: of the broker, for what its message was and for what came of it."""

    __slots__ = ("count",)

    def __init__(self, publishing: Publishing, frame: bytes, written: bool, count: int = 0) -> None:
        super().__init__(publishing, frame, NEVER, safe=False, written=written)
        self.count = count

    def settle(self) -> None:
        self.count -= 1
        if self.count:
            return
        self.safe = True
        if self.publishing.connection.phase is OPEN:
            self.publishing.drain()


class RelayedPublishing(Publishing):
    """What one connection of a client publishes."""

    __slots__ = ("_ack", "_dup", "_exchanges", "_kept", "_postponed", "_relayed", "upstream")

    def __init__(self, connection: Connection, upstream: Upstream) -> None:
        super().__init__(connection)
        self.upstream = upstream
        self._ack: Awaited | None = None  # of the message that is being taken
        self._dup = False  # of the PUBLISH that is being taken
        self._relayed: dict[int, Ack] = {}  # PUBACK and PUBREC that the broker owes
        self._exchanges: dict[int, None] = {}  # QoS 2 messages that the broker has, and that are not complete
        self._kept: dict[int, bytes] | None = None  # what is sent again when the broker is back, if that is waited for
        self._postponed: tuple[tuple[Any, ...], ...] = ()  # what it is not there for

    # -- PUBLISH -----------------------------------------------------------------------------------------------

    def publish(self, packet: Publish) -> None:
        self._dup = packet.dup
        bridge = self.session.bridge if isinstance(self.session, GuardedSession) else None
        if bridge is None:
            super().publish(packet)
        else:
            self._over_bridge(packet, bridge)
        self._dup = False

    def _over_bridge(self, packet: Publish, bridge: Bridge) -> None:
        """What another broker's bridge publishes comes from another environment."""
        session, properties = self.session, packet.properties
        assert isinstance(session, GuardedSession)
        if (alias := properties.topic_alias) is not None:
            packet = replace(packet, topic=self._resolve(alias, packet.topic.encode()).decode())
        pid, qos, topic = packet.packet_id, packet.qos, packet.topic
        self._check(qos, packet.retain)
        if topic[:1] == "$":
            bridge.tell_state(session, topic, packet.payload, packet.retain)
            if qos:
                self._taken_here(pid, qos)
            return
        if qos and not self.upstream.opened:
            self.connection.close(Reason.SERVER_BUSY, "the broker is gone")
            return
        message = bridge.opened(session, packet, topic)
        if isinstance(message, Message):
            if qos:
                self._relay(message, pid, lambda: 1 if self.upstream.publish(message) else 0)
            else:
                self.upstream.publish(message)
            return
        if message is not None:
            bridge.scope.report("read", bridge.inward, topic, message)
        if qos:  # a bridge sends again what is refused, for ever
            self._taken_here(pid, qos)

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
        if retain or qos == 2:
            self._check(qos, retain)
        if not qos or (qos == 2 and (route.monitored or pid in (self.session.incoming or ()))):
            # what monitors have to see waits here until it is released
            super().take(route, payload, qos, retain, pid, properties, expires, context)
            return
        session, site, upstream = self.session, self.site, self.upstream
        if not upstream.opened:
            self._postpone(route, payload, qos, retain, pid, properties, expires, context)
            return
        if qos > site.limits.max_qos:
            raise ProtocolError("QoS not supported", Reason.QOS_NOT_SUPPORTED)
        if self.v5 and pid not in self._exchanges:
            open_ones = len(session.incoming or ()) - len(self.inherited or ()) + len(self._exchanges)
            if open_ones + self.unfinished >= self.quota:
                raise ProtocolError("receive maximum exceeded", Reason.RECEIVE_MAXIMUM_EXCEEDED)
        if (floor := route.floor_properties) is not NONE:
            properties = with_floor_properties(properties, floor)
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
        self._relay(message, pid, partial(self.path.publish, route, message, session))

    def _check(self, qos: int, retain: bool) -> None:
        """What the broker cannot do, whatever CONNACK has said."""
        abilities = self.upstream.scope.settings.abilities
        if qos > abilities.qos:
            raise ProtocolError("QoS not supported by the broker", Reason.QOS_NOT_SUPPORTED)
        if retain and not abilities.retain:
            raise ProtocolError("retained messages are not supported by the broker", Reason.RETAIN_NOT_SUPPORTED)

    def _relay(self, message: Message, pid: int, publish: Callable[[], int | Refusal]) -> None:
        """Publishes a QoS 1 or 2 message under the identifier of its client. What is acknowledged the broker says."""
        site, upstream, qos = self.site, self.upstream, message.qos
        site.effort += TAKEN
        upstream.exchange, upstream.refused = pid | self._dup << 16, None
        self._ack = ack = Awaited(self, b"", written=True)
        reached = publish()
        relayed, upstream.exchange, self._ack = not upstream.exchange, 0, None
        if message.journaled:
            ack.written = False
            self._hold_for_journal()
        if relayed or ack.count:
            self._wait_for_broker(pid, qos, message, ack, relayed)
        elif not isinstance(reached, int):
            self._denied(message, pid, reached)
        elif upstream.refused is not None:
            scope = upstream.scope
            scope.report("write", scope.target.outward, message.topic, upstream.refused, message.context)
            self._denied(message, pid, upstream.refused)
        else:
            self._taken_here(pid, qos, message, reached)

    def _taken_here(self, pid: int, qos: int, message: Message | None = None, reached: int = 1) -> None:
        """It was for the node itself; or it has reached nobody, because the broker is too weak for it."""
        reason = Reason.SUCCESS if reached else self._nobody(Reason.NO_MATCHING_SUBSCRIBERS)
        noted, journaled = (False, False) if message is None else (message.noted, message.journaled)
        type = Type.PUBACK if qos == 1 else Type.PUBREC
        self._acknowledge(type, pid, reason, wait=noted, written=not journaled)
        if qos == 2:
            unreleased.keep(self.session, pid, (), 0)
            self.deadline.start()

    def _wait_for_broker(self, pid: int, qos: int, message: Message, ack: Awaited, relayed: bool) -> None:
        if relayed:
            ack.count += 1
            self._relayed[pid] = ack
        else:
            ack.frame = bytes((0x40, 2, pid >> 8, pid & 0xFF))
        self._line_up(ack)
        if qos == 1:
            self.unfinished += 1
        else:
            self._exchanges[pid] = None
        if message.journaled:
            self.site.journal.after(ack.settle_written)

    def _line_up(self, ack: Ack) -> None:
        if self.acks is None:
            self.acks = deque()
        self.acks.append(ack)

    def besides(self) -> Callable[[], None] | None:
        """What is told when the broker has something else that came of the message which is being taken."""
        if self._ack is None:
            return None
        self._ack.count += 1
        return self._ack.settle

    def _publish_released(self, pid: int, released: list[tuple[Message, Events]]) -> None:
        """What monitors have seen goes to the broker, and PUBCOMP when that has it. It is in the store until then: what
        comes of the message takes its place, in one commit."""
        session, site = self.session, self.site
        if not site.opened:
            site.open()
        self._ack = ack = Awaited(self, bytes((0x70, 2, pid >> 8, pid & 0xFF)), written=True)
        for message, events in released:
            reached = self.path.deliver_released(events, message, session)  # which has a price of its own
            site.effort += TAKEN + reached
        self._ack = None
        if not ack.count:
            super()._publish_released(pid, [])
            return

        unreleased.forget(session, pid)
        if self.inherited:
            self.inherited.discard(pid)
        if session.row:
            site.store.release(session.row, pid)
            ack.count += 1
            site.store.after(ack.settle)
        self._line_up(ack)
        self.unfinished += 1

    def _denied(self, message: Message, pid: int, why: Refusal | Deny) -> None:
        if message.qos == 1:
            self._not_published(message, pid, why)
        elif why.no_room:
            self._full(2, pid)
        else:
            self._refused(2, pid, why)

    # -- what the broker answers -------------------------------------------------------------------------------

    def answered(self, packet: Puback | Pubrec | Pubcomp) -> None:
        """PUBACK, PUBREC or PUBCOMP of the broker."""
        pid = packet.packet_id
        frame = encode(packet, self.connection.version)
        if self._kept is not None:
            self._kept.pop(pid, None)
        if isinstance(packet, Pubcomp):
            self._exchanges.pop(pid, None)
            self.session.send(frame)
            return
        if isinstance(packet, Pubrec) and packet.reason >= 0x80:
            self._exchanges.pop(pid, None)
            if not self.v5:  # 3.1.1 goes on with PUBREL whatever PUBREC says
                unreleased.keep(self.session, pid, (), 0)
                self.deadline.start()
        ack = self._relayed.pop(pid, None)
        if ack is not None:
            ack.frame = frame
            ack.settle()
        elif isinstance(packet, Pubrec):
            self.session.send(frame)  # it was sent again

    def pinged(self) -> None:
        """The broker answers, behind everything that it has sent before: a client may rely on that, and it learns that
        the broker is gone; unless it waits for the broker to come back."""
        if not self.upstream.opened:
            super().pinged()
            return
        self.upstream.pings += b"\1"
        self.upstream.send(PINGREQ)

    def release(self, pid: int) -> None:
        """PUBREL of the client: the broker's, unless the guard has the message."""
        if any(ack.frame[:1] == b"\x70" and ack.frame[2:] == pid.to_bytes(2, "big") for ack in self.acks or ()):
            return  # it has been released, and the broker does not have it yet
        if pid in (self.session.incoming or ()) or not pid:
            super().release(pid)
        else:
            data = b"\x62\x02" + pid.to_bytes(2, "big")
            self.keep(pid, data)
            self.upstream.send(data)

    # -- while the broker is gone --------------------------------------------------------------------------------

    def keep(self, pid: int, data: bytes) -> None:
        """What is sent again if the broker goes before it has answered."""
        if self._kept is not None:
            self._kept[pid] = data

    def waits_for_broker(self) -> None:
        """It is waited for: what it does not answer is kept."""
        self._kept = {}

    def _postpone(self, *publish: Any) -> None:
        """A PUBLISH that the broker is not there for: nothing more is read from the client."""
        self._postponed += ((*publish, self._dup),)
        self.stalled = True
        self.connection.hold_reading(Hold.BACKEND)

    def send_again(self, upstream: Upstream) -> None:
        """The broker is back."""
        self.upstream = upstream
        for data in (self._kept or {}).values():
            dup = 0x08 if data[0] >> 4 == Type.PUBLISH else 0
            upstream.send(bytes((data[0] | dup,)) + data[1:])
        postponed, self._postponed = self._postponed, ()
        self.stalled = False
        for *publish, self._dup in postponed:
            self.take(*publish)
        self._dup = False
        self.connection.release_reading(Hold.BACKEND)
        if self.connection.phase is OPEN:
            self.connection.reader.resume()
