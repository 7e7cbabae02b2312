"""The root `o.payload`, decoded no further than conditions read it.

A condition on one field of a kilobyte needs that field alone. `decoder` builds the named fields and skips the others,
checking that they are JSON as it goes. It answers what `orjson.loads` of the whole would answer for these fields, or
leaves the content to `orjson.loads`: where it is not an object of plain values there, where it may not be UTF-8, where
it has escapes, where a number is too large for 64 bits, and where conditions read deeper than two fields. Only of a
number that no condition reads, and that is too large for a double, it does not say that the whole is no JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Annotated, Any, Final, TypeAlias, TypedDict

import msgspec
import orjson

PAYLOAD: Final = "o.payload"
SHORT: Final = 256
"""Bytes up to which all of it is built sooner than some of it."""
FIELDS: Final = 32
"""Fields up to which it is worth while."""
VAIN: Final = 8
"""Times that it has to leave content to `orjson` before that is asked at once,"""
REST: Final = 1000
"""for so many messages."""

Decode = Callable[[bytes], Any]
"""Raises ValueError if the content is no JSON."""

_Int: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_Plain: TypeAlias = bool | str | _Int | float | None
_typed_dict: Any = TypedDict


class FieldDecoder:
    """Decodes some fields; see the module."""

    __slots__ = ("_decode", "_vain")

    def __init__(self, tree: dict[str, Any]) -> None:
        self._decode: Decode = msgspec.json.Decoder(_type(tree, "content")).decode
        self._vain = 0

    def __call__(self, payload: bytes) -> Any:
        # hot: two looks at the bytes, one call
        if len(payload) >= SHORT and b"\\" not in payload and payload.isascii():
            if self._vain < 0:
                self._vain += 1
            else:
                try:
                    return self._decode(payload)
                except (msgspec.MsgspecError, RecursionError):
                    self._vain = self._vain + 1 if self._vain < VAIN else -REST
        return orjson.loads(payload)


def _type(tree: dict[str, Any], name: str) -> Any:
    """The type of an object with these fields and any others."""
    below = {field: _type(fields, f"{name}_{field}") for field, fields in tree.items() if fields}
    types = {field: below[field] | _Plain if field in below else _Plain for field in tree}
    return _typed_dict(name, types, total=False)


def decoder(reads: Iterable[str]) -> Decode:
    """For conditions that read these attributes, by path."""
    return _decoder(frozenset(path for path in reads if path == PAYLOAD or path.startswith(f"{PAYLOAD}.")))


@lru_cache(1024)
def _decoder(paths: frozenset[str]) -> Decode:
    if not paths or PAYLOAD in paths or len(paths) > FIELDS:
        return orjson.loads
    tree: dict[str, dict[str, Any]] = {}
    for path in sorted(paths):
        name = path.removeprefix(f"{PAYLOAD}.")
        above, *below = name.split(".")
        if len(below) > 1:
            return orjson.loads
        if below:  # `o.payload.a.b`, or `o.payload['a.b']`
            tree.setdefault(above, {})[below[0]] = {}
        tree.setdefault(name, {})
    for name in {path.removeprefix(f"{PAYLOAD}.") for path in paths}:
        tree[name] = {}  # all of it, even if something below it is read as well
    return FieldDecoder(tree)
