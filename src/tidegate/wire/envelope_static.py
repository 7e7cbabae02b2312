"""The static part of an envelope: what is the same for many messages of one publisher on one topic.

Two halves. The origin's half is made by the node that made the message and stays as it is, byte by byte, on every node
after it, so that a signature of the origin keeps holding. The hop's half (floor, facts, path, type of the link) is made
anew by each node: `relayed` puts another one behind the origin's half without reading that.

Invariants
- Equal statics have equal bytes, and bytes that are read are exactly those that would be written: what comes in is
  encoded again and compared. So there is one place that checks, `_halves`, for both directions.
- The reader knows the plain types only and counts what it makes. A general decoder would follow tags into regular
  expressions, dates and numbers of any size.

It does not know who may say what: whether an origin, an owner or a floor is believed is for `link` and `guard`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from struct import Struct
from types import MappingProxyType, NoneType
from typing import Any, Final

import cbor2

from tidegate.errors import MalformedPacket
from tidegate.topics import valid_topic

MAGIC: Final = b"TG"
VERSION: Final = 1
MAX_STATIC: Final = 16 * 1024
"""Bytes of both halves."""
MAX_PATH: Final = 64
MAX_FACTS: Final = 64
MAX_OTHERS: Final = 16
SIGNER: Final = 32
MAX_DEPTH: Final = 8
"""Lists and maps inside each other in an attribute, that of all attributes included."""
MAX_ITEMS: Final = 1024
"""Keys and values in the attributes of the publisher, and in those of its surroundings."""

HEAD: Final = Struct(">2sBHH")
"""Magic, version, length of the origin's half, length of the hop's half."""
_READ_ITEMS: Final = 2 * MAX_ITEMS + 256  # of a half: both kinds of attributes, and everything else there may be
_INTEGERS: Final = 1 << 63
_DOUBLE: Final = Struct(">d")
_NODE: Final = re.compile("[0-9a-f]{16}")
_SCOPE: Final = re.compile("[^@]+@[0-9a-f]{16}")
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Static:
    """What is the same for many messages. Nothing that it holds may change: its bytes are made once."""

    origin: str
    """Id of the node that made the message: 16 hexadecimal digits."""
    owner: str = ""
    """Identity of the owner; empty: nobody owns it."""
    publisher: Mapping[str, Any]
    """Exported attributes of the publisher as plain data, `kind` and `client` at least."""
    topic: str
    """What the message was published under."""
    demand: str | None = None
    """`policy.Demand.text`; None: nothing was demanded."""
    floor: str
    """Level, by name."""
    facts: tuple[str, ...] = ()
    path: tuple[str, ...] = ()
    """Scopes as `name@node id`, the first one first."""
    preferences: tuple[str, str, int] | None = None
    """Home domain, id of the owner, and number of the set that applies; None: there is none."""
    view: str | None = None
    """The publisher's table of visibility, as it came."""
    capability: bytes | None = None
    signer: bytes | None = None
    """SHA-256 of the certificate of the node that has signed the message, if one has."""
    link: str = ""
    """Type of the link that it came over, at the sender."""
    surroundings: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
    """`p.e`."""
    sealed: bool = False
    signed: bool = False
    scored: bool = False
    under: str | None = None
    """The topic that it was sealed under, if that is not `topic`."""
    others: tuple[bytes, ...] = ()
    """Of the other messages that it comes from: an envelope each, without payload, not read here."""
    data: bytes = field(default=b"", init=False, repr=False, compare=False)
    """Its bytes, once they have been made or read."""


# Field by key, in the order of CBOR's canonical form: shorter keys first.
_ORIGIN: Final = {
    "e": "surroundings",
    "view": "view",
    "owner": "owner",
    "topic": "topic",
    "under": "under",
    "demand": "demand",
    "origin": "origin",
    "others": "others",
    "scored": "scored",
    "sealed": "sealed",
    "signed": "signed",
    "signer": "signer",
    "publisher": "publisher",
    "capability": "capability",
    "preferences": "preferences",
}
_HOP: Final = {"link": "link", "path": "path", "facts": "facts", "floor": "floor"}
_REQUIRED: Final = frozenset(("origin", "publisher", "topic", "floor"))
_DEFAULTS: Final[Mapping[str, Any]] = {
    "surroundings": _NOTHING,
    "owner": "",
    "others": (),
    "scored": False,
    "sealed": False,
    "signed": False,
    "link": "",
    "path": (),
    "facts": (),
}  # of the other optional fields: None
_TYPES: Final[Mapping[str, Any]] = {
    "surroundings": Mapping,
    "view": (str, NoneType),
    "owner": str,
    "topic": str,
    "under": (str, NoneType),
    "demand": (str, NoneType),
    "origin": str,
    "others": tuple,
    "scored": bool,
    "sealed": bool,
    "signed": bool,
    "publisher": Mapping,
    "capability": (bytes, NoneType),
    "signer": (bytes, NoneType),
    "preferences": (tuple, NoneType),
    "link": str,
    "path": tuple,
    "facts": tuple,
    "floor": str,
}


def encode_static(static: Static) -> bytes:
    """Magic, version, lengths and both halves: what an envelope begins with. ValueError for what cannot be said."""
    return static.data or _keep(static, _encode(static))


def decode_static(data: bytes) -> Static:
    size = origin_size(data)
    fields = _read(data[HEAD.size : HEAD.size + size], _ORIGIN) | _read(data[HEAD.size + size :], _HOP)
    if missing := _REQUIRED.difference(fields):
        raise MalformedPacket(f"an envelope without {min(missing)}")
    static = Static(**fields)
    try:
        again = _encode(static)
    except ValueError as error:
        raise MalformedPacket(str(error)) from None
    if again != data:
        raise MalformedPacket("an envelope whose static part is not in canonical form")
    _keep(static, data)
    return static


def origin_size(data: bytes) -> int:
    """The length of the origin's half in the bytes of a static part, which must have the length that they declare."""
    if len(data) < HEAD.size:
        raise MalformedPacket("an envelope that is cut short")
    magic, version, origin, hop = HEAD.unpack_from(data)
    check_head(magic, version, origin + hop)
    if len(data) != HEAD.size + origin + hop:
        raise MalformedPacket("the static part of an envelope does not have the length that it declares")
    return int(origin)


def check_head(magic: bytes, version: int, size: int) -> None:
    if magic != MAGIC:
        raise MalformedPacket("not an envelope")
    if version != VERSION:
        raise MalformedPacket(f"an envelope of version {version}; this node reads version {VERSION}")
    if size > MAX_STATIC:
        raise MalformedPacket(f"an envelope whose static part has {size} bytes; {MAX_STATIC} are allowed")


def relayed(static: bytes, *, floor: str, facts: tuple[str, ...], path: tuple[str, ...], link: str) -> bytes:
    """The bytes of a static part with another hop's half; those of the origin's half stay."""
    return _together(origin_half(static), _hop({"link": link, "path": path, "facts": facts, "floor": floor}))


def origin_half(static: bytes) -> bytes:
    """What the origin made of the bytes of a static part, and signs."""
    return static[HEAD.size : HEAD.size + origin_size(static)]


def _keep(static: Static, data: bytes) -> bytes:
    object.__setattr__(static, "data", data)
    return data


def _together(origin: bytes, hop: bytes) -> bytes:
    size = len(origin) + len(hop)
    if size > MAX_STATIC:
        raise ValueError(f"the static part of an envelope would have {size} bytes; {MAX_STATIC} are allowed")
    return HEAD.pack(MAGIC, VERSION, len(origin), len(hop)) + origin + hop


# -- writing -----------------------------------------------------------------------------------------------------------


def _encode(static: Static) -> bytes:
    fields = {name: getattr(static, name) for name in _ORIGIN.values()}
    _check_types(fields)
    if not _NODE.fullmatch(static.origin):
        raise ValueError("the origin of an envelope is not the id of a node")
    if not valid_topic(static.topic) or (static.under is not None and not valid_topic(static.under)):
        raise ValueError("a topic of an envelope is not valid")
    if not isinstance(static.publisher.get("kind"), str) or not isinstance(static.publisher.get("client"), str):
        raise ValueError("the publisher of an envelope has no kind or no client")
    if static.signer is not None and len(static.signer) != SIGNER:
        raise ValueError("the signer of an envelope is no SHA-256")
    if static.preferences is not None:
        fields["preferences"] = _preferences(static.preferences)
    if len(static.others) > MAX_OTHERS or not all(isinstance(other, bytes) for other in static.others):
        raise ValueError(f"an envelope comes from up to {MAX_OTHERS} other messages, each of them bytes")
    for name in ("publisher", "surroundings"):
        fields[name] = _plain(fields[name], MAX_DEPTH, [MAX_ITEMS])
    origin = cbor2.dumps(_without_defaults(fields, _ORIGIN))
    return _together(origin, _hop({name: getattr(static, name) for name in _HOP.values()}))


def _preferences(value: tuple[object, ...]) -> list[object]:
    match value:
        case (str(domain), str(owner), int(number)) if not isinstance(number, bool) and 0 <= number < _INTEGERS:
            return [domain, owner, number]
        case _:
            raise ValueError("preferences of an envelope are not domain, owner and number")


def _hop(fields: dict[str, Any]) -> bytes:
    _check_types(fields)
    facts, path = fields["facts"], fields["path"]
    if len(facts) > MAX_FACTS or not all(isinstance(fact, str) and fact for fact in facts):
        raise ValueError(f"an envelope has up to {MAX_FACTS} facts, each of them a name")
    if len(path) > MAX_PATH or not all(isinstance(scope, str) and _SCOPE.fullmatch(scope) for scope in path):
        raise ValueError(f"an envelope has up to {MAX_PATH} scopes in its path, each of them `name@node id`")
    return cbor2.dumps(_without_defaults(fields, _HOP))


def _check_types(fields: Mapping[str, Any]) -> None:
    for name, value in fields.items():
        if not isinstance(value, _TYPES[name]):
            raise ValueError(f"{name} of an envelope has the wrong type")


def _without_defaults(fields: Mapping[str, Any], keys: Mapping[str, str]) -> dict[str, Any]:
    """What is not there is not written, so that there is one way to say it."""
    return {key: fields[name] for key, name in keys.items() if name in _REQUIRED or fields[name] != _DEFAULTS.get(name)}


def _plain(value: Any, depth: int, left: list[int]) -> Any:
    """The same with the keys of every map in order. ValueError if it is not plain, too deep or too large."""
    left[0] -= 1
    if left[0] < 0:
        raise ValueError(f"attributes of an envelope have more than {MAX_ITEMS} keys and values")
    match value:
        case None | str() | bool():
            return value
        case int():
            return _integer(value)
        case float():
            if not isfinite(value):
                raise ValueError("an attribute of an envelope is a number that is not finite")
            return value
        case Mapping() | list() | tuple() if not depth:
            raise ValueError(f"attributes of an envelope are nested more than {MAX_DEPTH} deep")
        case Mapping():
            left[0] -= len(value)
            keys = sorted(value, key=_canonical)
            return {key: _plain(value[key], depth - 1, left) for key in keys}
        case list() | tuple():
            return [_plain(item, depth - 1, left) for item in value]
        case _:
            raise ValueError(f"an attribute of an envelope is of type {type(value).__name__}")


def _canonical(key: object) -> tuple[int, bytes]:
    """Sorts keys as RFC 8949, 4.2.1 does: by what encodes them, which begins with their length."""
    if not isinstance(key, str):
        raise ValueError("the name of an attribute of an envelope is not a string")
    text = key.encode()
    return len(text), text


def _integer(value: int) -> int:
    if not -_INTEGERS <= value < _INTEGERS:
        raise ValueError("a number of an envelope does not fit eight bytes")
    return value


# -- reading -----------------------------------------------------------------------------------------------------------


def _read(data: bytes, keys: Mapping[str, str]) -> dict[str, Any]:
    """The fields of one half. Their types, and whether they are in canonical form, are found out by encoding them."""
    half = _Reader(data).half()
    if not isinstance(half, dict):
        raise MalformedPacket("half of the static part of an envelope is not a map")
    if unknown := half.keys() - keys.keys():
        raise MalformedPacket(f"unknown key {min(unknown)[:40]!r} in an envelope")
    return {keys[key]: _tuple(value) for key, value in half.items()}


def _tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


class _Reader:
    """Reads one item of CBOR (RFC 8949) of plain types and definite length."""

    __slots__ = ("at", "data", "left")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.left = _READ_ITEMS

    def half(self) -> object:
        value = self.item(MAX_DEPTH + 1)  # the map of the half is around that of the attributes
        if self.at != len(self.data):
            raise MalformedPacket("half of the static part of an envelope goes on behind its end")
        return value

    def item(self, depth: int) -> object:
        self.left -= 1
        if self.left < 0:
            raise MalformedPacket("the static part of an envelope has too many items")
        first = self.take(1)[0]
        if first >= 0xE0:
            return self.simple(first)
        major, size = first >> 5, first & 31
        if size > 27:
            raise MalformedPacket("an item of indefinite length in an envelope")
        if size > 23:
            size = int.from_bytes(self.take(1 << (size - 24)), "big")
        match major:
            case 0:
                return size
            case 1:
                return -1 - size
            case 2:
                return self.take(size)
            case 3:
                return self.text(size)
            case 4 | 5 if not depth:
                raise MalformedPacket("the static part of an envelope is nested too deep")
            case 4:  # however many it says that there are: each takes a byte, or the reading ends
                return [self.item(depth - 1) for _ in range(size)]
            case 5:
                return {self.key(): self.item(depth - 1) for _ in range(size)}
            case _:
                raise MalformedPacket("a tag in an envelope")

    def simple(self, first: int) -> object:
        match first:
            case 0xF4 | 0xF5:
                return first == 0xF5
            case 0xF6:
                return None
            case 0xFB:
                return _DOUBLE.unpack(self.take(8))[0]
            case _:
                raise MalformedPacket(f"an item in an envelope begins with {first:#04x}")

    def key(self) -> str:
        key = self.item(0)
        if not isinstance(key, str):
            raise MalformedPacket("a key in an envelope is not a string")
        return key

    def text(self, size: int) -> str:
        try:
            return self.take(size).decode()
        except UnicodeDecodeError as error:
            raise MalformedPacket(f"a string in an envelope is not UTF-8: {error.reason}") from None

    def take(self, size: int) -> bytes:
        end = self.at + size
        if end > len(self.data):
            raise MalformedPacket("an envelope that is cut short")
        taken = self.data[self.at : end]
        self.at = end
        return taken
