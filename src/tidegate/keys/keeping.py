"""Topic keys as a store keeps them: what is known of a key, and apart from it the secret.

`encode_key` and `decode_key` are for a store that has a row for each key, `encode` and `decode` for one that keeps a
whole ring. Both are CBOR with a version in front; the secrets stay outside, for a `MasterKeySet` to seal.

KeysError if bytes cannot be read: a store that is damaged must not look like one that holds less.
"""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from math import isfinite
from typing import Any, Final

import cbor2

from tidegate.errors import KeysError
from tidegate.keys.group import Group
from tidegate.keys.key import TopicKey
from tidegate.keys.ring import Snapshot

VERSION: Final = 1

_DAMAGED: Final = "kept keys cannot be read: the store is damaged, or from a newer version"


def encode_key(key: TopicKey) -> bytes:
    """A key without its secret."""
    return _dumps(_plain(key))


def decode_key(data: bytes, secret: bytes) -> TopicKey:
    """The key again."""
    return _key(_loads(data), secret)


def encode(snapshot: Snapshot) -> tuple[bytes, dict[str, bytes]]:
    """A ring without its secrets, and these by the ids of their keys."""
    known = {"keys": [_plain(key) for key in snapshot.keys], "revoked": dict(snapshot.revoked)}
    return _dumps(known), {key.id: key.secret for key in snapshot.keys}


def decode(data: bytes, secrets: Mapping[str, bytes]) -> Snapshot:
    """The ring again. A key without its secret is an error."""
    match _loads(data):
        case {"keys": list() as kept, "revoked": dict() as revoked}:
            pass
        case _:
            raise KeysError(_DAMAGED)
    keys: list[TopicKey] = []
    for each in kept:
        id = each.get("id") if isinstance(each, dict) else None
        if not isinstance(id, str) or id not in secrets:
            raise KeysError(_DAMAGED)
        keys.append(_key(each, secrets[id]))
    if not all(isinstance(id, str) and isinstance(until, float) and isfinite(until) for id, until in revoked.items()):
        raise KeysError(_DAMAGED)
    return Snapshot(keys=tuple(keys), revoked=revoked)


def _plain(key: TopicKey) -> dict[str, Any]:
    group = key.group
    return {
        "id": key.id,
        "made": float(key.made),
        "valid": float(key.valid_until),
        "readable": float(key.readable_until),
        "group": {
            "id": group.id,
            "filter": group.filter,
            "owner": group.owner,
            "domain": group.domain,
            "demand": group.demand,
            "topic": group.topic,
            "context": group.context,
        },
    }


def _key(known: object, secret: bytes) -> TopicKey:
    match known:
        case {
            "id": str() as id,
            "made": float() as made,
            "valid": float() as valid,
            "readable": float() as readable,
            "group": {
                "id": str() as group,
                "filter": str() as filter,
                "owner": str() | None as owner,
                "domain": str() as domain,
                "demand": str() | None as demand,
                "topic": str() as topic,
                "context": bytes() as context,
            },
        }:
            of = Group(id=group, filter=filter, owner=owner, domain=domain, demand=demand, topic=topic, context=context)
            return TopicKey(id=id, group=of, secret=secret, made=made, valid_until=valid, readable_until=readable)
        case _:
            raise KeysError(_DAMAGED)


def _dumps(known: dict[str, Any]) -> bytes:
    return bytes((VERSION,)) + cbor2.dumps(known)


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
