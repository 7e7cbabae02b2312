"""Notices that a file has changed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from tidegate.net.file_stamp import stamp


class FileWatch:
    """Watches one file, as it is now."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = stamp(path)

    async def run(self, changed: Callable[[], Awaitable[None]]) -> None:
        """Calls back when the file has changed. It watches the folders: editors and links replace the file itself.

        A file system may send no events, and a link may lead elsewhere, so it also looks at the file once a second.
        """
        from watchfiles import awatch

        folders = {self._path.absolute().parent, self._path.resolve().parent}
        events = awatch(
            *folders, watch_filter=None, debounce=200, recursive=False, rust_timeout=1000, yield_on_timeout=True
        )
        async for _ in events:
            now = stamp(self._path)
            if now != self._seen and now is not None:
                self._seen = now
                await changed()
