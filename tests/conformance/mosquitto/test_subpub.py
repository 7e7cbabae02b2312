"""Subscribing and receiving (Mosquitto: 02-*, 03-pattern-matching, 12-prop-*)."""

from __future__ import annotations

import pytest

from conformance.mosquitto.steps import BOTH, ended, later, stays, u16
from harness import Client, live
from tidegate import wire
from tidegate.wire import Properties


@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_own_message_comes_back(version: int, qos: int) -> None:
    async with live() as node:
        client = await node.connect("client", version=version)
        assert (await client.subscribe("subpub/test", qos=qos)).reasons == (qos,)
        await client.send(wire.Publish(topic="subpub/test", payload=b"x", qos=qos, packet_id=21 if qos else 0))
        if qos == 2:
            await client.expect(wire.Pubrec)
            await client.send(wire.Pubrel(packet_id=21))
        kinds = {type(await client.receive()) for _ in range(2 if qos else 1)}
        assert kinds == {wire.Publish, *((None, {wire.Puback}, {wire.Pubcomp})[qos] or ())}


# with a helper that publishes retained: the subscriber gets it live, and retained after subscribing anew
PATTERNS = [
    ("#", "gym"),
    ("#", "gym/1/speed"),
    ("#", "/gym"),
    ("#", "gym///speed"),
    ("gym/#", "gym"),
    ("gym/#", "gym/"),
    ("gym/#", "gym//1//speed"),
    ("gym/1/#", "gym/1/speed"),
    ("/#", "/gym"),
    ("/#", "///gym//1"),
    ("gym/", "gym/"),
    ("gym/+", "gym/"),
    ("+/+", "/"),
    ("gym/+/speed", "gym/1/speed"),
    ("gym/+/speed", "gym//speed"),
    ("gym/+/speed/", "gym//speed/"),
    ("gym/+/speed/#", "gym/1/speed"),
    ("gym/+/speed/#", "gym//speed/max"),
    ("gym//speed/#", "gym//speed/max"),
    ("/".join(["+"] * 12), "/".join("abcdefghijkl")),
]


@pytest.mark.parametrize(("filter", "topic"), PATTERNS)
async def test_filter_matches(filter: str, topic: str) -> None:
    async with live() as node:
        client = await node.connect("client", version=wire.V311)
        helper = await node.connect("helper", version=wire.V311)
        await client.subscribe(filter)
        await helper.publish(topic, retain=True)
        live_one = await client.message()
        assert (live_one.topic, live_one.retain) == (topic, False)
        await client.unsubscribe(filter)
        await client.subscribe(filter)
        kept = await client.message()
        assert (kept.topic, kept.retain) == (topic, True)
        await client.silent()


NOT_MATCHED = [("#", "$test/a"), ("+/a", "$test/a"), ("foo", "foo/"), ("foo/+", "foo"), ("+", "/foo"), ("a/+", "a/b/c")]


@pytest.mark.parametrize(("filter", "topic"), NOT_MATCHED)
async def test_filter_does_not_match(filter: str, topic: str) -> None:
    async with live() as node:
        client = await node.connect("client", version=wire.V311)
        await client.subscribe(filter)
        await client.publish(topic, retain=True)
        await client.silent()
        await client.subscribe(filter)
        await client.silent()


@pytest.mark.parametrize("version", BOTH)
async def test_dollar_topics_can_be_subscribed_to(version: int) -> None:
    async with live() as node:
        client = await node.connect("client", version=version)
        assert (await client.subscribe("$SYS/broker/missing", "$share/share/#")).reasons == (0, 0)


# [MQTT-3.3.1-12]-like protection of the server's own topics is Mosquitto's and ours, not the specification's
DOLLAR = [("$SYS/broker/uptime", 0x87), ("$share/share/topic", 0x87), ("$test/test", 0x10)]


@pytest.mark.parametrize(("topic", "reason"), DOLLAR)
@pytest.mark.parametrize("qos", [1, 2])
async def test_publishing_below_a_dollar(topic: str, reason: int, qos: int) -> None:
    async with live() as node:
        client = await node.connect("client")
        await client.send(wire.Publish(topic=topic, payload=b"x", qos=qos, packet_id=7))
        answer = await client.receive()
        assert isinstance(answer, wire.Puback if qos == 1 else wire.Pubrec)
        # PUBREC may say 0x10 or 0x00, it is before the routing
        assert answer.reason in ({reason} if qos == 1 or reason > 0x80 else {0, reason})
        await client.silent()


@pytest.mark.parametrize("version", BOTH)
async def test_overlapping_subscriptions_deliver_once_at_the_highest_qos(version: int) -> None:
    """[MQTT-3.3.4-2] says "at least", 3.3.4 lets a server send one copy; then it carries all identifiers."""
    async with live() as node:
        client = await node.connect("client", version=version)
        await client.subscribe("over/+/lap", qos=0)
        await client.subscribe("over/a/+", qos=1)
        helper = await node.connect("helper", version=version)
        await helper.publish("over/a/lap", qos=2)
        assert (await client.message()).qos == 1
        await client.silent()


@pytest.mark.parametrize("version", BOTH)
async def test_subscribe_unsubscribe_and_again(version: int) -> None:
    """A part of the tree is left while another stays; twice, because the first time could have broken something."""
    async with live() as node:
        for _ in range(2):
            client = await node.connect("client", version=version)
            await client.subscribe("red/1/#", "green/2/#", "blue/3/#")
            await client.unsubscribe("red/1/#")
            await client.publish("red/1/a")
            await client.publish("blue/3/a")
            assert (await client.message()).topic == "blue/3/a"
            await client.subscribe("$share/name/test", qos=1)
            await client.subscribe("test")
            await client.unsubscribe("test")
            await client.publish("test", b"shared")
            assert (await client.message()).payload == b"shared"
            await client.silent()
            await client.disconnect()


async def test_unsubscribe_tells_what_it_did() -> None:
    async with live() as node:
        client = await node.connect("client")
        await client.subscribe("a", "$share/g/b")
        assert (await client.unsubscribe("a", "b", "$share/g/b", "a")).reasons == (0, 0x11, 0, 0x11)


async def test_shared_subscriptions_take_turns() -> None:
    """Everybody who is not in a group gets all; of each group one member gets each message."""
    async with live() as node:
        clients = [await node.connect(f"client-{number}") for number in range(5)]
        plain, *members = clients
        await plain.subscribe("fair/#")
        for member, groups in zip(members, (("one",), ("one", "two"), ("two",), ("one",)), strict=True):
            for group in groups:
                await member.subscribe(f"$share/{group}/fair/turn")
        for number in range(6):
            await plain.publish("fair/turn", b"%d" % number)
        for client in clients:
            await client.send(wire.Pingreq())
        got: list[list[bytes]] = []
        for client in clients:
            mine = []
            while isinstance(packet := await client.receive(), wire.Publish):
                mine.append(packet.payload)
            got.append(mine)
        everything = [b"%d" % number for number in range(6)]
        assert got[0] == everything
        assert sorted(got[1] + got[2] + got[3] + got[4]) == sorted(everything * 2)
        assert [len(one) for one in got[1:]] == [2, 5, 3, 2]  # in turns; the specification leaves the choice open


@pytest.mark.parametrize("version", BOTH)
async def test_subscriptions_are_kept_without_subscribing_again(version: int) -> None:
    async with live() as node:
        helper = await node.connect("helper", version=wire.V311)
        client = await node.connect("client", version=version, **stays(version))
        await client.subscribe("not-shared/sub", "$share/name/shared/sub")
        for present in (True, True):
            await helper.publish("not-shared/sub")
            await helper.publish("shared/sub")
            assert {(await client.message()).topic for _ in range(2)} == {"not-shared/sub", "shared/sub"}
            client.abort()
            client = await node.connect("client", version=version, **stays(version))
            assert client.connack.session_present is present


async def test_no_local() -> None:
    async with live() as node:
        client = await node.connect("client")
        await client.subscribe("subpub/qos1", qos=1, no_local=True)
        await client.subscribe("subpub/receive", qos=1)
        await client.publish("subpub/qos1", qos=1)
        await client.silent()
        other = await node.connect("other")
        await other.publish("subpub/qos1", b"other", qos=1)
        assert (await client.message()).payload == b"other"


async def test_retain_as_published() -> None:
    async with live() as node:
        client = await node.connect("client")
        await client.subscribe("rap/normal")
        await client.subscribe("rap/rap", retain_as_published=True)
        for topic, retain in (("rap/normal", False), ("rap/rap", True)):
            await client.publish(topic, retain=True)
            assert (await client.message()).retain is retain
        await client.publish("rap/rap")
        assert (await client.message()).retain is False


@pytest.mark.parametrize(("handling", "sent"), [(0, (True, True)), (1, (True, False)), (2, (False, False))])
async def test_retain_handling(handling: int, sent: tuple[bool, bool]) -> None:
    async with live() as node:
        client = await node.connect("client")
        await client.publish("kept", retain=True)
        for wanted in sent:
            await client.subscribe("kept", retain_handling=handling)
            if wanted:
                assert (await client.message()).retain
            await client.silent()


async def test_subscription_identifiers_set_and_changed() -> None:
    async with live() as node:
        client = await node.connect("client")
        rounds = [{"id1": 1, "+/id2": 14, "noid": None}, {"id1": None, "+/id2": 19, "noid": 21}]
        for wanted in rounds:
            for filter, number in wanted.items():
                ids = () if number is None else (number,)
                await client.subscribe(f"subid/{filter}", properties=Properties(subscription_identifiers=ids))
            for filter, number in wanted.items():
                await client.publish("subid/" + filter.replace("+", "test"))
                got = (await client.message()).properties.subscription_identifiers
                assert got == (() if number is None else (number,))


async def test_aliases_of_a_client_are_resolved_and_not_passed_on() -> None:
    async with live() as node:
        client = await node.connect("client")
        await client.subscribe("topic", "other")
        alias = Properties(topic_alias=1)
        for topic, expected in (("topic", "topic"), ("", "topic"), ("other", "other"), ("", "other")):
            await client.publish(topic, properties=alias)
            message = await client.message()
            assert (message.topic, message.properties.topic_alias) == (expected, None)


async def test_aliases_towards_a_client() -> None:
    """Within its maximum: the topic comes along once per alias, then the alias alone or the topic alone."""
    async with live() as node:
        client = await node.connect("client", properties=Properties(topic_alias_maximum=3))
        helper = await node.connect("helper")
        await client.subscribe("alias/#")
        known: dict[int, str] = {}
        for _ in range(2):
            for number in range(5):
                await helper.publish(f"alias/{number}")
                message = await client.message()
                alias = message.properties.topic_alias
                assert alias is None or 1 <= alias <= 3
                if message.topic and alias:
                    known[alias] = message.topic
                assert (message.topic or known[alias or 0]) == f"alias/{number}"
        assert known


FORWARDED = [
    Properties(payload_format_indicator=0),
    Properties(payload_format_indicator=1),
    Properties(content_type="text/plain"),
    Properties(content_type=""),
    Properties(response_topic="response/topic"),
    Properties(response_topic="response/topic", correlation_data=b"\0\1data"),
    Properties(correlation_data=b""),
    Properties(user_properties=(("b", "1"), ("a", "2"), ("b", "1"))),
    Properties(user_properties=(("", ""),)),
    Properties(message_expiry_interval=100, content_type="x"),
]


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("given", FORWARDED, ids=repr)
async def test_properties_are_forwarded_unaltered(given: Properties, qos: int) -> None:
    async with live() as node:
        client = await node.connect("client")
        await client.subscribe("topic", qos=qos)
        helper = await node.connect("helper")
        await helper.publish("topic", qos=qos, properties=given)
        assert (await client.message()).properties == given
        older = await node.connect("older", version=wire.V311)
        await older.subscribe("topic", qos=qos)
        await helper.publish("topic", b"again", qos=qos, properties=given)
        assert (await older.message()).payload == b"again"


async def test_response_reaches_whoever_asked() -> None:
    async with live() as node:
        asker = await node.connect("asker")
        await asker.subscribe("reply")
        server = await node.connect("server")
        await server.subscribe("question")
        await asker.publish("question", properties=Properties(response_topic="reply", correlation_data=b"question 7"))
        asked = (await server.message()).properties
        assert asked.response_topic == "reply"
        await server.publish(asked.response_topic, properties=Properties(correlation_data=asked.correlation_data))
        assert (await asker.message()).properties.correlation_data == b"question 7"


@pytest.mark.parametrize("version", BOTH)
async def test_expiry_counts_down_while_the_client_is_away(version: int) -> None:
    async with live() as node:
        client = await node.connect("client", version=version, **stays(version))
        await client.subscribe("subpub/qos1", qos=1)
        await client.disconnect()
        helper = await node.connect("helper")
        for name, seconds in ((b"short", 1), (b"long", 100), (b"none", None)):
            await helper.publish("subpub/qos1", name, qos=1, properties=Properties(message_expiry_interval=seconds))
        await later(node, 10)
        client = await node.connect("client", version=version, **stays(version))
        first, second = await client.message(), await client.message()
        assert (first.payload, second.payload) == (b"long", b"none")
        if version == wire.V5:
            assert first.properties.message_expiry_interval in (89, 90)
            assert second.properties.message_expiry_interval is None
        await client.silent()


async def _receive_maximum(client: Client, maximum: int) -> None:
    """Three messages come, never more than `maximum` of them unacknowledged."""
    open_ones: list[int] = []
    seen: list[bytes] = []
    while len(seen) < 3 or open_ones:
        while len(seen) < 3 and len(open_ones) < maximum:
            message = await client.expect(wire.Publish)
            seen.append(message.payload)
            open_ones.append(message.packet_id)
        await client.silent()
        pid = open_ones.pop(0)
        await client.send(wire.Pubrec(packet_id=pid))
        await client.expect(wire.Pubrel)
        await client.silent()  # PUBREL does not make room, PUBCOMP does
        await client.send(wire.Pubcomp(packet_id=pid))
    assert seen == [b"1", b"2", b"3"]


@pytest.mark.parametrize("maximum", [1, 2])
async def test_receive_maximum_of_the_client(maximum: int) -> None:
    async with live() as node:
        client = await node.connect("client", properties=Properties(receive_maximum=maximum))
        await client.subscribe("topic", qos=2)
        helper = await node.connect("helper")
        for number in (b"1", b"2", b"3"):
            await helper.publish("topic", number, qos=2)
        await _receive_maximum(client, maximum)


@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize("qos", [1, 2])
async def test_inflight_limit_for_a_client_that_states_none(version: int, qos: int) -> None:
    """`limits.inflight`; 3.3.4 lets a server send fewer than the default of 65,535 at a time."""
    async with live("limits: {inflight: 1}") as node:
        client = await node.connect("client", version=version)
        await client.subscribe("topic", qos=qos)
        helper = await node.connect("helper")
        await helper.publish("topic", b"1", qos=qos)
        await helper.publish("topic", b"2", qos=qos)
        first = await client.expect(wire.Publish)
        await client.silent()
        if qos == 1:
            await client.send(wire.Puback(packet_id=first.packet_id))
        else:
            await client.send(wire.Pubrec(packet_id=first.packet_id))
            await client.expect(wire.Pubrel)
            await client.send(wire.Pubcomp(packet_id=first.packet_id))
        assert (await client.message()).payload == b"2"


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_larger_than_the_clients_maximum_is_dropped_for_it(qos: int) -> None:
    """[MQTT-3.1.2-25]: as if it had been delivered; others get it, and smaller ones come."""
    async with live() as node:
        client = await node.connect("client", properties=Properties(maximum_packet_size=40))
        other = await node.connect("other")
        for one in (client, other):
            await one.subscribe("a/topic/of/thirty/characters/x", qos=qos)
        helper = await node.connect("helper", version=wire.V311)
        overhead = 2 + 2 + 30 + 1 + (2 if qos else 0)
        await helper.publish("a/topic/of/thirty/characters/x", b"x" * (41 - overhead), qos=qos)
        await client.silent()
        assert len((await other.message()).payload) == 41 - overhead
        await helper.publish("a/topic/of/thirty/characters/x", b"x" * (40 - overhead), qos=qos)
        assert len((await client.message()).payload) == 40 - overhead
        await client.silent()


@pytest.mark.parametrize("version", BOTH)
async def test_larger_than_the_servers_maximum_disconnects(version: int) -> None:
    text = 'listeners: [{url: "mqtt://127.0.0.1:PORT", anonymous: true, max_packet: 50}]'
    async with live(text) as node:
        client = await node.connect("client", version=version)
        if version == wire.V5:
            assert client.connack.properties.maximum_packet_size == 50
        await client.subscribe("topic")
        overhead = 2 + 2 + 5 + (version == wire.V5)
        await client.publish("topic", b"x" * (50 - overhead))
        await client.message()
        await client.raw(b"\x30\x31" + u16(5) + b"topic" + b"\0" * (version == wire.V5))  # 51 bytes are announced
        assert await ended(client) in ({0x95} if version == wire.V5 else {None})


@pytest.mark.parametrize("version", BOTH)
async def test_longest_filter(version: int) -> None:
    """The specification allows 65,535 bytes of any kind, unless a limit is configured."""
    async with live() as node:
        client = await node.connect("client", version=version)
        assert (await client.subscribe("/" * 65535)).reasons == (0,)
        await client.publish("/" * 65535, b"deep")
        assert (await client.message()).payload == b"deep"
        assert await client.unsubscribe("/" * 65535)


@pytest.mark.parametrize("version", BOTH)
async def test_too_many_levels(version: int) -> None:
    async with live("limits: {topic_levels: 3}\n") as node:
        client = await node.connect("client", version=version)
        refused = 0x8F if version == wire.V5 else 0x80
        assert (await client.subscribe("a/b/c", "a/b/c/d")).reasons == (0, refused)
        await client.publish("a/b/c", b"deep")
        assert (await client.message()).payload == b"deep"
        await client.publish("a/b/c/d")
        assert await ended(client) == (0x90 if version == wire.V5 else None)


@pytest.mark.parametrize("version", BOTH)
async def test_persistent_and_clean_in_turns(version: int) -> None:
    async with live() as node:
        for clean in (False, True, False):
            fields = {"clean_start": True} if clean else {"clean_start": False}
            client = await node.connect("turns", version=version, **fields)
            assert not client.connack.session_present
            await client.subscribe("turns/test", qos=1)
            helper = await node.connect("helper", version=version)
            await helper.publish("turns/test", qos=1)
            await client.message()
            await client.silent()
            await client.disconnect()
            if version == wire.V311 and not clean:
                # 3.1.1: without a clean session it is there the next time, unless that one is clean
                assert ("anonymous", "turns") in node.node.scopes["main"].sessions
