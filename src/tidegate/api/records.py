"""Bodies that sources send, taken apart: each record as it was sent, checked to be a JSON object.

- JSON: one object, or an array of them. NDJSON: one object on each line; empty lines count for nothing.
- Compressed bodies are expanded up to a limit and no further, however little there was to expand.
- What is wrong is told with the number of the record, counted from 0. There are no half bodies: all records, or a
  Problem.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator
from typing import Any, Final

import orjson

from tidegate.api.problems import Kind, Problem

JSON: Final = "application/json"
NDJSON: Final = "application/x-ndjson"
GZIP: Final = "gzip"
_MEMBERS: Final = 16  # of one gzip file
_BLANK: Final = b" \t\r\n"
_SPACE: Final = re.compile(r"[ \t\r\n]*")
# Only for where an element ends: its numbers are not looked at, and can be as long as they like.
_DECODER: Final = json.JSONDecoder(parse_int=str, parse_float=str)
_DEEP: Final = "is nested too deep"


def records(body: bytes, *, content: str, encoding: str, most: int, largest: int) -> list[bytes]:
    """The records of a body; at most so many, and not larger than that when expanded."""
    if content not in (JSON, NDJSON):
        known = f"send `{JSON}` or `{NDJSON}`"
        raise Problem(Kind.MEDIA, f"the body is `{content[:100] or 'of no type'}`", known)
    if encoding not in ("", "identity", GZIP):
        raise Problem(Kind.MEDIA, f"the encoding `{encoding[:100]}` is not understood", f"send `{GZIP}`, or none")
    if encoding == GZIP:
        body = _expanded(body, largest)
    elif len(body) > largest:
        raise _too_large(largest)
    found = _lines(body, most) if content == NDJSON else _values(body, most)
    if not found:
        raise Problem(Kind.MALFORMED, "there is no record in the body", "send at least one JSON object")
    return found


def _expanded(body: bytes, largest: int) -> bytes:
    made: list[bytes] = []
    left = largest
    for _ in range(_MEMBERS):
        member = zlib.decompressobj(wbits=31)
        try:
            made.append(member.decompress(body, left + 1))
        except zlib.error:
            raise _no_gzip("it is not what gzip makes") from None
        left -= len(made[-1])
        if left < 0:
            raise _too_large(largest)
        if not member.eof:
            raise _no_gzip("its end is missing")
        body = member.unused_data
        if not body:
            return b"".join(made)
    raise _no_gzip(f"it has more than {_MEMBERS} members")


def _lines(body: bytes, most: int) -> list[bytes]:
    found: list[bytes] = []
    for line in body.split(b"\n"):
        record = line.strip(_BLANK)
        if not record:
            continue
        if len(found) >= most:
            raise _too_many(most)
        _check(record, len(found))
        found.append(record)
    return found


def _values(body: bytes, most: int) -> list[bytes]:
    body = body.strip(_BLANK)
    if not body.startswith(b"["):
        _check(body, 0)
        return [body]
    try:
        whole = orjson.loads(body)
        text = body.decode()
    except ValueError as error:
        raise _broken(body, error) from None
    if len(whole) > most:
        raise _too_many(most)
    for index, each in enumerate(whole):
        if not isinstance(each, dict):
            raise _wrong(index, "is not a JSON object")
    try:
        return [text[start:end].encode() for start, end in _elements(text)]
    except RecursionError:
        raise _wrong(0, _DEEP, exactly=False) from None


def _elements(text: str) -> Iterator[tuple[int, int]]:
    """Where each element of an array begins and ends. ValueError where it is none."""
    at = _after_blank(text, 1)
    while at < len(text) and text[at] != "]":
        _, end = _DECODER.raw_decode(text, at)
        yield at, end
        at = _after_blank(text, end)
        if text[at : at + 1] == ",":
            at = _after_blank(text, at + 1)


def _after_blank(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    assert found is not None  # it may be empty
    return found.end()


def _broken(body: bytes, error: ValueError) -> Problem:
    """Which element of an array that cannot be read is to blame."""
    index = 0
    try:
        text = body.decode()
        for start, end in _elements(text):
            orjson.loads(text[start:end])
            index += 1
    except (ValueError, RecursionError):
        return _wrong(index, f"is not JSON: {error}")
    return _wrong(index, f"is followed by what is not JSON: {error}", exactly=False)


def _check(record: bytes, index: int) -> None:
    try:
        found: Any = orjson.loads(record)
    except orjson.JSONDecodeError as error:
        raise _wrong(index, f"is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise _wrong(index, "is not a JSON object")


def _wrong(index: int, why: str, *, exactly: bool = True) -> Problem:
    what = f"record {index} {why}" if exactly else f"a record {why}"
    errors = [{"at": str(index), "error": why}] if exactly else []
    return Problem(Kind.MALFORMED, what, "send JSON objects in UTF-8; nothing was taken", errors=errors)


def _no_gzip(why: str) -> Problem:
    return Problem(Kind.MALFORMED, f"the body cannot be expanded: {why}", "compress it with gzip, or not at all")


def _too_large(largest: int) -> Problem:
    return Problem(Kind.TOO_LARGE, f"a body has at most {largest:,} bytes when expanded", "send less at a time")


def _too_many(most: int) -> Problem:
    return Problem(Kind.TOO_LARGE, f"a body has at most {most:,} records", "send fewer at a time")
