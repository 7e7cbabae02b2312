"""String and bytes literals: quotes off, escapes resolved."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Final

_ESCAPE: Final = re.compile(r"\\(?:([0-3][0-7]{2})|[xX]([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([\s\S]))")
_SIMPLE: Final = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    "\\": "\\", "?": "?", '"': '"', "'": "'", "`": "`",
}  # fmt: skip


_QUOTED: Final = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""", re.DOTALL)


class BadLiteral(ValueError):
    """An escape that CEL does not have."""


def quoted(text: str) -> set[str]:
    """What stands in quotes in a condition, as it is written and with its escapes resolved."""
    found: set[str] = set()
    for token in _QUOTED.findall(text):
        found.add(token[1:-1])
        with suppress(BadLiteral):
            found.add(string(token))
    return found


def _inner(token: str) -> str:
    return token[3:-3] if len(token) >= 6 and token[:3] in ('"""', "'''") else token[1:-1]


def raw(token: str) -> str:
    """The text of `r'...'`."""
    return _checked(_inner(token[1:]))


def string(token: str) -> str:
    """The text of `'...'`."""
    inner = _inner(token)
    return _checked(_ESCAPE.sub(_character, inner) if "\\" in inner else inner)


def octets(token: str) -> bytes:
    """The bytes of `b'...'` or `br'...'`: of characters their UTF-8, of escapes the octet itself."""
    token = token[1:]
    if token[0] in "rR":
        return raw(token).encode()
    inner, data, end = _inner(token), bytearray(), 0
    for escape in _ESCAPE.finditer(inner):
        data += _checked(inner[end : escape.start()]).encode()
        if escape[3] or escape[4]:
            raise BadLiteral(f"{escape[0]} is for strings only")
        data.append(ord(_character(escape)))
        end = escape.end()
    return bytes(data + _checked(inner[end:]).encode())


def _character(escape: re.Match[str]) -> str:
    octal, two, four, eight, simple = escape.groups()
    if octal:
        return chr(int(octal, 8))
    if simple is not None:
        if simple not in _SIMPLE:
            raise BadLiteral(f"no such escape: {escape[0]}")
        return _SIMPLE[simple]
    code = int(two or four or eight, 16)
    if code > 0x10FFFF or 0xD800 <= code < 0xE000:
        raise BadLiteral(f"no code point: {escape[0]}")
    return chr(code)


def _checked(text: str) -> str:
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise BadLiteral("half of a surrogate pair")
    return text
