"""The QoS flows: chapters 3.4 to 3.7, 4.3, 4.4, 4.6 and 4.9."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.acts import BOTH, dismissed, kept, lasting, leave, lose, properties, take
from conformance.clock import Clock
from harness import Live, live
from tidegate import wire
from tidegate.wire import Reason

ENDS = {"lost": lose, "left": leave}


# -- what clients send


@pytest.mark.parametrize("version", BOTH)
async def test_qos_2_is_handed_on_once(broker: Live, version: int) -> None:
    """[MQTT-4.3.3-8] [MQTT-4.3.3-10] [MQTT-4.3.3-11], 3.1.1 [MQTT-4.3.3-2]: duplicates before PUBREL count once."""
    watcher = await broker.connect("w")
    await watcher.subscribe("a", qos=2)
    client = await broker.connect("c", version=version)
    for dup in (False, True, True, False):
        await client.send(wire.Publish(topic="a", payload=b"x", qos=2, packet_id=5, dup=dup))
        answer = await client.expect(wire.Pubrec)
        assert (answer.packet_id, answer.reason) in ((5, 0), (5, Reason.NO_MATCHING_SUBSCRIBERS))
    for _ in range(2):
        await client.send(wire.Pubrel(packet_id=5))
        assert (await client.expect(wire.Pubcomp)).packet_id == 5
    assert (await watcher.message()).payload == b"x"
    await watcher.silent()


@pytest.mark.parametrize("version", BOTH)
async def test_packet_id_is_free_after_pubcomp(broker: Live, version: int) -> None:
    """[MQTT-4.3.3-12]: the same identifier after PUBCOMP is a new message."""
    watcher = await broker.connect("w")
    await watcher.subscribe("a", qos=2)
    client = await broker.connect("c", version=version)
    for payload in (b"1", b"2"):
        await client.publish("a", payload, qos=2, pid=5)
        assert (await watcher.message()).payload == payload


@pytest.mark.parametrize("version", BOTH)
async def test_qos_1_with_the_same_id_is_a_new_message(broker: Live, version: int) -> None:
    """[MQTT-4.3.2-5], 3.1.1 [MQTT-4.3.2-2]: after PUBACK, whether or not DUP is set."""
    watcher = await broker.connect("w")
    await watcher.subscribe("a", qos=1)
    client = await broker.connect("c", version=version)
    for payload, dup in ((b"1", False), (b"2", False), (b"3", True)):
        answer = await client.publish("a", payload, qos=1, pid=5, dup=dup)
        assert answer is not None
        assert answer.packet_id == 5
        assert (await watcher.message()).payload == payload


@pytest.mark.parametrize("version", BOTH)
async def test_one_id_in_each_direction(broker: Live, version: int) -> None:
    """2.2.1: client and server assign identifiers independently of each other."""
    client = await broker.connect("c", version=version)
    await client.subscribe("a", qos=2)
    await client.send(wire.Publish(topic="a", payload=b"x", qos=2, packet_id=1))
    await client.expect(wire.Pubrec)
    await client.send(wire.Pubrel(packet_id=1))
    packets = [await client.receive(), await client.receive()]
    publish = next(packet for packet in packets if isinstance(packet, wire.Publish))
    await client.send(wire.Pubrec(packet_id=publish.packet_id))
    assert (await client.expect(wire.Pubrel)).packet_id == publish.packet_id
    await client.send(wire.Pubcomp(packet_id=publish.packet_id))
    await client.silent()


async def test_refused_qos_2_frees_its_id(broker: Live) -> None:
    """[MQTT-4.3.3-9]: after PUBREC with an error the identifier stands for a new message."""
    watcher = await broker.connect("w")
    await watcher.subscribe("a", qos=2)
    client = await broker.connect("c")
    await client.send(wire.Publish(topic="$SYS/x", payload=b"", qos=2, packet_id=5))
    assert (await client.expect(wire.Pubrec)).reason >= 0x80
    await client.publish("a", b"new", qos=2, pid=5)
    assert (await watcher.message()).payload == b"new"


async def test_pubrel_for_an_unknown_id(broker: Live) -> None:
    """3.7.2.1 [MQTT-4.3.3-11]: PUBCOMP with 0x92; 3.1.1 is answered as ever."""
    client = await broker.connect("c")
    await client.send(wire.Pubrel(packet_id=77))
    answer = await client.expect(wire.Pubcomp)
    assert (answer.packet_id, answer.reason) == (77, Reason.PACKET_IDENTIFIER_NOT_FOUND)
    old = await broker.connect("o", version=wire.V311)
    await old.send(wire.Pubrel(packet_id=77))
    assert (await old.expect(wire.Pubcomp)).packet_id == 77


@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize("end", ENDS)
async def test_qos_2_goes_on_in_the_next_connection(broker: Live, version: int, end: str) -> None:
    """[MQTT-4.3.3-10] [MQTT-4.1.0-2]: received, not released identifiers are session state; handed on once."""
    watcher = await broker.connect("w")
    await watcher.subscribe("a", qos=2)
    client = await broker.connect("c", version=version, **kept(version))
    await client.send(wire.Publish(topic="a", payload=b"x", qos=2, packet_id=5))
    await client.expect(wire.Pubrec)
    await ENDS[end](client)
    client = await broker.connect("c", version=version, **kept(version))
    await client.send(wire.Publish(topic="a", payload=b"x", qos=2, packet_id=5, dup=True))
    await client.expect(wire.Pubrec)
    await client.send(wire.Pubrel(packet_id=5))
    assert (await client.expect(wire.Pubcomp)).reason == 0
    assert (await watcher.message()).payload == b"x"
    await watcher.silent()


@pytest.mark.parametrize("version", BOTH)
async def test_released_in_the_next_connection(broker: Live, version: int) -> None:
    """[MQTT-4.4.0-1]: the client may have lost PUBCOMP and sends PUBREL again."""
    watcher = await broker.connect("w")
    await watcher.subscribe("a", qos=2)
    client = await broker.connect("c", version=version, **kept(version))
    await client.send(wire.Publish(topic="a", payload=b"x", qos=2, packet_id=5))
    await client.expect(wire.Pubrec)
    await lose(client)
    client = await broker.connect("c", version=version, **kept(version))
    for _ in range(2):
        await client.send(wire.Pubrel(packet_id=5))
        await client.expect(wire.Pubcomp)
    assert (await watcher.message()).payload == b"x"
    await watcher.silent()


@pytest.mark.parametrize("version", BOTH)
async def test_clean_start_forgets_received_ids(broker: Live, version: int) -> None:
    """[MQTT-3.1.2-4]: nothing of the old session is left, so the identifier is new."""
    watcher = await broker.connect("w")
    await watcher.subscribe("a", qos=2)
    client = await broker.connect("c", version=version, **kept(version))
    await client.send(wire.Publish(topic="a", payload=b"old", qos=2, packet_id=5))
    await client.expect(wire.Pubrec)
    await lose(client)
    client = await broker.connect("c", version=version)
    await client.publish("a", b"new", qos=2, pid=5)
    assert (await watcher.message()).payload == b"new"
    await watcher.silent()


# -- what the server sends


@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("qos", [1, 2])
async def test_unacknowledged_is_sent_again_on_resume(broker: Live, version: int, end: str, qos: int) -> None:
    """[MQTT-4.4.0-1] [MQTT-3.3.1-1] [MQTT-4.6.0-1]: same identifiers, same order, DUP set; then nothing more."""
    client = await broker.connect("c", version=version, **kept(version))
    await client.subscribe("a", qos=qos)
    publisher = await broker.connect("p")
    sent = []
    for number in range(4):
        await publisher.publish("a", b"%d" % number, qos=qos)
        sent.append(await client.expect(wire.Publish))
    assert len({packet.packet_id for packet in sent}) == 4
    assert not any(packet.dup for packet in sent)
    await ENDS[end](client)
    client = await broker.connect("c", version=version, **kept(version))
    assert client.connack.session_present
    for before, again in zip(sent, await take(client, 4), strict=True):
        assert (again.packet_id, again.payload, again.dup) == (before.packet_id, before.payload, True)
    await client.silent()


@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize("qos", [1, 2])
async def test_nothing_is_sent_again_while_connected(broker: Live, clock: Clock, version: int, qos: int) -> None:
    """[MQTT-4.4.0-1]: reconnecting is the only reason to send again."""
    client = await broker.connect("c", version=version, **kept(version))
    await client.subscribe("a", qos=qos)
    publisher = await broker.connect("p")
    await publisher.publish("a", qos=qos)
    await client.expect(wire.Publish)
    await clock.advance(1000)
    await client.silent()


@pytest.mark.parametrize("version", BOTH)
async def test_pubrel_is_sent_again_on_resume(broker: Live, version: int) -> None:
    """[MQTT-4.4.0-1] [MQTT-4.3.3-5] [MQTT-4.3.3-6]: after PUBREC never the PUBLISH again, but PUBREL."""
    client = await broker.connect("c", version=version, **kept(version))
    await client.subscribe("a", qos=2)
    publisher = await broker.connect("p")
    await publisher.publish("a", qos=2)
    sent = await client.expect(wire.Publish)
    await client.send(wire.Pubrec(packet_id=sent.packet_id))
    await client.expect(wire.Pubrel)
    for _ in range(2):
        await lose(client)
        client = await broker.connect("c", version=version, **kept(version))
        assert (await client.expect(wire.Pubrel)).packet_id == sent.packet_id
    await client.send(wire.Pubcomp(packet_id=sent.packet_id))
    await client.silent()
    await leave(client)
    client = await broker.connect("c", version=version, **kept(version))
    await client.silent()


@pytest.mark.parametrize("version", BOTH)
async def test_pubrels_in_the_order_of_pubrecs(broker: Live, version: int) -> None:
    """[MQTT-4.6.0-4]."""
    client = await broker.connect("c", version=version)
    await client.subscribe("a", qos=2)
    publisher = await broker.connect("p")
    ids = []
    for _ in range(3):
        await publisher.publish("a", qos=2)
        ids.append((await client.expect(wire.Publish)).packet_id)
    order = [ids[2], ids[0], ids[1]]
    for number in order:
        await client.send(wire.Pubrec(packet_id=number))
    assert [(await client.expect(wire.Pubrel)).packet_id for _ in order] == order


@pytest.mark.parametrize("version", BOTH)
async def test_mixed_state_on_resume(broker: Live, version: int) -> None:
    """[MQTT-4.4.0-1]: acknowledged ones are gone, the others are where they were, queued ones follow with DUP 0."""
    client = await broker.connect("c", version=version, **kept(version))
    await client.subscribe("a", qos=2)
    publisher = await broker.connect("p")
    await publisher.publish("a", b"one", qos=1)
    await publisher.publish("a", b"two", qos=2)
    await publisher.publish("a", b"three", qos=1)
    await publisher.publish("a", b"four", qos=2)
    one, two, three, four = [await client.expect(wire.Publish) for _ in range(4)]
    await client.send(wire.Puback(packet_id=one.packet_id))
    await client.send(wire.Pubrec(packet_id=two.packet_id))
    assert (await client.expect(wire.Pubrel)).packet_id == two.packet_id
    await lose(client)
    await publisher.publish("a", b"five", qos=1)
    client = await broker.connect("c", version=version, **kept(version))
    assert (await client.expect(wire.Pubrel)).packet_id == two.packet_id
    for before in (three, four):
        again = await client.expect(wire.Publish)
        assert (again.packet_id, again.payload, again.dup) == (before.packet_id, before.payload, True)
    last = await client.expect(wire.Publish)
    assert (last.payload, last.dup) == (b"five", False)
    assert last.packet_id not in (two.packet_id, three.packet_id, four.packet_id)


async def test_pubrec_with_an_error_ends_the_exchange(broker: Live) -> None:
    """[MQTT-4.3.3-4]: no PUBREL, never sent again, and the window is open for the next (4.9)."""
    client = await broker.connect("c", **lasting(receive_maximum=1))
    await client.subscribe("a", qos=2)
    publisher = await broker.connect("p")
    await publisher.publish("a", b"1", qos=2)
    await publisher.publish("a", b"2", qos=2)
    first = await client.expect(wire.Publish)
    await client.send(wire.Pubrec(packet_id=first.packet_id, reason=Reason.QUOTA_EXCEEDED))
    second = await client.expect(wire.Publish)
    assert second.payload == b"2"
    await lose(client)
    client = await broker.connect("c", **lasting())
    assert (await client.message()).payload == b"2"
    await client.silent()


async def test_puback_with_an_error_ends_the_exchange(broker: Live) -> None:
    """3.4.2.1 [MQTT-4.4.0-2]: acknowledged is acknowledged."""
    client = await broker.connect("c", **lasting())
    await client.subscribe("a", qos=1)
    publisher = await broker.connect("p")
    await publisher.publish("a", b"1", qos=1)
    sent = await client.expect(wire.Publish)
    await client.send(wire.Puback(packet_id=sent.packet_id, reason=Reason.UNSPECIFIED_ERROR))
    await client.silent()
    await leave(client)
    await (await broker.connect("c", **lasting())).silent()


async def test_pubrec_for_an_unknown_id(broker: Live) -> None:
    """3.6.2.1: PUBREL with 0x92; 3.1.1 is answered as ever."""
    client = await broker.connect("c")
    await client.send(wire.Pubrec(packet_id=77))
    answer = await client.expect(wire.Pubrel)
    assert (answer.packet_id, answer.reason) == (77, Reason.PACKET_IDENTIFIER_NOT_FOUND)
    old = await broker.connect("o", version=wire.V311)
    await old.send(wire.Pubrec(packet_id=77))
    assert (await old.expect(wire.Pubrel)).packet_id == 77


@pytest.mark.parametrize("version", BOTH)
async def test_unknown_pubcomp_and_puback_are_harmless(broker: Live, version: int) -> None:
    """4.13.2: an identifier nobody waits for is not an error that ends the connection."""
    client = await broker.connect("c", version=version)
    await client.send(wire.Puback(packet_id=77))
    await client.send(wire.Pubcomp(packet_id=77))
    await client.silent()


@pytest.mark.parametrize("version", BOTH)
async def test_repeated_pubrec(broker: Live, version: int) -> None:
    """[MQTT-4.3.3-4]: each PUBREC is answered with PUBREL, until PUBCOMP."""
    client = await broker.connect("c", version=version)
    await client.subscribe("a", qos=2)
    publisher = await broker.connect("p")
    await publisher.publish("a", qos=2)
    sent = await client.expect(wire.Publish)
    for _ in range(2):
        await client.send(wire.Pubrec(packet_id=sent.packet_id))
        assert (await client.expect(wire.Pubrel)).packet_id == sent.packet_id
    await client.send(wire.Pubcomp(packet_id=sent.packet_id))
    await client.silent()


# -- packet identifiers


@pytest.mark.parametrize("version", BOTH)
async def test_ids_in_use_are_not_used_again(broker: Live, version: int) -> None:
    """[MQTT-2.2.1-4], 3.1.1 [MQTT-2.3.1-4]: also after all 65,535 have been used once."""
    client = await broker.connect("c", version=version)
    await client.subscribe("a", qos=1)
    publisher = await broker.connect("p")
    await publisher.publish("a", b"kept", qos=1)
    held = (await client.expect(wire.Publish)).packet_id
    session = next(one for one in broker.node.scopes["main"].sessions.values() if one.client == "c")
    session.pid = 65533
    seen = []
    for _ in range(5):
        await publisher.publish("a", b"x", qos=1)
        seen.append((await client.message()).packet_id)
    assert held not in seen
    assert 0 not in seen
    assert all(0 < number < 65536 for number in seen)


# -- flow control


@pytest.mark.parametrize("qos", [1, 2])
async def test_receive_maximum_of_the_client(broker: Live, qos: int) -> None:
    """[MQTT-3.3.4-9] [MQTT-4.9.0-1] [MQTT-4.9.0-2] [MQTT-4.9.0-3]: no more than it takes, the rest waits its turn."""
    client = await broker.connect("c", properties=properties(receive_maximum=2))
    await client.subscribe("a", qos=2)
    publisher = await broker.connect("p")
    for number in range(5):
        await publisher.publish("a", b"%d" % number, qos=qos)
    first = await client.expect(wire.Publish)
    second = await client.expect(wire.Publish)
    await client.silent()
    if qos == 2:
        for sent in (first, second):
            await client.send(wire.Pubrec(packet_id=sent.packet_id))
            assert (await client.expect(wire.Pubrel)).packet_id == sent.packet_id
        await client.silent()  # PUBREC alone does not make room
        await client.send(wire.Pubcomp(packet_id=first.packet_id))
    else:
        await client.send(wire.Puback(packet_id=first.packet_id))
    assert (await client.expect(wire.Publish)).payload == b"2"
    await client.silent()


async def test_qos_0_passes_a_full_window(broker: Live) -> None:
    """[MQTT-3.3.4-9], 4.9: QoS 0 is not counted."""
    client = await broker.connect("c", properties=properties(receive_maximum=1))
    await client.subscribe("a", qos=1)
    publisher = await broker.connect("p")
    await publisher.publish("a", b"1", qos=1)
    await publisher.publish("a", b"2", qos=1)
    await publisher.publish("a", b"0")
    assert [(await client.expect(wire.Publish)).payload for _ in range(2)] == [b"1", b"0"]
    await client.silent()


async def test_receive_maximum_holds_on_resume(broker: Live) -> None:
    """4.9: the quota begins anew with each connection, and counts what is sent again."""
    client = await broker.connect("c", **lasting(receive_maximum=4))
    await client.subscribe("a", qos=1)
    publisher = await broker.connect("p")
    for number in range(6):
        await publisher.publish("a", b"%d" % number, qos=1)
    for _ in range(4):
        await client.expect(wire.Publish)
    await lose(client)
    client = await broker.connect("c", **lasting(receive_maximum=2))
    got = []
    for _ in range(2):
        got.append(await client.expect(wire.Publish))
    await client.silent()
    for packet in got:
        await client.send(wire.Puback(packet_id=packet.packet_id))
    got += await take(client, 4)
    assert [packet.payload for packet in got] == [b"%d" % number for number in range(6)]
    assert [packet.dup for packet in got] == [True] * 4 + [False] * 2
    await client.silent()


async def test_receive_maximum_of_the_server_qos_2() -> None:
    """[MQTT-3.3.4-7], 3.3.4: more than it takes without PUBCOMP ends the connection with 0x93."""
    async with live("limits: {receive_maximum: 3}\n") as broker:
        client = await broker.connect("c")
        assert client.connack.properties.receive_maximum == 3
        for number in range(1, 4):
            await client.send(wire.Publish(topic="a", payload=b"", qos=2, packet_id=number))
            await client.expect(wire.Pubrec)
        await client.send(wire.Publish(topic="a", payload=b"", qos=2, packet_id=3, dup=True))
        await client.expect(wire.Pubrec)  # a duplicate is not one more
        await client.send(wire.Pubrel(packet_id=1))
        await client.expect(wire.Pubcomp)
        await client.send(wire.Publish(topic="a", payload=b"", qos=2, packet_id=4))
        await client.expect(wire.Pubrec)
        await client.send(wire.Publish(topic="a", payload=b"", qos=2, packet_id=5))
        await dismissed(client, Reason.RECEIVE_MAXIMUM_EXCEEDED)


async def test_receive_maximum_of_the_server_counts_qos_1() -> None:
    """3.3.4: a QoS 1 publish on top of as many open QoS 2 ones as are allowed is one too many."""
    async with live("limits: {receive_maximum: 2}\n") as broker:
        client = await broker.connect("c")
        for number in (1, 2):
            await client.send(wire.Publish(topic="a", payload=b"", qos=2, packet_id=number))
            await client.expect(wire.Pubrec)
        await client.send(wire.Publish(topic="a", payload=b"", qos=1, packet_id=3))
        await dismissed(client, Reason.RECEIVE_MAXIMUM_EXCEEDED)


async def test_receive_maximum_is_not_exceeded_by_acknowledged_ones() -> None:
    """3.3.4: what has been acknowledged does not count, nor does what was refused with PUBREC."""
    async with live("limits: {receive_maximum: 1}\n") as broker:
        client = await broker.connect("c")
        for number in range(1, 20):
            await client.publish("a", qos=1 + number % 2)
        for number in range(100, 105):
            await client.send(wire.Publish(topic="$SYS/x", payload=b"", qos=2, packet_id=number))
            assert (await client.expect(wire.Pubrec)).reason >= 0x80
        await client.publish("a", qos=2)


@pytest.mark.parametrize("qos", [1, 2])
async def test_as_many_as_the_server_takes_at_once(tmp_path: Path, qos: int) -> None:
    """3.3.4: exactly the receive maximum, in one go, is allowed; also when acknowledgements wait for the disk."""
    async with live("limits: {receive_maximum: 10}\n", data=tmp_path) as broker:
        watcher = await broker.connect("w", **lasting())
        await watcher.subscribe("a", qos=2)
        client = await broker.connect("c", **lasting())
        packets = [wire.Publish(topic="a", payload=b"x", qos=qos, packet_id=number) for number in range(1, 11)]
        await client.raw(b"".join(wire.encode(packet, 5) for packet in packets))
        for packet in packets:
            answer = await client.expect(wire.Puback if qos == 1 else wire.Pubrec)
            assert answer.packet_id == packet.packet_id
        await client.silent()


async def test_receive_maximum_is_for_mqtt_5() -> None:
    """3.1.1 knows no receive maximum."""
    async with live("limits: {receive_maximum: 1}\n") as broker:
        client = await broker.connect("c", version=wire.V311)
        for number in range(1, 5):
            await client.send(wire.Publish(topic="a", payload=b"", qos=2, packet_id=number))
            await client.expect(wire.Pubrec)
        await client.silent()


async def test_inflight_of_311() -> None:
    """4.9 does not bind 3.1.1; the server still bounds what is on its way, and delivers all of it."""
    async with live("limits: {inflight: 2}\n") as broker:
        client = await broker.connect("c", version=wire.V311)
        await client.subscribe("a", qos=1)
        publisher = await broker.connect("p")
        for number in range(5):
            await publisher.publish("a", b"%d" % number, qos=1)
        first = await client.expect(wire.Publish)
        second = await client.expect(wire.Publish)
        await client.silent()
        await client.send(wire.Puback(packet_id=first.packet_id))
        await client.send(wire.Puback(packet_id=second.packet_id))
        assert [(await client.message()).payload for _ in range(3)] == [b"2", b"3", b"4"]


# -- expiry and the flows


@pytest.mark.parametrize("qos", [1, 2])
async def test_what_was_sent_does_not_expire(broker: Live, clock: Clock, qos: int) -> None:
    """[MQTT-4.3.2-3] [MQTT-4.3.3-7] with [MQTT-4.4.0-1]: expiry is for what delivery has not begun of."""
    client = await broker.connect("c", **lasting())
    await client.subscribe("a", qos=2)
    publisher = await broker.connect("p")
    await publisher.publish("a", b"x", qos=qos, properties=properties(message_expiry_interval=5))
    sent = await client.expect(wire.Publish)
    await lose(client)
    await clock.advance(10)
    client = await broker.connect("c", **lasting())
    again = await client.message()
    assert (again.packet_id, again.payload, again.dup) == (sent.packet_id, b"x", True)


async def test_qos_2_exchange_ends_although_the_message_expired(broker: Live, clock: Clock) -> None:
    """[MQTT-4.3.3-13] [MQTT-3.3.2-5]: PUBREL is answered as ever; the message is not handed on any more."""
    watcher = await broker.connect("w")
    await watcher.subscribe("a", qos=2)
    client = await broker.connect("c")
    short = properties(message_expiry_interval=5)
    await client.send(wire.Publish(topic="a", payload=b"x", qos=2, packet_id=5, properties=short))
    await client.expect(wire.Pubrec)
    await clock.advance(10)
    await client.send(wire.Pubrel(packet_id=5))
    assert (await client.expect(wire.Pubcomp)).reason == 0
    await watcher.silent()
