"""The reading side of one connection: frames, and the packets that a client sends.

`receive` is the hot path (docs/design/hot-path.md). QoS 0 publishes without properties whose route is known are passed
on as they came; acknowledgements and QoS 1 and 2 publishes without properties avoid the decoder; `wire` has the rest.

Each packet has its price (`packet_costs`). A client that has sent more than a turn has room for is put off: nothing is
read from it until it is served again. Quick packets are priced by the stretch, not one by one.

Bytes can cause this connection to be closed with the reason that the specification names, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, assert_never

from tidegate.errors import PacketError, ProtocolError
from tidegate.session.host import Lane, Route
from tidegate.session.packet_costs import (
    ACKNOWLEDGED,
    AMPLE,
    BYTES,
    FLUSH_BYTES,
    LARGE,
    LONG,
    QUICK,
    READ_ON,
    STALLED,
    STRETCH,
    TURN,
    Payer,
    price,
)
from tidegate.session.phase import CLOSED, GOES_ON, OPEN, Hold
from tidegate.session.priced_decode import priced
from tidegate.session.reading_handshake import read_handshake
from tidegate.session.reencoding import cross
from tidegate.session.session import Session
from tidegate.wire import (
    NONE,
    V5,
    Auth,
    Connack,
    Connect,
    Disconnect,
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
    announced,
    frame,
)

if TYPE_CHECKING:
    from tidegate.session.connection import Connection

PUBREL = 0x62
MAX_CONNECT = 128 * 1024  # bytes of a CONNECT or an AUTH, unless the listener says otherwise
QUICK_PUBLISH = (0x32, 0x34)  # QoS 1 or 2, neither DUP nor retained
REPEATED_31 = (0x6A, 0x8A, 0xAA)  # PUBREL, SUBSCRIBE and UNSUBSCRIBE with DUP, which MQTT 3.1 has there


class Reader:
    """Turns the bytes of one connection into packets."""

    __slots__ = (
        "ahead",
        "connection",
        "head",
        "held",
        "hot",
        "lane",
        "last_read",
        "max_connect",
        "max_packet",
        "need",
        "on_bug",
        "parked",
        "payer",
        "publishing",
        "quick",
        "site",
        "source",
        "unread",
        "v5",
        "waiting",
        "work",
    )

    def __init__(
        self,
        connection: Connection,
        max_packet: int,
        on_bug: Callable[[Connection, BaseException], None],
        max_connect: int = MAX_CONNECT,
    ) -> None:
        self.connection = connection
        self.publishing = connection.publishing
        self.site = connection.site
        self.max_packet = max_packet
        self.max_connect, self.last_read = min(max_connect, max_packet), connection.site.now
        self.lane: Lane  # the routes that it follows
        self.on_bug = on_bug
        self.v5 = self.hot = False  # `hot`: open, and publishes need not be counted against a rate
        self.unread: bytes | bytearray = b""
        self.need = 0  # how long `unread` has to be before it is worth looking at
        self.quick: dict[int, Callable[[int], None]] = {}  # acknowledgements in their shortest form
        self.ahead: Callable[[bytes, int], tuple[int, int]] | None = None  # of a link: see `link_publishing`
        self.payer = Payer()  # before login, that of its address
        self.source: Payer | None = None  # that of its address, after login
        self.head = 0  # bytes of an HTTP request that is not complete, which the shell keeps
        self.held = 0  # of both, and count as those of a client that has not logged in
        self.waiting = False  # for a turn that has room for it
        self.parked = False  # its turn came while something else kept it from being read
        self.work: Iterator[float] | None = None  # what its last packet asks for, if that was too much for one turn

    def begin(self, session: Session, lane: Lane) -> None:
        """The connection is open."""
        self.lane = lane
        self.source, self.payer = self.payer, Payer()
        self.payer.owe(self.source.until, self.site.now)  # what was left unpaid where it comes from: it may be the same
        self.quick = {
            0x40: session.acknowledged,
            0x50: session.received,
            PUBREL: self.publishing.release,
            0x70: session.completed,
        }
        self.v5 = self.connection.version == V5
        self.hot = self.connection.bucket is None and not self.waiting  # else when it is served

    def stop(self) -> None:
        """The connection is closed."""
        self.hot, self.unread, self.head, self.work = False, b"", 0, None
        self._count_held()
        if self.source is not None:  # whoever leaves and comes back at once has not paid by that
            self.payer.settle(self.site.now, self.site.heavy_after)
            self.source.owe(self.payer.until, self.site.now)

    def resume(self) -> None:
        """Reads what came while nothing was to be read."""
        self.need = 0
        if self.unread and not self.waiting:  # else it reads on when it is served
            self.receive(b"")

    # -- bytes in ----------------------------------------------------------------------------------------------

    def receive(self, data: bytes) -> None:
        """Whatever the socket brought, split anywhere."""
        site = self.site
        if not site.opened:
            site.open()
        self.last_read = site.now
        unread = self.unread
        # hot: one QoS 0 publish that came alone, with a known route: one dict lookup, one append per target. The same
        # as in `read`, without its loop; what does not fit is read there.
        if not unread and self.hot and data[0] == 0x30 and (end := len(data)) > 6:
            length, start = data[1], 2
            if length > 127:
                high = data[2]
                length = length + ((high - 1) << 7) if 0 < high < 128 else 0
                start = 3
            if start + length == end and end <= self.max_packet:
                after = start + 2 + (data[start] << 8 | data[start + 1])
                route = self.lane.plans.get(data[start + 2 : after])
                if route is None or not ((after <= end) if not self.v5 else (after < end and not data[after])):
                    pass
                elif (fast := route.fast) is not None and (not route.guarded or route.calm(self.connection.session)):
                    for target in fast:
                        out = target.out
                        if not out:
                            site.dirty.append(target)
                        out.append(data)
                    if route.cross:
                        cross(self.connection, route, data[start:after], data[after + self.v5 :])
                    route.passed += 1
                    site.publishes += 1
                    site.read += end
                    if site.read > FLUSH_BYTES:
                        site.flush()
                    return
                elif route.asked is not None and site.effort <= site.room and not site.waiting.heap:
                    self._ask(route, data, data[after + self.v5 :])
                    return
        if unread or self.waiting:
            if isinstance(unread, bytes):
                unread = self.unread = bytearray(unread)
            unread += data
            if self.need > LARGE and not self.waiting and self.connection.phase is OPEN:
                self.pay(len(data) // BYTES)  # its bytes take time before anybody can look at it
            if self.waiting or len(unread) < self.need:
                if self.connection.phase is not OPEN:
                    self._count_held()
                return
            data = bytes(unread)
            self.unread = b""
            self.need = 0
        # as much as this turn has room for is read; the rest is kept, and whoever sent it pays
        connection = self.connection
        before, payer, opened = site.effort, self.payer, connection.phase is OPEN
        try:
            try:
                if self.work is not None and not self._work_on():
                    used = 0
                else:
                    used = self.read(data) if opened else read_handshake(self, data)
            except PacketError as error:
                connection.fail(error)
                return
        except Exception as error:  # noqa: BLE001 - a bug closes one connection and is reported, the loop goes on
            self.on_bug(connection, error)
            connection.close(Reason.UNSPECIFIED_ERROR, "internal error")
        else:
            if used < len(data) and connection.phase is not CLOSED:
                self.unread = data[used:] if used else data
            if not opened:
                self._count_held()
        finally:
            payer.credit = credit = payer.credit + before - site.effort
            if credit < 0:
                self._settle(payer)

    def _ask(self, route: Route, data: bytes, payload: bytes) -> None:
        """A QoS 0 publish that came alone, and has to be looked at."""
        site, payer = self.site, self.payer
        before = site.effort
        try:
            self.publishing.ask(route, payload, data)
        except Exception as error:  # noqa: BLE001 - as in `receive`
            self.on_bug(self.connection, error)
            self.connection.close(Reason.UNSPECIFIED_ERROR, "internal error")
        site.effort += QUICK
        site.publishes += 1
        if payer.until > site.heavy_after:
            site.heavy += 1
        site.read += len(data)
        if site.read > FLUSH_BYTES:
            site.flush()
        payer.credit = credit = payer.credit + before - site.effort
        if credit < 0:
            self._settle(payer)

    def _settle(self, payer: Payer) -> None:
        """A client that has taken too much while others publish has to wait."""
        site = self.site
        if payer.settle(site.now, site.heavy_after) and site.contended:
            if not (self.waiting or site.serving) and self.connection.phase is not CLOSED:
                self._wait()

    def pay(self, spent: int) -> None:
        """For what is not a packet yet: parts of a large one, and frames of a WebSocket."""
        site, payer = self.site, self.payer
        site.open()
        site.effort += spent
        payer.credit -= spent
        if payer.credit < 0:
            self._settle(payer)
        if site.effort > site.room and not self.waiting:
            self._wait()

    def _count_held(self) -> None:
        """What is kept for clients that have not logged in has a bound for all of them together."""
        if not self._has_room():
            self.connection.fail(ProtocolError("too much is waiting to log in; try again later", Reason.SERVER_BUSY))

    def keep_head(self, size: int) -> bool:
        """Before MQTT begins, the shell keeps so many bytes; whether there is room for them."""
        self.head = size
        return self._has_room()

    def _has_room(self) -> bool:
        site = self.site
        held = 0 if self.connection.phase is OPEN else self.head + len(self.unread)
        site.handshake_bytes += held - self.held
        grown, self.held = held > self.held, held
        return not grown or site.handshake_bytes <= site.limits.handshake_bytes

    def read(self, data: bytes) -> int:
        """Takes all whole frames; how many bytes that was."""
        # hot: for a QoS 0 publish with a known route, one dict lookup and one append per target
        site = self.site
        connection = self.connection
        publishing = self.publishing
        plans, crossing = self.lane.plans, connection.session.crossing
        quick, v5, limit = self.quick, self.v5, self.max_packet
        end = len(data)
        # see `packet_costs`: `share` is for what takes the general path, `twice` for QoS 2 of light clients
        room = share = site.room
        if site.serving:
            room = share = max(room, site.effort + TURN)
        elif site.waiting.heap:
            share = -1
        begun = site.effort
        pos = publishes = acknowledgements = counted = 0
        if self.ahead is not None:
            pos, publishes = self.ahead(data, share)
            if publishing.stalled or connection.phase is not OPEN:
                return pos  # what was taken ahead has led to that
        fast: tuple[Session, ...] | None = None
        last = end - 1 if end - pos <= STRETCH else pos + STRETCH  # a frame that begins before it may be read
        while True:
            while pos < last:
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
                        whole = frame(data, pos, limit)
                        if whole is None:
                            self.need = announced(data, pos) - pos
                            break
                        _, start, stop = whole
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
                        if (fast := route.fast) is not None and (not route.guarded or route.calm(connection.session)):
                            if fast:
                                packet = data if not pos and stop == end else data[pos:stop]
                                for target in fast:
                                    out = target.out
                                    if not out:
                                        site.dirty.append(target)
                                    out.append(packet)
                            if route.cross:
                                if (stream := crossing.get(route)) is not None:
                                    if not stream.payloads:
                                        stream.gathering.begins(stream)
                                    stream.payloads.append(data[after + v5 : stop])
                                else:
                                    cross(connection, route, data[start:after], data[after + v5 : stop])
                                    crossing = connection.session.crossing
                            route.passed += 1
                        else:
                            if site.effort > share:
                                publishes -= 1
                                self._wait()
                                break
                            payload = data[after + 1 if v5 else after : stop]
                            if route.asked is not None:
                                publishing.ask(route, payload, data if not pos and stop == end else data[pos:stop])
                            else:
                                publishing.take(
                                    route, payload, 0, False, 0, NONE, None, b"", data[pos:after], data[after:stop]
                                )
                            if connection.phase is not OPEN:
                                pos = end  # it was denied, and that ended the connection
                                break
                            if publishing.stalled:
                                pos = stop
                                self.need = STALLED
                                break
                        pos = stop
                        continue
                elif length == 2 and (handler := quick.get(first)) is not None:
                    if first == PUBREL and site.effort > share and self._exceeds(share, begun):
                        self._wait()
                        break
                    acknowledgements += 1
                    handler(data[start] << 8 | data[start + 1])
                    if connection.phase is not OPEN:
                        pos = end
                        break
                    pos = stop
                    if publishing.stalled:
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
                        if site.effort > share and (first == 0x32 or self._exceeds(share, begun)):
                            publishes -= 1
                            self._wait()
                            break
                        publishing.take(
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
                        if connection.phase is not OPEN:
                            pos = end  # it was denied, and that ended the connection
                            break
                        pos = stop
                        if publishing.stalled:
                            self.need = STALLED
                            break
                        continue
                elif first >> 4 == Type.PUBLISH:
                    publishes += 1
                elif first >> 4 == Type.CONNECT:
                    raise ProtocolError("a second CONNECT")  # [MQTT-3.1.0-2], whatever is in it
                if not self.affords(first >> 4, length):
                    # This turn has done enough: it comes after those who ask for less. What is known goes on meanwhile.
                    publishes -= first >> 4 == Type.PUBLISH
                    break
                self._packet(first, data[start:stop])
                pos = stop
                if connection.phase is not OPEN:
                    pos = end  # nothing is read behind the end
                    break
                if self.waiting:
                    break
                if publishing.stalled:
                    self.need = STALLED
                    break
                plans, crossing = self.lane.plans, connection.session.crossing
            else:
                if pos + 1 < end:
                    # a stretch is read: what was quick in it has its price as well
                    quick_price = (publishes - counted) * (QUICK + len(fast or ()) // 8)
                    site.effort += quick_price + ACKNOWLEDGED * acknowledgements
                    counted, acknowledgements = publishes, 0
                    if (site.effort <= room) if first == 0x30 else not self._exceeds(share, begun):
                        last = min(end - 1, pos + STRETCH)
                        continue
                    self._wait()
            break
        if publishes:
            site.publishes += publishes
            site.effort += (publishes - counted) * QUICK
            if self.payer.until > site.heavy_after:
                site.heavy += publishes
            if not self.hot:
                connection.throttle(publishes)
        site.read += pos
        if site.read > FLUSH_BYTES:
            site.flush()
        return pos

    # -- put off -----------------------------------------------------------------------------------------------

    def _exceeds(self, share: int, begun: int) -> bool:
        """Whether this turn has no room for QoS 2, of which light clients may send more; `begun`: before this read."""
        site = self.site
        return site.effort > (share if self.payer.until > site.heavy_after else min(AMPLE, begun + LONG))

    def affords(self, kind: int, length: int) -> bool:
        """Whether this turn has room for a packet; its price is counted. Else its sender has to wait."""
        site = self.site
        if site.effort > site.room or self.has_to_rest():
            self._wait()
            return False
        if not site.may_begin(price(kind, length)):
            self._wait(site.rested)
            return False
        return True

    def _wait(self, until: float = 0.0) -> None:
        """Nothing more is read from this client before it is served again, at that time or with the next turns."""
        self.hot = False
        self.waiting = True
        self.connection.hold_reading(Hold.WORK)
        if until > self.site.now:
            self.site.timers.at(until, self._line_up)
        else:
            self._line_up()

    def has_to_rest(self) -> bool:
        """Whether it takes too large a part of the loop while there are others; those who are served have rested."""
        return not self.site.serving and self.site.rests(self.payer)

    def _line_up(self) -> None:
        self.site.line_up(self.payer, self._serve)

    def _serve(self) -> None:
        """Reads on where too much was asked for."""
        connection = self.connection
        if connection.holds & ~GOES_ON and connection.phase is not CLOSED:
            self.parked = True  # there is another reason not to read from it
            return
        self.waiting = False
        if connection.phase is CLOSED:
            return
        if len(self.unread) < self.need:
            self.site.effort += READ_ON
        elif not self.publishing.stalled:
            self.need = 0
            self.receive(b"")
        if not self.waiting:
            self.hot = connection.phase is OPEN and connection.bucket is None
            connection.release_reading(Hold.WORK)

    def unpark(self) -> None:
        """The other reasons not to read from it are gone."""
        if self.parked:
            self.parked = False
            self._line_up()

    def _work_on(self) -> bool:
        """Goes on with what the last packet asks for; whether it is done."""
        assert self.work is not None
        until = next(self.work, None)
        if until is None:
            self.work = None
            return True
        if self.connection.phase is not CLOSED:
            self._wait(until)
        return False

    # -- packets -----------------------------------------------------------------------------------------------

    def _packet(self, first: int, body: bytes) -> None:
        connection = self.connection
        session = connection.session
        if connection.old and first in REPEATED_31:
            first &= ~0x08
        packet = priced(self.site, first, body, connection.version)
        match packet:
            case Publish():
                self.publishing.publish(packet)
            case Puback():
                session.acknowledged(packet.packet_id)
            case Pubrec():
                session.received(packet.packet_id, packet.reason)
            case Pubrel():
                self.publishing.release(packet.packet_id)
            case Pubcomp():
                session.completed(packet.packet_id)
            case Subscribe():
                self.work = connection.host.subscribing.subscribe(session, packet)
                self._work_on()
            case Unsubscribe():
                self.work = connection.host.subscribing.unsubscribe(session, packet)
                self._work_on()
            case Pingreq():
                self.publishing.pinged()
            case Disconnect():
                connection.disconnected(packet)
            case Auth():
                connection.host.handshake.auth(connection, packet)
            case Connect():
                raise ProtocolError("a second CONNECT")  # [MQTT-3.1.0-2]
            case Pingresp() | Suback() | Unsuback() if connection.dialed is not None:
                connection.dialed(packet)
            case Connack() | Suback() | Unsuback() | Pingresp():
                raise ProtocolError(f"{type(packet).__name__.upper()} is never sent by a client")
            case _:
                assert_never(packet)
