"""What the pipeline has done, in a small SQLite file: the truth about batches, whatever Spark remembers.

A batch is named after its journal and the offset where it begins. Before work on it starts, its rules and keys are
written down, so that it is made alike when it is made again after a crash; when it is done, its end counts as done in
the same commit. So a batch that is made again overwrites what the first attempt left, and what is done is not done
again, even if Spark's checkpoint is lost.

Of what is published the last place is kept, and the counts up to there: a batch that is made again publishes only what
is missing, and what is published counts once.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from tidegate.errors import PipelineError

VERSION: Final = 3
KEPT: Final = 10_000  # batches that are remembered
_APPLICATION: Final = 0x54475031
_TABLES: Final = """
create table batches (
    name text primary key, start text not null, stop text not null, rules text not null, keys text not null,
    begun real not null, done real, messages integer not null, records integer, quarantined integer,
    published integer, denied integer
) strict;
create table progress (
    journal text not null, shard integer not null, next integer not null, primary key (journal, shard)
) strict;
create table published (
    batch text primary key, shard integer not null, offset integer not null, part integer not null,
    passed integer not null default 0, denied text not null default '{}'
) strict;
create table rules (version text primary key, content text not null, since real not null) strict;
create table totals (name text primary key, value integer not null) strict;
"""
_FROM_1: Final = (
    "alter table published add column passed integer not null default 0",
    "alter table published add column denied text not null default '{}'",
)
_FROM_2: Final = (
    "alter table progress rename to progress_2",
    "create table progress (journal text not null, shard integer not null, next integer not null, "
    "primary key (journal, shard)) strict",
    "insert into progress select :journal, shard, next from progress_2",
    "drop table progress_2",
    "update batches set name = :journal || '-' || name",
    "update published set batch = :journal || '-' || batch",
)
"""Those versions knew one journal only."""
TOTALS: Final = ("messages", "records", "quarantined", "published", "denied", "batches")

Place = tuple[int, int, int]  # shard, offset and part of a record


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    name: str
    start: Mapping[int, int]  # the first offset by shard
    stop: Mapping[int, int]  # the offset after the last, by shard
    rules: str
    keys: tuple[str, ...] = ()
    messages: int = 0
    again: bool = False  # whether it was begun before
    published: Place | None = None  # up to where its records were published before
    passed: int = 0  # how many of them the node took
    denied: Mapping[str, int] = field(default_factory=dict)  # how many of them each rule denied

    @property
    def number(self) -> int:
        """It rises from batch to batch."""
        return self.start[min(self.start)]


def name_of(journal: str, start: Mapping[int, int]) -> str:
    """The name of a batch that begins there: those of a journal sort like the work was done."""
    shard = min(start)
    return f"{journal}-{shard}-{start[shard]:019d}"


class Ledger:
    """Open for one process, which works on one journal."""

    def __init__(self, path: Path, journal: str) -> None:
        self.journal = journal
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._db.execute("pragma journal_mode = wal")
            self._db.execute("pragma synchronous = full")
            self._prepare(path)
        except sqlite3.Error as error:
            raise PipelineError(
                f"{path} cannot be opened ({error}). Remedy: free some space, or move it away: it is made again from "
                "what is in the lake"
            ) from error

    def close(self) -> None:
        self._db.close()

    # -- batches -------------------------------------------------------------------------------------------------

    @property
    def progress(self) -> dict[int, int]:
        """By shard, the first offset that is not done."""
        return dict(self._db.execute("select shard, next from progress where journal = ?", (self.journal,)))

    def adopt(self, progress: Mapping[int, int]) -> None:
        """What another ledger, which is lost, had done."""
        self._db.executemany("insert or ignore into progress values (?, ?, ?)", self._rows(progress))

    def begin(self, start: Mapping[int, int], stop: Mapping[int, int], *, rules: str, messages: int) -> Batch:
        """Work on a batch begins. If it was begun before, it is made by the same rules."""
        name = name_of(self.journal, start)
        batch = Batch(name=name, start=start, stop=stop, rules=rules, messages=messages)
        row = self._db.execute("select rules, keys from batches where name = ?", (name,)).fetchone()
        if row is not None:
            batch = self._resumed(replace(batch, rules=row[0], keys=tuple(json.loads(row[1]))))
        self._db.execute(
            "insert into batches (name, start, stop, rules, keys, begun, messages) values (?, ?, ?, ?, ?, ?, ?) "
            "on conflict (name) do update set stop = excluded.stop, messages = excluded.messages",
            (name, _text(start), _text(stop), batch.rules, json.dumps(batch.keys), time.time(), messages),
        )
        return batch

    def keyed(self, batch: Batch, keys: Iterable[str]) -> None:
        """The keys that its records are under, before any of them is."""
        self._db.execute("update batches set keys = ? where name = ?", (json.dumps(sorted(set(keys))), batch.name))

    def renewed(self, batch: Batch) -> Batch:
        """The same batch, to be sealed with other keys; what is published of it stays so."""
        self.keyed(batch, ())
        return self._resumed(replace(batch, keys=()))

    def sent(self, batch: Batch, place: Place, *, passed: int, denied: Mapping[str, int]) -> None:
        """Its records up to there are published: so many in all, with those of earlier attempts."""
        self._db.execute(
            "insert or replace into published values (?, ?, ?, ?, ?, ?)",
            (batch.name, *place, passed, json.dumps(dict(denied))),
        )

    def done(self, batch: Batch, *, records: int, quarantined: int, published: int, denied: int) -> None:
        counts = (batch.messages, records, quarantined, published, denied, 1)
        with self._db:  # all of it or nothing
            self._db.execute("begin immediate")
            self._db.execute(
                "update batches set done = ?, records = ?, quarantined = ?, published = ?, denied = ? where name = ?",
                (time.time(), records, quarantined, published, denied, batch.name),
            )
            self._db.executemany("insert or replace into progress values (?, ?, ?)", self._rows(batch.stop))
            self._db.execute("delete from published where batch = ?", (batch.name,))
            self._db.executemany(
                "insert into totals values (?, ?) on conflict (name) do update set value = value + excluded.value",
                list(zip(TOTALS, counts, strict=True)),
            )
            self._db.execute(
                "delete from batches where done is not null and rowid <= (select max(rowid) from batches) - ?", (KEPT,)
            )

    @property
    def totals(self) -> dict[str, int]:
        return {**dict.fromkeys(TOTALS, 0), **dict(self._db.execute("select name, value from totals"))}

    # -- rules ---------------------------------------------------------------------------------------------------

    def keep_rules(self, version: str, content: str) -> None:
        self._db.execute("insert or replace into rules values (?, ?, ?)", (version, content, time.time()))

    def rules(self, version: str) -> str | None:
        row = self._db.execute("select content from rules where version = ?", (version,)).fetchone()
        return None if row is None else str(row[0])

    def last_rules(self) -> tuple[str, str] | None:
        """Version and content of those that were in force last."""
        row = self._db.execute("select version, content from rules order by since desc limit 1").fetchone()
        return None if row is None else (str(row[0]), str(row[1]))

    # -- the file ------------------------------------------------------------------------------------------------

    def _prepare(self, path: Path) -> None:
        with self._db:  # all of it or nothing
            self._db.execute("begin immediate")
            application = self._db.execute("pragma application_id").fetchone()[0]
            version = self._db.execute("pragma user_version").fetchone()[0]
            if not self._db.execute("select count(*) from sqlite_master").fetchone()[0]:
                for statement in _TABLES.split(";"):
                    if statement.strip():
                        self._db.execute(statement)
                self._db.execute(f"pragma application_id = {_APPLICATION}")
                self._db.execute(f"pragma user_version = {VERSION}")
            elif application == _APPLICATION and version in (1, 2):
                for statement in (*_FROM_1, *_FROM_2) if version == 1 else _FROM_2:
                    self._db.execute(statement, {"journal": self.journal} if ":journal" in statement else {})
                self._db.execute(f"pragma user_version = {VERSION}")
            elif application != _APPLICATION or version != VERSION:
                raise PipelineError(f"{path} is no ledger of this version of Tidegate. Remedy: move it away")

    def _rows(self, offsets: Mapping[int, int]) -> list[tuple[str, int, int]]:
        return [(self.journal, shard, offset) for shard, offset in offsets.items()]

    def _resumed(self, batch: Batch) -> Batch:
        """It was begun before, and maybe some of it was published."""
        row = self._db.execute(
            "select shard, offset, part, passed, denied from published where batch = ?", (batch.name,)
        ).fetchone()
        if row is None:
            return replace(batch, again=True)
        return replace(batch, again=True, published=row[:3], passed=row[3], denied=json.loads(row[4]))


def _text(offsets: Mapping[int, int]) -> str:
    return json.dumps({str(shard): offset for shard, offset in sorted(offsets.items())})
