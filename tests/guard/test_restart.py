"""The guard is started again: who owns a client identifier, envelopes, and what a client subscribed to are there."""

from __future__ import annotations

from pathlib import Path

from guard.guarded import HERE, broker, guarded
from processes import on_uvloop
from sockets.acts import come
from tidegate import wire


@on_uvloop
async def test_what_the_guard_knows_is_there_after_a_restart(tmp_path: Path) -> None:
    with broker() as port:
        data = {"scope": HERE, "data": True}
        async with guarded(tmp_path, port, **data) as node:
            mary, bob = await come(node, "mary", stays=True), await come(node, "bob")
            where = wire.Properties(user_properties=(("where", "o.payload > 1"),))
            await mary.subscribe("open/#", qos=1, properties=where)
            await mary.disconnect()
            await mary.closed()
            for payload in (b"1", b"2"):
                await bob.publish("open/a", payload, qos=1)
        async with guarded(tmp_path, port, **data) as node:
            await come(node, "bob", client="mary", expect=0x85)
            mary = await come(node, "mary", stays=True)
            assert mary.connack.session_present
            assert (await mary.message()).payload == b"2"
            await mary.silent()
