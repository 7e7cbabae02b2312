"""What clients do again and again in these tests, each finished when the node has seen it."""

from __future__ import annotations

from typing import Any

from harness import Client
from tidegate import wire

BOTH = [wire.V311, wire.V5]


def properties(**fields: Any) -> wire.Properties:
    return wire.Properties(**fields)


def lasting(seconds: int = 1000, **fields: Any) -> dict[str, Any]:
    """CONNECT fields of an MQTT 5 session that is resumed if it is there and kept when the client goes."""
    return {"clean_start": False, "properties": properties(session_expiry_interval=seconds, **fields)}


def kept(version: int) -> dict[str, Any]:
    """The same in the words of either version."""
    return lasting() if version == wire.V5 else {"clean_start": False}


def will(topic: str = "will", payload: bytes = b"gone", qos: int = 0, retain: bool = False, **fields: Any) -> wire.Will:
    return wire.Will(topic=topic, payload=payload, qos=qos, retain=retain, properties=properties(**fields))


async def lose(client: Client) -> None:
    """The connection ends without DISCONNECT."""
    client.writer.write_eof()
    await client.closed()


async def leave(client: Client, reason: int = 0, **fields: Any) -> None:
    """DISCONNECT; returns when the server has closed the connection."""
    await client.send(wire.Disconnect(reason=reason, properties=properties(**fields)))
    assert await client.closed() == b""


async def dismissed(client: Client, reason: int) -> wire.Disconnect | None:
    """The server ends the connection: with this reason in MQTT 5, without a word in 3.1.1."""
    packet = None
    if client.version == wire.V5:
        packet = await client.expect(wire.Disconnect)
        assert packet.reason == reason, packet
    assert await client.closed() == b""
    return packet


async def take(client: Client, count: int) -> list[wire.Publish]:
    """The next messages, acknowledged as they come; returns when every exchange is over."""
    messages: list[wire.Publish] = []
    open = set()
    while len(messages) < count or open:
        match packet := await client.receive():
            case wire.Publish():
                messages.append(packet)
                if packet.qos == 1:
                    await client.send(wire.Puback(packet_id=packet.packet_id))
                elif packet.qos == 2:
                    open.add(packet.packet_id)
                    await client.send(wire.Pubrec(packet_id=packet.packet_id))
            case wire.Pubrel():
                open.remove(packet.packet_id)
                await client.send(wire.Pubcomp(packet_id=packet.packet_id))
            case _:
                raise AssertionError(packet)
    return messages


async def payloads(client: Client, count: int) -> list[bytes]:
    """The payloads of the next messages, acknowledged."""
    return [message.payload for message in await take(client, count)]
