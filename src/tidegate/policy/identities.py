"""Identities: a name is not an identity (formats, *Names and numbers*).

Users and clients have an id that is never used twice; their names can be. An application and a source are users, and
have the identity of that user. Tokens, sessions, publisher rules and preferences refer to ids.

An entry of a file gets its id when a node first takes up a file with that name, and loses it for ever when a node that
had the name takes up a file without it. `id:` in the file keeps it across renames. A document gets its id when it is
made, and loses it when it is deleted. Nodes that share a registry share this table.

It neither reads nor stores anything, and it does not know who exists: that is the directory.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from tidegate.errors import ConfigError

USER: Final = "user"
CLIENT: Final = "client"
KINDS: Final = (USER, CLIENT)
NODE: Final = "node"
"""A node has one itself from its first start with this table on: until then what it stored refers to names."""
DOCUMENT: Final = ""
"""The holder of an identity that is a document; others are nodes, which have it in their file."""
RETIRED: Final = 100_000
"""Identities of the past that are remembered; the oldest go first."""
BACKDATED: Final = 3600.0
"""Seconds by which authorities date certificates back."""

Key = tuple[str, str]  # kind and name


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityRecord:
    """One row of the table."""

    id: str
    kind: str
    name: str
    since: float
    retired: float | None = None
    holders: frozenset[str] = frozenset()

    @property
    def key(self) -> Key:
        return self.kind, self.name


class Identities:
    """The table as one node knows it."""

    def __init__(self, records: Iterable[IdentityRecord] = ()) -> None:
        self._current: dict[str, IdentityRecord] = {}
        self._retired: dict[str, IdentityRecord] = {}
        self._ids: dict[Key, set[str]] = {}  # several only if nodes call somebody differently
        self._own: Mapping[Key, str] = {}  # names that the file of this node gives by `id:`
        self._names: dict[str, str] = {}  # and the other way round
        self._removed: dict[str, float] = {}
        self.update(records)

    def __len__(self) -> int:
        return len(self._current)

    def copy(self) -> Identities:
        copy = Identities((*self._retired.values(), *self._current.values()))
        copy.call(self._own)
        return copy

    def update(self, records: Iterable[IdentityRecord]) -> list[IdentityRecord]:
        """Takes records over, of each id the last one; those that were not known so."""
        newest = {each.id: each for each in records}
        news = [each for each in newest.values() if self.record(each.id) != each]
        for record in sorted(news, key=lambda each: each.retired is None):  # a name is free before it is given
            before = self._current.pop(record.id, None)
            if before is not None:
                self._ids[before.key].discard(record.id)
            self._retired.pop(record.id, None)
            if record.retired is None:
                self._current[record.id] = record
                self._ids.setdefault(record.key, set()).add(record.id)
            else:
                self._retired[record.id] = record
                self._removed[record.name] = max(record.retired, self._removed.get(record.name, 0.0))
                if len(self._retired) > RETIRED:
                    del self._retired[next(iter(self._retired))]
        return news

    def call(self, own: Mapping[Key, str]) -> None:
        """The names that the file of this node gives by `id:`; another node may call the same by another name."""
        self._own = {key: id for key, id in own.items() if id in self._current}
        self._names = {id: name for (_, name), id in self._own.items()}

    def record(self, id: str) -> IdentityRecord | None:
        return self._current.get(id) or self._retired.get(id)

    def id(self, kind: str, name: str) -> str:
        """Of whoever has that name now; empty: nobody has."""
        return self._own.get((kind, name)) or self.called(kind, name, besides=self._names)

    def called(self, kind: str, name: str, besides: Container[str]) -> str:
        """The first that was called so, without those that the file of this node gives another name; or empty.

        Nodes that could not reach the registry may have made several, and all have to choose the same one.
        """
        ids = [id for id in self._ids.get((kind, name), ()) if id not in besides]
        return min(ids, key=lambda id: (self._current[id].since, id), default="")

    def name(self, id: str) -> str | None:
        """What it is called now; None: it is retired, or was never here."""
        record = self._current.get(id)
        return None if record is None else self._names.get(id, record.name)

    def removed(self, name: str) -> float | None:
        """When somebody of that name was last removed; None: never."""
        return self._removed.get(name)

    def left_file(self, name: str) -> bool:
        """Whether somebody of that name stood in the file of a node once, and was removed."""
        return any(each.name == name and each.holders - {DOCUMENT} for each in list(self._retired.values()))

    def retired(self, id: str) -> bool:
        return id in self._retired

    def held_by(self, holder: str) -> list[IdentityRecord]:
        return [each for each in self._current.values() if holder in each.holders]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEntries:
    """Who stands in the file of a node: their names, with the `id:` if there is one; and who is a document."""

    node: str
    entries: Mapping[Key, str | None]
    documents: frozenset[Key] = frozenset()

    @property
    def named(self) -> dict[Key, str]:
        return {key: id for key, id in self.entries.items() if id is not None}


def taken_up(
    identities: Identities, file: FileEntries, *, at: float, new_id: Callable[[], str], changed: bool = True
) -> list[IdentityRecord]:
    """The records that change when a node takes up a file; ConfigError if it gives an id that was used before.

    Unless `changed`, it is the file that the node had: another node may have retired somebody who stands in it, who
    then gets another id.
    """
    node, named = file.node, file.named
    if not changed:
        named = {key: id for key, id in named.items() if not identities.retired(id)}
    claimed: dict[str, IdentityRecord] = {}
    for key, id in named.items():
        claimed[id] = _claimed(identities.record(id), key, id, node, at, rename=changed)
    for key in file.entries:
        if key not in named:
            record = identities.record(identities.called(*key, besides=claimed))
            if record is None:
                record = IdentityRecord(id=new_id(), kind=key[0], name=key[1], since=at)
            claimed[record.id] = replace(record, holders=record.holders | {node})
    for key in file.documents:
        if not identities.id(*key):
            record = IdentityRecord(id=new_id(), kind=key[0], name=key[1], since=at, holders=frozenset({DOCUMENT}))
            claimed[record.id] = record
    left = [each for each in identities.held_by(node) if each.id not in claimed]
    changes = [*(replace(each, retired=at) for each in left), *claimed.values()]
    return [each for each in changes if identities.record(each.id) != each]


def _claimed(record: IdentityRecord | None, key: Key, id: str, node: str, at: float, *, rename: bool) -> IdentityRecord:
    kind, name = key
    if record is None:
        return IdentityRecord(id=id, kind=kind, name=name, since=at, holders=frozenset({node}))
    if record.retired is not None or record.kind != kind:
        text = f"the id `{id}` of {kind} `{name}` belonged to {record.kind} `{record.name}`"
        raise ConfigError(f"{text}, and no id is used twice; write another `id`, or none")
    return replace(record, name=name if rename else record.name, holders=record.holders | {node})
