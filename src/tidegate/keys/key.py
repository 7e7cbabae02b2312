"""A topic key: 32 secret bytes with an id, a group and an end; and how a store keeps it.

What is known of a key is CBOR with a version in front; the secret stays outside. KeysError if bytes cannot be read: a
store that is damaged must not look like one that holds less.
"""

from __future__ import annotations

import math
import re
from dataclasses import asdict, dataclass, field
from io import BytesIO
from typing import Final

import cbor2

from tidegate.errors import KeysError
from tidegate.keys.group import Group
from tidegate.lazy import aead

SECRET: Final = 32  # bytes: AES-256
VERSION: Final = 1  # of what a store keeps

_ID: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_DAMAGED: Final = "kept keys cannot be read: the store is damaged, or from a newer version"


def valid_id(id: str) -> bool:
    """Whether a key may be called so: short, and harmless in JSON, in a topic and in a URL."""
    return _ID.fullmatch(id) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicKey:
    """The times are those that the wall clock had in mind when it was made: ask the ring how long it really lasts.

    What is printed of it shows no secret.
    """

    id: str
    group: Group
    secret: bytes = field(repr=False)
    made: float
    valid_until: float
    """From then on no new message is sealed with it."""
    readable_until: float
    """From then on it is handed out no more."""
    cipher: aead.AESGCM = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not valid_id(self.id):
            raise KeysError("a key has an id of 1 to 64 letters, digits and `_.-`")
        if len(self.secret) != SECRET:
            raise KeysError(f"a topic key has {SECRET} secret bytes, this one has {len(self.secret)}")
        times = (self.made, self.valid_until, self.readable_until)
        if not all(math.isfinite(time) for time in times) or list(times) != sorted(times):
            raise KeysError("a key is made, then valid, and then readable for a while: its times say otherwise")
        # made once: it costs as much as sealing a short message
        object.__setattr__(self, "cipher", aead.AESGCM(self.secret))


def encode_key(key: TopicKey) -> bytes:
    """A key without its secret."""
    known = {
        "id": key.id,
        "made": float(key.made),
        "valid": float(key.valid_until),
        "readable": float(key.readable_until),
        "group": asdict(key.group),
    }
    return bytes((VERSION,)) + cbor2.dumps(known)


def decode_key(data: bytes, secret: bytes) -> TopicKey:
    match _loads(data):
        case {
            "id": str() as id,
            "made": float() as made,
            "valid": float() as valid,
            "readable": float() as readable,
            "group": group,
        }:
            return TopicKey(
                id=id, group=read_group(group), secret=secret, made=made, valid_until=valid, readable_until=readable
            )
        case _:
            raise KeysError(_DAMAGED)


def read_group(value: object) -> Group:
    """The group of the dictionary that `asdict` makes of it."""
    match value:
        case {
            "id": str() as id,
            "filter": str() as filter,
            "owner": str() | None as owner,
            "domain": str() as domain,
            "demand": str() | None as demand,
            "topic": str() as topic,
            "context": bytes() as context,
            **rest,
        } if not rest:
            return Group(id=id, filter=filter, owner=owner, domain=domain, demand=demand, topic=topic, context=context)
        case _:
            raise KeysError(_DAMAGED)


def _loads(data: bytes) -> object:
    if data[:1] != bytes((VERSION,)):
        raise KeysError(_DAMAGED)
    stream = BytesIO(data[1:])
    try:
        known: object = cbor2.load(stream)
    except (cbor2.CBORDecodeError, ValueError, OverflowError, RecursionError):
        raise KeysError(_DAMAGED) from None
    if stream.tell() != len(data) - 1:
        raise KeysError(_DAMAGED)
    return known
