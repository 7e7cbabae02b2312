"""Mosquitto's `password_file`, read: the hash of each user, as `directory.users` takes it.

A hash is not made again: it is verified as it is (`authentication.mosquitto_hashes`). A line without one that a node
can verify is listed; that user cannot connect.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Iterator
from typing import Final

from tidegate.importing.imported_policies import NotImported, unspeakable

MAX_ITERATIONS: Final = 999_999
MAX_USERS: Final = 100_000
_SHA512: Final = 64  # bytes


def pbkdf2(iterations: int, salt: str, hash: str) -> str | None:
    """A `$7$` hash of these parts; None if they make none."""
    if not (1 <= iterations <= MAX_ITERATIONS and _decodes(salt) and _decodes(hash, _SHA512)):
        return None
    return f"$7${iterations}${salt}${hash}"


def read(text: str, source: str) -> tuple[dict[str, str], list[NotImported]]:
    """The hashes by user, and what could not be taken over."""
    hashes: dict[str, str] = {}
    left: list[NotImported] = []
    for line, name, stored in _entries(text):

        def leave(why: str, line: int = line, name: str = name) -> None:
            left.append(NotImported(place=f"{source}:{line}", what=f"user {name}", why=why))

        if problem := unspeakable("user", name):
            leave(f"not written: {problem}")
        elif len(hashes) >= MAX_USERS:
            leave(f"more than {MAX_USERS:,} users; split the file")
        elif (hash := _verifiable(stored)) is None:
            leave("no hash of `mosquitto_passwd`; set a password with `tidegate passwd NAME`")
        elif name in hashes:
            leave("comes twice; the first counts")
        else:
            hashes[name] = hash
    return hashes, left


def _entries(text: str) -> Iterator[tuple[int, str, str]]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip() and not line.startswith("#"):
            name, _, stored = line.strip().partition(":")
            yield number, name.strip(), stored.strip()


def _verifiable(stored: str) -> str | None:
    match stored.split("$"):
        case ["", "7", iterations, salt, hash] if iterations.isascii() and iterations.isdigit():
            return pbkdf2(int(iterations), salt, hash)
        case ["", "6", salt, hash] if _decodes(salt) and _decodes(hash, _SHA512):
            return stored
        case _:
            return None


def _decodes(text: str, size: int | None = None) -> bool:
    """Whether it is base64, of so many bytes or of some."""
    try:
        decoded = b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False
    return bool(decoded) if size is None else len(decoded) == size
