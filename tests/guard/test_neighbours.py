"""A guarded scope beside others of the node, what the broker says of itself, and a broker that breaks the protocol."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from guard.guarded import HERE, broker, gathered, guarded, guarding
from harness import free_port
from processes import from_file, on_uvloop, until
from sockets.acts import BOTH, come, policy, setting
from tidegate import wire


@on_uvloop
async def test_a_guarded_scope_is_linked_like_any_other(tmp_path: Path) -> None:
    rules = (policy("all", "open/#"),)
    with broker() as port:
        sections: dict[str, Any] = {
            "scopes": {
                "legacy": {"backend": f"mqtt://127.0.0.1:{port}", **HERE, "parents": ["top"]},
                "top": {},
            },
            "listeners": [
                {"url": "mqtt://127.0.0.1:PORT", "anonymous": True, "scope": "legacy"},
                {"url": "mqtt://127.0.0.1:TOP_PORT", "anonymous": True, "scope": "top"},
            ],
        }
        async with from_file(tmp_path, setting(*rules, **sections)) as node:
            mary, bob = await come(node, "mary"), await come(node, "bob", port="TOP_PORT")
            await mary.subscribe("open/#", qos=2)
            await bob.subscribe("open/#", qos=2)
            for qos in (0, 1, 2):
                await bob.send(wire.Publish(topic="open/a", payload=b"down", qos=qos, packet_id=qos and 10 + qos))
                assert await gathered(2, mary, bob) == [("open/a", b"down", qos)] * 2
            for qos in (0, 1, 2):
                await mary.send(wire.Publish(topic="open/b", payload=b"up", qos=qos, packet_id=qos and 10 + qos))
                assert await gathered(2, mary, bob) == [("open/b", b"up", qos)] * 2  # her own from the broker


@on_uvloop
async def test_what_the_broker_says_of_itself_is_decided(tmp_path: Path) -> None:
    rules = (policy("sys", "$SYS/broker/version", "read", when="p.kind == 'service' && p.client == 'backend'"),)
    with broker() as port:
        async with guarded(tmp_path, port, *rules) as node:
            mary = await come(node, "mary")
            assert (await mary.subscribe("$SYS/broker/version", "$SYS/broker/uptime")).reasons == (0, 0x87)
            assert b"mosquitto" in (await mary.message()).payload
            assert (await mary.publish("$SYS/broker/version", b"no", qos=1)).reason == 0x87  # type: ignore[union-attr]


@pytest.mark.parametrize("version", BOTH)
@on_uvloop
async def test_other_rules_count_for_who_is_connected(tmp_path: Path, version: int) -> None:
    with broker() as port:
        async with guarded(tmp_path, port) as node:
            mary, bob = await come(node, "mary", version=version), await come(node, "bob", version=version)
            await mary.subscribe("open/#", qos=1)
            await node.reload(guarding(port, policy("write", "open/#", "write")))
            denied = node.node.site.counters.denied
            await bob.publish("open/a", qos=1)
            await until(lambda: node.node.site.counters.denied > denied)
            await mary.silent()
            await node.reload(guarding(port, policy("all", "open/#")))
            await bob.publish("open/a", b"yes", qos=1)
            assert (await mary.message()).payload == b"yes"
            people = {"users": {"bob": {"password": "plain:pw"}}}
            await node.reload(guarding(port, policy("all", "open/#"), directory=people))
            if version == wire.V5:
                assert (await mary.expect(wire.Disconnect)).reason == 0x87
            await mary.closed()


@pytest.mark.parametrize(
    "said",
    [
        b"\x10\x00",
        b"\x30\x00",
        b"\x32\x05\x00\x01a\x00\x00",
        b"\x36\x05\x00\x01a\x00\x01",
        b"\x40\x02\x00\x00",
        b"\x90\x03\x00\x07\x00",
        b"\xf0\x00",
        b"\x20\x02\x00\x00",
        b"\x30\xff\xff\xff\xff\x7f",
        b"\x00\x00",
    ],
)
@on_uvloop
async def test_a_broker_that_breaks_the_protocol_ends_one_connection(tmp_path: Path, said: bytes) -> None:
    """It answers CONNECT, and then says something that it may not."""
    writers: list[asyncio.StreamWriter] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        data = await reader.read(1000)
        writer.write(b"\x20\x03\x00\x00\x00")
        if b"bob" in data:
            await reader.read(2)  # until it has been sent something
            writer.write(said)
        while data := await reader.read(1000):
            if data == b"\xc0\x00":
                writer.write(b"\xd0\x00")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", port := free_port())
    async with guarded(tmp_path, port) as node:
        mary, bob = await come(node, "mary"), await come(node, "bob", keep_alive=60)
        await bob.publish("open/a")  # something for the broker to answer
        packet = await bob.expect(wire.Disconnect)
        assert packet.reason >= 0x80
        await bob.closed()
        await mary.silent()
        assert node.node.status()["bugs"] == 0
    for writer in writers:
        writer.close()
    server.close()
