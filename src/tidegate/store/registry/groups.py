"""Documents that share a bound, such as the preferences that one user makes: all their versions together.

Of a document that is there, the newest version and the one before it stay, so that its last change can be taken back:
they have to fit. Of the others the oldest versions go first, then deleted documents.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidegate.store.registry.database import Connection
from tidegate.store.registry.documents import Change, Refused
from tidegate.store.registry.state import State


@dataclass(frozen=True, slots=True)
class _Version:
    id: str
    sequence: int
    deleted: bool
    size: int


def objection(
    connection: Connection, kind: str, group: str, changes: Sequence[Change], bodies: Sequence[str | None], most: int
) -> Refused | None:
    """Why there is no room for these changes in a group. A deletion always finds room."""
    news = {
        each.id: body for each, body in zip(changes, bodies, strict=True) if (each.kind, each.group) == (kind, group)
    }
    if not any(news.values()):
        return None
    needed = sum(len(body) for body in news.values() if body is not None)
    for versions in _documents(connection, kind, group).values():
        *_, newest = versions
        if newest.id in news:
            needed += newest.size if news[newest.id] is not None else 0
        elif not newest.deleted:
            needed += sum(each.size for each in versions[-2:])
    if needed <= most:
        return None
    text = f"these and the versions before them would have {needed} characters, and {most} are the most"
    return Refused(what=f"{text}: remove or shorten some", full=True)


def trim(connection: Connection, state: State, kind: str, group: str, most: int) -> None:
    """Removes what is too much, after a change."""
    documents = _documents(connection, kind, group)
    surplus = sum(each.size for versions in documents.values() for each in versions) - most
    if surplus <= 0:
        return
    old = (each for versions in documents.values() for each in versions[:-2])
    for each in sorted(old, key=lambda each: each.sequence):
        if surplus <= 0:
            return
        connection.execute(
            "DELETE FROM tidegate_entry WHERE kind = ? AND id = ? AND sequence = ?", kind, each.id, each.sequence
        )
        surplus -= each.size
    gone = (versions for versions in documents.values() if versions[-1].deleted)
    for versions in sorted(gone, key=lambda versions: versions[-1].sequence):
        if surplus <= 0:
            return
        newest = versions[-1]
        connection.execute("DELETE FROM tidegate_entry WHERE kind = ? AND id = ?", kind, newest.id)
        state.forgotten = max(state.forgotten, newest.sequence)
        state.deleted -= 1
        surplus -= sum(each.size for each in versions[-2:])


def _documents(connection: Connection, kind: str, group: str) -> dict[str, list[_Version]]:
    """By id: the versions of each, the oldest first."""
    rows = connection.execute(
        "SELECT id, sequence, body IS NULL, COALESCE(length(body), 0) FROM tidegate_entry"
        " WHERE kind = ? AND id >= ? AND id < ? ORDER BY id, sequence",
        *(kind, group, group[:-1] + chr(ord(group[-1]) + 1)),
    )
    documents: dict[str, list[_Version]] = {}
    for id, sequence, deleted, size in rows:
        documents.setdefault(id, []).append(_Version(id, sequence, bool(deleted), size))
    return documents
