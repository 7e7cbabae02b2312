"""The thin path: connect, subscribe, publish, receive, both versions, each QoS."""

from __future__ import annotations

import pytest

from harness import live
from tidegate import wire


@pytest.mark.parametrize("publisher", [wire.V311, wire.V5])
@pytest.mark.parametrize("subscriber", [wire.V311, wire.V5])
@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_message_passes(publisher: int, subscriber: int, qos: int) -> None:
    async with live() as node:
        sub = await node.connect("sub", version=subscriber)
        assert (await sub.subscribe("a/+", qos=qos)).reasons == (qos,)
        pub = await node.connect("pub", version=publisher)
        for number in range(3):
            await pub.publish("a/b", b"hello %d" % number, qos=qos)
            message = await sub.message()
            assert (message.topic, message.payload, message.qos) == ("a/b", b"hello %d" % number, qos)
        await sub.silent()
