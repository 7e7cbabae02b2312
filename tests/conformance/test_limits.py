"""Maximum packet size in both directions: 3.1.2.11.4 and 3.2.2.3.6."""

from __future__ import annotations

import asyncio

import pytest

from conformance.acts import BOTH, dismissed, lasting, leave, properties, take
from harness import PATIENCE, Client, Live, live
from tidegate import wire
from tidegate.wire import Reason

SMALL = 'listeners: [{url: "mqtt://127.0.0.1:PORT", anonymous: true, max_packet: 200}]\n'


async def frame(client: Client) -> bytes:
    """The next packet as bytes."""
    async with asyncio.timeout(PATIENCE):
        head = await client.reader.readexactly(2)
        length = head[1]
        if length > 127:
            more = await client.reader.readexactly(1)
            head += more
            length = (length & 127) | more[0] << 7
        return head + await client.reader.readexactly(length)


# -- of the server


@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_the_largest_packet(version: int, qos: int) -> None:
    """[MQTT-3.2.2-15], 3.2.2.3.6: exactly the maximum, header included, is taken; one byte more ends it with 0x95."""
    async with live(SMALL) as broker:
        client = await broker.connect("c", version=version)
        if version == wire.V5:
            assert client.connack.properties.maximum_packet_size == 200
        empty = len(wire.encode(wire.Publish(topic="a", payload=b"x" * 130, qos=qos, packet_id=min(qos, 1)), version))
        fits = b"x" * (130 + 200 - empty)
        await client.publish("a", fits, qos=qos)
        await client.silent()
        await client.send(wire.Publish(topic="a", payload=fits + b"x", qos=qos, packet_id=min(qos, 1)))
        await dismissed(client, Reason.PACKET_TOO_LARGE)


@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize("first", [0x30, 0x32, 0x82, 0xA2, 0xC0])
async def test_refused_from_the_header(version: int, first: int) -> None:
    """3.2.2.3.6: the declared length is enough; nobody waits for the rest."""
    async with live(SMALL) as broker:
        client = await broker.connect("c", version=version)
        await client.raw(bytes((first, 0xFF, 0xFF, 0xFF, 0x7F)))
        await dismissed(client, Reason.PACKET_TOO_LARGE)


async def test_connect_that_is_too_large() -> None:
    """3.1.4: closed, with CONNACK 0x95 at most."""
    async with live(SMALL) as broker:
        client = await broker.socket()
        await client.raw(b"\x10\xff\x01\x00\x04MQTT\x05\x02\x00\x00\x00")
        answer = await client.closed()
        assert answer == b"" or answer[:4:3] == b"\x20\x95"


# -- of the client


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_too_large_for_the_client(broker: Live, qos: int) -> None:
    """[MQTT-3.1.2-24] [MQTT-3.1.2-25]: not sent, and as if it had been: what follows comes, the publisher is served."""
    client = await broker.connect("c", properties=properties(maximum_packet_size=100, receive_maximum=1))
    other = await broker.connect("o")
    for one in (client, other):
        await one.subscribe("a", qos=2)
    publisher = await broker.connect("p")
    for size in (10, 200, 20, 300, 30):
        answer = await publisher.publish("a", b"x" * size, qos=qos)
        if answer is not None:
            assert answer.reason < 0x80
    assert [len(message.payload) for message in await take(client, 3)] == [10, 20, 30]
    assert [len(message.payload) for message in await take(other, 5)] == [10, 200, 20, 300, 30]
    await client.silent()


@pytest.mark.parametrize("qos", [0, 1])
async def test_exactly_the_size_the_client_takes(broker: Live, qos: int) -> None:
    """[MQTT-3.1.2-24]: the whole packet counts, header and properties included."""
    client = await broker.connect("c", properties=properties(maximum_packet_size=100))
    await client.subscribe("a", qos=qos)
    publisher = await broker.connect("p")
    empty = len(wire.encode(wire.Publish(topic="a", payload=b"", qos=qos, packet_id=qos), 5))
    await publisher.publish("a", b"x" * (101 - empty), qos=qos)
    await publisher.publish("a", b"x" * (100 - empty), qos=qos)
    assert len(await frame(client)) == 100


async def test_too_large_while_away(broker: Live) -> None:
    """[MQTT-3.1.2-25]: what counts is the maximum of the connection it is sent on."""
    client = await broker.connect("c", **lasting())
    await client.subscribe("a", qos=1)
    await leave(client)
    publisher = await broker.connect("p")
    await publisher.publish("a", b"x" * 300, qos=1)
    await publisher.publish("a", b"small", qos=1)
    client = await broker.connect("c", **lasting(maximum_packet_size=100))
    assert (await client.message()).payload == b"small"
    await client.silent()


async def test_retained_that_is_too_large(broker: Live) -> None:
    """[MQTT-3.1.2-25]: left out."""
    publisher = await broker.connect("p")
    await publisher.publish("a/1", b"x" * 300, qos=1, retain=True)
    await publisher.publish("a/2", b"small", qos=1, retain=True)
    client = await broker.connect("c", properties=properties(maximum_packet_size=100))
    await client.subscribe("a/+", qos=1)
    assert (await client.message()).payload == b"small"
    await client.silent()


async def test_properties_count(broker: Live) -> None:
    """[MQTT-3.1.2-24]: a subscription identifier or user property counts too."""
    client = await broker.connect("c", properties=properties(maximum_packet_size=100))
    await client.subscribe("a", properties=properties(subscription_identifiers=(1,)))
    publisher = await broker.connect("p")
    await publisher.publish("a", b"", properties=properties(user_properties=(("k", "v" * 90),)))
    await publisher.publish("a", b"", properties=properties(user_properties=(("k", "v"),)))
    assert (await client.message()).properties.user_properties == (("k", "v"),)


async def test_disconnect_leaves_out_the_reason_string(broker: Live) -> None:
    """[MQTT-3.14.2-3] [MQTT-3.1.2-24]: no reason string if the packet became too large by it."""
    client = await broker.connect("c", properties=properties(maximum_packet_size=30))
    body = b"\x00\x01\x00" + (200).to_bytes(2, "big") + b"#" * 200 + b"\x00"
    await client.raw(b"\x82" + bytes((len(body) & 127 | 128, len(body) >> 7)) + body)
    answer = await client.closed()
    assert answer[:1] == b"\xe0"
    assert answer[2] == Reason.TOPIC_FILTER_INVALID
    assert len(answer) <= 30


async def test_connack_leaves_out_the_reason_string(broker: Live) -> None:
    """[MQTT-3.2.2-19] [MQTT-3.1.2-24]."""
    client = await broker.socket()
    given = properties(maximum_packet_size=20, authentication_method="unknown")
    connect = wire.Connect(version=5, client_id="c", clean_start=True, keep_alive=0, properties=given)
    await client.send(connect)
    answer = await client.closed()
    assert answer[:1] == b"\x20"
    assert answer[3] == Reason.BAD_AUTHENTICATION_METHOD
    assert len(answer) <= 20
