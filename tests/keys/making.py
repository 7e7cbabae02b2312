"""Groups, keys and randomness for the tests of this room."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from tidegate.keys import NONCE, Group, Ring, TopicKey, seal

FLOWERS = Group.of(filter="flowers/#", conditions=["deny-overrides", "p1"], topic="flowers/1", context=b"\x01")
TREES = Group.of(filter="trees/#", conditions=["deny-overrides", "p1"], topic="trees/1")


def entropy(seed: object = 0) -> Callable[[int], bytes]:
    """Bytes that look random, and are the same in every run."""
    drawn = 0

    def draw(size: int) -> bytes:
        nonlocal drawn
        drawn += 1
        return hashlib.shake_256(f"{seed} {drawn}".encode()).digest(size)

    return draw


def topic_key(id: str = "k1", *, made: float = 0.0, group: Group = FLOWERS, fill: int = 7) -> TopicKey:
    secret = hashlib.sha256(bytes((fill,))).digest()
    return TopicKey(id=id, group=group, secret=secret, made=made, valid_until=made + 300, readable_until=made + 330)


def sealed(ring: Ring, group: Group, payload: bytes, *, topic: str, now: float) -> bytes:
    """A message under the key that the ring says seals."""
    key = ring.current(group, now)
    return seal(key, payload, topic=topic, nonce=ring._entropy(NONCE))


def revoke_group(ring: Ring, group: Group, now: float) -> set[str]:
    """Revokes all keys of a group; their ids."""
    ids = {key.id for key, _ in ring.listed(now) if key.group == group}
    for id in ids:
        assert ring.revoke(id, now)
    return ids
