"""The tables of a lake: where their rows are, which files are ours, and a frame of one for whoever wants to read it.

    <lake>/_tidegate.json                                             what this folder is, and whose journals are in it
    <lake>/<table>/date=YYYY-MM-DD/batch=<text>/part-*.parquet        rows, by the day (UTC) on which they were received
    <lake>/_tidegate/                                                 locks, swaps, staged files, who has been erased

Only files that are named like this are ever read, rewritten or removed. Whatever else lies in these folders belongs to
somebody else and is left alone. A lake is a folder of a file system that the driver and all workers see.

`raw` is what arrived, `normalised` what the stages made of it, `quarantine` what they could not, with the reason;
`audit` is the journal of that name, `quality_daily` what `quality` computes. Every row tells its owner and category. In
`normalised` a row that was sealed for its topic has no value, text and extra: they are in `message`, and whoever may
have the key can open it.

Several nodes may write to one lake. A row of a journal is named by the journal's id and its place in there, so that
the row of one node is never taken for that of another. Files of version 1 do not tell the journal: they are of the
one that is `adopted` in `_tidegate.json`, if any is.

The columns here are the newest. Older files lack some (null) or have narrower types (widened); a column that is no
longer here is left out. Nothing is rewritten for that.
"""

from __future__ import annotations

import errno
import json
import os
import re
import uuid
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidegate.errors import PipelineError
from tidegate.pipeline.columns import ASSIGNED, INGEST, KEY, PROTECTED, RECORD, SCORED, Columns, F, columns, struct
from tidegate.store.disk import sync_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VERSION: Final = 2
MARK: Final = "_tidegate.json"
COMPACTED: Final = "compacted"  # the batch of rows that were put together from several
DAILY: Final = "daily"  # the batch of rows that are computed once a day

_DATE: Final = re.compile(r"date=(\d{4}-\d\d-\d\d)")
_BATCH: Final = re.compile(r"batch=([A-Za-z0-9._-]{1,128})")
_FILE: Final = re.compile(r"part-[^/]*\.parquet")
_WILD: Final = frozenset("*?[]{}\\,")  # Spark takes them for a pattern


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    name: str
    columns: Columns
    key: tuple[str, ...]  # what names a row
    time: str | None = None
    """When it was received: says its date. None: it is about a whole day."""


_AUDIT: Final = columns(
    "shard int, offset bigint, at timestamp, node string, kind string, link string, user string, client string, "
    "action string, topic string, stage string, rule string, policy_version string, count bigint, detail string, "
    "publisher string"
)
_JOURNAL: Final = columns("journal string")
_WHOSE: Final = columns("owner string, category string")
_GROUP: Final = ("source", "type", "name", "owner", "category", "dimension")
_FIGURES: Final = columns("count bigint, assessed bigint, mean double, min double, p05 double, p50 double")
_NOT_KEPT: Final = ("payload", "fault", "context")

RAW: Final = Table(
    name="raw", columns=_JOURNAL + INGEST + _WHOSE, key=("journal", "shard", "offset"), time="received_at"
)
NORMALISED: Final = Table(
    name="normalised",
    columns=_JOURNAL + tuple(column for column in RECORD if column[0] not in _NOT_KEPT) + SCORED + ASSIGNED + PROTECTED,
    key=("journal", *KEY),
    time="received_at",
)
QUARANTINE: Final = Table(name="quarantine", columns=_JOURNAL + RECORD, key=("journal", *KEY), time="received_at")
AUDIT: Final = Table(name="audit", columns=_JOURNAL + _AUDIT + _WHOSE, key=("journal", "shard", "offset"), time="at")
QUALITY_DAILY: Final = Table(
    name="quality_daily", columns=tuple((name, "string") for name in _GROUP) + _FIGURES, key=("date", *_GROUP)
)
TABLES: Final = {table.name: table for table in (RAW, NORMALISED, QUARANTINE, AUDIT, QUALITY_DAILY)}
PLACE: Final = columns("date date, batch string")  # columns that the folders tell


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    table: str
    date: date
    batch: str
    path: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """What a lake says of itself."""

    version: int = VERSION
    journals: tuple[str, ...] = ()  # that have written to it
    adopted: str | None = None  # that of rows which do not tell it


@dataclass(frozen=True, slots=True)
class Place:
    """A folder that has been looked at and is a lake."""

    path: Path

    @classmethod
    def open(cls, path: Path, *, create: bool = False) -> Place:
        """PipelineError if there is none (and none is to be made), or it is not for us."""
        path = path.absolute()
        if _WILD & set(str(path)):
            raise PipelineError(f"{path}: Spark cannot use a path with one of {' '.join(sorted(_WILD))}; rename it")
        lake = cls(path)
        with trouble(path):
            try:
                os.stat(path / MARK)
            except FileNotFoundError:
                if create:
                    lake._make()
            lake.mark()
        return lake

    def mark(self) -> Mark:
        """What it says of itself now. PipelineError if it is not for us."""
        path = self.path / MARK
        try:
            content = json.loads(path.read_text())
            version, journals = content["tidegate"], content.get("journals", [])
            adopted = content.get("adopted")
            if not isinstance(journals, list) or not isinstance(adopted, str | None):
                raise TypeError("`journals` is a list, and `adopted` a text")
        except FileNotFoundError:
            raise PipelineError(f"there is no lake in {self.path}; run the pipeline, or mend `lake`") from None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise PipelineError(f'{path} is damaged; if this is a lake, write {{"tidegate": 1}} to it') from None
        if version not in (VERSION, VERSION - 1):
            raise PipelineError(f"{self.path} is a lake of version {version!r}; use the Tidegate that wrote it")
        return Mark(version=version, journals=tuple(map(str, journals)), adopted=adopted)

    def remark(self, mark: Mark) -> None:
        """Within `swapping`: from now on it says this of itself."""
        replace(self.path / MARK, _marked(mark))

    def _make(self) -> None:
        tables = [name for name in TABLES if (self.path / name).exists()]
        if tables:
            raise PipelineError(
                f"{self.path} has {', '.join(tables)} but no {MARK}, which says what they are; put it back, "
                "or choose another folder"
            )
        self.path.mkdir(parents=True, exist_ok=True)
        new = self.path / f"{MARK}.{uuid.uuid4().hex}"
        try:
            replace(new, _marked(Mark()))
            with suppress(FileExistsError):  # another node has made it meanwhile, and may have said more
                os.link(new, self.path / MARK)
        finally:
            new.unlink(missing_ok=True)
        sync_path(self.path)

    @property
    def own(self) -> Path:
        return self.path / "_tidegate"

    def home(self, table: str, day: date, batch: str) -> Path:
        return self.path / table / f"date={day.isoformat()}" / f"batch={batch}"

    def dates(self, table: str) -> list[date]:
        """The days that may have rows, in order."""
        return sorted(day for day in map(_day, _names(self.path / table)) if day is not None)

    def parts(self, table: str, *, dates: Collection[date] | None = None, batch: str | None = None) -> Iterator[Part]:
        for day in self.dates(table):
            if dates is not None and day not in dates:
                continue
            folder = self.path / table / f"date={day.isoformat()}"
            for name in sorted(_names(folder)) if batch is None else [f"batch={batch}"]:
                match = _BATCH.fullmatch(name)
                if match is None:
                    continue
                for file in sorted(_names(folder / name)):
                    if _FILE.fullmatch(file):
                        yield Part(table=table, date=day, batch=match[1], path=folder / name / file)


def checked(batch: str) -> str:
    """The text of a batch; PipelineError if it cannot be the name of a folder, or is one of ours."""
    if _BATCH.fullmatch(f"batch={batch}") is None or batch in (COMPACTED, DAILY):
        raise PipelineError(f"{batch!r} cannot name a batch; take at most 128 letters, digits, dots and dashes")
    return batch


def _marked(mark: Mark) -> str:
    adopted = {} if mark.adopted is None else {"adopted": mark.adopted}
    content = {"tidegate": mark.version, "kind": "lake", "journals": list(mark.journals), **adopted}
    return json.dumps(content) + "\n"


def replace(path: Path, text: str) -> None:
    """Write a file so that it is there whole or not at all, and stays."""
    new = path.with_name(f"{path.name}.new")
    with new.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    sync_path(path.parent)


@contextmanager
def trouble(path: Path) -> Iterator[None]:
    """What the system refuses becomes a PipelineError that says how to go on."""
    try:
        yield
    except OSError as error:
        raise refused(path, error.errno, error.strerror or str(error)) from error


_REMEDY: Final = {
    errno.ENOSPC: "free some space; the journal keeps what is not in the lake yet",
    errno.EDQUOT: "free some space; the journal keeps what is not in the lake yet",
    errno.EROFS: "mount it for writing, or choose another `lake`",
    errno.EACCES: f"let the user that runs the pipeline (uid {os.geteuid()}) own it",
    errno.EPERM: f"let the user that runs the pipeline (uid {os.geteuid()}) own it",
    errno.ENOTDIR: "a file is where a folder should be; move it away",
    errno.ENOLCK: "use a file system that has locks",
}


def refused(path: Path, code: int | None, why: str) -> PipelineError:
    return PipelineError(f"the lake {path} cannot be used: {why}; {_REMEDY.get(code or 0, 'look at the disk')}")


def refused_by_spark(path: Path, message: str) -> PipelineError:
    """The same for what comes through Spark, which only has the system's words."""
    for code in _REMEDY:
        if os.strerror(code) in message:
            return refused(path, code, os.strerror(code))
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("Caused by:")] or lines or ["it did not say why"]
    return PipelineError(f"Spark could not write to the lake {path}: {causes[-1][:300]}; look at what it printed")


def _day(name: str) -> date | None:
    match = _DATE.fullmatch(name)
    try:
        return date.fromisoformat(match[1]) if match else None
    except ValueError:
        return None


def _names(folder: Path) -> list[str]:
    """What is in a folder; nothing if there is none (any more)."""
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []


def table_named(name: str) -> Table:
    """PipelineError lists those that exist."""
    if name not in TABLES:
        raise PipelineError(f"the lake has no table {name!r}; take one of {', '.join(TABLES)}")
    return TABLES[name]


def read(spark: SparkSession, path: Path, table: str, *, dates: Collection[date] | None = None) -> DataFrame:
    """A table of the lake, each row once: the files that are there now, of these days or of all.

    Rows can lie in two files: for a moment during compaction, and for longer where a journal was read again from its
    start. A query that is still running when compaction removes its files fails and can be repeated.
    """
    kind = table_named(table)
    lake = Place.open(path)
    files = [str(part.path) for part in lake.parts(table, dates=dates)]
    schema = struct(kind.columns + PLACE)
    if not files:
        return spark.createDataFrame([], schema)
    rows = spark.read.schema(schema).option("basePath", str(lake.path / table)).parquet(*files)
    if "journal" in kind.key and (adopted := lake.mark().adopted) is not None:
        rows = rows.withColumn("journal", F.coalesce("journal", F.lit(adopted)))
    return rows.dropDuplicates(list(kind.key))
