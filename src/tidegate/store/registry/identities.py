"""The identities of users and clients (`policy.identities`), for all nodes on a registry.

A document of a user or a client is made, deleted and put back together with its identity: in one change, or not at all.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import orjson

from tidegate.errors import StoreError
from tidegate.policy.identities import DOCUMENT, KINDS, RETIRED, FileEntries, Identities, IdentityRecord, taken_up
from tidegate.store.registry.database import Connection, Mode
from tidegate.store.registry.documents import Answer, Applied, Change, Signature
from tidegate.store.registry.state import State, finish, read_state

if TYPE_CHECKING:
    from tidegate.store.registry.registry import Registry

IDENTITIES: Final = "identities"  # the room under which nodes are told that identities have changed


class IdentityTable:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def since(self, sequence: int) -> tuple[list[IdentityRecord], int]:
        """Those that were written after the change `sequence`, and the number of the newest change."""

        def work(connection: Connection) -> tuple[list[IdentityRecord], int]:
            state = read_state(connection)
            return _written_after(connection, state, sequence), state.sequence

        return self._registry.run(Mode.READ, work)

    def take_up(
        self,
        known: Identities,
        sequence: int,
        file: FileEntries,
        *,
        at: float,
        changed: bool,
        brought: Sequence[IdentityRecord] = (),
    ) -> tuple[list[IdentityRecord], int]:
        """A node takes up a file: what has changed after `sequence`, by others and by this, and the newest change.

        `brought` are identities that the node has kept elsewhere so far. ConfigError if the file gives an id that was
        used before.
        """
        news: list[IdentityRecord] = []
        newest = sequence
        signed = Signature.of(by=file.node, why="identities", at=at)

        def work(connection: Connection, state: State) -> Answer:
            nonlocal newest
            news[:] = _written_after(connection, state, sequence)
            newest = state.sequence
            known.update(news)
            records = [each for each in brought if each.retired is not None or not known.id(*each.key)]
            known.update(records)
            records += taken_up(known, file, at=at, new_id=new_id, changed=changed)
            if not records:
                return Applied(sequence=newest, id=signed.id)
            records = list({each.id: each for each in records}.values())
            news.extend(records)
            state.sequence += 1
            _write(connection, records, state.sequence)
            newest = state.sequence
            return finish(connection, state, signed.id, room=IDENTITIES)

        answer = self._registry.write(signed, work)
        if not isinstance(answer, Applied):
            raise StoreError(f"identities cannot be stored: {answer}. Remedy: look at the registry.")
        return news, newest


def follow_documents(connection: Connection, changes: Iterable[Change], *, at: float, sequence: int) -> None:
    """The identities of documents that are made or deleted."""
    for change in changes:
        if change.kind not in KINDS:
            continue
        records = _select(connection, "kind = ? AND name = ?", change.kind, change.id)
        current = next((each for each in records if each.retired is None), None)
        if change.body is None:
            written = None if current is None else replace(current, retired=at)
        elif current is not None:
            written = replace(current, holders=current.holders | {DOCUMENT})
        elif change.restores and records:
            last = max(records, key=lambda each: each.retired or 0.0)
            written = replace(last, retired=None, holders=frozenset({DOCUMENT}))
        else:
            holders = frozenset({DOCUMENT})
            written = IdentityRecord(id=new_id(), kind=change.kind, name=change.id, since=at, holders=holders)
        if written is not None:
            _write(connection, [written], sequence)


def _write(connection: Connection, records: Sequence[IdentityRecord], sequence: int) -> None:
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


def _written_after(connection: Connection, state: State, sequence: int) -> list[IdentityRecord]:
    """The oldest first; all of them if the database was put back."""
    since = sequence if sequence <= state.sequence else -1
    return _select(connection, "changed > ? ORDER BY changed, id", since)


def _select(connection: Connection, condition: str, *values: object) -> list[IdentityRecord]:
    query = f"SELECT id, kind, name, since, retired, holders FROM tidegate_identity WHERE {condition}"  # noqa: S608 - ours
    return [
        IdentityRecord(
            id=id, kind=kind, name=name, since=since, retired=retired, holders=frozenset(orjson.loads(holders))
        )
        for id, kind, name, since, retired, holders in connection.execute(query, *values)
    ]


def new_id() -> str:
    return secrets.token_hex(8)
