"""What a node and the key service say to each other: frames of CBOR, each after its length in four bytes.

The node begins with `["tidegate-ktm", [versions]]` and is answered `["tidegate-ktm", version]`, or version 0 and why
not. From then on it sends requests `[number, op, {…}]`; each is answered, in order, `[number, true, value]` or
`[number, false, problem, text]`. The service also sends `[0, keys, revoked]` on its own to whoever watches.

Invariants
- Bytes raise ProtocolError and nothing else, however they were made. A frame has a limit, and so has its nesting; it
  holds plain values only, none of the tags with which CBOR makes a reader compute.
- A request that is repeated does no harm: keys have ids, and those that were revoked stay so.

It does not open connections, and knows nothing of who may ask for what.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

import cbor2

from tidegate.errors import KeysError, MalformedPacket, ProtocolError
from tidegate.keys import Group, TopicKey, decode_key, encode_key
from tidegate.keys.key import read_group as read_kept_group
from tidegate.keys.key import valid_id
from tidegate.wire import cbor

VERSION: Final = 1
MAX: Final = 128 * 1024  # bytes of a frame
PUSH: Final = 48 * 1024  # bytes of keys in one frame, unless a single one has more
IDS: Final = 512  # ids in one frame

_MAGIC: Final = "tidegate-ktm"
_HEAD: Final = 4
_NUMBERS: Final = 1 << 53


class Op(StrEnum):
    PUT = "put"
    FIND = "find"
    REVOKE = "revoke"
    WATCH = "watch"
    GRANT = "grant"
    WRAP = "wrap"
    GROUP = "group"
    ROTATE = "rotate"
    PING = "ping"


class Wrong(StrEnum):
    INVALID = "invalid"
    UNAVAILABLE = "unavailable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    number: int
    op: Op
    said: dict[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    number: int
    value: Any = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    number: int
    problem: Wrong
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    keys: Sequence[TopicKey]
    revoked: Sequence[str]


# -- frames ------------------------------------------------------------------------------------------------------------


def frame(content: object) -> bytes:
    """With its length; KeysError if it is too long."""
    data = cbor2.dumps(content)
    if len(data) > MAX:
        raise KeysError(f"{len(data)} bytes are too many for the key service: up to {MAX} are taken")
    return len(data).to_bytes(_HEAD, "big") + data


async def receive(reader: asyncio.StreamReader, *, idle: float, whole: float) -> object:
    """The content of the next frame, which begins within `idle` seconds and is there `whole` seconds later."""
    async with asyncio.timeout(idle):
        head = await reader.readexactly(1)
    async with asyncio.timeout(whole):
        head += await reader.readexactly(_HEAD - 1)
        size = int.from_bytes(head, "big")
        if not 0 < size <= MAX:
            raise ProtocolError(f"a frame of {size} bytes: up to {MAX} are taken")
        data = await reader.readexactly(size)
    return content(data)


def content(data: bytes) -> object:
    try:
        return cbor.plain(data)
    except MalformedPacket as error:
        raise ProtocolError(f"a frame that cannot be read: {error}") from None


# -- hello -------------------------------------------------------------------------------------------------------------


def hello() -> bytes:
    return frame((_MAGIC, (VERSION,)))


def welcome(refusal: str | None = None) -> bytes:
    return frame((_MAGIC, VERSION) if refusal is None else (_MAGIC, 0, refusal[:1000]))


def read_hello(said: object) -> None:
    """ProtocolError if it is no node, or one with which there is no version in common."""
    match said:
        case [str(magic), [*versions]] if magic == _MAGIC:
            if VERSION not in versions:
                raise ProtocolError(f"it does not speak version {VERSION} of the protocol: use the same Tidegate")
        case _:
            raise ProtocolError("it does not speak the protocol of the key service")


def read_welcome(said: object) -> None:
    """ProtocolError if the service does not want us, or is none."""
    match said:
        case [str(magic), int(version)] if magic == _MAGIC and version == VERSION:
            return
        case [str(magic), 0, str(refusal)] if magic == _MAGIC:
            raise ProtocolError(f"it refuses: {refusal}")
        case _:
            raise ProtocolError("what answers is no key service, or one of another version")


# -- requests and replies ----------------------------------------------------------------------------------------------


def request(number: int, op: Op, said: dict[str, Any]) -> bytes:
    return frame((number, op.value, said))


def read_request(said: object) -> Request:
    match said:
        case [int(number), str(op), dict(arguments)] if 0 < number < _NUMBERS and op in tuple(Op):
            return Request(number=number, op=Op(op), said=arguments)
        case _:
            raise ProtocolError("a frame that is no request")


def answer(number: int, value: object) -> bytes:
    return frame((number, True, value))


def failure(number: int, problem: Wrong, text: str) -> bytes:
    return frame((number, False, problem.value, text[:1000]))


def told(keys: Iterable[TopicKey], revoked: Iterable[str]) -> bytes:
    return frame((0, [packed(key) for key in keys], list(revoked)))


def read_reply(said: object) -> Answer | Failure | Told:
    match said:
        case [int(number), True, value] if 0 < number < _NUMBERS:
            return Answer(number=number, value=value)
        case [int(number), False, str(problem), str(text)] if 0 < number < _NUMBERS and problem in tuple(Wrong):
            return Failure(number=number, problem=Wrong(problem), text=text)
        case [0, list(keys), list(revoked)]:
            return Told(keys=[unpacked(key) for key in keys], revoked=[read_id(id) for id in revoked])
        case _:
            raise ProtocolError("a frame that is no reply")


# -- what is in them ---------------------------------------------------------------------------------------------------


def packed(key: TopicKey) -> list[bytes]:
    return [encode_key(key), key.secret]


def unpacked(said: object) -> TopicKey:
    match said:
        case [bytes(known), bytes(secret)]:
            content(known[1:])  # behind its version
            try:
                return decode_key(known, secret)
            except KeysError as error:
                raise ProtocolError(f"a key that cannot be read: {error}") from None
        case _:
            raise ProtocolError("something that is no key")


def read_group(value: object) -> Group:
    try:
        group = read_kept_group(value)
    except KeysError:
        raise ProtocolError("something that is no group") from None
    if not 0 < len(group.id) <= 256:
        raise ProtocolError("something that is no group")
    return group


def read_id(said: object) -> str:
    if not isinstance(said, str) or not valid_id(said):
        raise ProtocolError("something that is no id of a key")
    return said


def read_ids(said: object) -> list[str]:
    if not isinstance(said, list) or len(said) > IDS:
        raise ProtocolError(f"something that is no list of up to {IDS} ids")
    return [read_id(id) for id in said]
