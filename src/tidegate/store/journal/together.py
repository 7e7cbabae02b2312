"""Rows that are written together or not at all, and that can be taken back until they are.

The loop makes them and may withdraw them; the writer's thread claims them for a batch. Whoever is first wins: claimed
rows cannot be withdrawn, withdrawn ones are not written. A write that failed and left nothing behind gives the claim
back.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock

from tidegate.store.journal.rows import Row


class Together:
    __slots__ = ("_claimed", "_lock", "_withdrawn", "rows", "weight", "written")

    def __init__(self, rows: Sequence[Row], weight: int) -> None:
        self.rows = rows
        self.weight = weight  # bytes that they take while they wait
        self.written = False  # they are on the disk. To be asked when the writer has told that it is done with them
        self._lock = Lock()
        self._claimed = False
        self._withdrawn = False

    def withdraw(self) -> bool:
        """They will never be written. False: too late, they are being written or have been."""
        with self._lock:
            if not self._claimed:
                self._withdrawn = True
            return self._withdrawn

    def claim(self) -> bool:
        """For the writer: they are being written. False: they were withdrawn."""
        with self._lock:
            self._claimed = not self._withdrawn
            return self._claimed

    def release(self) -> None:
        """For the writer: they were not written, and nothing is left of the attempt."""
        with self._lock:
            self._claimed = False

    def settle(self) -> None:
        """For the writer: what it claimed is on the disk."""
        self.written = self._claimed
