"""The state of a node as one archive, and back.

Invariants
- Each database is copied as of one moment: the store by the thread that writes it, so that every acknowledged message
  before the copy is in it; the registry in one transaction.
- Nothing is restored over a state that is there, and nothing that differs from what was backed up.
- A restored node never gives a message the id of another: its boot number is higher than any it had.

Journals are left out. What they hold has been handed on or is a record of the past, and whoever reads them elsewhere
keeps offsets: a journal that went back would give the same offsets to other rows. A restored node begins new ones.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import sqlite3
import stat
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from tidegate.errors import StoreError
from tidegate.store.disk import create_folder
from tidegate.store.lock import NAME as LOCK
from tidegate.store.lock import Lock

VERSION: Final = 1
MANIFEST: Final = "backup.json"
STORE: Final = "tidegate.db"
MAX_BYTES: Final = 64 << 30
_REGISTRY: Final = "admin.db"
_LEFT_OUT: Final = ("-wal", "-shm", "-journal", ".sock", ".tmp", ".pid")
_OTHER: Final = "name another file, or restore with the version that made it"


def copy_database(connection: sqlite3.Connection, target: Path) -> None:
    """A copy of the database as this connection sees it, in a new file."""
    connection.execute("VACUUM INTO ?", (str(target),))
    target.chmod(0o600)


def copy_resting_store(data: Path, target: Path) -> None:
    """The store of a node that does not run; StoreError if it does."""
    lock = Lock(data)
    lock.acquire()
    try:
        with closing(sqlite3.connect(data / STORE)) as connection:
            copy_database(connection, target)
    except sqlite3.Error as error:
        raise StoreError(
            f"{data / STORE} cannot be copied: {error}. Remedy: start the node once, or mend it."
        ) from error
    finally:
        lock.release()


def write_archive(data: Path, target: Path, *, node: str, copy_store: Callable[[Path], None], work: Path) -> list[str]:
    """Writes the archive, a new file for its owner alone; the names of what it holds. `work` is an empty folder."""
    if target.resolve().is_relative_to(data.resolve()):  # it would hold itself, half written, and every older one
        raise StoreError(f"{target} is in the folder that is backed up. Remedy: write it somewhere else.")
    try:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StoreError(f"{target} cannot be made: {error.strerror}. Remedy: choose another name.") from error
    try:
        with os.fdopen(descriptor, "wb") as stream:
            names = _write(data, stream, node, copy_store, work)
            stream.flush()
            os.fsync(stream.fileno())
    except BaseException:
        target.unlink(missing_ok=True)
        raise
    return names


def _write(data: Path, stream: Any, node: str, copy_store: Callable[[Path], None], work: Path) -> list[str]:
    files = dict(_plain_files(data))
    copy_store(work / STORE)
    files[STORE] = work / STORE
    if (data / _REGISTRY).exists():
        with closing(sqlite3.connect(data / _REGISTRY, timeout=30)) as connection:
            copy_database(connection, work / _REGISTRY)
        files[_REGISTRY] = work / _REGISTRY
    sums = {name: _sum(path) for name, path in sorted(files.items())}
    manifest = {"tidegate": VERSION, "node": node, "at": time.time(), "files": sums}
    with tarfile.open(fileobj=stream, mode="w:gz", compresslevel=3) as archive:
        content = json.dumps(manifest, indent=1).encode()
        entry = tarfile.TarInfo(MANIFEST)
        entry.size, entry.mode = len(content), 0o600
        archive.addfile(entry, io.BytesIO(content))
        for name in sums:
            archive.add(files[name], arcname=name, recursive=False)
    return list(sums)


def _plain_files(data: Path) -> Iterator[tuple[str, Path]]:
    """Files such as keys, which are written once and as a whole."""
    for path in data.iterdir():
        plain = stat.S_ISREG(path.lstat().st_mode)
        if plain and path.name not in (STORE, _REGISTRY, LOCK) and not path.name.endswith(_LEFT_OUT):
            yield path.name, path


def _sum(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def restore(source: Path, data: Path, *, node: str) -> dict[str, Any]:
    """Makes the data folder from an archive; what the archive says of itself. StoreError, and nothing is made, if it is
    of another node, damaged, or if there is a state already."""
    if any(data.glob("*.db")) or (data / "journal").exists():
        raise StoreError(f"{data} holds a state already. Remedy: move it away, or name another `node.data`.")
    try:
        with tarfile.open(source, mode="r:gz") as archive:
            manifest = _manifest(archive, source)
            if manifest["node"] != node:
                raise StoreError(
                    f"{source} is of the node `{manifest['node']}`, and this one is `{node}`. Remedy: {_OTHER}."
                )
            create_folder(data)
            made: list[Path] = []
            try:
                _extract(archive, manifest["files"], data, made, source)
                _new_boot(data / STORE)
            except BaseException:
                for path in made:
                    path.unlink(missing_ok=True)
                raise
    except (OSError, EOFError, tarfile.TarError, sqlite3.Error) as error:
        raise StoreError(f"{source} cannot be restored: {error}. Remedy: {_OTHER}.") from error
    return dict(manifest)


def _manifest(archive: tarfile.TarFile, source: Path) -> dict[str, Any]:
    first = archive.next()
    stream = None if first is None or first.name != MANIFEST or first.size > 1 << 20 else archive.extractfile(first)
    try:
        manifest: Any = json.loads(b"" if stream is None else stream.read())
    except ValueError:
        manifest = {}
    files = manifest.get("files") if isinstance(manifest, dict) else None
    if not isinstance(files, dict) or manifest.get("tidegate") != VERSION or STORE not in files:
        raise StoreError(f"{source} is no backup of version {VERSION}. Remedy: {_OTHER}.")
    return dict(manifest)


def _extract(archive: tarfile.TarFile, files: dict[str, str], data: Path, made: list[Path], source: Path) -> None:
    size = 0
    for entry in archive:
        if entry.name == MANIFEST:
            continue
        stream = archive.extractfile(entry)
        size += entry.size
        if stream is None or entry.name not in files or Path(entry.name).name != entry.name or size > MAX_BYTES:
            raise StoreError(f"{source} holds `{entry.name}`, which is none of its files. Remedy: {_OTHER}.")
        path = data / entry.name
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        made.append(path)
        with os.fdopen(descriptor, "wb") as target:
            while chunk := stream.read(1 << 20):
                target.write(chunk)
            target.flush()
            os.fsync(target.fileno())
        if _sum(path) != files[entry.name]:
            raise StoreError(f"{source} is damaged: `{entry.name}` is not what was backed up. Remedy: {_OTHER}.")
    if missing := sorted(files.keys() - {path.name for path in made}):
        raise StoreError(f"{source} is damaged: `{missing[0]}` is missing. Remedy: {_OTHER}.")


def _new_boot(path: Path) -> None:
    """Boots are counted by ones, so no node ever reaches the milliseconds of a date."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("REPLACE INTO meta VALUES ('boot', ?)", (str(time.time_ns() // 1_000_000),))
