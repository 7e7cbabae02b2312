"""Sessions: 3.1.2.4, 3.1.2.11.2, 3.14 and 4.1."""

from __future__ import annotations

import pytest

from conformance.acts import BOTH, dismissed, kept, lasting, leave, lose, properties, take
from conformance.clock import Clock
from harness import Live, live
from tidegate import wire
from tidegate.wire import Reason

ENDS = {"lost": lose, "left": leave}


# -- what is kept


@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize("end", ENDS)
async def test_subscriptions_and_messages_are_kept(broker: Live, version: int, end: str) -> None:
    """[MQTT-3.1.2-5] [MQTT-4.1.0-1], 3.1.1 [MQTT-3.1.2-4] [MQTT-3.1.2-5]: QoS 1 and 2 wait, in order."""
    client = await broker.connect("c", version=version, **kept(version))
    await client.subscribe("a/+", qos=2)
    await ENDS[end](client)
    publisher = await broker.connect("p")
    for number in range(6):
        await publisher.publish("a/b", b"%d" % number, qos=1 + number % 2)
    client = await broker.connect("c", version=version, **kept(version))
    assert client.connack.session_present
    messages = await take(client, 6)
    assert [one.payload for one in messages if one.qos == 1] == [b"0", b"2", b"4"]  # order is per topic and QoS
    assert [one.payload for one in messages if one.qos == 2] == [b"1", b"3", b"5"]
    assert not any(one.dup for one in messages)
    await publisher.publish("a/c", b"live")
    assert (await client.message()).payload == b"live"


@pytest.mark.parametrize("version", BOTH)
async def test_clean_start_discards(broker: Live, version: int) -> None:
    """[MQTT-3.1.2-4], 3.1.1 [MQTT-3.1.2-6]: no subscriptions, no messages of the old session."""
    client = await broker.connect("c", version=version, **kept(version))
    await client.subscribe("a", qos=1)
    await leave(client)
    publisher = await broker.connect("p")
    await publisher.publish("a", qos=1)
    client = await broker.connect("c", version=version)
    assert not client.connack.session_present
    await publisher.publish("a", qos=1)
    await client.silent()


async def test_clean_session_is_not_kept_311(broker: Live) -> None:
    """3.1.1 [MQTT-3.1.2-6]: state of a clean session must not be reused in any later one."""
    client = await broker.connect("c", version=wire.V311)
    await client.subscribe("a", qos=1)
    await leave(client)
    publisher = await broker.connect("p")
    await publisher.publish("a", qos=1)
    client = await broker.connect("c", version=wire.V311, clean_start=False)
    assert not client.connack.session_present
    await client.silent()


async def test_a_session_crosses_versions(broker: Live) -> None:
    """4.1: a client may come back with the other version of the protocol."""
    client = await broker.connect("c", version=wire.V311, clean_start=False)
    await client.subscribe("a", qos=1)
    await leave(client)
    publisher = await broker.connect("p")
    await publisher.publish("a", b"1", qos=1, properties=properties(content_type="t"))
    client = await broker.connect("c", **lasting())
    assert client.connack.session_present
    message = await client.message()
    assert (message.payload, message.properties.content_type) == (b"1", "t")
    await leave(client)
    await publisher.publish("a", b"2", qos=1, properties=properties(content_type="t"))
    client = await broker.connect("c", version=wire.V311, clean_start=False)
    assert client.connack.session_present
    assert (await client.message()).payload == b"2"


@pytest.mark.parametrize("version", BOTH)
async def test_taken_over_session_goes_on(broker: Live, version: int) -> None:
    """[MQTT-3.1.4-3] [MQTT-3.1.2-5]: the new connection has the subscriptions and what was not acknowledged."""
    first = await broker.connect("c", version=version, **kept(version))
    await first.subscribe("a", qos=1)
    publisher = await broker.connect("p")
    await publisher.publish("a", b"1", qos=1)
    sent = await first.expect(wire.Publish)
    second = await broker.connect("c", version=version, **kept(version))
    assert second.connack.session_present
    await dismissed(first, Reason.SESSION_TAKEN_OVER)
    again = await second.message()
    assert (again.packet_id, again.payload, again.dup) == (sent.packet_id, b"1", True)
    await publisher.publish("a", b"2", qos=1)
    assert (await second.message()).payload == b"2"


async def test_taken_over_with_clean_start(broker: Live) -> None:
    """[MQTT-3.1.4-3] [MQTT-3.1.2-4]: nothing of the taken-over session is left."""
    first = await broker.connect("c", **lasting())
    await first.subscribe("a", qos=1)
    second = await broker.connect("c")
    assert not second.connack.session_present
    await dismissed(first, Reason.SESSION_TAKEN_OVER)
    publisher = await broker.connect("p")
    await publisher.publish("a", qos=1)
    await second.silent()


# -- session expiry


async def test_without_expiry_it_ends_with_the_connection(broker: Live) -> None:
    """3.1.2.11.2: absent means 0; the session ends when the connection is closed."""
    for given in (properties(), properties(session_expiry_interval=0)):
        client = await broker.connect("c", clean_start=False, properties=given)
        await client.subscribe("a", qos=1)
        await lose(client)
        client = await broker.connect("c", clean_start=False)
        assert not client.connack.session_present
        await leave(client)


async def test_expiry(broker: Live, clock: Clock) -> None:
    """[MQTT-3.1.2-23], 3.1.2.11.2: kept that long after the connection has ended, and no longer."""
    client = await broker.connect("c", **lasting(10))
    await clock.advance(100)  # the time while connected does not count
    await leave(client)
    await clock.advance(9)
    client = await broker.connect("c", **lasting(10))
    assert client.connack.session_present
    await lose(client)
    await clock.advance(10.1)
    client = await broker.connect("c", **lasting(10))
    assert not client.connack.session_present


async def test_expired_session_gets_nothing(broker: Live, clock: Clock) -> None:
    """4.1: when a session ends, its subscriptions and messages go."""
    client = await broker.connect("c", **lasting(10))
    await client.subscribe("a", qos=1)
    await leave(client)
    publisher = await broker.connect("p")
    await publisher.publish("a", qos=1)
    await clock.advance(10.1)
    answer = await publisher.publish("a", qos=1)
    assert answer is not None
    assert answer.reason == Reason.NO_MATCHING_SUBSCRIBERS
    await (await broker.connect("c", **lasting(10))).silent()


async def test_the_newest_expiry_counts(broker: Live, clock: Clock) -> None:
    """3.1.2.11.2: each CONNECT sets it anew."""
    client = await broker.connect("c", **lasting(10))
    await leave(client)
    client = await broker.connect("c", **lasting(1000))
    await leave(client)
    await clock.advance(500)
    client = await broker.connect("c", clean_start=False)
    assert client.connack.session_present
    await leave(client)
    assert not (await broker.connect("c", clean_start=False)).connack.session_present


async def test_expiry_never(clock: Clock, broker: Live) -> None:
    """3.1.2.11.2: 0xFFFFFFFF does not expire (unless the server told a shorter time)."""
    client = await broker.connect("c", **lasting(0xFFFFFFFF))
    told = client.connack.properties.session_expiry_interval
    await leave(client)
    await clock.advance((told or 10_000_000) - 10)
    assert (await broker.connect("c", **lasting(0))).connack.session_present


async def test_sessions_can_be_kept_for_ever() -> None:
    """3.1.2.11.2: with no limit of the server's own."""
    async with live("limits: {session_expiry: null}\n") as broker:
        clock = Clock(broker)
        client = await broker.connect("c", **lasting(0xFFFFFFFF))
        assert client.connack.properties.session_expiry_interval is None
        await leave(client)
        await clock.advance(0xFFFFFFFF + 10)
        assert (await broker.connect("c", **lasting())).connack.session_present


# -- DISCONNECT


async def test_disconnect_changes_the_expiry(broker: Live, clock: Clock) -> None:
    """3.14.2.2.2: longer, shorter, or none."""
    client = await broker.connect("c", **lasting(5))
    await leave(client, session_expiry_interval=100)
    await clock.advance(50)
    client = await broker.connect("c", **lasting(100))
    assert client.connack.session_present
    await leave(client, session_expiry_interval=5)
    await clock.advance(6)
    client = await broker.connect("c", **lasting(100))
    assert not client.connack.session_present
    await leave(client, session_expiry_interval=0)
    assert not (await broker.connect("c", clean_start=False)).connack.session_present


async def test_disconnect_cannot_make_a_session_lasting(broker: Live) -> None:
    """[MQTT-3.14.2-2] with 3.1.2.11.2: from 0 to something is a protocol error."""
    client = await broker.connect("c")
    await client.send(wire.Disconnect(properties=properties(session_expiry_interval=10)))
    await dismissed(client, Reason.PROTOCOL_ERROR)
    assert not (await broker.connect("c", clean_start=False)).connack.session_present


async def test_disconnect_may_repeat_zero(broker: Live) -> None:
    """3.14.2.2.2: 0 after 0 is no change."""
    client = await broker.connect("c")
    await leave(client, session_expiry_interval=0)


@pytest.mark.parametrize("form", [b"\xe0\x00", b"\xe0\x01\x00", b"\xe0\x02\x00\x00", b"\xe0\x02\x04\x00"])
async def test_forms_of_disconnect(broker: Live, form: bytes) -> None:
    """[MQTT-3.14.4-1] [MQTT-3.14.4-2], 3.14.2: the server closes without a word."""
    client = await broker.connect("c")
    await client.raw(form)
    assert await client.closed() == b""


@pytest.mark.parametrize("version", BOTH)
async def test_nothing_after_disconnect_is_processed(broker: Live, version: int) -> None:
    """[MQTT-3.14.4-1]: no packet after DISCONNECT."""
    watcher = await broker.connect("w")
    await watcher.subscribe("#")
    client = await broker.connect("c", version=version)
    publish = wire.encode(wire.Publish(topic="a", payload=b"x", qos=1, packet_id=1), version)
    await client.raw(wire.encode(wire.Disconnect(), version) + publish)
    assert await client.closed() == b""
    await watcher.silent()


@pytest.mark.parametrize("version", BOTH)
async def test_what_was_sent_before_disconnect_is_processed(broker: Live, version: int) -> None:
    """[MQTT-3.14.4-3]: a publish right before it goes its way."""
    watcher = await broker.connect("w")
    await watcher.subscribe("#", qos=1)
    client = await broker.connect("c", version=version)
    publish = wire.encode(wire.Publish(topic="a", payload=b"x", qos=1, packet_id=1), version)
    await client.raw(publish + wire.encode(wire.Disconnect(), version))
    assert (await watcher.message()).payload == b"x"


# -- a session is somebody's


async def test_another_user_has_another_session() -> None:
    """5.4.2: a client identifier does not give access to somebody else's session."""
    text = 'directory: {users: {mary: {password: "plain:m"}, john: {password: "plain:j"}}}\n'
    async with live(text) as broker:
        mary = await broker.connect("c", username="mary", password=b"m", **lasting())
        await mary.subscribe("a", qos=1)
        await leave(mary)
        john = await broker.connect("c", username="john", password=b"j", **lasting())
        assert not john.connack.session_present
        mary = await broker.connect("c", username="mary", password=b"m", **lasting())
        assert mary.connack.session_present


# -- the queue


async def test_queue_drops_the_newest() -> None:
    """4.1: queues are bounded; by default what does not fit is not taken."""
    async with live("limits: {queue: {messages: 3}}\n") as broker:
        client = await broker.connect("c", **lasting())
        await client.subscribe("a", qos=1)
        await leave(client)
        publisher = await broker.connect("p")
        for number in range(5):
            await publisher.publish("a", b"%d" % number, qos=1)
        client = await broker.connect("c", **lasting())
        assert [one.payload for one in await take(client, 3)] == [b"0", b"1", b"2"]
        await client.silent()


async def test_queue_drops_the_oldest() -> None:
    """4.1: or the oldest, if so configured."""
    async with live("limits: {queue: {messages: 3, full: drop-oldest}}\n") as broker:
        client = await broker.connect("c", **lasting())
        await client.subscribe("a", qos=1)
        await leave(client)
        publisher = await broker.connect("p")
        for number in range(5):
            await publisher.publish("a", b"%d" % number, qos=1)
        client = await broker.connect("c", **lasting())
        assert [one.payload for one in await take(client, 3)] == [b"2", b"3", b"4"]
        await client.silent()


async def test_server_shutdown_says_so() -> None:
    """3.14.2.1, 4.13: MQTT 5 is told 0x8B."""
    async with live() as broker:
        five = await broker.connect("a")
        three = await broker.connect("b", version=wire.V311)
        await broker.node.close()
        await dismissed(five, Reason.SERVER_SHUTTING_DOWN)
        await dismissed(three, Reason.SERVER_SHUTTING_DOWN)
