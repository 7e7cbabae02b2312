"""Whole messages that somebody puts into the broker again: once to each client, and none that is too old."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from guard.guarded import HERE, around, broker, guarded
from processes import on_uvloop
from sockets.acts import BOTH, come
from tidegate.guard import GuardedScope


@pytest.mark.parametrize("version", BOTH)
@on_uvloop
async def test_a_message_comes_once(tmp_path: Path, version: int) -> None:
    with broker() as port:
        async with guarded(tmp_path, port) as node:
            outside, injector = await around(node, port), await around(node, port, "injector")
            await outside.subscribe("open/#", qos=1)
            mary, bob = await come(node, "mary", version=version), await come(node, "bob", version=version)
            await mary.subscribe("open/#", qos=2)
            for qos in (0, 1, 2):
                for payload in (b"1", b"2", b"3"):
                    await bob.publish("open/a", payload, qos=qos)
                    assert (await mary.message()).payload == payload
                lying = [(await outside.message()).payload for _ in range(3)]
                for each in lying:
                    for again in (0, 1, 2):
                        await injector.publish("open/a", each, qos=again)
                        await outside.message()  # its own
            await bob.publish("open/a", b"last", qos=1)
            assert (await mary.message()).payload == b"last"


@on_uvloop
async def test_a_late_client_is_not_sent_what_is_too_old(tmp_path: Path) -> None:
    with broker() as port:
        async with guarded(tmp_path, port, scope={**HERE, "max_age": "10m"}) as node:
            outside, injector = await around(node, port), await around(node, port, "injector")
            await outside.subscribe("open/#", qos=1)
            bob = await come(node, "bob")
            await bob.publish("open/a", b"old", qos=1)
            lying = (await outside.message()).payload
            mary = await come(node, "mary")
            await mary.subscribe("open/#", qos=2)
            scope = node.node.scopes["legacy"]
            await injector.publish("open/a", lying, qos=1)
            await outside.message()
            assert (await mary.message()).payload == b"old"  # within its time, it is new to her
            assert isinstance(scope, GuardedScope)
            scope.settings = replace(scope.settings, max_age=-1.0)  # as if time had passed
            carol = await come(node, "carol")
            await carol.subscribe("open/#", qos=2)
            await injector.publish("open/a", lying, qos=1)
            await outside.message()
            await carol.publish("other", b"", qos=1)
            await carol.silent()
