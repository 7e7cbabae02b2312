"""Topic aliases in both directions: 3.3.2.3.4."""

from __future__ import annotations

import pytest

from conformance.acts import dismissed, lasting, leave, lose, properties, take
from harness import Client, Live, live
from tidegate import wire
from tidegate.wire import Reason


async def send(client: Client, topic: str, alias: int, payload: bytes = b"x", qos: int = 0, pid: int = 0) -> None:
    given = properties(topic_alias=alias)
    await client.send(wire.Publish(topic=topic, payload=payload, qos=qos, packet_id=pid, properties=given))


# -- of clients


async def test_alias_stands_for_the_topic(broker: Live) -> None:
    """[MQTT-3.3.2-12]: set with a topic, used without, set anew; each number for itself."""
    watcher = await broker.connect("w")
    await watcher.subscribe("#", qos=2)
    client = await broker.connect("c")
    highest = client.connack.properties.topic_alias_maximum
    assert highest is not None
    for topic, alias, expected in (
        ("a", 1, "a"),
        ("", 1, "a"),
        ("b", highest, "b"),
        ("", 1, "a"),
        ("", highest, "b"),
        ("c", 1, "c"),
        ("", 1, "c"),
        ("", highest, "b"),
    ):
        await send(client, topic, alias)
        message = await watcher.message()
        assert message.topic == expected
        assert message.properties.topic_alias is None


@pytest.mark.parametrize("qos", [1, 2])
async def test_alias_at_each_qos(broker: Live, qos: int) -> None:
    """[MQTT-3.3.2-12]: the alias is set and used by publishes of any QoS."""
    watcher = await broker.connect("w")
    await watcher.subscribe("#", qos=2)
    client = await broker.connect("c")
    await client.publish("a", b"1", qos=qos, properties=properties(topic_alias=3))
    await client.publish("", b"2", qos=qos, properties=properties(topic_alias=3))
    assert [(message.topic, message.payload) for message in await take(watcher, 2)] == [("a", b"1"), ("a", b"2")]


async def test_alias_of_a_retained_message(broker: Live) -> None:
    """3.3.2.3.4: aliases are how a topic is sent, not what it is."""
    client = await broker.connect("c")
    await send(client, "a", 1)
    await client.publish("", b"kept", qos=1, retain=True, properties=properties(topic_alias=1))
    await client.subscribe("a")
    message = await client.message()
    assert (message.topic, message.payload) == ("a", b"kept")


async def test_aliases_belong_to_one_connection(broker: Live) -> None:
    """[MQTT-3.3.2-7]: neither another client's nor an earlier connection's alias is known."""
    first = await broker.connect("c", **lasting())
    await send(first, "a", 1)
    other = await broker.connect("o")
    await send(other, "", 1)
    await dismissed(other, Reason.PROTOCOL_ERROR)
    await leave(first)
    second = await broker.connect("c", **lasting())
    assert second.connack.session_present
    await send(second, "", 1)
    await dismissed(second, Reason.PROTOCOL_ERROR)


@pytest.mark.parametrize("topic", ["a", ""])
async def test_alias_0(broker: Live, topic: str) -> None:
    """[MQTT-3.3.2-8]: not permitted; 0x94."""
    client = await broker.connect("c")
    name = topic.encode()
    body = len(name).to_bytes(2, "big") + name + b"\x03\x23\x00\x00" + b"x"
    await client.raw(bytes((0x30, len(body))) + body)
    await dismissed(client, Reason.TOPIC_ALIAS_INVALID)


async def test_alias_above_the_maximum() -> None:
    """[MQTT-3.3.2-9]: 0x94."""
    async with live("limits: {topic_aliases: 3}\n") as broker:
        client = await broker.connect("c")
        assert client.connack.properties.topic_alias_maximum == 3
        await send(client, "a", 3)
        await send(client, "a", 4)
        await dismissed(client, Reason.TOPIC_ALIAS_INVALID)


async def test_no_aliases_allowed() -> None:
    """[MQTT-3.3.2-9], 3.2.2.3.8: a maximum of 0, or none told, allows none."""
    async with live("limits: {topic_aliases: 0}\n") as broker:
        client = await broker.connect("c")
        assert not client.connack.properties.topic_alias_maximum
        await send(client, "a", 1)
        await dismissed(client, Reason.TOPIC_ALIAS_INVALID)


async def test_alias_with_an_invalid_topic_sets_nothing(broker: Live) -> None:
    """[MQTT-3.3.2-2]: the connection ends with 0x90."""
    client = await broker.connect("c")
    await client.raw(bytes.fromhex("30 08 0002 2b2b 03 23 0001"))
    await dismissed(client, Reason.TOPIC_NAME_INVALID)


# -- of the server


async def test_server_uses_no_alias_unless_allowed(broker: Live) -> None:
    """[MQTT-3.1.2-27]: absent or 0 means none."""
    for given in (properties(), properties(topic_alias_maximum=0)):
        client = await broker.connect("c", properties=given)
        await client.subscribe("a")
        for _ in range(3):
            await client.send(wire.Publish(topic="a", payload=b"x"))
            message = await client.message()
            assert (message.topic, message.properties.topic_alias) == ("a", None)


@pytest.mark.parametrize("maximum", [1, 2, 65535])
async def test_server_aliases_stay_within_the_maximum(broker: Live, maximum: int) -> None:
    """[MQTT-3.1.2-26] [MQTT-3.3.2-10]: whatever it does with them, each message can be told its topic."""
    client = await broker.connect("c", properties=properties(topic_alias_maximum=maximum))
    await client.subscribe("#", qos=2)
    publisher = await broker.connect("p")
    known: dict[int, str] = {}
    for number in range(12):
        topic = f"t/{number % 4}"
        await publisher.publish(topic, qos=number % 3)
        message = await client.message()
        alias = message.properties.topic_alias
        if alias is not None:
            assert 0 < alias <= maximum
            if message.topic:
                known[alias] = message.topic
            assert known[alias] == topic
        else:
            assert message.topic == topic


async def test_server_aliases_begin_anew(broker: Live) -> None:
    """[MQTT-3.3.2-7]: after reconnecting the topic is told again, also for what is sent again."""
    client = await broker.connect("c", **lasting(topic_alias_maximum=5))
    await client.subscribe("a", qos=1)
    publisher = await broker.connect("p")
    await publisher.publish("a", b"1", qos=1)
    await publisher.publish("a", b"2", qos=1)
    for _ in range(2):
        await client.expect(wire.Publish)
    await lose(client)
    client = await broker.connect("c", **lasting(topic_alias_maximum=5))
    first = (await take(client, 2))[0]
    assert (first.topic, first.dup) == ("a", True)
    await leave(client)
    await publisher.publish("a", b"3", qos=1)
    client = await broker.connect("c", **lasting())
    message = await client.message()
    assert (message.topic, message.properties.topic_alias) == ("a", None)


@pytest.mark.parametrize("qos", [0, 1])
async def test_alias_of_a_message_that_was_too_large(broker: Live, qos: int) -> None:
    """[MQTT-3.1.2-25] with 3.3.2.3.4: an alias first sent in a discarded packet is not known to the client."""
    client = await broker.connect("c", properties=properties(topic_alias_maximum=5, maximum_packet_size=200))
    await client.subscribe("a", qos=1)
    publisher = await broker.connect("p")
    await publisher.publish("a", b"x" * 300, qos=qos)
    await publisher.publish("a", b"small", qos=qos)
    message = await client.message()
    assert (message.topic, message.payload) == ("a", b"small")


async def test_alias_does_not_make_a_message_too_large(broker: Live) -> None:
    """[MQTT-3.1.2-24] [MQTT-3.1.2-25]: what fits the client's maximum without an alias is sent without one."""
    client = await broker.connect("c", properties=properties(topic_alias_maximum=5, maximum_packet_size=100))
    await client.subscribe("a", qos=1)
    publisher = await broker.connect("p")
    for qos in (0, 1):
        empty = len(wire.encode(wire.Publish(topic="a", payload=b"", qos=qos, packet_id=qos), 5))
        await publisher.publish("a", b"x" * (100 - empty), qos=qos)
        assert len((await client.message()).payload) == 100 - empty
