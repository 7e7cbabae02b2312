"""Frames against wsproto as an oracle, the upgrade as a table, and the whole over real sockets with a foreign
client (`websockets`), on both event loops, in the clear and over TLS."""

from __future__ import annotations

import asyncio
import base64
import itertools
import random
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trustme
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from wsproto.connection import Connection, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Ping, TextMessage

from tidegate.net.websocket import HEAD, IDLE, PIECE, End, Frames, State, WebSocket, unmask, upgrade

LIMIT = 100_000
MASK = b"\x11\x22\x33\x44"


def frame(first: int, body: bytes, mask: bytes = MASK) -> bytes:
    size = len(body)
    if size < 126:
        head = bytes((first, 0x80 | size))
    elif size < 65536:
        head = struct.pack("!BBH", first, 0x80 | 126, size)
    else:
        head = struct.pack("!BBQ", first, 0x80 | 127, size)
    return head + mask + bytes(byte ^ mask[index % 4] for index, byte in enumerate(body))


# Frames: one stream, cut in every way.

STREAM = b"".join(
    (
        frame(0x82, b"one"),
        frame(0x02, b"two, "),
        frame(0x89, b"are you there?"),
        frame(0x00, b""),
        frame(0x8A, b"unasked"),
        frame(0x80, b"in pieces", b"\0\0\0\0"),
        frame(0x82, b"x" * 125),
        frame(0x82, b"y" * 126, b"\xff\x00\xff\x00"),
        frame(0x82, b""),
        frame(0x82, b"z" * 65536),
        frame(0x88, struct.pack("!H", 1000) + b"bye"),
    )
)
PAYLOAD = b"onetwo, in pieces" + b"x" * 125 + b"y" * 126 + b"z" * 65536
GOODBYE = End(code=1000, reason="bye", mistake=False)


def read(pieces: Iterator[bytes] | list[bytes], limit: int = LIMIT) -> tuple[bytes, bytes | None, End | None]:
    frames = Frames(limit)
    payload = b""
    for piece in pieces:
        payload += frames.feed(piece)
        while frames.more:
            payload += frames.feed(b"")
    return payload, frames.ping, frames.end


def test_whole_and_byte_by_byte() -> None:
    assert read([STREAM]) == (PAYLOAD, b"are you there?", GOODBYE)
    assert read(STREAM[i : i + 1] for i in range(len(STREAM))) == (PAYLOAD, b"are you there?", GOODBYE)


def test_split_at_every_byte() -> None:
    short = STREAM.replace(frame(0x82, b"z" * 65536), b"")
    wanted = (PAYLOAD[:-65536], b"are you there?", GOODBYE)
    for cut in range(len(short) + 1):
        assert read([short[:cut], short[cut:]]) == wanted


def test_nothing_after_the_end() -> None:
    frames = Frames(LIMIT)
    assert frames.feed(frame(0x82, b"a") + frame(0x88, b"") + frame(0x82, b"b")) == b"a"
    assert frames.feed(frame(0x82, b"c")) == b""
    assert frames.end == End(code=None, mistake=False)


MISTAKES = {
    "text": (frame(0x81, b"hello"), 1003),
    "fragmented text": (frame(0x01, b"hello"), 1003),
    "not masked": (b"\x82\x01a", 1002),
    "reserved bit 1": (frame(0xC2, b"a"), 1002),
    "reserved bit 3": (frame(0x92, b"a"), 1002),
    "opcode 3": (frame(0x83, b"a"), 1002),
    "opcode 11": (frame(0x8B, b"a"), 1002),
    "fragmented ping": (frame(0x09, b"a"), 1002),
    "long ping": (frame(0x89, b"a" * 126), 1002),
    "continuation of nothing": (frame(0x80, b"a"), 1002),
    "new message inside a message": (frame(0x02, b"") + frame(0x82, b"b"), 1002),
    "text inside a message": (frame(0x02, b"") + frame(0x81, b"b"), 1002),
    "length of 5 in two bytes": (b"\x82\xfe\x00\x05" + MASK + b"abcde", 1002),
    "length of 300 in eight bytes": (b"\x82\xff" + struct.pack("!Q", 300) + MASK, 1002),
    "length with the top bit": (b"\x82\xff" + struct.pack("!Q", 1 << 63) + MASK, 1002),
    "half a close code": (frame(0x88, b"\x03"), 1002),
    "close code 999": (frame(0x88, struct.pack("!H", 999)), 1002),
    "close code 1005": (frame(0x88, struct.pack("!H", 1005)), 1002),
    "close code 2000": (frame(0x88, struct.pack("!H", 2000)), 1002),
    "close code 5000": (frame(0x88, struct.pack("!H", 5000)), 1002),
    "close reason not UTF-8": (frame(0x88, struct.pack("!H", 1000) + b"\xff"), 1007),
    "too big": (frame(0x82, b"a" * (LIMIT + 1)), 1009),
    "too big in pieces": (frame(0x02, b"") + frame(0x80, b"a" * (LIMIT + 1)), 1009),
}


@pytest.mark.parametrize(("data", "code"), MISTAKES.values(), ids=MISTAKES.keys())
def test_mistakes(data: bytes, code: int) -> None:
    before = frame(0x82, b"before")
    for pieces in ([before + data], [before[:3], before[3:], *(bytes((byte,)) for byte in data[:400])]):
        payload, _, end = read(pieces)
        assert payload == b"before"
        assert end is not None
        assert (end.mistake, end.code) == (True, code)
        assert len(end.reason.encode()) <= 123


def test_too_big_is_known_from_the_header() -> None:
    _, _, end = read([b"\x82\xff" + struct.pack("!Q", 1 << 40)])
    assert end is not None
    assert end.code == 1009


def test_the_limit_counts_the_message_not_the_frame() -> None:
    half = b"a" * (LIMIT // 2)
    message = [frame(0x02, half), frame(0x80, half)]
    assert read(message * 3) == (half * 6, None, None)
    payload, _, end = read([frame(0x02, half), frame(0x00, half), frame(0x80, b"a")])
    assert payload == half * 2
    assert end is not None
    assert end.code == 1009


@pytest.mark.parametrize("empty", [frame(0x89, b""), frame(0x8A, b"x"), frame(0x82, b"")])
def test_a_flood_of_frames_without_payload(empty: bytes) -> None:
    assert read([empty * IDLE, empty * IDLE])[2] is None
    payload, _, end = read([frame(0x82, b"a") + empty * (IDLE + 1)])
    assert payload == b"a"
    assert end is not None
    assert end.code == 1008


def oracle(data: bytes) -> tuple[bytes, bytes | None, tuple[bool, int | None] | None]:
    """What wsproto makes of the same bytes, with text refused as we do."""
    connection = Connection(ConnectionType.SERVER)
    payload, ping = b"", None
    connection.receive_data(data)
    for event in connection.events():
        if isinstance(event, BytesMessage):
            payload += event.data
        elif isinstance(event, Ping):
            ping = bytes(event.payload)
        elif isinstance(event, TextMessage):
            return payload, ping, (True, 1003)
        elif isinstance(event, CloseConnection):
            mistake = connection.state.name == "OPEN"
            return payload, ping, (mistake, None if event.code == 1005 else int(event.code))
    return payload, ping, None


def ours(data: bytes, cuts: list[int]) -> tuple[bytes, bytes | None, tuple[bool, int | None] | None]:
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    payload, ping, end = read([data[a:b] for a, b in itertools.pairwise(edges)], 1 << 62)
    return payload, ping, None if end is None else (end.mistake, end.code)


FIRST = st.sampled_from([0x82, 0x82, 0x82, 0x02, 0x00, 0x80, 0x89, 0x8A, 0x88, 0x08, 0x83, 0xC2, 0x8F])
SOME_FRAME = st.builds(frame, FIRST, st.binary(max_size=140), st.binary(min_size=4, max_size=4) | st.just(b"\0\0\0\0"))
CLOSE = st.builds(
    lambda code, reason: frame(0x88, struct.pack("!H", code) + reason),
    st.integers(990, 5010).filter(lambda code: code != 1014),  # registered later than wsproto
    st.binary(max_size=20),
)


@settings(max_examples=400, deadline=None)
@given(
    parts=st.lists(SOME_FRAME | CLOSE | st.binary(max_size=6), max_size=8),
    cuts=st.lists(st.integers(0, 1 << 16), max_size=4),
)
def test_same_as_wsproto(parts: list[bytes], cuts: list[int]) -> None:
    data = b"".join(parts)
    wanted, got = oracle(data), ours(data, cuts)
    if wanted[2] == (True, 1003) or got[2] == (True, 1003):
        # wsproto shows text when its payload is there, we refuse it at the first two bytes
        assert got[2] == (True, 1003)
    elif wanted[2] is None and got[2] is not None:
        # We say no as soon as it is certain, wsproto waits for the length: with more to read it agrees
        assert got[2] == (True, 1002)
        assert oracle(data + b"\0" * 14)[2] == got[2]
    else:
        assert got == wanted


def test_random_bytes_raise_nothing() -> None:
    seed = random.SystemRandom().getrandbits(32)
    print("seed", seed)
    rng = random.Random(seed)
    for _ in range(2000):
        data = bytearray(STREAM[:300])
        for _ in range(rng.randrange(6)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        payload, _, _ = read([bytes(data[:200]), bytes(data[200:]), rng.randbytes(50)])
        assert len(payload) <= len(data) + 50


def test_unmask_is_its_own_inverse() -> None:
    for size in range(70):
        data = bytes(range(size))
        assert unmask(data, MASK) == bytes(byte ^ MASK[i % 4] for i, byte in enumerate(data))
        assert unmask(unmask(data, MASK), MASK) == data


# The upgrade.

KEY = base64.b64encode(b"0123456789abcdef").decode()
HEADERS = {
    "Host": "localhost",
    "Upgrade": "websocket",
    "Connection": "keep-alive, Upgrade",
    "Sec-WebSocket-Key": KEY,
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Protocol": "mqttv3.1, mqtt",
}


def request(line: str = "GET /mqtt HTTP/1.1", **changes: str | None) -> bytes:
    headers = HEADERS | {name.replace("_", "-"): value for name, value in changes.items()}
    lines = [line, *(f"{name}: {value}" for name, value in headers.items() if value is not None)]
    return "\r\n".join((*lines, "", "")).encode("latin-1")


REQUESTS = {
    "right": (request(), 101),
    "query": (request("GET /mqtt?token=1 HTTP/1.1"), 101),
    "extension offered": (request(Sec_WebSocket_Extensions="permessage-deflate"), 101),
    "allowed origin": (request(Origin="https://App.example"), 101),
    "bare line feeds": (request().replace(b"\r\n", b"\n"), 101),
    "other origin": (request(Origin="https://evil.example"), 403),
    "other path": (request("GET /mqtt/ HTTP/1.1"), 404),
    "root": (request("GET / HTTP/1.1"), 404),
    "POST": (request("POST /mqtt HTTP/1.1"), 400),
    "HEAD": (request("HEAD /mqtt HTTP/1.1"), 400),
    "no subprotocol": (request(Sec_WebSocket_Protocol=None), 400),
    "other subprotocol": (request(Sec_WebSocket_Protocol="wamp"), 400),
    "upper case subprotocol": (request(Sec_WebSocket_Protocol="MQTT"), 400),
    "no upgrade": (request(Upgrade=None), 400),
    "other upgrade": (request(Upgrade="h2c"), 400),
    "no connection": (request(Connection="keep-alive"), 400),
    "no host": (request(Host=None), 400),
    "no key": (request(Sec_WebSocket_Key=None), 400),
    "short key": (request(Sec_WebSocket_Key="AAAA"), 400),
    "key not base64": (request(Sec_WebSocket_Key="!" * 24), 400),
    "no version": (request(Sec_WebSocket_Version=None), 400),
    "version 8": (request(Sec_WebSocket_Version="8"), 426),
    "subprotocol not ASCII": (request(Sec_WebSocket_Protocol="mqtt\xe9"), 400),
    "connection not ASCII": (request(Connection="\xe9"), 400),
    "host not a name": (request(Host="xn--\xff"), 400),
    "no HTTP": (b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x3c\x00\x00\n\n", 400),
    "nothing": (b"\r\n\r\n", 400),
    "TLS to a plain port": (b"\x16\x03\x01\x02\x00\x01\n\n", 400),
}


@pytest.mark.parametrize(("head", "status"), REQUESTS.values(), ids=REQUESTS.keys())
def test_upgrade(head: bytes, status: int) -> None:
    got, answer = upgrade(head, "/mqtt", ["https://app.example"])
    assert got == status
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    assert b"\r\n\r\n" in answer
    if status == 101:
        assert b"mqtt" in answer
        assert b"deflate" not in answer
    else:
        assert b"Connection: close\r\n" in answer
    assert (b"Sec-WebSocket-Version: 13" in answer) is (status == 426)


def test_origins_closed_and_open() -> None:
    page = request(Origin="https://app.example")
    assert upgrade(page, "/mqtt", None)[0] == 101
    assert upgrade(page, "/mqtt", [])[0] == 403
    assert upgrade(request(), "/mqtt", [])[0] == 101


# Over real sockets.

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


class Echo(asyncio.Protocol):
    """The inner protocol: sends back what it gets and remembers what happened to it."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self.received = bytearray()
        self.reads = 0
        self.lost: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self.arrived = asyncio.Event()
        self.silent = False
        self.greeting = b""
        self.blocked: list[bool] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.write(self.greeting)

    def data_received(self, data: bytes) -> None:
        assert type(data) is bytes
        assert data
        self.received += data
        self.reads += 1
        self.arrived.set()
        if not self.silent:
            self.transport.write(data)

    def pause_writing(self) -> None:
        self.blocked.append(True)

    def resume_writing(self) -> None:
        self.blocked.append(False)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(exc)


def free_socket() -> socket.socket:
    """A listening socket on loopback, on a port outside the ephemeral range."""
    for port in random.SystemRandom().sample(range(10_000, 32_000), 200):
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1", port))
        except OSError:
            sock.close()
            continue
        return sock
    raise AssertionError("no free port")


class Server:
    def __init__(self, port: int, contexts: tuple[ssl.SSLContext, ssl.SSLContext] | None) -> None:
        self.port = port
        self.client_tls = contexts[1] if contexts else None
        self.url = f"{'wss' if contexts else 'ws'}://localhost:{port}/mqtt"
        self.inners: list[Echo] = []
        self.sockets: list[WebSocket] = []
        self.prepare: Callable[[Echo], None] = lambda _: None

    def make(self, linger: float) -> WebSocket:
        inner = Echo()
        self.prepare(inner)
        self.inners.append(inner)
        self.sockets.append(WebSocket(inner, "/mqtt", None, LIMIT, linger=linger))
        return self.sockets[-1]

    def dial(self, **options: Any) -> Any:
        options = {
            "subprotocols": ["mqtt"],
            "compression": None,
            "proxy": None,
            "ssl": self.client_tls,
        } | options
        options.setdefault("server_hostname", "localhost" if self.client_tls else None)
        return connect(self.url.replace("localhost", "127.0.0.1"), **options)

    async def raw(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        name = "localhost" if self.client_tls else None
        return await asyncio.open_connection("127.0.0.1", self.port, ssl=self.client_tls, server_hostname=name)


@asynccontextmanager
async def serving(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext] | None = None, linger: float = 5.0
) -> AsyncIterator[Server]:
    loop = asyncio.get_running_loop()
    failures: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: failures.append(context))
    sock = free_socket()
    server = Server(sock.getsockname()[1], contexts)
    listener = await loop.create_server(lambda: server.make(linger), sock=sock, ssl=contexts[0] if contexts else None)
    try:
        yield server
        async with asyncio.timeout(10):
            for inner in server.inners:
                await inner.lost
    finally:
        listener.close()
        await listener.wait_closed()
    assert failures == []


@pytest.fixture(params=LOOPS.values(), ids=LOOPS.keys())
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, None]], None]:
    def runner(work: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=request.param) as it:
            it.run(asyncio.wait_for(work, 30))

    return runner


Run = Callable[[Awaitable[None]], None]


@pytest.fixture(scope="module")
def contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    ca = trustme.CA()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("localhost").configure_cert(server)
    client = ssl.create_default_context()
    ca.configure_trust(client)
    return server, client


@pytest.fixture(params=[False, True], ids=["ws", "wss"])
def tls(
    request: pytest.FixtureRequest, contexts: tuple[ssl.SSLContext, ssl.SSLContext]
) -> tuple[ssl.SSLContext, ssl.SSLContext] | None:
    return contexts if request.param else None


Tls = tuple[ssl.SSLContext, ssl.SSLContext] | None


async def closed(client: ClientConnection) -> tuple[int | None, str]:
    """How the connection ended, as the foreign client saw it."""
    try:
        while True:
            await client.recv()
    except ConnectionClosed:
        pass
    return client.close_code, client.close_reason or ""


def test_foreign_client(run: Run, tls: Tls) -> None:
    async def scenario() -> None:
        async with serving(tls) as server, server.dial() as client:
            assert client.subprotocol == "mqtt"
            for size in (1, 125, 126, 127, 65535, 65536, LIMIT):
                message = random.randbytes(size)
                await client.send(message)
                got = b""
                while len(got) < size:
                    got += await client.recv()
                assert got == message
            await client.send([b"in ", b"many ", b"pieces"])
            got = b""
            while len(got) < 14:
                got += await client.recv()
            assert got == b"in many pieces"
            await (await client.ping(b"here?"))
            assert server.inners[0].transport.get_extra_info("peername")[0] == "127.0.0.1"
            assert (server.inners[0].transport.get_extra_info("ssl_object") is not None) is (tls is not None)

    run(scenario())


def test_client_closes(run: Run, tls: Tls) -> None:
    async def scenario() -> None:
        async with serving(tls) as server:
            client = await server.dial()
            await client.send(b"last")
            await client.close(4321, "enough")
            assert (client.close_code, client.close_reason) == (4321, "")
            assert await server.inners[0].lost is None
            assert server.inners[0].received == b"last"
            assert server.inners[0].transport.is_closing()

    run(scenario())


def test_inner_closes_after_its_last_words(run: Run, tls: Tls) -> None:
    async def scenario() -> None:
        async with serving(tls) as server:
            client = await server.dial()
            await client.send(b"hello")
            assert await client.recv() == b"hello"
            transport = server.inners[0].transport
            transport.pause_reading()  # closing must read the peer's goodbye all the same
            transport.writelines([b"good", b"", b"bye"])
            transport.close()
            assert transport.is_closing()
            transport.write(b"too late")
            transport.close()
            assert await client.recv() == b"goodbye"
            assert await closed(client) == (1000, "")
            assert await server.inners[0].lost is None

    run(scenario())


@pytest.mark.parametrize(
    ("message", "code"),
    [("text", 1003), (["te", "xt"], 1003), (b"x" * (LIMIT + 1), 1009), (b"y" * 3_000_000, 1009)],
)
def test_close_codes(run: Run, tls: Tls, message: Any, code: int) -> None:
    async def scenario() -> None:
        async with serving(tls) as server:
            client = await server.dial()
            try:
                await client.send(message)
            except ConnectionClosed:
                pass  # refused from the header, while the body was on its way
            assert (await closed(client))[0] == code
            assert tls or await server.inners[0].lost is None  # TLS may complain about what still came
            await server.inners[0].lost
            assert server.inners[0].received == b""

    run(scenario())


@pytest.mark.parametrize(
    ("options", "status"), [({"subprotocols": None}, 400), ({"subprotocols": ["wamp"]}, 400), ({}, 404)]
)
def test_refusals(run: Run, tls: Tls, options: dict[str, Any], status: int) -> None:
    async def scenario() -> None:
        async with serving(tls) as server:
            if not options:
                server.url += "/not"
            with pytest.raises(InvalidStatus) as refusal:
                await server.dial(**options)
            assert refusal.value.response.status_code == status
            assert await server.inners[0].lost is None
            assert server.inners[0].received == b""

    run(scenario())


async def until_end(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionError:
        return b""


def test_head_and_frames_in_small_pieces(run: Run) -> None:
    async def scenario() -> None:
        data = request() + frame(0x02, b"ab") + frame(0x89, b"?") + frame(0x80, b"cd") + frame(0x88, b"")
        async with serving() as server:
            for size in (1, 2, 7, 50, len(data)):  # the last: frames together with the request
                reader, writer = await server.raw()
                writer.transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for start in range(0, len(data), size):
                    writer.write(data[start : start + size])
                    await asyncio.sleep(0)
                answer = await until_end(reader)
                writer.close()
                head, _, frames = answer.partition(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 101")
                assert frames.endswith(b"\x88\x00")
                assert b"\x8a\x01?" in frames
                assert frames.replace(b"\x8a\x01?", b"").count(b"\x82") in (1, 2, 3, 4)
                assert server.inners[-1].received == b"abcd"

    run(scenario())


def test_head_split_at_every_byte() -> None:
    """Without a network: the transport is a list."""
    data = request() + frame(0x82, b"first")
    for cut in range(len(data) + 1):
        inner, written = Quiet(), Written()
        socket_ = WebSocket(inner, "/mqtt", None, LIMIT)
        socket_.connection_made(written)
        socket_.data_received(data[:cut])
        socket_.data_received(data[cut:])
        assert socket_.state is State.OPEN
        assert inner.received == b"first"
        assert written.data.startswith(b"HTTP/1.1 101")


class Quiet(asyncio.Protocol):
    def __init__(self) -> None:
        self.received = b""

    def data_received(self, data: bytes) -> None:
        self.received += data


class Written(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.data = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.data += data

    def is_closing(self) -> bool:
        return False


def test_pong_waits_while_the_peer_does_not_read() -> None:
    inner, written = Quiet(), Written()
    socket_ = WebSocket(inner, "/mqtt", None, LIMIT)
    socket_.connection_made(written)
    socket_.data_received(request())
    written.data = b""
    socket_.data_received(frame(0x89, b"1") + frame(0x82, b"x") + frame(0x89, b"2"))
    assert (written.data, inner.received) == (b"\x8a\x012", b"x")
    socket_.pause_writing()
    socket_.data_received(frame(0x89, b"3"))
    socket_.data_received(frame(0x89, b"4"))
    assert written.data == b"\x8a\x012"
    socket_.resume_writing()
    socket_.resume_writing()
    assert written.data == b"\x8a\x012\x8a\x014"


def test_writes_before_the_upgrade_are_kept(run: Run) -> None:
    async def scenario() -> None:
        async with serving() as server:

            def greet(inner: Echo) -> None:
                inner.greeting = b"welcome"

            server.prepare = greet
            async with server.dial() as client:
                assert await client.recv() == b"welcome"

    run(scenario())


def test_endless_head(run: Run, tls: Tls) -> None:
    async def scenario() -> None:
        async with serving(tls) as server:
            for junk in (b"GET /mqtt HTTP/1.1\r\nX: " + b"a" * (HEAD + 1000), request(X="a" * HEAD)):
                reader, writer = await server.raw()
                writer.write(junk)
                assert (await until_end(reader)).startswith(b"HTTP/1.1 431 ")
                writer.close()

    run(scenario())


def test_inner_gives_up_before_the_upgrade(run: Run, tls: Tls) -> None:
    async def scenario() -> None:
        async with serving(tls) as server:
            for end in ("close", "abort"):
                reader, writer = await server.raw()
                writer.write(b"GET /mqtt")
                while not server.inners or not hasattr(server.inners[-1], "transport"):
                    await asyncio.sleep(0.001)
                getattr(server.inners[-1].transport, end)()
                assert await until_end(reader) == b""
                writer.close()
                await server.inners[-1].lost
                server.inners.clear()

    run(scenario())


def test_peer_that_never_answers_the_close(run: Run) -> None:
    async def scenario() -> None:
        async with serving(linger=0.1) as server:
            reader, writer = await server.raw()
            writer.write(request() + frame(0x82, b"hi"))
            assert (await reader.readuntil(b"\x82\x02hi")).startswith(b"HTTP/1.1 101")
            server.inners[0].transport.close()
            await server.inners[0].lost
            assert await until_end(reader) == b"\x88\x02\x03\xe8"
            writer.close()

    run(scenario())


def test_peer_that_breaks_off(run: Run, tls: Tls) -> None:
    async def scenario() -> None:
        async with serving(tls) as server:
            for data in (
                b"",
                b"GET /mq",
                request(),
                request() + b"\x82",
                request() + frame(0x82, b"abc")[:-1],
            ):
                reader, writer = await server.raw()
                writer.write(data)
                await writer.drain()
                if data.startswith(request()):
                    await reader.readuntil(b"\r\n\r\n")
                writer.close()
            while len(server.inners) < 5:
                await asyncio.sleep(0.001)

    run(scenario())


def test_back_pressure_both_ways(run: Run, tls: Tls) -> None:
    async def scenario() -> None:
        async with serving(tls) as server:
            reader, writer = await server.raw()
            writer.write(request())
            await reader.readuntil(b"\r\n\r\n")
            inner = server.inners[0]
            inner.silent = True
            inner.transport.set_write_buffer_limits(high=64 * 1024)
            wanted = 0
            while True not in inner.blocked:
                inner.transport.write(b"x" * 50_000)
                wanted += 50_004
                await asyncio.sleep(0)
            assert inner.transport.get_write_buffer_size() > 0
            await reader.readexactly(wanted)
            while inner.blocked[-1]:
                await asyncio.sleep(0.001)
            assert inner.blocked == [True, False]

            inner.transport.pause_reading()
            assert not inner.transport.is_reading()
            writer.write(frame(0x82, b"later"))
            await writer.drain()
            inner.transport.write(b"now")
            assert await reader.readexactly(5) == b"\x82\x03now"
            assert inner.received == b""
            inner.transport.resume_reading()
            await inner.arrived.wait()
            assert inner.received == b"later"
            writer.close()

    run(scenario())


def test_many_small_frames_are_one_call(run: Run) -> None:
    async def scenario() -> None:
        async with serving() as server:
            reader, writer = await server.raw()
            writer.write(request() + frame(0x82, b"ab") * 200 + frame(0x88, b""))
            await until_end(reader)
            writer.close()
            assert server.inners[0].received == b"ab" * 200
            assert server.inners[0].reads < 20

    run(scenario())


def test_many_frames_are_read_in_pieces_and_paid_for(run: Run) -> None:
    """However small they are, each takes time; the sender is paused when it has to wait."""

    async def scenario() -> None:
        paid: list[int] = []
        async with serving() as server:
            reader, writer = await server.raw()
            writer.write(request())
            await reader.readuntil(b"\r\n\r\n")
            inner = server.inners[0]
            inner.silent = True
            socket_ = server.sockets[0]

            def pay(frames: int) -> None:
                paid.append(frames)
                if len(paid) == 2:
                    inner.transport.pause_reading()
                    asyncio.get_running_loop().call_later(0.05, inner.transport.resume_reading)

            socket_._pay = pay
            writer.write(frame(0x82, b"a") * 3000)
            async with asyncio.timeout(20):
                while len(inner.received) < 3000:
                    await asyncio.sleep(0.005)
            writer.write(frame(0x82, b"b"))
            async with asyncio.timeout(20):
                while len(inner.received) < 3001:
                    await asyncio.sleep(0.005)
            writer.close()
        assert inner.received == b"a" * 3000 + b"b"
        assert max(paid) == PIECE
        assert sum(paid) > 2900

    run(scenario())


def test_hostile_bytes(run: Run) -> None:
    async def scenario() -> None:
        seed = random.SystemRandom().getrandbits(32)
        print("seed", seed)
        rng = random.Random(seed)
        async with serving(linger=0.5) as server:

            async def attack(number: int) -> None:
                head = bytearray(request())
                body = bytearray(STREAM[:300])
                if number % 3 == 0:
                    head[rng.randrange(len(head))] = rng.randrange(256)
                for _ in range(rng.randrange(4)):
                    body[rng.randrange(len(body))] = rng.randrange(256)
                junk = rng.randbytes(rng.randrange(200))
                reader, writer = await server.raw()
                try:
                    writer.write(bytes(head) + bytes(body) + junk)
                    writer.write_eof()
                    await until_end(reader)
                except ConnectionError:
                    pass  # the server may cut a hostile peer off
                finally:
                    writer.close()

            for start in range(0, 150, 15):
                await asyncio.gather(*(attack(start + offset) for offset in range(15)))
            async with server.dial() as client:
                await client.send(b"still here")
                assert await client.recv() == b"still here"

    run(scenario())
