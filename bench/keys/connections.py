"""Connections that ask one thing at a time, over MQTT or HTTP, with or without TLS: what they send, what answers it.

Requests are put together from pieces that were made before; of an answer only its length and its first bytes are looked
at. That answers bring keys is proved before (`prove`).
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import cycle

import orjson

from bench.keys.node import ANSWER, GET, VERSION, Sample, dialled, mqtt_session, parts_of
from bench.load import frames, sessions
from bench.load.job import LoadError
from bench.load.receiving import CLOSED
from tidegate.errors import KeysError
from tidegate.keys import PrivateKey, read_key, unseal

BUFFER = 1 << 16
MARK = 20  # digits
_BLANK = b"0" * MARK
_LENGTH = b"content-length: "
_END = b"\r\n\r\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """All bytes but the mark, and what it asks for."""

    kind: str
    before: bytes
    after: bytes

    def bytes(self, number: int) -> bytes:
        # hot: no mark comes twice
        return self.before + b"%020d" % number + self.after if self.after else self.before


class Line:
    """A connection, and what has come of the answer."""

    __slots__ = ("_requests", "_rest", "_whole", "begun", "fd", "kind", "sock")

    def __init__(
        self, sock: socket.socket, requests: Sequence[Request], whole: Callable[[bytes], bytes | None]
    ) -> None:
        self.sock = sock
        self.fd = sock.fileno()
        self.kind = ""
        self.begun = 0
        self._requests: Iterator[Request] = cycle(requests)
        self._rest = b""
        self._whole = whole

    def ask(self, number: int) -> None:
        request = next(self._requests)
        self.kind = request.kind
        data = request.bytes(number)
        try:
            sent = self.sock.send(data)
        except (ssl.SSLWantWriteError, BlockingIOError):
            sent = 0
        except OSError as error:
            raise LoadError(f"{CLOSED}: {error}") from None
        if sent != len(data):
            raise LoadError("the server does not read requests")

    def answer(self) -> bytes | None:
        """The answer if all of it is there."""
        while True:
            try:
                data = self.sock.recv(BUFFER)
            except (ssl.SSLWantReadError, BlockingIOError):
                return None
            except OSError as error:
                raise LoadError(f"{CLOSED}: {error}") from None
            if not data:
                raise LoadError(CLOSED)
            if self._rest:
                data = self._rest + data
            found = self._whole(data)
            self._rest = data if found is None else b""
            # what TLS has decrypted already wakes nobody any more
            if found is not None or not (isinstance(self.sock, ssl.SSLSocket) and self.sock.pending()):
                return found

    def await_answer(self) -> bytes:
        """Before the load, while the socket blocks."""
        while (found := self.answer()) is None:
            pass
        return found


# -- over MQTT ---------------------------------------------------------------------------------------------------------


def mqtt_line(port: int, name: str, samples: Sequence[Sample], tls: ssl.SSLContext | None, stack: ExitStack) -> Line:
    """A reader who hears answers to what it asks."""
    sock = stack.enter_context(mqtt_session(port, name, tls))
    sessions.subscribe(sock, [ANSWER], qos=0, version=VERSION)
    return Line(sock, [_over_mqtt(one.key) for one in samples], _packet)


def _over_mqtt(key: str) -> Request:
    data = frames.publish(GET, _question(key), qos=0, packet_id=0, version=VERSION)
    return _cut("MQTT", data)


def _packet(data: bytes) -> bytes | None:
    length = frames.total_length(data)
    if length is None or len(data) < length:
        return None
    if len(data) > length:
        raise LoadError("more came than was asked for")
    _, answer = parts_of(data)
    if not answer.startswith(b'{"keyId"'):
        raise LoadError(f"no key was given: {answer[:300]!r}")
    return answer


# -- over HTTP ---------------------------------------------------------------------------------------------------------


def http_line(port: int, requests: Sequence[Request], tls: ssl.SSLContext | None, stack: ExitStack) -> Line:
    """A connection that stays open."""
    return Line(stack.enter_context(dialled(port, tls)), requests, _response)


def key_requests(samples: Sequence[Sample], token: str) -> list[Request]:
    """`POST /keys/request` for every key in turn."""
    return [_over_http("POST /keys/request", token, _question(one.key)) for one in samples]


def mixed(samples: Sequence[Sample], *, user: str, admin: str, source: str) -> list[Request]:
    """What an API is asked in all its rooms: keys most often, data, and policies."""
    data = Request(kind="POST /data", before=_head("POST /data", source, b'{"temperature":21.5}'), after=b"")
    policies = Request(kind="GET /policies", before=_head("GET /policies", admin, b""), after=b"")
    keys = key_requests(samples, user)
    return [one for place, key in enumerate(keys) for one in (key, (data, policies)[place % 2])]


def _over_http(what: str, token: str, body: bytes) -> Request:
    return _cut(what, _head(what, token, body))


def _head(what: str, token: str, body: bytes) -> bytes:
    lines = [f"{what} HTTP/1.1", "Host: 127.0.0.1", f"Authorization: Bearer {token}"]
    if body:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join(lines).encode() + _END + body


def _response(data: bytes) -> bytes | None:
    end = data.find(_END)
    if end < 0:
        return None
    place = data.find(_LENGTH, 0, end + 2)
    if place < 0:
        raise LoadError(f"an answer of unknown length: {data[:300]!r}")
    length = int(data[place + len(_LENGTH) : data.index(b"\r\n", place)])
    end += len(_END)
    if len(data) < end + length:
        return None
    if not data.startswith(b"HTTP/1.1 2"):
        raise LoadError(f"it was refused: {data[:12].decode()}, {data[end:][:300]!r}")
    return data[end:]


# -- both --------------------------------------------------------------------------------------------------------------


def _question(key: str) -> bytes:
    return orjson.dumps({"keyId": key, "request": _BLANK.decode()})


def _cut(kind: str, data: bytes) -> Request:
    before, _, after = data.rpartition(_BLANK)
    return Request(kind=kind, before=before, after=after)


def prove(line: Line, name: str, private: PrivateKey, samples: Sequence[Sample], first: int) -> None:
    """Each key that a reader is given opens the message that was sealed with it. The line blocks."""
    for number, one in enumerate(samples, first):
        line.ask(number)
        answer = line.await_answer()
        try:
            key = read_key(answer, private, reader=f"user:{name}", request=f"{number:0{MARK}d}")
            clear = unseal(key.secret, one.sealed.encode(), topic=one.topic)
        except KeysError as error:
            raise LoadError(f"what {name} was given is no key: {error}") from None
        if clear.decode() != one.clear:
            raise LoadError(f"{name} reads something else than was published")
