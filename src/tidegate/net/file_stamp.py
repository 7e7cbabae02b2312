"""Whether a file has changed."""

from __future__ import annotations

import contextlib
from pathlib import Path

Stamp = tuple[int, int, int]


def stamp(path: Path) -> Stamp | None:
    """Another one if the file was written or replaced; None: there is no file."""
    with contextlib.suppress(OSError):
        stat = path.stat()
        return stat.st_mtime_ns, stat.st_size, stat.st_ino
    return None
