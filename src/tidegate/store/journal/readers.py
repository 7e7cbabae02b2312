"""Who reads a journal, and how far they have come: what they have not read yet stays, however old it is.

A reader has a file in the folder `readers` beside the shards of the stream, `<name>.json`: `{"0": 1234}` says that it
needs nothing of shard 0 before offset 1234. A shard that is not in it has not been read at all, so `{}` keeps
everything. Whoever reads writes its own file, after what it has made of the rows is safe; to end a reader, remove it
(`withdraw`).

Invariants
- A file appears whole, by renaming.
- What cannot be read keeps everything: nobody knows how far that reader has come.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import orjson

from tidegate.errors import StoreError
from tidegate.store.disk import create_folder, sync_path, with_remedy, written_aside
from tidegate.store.journal.rows import Stream

FOLDER: Final = "readers"
SUFFIX: Final = ".json"
_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")


def readers_of(data: Path, stream: Stream) -> Path:
    """The folder of a stream's readers; `data` is the data folder of the node."""
    return data / "journal" / stream.name / FOLDER


def commit(folder: Path, name: str, offsets: Mapping[str, int]) -> None:
    """This reader needs nothing any more before these offsets, by shard. StoreError if that cannot be written."""
    path = _path(folder, name)
    remedy = "free some space, and let the user that reads the journal own that folder"
    with with_remedy(f"{path} cannot be written", remedy):
        create_folder(folder)
        with written_aside(path, orjson.dumps(dict(offsets))) as aside:
            os.replace(aside, path)
        sync_path(folder)


def enrol(folder: Path, name: str) -> None:
    """There is such a reader, which has read nothing yet, unless it is known already. StoreError as in `commit`."""
    if not _path(folder, name).exists():
        commit(folder, name, {})


def withdraw(folder: Path, name: str) -> dict[str, int] | None:
    """There is no such reader any more; where it was, None if there was none. StoreError if it cannot be removed."""
    path = _path(folder, name)
    if not path.exists():
        return None
    try:
        at = offsets_of(path)
    except StoreError:
        at = {}  # nobody knows; it goes all the same
    with with_remedy(f"{path} cannot be removed", "do it as the user that owns it"):
        path.unlink(missing_ok=True)
        sync_path(folder)
    return at


def offsets_of(path: Path) -> dict[str, int]:
    """What a reader has said, by shard. StoreError if the file cannot be read."""
    try:
        offsets = orjson.loads(path.read_bytes())
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}. {_REMEDY}") from error
    except orjson.JSONDecodeError:
        raise StoreError(f"{path} is no JSON. {_REMEDY}") from None
    if not isinstance(offsets, dict) or not all(
        shard.isdecimal() and type(offset) is int and offset >= 0 for shard, offset in offsets.items()
    ):
        raise StoreError(f'{path} is not like {{"0": 1234}}. {_REMEDY}')
    return offsets


def known(folder: Path) -> dict[str, Path]:
    """The files of all readers, by name. OSError if the folder cannot be looked into."""
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return {}
    return {name[: -len(SUFFIX)]: folder / name for name in names if name.endswith(SUFFIX) and name[0] != "."}


def lowest(
    folder: Path, *, shard: int = 0, broken: Callable[[Path, StoreError], None] = lambda path, why: None
) -> int | None:
    """The offset from which on somebody needs the rows of a shard; None: nobody reads.

    `broken` is told of files that cannot be read; each keeps everything.
    """
    needed: list[int] = []
    try:
        paths = known(folder).values()
    except OSError as error:
        broken(folder, StoreError(f"{folder} cannot be read: {error.strerror}. {_REMEDY}"))
        return 0
    for path in paths:
        try:
            needed.append(offsets_of(path).get(str(shard), 0))
        except StoreError as error:
            if not path.exists():
                continue  # it was removed meanwhile
            broken(path, error)
            needed.append(0)
    return min(needed, default=None)


_REMEDY: Final = "Everything is kept for it. Remedy: let whoever reads write it again, or remove it."


def _path(folder: Path, name: str) -> Path:
    if not _NAME.fullmatch(name):
        raise StoreError(f"{name[:100]!r} is no name of a reader. Remedy: 1 to 64 letters, digits, `.`, `_` and `-`.")
    return folder / f"{name}{SUFFIX}"
