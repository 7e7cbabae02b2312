"""SUBSCRIBE, SUBACK, UNSUBSCRIBE, UNSUBACK: chapters 3.8 to 3.11, and subscription identifiers."""

from __future__ import annotations

import pytest

from conformance.acts import BOTH, dismissed, lasting, leave, lose, properties, take
from harness import Live, live
from tidegate import wire
from tidegate.wire import Reason

# -- answers


@pytest.mark.parametrize("version", BOTH)
async def test_one_answer_per_filter_in_order(broker: Live, version: int) -> None:
    """[MQTT-3.8.4-1] [MQTT-3.8.4-2] [MQTT-3.8.4-5] [MQTT-3.8.4-6] [MQTT-3.9.3-1]: one SUBACK, as many reasons."""
    client = await broker.connect("c", version=version)
    wanted = [("a", 2), ("b", 0), ("c/+", 1), ("#", 2), ("a", 1)]
    subscriptions = tuple(wire.Subscription(filter=filter, qos=qos) for filter, qos in wanted)
    await client.send(wire.Subscribe(packet_id=4711, subscriptions=subscriptions))
    suback = await client.expect(wire.Suback)
    assert (suback.packet_id, suback.reasons) == (4711, (2, 0, 1, 2, 1))
    await client.silent()


@pytest.mark.parametrize("version", BOTH)
async def test_filters_act_one_by_one(broker: Live, version: int) -> None:
    """[MQTT-3.8.4-5]: several filters in one packet are as if sent one after the other."""
    client = await broker.connect("c", version=version)
    await client.subscribe("a", "b", "c", qos=1)
    publisher = await broker.connect("p")
    for topic in ("a", "b", "c", "d"):
        await publisher.publish(topic, qos=1)
    assert [message.topic for message in await take(client, 3)] == ["a", "b", "c"]
    await client.silent()


@pytest.mark.parametrize("version", BOTH)
async def test_a_denied_filter_does_not_hinder_the_others(version: int) -> None:
    """[MQTT-3.9.3-1] [MQTT-3.8.4-7], 3.1.1 [MQTT-3.9.3-2]: 0x87 in MQTT 5, 0x80 in 3.1.1."""
    async with live(policies="") as broker:
        client = await broker.connect("c", version=version)
        denied = 0x87 if version == wire.V5 else 0x80
        assert (await client.subscribe("a", "b/#")).reasons == (denied, denied)
        unsuback = await client.unsubscribe("a")
        if version == wire.V5:
            assert unsuback.reasons == (Reason.NO_SUBSCRIPTION_EXISTED,)


async def test_too_many_subscriptions() -> None:
    """3.9.3: 0x97; one that is there can still be replaced, and one that goes makes room."""
    async with live("limits: {subscriptions: 2}\n") as broker:
        client = await broker.connect("c")
        assert (await client.subscribe("a", "b", "c", qos=1)).reasons == (1, 1, Reason.QUOTA_EXCEEDED)
        assert (await client.subscribe("a", qos=2)).reasons == (2,)
        await client.unsubscribe("a")
        assert (await client.subscribe("c")).reasons == (0,)


# -- replacing


@pytest.mark.parametrize("version", BOTH)
async def test_same_filter_replaces(broker: Live, version: int) -> None:
    """[MQTT-3.8.4-3]: one message, with the QoS of the newer subscription."""
    client = await broker.connect("c", version=version)
    await client.subscribe("a/+", qos=2)
    await client.subscribe("a/+", qos=0)
    publisher = await broker.connect("p")
    await publisher.publish("a/b", qos=2)
    assert (await client.message()).qos == 0
    await client.silent()
    await client.subscribe("a/+", qos=1)
    await publisher.publish("a/b", qos=2)
    assert (await client.message()).qos == 1
    await client.silent()


async def test_replacing_replaces_options_and_identifier(broker: Live) -> None:
    """[MQTT-3.8.4-3], 3.8.4: No Local, Retain As Published and the identifier are those of the newer one."""
    client = await broker.connect("c")
    await client.subscribe("a", no_local=True, properties=properties(subscription_identifiers=(7,)))
    await client.subscribe("a", retain_as_published=True)
    await client.send(wire.Publish(topic="a", payload=b"x", retain=True))
    message = await client.message()
    assert message.retain
    assert message.properties.subscription_identifiers == ()


async def test_messages_are_not_lost_while_replacing(broker: Live) -> None:
    """[MQTT-3.8.4-3]: what is on its way under the old subscription still arrives."""
    client = await broker.connect("c", properties=properties(receive_maximum=1))
    await client.subscribe("a", qos=1)
    publisher = await broker.connect("p")
    for number in range(3):
        await publisher.publish("a", b"%d" % number, qos=1)
    first = await client.expect(wire.Publish)
    await client.subscribe("a", qos=1)
    await client.send(wire.Puback(packet_id=first.packet_id))
    assert [message.payload for message in await take(client, 2)] == [b"1", b"2"]


# -- overlapping subscriptions


@pytest.mark.parametrize("version", BOTH)
async def test_overlapping_subscriptions(broker: Live, version: int) -> None:
    """[MQTT-3.3.4-2], 3.1.1 [MQTT-3.3.5-1]: at least one copy has the highest QoS, none is above its subscription."""
    client = await broker.connect("c", version=version)
    await client.subscribe("TopicA/#", qos=2)
    await client.subscribe("TopicA/+", qos=1)
    await client.subscribe("#", qos=0)
    publisher = await broker.connect("p")
    await publisher.publish("TopicA/C", qos=2)
    found = [message.qos for message in await take(client, 1)]
    await client.send(wire.Pingreq())
    while not isinstance(packet := await client.receive(), wire.Pingresp):
        assert isinstance(packet, wire.Publish)
        found.append(packet.qos)
    assert max(found) == 2
    assert len(found) in (1, 3)


# -- No Local


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_no_local(broker: Live, qos: int) -> None:
    """[MQTT-3.8.3-3]: one's own messages do not come back, others' do."""
    client = await broker.connect("c")
    other = await broker.connect("o")
    await client.subscribe("a", qos=2, no_local=True)
    await other.subscribe("a", qos=2)
    await client.publish("a", b"own", qos=qos)
    await client.silent()
    assert (await other.message()).payload == b"own"
    await other.send(wire.Publish(topic="a", payload=b"other"))
    await other.message()
    assert (await client.message()).payload == b"other"


async def test_no_local_is_about_the_client_id(broker: Live) -> None:
    """[MQTT-3.8.3-3]: what a client published in an earlier connection is still its own."""
    client = await broker.connect("c", **lasting())
    await client.subscribe("a", qos=1, no_local=True)
    await leave(client)
    client = await broker.connect("c", **lasting())
    await client.publish("a", qos=1)
    await client.silent()


async def test_no_local_and_another_subscription(broker: Live) -> None:
    """[MQTT-3.8.3-3]: another matching subscription without No Local still has it delivered."""
    client = await broker.connect("c")
    await client.subscribe("a/#", no_local=True)
    await client.subscribe("a/b")
    await client.send(wire.Publish(topic="a/b", payload=b"x"))
    assert (await client.message()).payload == b"x"
    await client.silent()
    await client.send(wire.Publish(topic="a/c", payload=b"x"))
    await client.silent()


# -- subscription identifiers


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("number", [1, 127, 128, 16_384, 268_435_455])
async def test_subscription_identifier(broker: Live, qos: int, number: int) -> None:
    """[MQTT-3.3.4-3]: it comes with each message of that subscription, and of no other."""
    client = await broker.connect("c")
    await client.subscribe("a", qos=qos, properties=properties(subscription_identifiers=(number,)))
    await client.subscribe("b", qos=qos)
    publisher = await broker.connect("p", version=wire.V311)
    await publisher.publish("a", qos=qos)
    await publisher.publish("b", qos=qos)
    first, second = await take(client, 2)
    assert first.properties.subscription_identifiers == (number,)
    assert second.properties.subscription_identifiers == ()


async def test_one_identifier_for_all_filters_of_a_packet(broker: Live) -> None:
    """3.8.2.1.2: the identifier is associated with every subscription of the packet."""
    client = await broker.connect("c")
    await client.subscribe("a", "b/#", properties=properties(subscription_identifiers=(9,)))
    publisher = await broker.connect("p")
    await publisher.publish("a")
    await publisher.publish("b/c")
    for message in await take(client, 2):
        assert message.properties.subscription_identifiers == (9,)


async def test_identifiers_of_overlapping_subscriptions(broker: Live) -> None:
    """[MQTT-3.3.4-4] [MQTT-3.3.4-5]: all of them, in one message or one each."""
    client = await broker.connect("c")
    await client.subscribe("a/#", properties=properties(subscription_identifiers=(1,)))
    await client.subscribe("a/+", properties=properties(subscription_identifiers=(2,)))
    await client.subscribe("a/b")
    publisher = await broker.connect("p")
    await publisher.publish("a/b")
    await client.send(wire.Pingreq())
    ids: list[int] = []
    while isinstance(packet := await client.receive(), wire.Publish):
        ids += packet.properties.subscription_identifiers
    assert sorted(ids) == [1, 2]


async def test_identifiers_differ_by_session(broker: Live) -> None:
    """[MQTT-3.3.4-3]: they belong to the subscriber, not to the message."""
    clients = [await broker.connect(f"c{number}") for number in (1, 2, 3)]
    for number, client in enumerate(clients):
        ids = (number,) if number else ()
        await client.subscribe("a", qos=1, properties=properties(subscription_identifiers=ids))
    publisher = await broker.connect("p")
    await publisher.publish("a", qos=1)
    for number, client in enumerate(clients):
        expected = (number,) if number else ()
        assert (await client.message()).properties.subscription_identifiers == expected


async def test_identifier_is_part_of_the_session(broker: Live) -> None:
    """[MQTT-4.1.0-2], 4.1: it comes with queued messages, and after resuming."""
    client = await broker.connect("c", **lasting())
    await client.subscribe("a", qos=1, properties=properties(subscription_identifiers=(5,)))
    await leave(client)
    publisher = await broker.connect("p")
    await publisher.publish("a", b"queued", qos=1)
    client = await broker.connect("c", **lasting())
    await publisher.publish("a", b"live", qos=1)
    for message in await take(client, 2):
        assert message.properties.subscription_identifiers == (5,)


async def test_identifier_in_publish_of_a_client_is_refused(broker: Live) -> None:
    """[MQTT-3.3.4-6]: a protocol error."""
    client = await broker.connect("c")
    await client.send(wire.Publish(topic="a", payload=b"", properties=properties(subscription_identifiers=(1,))))
    await dismissed(client, Reason.PROTOCOL_ERROR)


# -- UNSUBSCRIBE


@pytest.mark.parametrize("version", BOTH)
async def test_unsubscribe(broker: Live, version: int) -> None:
    """[MQTT-3.10.4-1] [MQTT-3.10.4-2] [MQTT-3.10.4-4], 3.1.1 [MQTT-3.10.4-1] [MQTT-3.10.4-2] [MQTT-3.10.4-4]."""
    client = await broker.connect("c", version=version)
    await client.subscribe("a", "b", "c/+", "#", qos=1)
    await client.send(wire.Unsubscribe(packet_id=999, filters=("b", "#", "c/d")))
    assert (await client.expect(wire.Unsuback)).packet_id == 999
    publisher = await broker.connect("p")
    for topic in ("a", "b", "c/d", "d"):
        await publisher.publish(topic, qos=1)
    assert [message.topic for message in await take(client, 2)] == ["a", "c/d"]
    await client.silent()


async def test_unsuback_reasons(broker: Live) -> None:
    """[MQTT-3.10.4-5] [MQTT-3.10.4-6] [MQTT-3.11.3-1] [MQTT-3.11.3-2]: one each, in order; 0x11 for none."""
    client = await broker.connect("c")
    await client.subscribe("a", "b")
    assert (await client.unsubscribe("b", "x", "a", "a")).reasons == (0, 0x11, 0, 0x11)


async def test_unsuback_311_is_four_bytes(broker: Live) -> None:
    """3.1.1 [MQTT-3.10.4-5]: UNSUBACK even if nothing was there, without a payload."""
    client = await broker.connect("c", version=wire.V311)
    await client.raw(wire.encode(wire.Unsubscribe(packet_id=258, filters=("none",)), 4))
    assert await client.reader.readexactly(4) == b"\xb0\x02\x01\x02"


@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize("qos", [1, 2])
async def test_unsubscribe_completes_what_was_begun(broker: Live, version: int, qos: int) -> None:
    """[MQTT-3.10.4-3], 3.1.1 the same: messages that were sent are seen through, also over a lost connection."""
    fields = lasting() if version == wire.V5 else {"clean_start": False}
    client = await broker.connect("c", version=version, **fields)
    await client.subscribe("a", qos=2)
    publisher = await broker.connect("p")
    await publisher.publish("a", b"begun", qos=qos)
    begun = await client.expect(wire.Publish)
    await client.unsubscribe("a")
    await publisher.publish("a", b"after", qos=qos)
    await lose(client)
    client = await broker.connect("c", version=version, **fields)
    again = await client.message()
    assert (again.packet_id, again.payload, again.dup) == (begun.packet_id, b"begun", True)
    await client.silent()


@pytest.mark.parametrize("qos", [1, 2])
async def test_unsubscribe_of_a_share_completes_what_was_begun(broker: Live, qos: int) -> None:
    """[MQTT-3.10.4-3] holds for shared subscriptions too: what one member was sent is not sent to another."""
    client = await broker.connect("c")
    other = await broker.connect("o")
    await client.subscribe("$share/g/a", qos=2)
    publisher = await broker.connect("p")
    await publisher.publish("a", b"begun", qos=qos)
    begun = await client.expect(wire.Publish)
    await other.subscribe("$share/g/a", qos=2)
    await client.unsubscribe("$share/g/a")
    await other.silent()
    if qos == 1:
        await client.send(wire.Puback(packet_id=begun.packet_id))
    else:
        await client.send(wire.Pubrec(packet_id=begun.packet_id))
        assert (await client.expect(wire.Pubrel)).reason == 0
        await client.send(wire.Pubcomp(packet_id=begun.packet_id))
    await client.silent()
    await other.silent()


async def test_unsubscribe_compares_filters_as_they_are_written(broker: Live) -> None:
    """[MQTT-3.10.4-1]: character by character, not by what they match."""
    client = await broker.connect("c")
    await client.subscribe("a/+")
    assert (await client.unsubscribe("a/#", "a/b", "+/+", "A/+")).reasons == (0x11,) * 4
    await client.send(wire.Publish(topic="a/b", payload=b"x"))
    await client.message()
