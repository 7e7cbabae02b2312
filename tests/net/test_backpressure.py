"""Clients that do not read: they cost a bounded amount of memory, and nobody else notices them.

A client that does not read has a small receive buffer and never looks at it, so what is written for it stays in the
node. Memory is measured where it can be: of a node that is a process of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import PATIENCE, Client, Live, live
from processes import Process, from_file, on_uvloop, process, until
from tidegate import wire
from tidegate.cli import certificates
from tidegate.net import connection_shell
from tidegate.session import Hold, Session

SMALL = 4096  # bytes of a socket buffer; the system doubles it
BLOCK = 50_000  # bytes of a large payload
READ = 2 * 256 * 1024  # bytes that one turn of the loop may bring for a client before it is seen that it is slow


def session(node: Live, name: str) -> Session:
    (found,) = [one for one in node.node.scopes["main"].sessions.values() if one.client == name]
    return found


def waiting(node: Live, name: str) -> int:
    """Bytes written for a client that have not left the node."""
    connection = session(node, name).connection
    assert connection is not None
    size: int = connection.shell.transport.get_write_buffer_size()
    return size


async def deaf(node: Live, name: str, context: ssl.SSLContext | None = None, port: int = 0, **fields: object) -> Client:
    """Connected over a socket with a small buffer; it reads as usual until it is told not to."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port or node.port))
    host = "127.0.0.1" if context else None
    reader, writer = await asyncio.open_connection(sock=sock, ssl=context, server_hostname=host)
    client = Client(reader, writer)
    node.clients.append(client)
    client.version = int(fields.pop("version", wire.V5))
    fields.setdefault("clean_start", True)
    await client.send(wire.Connect(version=client.version, client_id=name, keep_alive=0, **fields))
    client.connack = await client.expect(wire.Connack)
    assert client.connack.reason == 0
    return client


def stop_reading(client: Client) -> None:
    client.writer.transport.pause_reading()


def read_again(client: Client) -> None:
    client.writer.transport.resume_reading()


def block(number: int) -> bytes:
    return b"%06d" % number + bytes(BLOCK - 6)


def number(message: wire.Publish) -> int:
    return int(message.payload[:6])


# -- QoS 0 -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("secure", [False, True], ids=["tcp", "tls"])
@pytest.mark.parametrize("version", [wire.V311, wire.V5])
@on_uvloop
async def test_qos_0_is_dropped_and_counted_and_others_get_everything(
    tmp_path: Path, version: int, secure: bool
) -> None:
    certificates.make_ca(tmp_path, "Test CA", days=2)
    certificates.issue(tmp_path, "node", ["127.0.0.1"], client=False, days=2)
    text = """
version: 1
node: {name: test}
listeners:
  - {url: "mqtt://127.0.0.1:PORT", anonymous: true}
  - {url: "mqtts://127.0.0.1:TLS_PORT", anonymous: true, cert: node.pem, key: node.key}
policies: open
sys: {interval: 0s}
"""
    async with from_file(tmp_path, text) as node:
        context = ssl.create_default_context(cafile=tmp_path / "ca.pem") if secure else None
        slow = await deaf(node, "slow", context, node.ports["TLS_PORT"] if secure else 0, version=version)
        await slow.subscribe("t")
        other = await node.connect("other")
        await other.subscribe("t")
        pub = await node.connect("pub")
        stop_reading(slow)
        most = 0
        for first in range(0, 300, 10):
            for one in range(first, first + 10):
                await pub.publish("t", block(one))
            assert [number(await other.message()) for _ in range(10)] == list(range(first, first + 10))
            most = max(most, waiting(node, "slow"))
        assert session(node, "slow").shut
        assert most <= connection_shell.HIGH_WATER + READ
        assert session(node, "slow").queued == 0
        read_again(slow)
        got: list[int] = []

        async def read() -> None:
            while (latest := number(await slow.message())) != 999999:
                got.append(latest)

        reading = asyncio.create_task(read())
        await until(lambda: not session(node, "slow").shut)
        await pub.publish("t", b"999999")
        await reading
        assert got == sorted(set(got))
        dropped = node.node.site.counters.dropped
        assert dropped > 0
        assert len(got) + dropped == 300
        assert node.node.status()["numbers"]["publish/messages/dropped"] == dropped


# -- QoS 1 -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", [False, True], ids=["transient", "persistent"])
@pytest.mark.parametrize("version", [wire.V311, wire.V5])
@on_uvloop
async def test_qos_1_waits_and_comes_in_order(tmp_path: Path, version: int, kept: bool) -> None:
    async with live(data=tmp_path / "data") as node:
        fields: dict[str, object] = {"clean_start": not kept}
        if kept and version == wire.V5:
            fields["properties"] = wire.Properties(session_expiry_interval=600)
        slow = await deaf(node, "slow", version=version, **fields)
        await slow.subscribe("t", qos=1)
        pub = await node.connect("pub")
        stop_reading(slow)
        for one in range(200):
            answer = await pub.publish("t", block(one), qos=1)
            assert isinstance(answer, wire.Puback)
            assert answer.reason == 0
        owed = session(node, "slow")
        assert owed.shut
        assert 0 < owed.queued_bytes <= 16 * 2**20
        assert waiting(node, "slow") <= connection_shell.HIGH_WATER + READ
        read_again(slow)
        assert [number(await slow.message()) for _ in range(200)] == list(range(200))
        assert node.node.site.counters.dropped == 0
        await slow.silent()
        assert (owed.queued, owed.queued_bytes, owed.inflight) == (0, 0, 0)


@pytest.mark.parametrize("version", [wire.V311, wire.V5])
@on_uvloop
async def test_client_that_reads_and_does_not_acknowledge_gets_no_more_than_its_window(version: int) -> None:
    async with live("limits: {inflight: 20}\n") as node:
        slow = await node.connect("slow", version=version)  # says nothing about what it can take
        await slow.subscribe("t", qos=1)
        pub = await node.connect("pub")
        for one in range(100):
            await pub.publish("t", b"%06d" % one, qos=1)
        got = [await slow.expect(wire.Publish) for _ in range(20)]
        await slow.silent()
        assert (session(node, "slow").inflight, session(node, "slow").queued) == (20, 80)
        for message in got:
            await slow.send(wire.Puback(packet_id=message.packet_id))
        rest = [await slow.message() for _ in range(80)]
        assert [number(message) for message in got + rest] == list(range(100))


QUEUE = "limits: {{queue: {{messages: 20, full: {}}}}}\n"


async def overfilled(node: Live, **fields: object) -> Client:
    """A client that takes one message at a time, has one, and was owed 30."""
    properties = wire.Properties(receive_maximum=1, session_expiry_interval=600)
    slow = await node.connect("slow", properties=properties, **fields)
    await slow.subscribe("t", qos=1)
    pub = await node.connect("pub")
    for one in range(30):
        await pub.publish("t", b"%06d" % one, qos=1)
    return slow


@pytest.mark.parametrize(
    ("full", "kept"),
    [("drop-newest", range(1, 21)), ("drop-oldest", range(10, 30))],
    ids=["drop-newest", "drop-oldest"],
)
@on_uvloop
async def test_full_queue_drops(full: str, kept: range) -> None:
    async with live(QUEUE.format(full)) as node:
        slow = await overfilled(node)
        assert node.node.site.counters.dropped == 9
        got = [number(await slow.message()) for _ in range(21)]
        assert got == [0, *kept]
        await slow.silent()


@on_uvloop
async def test_full_queue_disconnects() -> None:
    async with live(QUEUE.format("disconnect")) as node:
        slow = await overfilled(node)
        assert number(await slow.expect(wire.Publish)) == 0
        assert (await slow.expect(wire.Disconnect)).reason == wire.Reason.QUOTA_EXCEEDED
        assert await slow.closed() == b""
        again = await node.connect("slow", clean_start=False, properties=wire.Properties(session_expiry_interval=600))
        assert again.connack.session_present
        assert [number(await again.message()) for _ in range(21)] == list(range(21))  # what was accepted is not lost
        await again.silent()


@on_uvloop
async def test_full_queue_disconnects_a_client_that_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_shell, "LINGER", 0.2)
    async with live("limits: {queue: {bytes: 1MiB, full: disconnect}}\n") as node:
        slow = await deaf(node, "slow")
        await slow.subscribe("t", qos=1)
        pub = await node.connect("pub")
        stop_reading(slow)
        sent = 0
        while any(one.client == "slow" for one in node.node.scopes["main"].sessions.values()):
            await pub.publish("t", block(sent), qos=1)
            sent += 1
            assert sent < 400
        listener = next(iter(node.node.listeners.bound.values()))
        await until(lambda: len(listener.connections) == 1)  # it goes although it reads nothing


@pytest.mark.parametrize("full", ["drop-newest", "drop-oldest"])
@on_uvloop
async def test_queue_is_limited_in_bytes(full: str) -> None:
    async with live(f"limits: {{queue: {{bytes: 500KB, full: {full}}}}}\n") as node:
        slow = await node.connect("slow", properties=wire.Properties(receive_maximum=1))
        await slow.subscribe("t", qos=1)
        pub = await node.connect("pub")
        for one in range(30):
            await pub.publish("t", block(one), qos=1)
            assert session(node, "slow").queued_bytes <= 500_000
        assert node.node.site.counters.dropped == 20
        kept = range(1, 10) if full == "drop-newest" else range(21, 30)
        assert [number(await slow.message()) for _ in range(10)] == [0, *kept]


@on_uvloop
async def test_queue_of_a_client_that_is_away_is_limited(tmp_path: Path) -> None:
    async with live(QUEUE.format("disconnect"), data=tmp_path / "data") as node:
        keep = wire.Properties(session_expiry_interval=600)
        away = await node.connect("away", properties=keep)
        await away.subscribe("t", qos=1)
        await away.disconnect()
        pub = await node.connect("pub")
        for one in range(30):
            await pub.publish("t", b"%06d" % one, qos=1)
        assert node.node.site.counters.dropped == 10
        back = await node.connect("away", clean_start=False, properties=keep)
        assert [number(await back.message()) for _ in range(20)] == list(range(20))
        await back.silent()


# -- publishers --------------------------------------------------------------------------------------------------


@on_uvloop
async def test_publisher_that_does_not_read_its_acknowledgements_is_paused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_shell, "HIGH_WATER", 4096)  # so that thousands are enough and not millions
    async with live() as node:
        listener = next(iter(node.node.listeners.bound.values()))
        assert listener._socket is not None
        listener._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL)  # connections inherit it
        pub = await deaf(node, "pub", version=wire.V311)
        stop_reading(pub)
        total = 60_000
        frames = [
            wire.encode(wire.Publish(topic="t", payload=b"x", qos=1, packet_id=one % 65535 + 1), wire.V311)
            for one in range(total)
        ]
        counters = node.node.site.counters
        for first in range(0, total, 500):
            pub.writer.write(b"".join(frames[first : first + 500]))
        publisher = session(node, "pub").connection
        assert publisher is not None
        await until(lambda: bool(publisher.holds & Hold.WRITING))
        paused_at = counters.publishes_received
        assert paused_at < total
        other = await node.connect("other")
        for _ in range(20):  # the node does other things meanwhile
            await other.silent()
        assert counters.publishes_received == paused_at
        assert waiting(node, "pub") < READ
        read_again(pub)
        for one in range(total):
            assert (await pub.expect(wire.Puback)).packet_id == one % 65535 + 1
        assert counters.publishes_received == total


# -- memory of a process -----------------------------------------------------------------------------------------

NODE = """
version: 1
node: {name: flood}
listeners:
  - {url: "mqtt://127.0.0.1:PORT", anonymous: true}
  - {url: "mqtts://127.0.0.1:TLS_PORT", anonymous: true, cert: node.pem, key: node.key}
  - {url: "ws://127.0.0.1:WS_PORT/mqtt", anonymous: true}
policies: open
sys: {interval: 0s}
"""
MIB = 2**20
UPGRADE = (
    b"GET /mqtt HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n"
)


@pytest.fixture
def flooded(tmp_path: Path) -> Iterator[Process]:
    certificates.make_ca(tmp_path, "Test CA", days=2)
    certificates.issue(tmp_path, "node", ["127.0.0.1"], client=False, days=2)
    with process(tmp_path, NODE) as running:
        yield running


class Plain:
    """A blocking client of few words."""

    def __init__(self, running: Process, name: str, kind: str = "", *, small: bool = False) -> None:
        sock = socket.socket()
        if small:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL)
        sock.settimeout(3 * PATIENCE)
        sock.connect(("127.0.0.1", running.ports[f"{kind}PORT"]))
        self.web = kind == "WS_"
        if kind == "TLS_":
            context = ssl.create_default_context(cafile=running.file.folder / "ca.pem")
            sock = context.wrap_socket(sock, server_hostname="127.0.0.1")
        self.socket = sock
        if self.web:
            sock.sendall(UPGRADE)
            assert b" 101 " in sock.recv(4096)
        self.send(wire.Connect(version=wire.V311, client_id=name, clean_start=True, keep_alive=0))
        assert sock.recv(100)[-4:] == b"\x20\x02\x00\x00"

    def send(self, packet: wire.Packet) -> None:
        data = wire.encode(packet, wire.V311)
        if self.web:
            assert len(data) < 126
            data = bytes((0x82, 0x80 | len(data))) + bytes(4) + data
        self.socket.sendall(data)

    def subscribe(self, filter: str, qos: int = 0) -> None:
        self.send(wire.Subscribe(packet_id=1, subscriptions=(wire.Subscription(filter=filter, qos=qos),)))
        assert self.socket.recv(100)[-5:] == bytes((0x90, 3, 0, 1, qos))

    def finish(self) -> None:
        """Says DISCONNECT and waits until the node has read everything up to it."""
        self.send(wire.Disconnect())
        with contextlib.suppress(ConnectionError):
            while self.socket.recv(65536):
                pass
        self.socket.close()


def test_flood_of_100_mb_leaves_memory_flat(flooded: Process) -> None:
    frame = wire.encode(wire.Publish(topic="t", payload=bytes(994)), wire.V311)
    each, messages = len(frame), 100_000
    stuck = [Plain(flooded, f"stuck {kind}", kind, small=True) for kind in ("", "TLS_", "WS_")]
    for one in stuck:
        one.subscribe("t")
    reader = Plain(flooded, "reader")
    reader.subscribe("t")
    received = 0
    done = threading.Event()

    def read() -> None:
        nonlocal received
        buffer = bytearray(MIB)
        reader.socket.settimeout(0.2)
        while True:
            try:
                received += reader.socket.recv_into(buffer)
            except TimeoutError:
                if done.is_set():
                    return

    thread = threading.Thread(target=read)
    thread.start()
    publisher = Plain(flooded, "publisher")
    before = flooded.memory()
    for _ in range(messages // 100):
        publisher.socket.sendall(frame * 100)
    publisher.finish()
    done.set()
    thread.join()
    grown = flooded.memory("VmHWM") - before
    for one in (*stuck, reader):
        one.socket.close()
    assert grown < 24 * MIB, f"{grown / MIB:.1f} MiB"
    deadline = time.monotonic() + PATIENCE
    while (numbers := flooded.ask("status")["numbers"])["clients/connected"]:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert numbers["publish/messages/received"] == messages
    assert received % each == 0
    assert received > 0
    # each of the four was sent it or it was counted as dropped; the three that are stuck were sent little
    assert 3 * messages * 0.8 < numbers["publish/messages/dropped"] <= 4 * messages - received // each


def test_retained_messages_for_a_client_that_does_not_read_leave_memory_flat(flooded: Process) -> None:
    publisher = Plain(flooded, "publisher")
    for one in range(150):
        publisher.send(wire.Publish(topic=f"r/{one}", payload=bytes(400_000), retain=True))
    publisher.finish()
    before = flooded.memory("VmHWM")
    stuck = [Plain(flooded, f"stuck {one}", small=True) for one in range(3)]
    for one in stuck:
        one.send(wire.Subscribe(packet_id=1, subscriptions=(wire.Subscription(filter="r/#", qos=0),)))
        assert one.socket.recv(5, socket.MSG_WAITALL) == bytes((0x90, 3, 0, 1, 0))
    other = Plain(flooded, "other")
    other.subscribe("other")
    grown = flooded.memory("VmHWM") - before
    for one in (*stuck, other):
        one.socket.close()
    assert grown < 24 * MIB, f"{grown / MIB:.1f} MiB"


def test_many_stuck_subscribers_at_qos_1_stay_within_their_limits(tmp_path: Path) -> None:
    text = """
version: 1
node: {name: flood}
listeners: [{url: "mqtt://127.0.0.1:PORT", anonymous: true}]
limits: {queue: {bytes: 1MiB}}
policies: open
sys: {interval: 0s}
"""
    with process(tmp_path, text) as running:
        stuck = {f"t/{one}": Plain(running, f"stuck {one}", small=True) for one in range(5)}
        for topic, one in stuck.items():
            one.subscribe(topic, 1)
        publisher = Plain(running, "publisher")
        before = running.memory()
        for _ in range(30):
            for topic in stuck:  # 150 MB in all, 30 MB for each
                message = wire.Publish(topic=topic, payload=bytes(10_000), qos=1, packet_id=1)
                publisher.socket.sendall(wire.encode(message, wire.V311) * 100)
                received = 0
                while received < 4 * 100:
                    received += len(publisher.socket.recv(65536))
        grown = running.memory("VmHWM") - before
        # what waits, and what is under way: in the system's buffer of each socket and in ours
        assert grown < len(stuck) * 2 * (1 + 4 + 1) * MIB + 16 * MIB, f"{grown / MIB:.1f} MiB"
        assert running.ask("status")["numbers"]["publish/messages/dropped"] > len(stuck) * 2000
        for one in (*stuck.values(), publisher):
            one.socket.close()
