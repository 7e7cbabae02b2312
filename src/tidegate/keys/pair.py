"""Key pairs of readers: X25519, or the hybrid of ML-KEM-768 and X25519.

A public key is written `x25519:…` or `mlkem768-x25519:…`, with base64url of the raw bytes (for the hybrid those of
ML-KEM and then those of X25519); the private one `x25519-private:…` and so on, with 32 bytes from which everything
follows: for the hybrid as X-Wing (draft-connolly-cfrg-xwing-kem) expands them. X25519 is also read and written in PEM.

Invariants
- The private key is never in what is printed of it, nor in an error.
- A public key with which no secret can be agreed on is refused when it is parsed; nothing can be wrapped for it anyhow.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from hashlib import shake_256
from typing import TYPE_CHECKING, Final, TypeAlias

from tidegate.errors import KeysError
from tidegate.lazy import exceptions, hpke, mlkem, serialization, x25519

if TYPE_CHECKING:
    NativePublic: TypeAlias = x25519.X25519PublicKey | hpke.MLKEM768X25519PublicKey
    NativePrivate: TypeAlias = x25519.X25519PrivateKey | hpke.MLKEM768X25519PrivateKey


SEED: Final = 32
_PRIVATE: Final = "-private"
_BASE64URL: Final = re.compile(r"[A-Za-z0-9_-]+")
_PEM: Final = "-----BEGIN "
_KINDS: Final = "write `x25519:…`, `mlkem768-x25519:…`, or an X25519 key in PEM"
_USELESS: Final = "no secret can be agreed on with this public key: make a new pair"
_MAX: Final = 4096  # characters of a key; the hybrid has some 1,640
_POINT: Final = 32
_LATTICE: Final = 1184


class Kem(Enum):
    """How a secret is agreed on with the holder of a key."""

    X25519 = "x25519"
    HYBRID = "mlkem768-x25519"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicKey:
    """For whom something is wrapped. What comes from outside is parsed; keep it so, for that takes half as long as
    wrapping.
    """

    kem: Kem
    raw: bytes
    native: NativePublic = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "native", _native_public(self.kem, self.raw))

    @classmethod
    def parse(cls, text: str) -> PublicKey:
        """From text; KeysError says what is wrong."""
        text = text.strip()
        if len(text) > _MAX:
            raise KeysError(f"a public key has no {len(text)} characters: {_KINDS}")
        if text.startswith(_PEM):
            return cls(kem=Kem.X25519, raw=_public_pem(text).public_bytes_raw())._agreeable()
        name, _, rest = text.partition(":")
        if name.endswith(_PRIVATE):
            raise KeysError("it is a private key: keep that, and give away the public one")
        return cls(kem=_kem(name), raw=_decoded(rest))._agreeable()

    def _agreeable(self) -> PublicKey:
        try:
            _anybody().exchange(_point(self.raw))
        except ValueError:
            raise KeysError(_USELESS) from None
        return self

    def __str__(self) -> str:
        return f"{self.kem.value}:{_encoded(self.raw)}"

    def pem(self) -> str:
        """Of X25519 only: there is no other way to write the hybrid yet."""
        if not isinstance(self.native, x25519.X25519PublicKey):
            raise KeysError("only an X25519 key can be written in PEM")
        return self.native.public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        ).decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateKey:
    """Who can unwrap it."""

    kem: Kem
    seed: bytes = field(repr=False)
    native: NativePrivate = field(init=False, repr=False, compare=False)
    public: PublicKey = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if len(self.seed) != SEED:
            raise KeysError(f"a private key has {SEED} bytes, this one has {len(self.seed)}")
        native, raw = _pair(self.kem, self.seed)
        object.__setattr__(self, "native", native)
        object.__setattr__(self, "public", PublicKey(kem=self.kem, raw=raw))

    @classmethod
    def generate(cls, entropy: Callable[[int], bytes], kem: Kem = Kem.X25519) -> PrivateKey:
        """A new pair; `entropy` is the system's randomness."""
        return cls(kem=kem, seed=entropy(SEED))

    @classmethod
    def parse(cls, text: str) -> PrivateKey:
        """From text; KeysError says what is wrong, and nothing of the key."""
        text = text.strip()
        if len(text) > _MAX:
            raise KeysError(f"a private key has no {len(text)} characters")
        if text.startswith(_PEM):
            return cls(kem=Kem.X25519, seed=_private_pem(text).private_bytes_raw())
        name, _, rest = text.partition(":")
        if not name.endswith(_PRIVATE):
            raise KeysError("it is no private key: that is `x25519-private:…`, `mlkem768-x25519-private:…`, or PEM")
        return cls(kem=_kem(name.removesuffix(_PRIVATE)), seed=_decoded(rest))

    def text(self) -> str:
        """To be kept, where nobody else reads it."""
        return f"{self.kem.value}{_PRIVATE}:{_encoded(self.seed)}"

    def pem(self) -> str:
        if not isinstance(self.native, x25519.X25519PrivateKey):
            raise KeysError("only an X25519 key can be written in PEM")
        return self.native.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode()


def _pair(kem: Kem, seed: bytes) -> tuple[NativePrivate, bytes]:
    """The private key, and the raw public one."""
    if kem is Kem.X25519:
        point = x25519.X25519PrivateKey.from_private_bytes(seed)
        return point, point.public_key().public_bytes_raw()
    expanded = shake_256(seed).digest(96)  # X-Wing, 5.2: 64 bytes for ML-KEM, 32 for X25519
    lattice = mlkem.MLKEM768PrivateKey.from_seed_bytes(expanded[:64])
    point = x25519.X25519PrivateKey.from_private_bytes(expanded[64:])
    raw = lattice.public_key().public_bytes_raw() + point.public_key().public_bytes_raw()
    return hpke.MLKEM768X25519PrivateKey(lattice, point), raw


def _native_public(kem: Kem, raw: bytes) -> NativePublic:
    size = _POINT if kem is Kem.X25519 else _LATTICE + _POINT
    if len(raw) != size:
        raise KeysError(f"a public key of the kind {kem.value} has {size} bytes, this one has {len(raw)}")
    if kem is Kem.X25519:
        return _point(raw)
    try:
        lattice = mlkem.MLKEM768PublicKey.from_public_bytes(raw[:_LATTICE])
    except ValueError:
        raise KeysError(_USELESS) from None
    return hpke.MLKEM768X25519PublicKey(lattice, _point(raw))


def _point(raw: bytes) -> x25519.X25519PublicKey:
    return x25519.X25519PublicKey.from_public_bytes(raw[-_POINT:])


@cache
def _anybody() -> x25519.X25519PrivateKey:
    """Some private key: a point of small order agrees with all of them on zero."""
    return x25519.X25519PrivateKey.from_private_bytes(bytes(_POINT))


def _kem(name: str) -> Kem:
    try:
        return Kem(name)
    except ValueError:
        raise KeysError(f"it is no key of a known kind: {_KINDS}") from None


def _public_pem(text: str) -> x25519.X25519PublicKey:
    if "PRIVATE" in text:
        raise KeysError("it is a private key: keep that, and give away the public one")
    try:
        key = serialization.load_pem_public_key(text.encode())
    except (ValueError, exceptions.UnsupportedAlgorithm):
        raise KeysError(f"it is no public key in PEM that can be read: {_KINDS}") from None
    if not isinstance(key, x25519.X25519PublicKey):
        raise KeysError(f"it is a key of another kind: {_KINDS}")
    return key


def _private_pem(text: str) -> x25519.X25519PrivateKey:
    try:
        key = serialization.load_pem_private_key(text.encode(), password=None)
    except (ValueError, TypeError, exceptions.UnsupportedAlgorithm):
        raise KeysError("it is no private key in PEM that can be read: write one without a password") from None
    if not isinstance(key, x25519.X25519PrivateKey):
        raise KeysError("it is a private key of another kind than X25519")
    return key


def _encoded(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def _decoded(text: str) -> bytes:
    """From base64url without padding, and only as the same bytes would be written."""
    if _BASE64URL.fullmatch(text) and len(text) % 4 != 1:
        data = urlsafe_b64decode(text + "=" * (-len(text) % 4))
        if _encoded(data) == text:
            return data
    raise KeysError("what follows the kind of the key is no base64url without padding")
