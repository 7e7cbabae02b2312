"""Properties of messages: 3.3.2.3, expiry, and request/response (4.10)."""

from __future__ import annotations

import pytest

from conformance.acts import lasting, leave, properties, take
from conformance.clock import Clock
from harness import Live
from tidegate import wire

EVERYTHING = {
    "payload_format_indicator": 1,
    "content_type": "application/x; name=ü",
    "response_topic": "answer/to/me",
    "correlation_data": bytes(range(256)),
    "user_properties": (("a", "2"), ("c", "3"), ("a", "2"), ("", ""), ("é", "\ufeff")),
}


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("retain", [False, True])
async def test_forwarded_unaltered(broker: Live, qos: int, retain: bool) -> None:
    """[MQTT-3.3.2-4] [MQTT-3.3.2-15] [MQTT-3.3.2-16] [MQTT-3.3.2-17] [MQTT-3.3.2-18] [MQTT-3.3.2-20]."""
    client = await broker.connect("c")
    await client.subscribe("a", qos=2)
    publisher = await broker.connect("p")
    await publisher.publish("a", b"x", qos=qos, retain=retain, properties=properties(**EVERYTHING))
    message = await client.message()
    assert (message.payload, message.properties) == (b"x", properties(**EVERYTHING))


@pytest.mark.parametrize("name", EVERYTHING)
async def test_forwarded_one_by_one(broker: Live, name: str) -> None:
    """3.3.2.3: what is there is sent, what is not is not."""
    client = await broker.connect("c")
    await client.subscribe("a")
    publisher = await broker.connect("p")
    given = properties(**{name: EVERYTHING[name]})
    await publisher.publish("a", b"x", properties=given)
    assert (await client.message()).properties == given


@pytest.mark.parametrize("value", [0, 1])
async def test_payload_format(broker: Live, value: int) -> None:
    """[MQTT-3.3.2-4]: 0 is forwarded as well; the payload is not touched."""
    client = await broker.connect("c")
    await client.subscribe("a", qos=2)
    publisher = await broker.connect("p")
    for qos in (0, 1, 2):
        given = properties(payload_format_indicator=value, content_type="My name")
        await publisher.publish("a", b"utf-8", qos=qos, properties=given)
        message = await client.message()
        assert (message.payload, message.properties) == (b"utf-8", given)


async def test_many_user_properties_keep_their_order(broker: Live) -> None:
    """[MQTT-3.3.2-18]: 500 of them, with names that repeat."""
    client = await broker.connect("c")
    await client.subscribe("a", qos=1)
    publisher = await broker.connect("p")
    pairs = tuple((f"k{number % 7}", f"v{number}") for number in range(500))
    await publisher.publish("a", qos=1, properties=properties(user_properties=pairs))
    assert (await client.message()).properties.user_properties == pairs


async def test_properties_of_queued_messages(broker: Live) -> None:
    """[MQTT-3.3.2-17] and the like hold for what waited."""
    client = await broker.connect("c", **lasting())
    await client.subscribe("a", qos=1)
    await leave(client)
    publisher = await broker.connect("p")
    await publisher.publish("a", b"x", qos=1, properties=properties(**EVERYTHING))
    client = await broker.connect("c", **lasting())
    assert (await client.message()).properties == properties(**EVERYTHING)


async def test_packet_properties_are_not_forwarded(broker: Live) -> None:
    """3.3.2.3.4, 3.3.2.3.8: alias and subscription identifiers belong to a connection, not to the message."""
    client = await broker.connect("c")
    await client.subscribe("a")
    publisher = await broker.connect("p")
    await publisher.publish("a", b"x", properties=properties(topic_alias=1, content_type="t"))
    assert (await client.message()).properties == properties(content_type="t")


async def test_user_properties_of_requests_are_accepted(broker: Live) -> None:
    """3.1.2.11.8, 3.8.2.1.3, 3.10.2.1.2: user properties may stand in every packet of a client."""
    pairs = (("a", "1"), ("a", "1"))
    client = await broker.connect("c", properties=properties(user_properties=pairs))
    assert (await client.subscribe("a", properties=properties(user_properties=pairs))).reasons == (0,)
    given = properties(user_properties=pairs, reason_string="because")
    await client.subscribe("b", qos=2)
    publisher = await broker.connect("p")
    await publisher.publish("b", qos=1)
    sent = await client.expect(wire.Publish)
    await client.send(wire.Puback(packet_id=sent.packet_id, properties=given))
    await publisher.publish("b", qos=2)
    sent = await client.expect(wire.Publish)
    await client.send(wire.Pubrec(packet_id=sent.packet_id, properties=given))
    await client.expect(wire.Pubrel)
    await client.send(wire.Pubcomp(packet_id=sent.packet_id, properties=given))
    await client.send(wire.Publish(topic="x", payload=b"", qos=2, packet_id=50))
    await client.expect(wire.Pubrec)
    await client.send(wire.Pubrel(packet_id=50, properties=given))
    await client.expect(wire.Pubcomp)
    unsubscribe = wire.Unsubscribe(packet_id=51, filters=("a",), properties=properties(user_properties=pairs))
    await client.send(unsubscribe)
    await client.expect(wire.Unsuback)
    await leave(client, user_properties=pairs, reason_string="done")


# -- expiry


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_expiry_of_what_does_not_wait(broker: Live, qos: int) -> None:
    """[MQTT-3.3.2-6]: the received value minus the time it waited, which is none."""
    client = await broker.connect("c")
    await client.subscribe("a", qos=2)
    publisher = await broker.connect("p")
    await publisher.publish("a", qos=qos, properties=properties(message_expiry_interval=100))
    assert (await client.message()).properties.message_expiry_interval in (99, 100)


@pytest.mark.parametrize("qos", [1, 2])
async def test_expiry_counts_down_while_waiting(broker: Live, clock: Clock, qos: int) -> None:
    """[MQTT-3.3.2-5] [MQTT-3.3.2-6]: what has time left is told how much, the rest is gone."""
    client = await broker.connect("c", **lasting())
    await client.subscribe("a", qos=2)
    await leave(client)
    publisher = await broker.connect("p")
    for seconds in (10, 100, 0xFFFFFFFF):
        given = properties(message_expiry_interval=seconds)
        await publisher.publish("a", b"%d" % seconds, qos=qos, properties=given)
    await publisher.publish("a", b"ever", qos=qos)
    await clock.advance(30)
    client = await broker.connect("c", **lasting())
    hundred, long, ever = await take(client, 3)
    assert (hundred.payload, hundred.properties.message_expiry_interval in (69, 70)) == (b"100", True)
    assert long.properties.message_expiry_interval in (0xFFFFFFFF - 30, 0xFFFFFFFF - 31)
    assert (ever.payload, ever.properties.message_expiry_interval) == (b"ever", None)
    await client.silent()


async def test_expiry_behind_a_full_window(broker: Live, clock: Clock) -> None:
    """[MQTT-3.3.2-5]: waiting for the client's acknowledgements is waiting too."""
    client = await broker.connect("c", properties=properties(receive_maximum=1))
    await client.subscribe("a", qos=1)
    publisher = await broker.connect("p")
    await publisher.publish("a", b"first", qos=1)
    await publisher.publish("a", b"short", qos=1, properties=properties(message_expiry_interval=10))
    await publisher.publish("a", b"long", qos=1, properties=properties(message_expiry_interval=100))
    first = await client.expect(wire.Publish)
    await clock.advance(30)
    await client.send(wire.Puback(packet_id=first.packet_id))
    message = await client.message()
    assert message.payload == b"long"
    assert message.properties.message_expiry_interval in (69, 70)
    await client.silent()


async def test_expiry_for_311(broker: Live, clock: Clock) -> None:
    """[MQTT-3.3.2-5]: expired is expired, also for who cannot be told."""
    client = await broker.connect("c", version=wire.V311, clean_start=False)
    await client.subscribe("a", qos=1)
    await leave(client)
    publisher = await broker.connect("p")
    await publisher.publish("a", b"short", qos=1, properties=properties(message_expiry_interval=10))
    await publisher.publish("a", b"long", qos=1, properties=properties(message_expiry_interval=100))
    await clock.advance(30)
    client = await broker.connect("c", version=wire.V311, clean_start=False)
    assert (await client.message()).payload == b"long"
    await client.silent()


# -- request and response


async def test_request_and_response(broker: Live) -> None:
    """4.10, [MQTT-3.3.2-15] [MQTT-3.3.2-16]: by response topic and correlation data; both ends see what they need."""
    requester = await broker.connect("requester")
    responder = await broker.connect("responder")
    await requester.subscribe("answers/requester", qos=1, no_local=True)
    await responder.subscribe("questions", qos=1, no_local=True)
    given = properties(response_topic="answers/requester", correlation_data=b"334")
    await requester.publish("questions", b"request", qos=1, properties=given)
    request = await responder.message()
    assert request.properties == given
    topic = request.properties.response_topic
    assert topic is not None
    back = properties(correlation_data=request.properties.correlation_data)
    await responder.publish(topic, b"response", qos=1, properties=back)
    response = await requester.message()
    assert (response.payload, response.properties.correlation_data) == (b"response", b"334")


async def test_response_information_only_if_asked(broker: Live) -> None:
    """[MQTT-3.1.2-28]: never with request response information 0; with 1 the server may."""
    client = await broker.connect("c", properties=properties(request_response_information=0))
    assert client.connack.properties.response_information is None
    await (await broker.connect("d", properties=properties(request_response_information=1))).silent()
