"""Debian's Mosquitto bridges to a node, with its default settings: it connects at once and nothing comes back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from cli.driving import mosquitto_program
from harness import PATIENCE, Client
from importing.twins import mosquitto
from processes import Served, from_file, on_uvloop
from sockets.acts import come, policy, setting
from tidegate import wire

RULES = [
    policy("bridge", "plant/#", subject="user:bob"),
    policy("people", "plant/#", subject="user:mary"),
    policy("states", "$SYS/#", "read", subject="user:mary"),
]
BRIDGE = """allow_anonymous true
persistence false
connection edge
address 127.0.0.1:{port}
remote_clientid edge
remote_username bob
remote_password pw
restart_timeout 1
topic plant/# both 1
{more}"""
STATE = "$SYS/broker/connection/edge/state"


@pytest.fixture(autouse=True, scope="module")
def _installed() -> None:
    mosquitto_program()


@asynccontextmanager
async def bridged(folder: Path, more: str = "") -> AsyncIterator[tuple[Served, Client, Client]]:
    """A node, a client of it, and a client of a Mosquitto that bridges to it."""
    async with from_file(folder, setting(*RULES)) as node:
        mary = await come(node, "mary")
        await mary.subscribe("plant/#", STATE, qos=1, retain_as_published=True, no_local=True)
        with mosquitto(BRIDGE.format(port=node.port, more=more)) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            local = Client(reader, writer)
            node.clients.append(local)
            await local.send(wire.Connect(version=5, client_id="local", clean_start=True, keep_alive=0))
            assert (await local.expect(wire.Connack)).reason == 0
            await local.subscribe("plant/#", qos=1, no_local=True)
            async with asyncio.timeout(PATIENCE):
                while (state := await mary.message()).payload != b"1":
                    pass
            assert (state.topic, state.retain) == (STATE, True)
            yield node, mary, local


@pytest.mark.parametrize("more", ["", "bridge_protocol_version mqttv31", "bridge_protocol_version mqttv50"])
@on_uvloop
async def test_messages_cross_both_ways_and_do_not_come_back(tmp_path: Path, more: str) -> None:
    async with bridged(tmp_path, more) as (_, mary, local):
        await mary.publish("plant/down", b"retained", qos=1, retain=True)
        message = await local.message()
        assert (message.topic, message.payload) == ("plant/down", b"retained")
        await local.publish("plant/up", b"up", qos=1)
        message = await mary.message()
        assert (message.topic, message.payload) == ("plant/up", b"up")
        # the marks come behind whatever might have come back: nobody is sent its own, unless a bridge sends it
        await mary.publish("plant/mark/down", qos=1)
        assert (await local.message()).topic == "plant/mark/down"
        await local.publish("plant/mark/up", qos=1)
        assert (await mary.message()).topic == "plant/mark/up"


@on_uvloop
async def test_the_state_says_when_the_bridge_is_gone(tmp_path: Path) -> None:
    async with bridged(tmp_path) as (node, mary, _):
        (session,) = [each for each in node.node.scopes["main"].sessions.values() if each.client == "edge"]
        assert session.connection is not None
        assert session.connection.bridge
        session.connection.shell.close()
        async with asyncio.timeout(PATIENCE):
            while (state := await mary.message()).payload != b"0":
                pass
        assert state.topic == STATE
