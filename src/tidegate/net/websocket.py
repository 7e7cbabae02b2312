"""MQTT over WebSocket: a decorator around any `asyncio.Protocol` (MQTT 5.0, section 6; RFC 6455).

`WebSocket(inner, ...)` is the protocol of the socket. It answers the HTTP upgrade, then hands the payload of
binary frames to `inner.data_received` and gives `inner` a transport whose every `write` leaves as one binary
frame. The inner protocol sees a stream of bytes and cannot tell it from TCP.

- `inner.connection_made` is called when the socket opens, before the upgrade. So its limits and its time for
  the first packet cover the HTTP request as well, and every `connection_made` has its `connection_lost`.
- Payload is handed on as it arrives, never collected: what is kept of a connection is at most one request
  head (`HEAD` bytes), or later one frame header and one control frame. All payload of one read is one call.
- Of the pings of one read only the last is answered (RFC 6455, 5.5.3), and not while the peer does not read.
- Bytes from outside raise nothing: a bad request is answered with a status, bad frames with a close code.
- A connection that is closing is read on and its bytes are thrown away, so that the last words are not lost
  to a TCP reset; `linger` seconds bound that.

The handshake is wsproto's. Its frame reader costs 9 µs for a frame and its writer 3 µs, more than the broker
spends on a message, so frames are read and written here; the tests compare the two on random input.

It will not compress (no extension is accepted), not send pings of its own (MQTT has them), not speak HTTP/2.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
import struct
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from http import HTTPStatus
from typing import Any, cast

import structlog
from wsproto.connection import ConnectionType
from wsproto.events import AcceptConnection, RejectConnection, Request
from wsproto.frame_protocol import CloseReason
from wsproto.handshake import H11Handshake
from wsproto.utilities import RemoteProtocolError

SUBPROTOCOL = "mqtt"  # [MQTT-6.0.0-4]
HEAD = 16 * 1024
PIECE = 256  # frames that are read at once
IDLE = 1000  # frames without payload in one read; each costs work and brings nothing
GRACE = 0.25  # seconds for a peer to read why it is refused, where its side cannot be closed alone

log = structlog.get_logger(__name__)

_BLANK_LINE = re.compile(rb"\n\r?\n")
_SHORT = tuple(bytes((0x82, size)) for size in range(126))
# RFC 6455, 7.4, with 1012 to 1014 as registered since; 1004 to 1006 and 1015 never travel.
_CODES = frozenset((*range(1000, 1004), *range(1007, 1015), *range(3000, 5000)))


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """How the peer's frames ended: it said goodbye (code None: without a code), or made a mistake."""

    code: int | None
    reason: str = ""
    mistake: bool


class Frames:
    """Reads what a client sends after the upgrade: payload out, the last ping and the end as attributes."""

    __slots__ = ("_fragmented", "_idle", "_left", "_limit", "_mask", "_rest", "_size", "count", "end", "more", "ping")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rest = b""  # an incomplete header or control frame
        self._left = 0  # payload still to come of the current data frame
        self._mask = b""  # turned so that it begins with the key byte of the next payload byte
        self._fragmented = False
        self._size = 0  # payload of the fragmented message so far
        self._idle = 0  # frames without payload of one read
        self.count = 0  # of the last call
        self.more = False  # it has left some for the next call
        self.ping: bytes | None = None
        self.end: End | None = None

    def feed(self, data: bytes) -> bytes:
        """The payload in `data`, of at most `PIECE` frames: the rest is kept (`more`). After an end there is none."""
        self.count, self.more = 0, False
        if data:
            self._idle = 0
        if self.end is not None:
            return b""
        if self._rest:
            data = self._rest + data
            self._rest = b""
        position, stop = 0, len(data)
        pieces: list[bytes] = []
        while position < stop and self.end is None:
            if self._left:
                piece = data[position : position + self._left]
                pieces.append(unmask(piece, self._mask))
                position += len(piece)
                self._left -= len(piece)
                turn = len(piece) & 3
                self._mask = self._mask[turn:] + self._mask[:turn]
                continue
            if stop - position < 2:
                break
            if self.count == PIECE:
                self.more = True
                break
            first, second = data[position], data[position + 1]
            # hot: the frame that nearly all clients send, whole and binary, needs no second look
            if first != 0x82 or second < 0x80 or self._fragmented:
                self.end = self._forbidden(first, second)
                if self.end is not None:
                    break
            size = second & 0x7F
            start = position + 2
            if size == 126:
                if stop < start + 2:
                    break
                size = data[start] << 8 | data[start + 1]
                start += 2
                if size < 126:
                    self.end = _protocol_error("length not in its shortest form")
                    break
            elif size == 127:
                if stop < start + 8:
                    break
                size = int.from_bytes(data[start : start + 8], "big")
                start += 8
                if size < 65536 or size >> 63:
                    self.end = _protocol_error("length not in its shortest form")
                    break
            if first < 0x88 and self._size + size > self._limit:
                # From the header alone, before anything of the body is read.
                self.end = _mistake(CloseReason.MESSAGE_TOO_BIG, "message too big")
                break
            start += 4
            if stop < start or (first >= 0x88 and stop < start + size):
                break
            self.count += 1
            mask = data[start - 4 : start]
            position = start
            if first < 0x88:
                self._fragmented = first < 0x80
                self._size = self._size + size if self._fragmented else 0
                self._left, self._mask = size, mask
            else:
                position += size
                self._control(first, unmask(data[start:position], mask))
            if size == 0 or first >= 0x88:
                self._idle += 1
                if self._idle > IDLE and self.end is None:
                    self.end = _mistake(CloseReason.POLICY_VIOLATION, "too many frames without payload")
        if self.end is None:
            self._rest = data[position:]
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _forbidden(self, first: int, second: int) -> End | None:
        """What RFC 6455, 5.2 to 5.5, forbids in the first two bytes of a frame."""
        opcode = first & 0x0F
        if first & 0x70:
            return _protocol_error("reserved bit without an extension")
        if opcode in {3, 4, 5, 6, 7} or opcode > 10:
            return _protocol_error("unknown opcode")
        if not second & 0x80:
            return _protocol_error("frame not masked")
        if opcode >= 8:
            if first < 0x80 or second & 0x7F > 125:
                return _protocol_error("control frame fragmented or too long")
        elif (opcode == 0) is not self._fragmented:
            return _protocol_error("continuation out of place")
        elif opcode == 1:
            # [MQTT-6.0.0-1] any other type of data frame closes the connection
            return _mistake(CloseReason.UNSUPPORTED_DATA, "MQTT travels in binary frames")
        return None

    def _control(self, first: int, body: bytes) -> None:
        if first == 0x89:
            self.ping = body
        elif first == 0x88:
            self.end = _goodbye(body)


def unmask(data: bytes, mask: bytes) -> bytes:
    """`data` with the four bytes of `mask` over it, again and again."""
    size = len(data)
    keys = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(data, "little") ^ int.from_bytes(keys, "little")).to_bytes(size, "little")


def _mistake(code: CloseReason, reason: str) -> End:
    return End(code=int(code), reason=reason, mistake=True)


def _protocol_error(reason: str) -> End:
    return _mistake(CloseReason.PROTOCOL_ERROR, reason)


def _goodbye(body: bytes) -> End:
    if not body:
        return End(code=None, mistake=False)
    code = int.from_bytes(body[:2], "big")
    if len(body) == 1 or code not in _CODES:
        return _protocol_error("no such close code")
    try:
        return End(code=code, reason=body[2:].decode(), mistake=False)
    except UnicodeDecodeError:
        return _mistake(CloseReason.INVALID_FRAME_PAYLOAD_DATA, "close reason is not UTF-8")


def upgrade(head: bytes, path: str, origins: Collection[str] | None) -> tuple[int, bytes]:
    """The status and the whole answer to an HTTP request; with 101 the connection speaks WebSocket."""
    handshake = H11Handshake(ConnectionType.SERVER)
    try:
        handshake.receive_data(head)
        request = next(handshake.events(), None)
    except RemoteProtocolError as error:
        hint = error.event_hint
        return _refusal(hint.status_code if isinstance(hint, RejectConnection) else 400, str(error))
    except UnicodeError:  # wsproto decodes Host, the target and lists of tokens without looking
        return _refusal(400, "Bad HTTP header")
    if not isinstance(request, Request):
        return _refusal(400, "Bad HTTP message")
    if path and request.target.partition("?")[0] != path:
        return _refusal(404, "No MQTT here")
    headers = list(request.extra_headers)
    if not _is_nonce([value for name, value in headers if name == b"sec-websocket-key"]):
        return _refusal(400, "Bad header, 'Sec-WebSocket-Key'")
    if SUBPROTOCOL not in request.subprotocols:  # [MQTT-6.0.0-3] the client must offer it
        return _refusal(400, "Missing header, 'Sec-WebSocket-Protocol: mqtt'")
    origin = [value.decode("latin-1").lower() for name, value in headers if name == b"origin"]
    # Only browsers send Origin, and only their users need it checked: others could send what they like.
    if origins is not None and any(each not in origins for each in origin):
        return _refusal(403, "Origin not allowed")
    return 101, handshake.send(AcceptConnection(subprotocol=SUBPROTOCOL))


def _is_nonce(values: list[bytes]) -> bool:
    """RFC 6455, 4.2.1: one key, base64 of 16 bytes."""
    try:
        return len(values) == 1 and len(base64.b64decode(values[0], validate=True)) == 16
    except binascii.Error:
        return False


def _refusal(status: int, reason: str) -> tuple[int, bytes]:
    body = f"{reason}\n".encode()
    lines = [
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
        "Content-Type: text/plain; charset=utf-8",
        f"Content-Length: {len(body)}",
        "Connection: close",
    ]
    if status == 426:
        lines.append("Sec-WebSocket-Version: 13")
    return status, "\r\n".join((*lines, "", "")).encode() + body


class State(Enum):
    """Where a connection stands; it only moves downwards."""

    REQUEST = "request"  # waiting for the whole HTTP request
    OPEN = "open"
    CLOSING = "closing"  # our Close is sent, the peer's is awaited
    DONE = "done"  # nothing more is said; what arrives is thrown away


class WebSocket(asyncio.Protocol):
    """The protocol of a WebSocket's socket, around the protocol that speaks MQTT."""

    __slots__ = (
        "_blocked", "_frames", "_head", "_held", "_keep_head", "_linger", "_origins", "_path", "_pay", "_timer",
        "_transport", "inner", "paused", "state",
    )  # fmt: skip

    def __init__(
        self,
        inner: asyncio.Protocol,
        path: str,
        origins: Sequence[str] | None,
        limit: int,
        *,
        keep_head: Callable[[int], bool] = lambda size: True,
        pay: Callable[[int], None] = lambda frames: None,
        linger: float = 5.0,
    ) -> None:
        """`origins`: web pages that may connect (None: all; clients that are no browsers always may).
        `limit`: bytes of payload of a message, fragmented or not. `keep_head` is told how many bytes of an incomplete
        request are kept, and says whether there is room for them. `pay` is told how many frames came at once: each
        takes about a microsecond, however small it is. It may pause reading."""
        self.inner = inner
        self._path = path  # empty: any
        self._origins = None if origins is None else frozenset(each.lower() for each in origins)
        self._keep_head = keep_head
        self._pay = pay
        self._linger = linger
        self._frames = Frames(limit)
        self.state = State.REQUEST
        self._head = b""
        self._held: list[bytes] = []  # written by the inner protocol before the upgrade
        self.paused = False  # reading, by the inner protocol
        self._blocked = False  # writing, by the transport
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.inner.connection_made(Channel(self, self._transport))

    def data_received(self, data: bytes) -> None:
        if self.state is State.OPEN or self.state is State.CLOSING:
            self._receive(data)
        elif self.state is State.REQUEST:
            self._request(data)

    def pause_writing(self) -> None:
        self._blocked = True
        self.inner.pause_writing()

    def resume_writing(self) -> None:
        self._blocked = False
        self._answer_ping()
        self.inner.resume_writing()

    def eof_received(self) -> bool | None:
        # Without a Close frame the stream just ends, as it does over TCP.
        return self.inner.eof_received() if self.state is State.OPEN else None

    def connection_lost(self, exc: Exception | None) -> None:
        self.state = State.DONE
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._held.clear()
        self.inner.connection_lost(exc)

    def _request(self, data: bytes) -> None:
        before = len(self._head)
        self._head += data
        blank = _BLANK_LINE.search(self._head, max(before - 2, 0))
        busy = False
        if blank is None and len(self._head) <= HEAD:
            if self._keep_head(len(self._head)):
                return
            busy = True
        head, self._head = self._head, b""
        self._keep_head(0)
        if busy:
            status, answer = _refusal(503, "Too much is waiting to log in; try again later")
        elif blank is None or blank.end() > HEAD:
            status, answer = _refusal(431, "Request head too large")
        else:
            status, answer = upgrade(head[: blank.end()], self._path, self._origins)
        self._transport.write(answer)
        if status != 101:
            log.debug("websocket refused", status=status, peer=self._transport.get_extra_info("peername"))
            self._finish(clean=False)
            return
        self.state = State.OPEN
        held, self._held = self._held, []
        for each in held:
            self.send(each)
        assert blank is not None
        if blank.end() < len(head):  # an eager client; wsproto would drop its first frames
            self._receive(head[blank.end() :])

    def _receive(self, data: bytes) -> None:
        payload = self._frames.feed(data)
        if self._frames.count > 1:
            self._pay(self._frames.count)
        if payload and self.state is State.OPEN:
            self.inner.data_received(payload)
        if self._frames.more and not self.paused:
            self._transport.pause_reading()
            asyncio.get_running_loop().call_soon(self._go_on)
        if self._frames.ping is not None:
            self._answer_ping()
        if (end := self._frames.end) is not None and self.state is not State.DONE:
            if end.mistake:
                log.debug("websocket error", code=end.code, reason=end.reason)
            if self.state is State.OPEN:
                self._say_goodbye(end.code, end.reason if end.mistake else "")
            self._finish(clean=not end.mistake)

    def _go_on(self) -> None:
        """Reads the frames that were left, unless nothing is to be read now."""
        if self.paused or self._transport.is_closing():
            return
        if self._frames.more:
            self._receive(b"")
        if not self._frames.more and not self.paused:
            self._transport.resume_reading()

    def _answer_ping(self) -> None:
        if self._blocked or self.state is not State.OPEN or self._frames.ping is None:
            return
        body, self._frames.ping = self._frames.ping, None
        self._transport.write(bytes((0x8A, len(body))) + body)

    def _say_goodbye(self, code: int | None, reason: str) -> None:
        body = b"" if code is None else struct.pack("!H", code) + reason.encode()
        self._transport.write(bytes((0x88, len(body))) + body)

    def _finish(self, *, clean: bool) -> None:
        """Ends the connection once everything written has left."""
        self.state = State.DONE
        if self._transport.is_closing():  # lost already; connection_lost is on its way
            return
        self._listen_on()
        if clean:
            self._transport.close()
        elif self._transport.can_write_eof():
            # Closing with unread input makes TCP send a reset, which takes our last words with it.
            self._transport.write_eof()
        else:
            # TLS cannot be half closed, and takes data after its close for an attack: give the peer a moment.
            self._set_timer(min(GRACE, self._linger), self._hang_up)

    def _hang_up(self) -> None:
        self._set_timer(self._linger, self._transport.abort)
        self._transport.close()

    def _listen_on(self) -> None:
        if self.paused:
            self._transport.resume_reading()
        self.paused = False
        if self._timer is None:
            self._set_timer(self._linger, self._transport.abort)

    def _set_timer(self, seconds: float, action: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, action)

    # What the inner protocol asks for, through its Channel.

    def send(self, data: bytes | bytearray | memoryview) -> None:
        """Sends one binary frame; after the end it is dropped, as a transport does."""
        if self.state is State.OPEN:
            size = len(data)
            if size < 126:
                self._transport.write(_SHORT[size] + data)
            elif size < 65536:
                self._transport.write(struct.pack("!BBH", 0x82, 126, size) + data)
            else:
                self._transport.write(struct.pack("!BBQ", 0x82, 127, size) + data)
        elif self.state is State.REQUEST:
            self._held.append(bytes(data))

    def close(self) -> None:
        """Says goodbye (1000) and waits for the peer's; before the upgrade it just closes."""
        if self.state is State.OPEN:
            self._say_goodbye(CloseReason.NORMAL_CLOSURE, "")
            self.state = State.CLOSING
            if not self._transport.is_closing():
                self._listen_on()
        elif self.state is State.REQUEST:
            self.state = State.DONE
            self._transport.close()

    def abort(self) -> None:
        self.state = State.DONE
        self._transport.abort()

    def pause(self, reading: bool) -> None:
        if self.state is State.CLOSING or self.state is State.DONE or self._transport.is_closing():
            return
        self.paused = reading
        if reading:
            self._transport.pause_reading()
        elif self._frames.more:
            asyncio.get_running_loop().call_soon(self._go_on)
        else:
            self._transport.resume_reading()


class Channel(asyncio.Transport):
    """The transport that the inner protocol is given."""

    __slots__ = ("_socket", "_transport")

    def __init__(self, socket: WebSocket, transport: asyncio.Transport) -> None:
        self._socket = socket
        self._transport = transport

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if data:
            self._socket.send(data)

    def write_eof(self) -> None:
        self._socket.close()

    def can_write_eof(self) -> bool:
        return False

    def close(self) -> None:
        self._socket.close()

    def abort(self) -> None:
        self._socket.abort()

    def is_closing(self) -> bool:
        return self._socket.state in (State.CLOSING, State.DONE) or self._transport.is_closing()

    def is_reading(self) -> bool:
        return not self._socket.paused and not self.is_closing()

    def pause_reading(self) -> None:
        self._socket.pause(True)

    def resume_reading(self) -> None:
        self._socket.pause(False)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._transport.get_write_buffer_limits()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._transport.set_write_buffer_limits(high, low)
