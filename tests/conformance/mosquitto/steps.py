"""What the scenarios in this folder are written with.

The scenarios check what the broker tests of Eclipse Mosquitto check, written anew for this harness. Where Mosquitto
asks for something of its own, the row follows the specification and says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from harness import Client, Live
from tidegate import wire

BOTH = (wire.V311, wire.V5)
SURROGATES = (b"to\xed\xa0\x80", b"to\xed\xbf\xbf")  # U+D800 and U+DFFF as if they were characters


def u16(number: int) -> bytes:
    return number.to_bytes(2, "big")


def u32(number: int) -> bytes:
    return number.to_bytes(4, "big")


def text(value: str | bytes) -> bytes:
    """A string with its length, whether it is a legal string or not."""
    raw = value.encode() if isinstance(value, str) else value
    return u16(len(raw)) + raw


def packet(first: int, *body: bytes) -> bytes:
    whole = b"".join(body)
    return bytes((first,)) + wire.encode_varint(len(whole)) + whole


def properties(version: int, raw: bytes = b"") -> bytes:
    """A property field, which only MQTT 5 has."""
    return wire.encode_varint(len(raw)) + raw if version == wire.V5 else b""


def publish(
    version: int,
    first: int,
    *,
    topic: bytes = b"topic",
    pid: int | None = None,
    props: bytes = b"",
    payload: bytes = b"payload",
) -> bytes:
    """A PUBLISH as bytes, as wrong as asked for."""
    return packet(first, text(topic), b"" if pid is None else u16(pid), properties(version, props), payload)


def stays(version: int, **extra: Any) -> dict[str, Any]:
    """What CONNECT says for a session that outlives its connection."""
    if version == wire.V5:
        return {"clean_start": False, "properties": wire.Properties(session_expiry_interval=60, **extra)}
    return {"clean_start": False}


async def ended(client: Client) -> int | None:
    """The server closed the connection: the reason it gave, None where the version has no way to give one."""
    rest = await client.closed()
    if client.version != wire.V5:
        assert rest == b""
        return None
    found = wire.frame(rest, 0, 1 << 20)
    assert found is not None, rest
    first, start, stop = found
    last = wire.decode(first, rest[start:stop], wire.V5)
    assert isinstance(last, wire.Disconnect), last
    assert stop == len(rest), rest[stop:]
    return last.reason


class Ahead:
    """A loop whose clock is ahead of the real one: what takes seconds need not take them in a test."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.ahead = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loop, name)

    def time(self) -> float:
        return self.loop.time() + self.ahead

    def call_at(self, when: float, callback: Callable[..., object], *args: Any) -> asyncio.TimerHandle:
        return self.loop.call_at(when - self.ahead, callback, *args)


async def later(node: Live, seconds: float) -> None:
    """So many seconds later by the node's clock; whatever was due by then has happened."""
    turns: Any = node.node.turns
    if not isinstance(turns._loop, Ahead):
        turns._loop = Ahead(turns._loop)
    turns._loop.ahead += seconds
    happened = asyncio.Event()
    node.node.site.timers.at(turns._loop.time(), happened.set)
    await happened.wait()
