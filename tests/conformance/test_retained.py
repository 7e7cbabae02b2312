"""Retained messages: 3.3.1.3 and retain handling in 3.8.3.1."""

from __future__ import annotations

import pytest

from conformance.acts import BOTH, lasting, leave, properties, take
from conformance.clock import Clock
from harness import Client, Live, live
from tidegate import wire
from tidegate.wire import Reason


async def publisher_of(broker: Live, version: int = wire.V5) -> Client:
    return await broker.connect("publisher", version=version)


@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_new_subscriber_gets_the_retained_message(broker: Live, version: int, qos: int) -> None:
    """[MQTT-3.3.1-5] [MQTT-3.3.1-8] [MQTT-3.3.1-9], 3.1.1 [MQTT-3.3.1-5] [MQTT-3.3.1-6] [MQTT-3.3.1-8]."""
    publisher = await publisher_of(broker, version)
    await publisher.publish("a", b"kept", qos=qos, retain=True)
    for granted in (0, 1, 2):
        client = await broker.connect(f"c{granted}", version=version)
        await client.subscribe("a", qos=granted)
        message = await client.message()
        assert (message.topic, message.payload, message.retain) == ("a", b"kept", True)
        assert (message.qos, message.dup) == (min(qos, granted), False)
        await client.silent()


@pytest.mark.parametrize("version", BOTH)
async def test_live_messages_are_not_marked_retained(broker: Live, version: int) -> None:
    """[MQTT-3.3.1-12], 3.1.1 [MQTT-3.3.1-9]: to an existing subscription RETAIN is 0."""
    client = await broker.connect("c", version=version)
    await client.subscribe("a", qos=1)
    publisher = await publisher_of(broker)
    for qos in (0, 1, 2):
        await publisher.publish("a", qos=qos, retain=True)
        assert not (await client.message()).retain


async def test_retain_as_published(broker: Live) -> None:
    """[MQTT-3.3.1-12] [MQTT-3.3.1-13]: with the option, RETAIN is as the publisher set it."""
    client = await broker.connect("c")
    await client.subscribe("a", qos=2, retain_as_published=True)
    publisher = await publisher_of(broker)
    for qos in (0, 1, 2):
        await publisher.publish("a", qos=qos, retain=True)
        assert (await client.message()).retain
        await publisher.publish("a", qos=qos, retain=False)
        assert not (await client.message()).retain


async def test_retained_is_marked_whatever_retain_as_published_says(broker: Live) -> None:
    """[MQTT-3.3.1-8]: what is sent because of a new subscription has RETAIN 1."""
    publisher = await publisher_of(broker)
    await publisher.publish("a", qos=1, retain=True)
    for option in (False, True):
        client = await broker.connect("c")
        await client.subscribe("a", retain_as_published=option)
        assert (await client.message()).retain


@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_the_newest_replaces(broker: Live, version: int, qos: int) -> None:
    """[MQTT-3.3.1-5], 3.1.1 [MQTT-3.3.1-5] [MQTT-3.3.1-7]: also at QoS 0 and by another client."""
    publisher = await publisher_of(broker, version)
    other = await broker.connect("other", version=version)
    await publisher.publish("a", b"old", qos=2, retain=True)
    await other.publish("a", b"new", qos=qos, retain=True)
    await other.silent()
    client = await broker.connect("c", version=version)
    await client.subscribe("a")
    assert (await client.message()).payload == b"new"
    await client.silent()


@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_empty_payload_removes(broker: Live, version: int, qos: int) -> None:
    """[MQTT-3.3.1-6] [MQTT-3.3.1-7], 3.1.1 [MQTT-3.3.1-10] [MQTT-3.3.1-11]: removed, and passed on like any other."""
    publisher = await publisher_of(broker, version)
    await publisher.publish("a", b"kept", qos=1, retain=True)
    watcher = await broker.connect("w", version=version)
    await watcher.subscribe("a", qos=2)
    await watcher.message()
    await publisher.publish("a", b"", qos=qos, retain=True)
    cleared = await watcher.message()
    assert (cleared.payload, cleared.retain) == (b"", False)
    client = await broker.connect("c", version=version)
    await client.subscribe("a")
    await client.silent()


@pytest.mark.parametrize("version", BOTH)
async def test_unretained_does_not_touch_it(broker: Live, version: int) -> None:
    """[MQTT-3.3.1-8], 3.1.1 [MQTT-3.3.1-12]: RETAIN 0 neither stores nor replaces nor removes, also when empty."""
    publisher = await publisher_of(broker, version)
    await publisher.publish("a", b"kept", qos=1, retain=True)
    await publisher.publish("a", b"other", qos=1)
    await publisher.publish("a", b"", qos=1)
    await publisher.publish("b", b"other", qos=1)
    client = await broker.connect("c", version=version)
    await client.subscribe("#")
    message = await client.message()
    assert (message.topic, message.payload) == ("a", b"kept")
    await client.silent()


@pytest.mark.parametrize("version", BOTH)
async def test_wildcards_find_retained(broker: Live, version: int) -> None:
    """[MQTT-3.3.1-9]: each that matches, once; $ topics only by name [MQTT-4.7.2-1]."""
    publisher = await publisher_of(broker, version)
    for topic in ("x/1", "x/2", "x", "y/1", "/x", "$x/1"):
        await publisher.publish(topic, topic.encode(), qos=1, retain=True)
    for filter, expected in {
        "x/+": {"x/1", "x/2"},
        "x/#": {"x", "x/1", "x/2"},
        "+/1": {"x/1", "y/1"},
        "#": {"x/1", "x/2", "x", "y/1", "/x"},
        "$x/#": {"$x/1"},
        "+/+": {"x/1", "x/2", "y/1", "/x"},
    }.items():
        client = await broker.connect("c", version=version)
        await client.subscribe(filter)
        assert {message.topic for message in await take(client, len(expected))} == expected
        await client.silent()


async def test_many_retained_messages(broker: Live) -> None:
    """[MQTT-3.3.1-9]: all of them, however many, within the client's receive maximum."""
    publisher = await publisher_of(broker)
    for number in range(700):
        await publisher.send(wire.Publish(topic=f"a/{number}", payload=b"x", retain=True))
    await publisher.silent()
    client = await broker.connect("c", properties=properties(receive_maximum=5))
    await client.subscribe("a/+", qos=1)
    found = {message.topic for message in await take(client, 700)}
    assert len(found) == 700
    await client.silent()


# -- retain handling


async def test_retain_handling_0_sends_each_time(broker: Live) -> None:
    """[MQTT-3.3.1-9] [MQTT-3.8.4-4], 3.1.1 [MQTT-3.8.4-3]: also when the subscription was there."""
    publisher = await publisher_of(broker)
    await publisher.publish("a", qos=1, retain=True)
    client = await broker.connect("c")
    for _ in range(2):
        await client.subscribe("a", qos=1, retain_handling=0)
        assert (await client.message()).retain
        await client.silent()


async def test_resubscribing_sends_retained_again_311(broker: Live) -> None:
    """3.1.1 [MQTT-3.8.4-3]: existing retained messages are re-sent."""
    publisher = await publisher_of(broker)
    await publisher.publish("a", qos=1, retain=True)
    client = await broker.connect("c", version=wire.V311)
    for _ in range(2):
        await client.subscribe("a", qos=1)
        assert (await client.message()).retain


async def test_retain_handling_1_sends_to_new_subscriptions(broker: Live) -> None:
    """[MQTT-3.3.1-10]: not when the subscription was there, in this connection or in the session."""
    publisher = await publisher_of(broker)
    await publisher.publish("a", qos=1, retain=True)
    client = await broker.connect("c", **lasting())
    await client.subscribe("a", qos=1, retain_handling=1)
    assert (await client.message()).retain
    await client.subscribe("a", qos=2, retain_handling=1)
    await client.silent()
    await leave(client)
    client = await broker.connect("c", **lasting())
    await client.subscribe("a", qos=1, retain_handling=1)
    await client.silent()
    await client.unsubscribe("a")
    await client.subscribe("a", qos=1, retain_handling=1)
    assert (await client.message()).retain


async def test_retain_handling_2_sends_none(broker: Live) -> None:
    """[MQTT-3.3.1-11]; what is published afterwards is delivered."""
    publisher = await publisher_of(broker)
    await publisher.publish("a", b"old", qos=1, retain=True)
    client = await broker.connect("c")
    for _ in range(2):
        await client.subscribe("a", qos=1, retain_handling=2)
        await client.silent()
    await publisher.publish("a", b"new", qos=1, retain=True)
    assert (await client.message()).payload == b"new"


async def test_retain_handling_per_filter(broker: Live) -> None:
    """3.8.3.1: the option belongs to each filter of a SUBSCRIBE."""
    publisher = await publisher_of(broker)
    for topic in ("a", "b", "c"):
        await publisher.publish(topic, qos=1, retain=True)
    client = await broker.connect("c")
    await client.send(
        wire.Subscribe(
            packet_id=1,
            subscriptions=tuple(
                wire.Subscription(filter=topic, retain_handling=how) for topic, how in (("a", 0), ("b", 2), ("c", 1))
            ),
        )
    )
    await client.expect(wire.Suback)
    assert {message.topic for message in await take(client, 2)} == {"a", "c"}
    await client.silent()


async def test_retained_tell_the_identifier_of_the_new_subscription(broker: Live) -> None:
    """[MQTT-3.3.4-3]: not of others that match too."""
    publisher = await publisher_of(broker)
    await publisher.publish("a/b", qos=1, retain=True)
    client = await broker.connect("c")
    await client.subscribe("a/#", properties=properties(subscription_identifiers=(1,)))
    assert (await client.message()).properties.subscription_identifiers == (1,)
    await client.subscribe("a/+", properties=properties(subscription_identifiers=(2,)))
    assert (await client.message()).properties.subscription_identifiers == (2,)


# -- with properties


async def test_retained_keep_their_properties(broker: Live) -> None:
    """[MQTT-3.3.2-4] [MQTT-3.3.2-17] and the like: properties are part of the message."""
    publisher = await publisher_of(broker)
    given = properties(
        payload_format_indicator=1,
        content_type="text/plain",
        response_topic="r",
        correlation_data=b"\x00\xff",
        user_properties=(("a", "2"), ("c", "3"), ("a", "2")),
    )
    await publisher.publish("a", "ü".encode(), qos=1, retain=True, properties=given)
    client = await broker.connect("c")
    await client.subscribe("a")
    assert (await client.message()).properties == given


async def test_retained_expire(broker: Live, clock: Clock) -> None:
    """[MQTT-3.3.2-5] [MQTT-3.3.2-6], 4.1: the time that is left is told; after it the message is gone."""
    publisher = await publisher_of(broker)
    given = properties(message_expiry_interval=100)
    await publisher.publish("a", b"short", qos=1, retain=True, properties=given)
    await publisher.publish("b", b"ever", qos=1, retain=True)
    await clock.advance(40)
    client = await broker.connect("c")
    await client.subscribe("a")
    left = (await client.message()).properties.message_expiry_interval
    assert left in (59, 60)
    await clock.advance(61)
    late = await broker.connect("d")
    await late.subscribe("#")
    assert (await late.message()).payload == b"ever"
    await late.silent()


async def test_too_many_retained_messages() -> None:
    """3.4.2.1: 0x97 for one more; those that are there can be replaced and removed."""
    async with live("limits: {retained: 2}\n") as broker:
        client = await broker.connect("c")
        for topic, expected in (("a", 0), ("b", 0), ("c", Reason.QUOTA_EXCEEDED), ("a", 0)):
            answer = await client.publish(topic, qos=1, retain=True)
            assert answer is not None
            assert (answer.reason >= 0x80) == (expected >= 0x80)
        await client.publish("a", b"", qos=1, retain=True)
        answer = await client.publish("c", qos=1, retain=True)
        assert answer is not None
        assert answer.reason < 0x80


async def test_retained_of_qos_2_counts_from_pubrel(broker: Live) -> None:
    """[MQTT-4.3.3-8], 4.3.3: the server owns the message from PUBREC on; it is there once PUBCOMP is sent."""
    publisher = await publisher_of(broker)
    await publisher.publish("a", b"x", qos=2, retain=True)
    client = await broker.connect("c")
    await client.subscribe("a")
    assert (await client.message()).payload == b"x"


async def test_retained_survive_their_publisher(broker: Live) -> None:
    """4.1: retained messages are not part of the session."""
    publisher = await publisher_of(broker)
    await publisher.publish("a", b"x", qos=1, retain=True)
    await leave(publisher)
    client = await broker.connect("publisher")
    await client.subscribe("a")
    assert (await client.message()).payload == b"x"
