"""Publishing and the acknowledgements of each (Mosquitto: 03-publish-*, 02-subpub-qos2-1322, -pubrec-error, FLOW)."""

from __future__ import annotations

import pytest

from conformance.mosquitto.steps import BOTH, ended, later, stays
from harness import Client, Live, live
from tidegate import wire
from tidegate.wire import Properties


@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize("dup", [False, True])
async def test_qos_1_and_2_are_acknowledged(version: int, dup: bool) -> None:
    async with live() as node:
        client = await node.connect("client", version=version)
        await client.send(wire.Publish(topic="t", payload=b"x", qos=1, packet_id=19, dup=dup))
        nobody = 0x10 if version == wire.V5 else 0
        assert await client.expect(wire.Puback) == wire.Puback(packet_id=19, reason=nobody)
        await client.send(wire.Publish(topic="t", payload=b"x", qos=2, packet_id=312, dup=dup))
        answer = await client.expect(wire.Pubrec)
        assert (answer.packet_id, answer.reason) in ((312, 0), (312, nobody))
        await client.send(wire.Pubrel(packet_id=312))
        assert await client.expect(wire.Pubcomp) == wire.Pubcomp(packet_id=312)


RELEASES = [b"\x62\x02\x00\x01", b"\x62\x03\x00\x01\x00", b"\x62\x04\x00\x01\x00\x00"]
RELEASES.append(b"\x62\x11\x00\x01\x00\x0d\x26\x00\x03key\x00\x05value")


@pytest.mark.parametrize("raw", RELEASES, ids=lambda raw: raw.hex())
async def test_every_form_of_pubrel(raw: bytes) -> None:
    async with live() as node:
        client = await node.connect("client")
        await client.send(wire.Publish(topic="pubrel-test", payload=b"x", qos=2, packet_id=1))
        await client.expect(wire.Pubrec)
        await client.raw(raw)
        assert await client.expect(wire.Pubcomp) == wire.Pubcomp(packet_id=1)


FORMS = [b"\x00\x01", b"\x00\x01\x00", b"\x00\x01\x00\x00", b"\x00\x01\x00\x0d\x26\x00\x03key\x00\x05value"]


@pytest.mark.parametrize("form", FORMS, ids=lambda raw: raw.hex())
@pytest.mark.parametrize("qos", [1, 2])
async def test_every_form_of_acknowledgement(form: bytes, qos: int) -> None:
    """All of them make room for the next message."""
    async with live() as node:
        client = await node.connect("client", properties=Properties(receive_maximum=1))
        await client.subscribe("t", qos=qos)
        helper = await node.connect("helper")
        await helper.publish("t", b"1", qos=qos)
        await helper.publish("t", b"2", qos=qos)
        assert (await client.expect(wire.Publish)).packet_id == 1
        frame = bytes((len(form),)) + form
        if qos == 1:
            await client.raw(b"\x40" + frame)
        else:
            await client.raw(b"\x50" + frame)
            await client.expect(wire.Pubrel)
            await client.raw(b"\x70" + frame)
        assert (await client.message()).payload == b"2"


@pytest.mark.parametrize("version", BOTH)
async def test_repeated_qos_2_publish_is_handed_on_once(version: int) -> None:
    """[MQTT-4.3.3-10]. Mosquitto hands on the last and closes at the third; the specification asks for neither."""
    async with live() as node:
        watcher = await node.connect("watcher", version=version)
        await watcher.subscribe("#", qos=2)
        client = await node.connect("client", version=version)
        for topic, payload in (("pub/qos2/test", b"message"), ("pub/qos2/test", b"message"), ("pub/qos2/reuse", b"")):
            await client.send(wire.Publish(topic=topic, payload=payload, qos=2, packet_id=312))
            assert (await client.expect(wire.Pubrec)).packet_id == 312
        await watcher.silent()
        await client.send(wire.Pubrel(packet_id=312))
        await client.expect(wire.Pubcomp)
        assert (await watcher.message()).topic == "pub/qos2/test"
        await watcher.silent()
        await client.publish("pub/qos2/test", b"new", qos=2, pid=312)
        assert (await watcher.message()).payload == b"new"


@pytest.mark.parametrize("version", BOTH)
async def test_same_id_on_every_connection(version: int) -> None:
    """Each message goes where it belongs although a session uses one packet id for all of them."""
    async with live() as node:
        subs = [await node.connect(f"sub{number}", version=version) for number in (1, 2)]
        for number, sub in enumerate(subs, 1):
            await sub.subscribe(f"topic{number}")
        for number, target in enumerate((1, 3, 1, 2, 1), 1):
            client = await node.connect("pub", version=version, **stays(version))
            assert client.connack.session_present == (number > 1)
            await client.publish(f"topic{target}", b"%d" % number, qos=2, pid=1)
            client.abort()
            for sub in subs:
                if subs.index(sub) == target - 1:
                    assert (await sub.message()).payload == b"%d" % number
                await sub.silent()


async def _delivered(node: Live, version: int, qos: int) -> tuple[Client, int]:
    """A client with one unacknowledged message, and its packet id."""
    client = await node.connect("client", version=version)
    await client.subscribe("p", qos=qos)
    helper = await node.connect("helper")
    await helper.publish("p", b"message", qos=qos)
    return client, (await client.expect(wire.Publish)).packet_id


WRONG_ANSWERS = [
    ("PUBREC to QoS 1", 1, (), wire.Pubrec),
    ("PUBCOMP to QoS 1", 1, (), wire.Pubcomp),
    ("PUBACK to QoS 2", 2, (), wire.Puback),
    ("PUBCOMP to QoS 2", 2, (), wire.Pubcomp),
    ("PUBACK to PUBREL", 2, (wire.Pubrec,), wire.Puback),
]


@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize(
    ("qos", "before", "wrong"), [row[1:] for row in WRONG_ANSWERS], ids=[row[0] for row in WRONG_ANSWERS]
)
async def test_acknowledgement_of_another_kind_is_a_protocol_error(
    version: int, qos: int, before: tuple[type[wire.Pubrec], ...], wrong: type[wire.Puback]
) -> None:
    """4.13 and 1.2: inconsistent with the state of the server; 3.1.1 [MQTT-4.8.0-1]."""
    async with live() as node:
        client, pid = await _delivered(node, version, qos)
        for kind in before:
            await client.send(kind(packet_id=pid))
            await client.expect(wire.Pubrel)
        await client.send(wrong(packet_id=pid))
        assert await ended(client) in ({0x82} if version == wire.V5 else {None})


@pytest.mark.parametrize("version", BOTH)
async def test_repeated_pubrec_is_answered_again(version: int) -> None:
    async with live() as node:
        client, pid = await _delivered(node, version, 2)
        for _ in range(2):
            await client.send(wire.Pubrec(packet_id=pid))
            assert await client.expect(wire.Pubrel) == wire.Pubrel(packet_id=pid)
        await client.send(wire.Pubcomp(packet_id=pid))
        await client.silent()


@pytest.mark.parametrize("version", BOTH)
async def test_acknowledgement_of_nothing_is_no_error(version: int) -> None:
    """4.3.3: after a loss on either side these are answered, or ignored."""
    async with live() as node:
        client = await node.connect("client", version=version)
        missing = 0x92 if version == wire.V5 else 0
        await client.send(wire.Puback(packet_id=77))
        await client.send(wire.Pubcomp(packet_id=77))
        await client.silent()
        await client.send(wire.Pubrec(packet_id=77))
        assert await client.expect(wire.Pubrel) == wire.Pubrel(packet_id=77, reason=missing)
        await client.send(wire.Pubrel(packet_id=77))
        assert await client.expect(wire.Pubcomp) == wire.Pubcomp(packet_id=77, reason=missing)


async def test_pubrec_with_an_error_ends_the_delivery() -> None:
    async with live() as node:
        client = await node.connect("client", properties=Properties(receive_maximum=1))
        await client.subscribe("qos2/pubrec/+", qos=2)
        helper = await node.connect("helper", version=wire.V311)
        await helper.publish("qos2/pubrec/rejected", qos=2)
        await helper.publish("qos2/pubrec/accepted", qos=2)
        first = await client.expect(wire.Publish)
        await client.send(wire.Pubrec(packet_id=first.packet_id, reason=0x80))
        second = await client.message()
        assert second.topic == "qos2/pubrec/accepted"
        await client.silent()


async def test_puback_with_an_error_ends_the_delivery() -> None:
    async with live() as node:
        client = await node.connect("client", **stays(wire.V5))
        await client.subscribe("t", qos=1)
        helper = await node.connect("helper")
        await helper.publish("t", qos=1)
        await client.send(wire.Puback(packet_id=(await client.expect(wire.Publish)).packet_id, reason=0x80))
        await client.silent()
        client.abort()
        await (await node.connect("client", **stays(wire.V5))).silent()


@pytest.mark.parametrize("version", BOTH)
async def test_more_than_receive_maximum_at_once(version: int) -> None:
    """[MQTT-3.3.4-9] 5.0 is disconnected; 3.1.1 was never told a maximum."""
    async with live("limits: {receive_maximum: 20}") as node:
        client = await node.connect("client", version=version)
        if version == wire.V5:
            assert client.connack.properties.receive_maximum == 20
        for pid in range(1, 21):
            await client.send(wire.Publish(topic="t", payload=b"x", qos=2, packet_id=pid))
            assert (await client.expect(wire.Pubrec)).packet_id == pid
        await client.send(wire.Publish(topic="t", payload=b"x", qos=2, packet_id=21))
        if version == wire.V5:
            assert await ended(client) == 0x93
        else:
            assert (await client.expect(wire.Pubrec)).packet_id == 21


@pytest.mark.parametrize("version", BOTH)
async def test_qos_1_resent_after_a_lost_connection(version: int) -> None:
    """Server to client: the same id, with DUP, until it is acknowledged, and not after."""
    async with live() as node:
        client = await node.connect("client", version=version, **stays(version))
        await client.subscribe("qos1/disconnect/test", qos=1)
        helper = await node.connect("helper")
        await helper.publish("qos1/disconnect/test", b"disconnect-message", qos=1)
        first = await client.expect(wire.Publish)
        assert not first.dup
        client.abort()
        client = await node.connect("client", version=version, **stays(version))
        assert client.connack.session_present
        again = await client.message()
        assert (again.dup, again.packet_id, again.payload) == (True, first.packet_id, first.payload)
        await client.silent()
        client.abort()
        client = await node.connect("client", version=version, **stays(version))
        await client.silent()


@pytest.mark.parametrize("version", BOTH)
async def test_qos_2_resumed_at_every_step(version: int) -> None:
    """Server to client: PUBLISH again before PUBREC, PUBREL again before PUBCOMP."""
    async with live() as node:
        client = await node.connect("client", version=version, **stays(version))
        await client.subscribe("t", qos=2)
        helper = await node.connect("helper")
        await helper.publish("t", b"disconnect-message", qos=2)
        pid = (await client.expect(wire.Publish)).packet_id

        async def again() -> Client:
            client.abort()
            return await node.connect("client", version=version, **stays(version))

        client = await again()
        resent = await client.expect(wire.Publish)
        assert (resent.dup, resent.packet_id) == (True, pid)
        await client.send(wire.Pubrec(packet_id=pid))
        await client.expect(wire.Pubrel)
        client = await again()
        assert await client.expect(wire.Pubrel) == wire.Pubrel(packet_id=pid)
        await client.send(wire.Pubcomp(packet_id=pid))
        await client.silent()
        client = await again()
        await client.silent()


@pytest.mark.parametrize("version", BOTH)
async def test_qos_2_from_a_client_resumed_at_every_step(version: int) -> None:
    async with live() as node:
        watcher = await node.connect("watcher", version=version)
        await watcher.subscribe("t", qos=2)

        async def connect() -> Client:
            return await node.connect("client", version=version, **stays(version))

        client = await connect()
        await client.send(wire.Publish(topic="t", payload=b"x", qos=2, packet_id=1))
        await client.expect(wire.Pubrec)
        client.abort()
        client = await connect()
        await client.send(wire.Publish(topic="t", payload=b"x", qos=2, packet_id=1, dup=True))
        assert (await client.expect(wire.Pubrec)).packet_id == 1
        await client.send(wire.Pubrel(packet_id=1))
        await client.expect(wire.Pubcomp)
        client.abort()
        client = await connect()
        await client.send(wire.Pubrel(packet_id=1))
        assert (await client.expect(wire.Pubcomp)).packet_id == 1
        await watcher.message()
        await watcher.silent()


async def test_expired_in_the_queue_makes_room() -> None:
    """What expires while it waits is not sent, and what comes after it is."""
    async with live("limits: {inflight: 1}") as node:
        client = await node.connect("sub", **stays(wire.V5))
        await client.subscribe("pub/qos1/test", qos=1)
        await client.disconnect()
        helper = await node.connect("helper")
        await helper.publish("pub/qos1/test", b"old", qos=1, properties=Properties(message_expiry_interval=1))
        await later(node, 2)
        client = await node.connect("sub", **stays(wire.V5))
        await helper.publish("pub/qos1/test", b"new", qos=1)
        assert (await client.message()).payload == b"new"


@pytest.mark.parametrize("qos", [1, 2])
async def test_expired_while_under_way_is_resent(qos: int) -> None:
    """[MQTT-4.4.0-1]; [MQTT-3.3.2-5] lets go only of what has not begun. Mosquitto drops it all the same."""
    async with live() as node:
        client = await node.connect("sub", **stays(wire.V5))
        await client.subscribe("t", qos=qos)
        helper = await node.connect("helper")
        await helper.publish("t", b"begun", qos=qos, properties=Properties(message_expiry_interval=1))
        pid = (await client.expect(wire.Publish)).packet_id
        client.abort()
        await later(node, 2)
        client = await node.connect("sub", **stays(wire.V5))
        await client.send(wire.Pingreq())
        again = await client.expect(wire.Publish)
        assert (again.dup, again.packet_id) == (True, pid)


@pytest.mark.parametrize("version", BOTH)
async def test_nobody_may_know_whether_anybody_listens_in_311(version: int) -> None:
    """5.0 may be told 0x10 when nobody matches, and is told success when somebody does."""
    async with live() as node:
        client = await node.connect("client", version=version)
        other = await node.connect("other", version=version)
        nobody = await client.publish("t", qos=1)
        await other.subscribe("t")
        somebody = await client.publish("t", qos=1)
        assert isinstance(nobody, wire.Puback)
        assert isinstance(somebody, wire.Puback)
        assert (nobody.reason, somebody.reason) == ((0x10, 0) if version == wire.V5 else (0, 0))
