"""Shared subscriptions: 4.8.2."""

from __future__ import annotations

import pytest

from conformance.acts import BOTH, lasting, leave, lose, properties, take
from harness import Client, Live
from tidegate import wire
from tidegate.wire import Reason


async def members(broker: Live, count: int, filter: str = "$share/g/a", qos: int = 2, version: int = 5) -> list[Client]:
    clients = [await broker.connect(f"m{number}", version=version) for number in range(count)]
    for client in clients:
        assert (await client.subscribe(filter, qos=qos)).reasons == (qos,)
    return clients


async def waiting(clients: list[Client]) -> list[list[wire.Publish]]:
    """What each has been sent, acknowledged; returns when there is no more."""
    found: list[list[wire.Publish]] = []
    for client in clients:
        mine: list[wire.Publish] = []
        await client.send(wire.Pingreq())
        while not isinstance(packet := await client.receive(), wire.Pingresp):
            assert isinstance(packet, wire.Publish)
            mine.append(packet)
            if packet.qos == 1:
                await client.send(wire.Puback(packet_id=packet.packet_id))
        found.append(mine)
    return found


@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize("qos", [0, 1])
async def test_each_message_goes_to_one_member(broker: Live, version: int, qos: int) -> None:
    """4.8.2: to one of them; all take part."""
    clients = await members(broker, 3, version=version)
    publisher = await broker.connect("p", version=version)
    for number in range(30):
        await publisher.publish("a", b"%d" % number, qos=qos)
    await publisher.silent()
    found = await waiting(clients)
    assert sorted(int(one.payload) for mine in found for one in mine) == list(range(30))
    assert all(mine for mine in found)
    for mine in found:
        numbers = [int(one.payload) for one in mine]
        assert numbers == sorted(numbers)


async def test_groups_are_independent(broker: Live) -> None:
    """4.8.2: each share, and each subscription that is not shared, gets its copy."""
    one = await broker.connect("one")
    two = await broker.connect("two")
    plain = await broker.connect("plain")
    await one.subscribe("$share/g/a/+")
    await two.subscribe("$share/h/a/+")
    await plain.subscribe("a/+")
    publisher = await broker.connect("p")
    await publisher.publish("a/b")
    for client in (one, two, plain):
        assert (await client.message()).topic == "a/b"
        await client.silent()


async def test_the_same_name_with_another_filter_is_another_group(broker: Live) -> None:
    """4.8.2: a shared subscription is named by share name and filter together."""
    one = await broker.connect("one")
    two = await broker.connect("two")
    await one.subscribe("$share/g/a")
    await two.subscribe("$share/g/#")
    publisher = await broker.connect("p")
    await publisher.publish("a")
    for client in (one, two):
        await client.message()
        await client.silent()


async def test_shared_and_not_shared_in_one_session(broker: Live) -> None:
    """4.8.2: a session may have both, and gets both copies."""
    client = await broker.connect("c")
    await client.subscribe("a", properties=properties(subscription_identifiers=(1,)))
    await client.subscribe("$share/g/a", properties=properties(subscription_identifiers=(2,)))
    publisher = await broker.connect("p")
    await publisher.publish("a")
    ids = [message.properties.subscription_identifiers for message in await take(client, 2)]
    assert sorted(ids) == [(1,), (2,)]


@pytest.mark.parametrize("granted", [0, 1, 2])
async def test_qos_of_each_member(broker: Live, granted: int) -> None:
    """[MQTT-4.8.2-3]: the QoS granted to the member it goes to."""
    clients = await members(broker, 1, qos=granted)
    publisher = await broker.connect("p")
    for qos in (0, 1, 2):
        await publisher.publish("a", qos=qos)
        assert (await clients[0].message()).qos == min(qos, granted)


async def test_no_retained_messages_for_shares(broker: Live) -> None:
    """4.8.2 with [MQTT-3.3.1-9]: retained messages are not sent to a shared subscription, whatever the handling."""
    publisher = await broker.connect("p")
    await publisher.publish("a", qos=1, retain=True)
    client = await broker.connect("c")
    for handling in (0, 1, 2):
        await client.subscribe("$share/g/a", retain_handling=handling)
        await client.silent()


async def test_retain_as_published_in_shares(broker: Live) -> None:
    """[MQTT-3.3.1-12] [MQTT-3.3.1-13]: the option counts here as well."""
    client = await broker.connect("c")
    publisher = await broker.connect("p")
    for option in (False, True):
        await client.subscribe("$share/g/a", retain_as_published=option)
        await publisher.publish("a", qos=1, retain=True)
        assert (await client.message()).retain == option


async def test_publisher_may_be_a_member(broker: Live) -> None:
    """4.8.2: No Local cannot be asked for, so one's own message may come back."""
    client = await broker.connect("c")
    await client.subscribe("$share/g/a")
    await client.send(wire.Publish(topic="a", payload=b"x"))
    assert (await client.message()).payload == b"x"


async def test_unsubscribe_leaves_the_group(broker: Live) -> None:
    """4.8.2 [MQTT-3.10.4-1]: by the whole filter, `$share` included."""
    one, two = await members(broker, 2)
    assert (await one.unsubscribe("a")).reasons == (Reason.NO_SUBSCRIPTION_EXISTED,)
    assert (await one.unsubscribe("$share/g/a")).reasons == (0,)
    publisher = await broker.connect("p")
    for _ in range(4):
        await publisher.publish("a")
    await take(two, 4)
    await one.silent()


async def test_the_group_ends_with_its_last_member(broker: Live) -> None:
    """4.8.2: no members, no subscription."""
    (one,) = await members(broker, 1)
    await leave(one)
    publisher = await broker.connect("p")
    answer = await publisher.publish("a", qos=1)
    assert answer is not None
    assert answer.reason == Reason.NO_MATCHING_SUBSCRIBERS


async def test_connected_members_come_first(broker: Live) -> None:
    """4.8.2: the server may choose; one that is away is no choice while another is there."""
    away = await broker.connect("away", **lasting())
    await away.subscribe("$share/g/a", qos=1)
    await leave(away)
    (here,) = await members(broker, 1, qos=1)
    publisher = await broker.connect("p")
    for _ in range(4):
        await publisher.publish("a", qos=1)
    assert len(await take(here, 4)) == 4


async def test_members_that_are_away_are_waited_for(broker: Live) -> None:
    """4.8.2: with nobody there, QoS 1 and 2 wait in a session that will come back."""
    away = await broker.connect("away", **lasting())
    await away.subscribe("$share/g/a", qos=1)
    await leave(away)
    publisher = await broker.connect("p")
    await publisher.publish("a", b"x", qos=1)
    away = await broker.connect("away", **lasting())
    assert (await away.message()).payload == b"x"


async def test_qos_1_of_a_member_that_is_gone_goes_to_another(broker: Live) -> None:
    """4.8.2: unacknowledged QoS 1 messages of a session that has ended are for the others."""
    one, two = await members(broker, 2, qos=1)
    publisher = await broker.connect("p")
    for number in range(4):
        await publisher.publish("a", b"%d" % number, qos=1)
    mine = [await one.expect(wire.Publish) for _ in range(2)]
    others = await take(two, 2)
    await lose(one)
    rest = await take(two, 2)
    assert {one.payload for one in mine} == {one.payload for one in rest}
    assert {one.payload for one in others + rest} == {b"0", b"1", b"2", b"3"}
    await two.silent()


async def test_qos_2_of_a_member_that_comes_back(broker: Live) -> None:
    """[MQTT-4.8.2-4]: the server completes delivery to that member when it reconnects."""
    one = await broker.connect("one", **lasting())
    await one.subscribe("$share/g/a", qos=2)
    publisher = await broker.connect("p")
    await publisher.publish("a", b"x", qos=2)
    sent = await one.expect(wire.Publish)
    (two,) = await members(broker, 1)
    await lose(one)
    await two.silent()
    one = await broker.connect("one", **lasting())
    again = await one.message()
    assert (again.packet_id, again.payload, again.dup) == (sent.packet_id, b"x", True)
    await two.silent()


async def test_qos_2_of_a_member_that_never_comes_back(broker: Live) -> None:
    """[MQTT-4.8.2-5]: what was sent to it is not sent to any other."""
    (one,) = await members(broker, 1)
    publisher = await broker.connect("p")
    await publisher.publish("a", b"x", qos=2)
    await one.expect(wire.Publish)
    two = await broker.connect("two")
    await two.subscribe("$share/g/a", qos=2)
    await lose(one)
    await two.silent()


@pytest.mark.parametrize("qos", [1, 2])
async def test_refused_by_a_member(broker: Live, qos: int) -> None:
    """[MQTT-4.8.2-6]: PUBACK or PUBREC with an error discards it; no other member gets it."""
    one, two = await members(broker, 2)
    publisher = await broker.connect("p")
    await publisher.publish("a", qos=qos)
    await publisher.publish("a", qos=qos)
    sent = await one.expect(wire.Publish)
    await two.expect(wire.Publish)
    refusal = wire.Puback if qos == 1 else wire.Pubrec
    await one.send(refusal(packet_id=sent.packet_id, reason=Reason.QUOTA_EXCEEDED))
    await one.silent()
    await two.silent()
    await lose(one)
    await two.silent()


async def test_receive_maximum_of_members(broker: Live) -> None:
    """[MQTT-3.3.4-9] holds for each member; one with room is chosen."""
    slow = await broker.connect("slow", properties=properties(receive_maximum=1))
    await slow.subscribe("$share/g/a", qos=1)
    (quick,) = await members(broker, 1, qos=1)
    publisher = await broker.connect("p")
    for number in range(10):
        await publisher.publish("a", b"%d" % number, qos=1)
    await slow.expect(wire.Publish)
    assert len(await take(quick, 9)) == 9
    await slow.silent()


@pytest.mark.parametrize(
    "filter", ["$share/g", "$share/g/", "$share//a", "$share/+/a", "$share/#/a", "$share/g+/a", "$share/g/a#"]
)
async def test_malformed_shares(broker: Live, filter: str) -> None:
    """[MQTT-4.8.2-1] [MQTT-4.8.2-2]: no share name, one with wildcards, or no valid filter behind it."""
    client = await broker.connect("c")
    name = filter.encode()
    body = b"\x00\x01\x00" + len(name).to_bytes(2, "big") + name + b"\x00"
    await client.raw(bytes((0x82, len(body))) + body)
    packet = await client.receive()
    assert isinstance(packet, wire.Suback | wire.Disconnect)
    reason = packet.reasons[0] if isinstance(packet, wire.Suback) else packet.reason
    assert reason in (Reason.TOPIC_FILTER_INVALID, Reason.MALFORMED_PACKET, Reason.PROTOCOL_ERROR)


async def test_share_of_everything(broker: Live) -> None:
    """4.8.2: wildcards in the filter, levels in the name of neither; `$` topics stay hidden [MQTT-4.7.2-1]."""
    clients = await members(broker, 2, filter="$share/consumer 1/#", qos=0)
    publisher = await broker.connect("p")
    for topic in ("a", "b/c", "/", "$mine/x"):
        await publisher.publish(topic)
    await publisher.silent()
    found = await waiting(clients)
    assert sorted(one.topic for mine in found for one in mine) == ["/", "a", "b/c"]


async def test_overlap_of_shared_subscriptions_in_one_session(broker: Live) -> None:
    """4.8.2: two shared subscriptions of one session are two subscriptions."""
    client = await broker.connect("c")
    await client.subscribe("$share/g/a/#")
    await client.subscribe("$share/g/a/+")
    publisher = await broker.connect("p")
    await publisher.publish("a/b")
    assert len(await take(client, 2)) == 2
    await client.silent()
