"""The bytes of one connection: frames, the handshake, and the packets a client sends.

`receive` is the hot path (docs/design/hot-path.md). QoS 0 publishes without properties whose route is known are
passed on as they came; acknowledgements and QoS 1 and 2 publishes without properties avoid the decoder; everything
else is decoded by `wire` and dispatched. All of them follow the same route.

What bytes can cause is closing this connection with the reason the specification names, nothing else. Pure: the
shell gives it `write` and friends, the site gives it the time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

from tidegate.errors import PacketError, ProtocolError
from tidegate.session.connection import Hold, Listening, Phase
from tidegate.session.host import Host, Lane, Route
from tidegate.session.publishing import Intake
from tidegate.session.runtime import Site
from tidegate.session.session import Session
from tidegate.session.token_bucket import Bucket
from tidegate.wire import (
    NONE,
    V5,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
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
    encode_varint,
    frame,
    level,
)

EFFORT = 64  # spent in a turn on plans and on ways through scopes before those who need more wait: 1 to 2 ms
FLUSH_BYTES = 64 * 1024  # read in one turn before what they caused is written, without waiting for its end
SHORT = 2  # a frame cannot be shorter
STALLED = 1 << 40  # bytes that never come: what is left of a chunk is looked at when the journal has caught up
QUICK_PUBLISH = (0x32, 0x34)  # QoS 1 or 2, neither DUP nor retained


class Peer(Intake):
    """The bytes of one connection."""

    __slots__ = ("need", "on_bug", "quick")

    def __init__(
        self,
        *,
        site: Site,
        host: Host,
        listener: Listening,
        on_bug: Callable[[Peer, BaseException], None],
    ) -> None:
        super().__init__(site=site, host=host, listener=listener)
        self.on_bug = on_bug
        self.need = 0  # how long `rest` has to be before it is worth looking at
        self.quick: dict[int, Callable[[int], None]] = {}  # acknowledgements in their shortest form

    def lost(self) -> None:
        super().lost()
        self.quick = {}  # it holds on to us

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
                    and (not route.guarded or route.calm(self.session))
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
                if route is not None and ((after <= stop) if not v5 else (after < stop and not data[after])):
                    if (fast := route.fast) is not None and (not route.guarded or route.calm(self.session)):
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
                    else:
                        payload = data[after + 1 if v5 else after : stop]
                        self._take(route, payload, 0, False, 0, NONE, None, b"", data[pos:after], data[after:stop])
                        if self.phase is not Phase.OPEN:
                            pos = end  # it was denied, and that ended the connection
                            break
                        if self.stalled:
                            pos = stop
                            self.need = STALLED
                            break
                        if site.effort > EFFORT:
                            pos = stop
                            self._tire()
                            break
                    pos = stop
                    continue
            elif length == 2 and (handler := quick.get(first)) is not None:
                handler(data[start] << 8 | data[start + 1])
                if self.phase is not Phase.OPEN:
                    pos = end
                    break
                pos = stop
                if self.stalled:
                    self.need = STALLED
                    break
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
                        b"",
                        data[pos:after],
                        data[after + 2 : stop],
                    )
                    if self.phase is not Phase.OPEN:
                        pos = end  # it was denied, and that ended the connection
                        break
                    pos = stop
                    if self.stalled:
                        self.need = STALLED
                        break
                    if site.effort > EFFORT:
                        self._tire()
                        break
                    continue
            elif first >> 4 == Type.PUBLISH:
                publishes += 1
            elif first >> 4 == Type.CONNECT:
                raise ProtocolError("a second CONNECT")  # [MQTT-3.1.0-2], whatever is in it
            if site.effort > EFFORT and first >> 4 == Type.PUBLISH:
                # It may need a plan, and this turn has made enough of them: a flood of new topics, or the first
                # messages after a change of the rules. What is known already goes on meanwhile.
                publishes -= 1
                self._tire()
                break
            self._packet(decode(first, data[start:stop], self.version))
            pos = stop
            if self.phase is not Phase.OPEN:
                pos = end  # nothing is read behind the end
                break
            if self.stalled:
                self.need = STALLED
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

    def _tire(self) -> None:
        """It goes on with the next turn."""
        if not self.held & Hold.WORK:
            self.hold_reading(Hold.WORK)
            self.site.unfinished.append(self._go_on_working)

    def _go_on_working(self) -> bool:
        """Reads on where too much work was left; True if others have taken this turn."""
        if self.site.effort > EFFORT and self.phase is Phase.OPEN:
            return True
        self.release_reading(Hold.WORK)
        if self.rest and self.phase is Phase.OPEN:
            self.need = 0
            self.receive(b"")
        return False

    def caught_up(self) -> None:
        super().caught_up()
        self.need = 0
        if self.rest and self.phase is Phase.OPEN:
            self.receive(b"")

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
        """The same publish with other properties: those of 3.1.1 have none, those of 5.0 may be told something."""
        dirty = self.site.dirty
        name = whole[start:after]
        payload = whole[after + 1 :] if self.version == V5 else whole[after:]
        for block, targets in route.cross:
            if block is None:
                other = b"\x30%b%b%b" % (encode_varint(len(name) + len(payload)), name, payload)
            else:
                length = len(name) + len(block) + len(payload)
                other = b"\x30%b%b%b%b" % (encode_varint(length), name, block, payload)
            for target in targets:
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
        self.path = self.host.path
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
