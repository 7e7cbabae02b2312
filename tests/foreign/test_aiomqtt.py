"""aiomqtt, 3.1.1 and 5, over TCP, TLS and WebSocket."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from typing import Any

import aiomqtt
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from foreign.conftest import Broker
from harness import PATIENCE

VERSIONS = {"3.1.1": aiomqtt.ProtocolVersion.V311, "5": aiomqtt.ProtocolVersion.V5}
EVERY = [(version, transport) for version in VERSIONS for transport in ("tcp", "tls", "ws")]
Kind = tuple[str, str]

every = pytest.mark.parametrize("kind", EVERY, ids=[" ".join(kind) for kind in EVERY])


def client(broker: Broker, kind: Kind, name: str = "", **options: Any) -> aiomqtt.Client:
    version, transport = kind
    if options.pop("keep", False):
        if version == "5":
            options["clean_start"] = False
            options["properties"] = Properties(PacketTypes.CONNECT)
            options["properties"].SessionExpiryInterval = 600
        else:
            options["clean_session"] = False
    elif version == "5":
        options.setdefault("clean_start", True)
    return aiomqtt.Client(
        broker.host,
        broker.port(transport),
        identifier=name or broker.name("aiomqtt"),
        protocol=VERSIONS[version],
        timeout=PATIENCE,
        transport="websockets" if transport == "ws" else "tcp",
        websocket_path="/mqtt" if transport == "ws" else None,
        tls_context=ssl.create_default_context(cafile=broker.ca) if transport == "tls" else None,
        **options,
    )


async def messages(of: aiomqtt.Client, number: int) -> list[aiomqtt.Message]:
    async with asyncio.timeout(PATIENCE):
        return [await anext(of.messages) for _ in range(number)]


def break_off(of: aiomqtt.Client) -> None:
    wire = of._client.socket()  # aiomqtt has no way to break a connection
    with socket.socket(fileno=os.dup(wire.fileno())) as same:
        same.shutdown(socket.SHUT_RDWR)


@every
async def test_messages_at_every_qos_and_large(broker: Broker, kind: Kind) -> None:
    topic = broker.name("aio-qos")
    async with client(broker, kind) as one, client(broker, kind) as other:
        await one.subscribe(f"{topic}/#", qos=2)
        for qos in (0, 1, 2):
            for payload in (b"", b"small", os.urandom(500_000)):
                await other.publish(f"{topic}/{qos}", payload, qos=qos)
                (message,) = await messages(one, 1)
                assert (str(message.topic), message.qos, message.retain) == (f"{topic}/{qos}", qos, False)
                assert message.payload == payload


@every
async def test_retained(broker: Broker, kind: Kind) -> None:
    topic = broker.name("aio-retained")
    async with client(broker, kind) as one:
        await one.publish(topic, b"kept", qos=1, retain=True)
    async with client(broker, kind) as one:
        await one.subscribe(topic, qos=1)
        (message,) = await messages(one, 1)
        assert (message.payload, message.retain) == (b"kept", True)
        await one.publish(topic, b"", qos=1, retain=True)
        (message,) = await messages(one, 1)
        assert (message.payload, message.retain) == (b"", False)
    async with client(broker, kind) as one:
        await one.subscribe(topic, qos=1)
        await one.publish(topic, b"live")
        (message,) = await messages(one, 1)
        assert message.payload == b"live"


@every
async def test_will_when_the_connection_breaks(broker: Broker, kind: Kind) -> None:
    topic = broker.name("aio-will")
    async with client(broker, kind) as watcher:
        await watcher.subscribe(f"{topic}/#", qos=1)
        async with client(broker, kind, will=aiomqtt.Will(f"{topic}/polite", b"gone", qos=1)):
            pass
        async with client(broker, kind, will=aiomqtt.Will(f"{topic}/broken", b"gone", qos=1)) as broken:
            break_off(broken)
            with pytest.raises(aiomqtt.MqttError):
                await messages(broken, 1)
        (message,) = await messages(watcher, 1)
        assert (str(message.topic), message.payload, message.qos) == (f"{topic}/broken", b"gone", 1)


@every
async def test_persistent_session_gets_what_it_missed(broker: Broker, kind: Kind) -> None:
    topic, name = broker.name("aio-queued"), broker.name("aio-keeper")
    async with client(broker, kind, name, keep=True) as keeper:
        await keeper.subscribe(topic, qos=1)
    async with client(broker, kind) as other:
        for number in range(30):
            await other.publish(topic, b"%d" % number, qos=1)
    async with client(broker, kind, name, keep=True) as keeper:
        got = [message.payload for message in await messages(keeper, 30)]
        assert got == [b"%d" % number for number in range(30)]


@every
async def test_password(broker: Broker, kind: Kind) -> None:
    async with client(broker, kind, username=broker.user, password=broker.password) as one:
        topic = broker.name("aio-password")
        await one.subscribe(topic)
        await one.publish(topic, b"in")
        assert (await messages(one, 1))[0].payload == b"in"
    with pytest.raises(aiomqtt.MqttError, match="Bad user name or password"):
        async with client(broker, kind, username=broker.user, password="wrong"):
            pass


@every
async def test_take_over(broker: Broker, kind: Kind) -> None:
    name, topic = broker.name("aio-taken"), broker.name("aio-take-over")
    async with client(broker, kind, name) as first, client(broker, kind, name) as second:
        with pytest.raises(aiomqtt.MqttError, match="Disconnected") as ended:
            await messages(first, 1)
        if kind[0] == "5":
            assert "Session taken over" in str(ended.value.__cause__)
        await second.subscribe(topic)
        await second.publish(topic, b"to the second")
        assert (await messages(second, 1))[0].payload == b"to the second"


@pytest.mark.parametrize("kind", [("3.1.1", "ws"), ("5", "tcp")], ids=" ".join)
async def test_many_messages_none_lost_in_order(broker: Broker, kind: Kind) -> None:
    topic = broker.name("aio-many")
    async with client(broker, kind) as one, client(broker, kind) as other:
        await one.subscribe(topic, qos=1)

        async def send() -> None:
            for number in range(2000):
                await other.publish(topic, b"%d" % number, qos=1)

        sending = asyncio.create_task(send())
        got = [message.payload for message in await messages(one, 2000)]
        assert got == [b"%d" % number for number in range(2000)]
        await sending
