"""A topic key: 32 secret bytes with an id, a group and an end."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tidegate.errors import KeysError
from tidegate.keys.group import Group
from tidegate.lazy import LazyModule

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers import aead
else:
    aead = LazyModule("cryptography.hazmat.primitives.ciphers.aead")

SECRET: Final = 32  # bytes: AES-256

_ID: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")


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
