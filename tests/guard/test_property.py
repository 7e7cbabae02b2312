"""Envelopes in a user property; what a broker that is elsewhere counts for; held subscriptions that come alive."""

from __future__ import annotations

from pathlib import Path

import pytest

from guard.guarded import HERE, around, broker, guarded, guarding
from processes import on_uvloop
from sockets.acts import BOTH, come, policy
from tidegate import wire

PROPERTY = {**HERE, "envelope": "property"}


@pytest.mark.parametrize("version", BOTH)
@on_uvloop
async def test_the_content_is_left_alone(tmp_path: Path, version: int) -> None:
    with broker() as port:
        async with guarded(tmp_path, port, scope=PROPERTY) as node:
            outside, injector = await around(node, port), await around(node, port, "injector")
            await outside.subscribe("open/#", qos=1)
            mary, bob = await come(node, "mary", version=version), await come(node, "bob", version=version)
            await mary.subscribe("open/#", qos=2)
            for qos in (0, 1, 2):
                await bob.publish("open/a", b"content", qos=qos)
                message = await mary.message()
                assert (message.payload, message.qos, message.properties.user_properties) == (b"content", qos, ())
                lying = await outside.message()
                assert lying.payload == b"content"
                (pair,) = lying.properties.user_properties
                assert pair[0] == "tidegate"
                for pairs, payload in (((), b"content"), ((pair,), b"other"), ((pair, pair), b"content")):
                    properties = wire.Properties(user_properties=pairs)
                    await injector.publish("open/a", payload, qos=1, properties=properties)
                    await outside.message()
            if version == wire.V5:  # a client has no envelopes to give away
                false = wire.Properties(user_properties=(("tidegate", "x"), ("mine", "y")))
                await bob.publish("open/a", b"1", properties=false)
                assert (await mary.message()).properties.user_properties == (("mine", "y"),)
            await bob.publish("open/a", b"kept", qos=1, retain=True)
            await bob.publish("open/a", b"", qos=1, retain=True)
            payloads = [(await mary.message()).payload for _ in range(2)]
            assert payloads == [b"kept", b""]
            late = await come(node, "carol")
            await late.subscribe("open/#", qos=1)
            await late.silent()


@on_uvloop
async def test_a_broker_elsewhere_may_be_too_weak(tmp_path: Path) -> None:
    with broker() as port:
        async with guarded(tmp_path, port, scope={**HERE, "level": "plain"}) as node:
            bob = await come(node, "bob", asks=[("require", "tls")])
            answer = await bob.publish("open/a", qos=1)
            assert isinstance(answer, wire.Puback)
            assert answer.reason == 0x10
            outside = await around(node, port)
            await outside.subscribe("open/#")
            await bob.publish("open/a", b"1", qos=1)
            relaxed = wire.Properties(user_properties=(("require", "none"),))
            await bob.publish("open/a", b"2", qos=1, properties=relaxed)
            assert (await outside.message()).payload.endswith(b"2")


@on_uvloop
async def test_a_held_subscription_comes_alive_with_what_is_retained(tmp_path: Path) -> None:
    with broker() as port:
        write = policy("write", "open/#", "write")
        async with guarded(tmp_path, port, write, subscribe="hold") as node:
            mary, bob = await come(node, "mary"), await come(node, "bob")
            await bob.publish("open/a", b"kept", qos=1, retain=True)
            denied = await mary.subscribe("open/#", qos=1)
            assert denied.reasons == (1,)
            await mary.silent()
            await node.reload(guarding(port, policy("all", "open/#"), subscribe="hold"))
            assert (await mary.message()).payload == b"kept"
