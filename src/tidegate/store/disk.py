"""Folders and files that are safe from a power failure, and errors of the disk that name their remedy."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tidegate.errors import StoreError


@contextmanager
def with_remedy(what: str, remedy: str) -> Iterator[None]:
    """An OSError within becomes a StoreError: what cannot be done, why, and what helps."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"{what}: {error.strerror}. Remedy: {remedy}.") from error


def create_folder(folder: Path) -> None:
    """The folder and what leads to it, safe from a power failure; no harm if it is there."""
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    with with_remedy(f"data folder {folder} cannot be made", "make it, or name another one"):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for place in missing:
            sync_path(place.parent)


def sync_path(path: Path) -> None:
    """Forces a file or a folder to the disk."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


@contextmanager
def written_aside(path: Path, data: bytes) -> Iterator[str]:
    """A file of mode 600 beside `path`, on the disk, to be moved or linked there. It goes if it is left where it is."""
    descriptor, aside = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        yield aside
    finally:
        Path(aside).unlink(missing_ok=True)


def create_once(path: Path, data: bytes) -> bool:
    """Makes a file of mode 600, which appears whole. False: there is one already, and that stays."""
    with written_aside(path, data) as aside:
        try:
            os.link(aside, path)  # unlike a move, refuses to overwrite
        except FileExistsError:
            return False
    sync_path(path.parent)
    return True
