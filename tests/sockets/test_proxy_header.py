"""PROXY headers: believed where the listener says so, and nowhere else."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

from harness import Client
from processes import Served, from_file, on_uvloop, until
from sockets.acts import policy, secure, setting
from tidegate import wire

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"


def v2(address: str = "", *, command: int = 0x21, more: bytes = b"") -> bytes:
    body, family = b"", 0
    if address:
        parsed = ipaddress.ip_address(address)
        family = 0x11 if parsed.version == 4 else 0x21
        body = parsed.packed * 2 + b"\x12\x34\x07\x5b"
    body += more
    return SIGNATURE + bytes((command, family)) + len(body).to_bytes(2, "big") + body


GOOD = {
    "v1 IPv4": (b"PROXY TCP4 192.0.2.7 198.51.100.1 51234 1883\r\n", "192.0.2.7"),
    "v1 IPv6": (b"PROXY TCP6 2001:db8::7 2001:db8::1 51234 1883\r\n", "2001:db8::7"),
    "v1 unknown": (b"PROXY UNKNOWN\r\n", "127.0.0.1"),
    "v1 unknown with more": (b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n", "127.0.0.1"),
    "v2 IPv4": (v2("192.0.2.7"), "192.0.2.7"),
    "v2 IPv6": (v2("2001:db8::7"), "2001:db8::7"),
    "v2 with additional fields": (v2("192.0.2.7", more=b"\x04\x01\x00" + bytes(256)), "192.0.2.7"),
    "v2 local": (v2(command=0x20), "127.0.0.1"),
}
BAD = {
    "none": wire.encode(wire.Connect(version=5, client_id="c", clean_start=True, keep_alive=0), 5),
    "v1 without an end": b"PROXY TCP4 " + b"1" * 200,
    "v1 no address": b"PROXY TCP4 nobody 198.51.100.1 51234 1883\r\n",
    "v1 another family": b"PROXY TCP4 2001:db8::7 2001:db8::1 51234 1883\r\n",
    "v1 no port": b"PROXY TCP4 192.0.2.7 198.51.100.1 51234\r\n",
    "v1 a port too high": b"PROXY TCP4 192.0.2.7 198.51.100.1 51234 70000\r\n",
    "v1 UDP": b"PROXY UDP4 192.0.2.7 198.51.100.1 51234 1883\r\n",
    "v2 another version": v2("192.0.2.7", command=0x31),
    "v2 another command": v2("192.0.2.7", command=0x22),
    "v2 too short": SIGNATURE + b"\x21\x11\x00\x04abcd",
    "v2 too long": SIGNATURE + b"\x21\x11\xff\xff" + bytes(5000),
    "v2 no TCP": SIGNATURE + b"\x21\x12\x00\x0c" + bytes(12),
    "half a signature": SIGNATURE[:8] + b"nonsense",
}
ALLOWED = policy("near", "t", when="s.address == '192.0.2.7'")


@contextlib.asynccontextmanager
async def proxied(folder: Path, url: str = "mqtt://127.0.0.1:PORT", **more: object) -> AsyncIterator[Served]:
    listener = {"url": url, "anonymous": True, "proxy": True, **more}
    async with from_file(folder, setting(ALLOWED, listeners=[listener])) as node:
        yield node


async def greeted(end: Client) -> Client:
    await end.send(wire.Connect(version=5, client_id="", clean_start=True, keep_alive=0))
    assert (await end.expect(wire.Connack)).reason == 0
    return end


@on_uvloop
async def test_the_address_of_the_header_is_that_of_the_client(tmp_path: Path) -> None:
    async with proxied(tmp_path) as node:
        for name, (header, address) in GOOD.items():
            end = await node.socket()
            await end.raw(header)
            await greeted(end)
            granted = (await end.subscribe("t")).reasons[0] == 0
            assert granted == (address == "192.0.2.7"), name
            (scope,) = node.node.scopes.values()
            assert address in [session.subject.address for session in scope.sessions.values()], name
            end.abort()


@on_uvloop
async def test_a_header_comes_in_pieces_or_with_what_follows(tmp_path: Path) -> None:
    hello = wire.encode(wire.Connect(version=5, client_id="c", clean_start=True, keep_alive=0), 5)
    async with proxied(tmp_path) as node:
        for header, _ in GOOD.values():
            whole = await node.socket()
            await whole.raw(header + hello)
            assert (await whole.expect(wire.Connack)).reason == 0
        pieces = await node.socket()
        header = GOOD["v2 IPv4"][0]
        for at in range(len(header)):
            pieces.writer.write(header[at : at + 1])
            await asyncio.sleep(0)
        await pieces.raw(hello)
        assert (await pieces.expect(wire.Connack)).reason == 0


@on_uvloop
async def test_anything_else_is_closed(tmp_path: Path) -> None:
    async with proxied(tmp_path) as node:
        for name, said in BAD.items():
            end = await node.socket()
            await end.raw(said)
            assert await end.closed() == b"", name
        ended = await node.socket()
        await ended.raw(b"PROXY TCP4 192")
        ended.writer.write_eof()
        assert await ended.closed() == b""


@on_uvloop
async def test_whoever_says_nothing_is_closed_in_time(tmp_path: Path) -> None:
    async with proxied(tmp_path, connect_timeout="0.2s") as node:
        assert await (await node.socket()).closed() == b""


@on_uvloop
async def test_connections_are_counted_by_the_address_of_the_header(tmp_path: Path) -> None:
    async with proxied(tmp_path, address_connections=1) as node:
        ends = []
        for address in ("192.0.2.7", "192.0.2.8", "2001:db8:0:1::1", "2001:db8:0:2::1"):
            end = await node.socket()
            await end.raw(v2(address))
            ends.append(await greeted(end))
        for address in ("192.0.2.7", "2001:db8:0:1::2"):
            end = await node.socket()
            await end.raw(v2(address))
            assert await end.closed() == b""
        ends[0].abort()
        (bound,) = node.node.listeners.bound.values()
        await until(lambda: len(bound.connections) == 3)
        again = await node.socket()
        await again.raw(v2("192.0.2.7"))
        await greeted(again)


@on_uvloop
async def test_the_header_comes_before_tls(tmp_path: Path, certificates: Path) -> None:
    files = {"cert": str(certificates / "node.pem"), "key": str(certificates / "node.key")}
    async with proxied(tmp_path, "mqtts://127.0.0.1:PORT", **files) as node:
        reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
        writer.write(v2("192.0.2.7"))
        context: ssl.SSLContext = secure(certificates)
        await writer.start_tls(context, server_hostname="127.0.0.1")
        end = Client(reader, writer)
        node.clients.append(end)
        await greeted(end)
        assert (await end.subscribe("t")).reasons == (0,)


@on_uvloop
async def test_a_listener_that_does_not_say_so_believes_nobody(tmp_path: Path) -> None:
    async with from_file(tmp_path, setting(ALLOWED)) as node:
        end = await node.socket()
        await end.raw(v2("192.0.2.7"))
        assert await end.closed() == b""


@on_uvloop
async def test_it_is_switched_on_and_off_while_the_node_runs(tmp_path: Path) -> None:
    async with proxied(tmp_path) as node:
        end = await node.socket()
        await end.raw(v2("192.0.2.7"))
        await greeted(end)
        await node.reload(setting(ALLOWED))
        await node.connect("plain")
        await end.silent()
        await node.reload(
            setting(ALLOWED, listeners=[{"url": "mqtt://127.0.0.1:PORT", "anonymous": True, "proxy": True}])
        )
        again = await node.socket()
        await again.raw(v2("192.0.2.7"))
        await greeted(again)
