"""The bytes of one connection: frames, the handshake, and the packets a client sends.

`receive` is the hot path (docs/design/hot-path.md). QoS 0 publishes without properties whose route is known are
passed on as they came; acknowledgements and QoS 1 and 2 publishes without properties avoid the decoder; everything
else is decoded by `wire` and dispatched. All of them follow the same route.

What bytes can cause is closing this connection with the reason the specification names, nothing else. Pure: the
shell gives it `write` and friends, the site gives it the time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from enum import Enum, IntFlag
from typing import Any, Protocol, assert_never

from tidegate.errors import PacketError, ProtocolError
from tidegate.session.frames import form
from tidegate.session.host import Host, Lane, Refusal, Route
from tidegate.session.message import Message
from tidegate.session.rate import Bucket
from tidegate.session.session import Session
from tidegate.session.site import Site
from tidegate.session.timers import Timer
from tidegate.wire import (
    NONE,
    V5,
    V311,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Reason,
    Suback,
    Subscribe,
    Type,
    Unsuback,
    Unsubscribe,
    decode,
    encode,
    frame,
    level,
)

FLUSH_BYTES = 64 * 1024  # read in one turn before what they caused is written, without waiting for its end
BACKLOG = 64 * 2**20  # bytes waiting for the disk before publishers are paused
PENDING = 20_000  # acknowledgements waiting for the disk before their publisher is paused
SHORT = 2  # a frame cannot be shorter
QUICK_PUBLISH = (0x32, 0x34)  # QoS 1 or 2, neither DUP nor retained

_FORWARDED = (
    "payload_format_indicator",
    "content_type",
    "response_topic",
    "correlation_data",
)


class Phase(Enum):
    NEW = "before CONNECT"
    WAITING = "CONNECT received, not answered"
    OPEN = "connected"
    CLOSED = "closed"


class Hold(IntFlag):
    """Why nothing is read from a connection for now."""

    HANDSHAKE = 1
    RATE = 2
    WRITING = 4
    STORE = 8


class Shell(Protocol):
    """The socket side of a connection."""

    def write(self, data: bytes) -> None: ...
    def close(self) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...


class Listening(Protocol):
    """What a connection inherits from where it was accepted."""

    name: str
    max_packet: int
    publish_rate: float | None
    publish_burst: float


class Ack:
    """An acknowledgement that waits until what it acknowledges is safe (session.Waiter)."""

    __slots__ = ("batch", "peer", "safe", "sent")

    def __init__(self, peer: Peer, sent: bytes, batch: int, safe: bool) -> None:
        self.peer = peer
        self.sent = sent
        self.batch = batch
        self.safe = safe

    def settle(self) -> None:
        self.safe = True
        self.peer.drain()


class Peer:
    """One connection's protocol state."""

    __slots__ = (
        "acks",
        "address",
        "aliases",
        "asked",
        "authentication",
        "bucket",
        "certificate",
        "held",
        "host",
        "hot",
        "inherited",
        "keep_alive",
        "lane",
        "limit",
        "listener",
        "maximum",
        "need",
        "on_bug",
        "owed",
        "phase",
        "problem_information",
        "quick",
        "quota",
        "rest",
        "seen",
        "session",
        "shell",
        "site",
        "timer",
        "v5",
        "version",
        "write",
    )

    def __init__(
        self,
        *,
        site: Site,
        host: Host,
        listener: Listening,
        on_bug: Callable[[Peer, BaseException], None],
    ) -> None:
        self.site = site
        self.host = host
        self.listener = listener
        self.on_bug = on_bug
        self.limit = listener.max_packet
        self.version = V311
        self.v5 = False
        self.phase = Phase.NEW
        self.hot = False  # open, and publishes need not be counted against a rate
        self.rest: bytes | bytearray = b""
        self.need = 0  # how long `rest` has to be before it is worth looking at
        self.held = Hold(0)
        self.acks: deque[Ack] | None = None  # what is acknowledged when it is safe, in order
        self.asked = 0  # the last batch whose commit we asked to be told of
        self.owed = 0  # those of `acks` that end an exchange
        self.quota = site.limits.receive_maximum  # as CONNACK said; a reload does not change it
        self.inherited: set[int] | None = None  # QoS 2 of an earlier connection, not heard of on this one
        self.problem_information = True
        self.maximum = 0  # largest packet the client takes; 0: any
        self.keep_alive = 0.0  # the longest silence allowed, in seconds; 0: any
        self.seen = site.now
        self.address = ""
        self.certificate: dict[str, Any] | None = None
        self.bucket: Bucket | None = None
        self.timer: Timer | None = None
        self.aliases: dict[int, bytes] | None = None
        self.authentication: Any = None  # an enhanced authentication under way, and its method afterwards
        self.quick: dict[int, Callable[[int], None]]  # acknowledgements in their shortest form
        self.session: Session
        self.lane: Lane
        self.shell: Shell
        self.write: Callable[[bytes], None]

    def made(self, shell: Shell, address: str, certificate: dict[str, Any] | None) -> None:
        """There is a socket now."""
        self.shell = shell
        self.write = shell.write
        self.address = address
        self.certificate = certificate

    # -- bytes in ----------------------------------------------------------------------------------------------

    def receive(self, data: bytes) -> None:
        """Whatever the socket brought, split anywhere."""
        site = self.site
        if not site.opened:
            site.open()
        self.seen = site.now
        rest = self.rest
        # hot: one QoS 0 publish that came alone, with a known route: one dict lookup, one append per target. The same
        # as in `_read`, without its loop; what does not fit is read there.
        if not rest and data[0] == 0x30 and self.hot and (end := len(data)) > 6:
            length = data[1]
            start = 2
            if length > 127:
                high = data[2]
                length = length + ((high - 1) << 7) if 0 < high < 128 else 0
                start = 3
            if start + length == end and end <= self.limit:
                after = start + 2 + (data[start] << 8 | data[start + 1])
                route = self.lane.plans.get(data[start + 2 : after])
                if (
                    route is not None
                    and (fast := route.fast) is not None
                    and ((after <= end) if not self.v5 else (after < end and not data[after]))
                ):
                    for target in fast:
                        out = target.out
                        if not out:
                            site.dirty.append(target)
                        out.append(data)
                    if route.cross:
                        self._cross(route, data, start, after)
                    route.passed += 1
                    site.publishes += 1
                    site.read += end
                    if site.read > FLUSH_BYTES:
                        site.flush()
                    return
        if rest:
            if isinstance(rest, bytes):
                rest = self.rest = bytearray(rest)
            rest += data
            if len(rest) < self.need:
                return
            data = bytes(rest)
            self.rest = b""
            self.need = 0
        try:
            try:
                used = self._read(data) if self.phase is Phase.OPEN else self._read_handshake(data)
            except PacketError as error:
                self.fail(error)
                return
        except Exception as error:  # noqa: BLE001 - a bug closes one connection and is reported, the loop goes on
            self.on_bug(self, error)
            self.close(Reason.UNSPECIFIED_ERROR, "internal error")
        else:
            if used < len(data) and self.phase is not Phase.CLOSED:
                self.rest = data[used:] if used else data

    def _read(self, data: bytes) -> int:
        """Takes all whole frames; how many bytes that was."""
        # hot: for a QoS 0 publish with a known route, one dict lookup and one append per target
        site = self.site
        plans = self.lane.plans
        quick = self.quick
        v5 = self.version == V5
        limit = self.limit
        end = len(data)
        publishes = 0
        pos = 0
        while end - pos >= SHORT:
            first = data[pos]
            length = data[pos + 1]
            start = pos + 2
            if length > 127:
                if end - pos < 3:
                    break
                if 0 < (high := data[pos + 2]) < 128:
                    length += (high - 1) << 7
                    start = pos + 3
                else:
                    found = frame(data, pos, limit)
                    if found is None:
                        self.need = self._announced(data, pos) - pos
                        break
                    start, stop = found[1], found[2]
                    length = stop - start
            stop = start + length
            if stop - pos > limit:
                raise ProtocolError("packet larger than this listener allows", Reason.PACKET_TOO_LARGE)
            if stop > end:
                self.need = stop - pos
                break
            if first == 0x30 and length > 2:
                publishes += 1
                after = start + 2 + (data[start] << 8 | data[start + 1])
                route = plans.get(data[start + 2 : after])
                if (
                    route is not None
                    and (fast := route.fast) is not None
                    and ((after <= stop) if not v5 else (after < stop and not data[after]))
                ):
                    whole = data if not pos and stop == end else data[pos:stop]
                    dirty = site.dirty
                    for target in fast:
                        out = target.out
                        if not out:
                            dirty.append(target)
                        out.append(whole)
                    if route.cross:
                        self._cross(route, whole, start - pos, after - pos)
                    route.passed += 1
                    pos = stop
                    continue
            elif length == 2 and (handler := quick.get(first)) is not None:
                handler(data[start] << 8 | data[start + 1])
                if self.phase is not Phase.OPEN:
                    pos = end
                    break
                pos = stop
                continue
            elif first in QUICK_PUBLISH and length > 4:
                publishes += 1
                after = start + 2 + (data[start] << 8 | data[start + 1])
                route = plans.get(data[start + 2 : after])
                body = after + 3 if v5 else after + 2
                if (
                    route is not None
                    and body <= stop
                    and (pid := data[after] << 8 | data[after + 1])
                    and not (v5 and data[body - 1])
                ):
                    self._take(
                        route,
                        data[body:stop],
                        first >> 1 & 3,
                        False,
                        pid,
                        NONE,
                        None,
                        data[pos:after],
                        data[after + 2 : stop],
                    )
                    if self.phase is not Phase.OPEN:
                        pos = end  # it was denied, and that ended the connection
                        break
                    pos = stop
                    continue
            elif first >> 4 == Type.PUBLISH:
                publishes += 1
            elif first >> 4 == Type.CONNECT:
                raise ProtocolError("a second CONNECT")  # [MQTT-3.1.0-2], whatever is in it
            self._packet(decode(first, data[start:stop], self.version))
            pos = stop
            if self.phase is not Phase.OPEN:
                pos = end  # nothing is read behind the end
                break
            plans = self.lane.plans
        if publishes:
            site.publishes += publishes
            if self.bucket is not None:
                self._throttle(publishes)
        site.read += pos
        if site.read > FLUSH_BYTES:
            site.flush()
        return pos

    def _announced(self, data: bytes, pos: int) -> int:
        """Where the frame at `pos` will end, as far as its header says; the header is valid or incomplete."""
        length = shift = 0
        for index in range(pos + 1, min(pos + 5, len(data))):
            length |= (data[index] & 0x7F) << shift
            if data[index] < 128:
                return index + 1 + length
            shift += 7
        return len(data) + 1

    def _cross(self, route: Route, whole: bytes, start: int, after: int) -> None:
        """The same publish in the other protocol version: with or without an empty property field."""
        if self.version == V5:
            length = len(whole) - start - 1
            body = whole[start:after] + whole[after + 1 :]
        else:
            length = len(whole) - start + 1
            body = whole[start:after] + b"\0" + whole[after:]
        other = (bytes((0x30, length)) if length < 128 else b"\x30" + _varint(length)) + body
        dirty = self.site.dirty
        for target in route.cross:
            out = target.out
            if not out:
                dirty.append(target)
            out.append(other)

    # -- the handshake -----------------------------------------------------------------------------------------

    def _read_handshake(self, data: bytes) -> int:
        pos = 0
        while self.phase in (Phase.NEW, Phase.WAITING) and pos < len(data):
            if self.phase is Phase.NEW and data[0] != Type.CONNECT << 4:
                # [MQTT-3.1.0-1] the first packet is CONNECT; whoever sends another may not speak MQTT at all
                raise ProtocolError("the first packet is not CONNECT")
            found = frame(data, pos, self.limit)
            if found is None:
                self.need = self._announced(data, pos) - pos
                return pos
            first, start, stop = found
            if self.phase is Phase.WAITING and first >> 4 not in (Type.AUTH, Type.DISCONNECT):
                if self.authentication is not None:
                    raise ProtocolError("only AUTH and DISCONNECT before CONNACK")  # [MQTT-3.1.2-30]
                return pos  # sent ahead of CONNACK; it is read when the handshake is over
            if self.phase is Phase.NEW and level(data[start:stop]) == V5:
                self.version = V5  # so that it is refused in its own words even if it cannot be decoded
            packet = decode(first, data[start:stop], self.version)
            pos = stop
            if isinstance(packet, Connect):
                if self.phase is not Phase.NEW:
                    raise ProtocolError("a second CONNECT")
                self.version = packet.version
                wants = packet.properties.request_problem_information
                self.problem_information = wants != 0
                self.maximum = packet.properties.maximum_packet_size or 0
                self.phase = Phase.WAITING
                self.host.connect(self, packet)
            elif isinstance(packet, Auth):
                self.host.auth(self, packet)
            elif isinstance(packet, Disconnect):
                self.gone(packet)
        if self.phase is Phase.OPEN and pos < len(data):
            return pos + self._read(data[pos:])
        if len(data) - pos > self.limit + FLUSH_BYTES:
            raise ProtocolError("too much sent ahead of CONNACK", Reason.PACKET_TOO_LARGE)
        return pos

    def accept(self, session: Session, lane: Lane) -> None:
        """CONNECT was granted: packets are read from now on. The caller sends CONNACK."""
        self.session = session
        self.lane = lane
        self.phase = Phase.OPEN
        self.quota = self.site.limits.receive_maximum
        self.inherited = set(session.incoming) if session.incoming else None
        self.quick = {
            0x40: session.acknowledged,
            0x50: session.received,
            0x62: self._released,
            0x70: session.completed,
        }
        self.v5 = self.version == V5
        self.hot = self.listener.publish_rate is None
        if self.listener.publish_rate is not None:
            self.bucket = Bucket(self.listener.publish_rate, self.listener.publish_burst, self.site.now)

    def go_on(self) -> None:
        """Reads what came while the handshake was under way."""
        self.release_reading(Hold.HANDSHAKE)
        if self.rest and self.phase is not Phase.CLOSED:
            self.need = 0
            self.receive(b"")

    def refuse(self, reason: int, text: str = "", properties: Properties = NONE) -> None:
        """CONNECT was not granted."""
        if self.phase in (Phase.NEW, Phase.WAITING):
            if text and self.problem_information and properties is NONE and self.version == V5:
                properties = Properties(reason_string=text)
            self._last_word(Connack(session_present=False, reason=reason, properties=properties))
            self.site.counters.refused += 1
        self._drop()

    # -- packets -----------------------------------------------------------------------------------------------

    def _packet(self, packet: Packet) -> None:
        session = self.session
        match packet:
            case Publish():
                self._publish(packet)
            case Puback():
                session.acknowledged(packet.packet_id)
            case Pubrec():
                session.received(packet.packet_id, packet.reason)
            case Pubrel():
                self._released(packet.packet_id)
            case Pubcomp():
                session.completed(packet.packet_id)
            case Subscribe():
                self.host.subscribe(session, packet)
            case Unsubscribe():
                self.host.unsubscribe(session, packet)
            case Pingreq():
                session.send(b"\xd0\x00")
            case Disconnect():
                self.gone(packet)
            case Auth():
                self.host.auth(self, packet)
            case Connect():
                raise ProtocolError("a second CONNECT")  # [MQTT-3.1.0-2]
            case Connack() | Suback() | Unsuback() | Pingresp():
                raise ProtocolError(f"{type(packet).__name__.upper()} is never sent by a client")
            case _:
                assert_never(packet)

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
        route = self.lane.plans.get(topic)
        if route is None:
            route = self.host.plan(self, topic)
        expires = None
        if properties is not NONE:
            if (interval := properties.message_expiry_interval) is not None:
                expires = self.site.now + interval
            properties = _forwarded(properties)
        self._take(route, packet.payload, packet.qos, packet.retain, packet.packet_id, properties, expires)

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
        head: bytes = b"",
        tail: bytes = b"",
    ) -> None:
        """A publish, whichever way it was read. `head` and `tail` are its own bytes, if others may be sent them."""
        session = self.session
        site = self.site
        host = self.host
        if qos > site.limits.max_qos:
            raise ProtocolError("QoS not supported", Reason.QOS_NOT_SUPPORTED)
        if qos == 2:
            incoming = session.incoming
            if incoming is None:
                incoming = session.incoming = {}
            elif pid in incoming:
                # [MQTT-4.3.3-10] seen before: acknowledge again, hand on once
                if self.inherited:
                    self.inherited.discard(pid)
                self._acknowledge(Type.PUBREC, pid, Reason.SUCCESS, wait=session.row != 0)
                return
        if qos and self.version == V5:
            # 3.3.4: publishes without PUBACK or PUBCOMP; those that wait for PUBREL are in `incoming`.
            # 4.9: the quota begins anew with each connection, whatever an earlier one left unfinished
            if len(session.incoming or ()) - len(self.inherited or ()) + self.owed >= self.quota:
                raise ProtocolError("receive maximum exceeded", Reason.RECEIVE_MAXIMUM_EXCEEDED)
        site.number += 1
        message = Message(
            route.topic,
            payload,
            qos,
            retain,
            site.wall,
            site.origin,
            site.number,
            session.context,
            session.inward.type,
            properties,
            expires,
        )
        if head:
            message.form = form(self.version, qos, False)
            message.head = head
            message.tail = tail
        refusal = route.refusal
        if refusal is None and (retain or route.asks):
            refusal = host.admit(route, message)
        if refusal is not None:
            self._refused(route.topic, qos, pid, refusal)
            return
        if not qos:
            host.route(route, message, session)
            return
        store = site.store
        if store.refusing and (route.durable or retain or (qos == 2 and session.row)):
            self._full(qos, pid)
            return
        if qos == 1:
            matched = host.route(route, message, session)
            reason = Reason.SUCCESS if matched else Reason.NO_MATCHING_SUBSCRIBERS
            self._acknowledge(
                Type.PUBACK, pid, reason, wait=message.rows > 0 or (retain and store.noted), message=message
            )
        else:
            assert session.incoming is not None
            if session.incoming and session.incoming_bytes + message.size > site.limits.queue_bytes:
                self._full(qos, pid)  # it sends and sends, and releases nothing
                return
            session.incoming[pid] = message
            session.incoming_bytes += message.size
            if session.row:
                store.receive(session.row, pid, message)
            self._acknowledge(Type.PUBREC, pid, Reason.SUCCESS, wait=session.row != 0)

    def _released(self, pid: int) -> None:
        """PUBREL: a QoS 2 message is handed on, once."""
        session = self.session
        incoming = session.incoming
        if incoming is None or pid not in incoming:
            if not pid:
                raise ProtocolError("packet identifier is 0")  # [MQTT-2.2.1-3]
            self._acknowledge(Type.PUBCOMP, pid, Reason.PACKET_IDENTIFIER_NOT_FOUND, wait=False)
            return
        message = incoming.pop(pid)
        if self.inherited:
            self.inherited.discard(pid)
        wait = False
        if message is not None:
            session.incoming_bytes -= message.size
            topic = message.topic.encode()
            route = self.lane.plans.get(topic) or self.host.plan(self, topic)
            # decided once, at the first PUBLISH; handing it on notes deliveries and the release in one commit
            self.host.route(route, message, session)
            wait = message.rows > 0 or (message.retain and self.site.store.noted)
        if session.row:
            self.site.store.release(session.row, pid)
            wait = True
        self._acknowledge(Type.PUBCOMP, pid, Reason.SUCCESS, wait=wait)

    def _acknowledge(
        self, type: Type, pid: int, reason: int, wait: bool, said: bytes = b"", message: Message | None = None
    ) -> None:
        """Acknowledgements leave in the order of what they acknowledge [MQTT-4.6.0-2].

        With `wait`, after the commit of what has been noted; or, with `message`, as soon as nobody is owed it.
        """
        if said:
            sent = said
        elif reason and self.version == V5:
            sent = bytes((type << 4, 3, pid >> 8, pid & 0xFF, reason))
        else:
            sent = bytes((type << 4, 2, pid >> 8, pid & 0xFF))
        acks = self.acks
        if not wait and not acks:
            self.session.send(sent)
            return
        store = self.site.store
        ack = Ack(self, sent, store.sequence, safe=not wait)
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
        while acks and acks[0].safe:
            sent = acks.popleft().sent
            self.owed -= sent[0] != Type.PUBREC << 4
            if self.phase is Phase.OPEN:
                self.session.send(sent)
        if self.held and len(acks or ()) * 2 < PENDING:
            self.release_reading(Hold.STORE)

    def _refused(self, topic: str, qos: int, pid: int, refusal: Refusal) -> None:
        """A denied publish is acknowledged as such; 3.1.1 has no way to say no but closing."""
        self.site.counters.denied += 1
        self.host.denied(self.session, topic, refusal)
        if self.version != V5 and self.site.limits.disconnect_denied_311:
            self.close(Reason.NOT_AUTHORIZED)
        elif qos:
            type = Type.PUBACK if qos == 1 else Type.PUBREC
            explained = b""
            if self.version == V5 and self.site.limits.explain and self.problem_information:
                packet = Puback if qos == 1 else Pubrec
                why = Properties(reason_string=f"denied by {refusal.rule}")
                explained = encode(packet(packet_id=pid, reason=refusal.reason, properties=why), V5)
                if self.maximum and len(explained) > self.maximum:
                    explained = b""  # [MQTT-3.4.2-2]
            self._acknowledge(type, pid, refusal.reason, wait=False, said=explained)
            if qos == 2 and self.version != V5:
                # 3.1.1 goes on with PUBREL whatever PUBREC says; nothing is handed on for it
                assert self.session.incoming is not None
                self.session.incoming[pid] = None

    def _full(self, qos: int, pid: int) -> None:
        """Nothing can be made safe: refuse. 3.1.1 cannot be told; without an acknowledgement it keeps the message.

        Nor can a publisher whose earlier messages still wait for the disk: the refusal would wait behind them.
        """
        if self.version == V5 and not self.acks:
            self._acknowledge(Type.PUBACK if qos == 1 else Type.PUBREC, pid, Reason.QUOTA_EXCEEDED, wait=False)
        else:
            self.close(Reason.QUOTA_EXCEEDED)

    # -- reading paused and resumed ----------------------------------------------------------------------------

    def hold_reading(self, why: Hold = Hold.WRITING) -> None:
        if not self.held and self.phase is not Phase.CLOSED:
            self.shell.pause_reading()
        self.held |= why

    def release_reading(self, why: Hold) -> None:
        if self.held:
            self.held &= ~why
            if not self.held and self.phase is not Phase.CLOSED:
                self.shell.resume_reading()

    def _throttle(self, publishes: int) -> None:
        """A publisher that outruns its rate is paused, not dropped."""
        assert self.bucket is not None
        wait = self.bucket.spend(publishes, self.site.now)
        if wait > 0:
            self.hold_reading(Hold.RATE)
            self.site.timers.at(self.site.now + wait, self.release_reading, Hold.RATE)

    def pause_writing(self) -> None:
        if self.phase is Phase.OPEN:
            self.session.pause()

    def resume_writing(self) -> None:
        if self.phase is Phase.OPEN:
            self.site.open()
            self.session.unpause()
            self.release_reading(Hold.WRITING)

    # -- the end -----------------------------------------------------------------------------------------------

    def fail(self, error: PacketError) -> None:
        """The client broke the protocol: tell it as its version can be told, and close."""
        if self.phase is Phase.OPEN:
            self.close(error.reason, str(error))
            return
        # before CONNACK: 3.1.1 is told only of a version or client id it cannot have, 5.0 may be told [MQTT-4.13.1-1]
        told = (Reason.UNSUPPORTED_PROTOCOL_VERSION, Reason.CLIENT_IDENTIFIER_NOT_VALID)
        if error.reason in told or self.version == V5:
            # a CONNECT that could not be read did not say what size of packet its sender takes
            self.refuse(error.reason, str(error) if self.phase is Phase.WAITING else "")
        else:
            self.site.counters.refused += 1
            self._drop(Reason(error.reason))

    def close(self, reason: int, text: str = "", properties: Properties = NONE) -> None:
        """The server ends it: DISCONNECT with the reason where the version has it, then the socket."""
        if self.phase is Phase.CLOSED:
            return
        if self.phase is Phase.OPEN:
            session = self.session
            if not session.shut and session.out:
                waiting = b"".join(session.out)
                session.out.clear()
                self.write(waiting)
            if self.version == V5:
                if text and self.problem_information and properties is NONE:
                    properties = Properties(reason_string=text)
                self._last_word(Disconnect(reason=reason, properties=properties))
        self._drop(Reason(reason))

    def _last_word(self, packet: Connack | Disconnect) -> None:
        """[MQTT-3.2.2-19] [MQTT-3.14.2-3] without what makes it too long for the client; else not at all."""
        said = encode(packet, self.version)
        if self.maximum and len(said) > self.maximum:
            said = encode(replace(packet, properties=NONE), self.version)
            if len(said) > self.maximum:
                return
        self.write(said)

    def gone(self, packet: Disconnect) -> None:
        """The client said DISCONNECT."""
        if self.phase is Phase.CLOSED:
            return
        was_open = self.phase is Phase.OPEN
        if was_open and packet.properties.session_expiry_interval and not self.session.expiry:
            # [MQTT-3.14.2-2] it had none at CONNECT
            raise ProtocolError("DISCONNECT sets a session expiry that CONNECT did not have")
        self._drop(Reason.SUCCESS, packet)

    def lost(self) -> None:
        """The socket is gone."""
        if self.phase is not Phase.CLOSED:
            self.site.open()
            self._drop(Reason.UNSPECIFIED_ERROR)
        self.quick = {}  # these two hold on to us, and we to them
        self.shell = _GONE

    def _drop(self, reason: Reason = Reason.SUCCESS, packet: Disconnect | None = None) -> None:
        was = self.phase
        self.phase = Phase.CLOSED
        self.hot = False
        self.rest = b""
        self.site.timers.cancel(self.timer)
        self.timer = None
        if was is not Phase.CLOSED:
            self.shell.close()
            if was is Phase.OPEN:
                self.host.disconnected(self, packet, reason)


class _Gone:
    """The shell of a connection that is no more."""

    def write(self, data: bytes) -> None:
        pass

    def close(self) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


_GONE = _Gone()


def _forwarded(properties: Properties) -> Properties:
    """What of a PUBLISH's properties is the message's own and goes to its receivers."""
    if properties.user_properties or any(getattr(properties, name) is not None for name in _FORWARDED):
        return Properties(
            payload_format_indicator=properties.payload_format_indicator,
            content_type=properties.content_type,
            response_topic=properties.response_topic,
            correlation_data=properties.correlation_data,
            user_properties=properties.user_properties,
        )
    return NONE


def _varint(length: int) -> bytes:
    out = bytearray()
    while True:
        length, low = divmod(length, 128)
        out.append(low | 0x80 if length else low)
        if not length:
            return bytes(out)
