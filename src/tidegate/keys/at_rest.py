"""Secrets at rest: sealed under a master key that is kept elsewhere.

A sealed secret is: version (1 byte), length and id of the master key, salt (32 random bytes), ciphertext and tag of
AES-256-GCM. Key and nonce are HKDF-SHA256 of the master key with that salt, so there is no number of secrets beyond
which a nonce might repeat. Bound to it is what it is a secret *of* (`key:4f…`, say): moved to another row it cannot be
opened.

Rotation without a pause: put the new master key first and keep the old one behind it, restart or reload, let every blob
be `renewed`, and then remove the old one.

Invariants
- Whatever is wrong with a blob raises KeysError and nothing else; a master key that cannot be read raises ConfigError.
- Master keys are in no error and in nothing that is printed. Their ids are digests that tell nothing of them.

It does not read files or the environment.
"""

from __future__ import annotations

import re
from base64 import b64encode, urlsafe_b64decode
from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Final

from tidegate.errors import ConfigError, KeysError
from tidegate.lazy import aead, exceptions, hashes, hkdf

VERSION: Final = 1
MASTER: Final = 32
MOST: Final = 16
"""Master keys at a time."""
MAX: Final = 65536
"""Bytes of a secret."""

_SALT: Final = 32
_NONCE: Final = 12
_TAG: Final = 16
_PURPOSE: Final = b"tidegate/rest/1\0"
_HEX: Final = re.compile(r"[0-9A-Fa-f]{64}")
_BASE64: Final = re.compile(r"[A-Za-z0-9+/_-]{43}=?")
_WRITE: Final = "write 32 random bytes as base64 or as 64 hexadecimal digits"


class MasterKeySet:
    """Seals under the master key `current`, and opens under all of them."""

    __slots__ = ("_entropy", "_masters", "current")

    def __init__(self, masters: Mapping[str, bytes], current: str, *, entropy: Callable[[int], bytes]) -> None:
        if current not in masters:
            raise ConfigError("the current master key is not among the master keys")
        for id, master in masters.items():
            if not 1 <= len(id.encode()) <= 255 or len(master) != MASTER:
                raise ConfigError(f"a master key has an id and {MASTER} bytes")
        self.current = current
        self._masters = dict(masters)
        self._entropy = entropy

    @classmethod
    def parse(cls, text: str, *, entropy: Callable[[int], bytes]) -> MasterKeySet:
        """From the text of a file or variable with master keys, newest first."""
        masters = parse_masters(text)
        return cls(masters, next(iter(masters)), entropy=entropy)

    def seal(self, secret: bytes, *, of: str) -> bytes:
        """The blob to be stored; `of` says what it belongs to, and is needed to open it."""
        if len(secret) > MAX:
            raise KeysError(f"a secret of {len(secret)} bytes is too long: up to {MAX} can be sealed")
        head = _head(self.current)
        salt = self._entropy(_SALT)
        cipher, nonce = _derived(self._masters[self.current], salt)
        return head + salt + cipher.encrypt(nonce, secret, _bound(head, of))

    def unseal(self, blob: bytes, *, of: str) -> bytes:
        """The secret; KeysError if it was changed, belongs to something else, or its master key is not here."""
        id = self.master_of(blob)
        master = self._masters.get(id)
        if master is None:
            raise KeysError(f"it is sealed under the master key {id}, which is not here: add it behind the newest")
        head = _head(id)
        salt, sealed = blob[len(head) : len(head) + _SALT], blob[len(head) + _SALT :]
        cipher, nonce = _derived(master, salt)
        try:
            return cipher.decrypt(nonce, sealed, _bound(head, of))
        except exceptions.InvalidTag:
            raise KeysError("a secret in the store was changed, or belongs to something else: restore it") from None

    def renewed(self, blob: bytes, *, of: str) -> bytes | None:
        """The same secret under the current master key; None if it is under that already."""
        if self.master_of(blob) == self.current:
            return None
        return self.seal(self.unseal(blob, of=of), of=of)

    @staticmethod
    def master_of(blob: bytes) -> str:
        """The id of the master key that a blob is sealed under."""
        if len(blob) < 2 or blob[0] != VERSION:
            raise KeysError("it is no sealed secret, or one of a newer version")
        end = 2 + blob[1]
        if not end + _SALT + _TAG <= len(blob) <= end + _SALT + _TAG + MAX:
            raise KeysError("it is no sealed secret: its length is wrong")
        try:
            return blob[2:end].decode()
        except UnicodeDecodeError:
            raise KeysError("it is no sealed secret: its master key has no name") from None


def parse_masters(text: str) -> dict[str, bytes]:
    """Master keys by their ids, in the order of the text: newest first, one a line, or with commas between them.

    What follows a `#` is a comment.
    """
    masters: dict[str, bytes] = {}
    place = 0
    for line in text.splitlines():
        for word in line.partition("#")[0].replace(",", " ").split():
            place += 1
            master = _master(word, place)
            if masters.setdefault(master_id(master), master) is not master:
                raise ConfigError(f"master key {place} is there twice: remove one")
    if not masters:
        raise ConfigError(f"there is no master key: {_WRITE}")
    if len(masters) > MOST:
        raise ConfigError(
            f"there are {len(masters)} master keys: up to {MOST}; renew what is stored and remove old ones"
        )
    return masters


def master_id(master: bytes) -> str:
    """What a master key is called: a digest."""
    return blake2b(master, digest_size=6, person=b"tidegate1master").hexdigest()


def new_master(entropy: Callable[[int], bytes]) -> str:
    return b64encode(entropy(MASTER)).decode()


def _master(word: str, place: int) -> bytes:
    if _HEX.fullmatch(word):
        master = bytes.fromhex(word)
    elif _BASE64.fullmatch(word):
        master = urlsafe_b64decode(word.rstrip("=").replace("+", "-").replace("/", "_") + "=")
    else:
        raise ConfigError(f"master key {place} cannot be read: {_WRITE}")
    if len(set(master)) < 8:  # of 32 random bytes, no such one will ever be seen
        raise ConfigError(f"master key {place} is not random: {_WRITE}")
    return master


def _derived(master: bytes, salt: bytes) -> tuple[aead.AESGCM, bytes]:
    derived = hkdf.HKDF(algorithm=hashes.SHA256(), length=MASTER + _NONCE, salt=salt, info=_PURPOSE).derive(master)
    return aead.AESGCM(derived[:MASTER]), derived[MASTER:]


def _head(id: str) -> bytes:
    name = id.encode()
    return bytes((VERSION, len(name))) + name


def _bound(head: bytes, of: str) -> bytes:
    return _PURPOSE + head + of.encode()
