"""The guard is started again: who owns a client identifier, envelopes, and what a client subscribed to are there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from guard.guarded import HERE, broker, guarded, password_file
from guard.test_sessions import BOB, PASSWORDS
from processes import on_uvloop
from sockets.acts import come, policy
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


@on_uvloop
async def test_the_will_of_somebody_whom_only_the_broker_knows(tmp_path: Path) -> None:
    """It waits for the next start of the node with the session, and the directory has no such user."""
    passwords = password_file(tmp_path, bob="secret", dave="word")
    will = wire.Will(topic="open/will", payload=b"gone", qos=1, retain=False)
    lasting: dict[str, Any] = {"clean_start": False, "properties": wire.Properties(session_expiry_interval=600)}
    sections = {"scope": {"authenticate": "backend", "username": "bob", "password": "secret"}, "data": True}
    with broker(PASSWORDS, passwords=passwords) as port:
        async with guarded(tmp_path, port, policy("all", "open/#"), **sections) as node:
            bob = await node.connect("b", **BOB, **lasting)
            await bob.subscribe("open/#", qos=1)
            await node.connect("d", username="dave", password=b"word", will=will, **lasting)
        async with guarded(tmp_path, port, policy("all", "open/#"), **sections) as node:
            bob = await node.connect("b", **BOB, **lasting)
            assert (await bob.message()).payload == b"gone"
