"""Is this something that a registry can keep? Before any database is asked.

What passes is kept by every back end and comes back as it was: a text without NUL and lone surrogates (PostgreSQL takes
neither), a body that is the same after a way through JSON.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, Final

import orjson

from tidegate.store.registry.documents import Body, Change, Limits, Refused, Signature

KIND: Final = re.compile(r"[a-z][a-z0-9_./-]{0,63}")
ID: Final = 512  # bytes
BY: Final = 512
WHY: Final = 4096
CHANGE: Final = 64

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


def documents(changes: Sequence[Change], limits: Limits) -> list[str | None] | Refused:
    """The bodies as JSON, None for a deletion, in the order of the changes."""
    if not changes:
        return Refused(what="there is nothing to change")
    if len(changes) > limits.changes:
        return Refused(what=f"{len(changes)} changes at once: up to {limits.changes} are taken")
    names: set[tuple[str, str]] = set()
    bodies: list[str | None] = []
    for change in changes:
        wrong = name(change.kind, change.id)
        if wrong is not None:
            return wrong
        if (change.kind, change.id) in names:
            return Refused(what=f"{change.kind} {change.id} is changed twice at once: leave one of the changes out")
        names.add((change.kind, change.id))
        if change.body is None:
            bodies.append(None)
            continue
        text = _text(change.body)
        if text is None:
            return Refused(what=f"{change.kind} {change.id} is not a JSON object")
        if len(text) > limits.body:
            return Refused(what=f"{change.kind} {change.id} has {len(text)} bytes: up to {limits.body} are taken")
        bodies.append(text.decode())
    return bodies


def secret(room: str, key: str, value: bytes | None, expires: float | None, limits: Limits) -> Refused | None:
    if value is not None and len(value) > limits.secret:
        return Refused(what=f"{room} {key} has {len(value)} bytes: up to {limits.secret} are taken")
    if expires is not None and not math.isfinite(expires):
        return Refused(what=f"{room} {key} expires at no time: leave it out if it does not expire")
    return name(room, key)


def name(kind: str, id: str) -> Refused | None:
    if not KIND.fullmatch(kind):
        return Refused(what=f"the kind {kind[:80]!r}: use up to 64 of a-z, 0-9 and _./-, a letter first")
    if not id or not _plain(id, ID) or _CONTROL.search(id):
        return Refused(what=f"the {kind} {id[:80]!r}: use 1 to {ID} bytes without control characters as its name")
    return None


def signature(signed: Signature) -> Refused | None:
    if not signed.by or not _plain(signed.by, BY):
        return Refused(what=f"nobody signs the change: say who, in 1 to {BY} bytes without NUL")
    if not _plain(signed.why, WHY):
        return Refused(what=f"the reason for the change: use up to {WHY} bytes without NUL")
    if not change_id(signed.id):
        return Refused(what=f"the id of the change: use up to {CHANGE} bytes without NUL")
    if not math.isfinite(signed.at):
        return Refused(what="the time of the change is no time")
    return None


def change_id(id: str) -> bool:
    return bool(id) and _plain(id, CHANGE)


def body(text: str | None) -> dict[str, Any] | None:
    """Back from JSON; None for a deletion."""
    return None if text is None else orjson.loads(text)


def _text(body: Body) -> bytes | None:
    """As JSON; None if something would be lost on the way (NaN, dates, keys that are no strings)."""
    plain = dict(body)
    try:
        text = orjson.dumps(plain)
        same = orjson.loads(text) == plain
    except (orjson.JSONEncodeError, orjson.JSONDecodeError, RecursionError):
        return None
    return text if same else None


def _plain(text: str, most: int) -> bool:
    try:
        return len(text.encode()) <= most and "\0" not in text
    except UnicodeEncodeError:
        return False
