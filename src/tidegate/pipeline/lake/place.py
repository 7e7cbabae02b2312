"""Where the rows are: the folders of a lake, its version, and which files in it are ours.

    <lake>/_tidegate.json                                             what this folder is, and of which version
    <lake>/<table>/date=YYYY-MM-DD/batch=<text>/part-*.parquet        rows, by the day (UTC) on which they were received
    <lake>/_tidegate/                                                 locks, swaps, staged files, who has been erased

Only files that are named like this are ever read, rewritten or removed. Whatever else lies in these folders belongs to
somebody else and is left alone. A lake is a folder of a file system that the driver and all workers see.
"""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Final

from tidegate.errors import PipelineError

VERSION: Final = 1
MARK: Final = "_tidegate.json"
COMPACTED: Final = "compacted"
"""The batch of rows that were put together from several."""
DAILY: Final = "daily"
"""The batch of rows that are computed once a day."""
NAMES: Final = ("raw", "normalised", "quarantine", "audit", "quality_daily")

_DATE: Final = re.compile(r"date=(\d{4}-\d\d-\d\d)")
_BATCH: Final = re.compile(r"batch=([A-Za-z0-9._-]{1,128})")
_FILE: Final = re.compile(r"part-[^/]*\.parquet")
_WILD: Final = frozenset("*?[]{}\\,")  # Spark takes them for a pattern


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One file of rows."""

    table: str
    date: date
    batch: str
    path: Path


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
        with trouble(path):
            try:
                content = (path / MARK).read_text()
            except FileNotFoundError:
                if not create:
                    raise PipelineError(f"there is no lake in {path}; run the pipeline, or mend `lake`") from None
                return cls._made(path)
        try:
            version = json.loads(content)["tidegate"]
        except (ValueError, KeyError, TypeError):
            raise PipelineError(f'{path / MARK} is damaged; if this is a lake, write {{"tidegate": 1}} to it') from None
        if version not in (VERSION, VERSION - 1):
            raise PipelineError(f"{path} is a lake of version {version!r}; use the Tidegate that wrote it")
        return cls(path)

    @classmethod
    def _made(cls, path: Path) -> Place:
        tables = [name for name in NAMES if (path / name).exists()]
        if tables:
            raise PipelineError(
                f"{path} has {', '.join(tables)} but no {MARK}, which says what they are; put it back, "
                "or choose another folder"
            )
        path.mkdir(parents=True, exist_ok=True)
        replace(path / MARK, json.dumps({"tidegate": VERSION, "kind": "lake"}) + "\n")
        return cls(path)

    @property
    def own(self) -> Path:
        return self.path / "_tidegate"

    def home(self, table: str, day: date, batch: str) -> Path:
        """The folder of a batch's rows of one day."""
        return self.path / table / f"date={day.isoformat()}" / f"batch={batch}"

    def dates(self, table: str) -> list[date]:
        """The days that may have rows, in order."""
        return sorted(day for day in map(_day, _names(self.path / table)) if day is not None)

    def parts(self, table: str, *, dates: Collection[date] | None = None, batch: str | None = None) -> Iterator[Part]:
        """The files of a table, day by day."""
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


def replace(path: Path, text: str) -> None:
    """Write a file so that it is there whole or not at all, and stays."""
    new = path.with_name(f"{path.name}.new")
    with new.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    sync(path.parent)


def sync(path: Path) -> None:
    """Force a file or a folder to the disk."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


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
    """What to say when the file system does not do what it should."""
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
