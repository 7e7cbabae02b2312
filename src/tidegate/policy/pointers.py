"""JSON pointers (RFC 6901), sets of them, and what a set leaves of a document.

Invariants
- What is left holds nothing that no pointer of the set leads to, but for the shape above it: an object keeps the names
  on the way, an array keeps its places, with null for what is hidden before a kept element and nothing after the last.
- A pointer to what is not there keeps nothing, not even the way to it.
- Nothing recurses deeper than MAX_DEPTH.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

Pointer = tuple[str, ...]
"""The reference tokens; none is the whole document."""

MAX_DEPTH: Final = 32
MAX_POINTERS: Final = 256

Tree = dict[str, Any]
"""Pointers by their first token; an empty one keeps everything from there on."""


def parse(text: str) -> Pointer:
    """Reads a pointer; ValueError says what is wrong."""
    if not text:
        return ()
    if text[0] != "/":
        raise ValueError(f"`{text}` is no JSON pointer: it begins with `/`, as in `/illness`")
    tokens = text[1:].split("/")
    if len(tokens) > MAX_DEPTH:
        raise ValueError(f"a JSON pointer has at most {MAX_DEPTH} parts")
    return tuple(map(_unescaped, tokens))


def _unescaped(token: str) -> str:
    if "~" in token.replace("~0", "").replace("~1", ""):
        raise ValueError(f"`{token}` has a `~` that is neither `~0` nor `~1`")
    return token.replace("~1", "/").replace("~0", "~")  # in this order: `~01` is `~1`


def text(pointer: Pointer) -> str:
    return "".join("/" + token.replace("~", "~0").replace("/", "~1") for token in pointer)


def united(pointers: Iterable[Pointer]) -> frozenset[Pointer]:
    """The same set without what lies below another of its pointers."""
    distinct = set(pointers)
    return frozenset(
        pointer for pointer in distinct if not any(pointer[:length] in distinct for length in range(len(pointer)))
    )


def common(a: frozenset[Pointer], b: frozenset[Pointer]) -> frozenset[Pointer]:
    """What both keep: the deeper of two pointers where one leads to the other."""
    return united({pointer for pointer in a if _below(pointer, b)} | {pointer for pointer in b if _below(pointer, a)})


def _below(pointer: Pointer, others: frozenset[Pointer]) -> bool:
    return any(pointer[:length] in others for length in range(len(pointer) + 1))


def tree(pointers: Iterable[Pointer]) -> Tree:
    """The pointers by their tokens. They must not lie below each other."""
    root: Tree = {}
    for pointer in pointers:
        node = root
        for token in pointer:
            node = node.setdefault(token, {})
    return root


class _Hidden:
    """Nothing is left. A class of its own, since null is a value."""


def kept(value: Any, wanted: Tree) -> Any:
    """What is left of a value, or `_Hidden`."""
    if not wanted:
        return value
    if isinstance(value, dict):
        parts = {}
        for name, part in value.items():  # in the order of the document, which tells nothing of the set
            below = wanted.get(name)
            if below is not None and (left := kept(part, below) if below else part) is not _Hidden:
                parts[name] = left
        return parts or _Hidden
    if isinstance(value, list):
        places: dict[int, Any] = {}
        for token, below in wanted.items():
            place = _place(token, len(value))
            if place is not None and (part := kept(value[place], below)) is not _Hidden:
                places[place] = part
        return [places.get(place) for place in range(max(places) + 1)] if places else _Hidden
    return _Hidden


def hidden(value: object) -> bool:
    return value is _Hidden


def _place(token: str, length: int) -> int | None:
    # RFC 6901, section 4: digits without a leading zero; `-` is the element after the last, which is never there
    if not (token.isascii() and token.isdigit()) or (token[0] == "0" and len(token) > 1) or len(token) > 9:
        return None
    place = int(token)
    return place if place < length else None
