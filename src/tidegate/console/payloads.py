"""Payloads as people read them: JSON with its parts in lines, other text as it is, and bytes as numbers."""

from __future__ import annotations

from base64 import b64decode
from typing import Final

import orjson

LONGEST: Final = 4000
"""Characters that are shown."""
BYTES: Final = 256
"""Bytes that are shown of what is no text."""


def readable(payload: str, size: int) -> str:
    """The text of a payload, which comes as base64; `size`: how many bytes it has in all."""
    content = b64decode(payload)
    try:
        text = orjson.dumps(orjson.loads(content), option=orjson.OPT_INDENT_2).decode()
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):  # no JSON, or nested deeper than can be written
        try:
            text = content.decode()
        except UnicodeDecodeError:
            text = content[:BYTES].hex(" ")
            content = content[:BYTES]
    left = size - len(content)
    if len(text) > LONGEST:
        text, left = text[:LONGEST], max(left, 1)
    return f"{text}\n… ({size} bytes in all)" if left > 0 else text
