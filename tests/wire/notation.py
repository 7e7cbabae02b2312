"""A way to write packets down so that a reader can check them against the specification.

    30 <"a/b" 'hello'>

Hex digits are bytes, 'text' is its bytes, "text" is its bytes with their two byte length in front, and
<...> is what it encloses with its variable byte integer length in front. Blanks mean nothing.
"""

from __future__ import annotations

import re

TOKEN = re.compile(r"""\s+|(?P<hex>[0-9a-f]{2})|'(?P<raw>[^']*)'|"(?P<string>[^"]*)"|(?P<open><)|(?P<close>>)""")


def octets(text: str) -> bytes:
    """The bytes that the notation stands for."""
    groups = [bytearray()]
    pos = 0
    while pos < len(text):
        token = TOKEN.match(text, pos)
        if token is None:
            raise ValueError(f"what is {text[pos:]!r}?")
        pos = token.end()
        match token.lastgroup:
            case "hex":
                groups[-1].append(int(token["hex"], 16))
            case "raw":
                groups[-1] += token["raw"].encode()
            case "string":
                raw = token["string"].encode()
                groups[-1] += bytes([len(raw) // 256, len(raw) % 256]) + raw
            case "open":
                groups.append(bytearray())
            case "close":
                group = groups.pop()
                groups[-1] += length(len(group)) + group
    (whole,) = groups
    return bytes(whole)


def length(n: int) -> bytes:
    """The algorithm of 1.5.5, as the specification prints it."""
    out = bytearray()
    while True:
        n, digit = divmod(n, 128)
        out.append(digit | 0x80 if n else digit)
        if not n:
            return bytes(out)
