"""Wills (Mosquitto: 07-will-*, 02-subpub-qos1-message-expiry-will)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from conformance.mosquitto.steps import BOTH, later, stays
from harness import Client, Live, live
from tidegate import wire
from tidegate.wire import Properties


def will(payload: bytes = b"gone", *, qos: int = 0, retain: bool = False, **given: Any) -> wire.Will:
    properties = Properties(**given) if given else wire.NONE
    return wire.Will(topic="will/test", payload=payload, qos=qos, retain=retain, properties=properties)


async def _watcher(node: Live, version: int = wire.V5, qos: int = 0) -> Client:
    watcher = await node.connect("watcher", version=version)
    await watcher.subscribe("will/test", qos=qos)
    return watcher


@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize("payload", [b"gone", b""], ids=["payload", "null"])
@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_lost_connection_publishes_the_will(version: int, payload: bytes, qos: int) -> None:
    async with live() as node:
        watcher = await _watcher(node, version, 2)
        (await node.connect("client", version=version, will=will(payload, qos=qos))).abort()
        message = await watcher.message()
        assert (message.payload, message.qos, message.retain) == (payload, qos, False)
        await watcher.silent()


@pytest.mark.parametrize("version", BOTH)
async def test_closing_without_disconnect_publishes_the_will(version: int) -> None:
    async with live() as node:
        watcher = await _watcher(node, version)
        (await node.connect("client", version=version, will=will())).writer.close()
        await watcher.message()


@pytest.mark.parametrize("version", BOTH)
async def test_protocol_error_publishes_the_will(version: int) -> None:
    async with live() as node:
        watcher = await _watcher(node, version)
        await (await node.connect("client", version=version, will=will())).raw(b"\x36\x02\x00\x00")
        await watcher.message()


@pytest.mark.parametrize("version", BOTH)
async def test_retained_will_is_kept(version: int) -> None:
    async with live() as node:
        watcher = await _watcher(node, version)
        (await node.connect("client", version=version, will=will(retain=True))).abort()
        assert not (await watcher.message()).retain
        await watcher.subscribe("will/test")
        assert (await watcher.message()).retain


@pytest.mark.parametrize(("reason", "published"), [(0x00, False), (0x04, True), (0x80, True), (0x97, True)])
async def test_disconnect_with_a_reason(reason: int, published: bool) -> None:
    """[MQTT-3.14.4-3] only 0x00 discards it."""
    async with live() as node:
        watcher = await _watcher(node)
        client = await node.connect("client", will=will())
        await client.disconnect(reason)
        await client.closed()
        if published:
            await watcher.message()
        await watcher.silent()


PROPERTIES: list[dict[str, Any]] = [
    {"response_topic": "response/topic"},
    {"response_topic": "response/topic", "payload_format_indicator": 0},
    {"response_topic": "response/topic", "correlation_data": b"data"},
    {
        "user_properties": (("key1", "value1"), ("key2", "value2")),
        "response_topic": "response/topic",
        "correlation_data": b"data",
        "payload_format_indicator": 1,
        "content_type": "application/test",
    },
]


@pytest.mark.parametrize("given", PROPERTIES)
@pytest.mark.parametrize("delay", [None, 0])
async def test_properties_of_a_will_are_forwarded(given: dict[str, Any], delay: int | None) -> None:
    """But for the delay, which is not the message's."""
    async with live() as node:
        watcher = await _watcher(node)
        (await node.connect("client", will=will(will_delay_interval=delay, **given))).abort()
        assert (await watcher.message()).properties == Properties(**given)


def delayed(seconds: int, expiry: int, **fields: Any) -> dict[str, Any]:
    asked = Properties(session_expiry_interval=expiry)
    return {"will": will(will_delay_interval=seconds), "properties": asked, **fields}


# delay, session expiry, when it comes: the earlier of the two (3.1.3.2.2)
DELAYS = [(3, 60, 3), (2, 4, 2), (4, 2, 2), (30, 0, 0), (0, 60, 0), (3, 4_294_967_295, 3)]


@pytest.mark.parametrize(("delay", "expiry", "due"), DELAYS)
async def test_delay(delay: int, expiry: int, due: int) -> None:
    async with live() as node:
        watcher = await _watcher(node)
        client = await node.connect("client", **delayed(delay, expiry))
        client.abort()
        await _noticed(node)
        if due:
            await later(node, due - 0.9)
            await watcher.silent()
            await later(node, 1)
        await watcher.message()
        await watcher.silent()


async def _noticed(node: Live) -> None:
    async with asyncio.timeout(10):
        while any(s.connection for (_, name), s in node.node.scopes["main"].sessions.items() if name == "client"):
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("clean", [True, False])
async def test_coming_back_within_the_delay(clean: bool) -> None:
    """It cancels the will [MQTT-3.1.3-9]; but a clean start ends the old session, and that publishes it."""
    async with live() as node:
        watcher = await _watcher(node)
        client = await node.connect("client", **delayed(3, 30, clean_start=clean))
        client.abort()
        await _noticed(node)
        await later(node, 1)
        client = await node.connect("client", **delayed(3, 30, clean_start=clean))
        assert client.connack.session_present is not clean
        if clean:
            await watcher.message()
        await later(node, 3)
        await watcher.silent()


async def test_coming_back_without_a_will_leaves_none() -> None:
    async with live() as node:
        watcher = await _watcher(node)
        client = await node.connect("client", **delayed(3, 30, clean_start=False))
        client.abort()
        await _noticed(node)
        client = await node.connect("client", **stays(wire.V5))
        client.abort()
        await _noticed(node)
        await later(node, 100)
        await watcher.silent()


@pytest.mark.parametrize("version", BOTH)
async def test_disconnect_and_coming_back_publishes_nothing(version: int) -> None:
    async with live() as node:
        watcher = await _watcher(node, version)
        for present in (False, True):
            client = await node.connect("client", version=version, will=will(), **stays(version))
            assert client.connack.session_present is present
            await client.publish("will/test", b"alive")
            assert (await watcher.message()).payload == b"alive"
            await client.disconnect()
            await client.closed()
        await watcher.silent()


@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("second", [True, False])
async def test_take_over_publishes_the_will(version: int, first: bool, second: bool) -> None:
    """3.1.4 and 3.1.1 [MQTT-3.1.2-8]: the connection is closed without DISCONNECT. Mosquitto spares kept sessions."""
    async with live() as node:
        watcher = await _watcher(node, version)
        kept = [{"clean_start": True} if clean else stays(version) for clean in (first, second)]
        await node.connect("client", version=version, will=will(b"LWT"), **kept[0])
        newer = await node.connect("client", version=version, **kept[1])
        assert newer.connack.session_present is not (first or second)
        assert (await watcher.message()).payload == b"LWT"
        await newer.publish("will/test", b"ready")
        assert (await watcher.message()).payload == b"ready"
        await watcher.silent()


async def test_will_on_a_reserved_topic_is_refused() -> None:
    """Of a server's own kind; Mosquitto does so with $CONTROL."""
    async with live() as node:
        denied = wire.Will(topic="$SYS/broker/uptime", payload=b"x", qos=0, retain=False)
        client = await node.connect("client", will=denied, expect=0x87)
        assert await client.closed() == b""


async def test_expiry_of_a_will_begins_when_it_is_published() -> None:
    async with live() as node:
        watcher = await node.connect("away", **stays(wire.V5))
        await watcher.subscribe("will/test", qos=1)
        await watcher.disconnect()
        helper = await node.connect("helper", will=will(b"old", qos=1, message_expiry_interval=1))
        other = await node.connect("other", will=will(b"new", qos=1, message_expiry_interval=10))
        await later(node, 30)
        helper.abort()
        other.abort()
        helper = await node.connect("helper")
        await helper.silent()
        await _gone(node, "other")
        await later(node, 3)
        watcher = await node.connect("away", **stays(wire.V5))
        message = await watcher.message()
        assert (message.payload, message.properties.message_expiry_interval) in ((b"new", 7), (b"new", 6))
        await watcher.silent()


async def _gone(node: Live, name: str) -> None:
    async with asyncio.timeout(10):
        while any(client == name for _, client in node.node.scopes["main"].sessions):
            await asyncio.sleep(0.005)


@pytest.mark.parametrize(
    ("limits", "fields", "reason"),
    [("max_qos: 1", {"qos": 2}, 0x9B), ("retain: false", {"retain": True}, 0x9A)],
)
async def test_will_that_the_server_does_not_support(limits: str, fields: dict[str, Any], reason: int) -> None:
    """[MQTT-3.2.2-12] [MQTT-3.2.2-13]"""
    async with live(f"limits: {{{limits}}}") as node:
        await node.connect("client", will=will(**fields), expect=reason)
