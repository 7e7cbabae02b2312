"""PUBLISH, topic names and filters: chapters 3.3 and 4.7."""

from __future__ import annotations

import pytest

from conformance.acts import BOTH, dismissed, payloads, properties
from harness import Live, live
from tidegate import wire
from tidegate.wire import Reason


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize("granted", [0, 1, 2])
async def test_delivered_with_the_lower_qos(broker: Live, version: int, qos: int, granted: int) -> None:
    """[MQTT-3.8.4-8], 3.1.1 [MQTT-3.8.4-6]: the lower of what was published and what was granted."""
    subscriber = await broker.connect("s", version=version)
    await subscriber.subscribe("a", qos=granted)
    publisher = await broker.connect("p", version=version)
    await publisher.publish("a", b"x", qos=qos)
    message = await subscriber.message()
    assert (message.qos, message.dup, message.retain) == (min(qos, granted), False, False)
    assert (message.packet_id != 0) == (message.qos > 0)
    await subscriber.silent()


@pytest.mark.parametrize("version", BOTH)
async def test_one_client_both_ways(broker: Live, version: int) -> None:
    """4.3: what a client publishes comes back to it if it subscribed, at each QoS."""
    client = await broker.connect("c", version=version)
    await client.subscribe("a", qos=2)
    await client.send(wire.Publish(topic="a", payload=b"0"))
    assert (await client.message()).payload == b"0"
    await client.send(wire.Publish(topic="a", payload=b"1", qos=1, packet_id=1))
    both = [await client.receive(), await client.receive()]
    assert {type(packet) for packet in both} == {wire.Publish, wire.Puback}


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16_383, 16_384, 300_000])
@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_payloads_of_any_size(broker: Live, size: int, qos: int) -> None:
    """3.3.3: any bytes, also none; the remaining length has one to four bytes."""
    subscribers = [await broker.connect(f"s{version}", version=version) for version in BOTH]
    for subscriber in subscribers:
        await subscriber.subscribe("a", qos=2)
    payload = bytes(number & 0xFF for number in range(size))
    for version in BOTH:
        publisher = await broker.connect(f"p{version}", version=version)
        await publisher.publish("a", payload, qos=qos)
        for subscriber in subscribers:
            assert (await subscriber.message()).payload == payload


@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize("qos", [1, 2])
async def test_dup_is_not_passed_on(broker: Live, version: int, qos: int) -> None:
    """[MQTT-3.3.1-3]: DUP of what is sent has nothing to do with DUP of what came in."""
    subscriber = await broker.connect("s", version=version)
    await subscriber.subscribe("a", qos=2)
    publisher = await broker.connect("p", version=version)
    await publisher.publish("a", b"x", qos=qos, dup=True)
    assert not (await subscriber.message()).dup


@pytest.mark.parametrize("qos", [1, 2])
async def test_acknowledged_when_nobody_listens(broker: Live, qos: int) -> None:
    """3.4.2.1, 3.5.2.1: success, or 0x10 for want of subscribers, which is success too."""
    publisher = await broker.connect("p")
    await publisher.send(wire.Publish(topic="nobody", payload=b"", qos=qos, packet_id=7))
    packet = await publisher.expect(wire.Puback if qos == 1 else wire.Pubrec)
    assert packet.packet_id == 7
    assert packet.reason in (0, Reason.NO_MATCHING_SUBSCRIBERS)


async def test_no_matching_subscribers_is_only_said_if_so(broker: Live) -> None:
    """3.4.2.1: 0x10 is sent only by a server that knows that there are none."""
    subscriber = await broker.connect("s")
    await subscriber.subscribe("a")
    publisher = await broker.connect("p")
    answer = await publisher.publish("a", qos=1)
    assert answer is not None
    assert answer.reason == 0


async def test_acknowledgements_are_short_in_311(broker: Live) -> None:
    """3.1.1, 3.4 to 3.7: two bytes, whatever there is to say."""
    client = await broker.connect("c", version=wire.V311)
    await client.raw(wire.encode(wire.Publish(topic="a", payload=b"", qos=1, packet_id=258), 4))
    assert await client.reader.readexactly(4) == b"\x40\x02\x01\x02"
    await client.raw(wire.encode(wire.Publish(topic="a", payload=b"", qos=2, packet_id=259), 4))
    assert await client.reader.readexactly(4) == b"\x50\x02\x01\x03"
    await client.raw(b"\x62\x02\x01\x03")
    assert await client.reader.readexactly(4) == b"\x70\x02\x01\x03"


# -- topics

MATCHES = [
    ("sport/tennis/player1/#", "sport/tennis/player1", True),
    ("sport/tennis/player1/#", "sport/tennis/player1/ranking", True),
    ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon", True),
    ("sport/#", "sport", True),
    ("#", "any/thing", True),
    ("sport/tennis/+", "sport/tennis/player1", True),
    ("sport/tennis/+", "sport/tennis/player1/ranking", False),
    ("sport/+", "sport", False),
    ("sport/+", "sport/", True),
    ("+/tennis/#", "sport/tennis", True),
    ("sport/+/player1", "sport/tennis/player1", True),
    ("+/+", "/finance", True),
    ("/+", "/finance", True),
    ("+", "/finance", False),
    ("ACCOUNTS", "Accounts", False),
    ("/finance", "finance", False),
    ("a//b", "a/b", False),
    ("a//b", "a//b", True),
    ("a/+/b", "a//b", True),
    ("/", "/", True),
    ("+/", "/", True),
    (" a ", " a ", True),
    ("a", " a", False),
    ("\ufeffa", "\ufeffa", True),
    ("\ufeffa", "a", False),
    ("é", "e\u0301", False),
    ("A\U0002a6d4", "A\U0002a6d4", True),
]


@pytest.mark.parametrize("version", BOTH)
async def test_filters_and_topics(broker: Live, version: int) -> None:
    """[MQTT-4.7.1-1] to [MQTT-4.7.1-3], [MQTT-4.7.3-4], [MQTT-1.5.4-3]: the examples of the specification and more."""
    subscriber = await broker.connect("s", version=version)
    publisher = await broker.connect("p", version=version)
    for filter, topic, expected in MATCHES:
        await subscriber.subscribe(filter)
        await publisher.publish(topic, qos=1)
        if expected:
            assert (await subscriber.expect(wire.Publish)).topic == topic
        await subscriber.silent()
        await subscriber.unsubscribe(filter)


@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize("filter", ["#", "+/x", "+", "+/#"])
async def test_dollar_topics_hide_from_leading_wildcards(broker: Live, version: int, filter: str) -> None:
    """[MQTT-4.7.2-1]."""
    subscriber = await broker.connect("s", version=version)
    await subscriber.subscribe(filter)
    publisher = await broker.connect("p", version=version)
    await publisher.publish("$mine/x", qos=1)
    await publisher.publish("$mine", qos=1)
    await subscriber.silent()


@pytest.mark.parametrize("filter", ["$mine/#", "$mine/+", "$mine/x"])
async def test_dollar_topics_can_be_named(broker: Live, filter: str) -> None:
    """4.7.2: a filter that begins with the same level matches."""
    subscriber = await broker.connect("s")
    await subscriber.subscribe(filter)
    publisher = await broker.connect("p")
    await publisher.publish("$mine/x", qos=1)
    assert (await subscriber.message()).topic == "$mine/x"


async def test_own_topics_of_the_server_cannot_be_written(broker: Live) -> None:
    """4.7.2: servers should keep clients from using $ topics of theirs; MQTT 5 is told so."""
    publisher = await broker.connect("p")
    answer = await publisher.publish("$SYS/x", qos=1)
    assert answer is not None
    assert answer.reason == Reason.NOT_AUTHORIZED
    await publisher.send(wire.Publish(topic="$SYS/x", payload=b"", qos=2, packet_id=9))
    assert (await publisher.expect(wire.Pubrec)).reason == Reason.NOT_AUTHORIZED
    await publisher.publish("$SYS/x")
    await publisher.silent()


@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize("topic", ["a/+", "a/#", "+", "#", "a+b"])
@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_topic_names_have_no_wildcards(broker: Live, version: int, topic: str, qos: int) -> None:
    """[MQTT-3.3.2-2] [MQTT-4.7.0-1]: such a PUBLISH ends the connection, with 0x90."""
    client = await broker.connect("c", version=version)
    name = topic.encode()
    body = (
        len(name).to_bytes(2, "big") + name + (b"\x00\x01" if qos else b"") + (b"\x00" if version == 5 else b"") + b"x"
    )
    await client.raw(bytes((0x30 | qos << 1, len(body))) + body)
    await dismissed(client, Reason.TOPIC_NAME_INVALID)


@pytest.mark.parametrize("version", BOTH)
async def test_longest_topic(broker: Live, version: int) -> None:
    """4.7.3 [MQTT-4.7.3-3]: topics have up to 65,535 bytes."""
    topic = "é" * 32767 + "/"
    client = await broker.connect("c", version=version)
    await client.subscribe(topic)
    await client.publish(topic)
    assert (await client.message()).topic == topic


# -- order


@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_order(broker: Live, version: int, qos: int) -> None:
    """[MQTT-4.6.0-5] [MQTT-4.6.0-6], 3.1.1 [MQTT-4.6.0-5] [MQTT-4.6.0-6]: one topic and QoS keeps its order."""
    subscriber = await broker.connect("s", version=version)
    await subscriber.subscribe("a", qos=qos)
    publisher = await broker.connect("p", version=version)
    for number in range(50):
        await publisher.publish("a", b"%d" % number, qos=qos)
    assert await payloads(subscriber, 50) == [b"%d" % number for number in range(50)]


@pytest.mark.parametrize("version", BOTH)
async def test_order_in_one_chunk(broker: Live, version: int) -> None:
    """[MQTT-4.6.0-2] [MQTT-4.6.0-3] [MQTT-4.6.0-5]: many packets at once, acknowledged and delivered in order."""
    subscriber = await broker.connect("s", version=version)
    await subscriber.subscribe("a", qos=1)
    publisher = await broker.connect("p", version=version)
    chunk = b""
    for number in range(1, 101):
        qos = 1 + number % 2
        chunk += wire.encode(wire.Publish(topic="a", payload=b"%d" % number, qos=qos, packet_id=number), version)
        if qos == 2:
            chunk += wire.encode(wire.Pubrel(packet_id=number), version)
    await publisher.raw(chunk)
    expected = [
        (kind, number)
        for number in range(1, 101)
        for kind in ((wire.Pubrec, wire.Pubcomp) if number % 2 else (wire.Puback,))
    ]
    got = []
    for _ in expected:
        packet = await publisher.receive()
        assert isinstance(packet, wire.Puback | wire.Pubrec | wire.Pubcomp)
        got.append((type(packet), packet.packet_id))
    assert got == expected
    assert await payloads(subscriber, 100) == [b"%d" % number for number in range(1, 101)]


# -- versions meet


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_properties_are_left_out_for_311(broker: Live, qos: int) -> None:
    """3.1.1, 3.3: an MQTT 5 message reaches 3.1.1 as topic and payload."""
    old = await broker.connect("o", version=wire.V311)
    await old.subscribe("a", qos=qos)
    publisher = await broker.connect("p")
    await publisher.publish("a", b"x", qos=qos, properties=properties(content_type="t", user_properties=(("k", "v"),)))
    message = await old.message()
    assert (message.topic, message.payload, message.qos) == ("a", b"x", qos)


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_messages_of_311_have_no_properties(broker: Live, qos: int) -> None:
    """3.3.2.3: a message from 3.1.1 comes with an empty property length."""
    new = await broker.connect("n")
    await new.subscribe("a", qos=qos)
    publisher = await broker.connect("p", version=wire.V311)
    await publisher.publish("a", b"x", qos=qos)
    message = await new.message()
    assert (message.payload, message.properties) == (b"x", wire.NONE)


# -- denied


async def test_denied_publish_311_is_acknowledged_by_default() -> None:
    """3.1.1 [MQTT-3.3.5-2]: acknowledged as usual (and dropped), or the connection closed."""
    async with live() as broker:
        client = await broker.connect("c", version=wire.V311)
        await client.publish("$SYS/x", qos=1)
        await client.publish("$SYS/x", qos=2)
        await client.silent()


async def test_denied_publish_311_closes_if_so_configured() -> None:
    """3.1.1 [MQTT-3.3.5-2]; nothing behind it in the same chunk is processed (4.13)."""
    async with live("denied_publish_311: disconnect\n") as broker:
        watcher = await broker.connect("w")
        await watcher.subscribe("#")
        for number in range(2):  # the second finds the decision already made
            client = await broker.connect(f"c{number}", version=wire.V311)
            denied = wire.encode(wire.Publish(topic="$SYS/x", payload=b"", qos=1, packet_id=1), 4)
            behind = wire.encode(wire.Publish(topic="a", payload=b"behind", qos=1, packet_id=2), 4)
            await client.raw(denied + behind)
            assert await client.closed() == b""
        await watcher.silent()
