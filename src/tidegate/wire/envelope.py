"""The envelope, version 1: what travels with a message between nodes and through guarded brokers.

It is a prefix of the payload, or the value of one user property:

    head · origin's half · hop's half · dynamic part · signature · proof · MAC · payload

`envelope_static` knows the first three, which are the same for many messages: their bytes are the key of a cache, and
nothing of them is made or read again for the next message. The dynamic part has a fixed layout, with a bit each for
signature, proof and MAC, which may be absent. docs/reference/envelope.md has the layout byte by byte.

Invariants
- Bytes that are read are those that would be written for the same values, so no part of an envelope is without meaning.
- With a key nothing is believed, and no static part is read or kept, before the MAC over everything is right.
- The MAC covers the payload, and where the payload begins follows from what the MAC covers.

It does not sign, verify signatures or look at proofs, nor does it know whether an id has been seen or is fresh.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b, sha256
from hmac import compare_digest
from struct import Struct, unpack_from
from struct import error as StructError
from typing import Final

from tidegate.bounded import Bounded, Weighed
from tidegate.errors import MalformedPacket
from tidegate.wire.envelope_static import (
    HEAD,
    MAGIC,
    MAX_STATIC,
    VERSION,
    Static,
    check_head,
    decode_static,
    encode_static,
    origin_half,
    relayed,
)

__all__ = [
    "BUNDLED",
    "MAGIC",
    "MAX_BUNDLE",
    "MAX_PROOF",
    "MAX_PROPERTY",
    "MAX_STATIC",
    "VERSION",
    "Envelope",
    "MessageId",
    "Static",
    "authentic_at",
    "authenticated",
    "bundle",
    "bundle_head",
    "bundled_at",
    "bundled_lengths",
    "decode_static",
    "dynamic_at",
    "encode_static",
    "flags_at",
    "from_property",
    "is_bundle",
    "open",
    "open_property",
    "origin_half",
    "plain",
    "plain_at",
    "prefix",
    "relayed",
    "relayed_at",
    "seal",
    "signed_bytes",
    "single",
    "static_cache",
    "to_property",
]

BUNDLED: Final = 1 << 7
"""`plain_at`: the flags of several messages, see `bundle`."""
MAX_BUNDLE: Final = 256
"""Messages in one envelope: what an end that has to decide for each does in one turn is bounded."""
MAX_PROOF: Final = 4096
STATIC_BYTES: Final = 8 * 2**20
"""Of all statics in one cache."""
MAX_PROPERTY: Final = 65_535  # [MQTT-1.5.4] a string has two bytes for its length
MAX_PUBLISHED: Final = 1 << 32  # seconds: up to here a float holds each microsecond
SIGNATURE: Final = 64
MAC: Final = 16
LEAST_KEY: Final = 16

_QOS: Final = 0b11
_RETAIN: Final = 1 << 2
_EXPIRES: Final = 1 << 3
_SIGNATURE: Final = 1 << 4
_PROOF: Final = 1 << 5
_MAC: Final = 1 << 6
_MOST_PLAIN: Final = _SIGNATURE - 1  # of the flags of an envelope without signature, proof and MAC
_CUT: Final = "an envelope that is cut short"

_DYNAMIC: Final = Struct(">B14sQQQI")
"""Flags, node and boot, number, output, microseconds, seconds."""
_SIGNED: Final = Struct(">14sQQQB?")
_LENGTH: Final = Struct(">H")
_ORIGIN: Final = 14
_HEAD_SIZE: Final = HEAD.size
_OTHER: Final = (0, 0, b"", 0, 0)
_NONE_AT: Final = (0, 0, -1)
_PLAIN_HEAD: Final = MAGIC + bytes((VERSION,))
_DYNAMIC_SIZE: Final = _DYNAMIC.size
_MICRO: Final = 1_000_000
_MOST_MICROS: Final = MAX_PUBLISHED * _MICRO


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageId:
    origin: bytes
    """Node (8 bytes) and boot (6)."""
    number: int
    output: int = 0
    """As `session.Message.output` has it."""

    @property
    def node(self) -> str:
        return self.origin[:8].hex()

    @property
    def boot(self) -> int:
        return int.from_bytes(self.origin[8:], "big")


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    static: Static
    id: MessageId
    published: float
    """UTC seconds, to the microsecond."""
    expiry: int | None
    """Seconds that remain; None: it does not expire."""
    qos: int
    """What it was published with, whatever brokers on the way make of it; `retain` too."""
    retain: bool
    proof: bytes | None = None
    signature: bytes | None = None
    """Of `signed_bytes`, by the origin: Ed25519, or ECDSA on P-256."""


def static_cache(most: int) -> Bounded[bytes, Static]:
    """For `open`: statics by their bytes."""
    return Weighed(most, STATIC_BYTES, len, decode_static)


# -- writing -----------------------------------------------------------------------------------------------------------


def seal(
    static: bytes,
    origin: bytes,
    number: int,
    output: int,
    published: float,
    expiry: int | None,
    qos: int,
    retain: bool,
    payload: bytes,
    key: bytes | None,
    proof: bytes | None = None,
    signature: bytes | None = None,
) -> bytes:
    """The payload with its envelope before it. `static` comes from `encode_static` or `relayed`, `origin` is that of
    the id; without a key it has no MAC."""
    head = prefix(static, origin, number, output, published, expiry, qos, retain, payload, key, proof, signature)
    return head + payload


def of_source(static: bytes, published: float | None) -> bytes:
    """The envelope of another message that one comes from (`Static.others`): without an id and without payload."""
    return prefix(static, bytes(_ORIGIN), 0, 0, published or 0.0, None, 0, False, b"", None)


def prefix(
    static: bytes,
    origin: bytes,
    number: int,
    output: int,
    published: float,
    expiry: int | None,
    qos: int,
    retain: bool,
    payload: bytes,
    key: bytes | None,
    proof: bytes | None = None,
    signature: bytes | None = None,
) -> bytes:
    """The envelope alone, for `to_property`. ValueError for what cannot be said."""
    # hot: once per message and link
    if len(origin) != _ORIGIN or not 0 <= qos <= 2 or (number | output) >> 63:
        raise ValueError("an envelope with a wrong id or QoS")
    flags = qos | _RETAIN if retain else qos
    if expiry is None:
        expiry = 0
    else:
        flags |= _EXPIRES
    if key is None and proof is None and signature is None:
        return static + _dynamic(flags, origin, number, output, published, expiry)
    parts = [static, b""]
    if signature is not None:
        if len(signature) != SIGNATURE:
            raise ValueError(f"a signature of {len(signature)} bytes")
        flags |= _SIGNATURE
        parts.append(signature)
    if proof is not None:
        if not 0 < len(proof) <= MAX_PROOF:
            raise ValueError(f"a proof of {len(proof)} bytes; {MAX_PROOF} are allowed")
        flags |= _PROOF
        parts += _LENGTH.pack(len(proof)), proof
    if key is None:
        parts[1] = _dynamic(flags, origin, number, output, published, expiry)
    else:
        parts[1] = _dynamic(flags | _MAC, origin, number, output, published, expiry)
        parts.append(_mac(key, b"".join(parts), payload))
    return b"".join(parts)


def plain(origin: bytes, number: int, published: float, qos: int = 0, output: int = 0) -> bytes:
    """The dynamic part of a message that is neither retained nor expires, and that nobody has signed.

    The caller has made sure that QoS, numbers and time are such as an envelope can have.
    """
    # hot: once per message and link
    return _DYNAMIC.pack(qos, origin, number, output, round(published * _MICRO), 0)


def bundle(origin: bytes, first: int, published: float, payloads: Sequence[bytes]) -> bytes:
    """What stands behind the static part of several messages that agree in it: what `bundle_head` makes, and the
    payloads."""
    return b"".join((bundle_head(origin, first, published, list(map(len, payloads))), *payloads))


def bundle_head(origin: bytes, first: int, published: float, lengths: Sequence[int]) -> bytes:
    """A dynamic part as `plain` makes it, with the number of the first of several messages (the others follow) and how
    many there are, and the length of each payload."""
    # hot: once per bundle and link
    count = len(lengths)
    return _bundled(count).pack(BUNDLED, origin, first, 0, round(published * _MICRO), count, *lengths)


@lru_cache(maxsize=MAX_BUNDLE)
def _bundled(count: int) -> Struct:
    return Struct(f"{_DYNAMIC.format}{count}H")


def plain_at(data: bytes, start: int, flags: int = 0) -> tuple[int, int]:
    """Where the static part of the envelope at `start` ends, and where its dynamic part, if that has these flags and no
    others. Twice 0: it has, or there is no envelope."""
    # hot: once per message that comes over a link
    if data[start : start + 3] != _PLAIN_HEAD or len(data) < start + _HEAD_SIZE:
        return 0, 0
    end = start + _HEAD_SIZE + (data[start + 3] << 8 | data[start + 4]) + (data[start + 5] << 8 | data[start + 6])
    behind = end + _DYNAMIC_SIZE
    return (end, behind) if behind <= len(data) and data[end] == flags else (0, 0)


def flags_at(data: bytes, start: int, stop: int) -> tuple[int, int, int]:
    """The same, whatever the flags are, which come last; -1: there is no envelope before `stop`."""
    # hot: once per packet that comes over a link
    if data[start : start + 3] != _PLAIN_HEAD or stop < start + _HEAD_SIZE:
        return _NONE_AT
    end = start + _HEAD_SIZE + (data[start + 3] << 8 | data[start + 4]) + (data[start + 5] << 8 | data[start + 6])
    behind = end + _DYNAMIC_SIZE
    return (end, behind, data[end]) if behind <= stop else _NONE_AT


def dynamic_at(data: bytes, start: int) -> tuple[bytes, int, int, float] | None:
    """Node and boot, number, output and time of publication of a dynamic part that says nothing else but the QoS; None
    if it is not valid."""
    # hot: once per QoS 1 message that comes over a link
    _, origin, number, output, micros, expiry = _DYNAMIC.unpack_from(data, start)
    if expiry or (number | output) >> 63 or micros >= _MOST_MICROS:
        return None
    return origin, number, output, micros / _MICRO


def bundled_lengths(data: bytes, edge: int, stop: int) -> tuple[int, ...]:
    """How long the payloads of a bundle are whose static part ends at `edge`, and which itself ends at `stop`; they
    stand at its end."""
    # hot: once per bundle that comes over a link
    flags, _, first, output, micros, count = _DYNAMIC.unpack_from(data, edge)
    at = edge + _DYNAMIC_SIZE + 2 * count
    if not 0 < count <= MAX_BUNDLE or at > stop:
        raise MalformedPacket(f"an envelope of {count} messages; 1 to {MAX_BUNDLE} are allowed")
    if flags != BUNDLED or output or (first + count) >> 63 or micros >= _MOST_MICROS:
        raise MalformedPacket("an envelope of several messages with wrong flags, id or time")
    lengths = unpack_from(f">{count}H", data, edge + _DYNAMIC_SIZE)
    if at + sum(lengths) != stop:
        raise MalformedPacket("an envelope of several messages that are shorter or longer than it says")
    return lengths


def bundled_at(data: bytes, edge: int, stop: int) -> Iterator[bytes]:
    """The payloads of such a bundle."""
    lengths = bundled_lengths(data, edge, stop)
    at = stop - sum(lengths)
    for length in lengths:
        yield data[at : at + length]
        at += length


def relayed_at(data: bytes, edge: int, origin: bytes, latest: float) -> bool:
    """Whether the dynamic part at `edge`, of one message or a bundle, can go on to another node as it is: it says
    nothing but the id, which is of `origin`, and a time of publication that is not after `latest`."""
    flags, of, number, output, micros, rest = _DYNAMIC.unpack_from(data, edge)
    return (
        of == origin and not (rest and flags != BUNDLED) and not (number | output) >> 63 and micros <= latest * _MICRO
    )


def is_bundle(data: bytes) -> bool:
    return plain_at(data, 0, BUNDLED) != (0, 0)


def single(data: bytes) -> Iterator[bytes]:
    """The messages of a bundle, each with an envelope of its own."""
    edge, _ = plain_at(data, 0, BUNDLED)
    static, (_, origin, first, _, micros, _) = data[:edge], _DYNAMIC.unpack_from(data, edge)
    for number, payload in enumerate(bundled_at(data, edge, len(data)), first):
        yield static + _DYNAMIC.pack(0, origin, number, 0, micros, 0) + payload


def authenticated(static: bytes, origin: bytes, number: int, published: float, payload: bytes, key: bytes) -> bytes:
    """`seal` for a QoS 0 message that is neither retained nor expires."""
    # hot: once per message that goes to a guarded broker
    head = static + _DYNAMIC.pack(_MAC, origin, number, 0, round(published * _MICRO), 0)
    digest = _keyed(key).copy()
    digest.update(head)
    digest.update(payload)
    return head + digest.digest() + payload


def authentic_at(data: bytes, start: int, stop: int, key: bytes) -> tuple[int, int, bytes, int, int]:
    """Of an envelope at `start` that `authenticated` has made: where its static part ends and where the payload begins,
    which goes to `stop`; the origin, number and microseconds. Twice 0: it is another envelope, or a wrong one."""
    # hot: once per message that comes from a guarded broker
    if data[start : start + 3] != _PLAIN_HEAD or stop < start + _HEAD_SIZE:
        return _OTHER
    end = start + _HEAD_SIZE + (data[start + 3] << 8 | data[start + 4]) + (data[start + 5] << 8 | data[start + 6])
    mac = end + _DYNAMIC_SIZE
    payload = mac + MAC
    if payload > stop or data[end] != _MAC:
        return _OTHER
    digest = _keyed(key).copy()
    digest.update(data[start:mac])
    digest.update(data[payload:stop])
    if not compare_digest(digest.digest(), data[mac:payload]):
        return _OTHER
    _, origin, number, output, micros, _ = _DYNAMIC.unpack_from(data, end)
    return (end, payload, origin, number, micros) if not output else _OTHER


def _dynamic(flags: int, origin: bytes, number: int, output: int, published: float, expiry: int) -> bytes:
    try:
        return _DYNAMIC.pack(flags, origin, number, output, _micros(published), expiry)
    except StructError:
        raise ValueError(f"an envelope with an expiry of {expiry} seconds") from None


def _micros(published: float) -> int:
    if not 0 <= published < MAX_PUBLISHED:  # nor NaN
        raise ValueError(f"an envelope of a message published at {published}")
    return round(published * _MICRO)


def _mac(key: bytes, head: bytes, payload: bytes) -> bytes:
    digest = _keyed(key).copy()
    digest.update(head)
    digest.update(payload)
    return digest.digest()


@lru_cache(maxsize=256)
def _keyed(key: bytes) -> blake2b:
    """To be copied: the key is a block of its own, which costs as much as the envelope."""
    if len(key) < LEAST_KEY:  # with an empty one the digest would need no key
        raise ValueError(f"a key of {len(key)} bytes; {LEAST_KEY} to 64 are allowed")
    return blake2b(key=key, digest_size=MAC, person=b"tidegate1mac")


# -- reading -----------------------------------------------------------------------------------------------------------


def open(data: bytes, key: bytes | None, statics: Bounded[bytes, Static]) -> tuple[Envelope, bytes]:
    """The envelope that the payload begins with, and what follows it. `statics` comes from `static_cache`."""
    # hot: once per message that comes over a link or from a guarded broker
    have = len(data)
    if have < _HEAD_SIZE:
        raise MalformedPacket("not an envelope")
    magic, version, origin_length, hop_length = HEAD.unpack_from(data)
    if magic != MAGIC or version != VERSION or origin_length + hop_length > MAX_STATIC:
        check_head(magic, version, origin_length + hop_length)
    static_end = _HEAD_SIZE + origin_length + hop_length
    at = static_end + _DYNAMIC_SIZE
    if at > have:
        raise MalformedPacket(_CUT)
    flags, origin, number, output, micros, expiry = _DYNAMIC.unpack_from(data, static_end)
    signature = proof = None
    if flags > _MOST_PLAIN:
        if flags & BUNDLED:
            raise MalformedPacket("an envelope of several messages where there has to be one")
        if flags & _SIGNATURE:
            signature, at = data[at : at + SIGNATURE], at + SIGNATURE
        if flags & _PROOF:
            proof, at = _read_proof(data, at)
    if flags & _MAC:
        if key is None:
            raise MalformedPacket("an envelope with a MAC, and no key to verify it with")
        head, mac, payload = data[:at], data[at : at + MAC], data[at + MAC :]
        if not compare_digest(_mac(key, head, payload), mac):
            raise MalformedPacket("an envelope with a wrong MAC")
    elif key is not None:
        raise MalformedPacket("an envelope without MAC")
    else:
        if at > have:
            raise MalformedPacket(_CUT)
        payload = data[at:]
    qos = flags & _QOS
    if qos > 2 or (number | output) >> 63 or micros >= _MOST_MICROS or (expiry and not flags & _EXPIRES):
        raise MalformedPacket("an envelope with a wrong QoS, id, time or expiry")
    envelope = Envelope(
        static=statics[data[:static_end]],
        id=MessageId(origin=origin, number=number, output=output),
        published=micros / _MICRO,
        expiry=expiry if flags & _EXPIRES else None,
        qos=qos,
        retain=flags & _RETAIN != 0,
        proof=proof,
        signature=signature,
    )
    return envelope, payload


def _read_proof(data: bytes, at: int) -> tuple[bytes, int]:
    start = at + _LENGTH.size
    if start > len(data):
        raise MalformedPacket(_CUT)
    size = _LENGTH.unpack_from(data, at)[0]
    if not 0 < size <= MAX_PROOF:
        raise MalformedPacket(f"a proof of {size} bytes in an envelope; {MAX_PROOF} are allowed")
    return data[start : start + size], start + size


# -- signing -----------------------------------------------------------------------------------------------------------


def signed_bytes(envelope: Envelope, payload: bytes, properties: bytes = b"") -> bytes:
    """What the origin signs: all that no node after it may change, and digests of the payload and of the properties
    that stay."""
    half = origin_half(encode_static(envelope.static))
    id, proof = envelope.id, envelope.proof or b""
    fixed = _SIGNED.pack(id.origin, id.number, id.output, _micros(envelope.published), envelope.qos, envelope.retain)
    sizes = _LENGTH.pack(len(half)), _LENGTH.pack(len(proof))
    digests = sha256(payload).digest(), sha256(properties).digest()
    return b"".join((b"tidegate-envelope-1", sizes[0], half, fixed, sizes[1], proof, *digests))


# -- as a user property ------------------------------------------------------------------------------------------------


def to_property(envelope: bytes) -> str:
    """The value of the user property `tidegate` for what `prefix` made: base64url without padding."""
    text = urlsafe_b64encode(envelope).rstrip(b"=").decode()
    if len(text) > MAX_PROPERTY:
        raise ValueError(f"an envelope of {len(envelope)} bytes does not fit a user property")
    return text


def from_property(text: str) -> bytes:
    try:
        envelope = urlsafe_b64decode(text + "=" * (-len(text) % 4))
        exact = to_property(envelope) == text  # the decoder skips what is not of its alphabet
    except ValueError:
        exact = False
    if not exact:
        raise MalformedPacket("a user property that is not base64url")
    return envelope


def open_property(text: str, payload: bytes, key: bytes | None, statics: Bounded[bytes, Static]) -> Envelope:
    """The envelope in a user property, which must be all of it, of the message with this payload."""
    envelope, rest = open(from_property(text) + payload, key, statics)
    if len(rest) != len(payload):
        raise MalformedPacket("a user property that is not exactly an envelope")
    return envelope
