"""The books of a run: every acknowledged message in the lake, every record at its reader, and each of them once.

An acknowledged message is in the journal; one that was sent again because its acknowledgement got lost may be there
again, as another message (QoS 1). So what is acknowledged is looked for by name, and from the journal on everything is
counted exactly: by offset in the lake, by id at the reader.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from pipeline.crash.people import Listener, Sender, good
from pipeline.crash.plant import Plant
from tidegate.pipeline.lake import read
from tidegate.pipeline.lake.tables import Place

PARTS = 2  # records of a good message


@dataclass
class Books:
    """What is wrong; nothing, if all is well."""

    lost: list[str] = field(default_factory=list)
    """Acknowledged, and not in the lake."""
    doubled: list[str] = field(default_factory=list)
    """In the lake more often than it was sent, or a row of the journal in it twice."""
    missing: list[str] = field(default_factory=list)
    """Records that did not come to the reader."""
    repeated: list[str] = field(default_factory=list)
    """Records that the SDK delivered twice."""
    strange: list[str] = field(default_factory=list)
    """What nobody has sent, or what could not be opened."""

    @property
    def clean(self) -> bool:
        return not any(getattr(self, one.name) for one in fields(self))

    def __str__(self) -> str:
        found = {one.name: getattr(self, one.name) for one in fields(self)}
        return ", ".join(f"{name}: {len(what)} {what[:5]}" for name, what in found.items() if what) or "clean"


def name_of(row: dict[str, Any]) -> str:
    """Which message a row of the journal is; over HTTP the payload says so."""
    said = {pair["name"]: pair["value"] for pair in row["properties"] or ()}
    return str(said["n"] if "n" in said else json.loads(row["payload"])["n"])


def ids_of(rows: Iterable[dict[str, Any]]) -> set[str]:
    """The ids of the records that are published of these messages."""
    return {f"{row['id']}.{part + 1}" for row in rows if _good(row) for part in range(PARTS)}


def audit(
    spark: SparkSession, plant: Plant, senders: Sequence[Sender], once: Listener, all_of_it: Listener
) -> tuple[Books, list[dict[str, Any]]]:
    """The books, and the journal; after everything has stopped."""
    books = Books()
    rows = plant.written()
    _journal(books, rows, senders)
    for name in ("raw", "normalised", "quarantine"):
        _table(books, name, rows, read(spark, plant.folders.lake, name))
        _table(books, f"{name}, plainly read", rows, _plain(spark, plant, name))
    _reader(books, ids_of(rows), once, all_of_it)
    return books, rows


def _journal(books: Books, rows: Sequence[dict[str, Any]], senders: Sequence[Sender]) -> None:
    found = Counter(map(name_of, rows))
    sent: Counter[str] = Counter()
    for sender in senders:
        sent.update(sender.sent)
        books.lost += [f"{name} is not in the journal" for name in sorted(sender.acknowledged - found.keys())]
    books.doubled += [f"{name} is {found[name]} times in the journal" for name in sorted(found - sent)]
    if [row["offset"] for row in rows] != list(range(len(rows))):
        books.strange.append("the offsets of the journal have gaps")


def _table(books: Books, name: str, rows: Sequence[dict[str, Any]], frame: DataFrame) -> None:
    """Each row that has to be there, once, and no other."""
    kind = name.partition(",")[0]
    wanted: Counter[tuple[int, int, str]] = Counter()
    for row in rows:
        match kind:
            case "raw":
                wanted[row["offset"], 0, row["id"]] += 1
            case "normalised" if _good(row):
                wanted.update((row["offset"], part, f"{row['id']}.{part + 1}") for part in range(PARTS))
            case "quarantine" if not _good(row):
                wanted[row["offset"], 0, f"{row['id']}.1"] += 1
    columns = ["offset", "id"] if kind == "raw" else ["offset", "part", "id"]
    there = Counter((row[0], row[1] if len(row) > 2 else 0, row[-1]) for row in frame.select(*columns).collect())
    books.lost += [f"{place} is not in {name}" for place in sorted((wanted - there).keys())]
    for place in sorted((there - wanted).keys()):
        (books.doubled if place in wanted else books.strange).append(f"{place} is {there[place]} times in {name}")


def _plain(spark: SparkSession, plant: Plant, table: str) -> DataFrame:
    """As somebody reads it who knows nothing of us."""
    files = list(Place.open(plant.folders.lake).parts(table))
    return spark.read.parquet(str(plant.folders.lake / table)) if files else read(spark, plant.folders.lake, table)


def _reader(books: Books, wanted: set[str], once: Listener, all_of_it: Listener) -> None:
    for listener in (once, all_of_it):
        books.missing += [f"{id} to {listener.name}" for id in sorted(wanted - listener.opened.keys())]
        books.strange += [f"{id} to {listener.name}" for id in sorted(listener.ids - wanted)]
        books.strange += listener.wrong
    books.repeated += [f"{id}, {times} times" for id, times in once.opened.items() if times > 1]


def _good(row: dict[str, Any]) -> bool:
    return good(int(name_of(row).rpartition("-")[2]))
