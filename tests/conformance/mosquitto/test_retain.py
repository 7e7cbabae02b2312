"""Retained messages (Mosquitto: 04-retain-*, 02-subpub-qos1-message-expiry-retain, 03-publish-qos1-retain-disabled)."""

from __future__ import annotations

import pytest

from conformance.mosquitto.steps import BOTH, later
from harness import Client, live
from tidegate import wire
from tidegate.wire import Properties


async def _kept(client: Client, filter: str, qos: int = 0) -> dict[str, wire.Publish]:
    """What a new subscription is sent, by topic."""
    await client.unsubscribe(filter)
    await client.subscribe(filter, qos=qos)
    await client.send(wire.Pingreq())
    found = {}
    while isinstance(packet := await client.receive(), wire.Publish):
        assert packet.retain
        assert packet.topic not in found
        found[packet.topic] = packet
        if packet.qos == 1:
            await client.send(wire.Puback(packet_id=packet.packet_id))
    return found


@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize(("published", "subscribed"), [(0, 0), (0, 1), (1, 0), (1, 1), (2, 1)])
async def test_retained_at_the_lower_qos(version: int, published: int, subscribed: int) -> None:
    """Mosquitto's `upgrade_outgoing_qos` is against [MQTT-3.8.4-8]."""
    async with live() as node:
        client = await node.connect("client", version=version)
        await client.publish("retain/test", b"kept", qos=published, retain=True)
        message = (await _kept(client, "retain/test", subscribed))["retain/test"]
        assert (message.payload, message.qos) == (b"kept", min(published, subscribed))


@pytest.mark.parametrize("version", BOTH)
async def test_retained_again_for_every_subscribe(version: int) -> None:
    async with live() as node:
        client = await node.connect("client", version=version)
        await client.publish("t", b"kept", retain=True)
        for _ in range(3):
            await client.subscribe("t")
            assert (await client.message()).retain
            await client.silent()


@pytest.mark.parametrize("version", BOTH)
async def test_fresh_message_is_not_marked_and_empty_one_clears(version: int) -> None:
    async with live() as node:
        client = await node.connect("client", version=version)
        await client.subscribe("t")
        await client.publish("t", b"kept", retain=True)
        assert not (await client.message()).retain
        assert list(await _kept(client, "t")) == ["t"]
        await client.publish("t", b"", retain=True)
        fresh = await client.message()
        assert (fresh.payload, fresh.retain) == (b"", False)  # a subscriber is told
        assert not await _kept(client, "t")  # [MQTT-3.3.1-6] [MQTT-3.3.1-7]


@pytest.mark.parametrize("version", BOTH)
async def test_message_without_retain_leaves_the_retained_one(version: int) -> None:
    async with live() as node:
        client = await node.connect("client", version=version)
        await client.publish("t", b"kept", retain=True)
        await client.publish("t", b"", retain=False)
        await client.publish("t", b"passing", retain=False)
        assert (await _kept(client, "t"))["t"].payload == b"kept"  # [MQTT-3.3.1-8]


async def test_clearing_one_level_leaves_those_above_and_below() -> None:
    async with live() as node:
        client = await node.connect("client", version=wire.V311)
        topics = ["1/2/3/4/5/6/7", "1/2/3/4", "1"]
        for topic in topics:
            await client.publish(topic, b"retained message", qos=1, retain=True)
        assert set(await _kept(client, "#")) == set(topics)
        for topic in ("1/2/3/4", "1/2/3/4/5/6/7", "1"):
            await client.unsubscribe("#")
            await client.publish(topic, b"", qos=1, retain=True)
            topics.remove(topic)
            assert set(await _kept(client, "#")) == set(topics)


async def test_retained_message_expires() -> None:
    async with live() as node:
        client = await node.connect("client")
        await client.publish("expired", b"1", qos=1, retain=True, properties=Properties(message_expiry_interval=20))
        await client.publish("kept", b"2", qos=1, retain=True)
        await later(node, 5)
        found = await _kept(client, "#", 1)
        assert found["expired"].properties.message_expiry_interval in (14, 15)
        assert found["kept"].properties.message_expiry_interval is None
        await later(node, 16)
        assert list(await _kept(client, "#", 1)) == ["kept"]


async def test_retained_keeps_its_properties() -> None:
    async with live() as node:
        client = await node.connect("client")
        given = Properties(content_type="text", user_properties=(("a", "b"), ("a", "c")), response_topic="r")
        await client.publish("t", retain=True, properties=given)
        assert (await _kept(client, "t"))["t"].properties == given


async def test_shared_subscriptions_are_sent_nothing_retained() -> None:
    async with live() as node:
        client = await node.connect("client")
        await client.publish("t", retain=True)
        await client.subscribe("$share/group/t")
        await client.silent()


async def test_retained_with_a_subscription_identifier() -> None:
    async with live() as node:
        client = await node.connect("client")
        await client.publish("t", retain=True)
        await client.subscribe("#", properties=Properties(subscription_identifiers=(268_435_455,)))
        assert (await client.message()).properties.subscription_identifiers == (268_435_455,)


@pytest.mark.parametrize("version", BOTH)
async def test_switched_off(version: int) -> None:
    """A retained PUBLISH is refused with 0x9A; 3.1.1 cannot be told, and is closed."""
    async with live("limits: {retain: false}") as node:
        client = await node.connect("client", version=version)
        await client.send(wire.Publish(topic="t", payload=b"x", retain=True))
        rest = await client.closed()
        assert rest[:1] == (b"\xe0" if version == wire.V5 else b"")
        assert version == wire.V311 or rest[2] == 0x9A
