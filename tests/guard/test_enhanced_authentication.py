"""AUTH passes between a client and the broker. Mosquitto knows no method without a plugin, so the broker is a short one
that knows `ask`: it asks twice, and believes who answers with the double."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from guard.guarded import HERE, broker, guarded
from harness import Client, free_port
from processes import Served, on_uvloop
from sockets.acts import policy
from tidegate import wire

BACKEND = {"authenticate": "backend"}
RULES = (policy("all", "open/#"), policy("mary", "mary/#", subject="user:mary"))


def method(data: bytes | None = None, name: str = "ask") -> wire.Properties:
    return wire.Properties(authentication_method=name, authentication_data=data)


class Asking:
    """One connection of that broker."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.client = Client(reader, writer)  # reads and writes packets as one does
        self.client.version = wire.V5

    async def serve(self) -> None:
        connect = await self.client.expect(wire.Connect)
        known = connect.properties.authentication_method
        if known is not None:
            if known != "ask":
                await self.client.send(wire.Connack(session_present=False, reason=0x8C))
                return
            for number in (b"1", b"2"):
                if not await self.believes(number):
                    await self.client.send(wire.Connack(session_present=False, reason=0x87))
                    return
        properties = wire.NONE if known is None else method(b"welcome")
        await self.client.send(wire.Connack(session_present=False, reason=0, properties=properties))
        while True:
            match await self.client.receive():
                case wire.Auth(reason=0x19):
                    if await self.believes(b"3"):
                        await self.client.send(wire.Auth(reason=0, properties=method(b"again")))
                    else:
                        await self.client.send(wire.Disconnect(reason=0x87))
                case wire.Pingreq():
                    await self.client.send(wire.Pingresp())
                case wire.Publish() as packet:
                    await self.client.send(wire.Puback(packet_id=packet.packet_id))
                case wire.Disconnect():
                    return
                case _:
                    pass

    async def believes(self, number: bytes) -> bool:
        await self.client.send(wire.Auth(reason=0x18, properties=method(number)))
        answer = await self.client.expect(wire.Auth)
        assert answer.reason == 0x18
        return answer.properties.authentication_data == number * 2


@contextlib.asynccontextmanager
async def asking() -> AsyncIterator[int]:
    """Its port."""
    tasks: set[asyncio.Task[Any]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, TimeoutError, asyncio.CancelledError):
            await Asking(reader, writer).serve()
        writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", port := free_port())
    try:
        yield port
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()


async def begins(node: Served, client_id: str = "c", name: str = "ask", **fields: Any) -> Client:
    client = await node.socket()
    client.version = wire.V5
    packet = wire.Connect(
        version=wire.V5, client_id=client_id, clean_start=True, keep_alive=0, properties=method(b"0", name), **fields
    )
    await client.send(packet)
    return client


async def answers(client: Client, double: bool = True) -> None:
    asked = await client.expect(wire.Auth)
    data = asked.properties.authentication_data or b""
    assert (asked.reason, asked.properties.authentication_method) == (0x18, "ask")
    await client.send(wire.Auth(reason=0x18, properties=method(data * (2 if double else 1))))


@on_uvloop
async def test_auth_passes_both_ways(tmp_path: Path) -> None:
    """Before CONNACK, and again when the client wants to; it has no name, whatever CONNECT says."""
    async with asking() as port, guarded(tmp_path, port, *RULES, scope=BACKEND) as node:
        client = await begins(node, username="mary")
        await answers(client)
        await answers(client)
        connack = await client.expect(wire.Connack)
        told = connack.properties
        assert (connack.reason, told.authentication_method, told.authentication_data) == (0, "ask", b"welcome")
        session = node.node.scopes["legacy"].sessions["anonymous", "c"]
        assert session.subject.user is None
        assert (await client.publish("mary/a", qos=1)).reason == 0x87  # type: ignore[union-attr]
        assert (await client.publish("open/a", qos=1)).reason == 0  # type: ignore[union-attr]
        await client.send(wire.Auth(reason=0x19, properties=method()))
        await answers(client)
        again = await client.expect(wire.Auth)
        assert (again.reason, again.properties.authentication_data) == (0, b"again")
        await client.silent()
        await client.send(wire.Auth(reason=0x19, properties=method()))
        await answers(client, double=False)
        assert (await client.expect(wire.Disconnect)).reason == 0x87
        await client.closed()


@on_uvloop
async def test_who_the_broker_does_not_believe_is_refused(tmp_path: Path) -> None:
    async with asking() as port, guarded(tmp_path, port, *RULES, scope=BACKEND) as node:
        client = await begins(node)
        await answers(client)
        await answers(client, double=False)
        assert (await client.expect(wire.Connack)).reason == 0x87
        client = await begins(node, name="unknown")
        assert (await client.expect(wire.Connack)).reason == 0x8C
        client = await begins(node)
        await client.expect(wire.Auth)
        await client.send(wire.Auth(reason=0x18, properties=method(b"11", "other")))
        assert (await client.expect(wire.Connack)).reason == 0x8C
        client = await begins(node)
        await client.expect(wire.Auth)
        await client.send(wire.Auth(reason=0x19, properties=method(b"11")))
        assert (await client.expect(wire.Connack)).reason >= 0x80
        assert node.node.status()["bugs"] == 0


@on_uvloop
async def test_where_it_cannot_pass_it_is_refused(tmp_path: Path) -> None:
    """The node authenticates; the listener wants a name; Mosquitto has no such method."""
    known = [{"url": "mqtt://127.0.0.1:PORT"}]
    async with asking() as port:
        for more in ({"scope": HERE}, {"scope": BACKEND, "listeners": known}):
            async with guarded(tmp_path, port, *RULES, **more) as node:  # type: ignore[arg-type]
                refused = await (await begins(node)).expect(wire.Connack)
                assert refused.reason == (0x8C if more["scope"] is HERE else 0x87)
    with broker() as port:
        async with guarded(tmp_path, port, *RULES, scope=BACKEND) as node:
            assert (await (await begins(node)).expect(wire.Connack)).reason == 0x8C
