"""What survives a restart of the node (Mosquitto: 11-*, 15-persist-*)."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from conformance.mosquitto.steps import BOTH, stays
from harness import Client, Live, live
from tidegate import wire
from tidegate.wire import Properties


async def _back(node: Live, version: int, **fields: Any) -> Client:
    client = await node.connect("client", version=version, **(stays(version) | fields))
    assert client.connack.session_present
    return client


@pytest.mark.parametrize("version", BOTH)
async def test_subscriptions_survive(version: int, tmp_path: Path) -> None:
    async with live(data=tmp_path) as node:
        client = await node.connect("client", version=version, **stays(version))
        await client.subscribe("subpub/qos1", qos=1)
        await client.subscribe("left", qos=1)
        await client.unsubscribe("left")
        helper = await node.connect("helper", version=version)
        await helper.publish("subpub/qos1", qos=1)
        await client.expect(wire.Publish)
    async with live(data=tmp_path) as node:
        client = await _back(node, version)
        assert (await client.message()).dup  # it was under way when the node stopped
        await client.publish("left", qos=1)
        await client.send(wire.Publish(topic="subpub/qos1", payload=b"again", qos=1, packet_id=53))
        kinds = [await client.receive(), await client.receive()]
        assert {type(packet) for packet in kinds} == {wire.Puback, wire.Publish}


async def test_subscription_options_survive(tmp_path: Path) -> None:
    async with live(data=tmp_path) as node:
        client = await node.connect("client", **stays(wire.V5))
        await client.subscribe("subpub/nolocal", qos=1, no_local=True)
        await client.subscribe("rap", retain_as_published=True, properties=Properties(subscription_identifiers=(53,)))
    async with live(data=tmp_path) as node:
        client = await _back(node, wire.V5)
        await client.publish("subpub/nolocal", qos=1)
        await client.silent()
        await client.publish("rap", retain=True)
        message = await client.message()
        assert (message.retain, message.properties.subscription_identifiers) == (True, (53,))


@pytest.mark.parametrize("version", BOTH)
async def test_queued_messages_survive(version: int, tmp_path: Path) -> None:
    given = Properties(content_type="text", user_properties=(("a", "b"), ("a", "c")), correlation_data=b"\0")
    async with live(data=tmp_path) as node:
        client = await node.connect("client", version=version, **stays(version))
        for qos in (0, 1, 2):
            await client.subscribe(f"client-msg/{qos}", qos=qos)
        await client.disconnect()
        helper = await node.connect("helper")
        for qos in (0, 1, 2):
            await helper.publish(f"client-msg/{qos}", b"%d" % qos, qos=qos, properties=given)
    async with live(data=tmp_path) as node:
        client = await _back(node, version)
        for qos in (1, 2):
            message = await client.message()
            assert (message.topic, message.payload, message.qos) == (f"client-msg/{qos}", b"%d" % qos, qos)
            assert message.properties == (given if version == wire.V5 else wire.NONE)
        await client.silent()
        client.abort()
        await (await _back(node, version)).silent()
    async with live(data=tmp_path) as node:
        await (await _back(node, version)).silent()


@pytest.mark.parametrize("version", BOTH)
async def test_delivery_goes_on_at_its_step(version: int, tmp_path: Path) -> None:
    """PUBLISH again under the same id before PUBREC, PUBREL again before PUBCOMP, nothing after."""
    async with live(data=tmp_path) as node:
        client = await node.connect("client", version=version, **stays(version))
        await client.subscribe("t", qos=2)
        helper = await node.connect("helper")
        await helper.publish("t", b"1", qos=2)
        await helper.publish("t", b"2", qos=2)
        pids = [(await client.expect(wire.Publish)).packet_id for _ in range(2)]
        await client.send(wire.Pubrec(packet_id=pids[0]))
        await client.expect(wire.Pubrel)
    async with live(data=tmp_path) as node:
        client = await _back(node, version)
        # PUBREL waits for the store; [MQTT-4.6.0-1] and [MQTT-4.6.0-4] order each kind of packet by itself
        again, released = sorted([await client.receive(), await client.receive()], key=lambda each: type(each).__name__)
        assert isinstance(again, wire.Publish)
        assert (again.packet_id, again.dup, again.payload) == (pids[1], True, b"2")
        assert isinstance(released, wire.Pubrel)
        assert released.packet_id == pids[0]
        await client.send(wire.Pubcomp(packet_id=pids[0]))
        await client.send(wire.Pubrec(packet_id=pids[1]))
        await client.expect(wire.Pubrel)
        await client.send(wire.Pubcomp(packet_id=pids[1]))
        await client.silent()
    async with live(data=tmp_path) as node:
        await (await _back(node, version)).silent()


@pytest.mark.parametrize("version", BOTH)
async def test_publish_goes_on_at_its_step(version: int, tmp_path: Path) -> None:
    async with live(data=tmp_path) as node:
        client = await node.connect("client", version=version, **stays(version))
        for pid in (1, 2):
            await client.send(wire.Publish(topic="t", payload=b"%d" % pid, qos=2, packet_id=pid))
            assert (await client.expect(wire.Pubrec)).packet_id == pid
    async with live(data=tmp_path) as node:
        watcher = await node.connect("watcher", version=version)
        await watcher.subscribe("t", qos=2)
        client = await _back(node, version)
        await client.send(wire.Publish(topic="t", payload=b"1", qos=2, packet_id=1, dup=True))
        await client.expect(wire.Pubrec)
        for pid in (1, 2):
            await client.send(wire.Pubrel(packet_id=pid))
            assert await client.expect(wire.Pubcomp) == wire.Pubcomp(packet_id=pid)
            assert (await watcher.message()).payload == b"%d" % pid
        await watcher.silent()


@pytest.mark.parametrize("version", BOTH)
async def test_retained_survive_and_stay_cleared(version: int, tmp_path: Path) -> None:
    async with live(data=tmp_path) as node:
        client = await node.connect("client", version=version)
        for topic in ("kept", "cleared"):
            await client.publish(topic, b"x", qos=1, retain=True)
        await client.publish("cleared", b"", qos=1, retain=True)
        await client.publish("kept", b"newer", qos=1, retain=True)
    async with live(data=tmp_path) as node:
        client = await node.connect("client", version=version)
        await client.subscribe("#")
        message = await client.message()
        assert (message.topic, message.payload, message.retain) == ("kept", b"newer", True)
        await client.silent()


async def test_expiry_goes_on_while_the_node_is_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with live(data=tmp_path) as node:
        client = await node.connect("client", **stays(wire.V5))
        await client.subscribe("t", qos=1)
        await client.disconnect()
        helper = await node.connect("helper")
        for name, seconds in ((b"short", 5), (b"long", 100), (b"none", None)):
            await helper.publish("t", name, qos=1, properties=Properties(message_expiry_interval=seconds))

    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 10)
    async with live(data=tmp_path) as node:
        client = await _back(node, wire.V5)
        first, second = await client.message(), await client.message()
        assert (first.payload, second.payload) == (b"long", b"none")
        assert first.properties.message_expiry_interval in (88, 89, 90)
        await client.silent()


async def test_session_without_expiry_does_not_survive(tmp_path: Path) -> None:
    async with live(data=tmp_path) as node:
        client = await node.connect("client", clean_start=False)
        await client.subscribe("t")
    async with live(data=tmp_path) as node:
        client = await node.connect("client", clean_start=False)
        assert not client.connack.session_present


@pytest.mark.parametrize("version", BOTH)
async def test_acknowledgements_keep_their_order(version: int, tmp_path: Path) -> None:
    """[MQTT-4.6.0-2] though some wait for the disk and others do not."""
    async with live(data=tmp_path) as node:
        kept = await node.connect("kept", version=version, **stays(version))
        await kept.subscribe("stored", qos=1)
        client = await node.connect("client", version=version)
        frames = [
            wire.encode(wire.Publish(topic=("stored", "nobody")[pid % 2], payload=b"x", qos=1, packet_id=pid), version)
            for pid in range(1, 51)
        ]
        await client.raw(b"".join(frames))
        assert [(await client.expect(wire.Puback)).packet_id for _ in range(50)] == list(range(1, 51))


async def test_as_many_as_receive_maximum_at_once(tmp_path: Path) -> None:
    """[MQTT-3.3.4-9] what waits for the disk counts once: so many, sent in one go, are within the maximum."""
    async with live("limits: {receive_maximum: 20}", data=tmp_path) as node:
        client = await node.connect("client", **stays(wire.V5))
        frames = [
            wire.encode(wire.Publish(topic="t", payload=b"x", qos=2, packet_id=pid), wire.V5) for pid in range(1, 21)
        ]
        await client.raw(b"".join(frames))
        for pid in range(1, 21):
            assert (await client.expect(wire.Pubrec)).packet_id == pid
        # PUBCOMP makes room (4.9), one by one
        for pid in range(1, 21):
            await client.send(wire.Pubrel(packet_id=pid))
            assert (await client.expect(wire.Pubcomp)).packet_id == pid
            await client.send(wire.Publish(topic="t", payload=b"x", qos=2, packet_id=100 + pid))
            assert (await client.expect(wire.Pubrec)).packet_id == 100 + pid


async def test_will_of_a_client_that_was_connected_when_the_node_stopped(tmp_path: Path) -> None:
    """It is published before the node stops or after it started again, once; here it is retained to be seen."""
    will = wire.Will(topic="will", payload=b"gone", qos=1, retain=True)
    async with live(data=tmp_path) as node:
        await node.connect("client", will=will, **stays(wire.V5))
    async with live(data=tmp_path) as node:
        watcher = await node.connect("watcher")
        await watcher.subscribe("will", qos=1)
        assert (await watcher.message()).payload == b"gone"
        await watcher.silent()
