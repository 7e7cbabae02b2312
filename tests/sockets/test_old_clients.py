"""Clients that speak MQTT 3.1, bridges of other brokers, and peers that speak something else."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import Client
from processes import Served, on_uvloop, until
from sockets.acts import come, dismissed, door, inbox, policy
from tidegate import wire
from tidegate.wire import V5, V311

STATE = "$SYS/broker/connection/edge/state"


async def old(node: Served, client: str = "device", **fields: object) -> Client:
    return await come(node, None, client=client, version=V311, old=True, **fields)


# -- MQTT 3.1 ------------------------------------------------------------------------------------------------------


@on_uvloop
async def test_mqtt_3_1_publishes_subscribes_and_keeps_its_session(tmp_path: Path) -> None:
    async with door(tmp_path) as node:
        device, modern = await old(node, "a name of many more than 23 characters", stays=True), await come(node, "mary")
        assert (await device.subscribe("a/#", qos=2)).reasons == (2,)
        await modern.subscribe("b")
        await modern.publish("a/1", b"down", qos=2)
        assert (await device.message()).payload == b"down"
        await device.publish("b", b"up", qos=1)
        assert (await modern.message()).payload == b"up"
        device.abort()
        await until(lambda: node.node.scopes["main"].connected == 1)
        again = await node.socket()
        await again.raw(
            wire.encode(
                wire.Connect(
                    version=V311,
                    client_id="a name of many more than 23 characters",
                    clean_start=False,
                    keep_alive=0,
                    old=True,
                ),
                V311,
            )
        )
        again.version = V311
        assert await again.reader.readexactly(4) == b"\x20\x02\x00\x00"  # 3.1 has no flag for a session that is there
        await modern.publish("a/2", b"still", qos=1)
        assert (await again.message()).payload == b"still"


@on_uvloop
async def test_mqtt_3_1_is_not_told_of_a_refusal_and_gets_nothing(tmp_path: Path) -> None:
    """3.1 has no return code for it: SUBACK says QoS 0, the audit says who denied it."""
    async with door(tmp_path, policy("some", "some/#")) as node:
        device, other = await old(node), await come(node, "mary")
        assert (await device.subscribe("some/x", qos=1)).reasons == (1,)
        assert (await device.subscribe("none/x", qos=1)).reasons == (0,)
        before = node.node.site.counters.denied
        assert before == 1
        await other.publish("none/x", qos=1)
        assert await inbox(device) == []


@on_uvloop
async def test_mqtt_3_1_may_repeat_requests_with_dup(tmp_path: Path) -> None:
    async with door(tmp_path) as node:
        device, modern = await old(node), await come(node, "mary")
        await device.raw(b"\x8a\x06\x00\x01\x00\x01a\x00")
        assert (await device.expect(wire.Suback)).reasons == (0,)
        await device.raw(b"\xaa\x05\x00\x02\x00\x01a")
        assert (await device.expect(wire.Unsuback)).packet_id == 2
        await device.raw(b"\x6a\x02\x00\x03")
        assert (await device.expect(wire.Pubcomp)).packet_id == 3
        await modern.raw(b"\x8a\x07\x00\x01\x00\x00\x01a\x00")
        await dismissed(modern, 0x81)


# -- topics --------------------------------------------------------------------------------------------------------


@on_uvloop
async def test_topics_have_the_length_of_the_protocol(tmp_path: Path) -> None:
    topic = "t" * 65_535
    async with door(tmp_path) as node:
        for version in (V311, V5):
            end = await come(node, "mary", version=version, client=f"c{version}")
            assert (await end.subscribe(topic, qos=1)).reasons == (1,)
            await end.publish(topic, b"long", qos=0)
            assert (await end.message()).topic == topic


@on_uvloop
async def test_a_limit_of_topics_has_the_right_reason(tmp_path: Path) -> None:
    async with door(tmp_path, limits={"topic_length": 10}) as node:
        end = await come(node, "mary")
        assert (await end.subscribe("0123456789", "0123456789a", "öööööö")).reasons == (0, 0x8F, 0x8F)
        await end.publish("0123456789")
        assert (await end.message()).topic == "0123456789"
        await end.send(wire.Publish(topic="0123456789a", payload=b""))
        await dismissed(end, 0x90)
        will = wire.Will(topic="0123456789a", payload=b"", qos=0, retain=False)
        await come(node, "mary", will=will, expect=0x90)


# -- bridges -------------------------------------------------------------------------------------------------------


async def bridge(
    node: Served, client: str = "edge", state: str = STATE, *, version: int = V311, **fields: object
) -> Client:
    will = wire.Will(topic=state, payload=b"0", qos=1, retain=True)
    bit = {"bridge": True} if version == V311 else {}
    return await come(node, "bob", client=client, version=version, will=will, **bit, **fields)


RULES = [policy("data", "data/#"), policy("states", "$SYS/#", "read")]


@pytest.mark.parametrize("was", [True, False])
@on_uvloop
async def test_a_bridge_gets_no_echo_and_retained_as_published(tmp_path: Path, was: bool) -> None:
    async with door(tmp_path, *RULES) as node:
        edge, mary = await bridge(node, old=was), await come(node, "mary")
        await edge.subscribe("data/#")
        await edge.publish("data/own")
        await mary.publish("data/other", retain=True, qos=1)
        await mary.publish("data/third", qos=1)
        assert [(each.topic, each.retain) for each in await inbox(edge)] == [
            ("data/other", True),
            ("data/third", False),
        ]


@pytest.mark.parametrize("version", [V311, V5])
@on_uvloop
async def test_a_bridge_says_under_its_own_name_whether_it_is_there(tmp_path: Path, version: int) -> None:
    async with door(tmp_path, *RULES) as node:
        mary = await come(node, "mary")
        await mary.subscribe("$SYS/broker/connection/#", retain_as_published=True)
        edge = await bridge(node, version=version)
        await edge.publish(STATE, b"1", retain=True, qos=1)
        assert ((await mary.message()).payload) == b"1"
        edge.abort()
        message = await mary.message()
        assert (message.topic, message.payload, message.retain) == (STATE, b"0", True)


@on_uvloop
async def test_nobody_says_it_for_another(tmp_path: Path) -> None:
    async with door(tmp_path, policy("all"), policy("own", "$SYS/#")) as node:
        watcher = await come(node, "mary", client="watcher")
        await watcher.subscribe("$SYS/broker/connection/#")
        await come(node, "bob", client="other", version=V311, bridge=True, will=_will(STATE), expect=5)
        await come(node, "bob", client="client", will=_will(STATE), expect=0x87)
        edge = await bridge(node)
        for topic in ("$SYS/broker/connection/other/state", "$SYS/broker/connection/edge/x", "$SYS/broker/uptime"):
            await edge.publish(topic, b"1", qos=1)
        plain = await come(node, "bob", client="plain")
        refused = await plain.publish("$SYS/broker/connection/plain/state", b"1", qos=1)
        assert refused is not None
        assert refused.reason == 0x87
        assert await inbox(watcher) == []


@on_uvloop
async def test_a_state_is_one_or_zero_and_its_name_is_that_of_one_user(tmp_path: Path) -> None:
    async with door(tmp_path, *RULES) as node:
        watcher = await come(node, "mary", client="watcher")
        await watcher.subscribe("$SYS/broker/connection/#")
        edge = await bridge(node, version=V5)
        refused = await edge.publish(STATE, b"x" * 50_000, retain=True, qos=1)
        assert refused is not None
        assert refused.reason == 0x87
        carol = await come(node, "carol", client="edge", will=_will(STATE))
        refused = await carol.publish(STATE, b"1", retain=True, qos=1)
        assert refused is not None
        assert refused.reason == 0x87
        carol.abort()  # its will is gone
        other = await come(node, "carol", client="edge", version=V311, bridge=True, will=_will(STATE))
        await other.subscribe("data/#")
        await edge.publish("data/x", b"from edge", qos=1)
        assert [message.payload for message in await inbox(other)] == [b"from edge"], "it bridges all the same"
        assert await inbox(watcher) == []
        await edge.disconnect()
        await other.disconnect()
        carol = await come(node, "carol", client="edge", will=_will(STATE), stays=True)
        await carol.publish(STATE, b"1", retain=True, qos=1)
        assert (await watcher.message()).payload == b"1", "the name is free"
        await carol.disconnect()
        edge = await bridge(node, version=V5)  # a session that is away does not keep the name
        await edge.publish(STATE, b"1", retain=True, qos=1)
        assert (await watcher.message()).payload == b"1"


def _will(topic: str) -> wire.Will:
    return wire.Will(topic=topic, payload=b"0", qos=1, retain=True)


@on_uvloop
async def test_a_policy_may_deny_it(tmp_path: Path) -> None:
    deny = policy("no", "$SYS/broker/connection/#", "write", effect="deny")
    async with door(tmp_path, *RULES, deny) as node:
        await bridge(node, expect=5)


# -- something else ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "TLS spoken to a plain port"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP spoken to an MQTT port"),
        (b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n", "PROXY header on a listener without `proxy: true`"),
        (b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x00", "PROXY header on a listener without `proxy: true`"),
    ],
)
@on_uvloop
async def test_who_does_not_speak_mqtt_is_named_in_the_log_and_told_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], said: bytes, reason: str
) -> None:
    async with door(tmp_path) as node:
        refused = node.node.site.counters.refused
        peer = await node.socket()
        await peer.raw(said)
        assert await peer.closed() == b""
        assert node.node.site.counters.refused == refused + 1
        await (await node.connect("c")).silent()
    assert reason in "".join(capsys.readouterr())
