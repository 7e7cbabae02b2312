"""Rows of identities, as SQL that both databases understand; within a transaction of the caller's.

A document of a user or a client is made, deleted and put back together with its identity: in one change, or not at all.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

import orjson

from tidegate.policy.identities import DOCUMENT, KINDS, RETIRED, IdentityRecord
from tidegate.store.registry.connection import Connection, Row
from tidegate.store.registry.documents import Change

_RECORD: Final = "SELECT id, kind, name, since, retired, holders FROM tidegate_identity"


def new_id() -> str:
    return secrets.token_hex(8)


def after(connection: Connection, sequence: int) -> list[IdentityRecord]:
    """Those that were written after a change, the oldest first."""
    return [_record(row) for row in connection.execute(_RECORD + " WHERE changed > ? ORDER BY changed, id", sequence)]


def follow(connection: Connection, changes: Iterable[Change], *, at: float, sequence: int) -> None:
    """Documents that are made or deleted."""
    for change in changes:
        if change.kind not in KINDS:
            continue
        records = _named(connection, change.kind, change.id)
        current = next((each for each in records if each.retired is None), None)
        if change.body is None:
            written = None if current is None else replace(current, retired=at)
        elif current is not None:
            written = replace(current, holders=current.holders | {DOCUMENT})
        elif change.restores and records:
            written = replace(max(records, key=_retirement), retired=None, holders=frozenset({DOCUMENT}))
        else:
            holders = frozenset({DOCUMENT})
            written = IdentityRecord(id=new_id(), kind=change.kind, name=change.id, since=at, holders=holders)
        if written is not None:
            write(connection, [written], sequence)


def write(connection: Connection, records: Sequence[IdentityRecord], sequence: int) -> None:
    for each in records:
        connection.execute("DELETE FROM tidegate_identity WHERE id = ?", each.id)
        connection.execute(
            "INSERT INTO tidegate_identity (id, kind, name, since, retired, holders, changed)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            *(each.id, each.kind, each.name, each.since, each.retired),
            orjson.dumps(sorted(each.holders)).decode(),
            sequence,
        )
    if any(each.retired is not None for each in records):
        connection.execute(
            "DELETE FROM tidegate_identity WHERE retired IS NOT NULL AND changed < (SELECT changed FROM"
            " tidegate_identity WHERE retired IS NOT NULL ORDER BY changed DESC LIMIT 1 OFFSET ?)",
            RETIRED,
        )


def _named(connection: Connection, kind: str, name: str) -> list[IdentityRecord]:
    return [_record(row) for row in connection.execute(_RECORD + " WHERE kind = ? AND name = ?", kind, name)]


def _retirement(record: IdentityRecord) -> float:
    return record.retired or 0.0


def _record(row: Row) -> IdentityRecord:
    id, kind, name, since, retired, holders = row
    return IdentityRecord(
        id=id, kind=kind, name=name, since=since, retired=retired, holders=frozenset(orjson.loads(holders))
    )
