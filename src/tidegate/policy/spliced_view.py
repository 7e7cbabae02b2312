"""Parts of a JSON object cut out of its bytes, without building what stands in them.

`splicer` answers what is left by a view for the content that it can cut: an object, with objects on the way, whose
parts are then the very bytes that came. Everything else (arrays on the way, escapes, what is not ASCII, no JSON) it
leaves to whoever takes the document apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, TypedDict

import msgspec
import orjson

SHORT: Final = 640
"""Bytes of content for which it is quicker to build all of it once for all views, measured with five fields of 128."""
VAIN: Final = 8
"""Times that it cannot cut content before it does not try,"""
REST: Final = 1000
"""for so many messages."""
NESTED: Final = 250
"""Brackets of what is left, up to which it is certain that it is not nested too deep to be written."""
DEEPEST: Final = 8
FIELDS: Final = 64

_typed_dict: Any = TypedDict


NOT_CUT: Final = b""
"""It has to be taken apart."""


class Splicer:
    """Cuts out what a tree of names leads to."""

    __slots__ = ("_decode", "_keys", "_vain")

    def __init__(self, tree: dict[str, Any]) -> None:
        self._decode: Any = msgspec.json.Decoder(_type(tree, "object")).decode
        self._keys: dict[str, bytes] = {name: orjson.dumps(name) + b":" for name in _names(tree)}
        self._vain = 0

    def __call__(self, payload: bytes) -> bytes | None:
        """What is left; None if that is nothing, NOT_CUT if it cannot be cut."""
        # hot: one pass over the bytes, one join
        if len(payload) < SHORT or b"\\" in payload or not payload.isascii():
            return NOT_CUT
        if self._vain < 0:
            self._vain += 1
            return NOT_CUT
        try:
            parts = self._decode(payload)
        except (msgspec.MsgspecError, RecursionError):
            self._vain = self._vain + 1 if self._vain < VAIN else -REST
            return NOT_CUT
        cut = self._joined(parts)
        # what is taken apart cannot be written if it is nested deeper, and then nothing is shown
        return cut if cut is None or cut.count(b"[") + cut.count(b"{") <= NESTED else NOT_CUT

    def _joined(self, parts: dict[str, Any]) -> bytes | None:
        keys = self._keys
        pieces: list[bytes] = []
        for name, part in parts.items():
            if not isinstance(part, dict):
                pieces.append(b"%b%b" % (keys[name], part))
            elif (below := self._joined(part)) is not None:
                pieces.append(keys[name] + below)
        return b"{%b}" % b",".join(pieces) if pieces else None


def splicer(tree: dict[str, Any]) -> Splicer | None:
    """For a tree of names by their first; None if it is too large."""
    if not tree or _depth(tree) > DEEPEST or sum(1 for _ in _names(tree)) > FIELDS:
        return None
    return Splicer(tree)


def _type(tree: dict[str, Any], name: str) -> Any:
    fields = {field: _type(below, f"{name}_{field}") if below else msgspec.Raw for field, below in tree.items()}
    return _typed_dict(name, fields, total=False)


def _names(tree: dict[str, Any]) -> Iterator[str]:
    for name, below in tree.items():
        yield name
        yield from _names(below)


def _depth(tree: dict[str, Any]) -> int:
    return 1 + max((_depth(below) for below in tree.values() if below), default=0)
