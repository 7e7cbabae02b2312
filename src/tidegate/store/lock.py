"""One node per data folder, and what the folder remembers about its database.

The lock file is locked as long as the store is open; the lock ends with the process, however it ends. Its
content outlives the process and says what the database alone cannot say: that there was one (so that a missing
or empty file is a loss and not a first start), and whether every commit was forced to the disk (so that a
gap in the log is damage and not the price of `async`).
"""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from tidegate.errors import StoreError
from tidegate.store.disk import with_remedy

NAME: Final = "tidegate.lock"
VERSION: Final = 1
_SIZE: Final = 256  # always written whole and in one go, so that no crash leaves half of it


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    database: str  # name of the file that holds, or held, the data
    durability: str
    process: int


class Lock:
    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        self._file = -1

    def acquire(self) -> Record | None:
        """Take the lock; what the last holder wrote down, None if nothing (legible)."""
        owner = f"the user that runs Tidegate (uid {os.geteuid()})"
        with with_remedy(f"{self.path} cannot be opened", f"let {owner} own the data folder and what is in it"):
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = self._read()
            self.release()
            who = f"process {holder.process}" if holder else "another process"
            raise StoreError(
                f"{self.path.parent} is in use by {who}. Remedy: stop it, or give this node a data folder of its own."
            ) from error
        except OSError as error:
            self.release()
            raise StoreError(
                f"{self.path} cannot be locked: {error.strerror}. Remedy: keep the data folder on a local disk."
            ) from error
        return self._read()

    def write(self, *, database: str, durability: str) -> None:
        """Write down what the next one should know."""
        record = Record(database=database, durability=durability, process=os.getpid())
        text = json.dumps({"tidegate": VERSION, **asdict(record)}).encode().ljust(_SIZE - 1) + b"\n"
        with with_remedy(f"{self.path} cannot be written", "free some space or mend the disk"):
            os.pwrite(self._file, text, 0)
            os.ftruncate(self._file, len(text))
            os.fsync(self._file)

    def release(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _read(self) -> Record | None:
        try:
            content = json.loads(os.pread(self._file, 4096, 0))
            return Record(
                database=str(content["database"]),
                durability=str(content["durability"]),
                process=int(content["process"]),
            )
        except (ValueError, KeyError, TypeError):
            return None  # empty on the first start; a later version may say it otherwise
