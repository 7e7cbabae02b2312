"""What outlives a connection (Mosquitto: 05-*)."""

from __future__ import annotations

import asyncio

import pytest

from conformance.mosquitto.steps import BOTH, ended, later, stays
from harness import Client, Live, live
from tidegate import wire
from tidegate.wire import Properties


@pytest.mark.parametrize("version", BOTH)
async def test_queued_while_away(version: int) -> None:
    async with live() as node:
        client = await node.connect("client", version=version, **stays(version))
        assert not client.connack.session_present
        await client.subscribe("qos1/clean_session/test", qos=1)
        await client.disconnect()
        helper = await node.connect("helper")
        for number in range(3):
            await helper.publish("qos1/clean_session/test", b"%d" % number, qos=1)
        client = await node.connect("client", version=version, **stays(version))
        assert client.connack.session_present
        for number in range(3):
            message = await client.message()
            assert (message.payload, message.dup) == (b"%d" % number, False)
        await client.silent()


@pytest.mark.parametrize("version", BOTH)
async def test_clean_start_forgets_everything(version: int) -> None:
    async with live() as node:
        client = await node.connect("client", version=version, **stays(version))
        await client.subscribe("t", qos=1)
        await client.disconnect()
        helper = await node.connect("helper")
        await helper.publish("t", qos=1)
        client = await node.connect("client", version=version, clean_start=True)
        assert not client.connack.session_present
        await helper.publish("t", qos=1)
        await client.silent()
        await client.disconnect()
        client = await node.connect("client", version=version, **stays(version))
        assert not client.connack.session_present


async def _expires_in(node: Live, seconds: int | None) -> Client:
    asked = Properties(session_expiry_interval=seconds)
    return await node.connect("client", clean_start=False, properties=asked)


async def test_session_expiry() -> None:
    """Set by CONNECT, changed by DISCONNECT, counted from the end of the connection."""
    async with live() as node:
        far = Properties(session_expiry_interval=4_294_967_294)
        (await node.connect("far", clean_start=False, properties=far)).abort()
        client = await _expires_in(node, 1)
        client.abort()
        client = await _expires_in(node, 1)
        assert client.connack.session_present
        client.abort()
        await client.closed()
        await _away(node)
        await later(node, 2)
        client = await _expires_in(node, 1)
        assert not client.connack.session_present
        await later(node, 10)  # a session does not expire while it is connected
        await client.disconnect(properties=Properties(session_expiry_interval=3))
        await _away(node)
        await later(node, 2)
        client = await _expires_in(node, 1)
        assert client.connack.session_present
        await client.disconnect(properties=Properties(session_expiry_interval=3))
        await _away(node)
        await later(node, 4)
        client = await _expires_in(node, 1)
        assert not client.connack.session_present
        await client.disconnect(properties=Properties(session_expiry_interval=0))
        assert not (await _expires_in(node, 1)).connack.session_present


async def _away(node: Live) -> None:
    """The node has noticed that the client is gone."""
    async with asyncio.timeout(10):
        while any(session.connection for session in node.node.scopes["main"].sessions.values()):
            await asyncio.sleep(0.005)


async def test_disconnect_may_not_set_an_expiry_that_connect_had_not() -> None:
    """[MQTT-3.14.2-2]"""
    async with live() as node:
        client = await node.connect("client")
        await client.send(wire.Disconnect(properties=Properties(session_expiry_interval=1)))
        assert await ended(client) == 0x82


async def test_take_over_of_a_session_without_expiry_ends_it() -> None:
    async with live() as node:
        first = await node.connect("client", clean_start=False)
        await first.subscribe("t")
        second = await node.connect("client", clean_start=False)
        assert not second.connack.session_present
        await second.publish("t")
        await second.silent()


@pytest.mark.parametrize("version", BOTH)
async def test_take_over_of_a_session_keeps_it(version: int) -> None:
    async with live() as node:
        first = await node.connect("client", version=version, **stays(version))
        await first.subscribe("t", qos=1)
        helper = await node.connect("helper")
        await helper.publish("t", b"1", qos=1)
        await first.expect(wire.Publish)
        second = await node.connect("client", version=version, **stays(version))
        assert second.connack.session_present
        again = await second.message()
        assert (again.payload, again.dup) == (b"1", True)
        await helper.publish("t", b"2", qos=1)
        assert (await second.message()).payload == b"2"


async def test_longer_than_the_server_keeps_sessions_is_told() -> None:
    async with live("limits: {session_expiry: 1h}") as node:
        asked = Properties(session_expiry_interval=4_294_967_295)
        client = await node.connect("client", clean_start=False, properties=asked)
        assert client.connack.properties.session_expiry_interval == 3600


@pytest.mark.parametrize(("first", "second"), [(wire.V311, wire.V5), (wire.V5, wire.V311)])
async def test_session_resumed_in_the_other_version(first: int, second: int) -> None:
    async with live() as node:
        client = await node.connect("client", version=first, **stays(first))
        await client.subscribe("t", qos=2)
        await client.disconnect()
        helper = await node.connect("helper")
        await helper.publish("t", qos=2, properties=Properties(content_type="text"))
        client = await node.connect("client", version=second, **stays(second))
        assert client.connack.session_present
        assert (await client.message()).properties.content_type == ("text" if second == wire.V5 else None)
        await helper.publish("t", b"live")
        assert (await client.message()).payload == b"live"
