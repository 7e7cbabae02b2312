"""Messages through a guarded Mosquitto: every QoS, both versions, decided on the way in and on the way out."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from guard.guarded import around, broker, guarded
from harness import free_port
from processes import on_uvloop
from sockets.acts import BOTH, come, policy
from tidegate import wire


@pytest.mark.parametrize("version", BOTH)
@on_uvloop
async def test_each_qos_arrives_whole(tmp_path: Path, version: int) -> None:
    with broker() as port:
        async with guarded(tmp_path, port) as node:
            reader = await come(node, "mary", version=version)
            writer = await come(node, "bob", version=version)
            assert (await reader.subscribe("open/#", qos=2)).reasons == (2,)
            for qos in (0, 1, 2, 2, 1, 0):
                await writer.publish("open/a", b"%d" % qos, qos=qos)
                message = await reader.message()
                assert (message.topic, message.payload, message.qos) == ("open/a", b"%d" % qos, qos)


@on_uvloop
async def test_what_lies_in_the_broker_has_an_envelope(tmp_path: Path) -> None:
    with broker() as port:
        async with guarded(tmp_path, port) as node:
            outside = await around(node, port)
            await outside.subscribe("open/#", qos=1)
            writer = await come(node, "bob")
            for qos in (0, 1):
                await writer.publish("open/a", b"content", qos=qos)
                lying = (await outside.message()).payload
                assert lying.startswith(b"TG")
                assert lying.endswith(b"content")


@pytest.mark.parametrize("version", BOTH)
@on_uvloop
async def test_who_may_not_write_or_read_does_not(tmp_path: Path, version: int) -> None:
    with broker() as port:
        async with guarded(tmp_path, port) as node:
            mary, bob = await come(node, "mary", version=version), await come(node, "bob", version=version)
            outside = await around(node, port)
            await outside.subscribe("#", qos=2)
            assert (await bob.subscribe("mary/#", "open/#", qos=1)).reasons == ((0x87 if version == 5 else 0x80), 1)
            denied = await bob.publish("mary/a", b"no", qos=1)
            assert isinstance(denied, wire.Puback)
            assert denied.reason == (0x87 if version == 5 else 0)
            await bob.publish("mary/a", b"no", qos=0)
            await mary.publish("mary/a", b"yes", qos=1)
            assert (await outside.message()).payload.endswith(b"yes")
            await bob.silent()


@on_uvloop
async def test_a_message_is_decided_again_where_it_leaves(tmp_path: Path) -> None:
    rules = (
        policy("write", "open/#", "write"),
        policy("read", "open/#", "read", when="p.user == s.user || o.payload == 1"),
    )
    with broker() as port:
        async with guarded(tmp_path, port, *rules) as node:
            mary, bob = await come(node, "mary"), await come(node, "bob")
            await mary.subscribe("open/#", qos=2)
            for qos in (0, 1, 2):
                await bob.publish("open/a", b"0", qos=qos)
                await bob.publish("open/a", b"1", qos=qos)
                assert (await mary.message()).payload == b"1"
            await mary.publish("open/a", b"0")
            assert (await mary.message()).payload == b"0"


@on_uvloop
async def test_what_came_around_the_guard_is_not_delivered(tmp_path: Path) -> None:
    with broker() as port:
        async with guarded(tmp_path, port) as node:
            mary, outside = await come(node, "mary"), await around(node, port)
            await mary.subscribe("open/#", qos=2)
            caught = await around(node, port, "eavesdropper")
            await caught.subscribe("open/#", qos=1)
            bob = await come(node, "bob")
            await bob.publish("open/a", b"true", qos=1)
            assert (await mary.message()).payload == b"true"
            lying = (await caught.message()).payload
            for payload in (b"false", lying[:-4] + b"fals", lying[:40], b"TG", b""):
                for qos in (0, 1, 2):
                    await outside.publish("open/a", payload, qos=qos)
            await outside.publish("open/b", lying, qos=1)  # under another topic
            await bob.publish("open/a", b"last", qos=1)
            assert (await mary.message()).payload == b"last"


@on_uvloop
async def test_unenveloped_messages_may_pass_as_those_of_nobody(tmp_path: Path) -> None:
    with broker() as port:
        scope = {"authenticate": "here", "unenveloped": "plain"}
        rules = (policy("all", "open/#", when="!has(p.user)"),)
        async with guarded(tmp_path, port, *rules, scope=scope) as node:
            mary, outside = await come(node, "mary"), await around(node, port)
            await mary.subscribe("open/#", qos=2)
            await outside.publish("open/a", b"from outside", qos=1)
            assert (await mary.message()).payload == b"from outside"
            await outside.publish("open/a", b"TG forged", qos=1)
            await outside.publish("open/a", b"last", qos=1)
            assert (await mary.message()).payload == b"last"


class Old(asyncio.Protocol):
    """A broker that speaks MQTT 3.1.1 alone: a Mosquitto behind somebody who refuses everything else."""

    backend = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport
        self.waiting = b""
        self.inner: Any = None

    def data_received(self, data: bytes) -> None:
        if self.inner is not None:
            self.inner.write(data)
            return
        first = not self.waiting
        self.waiting += data
        if self.waiting[8] != wire.V311:
            self.transport.write(b"\x20\x02\x00\x01")
            self.transport.close()
        elif first:
            self.opening = asyncio.ensure_future(self.open())

    async def open(self) -> None:
        outer = self

        class Inner(asyncio.Protocol):
            def data_received(self, data: bytes) -> None:
                outer.transport.write(data)

            def connection_lost(self, exc: Exception | None) -> None:
                outer.transport.close()

        self.inner, _ = await asyncio.get_running_loop().create_connection(Inner, "127.0.0.1", self.backend)
        self.inner.write(self.waiting)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.inner is not None:
            self.inner.close()


@on_uvloop
async def test_mqtt_5_in_front_of_an_older_broker(tmp_path: Path) -> None:
    with broker() as port:
        Old.backend = port
        server = await asyncio.get_running_loop().create_server(Old, "127.0.0.1", old := free_port())
        async with guarded(tmp_path, old) as node:
            bob = await come(node, "bob")
            for stays, clean, present in ((True, False, False), (True, False, True), (True, True, False)):
                mary = await come(node, "mary", stays=stays, clean_start=clean)
                assert mary.connack.session_present == present
                await mary.subscribe("open/#", qos=2, no_local=True, properties=numbered(7))
                for qos in (0, 1, 2):
                    await mary.publish("open/own", b"own", qos=qos)
                    await bob.publish("open/a", b"%d" % qos, qos=qos)
                    message = await mary.message()
                    assert (message.payload, message.qos) == (b"%d" % qos, qos)
                    assert message.properties.subscription_identifiers == (7,)
                await mary.disconnect()
                await mary.closed()
        server.close()


def numbered(identifier: int) -> wire.Properties:
    return wire.Properties(subscription_identifiers=(identifier,))
