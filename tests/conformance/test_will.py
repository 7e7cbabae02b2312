"""The will: 3.1.2.5 to 3.1.2.7, 3.1.3.2, and how a connection ends (3.14)."""

from __future__ import annotations

import pytest

from conformance.acts import BOTH, dismissed, kept, lasting, leave, lose, properties, will
from conformance.clock import Clock
from harness import Client, Live, live
from tidegate import wire
from tidegate.wire import Reason


async def watching(broker: Live, version: int = wire.V5, **options: bool) -> Client:
    watcher = await broker.connect("watcher", version=version)
    await watcher.subscribe("will", qos=2, **options)
    return watcher


# -- when it is published


@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_published_when_the_connection_is_lost(broker: Live, version: int, qos: int) -> None:
    """[MQTT-3.1.2-7] [MQTT-3.1.2-8] [MQTT-3.1.2-12], 3.1.1 [MQTT-3.1.2-8]: once, with its QoS, not retained."""
    watcher = await watching(broker, version)
    client = await broker.connect("c", version=version, will=will(payload=b"\x00\xff", qos=qos))
    await watcher.silent()
    await lose(client)
    message = await watcher.message()
    assert (message.topic, message.payload, message.qos, message.retain) == ("will", b"\x00\xff", qos, False)
    await watcher.silent()


@pytest.mark.parametrize("version", BOTH)
async def test_not_published_after_disconnect(broker: Live, version: int) -> None:
    """[MQTT-3.1.2-10] [MQTT-3.14.4-3], 3.1.1 [MQTT-3.14.4-3]: DISCONNECT deletes it."""
    watcher = await watching(broker)
    client = await broker.connect("c", version=version, will=will())
    await leave(client)
    await watcher.silent()


@pytest.mark.parametrize("version", BOTH)
async def test_deleted_for_good(broker: Live, version: int) -> None:
    """[MQTT-3.1.2-10]: a session without a will in its new connection has none, whatever it had before."""
    watcher = await watching(broker)
    client = await broker.connect("c", version=version, will=will(), **kept(version))
    await leave(client)
    client = await broker.connect("c", version=version, **kept(version))
    await lose(client)
    await watcher.silent()


@pytest.mark.parametrize(
    "reason", [Reason.DISCONNECT_WITH_WILL_MESSAGE, Reason.UNSPECIFIED_ERROR, Reason.QUOTA_EXCEEDED]
)
async def test_published_after_disconnect_with_another_reason(broker: Live, reason: int) -> None:
    """3.14.2.1 [MQTT-3.14.4-3]: only 0x00 deletes it."""
    watcher = await watching(broker)
    client = await broker.connect("c", will=will())
    await leave(client, reason)
    assert (await watcher.message()).payload == b"gone"


@pytest.mark.parametrize("version", BOTH)
async def test_published_when_the_client_breaks_the_protocol(broker: Live, version: int) -> None:
    """[MQTT-3.1.2-8]: the server closed the connection because of an error."""
    watcher = await watching(broker)
    client = await broker.connect("c", version=version, will=will())
    await client.raw(b"\xf0\x00" if version == wire.V311 else b"\x00\x00")
    await client.closed()
    assert (await watcher.message()).payload == b"gone"


@pytest.mark.parametrize("version", BOTH)
async def test_published_when_taken_over(broker: Live, version: int) -> None:
    """3.1.4 [MQTT-3.1.4-3]: the will of the connection that is taken over is published (no delay asked for)."""
    watcher = await watching(broker)
    first = await broker.connect("c", version=version, will=will(payload=b"first"))
    second = await broker.connect("c", version=version, will=will(payload=b"second"))
    await dismissed(first, Reason.SESSION_TAKEN_OVER)
    assert (await watcher.message()).payload == b"first"
    await watcher.silent()
    await lose(second)
    assert (await watcher.message()).payload == b"second"


async def test_reaches_the_clients_own_next_session(broker: Live) -> None:
    """[MQTT-3.1.2-8]: it is published like any message, also to who sent it."""
    client = await broker.connect("c", will=will(qos=1), **lasting())
    await client.subscribe("will", qos=1)
    await lose(client)
    client = await broker.connect("c", **lasting())
    assert (await client.message()).payload == b"gone"


# -- retained


@pytest.mark.parametrize("version", BOTH)
async def test_retained(broker: Live, version: int) -> None:
    """[MQTT-3.1.2-15], 3.1.1 [MQTT-3.1.2-17]: published as a retained message."""
    client = await broker.connect("c", version=version, will=will(qos=1, retain=True))
    await lose(client)
    watcher = await watching(broker, version)
    message = await watcher.message()
    assert (message.payload, message.retain) == (b"gone", True)


@pytest.mark.parametrize("version", BOTH)
async def test_not_retained(broker: Live, version: int) -> None:
    """[MQTT-3.1.2-14], 3.1.1 [MQTT-3.1.2-16]: published as a message that is not retained."""
    client = await broker.connect("c", version=version, will=will())
    await lose(client)
    watcher = await watching(broker, version)
    await watcher.silent()


async def test_retain_as_published(broker: Live) -> None:
    """[MQTT-3.3.1-13] with [MQTT-3.1.2-15]."""
    watcher = await watching(broker, retain_as_published=True)
    for retain in (False, True):
        client = await broker.connect("c", will=will(retain=retain))
        await lose(client)
        assert (await watcher.message()).retain == retain


@pytest.mark.parametrize("version", BOTH)
async def test_empty_will(broker: Live, version: int) -> None:
    """3.1.3.4: a will of no bytes is a will; retained, it removes what was retained."""
    await (await broker.connect("p")).publish("will", b"old", qos=1, retain=True)
    client = await broker.connect("c", version=version, will=will(payload=b"", retain=True))
    await lose(client)
    await (await watching(broker)).silent()


# -- properties


async def test_properties(broker: Live) -> None:
    """3.1.3.2.3 to 3.1.3.2.8 [MQTT-3.1.3-10]: all but the delay come with the message, user properties in order."""
    watcher = await watching(broker)
    given = {
        "payload_format_indicator": 1,
        "message_expiry_interval": 100,
        "content_type": "text/plain",
        "response_topic": "r/x",
        "correlation_data": b"\x01\x02",
        "user_properties": (("b", "1"), ("a", "2"), ("b", "1")),
    }
    client = await broker.connect("c", will=will(will_delay_interval=0, **given))
    await lose(client)
    assert (await watcher.message()).properties == properties(**given)


async def test_expiry_begins_when_it_is_published(broker: Live, clock: Clock) -> None:
    """3.1.3.2.4: the lifetime is sent as the expiry interval when the server publishes the will."""
    watcher = await watching(broker)
    client = await broker.connect("c", will=will(message_expiry_interval=10))
    await clock.advance(100)
    await lose(client)
    assert (await watcher.message()).properties.message_expiry_interval == 10


# -- delay


async def test_delay(broker: Live, clock: Clock) -> None:
    """[MQTT-3.1.2-8], 3.1.3.2.2: not before the delay has passed."""
    watcher = await watching(broker)
    client = await broker.connect("c", will=will(will_delay_interval=10), **lasting())
    await lose(client)
    await clock.advance(9)
    await watcher.silent()
    await clock.advance(1.1)
    assert (await watcher.message()).payload == b"gone"
    await clock.advance(10_000)
    await watcher.silent()


async def test_delay_after_disconnect_with_will(broker: Live, clock: Clock) -> None:
    """3.14.2.1: 0x04 has it published, after its delay."""
    watcher = await watching(broker)
    client = await broker.connect("c", will=will(will_delay_interval=10), **lasting())
    await leave(client, Reason.DISCONNECT_WITH_WILL_MESSAGE)
    await watcher.silent()
    await clock.advance(10.1)
    assert (await watcher.message()).payload == b"gone"


async def test_coming_back_in_time_cancels_it(broker: Live, clock: Clock) -> None:
    """[MQTT-3.1.3-9]: a new connection to the session before the delay has passed."""
    watcher = await watching(broker)
    client = await broker.connect("c", will=will(will_delay_interval=10), **lasting())
    await lose(client)
    await clock.advance(9)
    client = await broker.connect("c", **lasting())
    assert client.connack.session_present
    await clock.advance(100)
    await watcher.silent()


async def test_taking_over_cancels_a_delayed_will(broker: Live, clock: Clock) -> None:
    """[MQTT-3.1.3-9], 3.1.3.2.2: the new connection resumes the session, so the will waits for nothing."""
    watcher = await watching(broker)
    await broker.connect("c", will=will(will_delay_interval=10), **lasting())
    await broker.connect("c", **lasting())
    await clock.advance(100)
    await watcher.silent()


async def test_clean_start_does_not_cancel_it(broker: Live) -> None:
    """3.1.3.2.2 [MQTT-3.1.2-8]: a clean start ends the session, and with it the delay."""
    watcher = await watching(broker)
    client = await broker.connect("c", will=will(will_delay_interval=10), **lasting())
    await lose(client)
    await watcher.silent()
    await broker.connect("c")
    assert (await watcher.message()).payload == b"gone"


async def test_end_of_the_session_ends_the_delay(broker: Live, clock: Clock) -> None:
    """[MQTT-3.1.2-8], 3.1.3.2.2: whichever comes first."""
    watcher = await watching(broker)
    client = await broker.connect("c", will=will(will_delay_interval=100), **lasting(5))
    await lose(client)
    await clock.advance(4)
    await watcher.silent()
    await clock.advance(1.1)
    assert (await watcher.message()).payload == b"gone"
    await clock.advance(200)
    await watcher.silent()


async def test_no_session_to_wait_in(broker: Live) -> None:
    """[MQTT-3.1.2-8]: with session expiry 0 the session ends with the connection, and the will is due."""
    watcher = await watching(broker)
    client = await broker.connect("c", will=will(will_delay_interval=100))
    await lose(client)
    assert (await watcher.message()).payload == b"gone"


async def test_disconnect_can_end_the_session_and_publish(broker: Live) -> None:
    """3.14.2.2.2 with 3.14.2.1: session expiry 0 in DISCONNECT with 0x04 makes a delayed will due at once."""
    watcher = await watching(broker)
    client = await broker.connect("c", will=will(will_delay_interval=100), **lasting())
    await leave(client, Reason.DISCONNECT_WITH_WILL_MESSAGE, session_expiry_interval=0)
    assert (await watcher.message()).payload == b"gone"


async def test_a_refused_connect_has_no_will() -> None:
    """[MQTT-3.1.2-7]: the will is stored if the CONNECT is accepted."""
    text = (
        'listeners: [{url: "mqtt://127.0.0.1:PORT", anonymous: true}]\n'
        'directory: {users: {mary: {password: "plain:secret"}}}\n'
    )
    async with live(text) as broker:
        watcher = await watching(broker)
        client = await broker.connect("c", username="mary", password=b"wrong", will=will(), expect=0x86)
        await client.closed()
        await watcher.silent()
