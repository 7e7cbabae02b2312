"""The id of a journal: made once with its folder, and never again.

Offsets begin at 0 in every journal. So whoever keeps an offset outside the journal keeps the id with it: the journal of
another node, or of a data folder that was made anew, has another one. All streams of a node have the same.
"""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path
from typing import Final

from tidegate.errors import StoreError
from tidegate.store.opening import sync_path

_ID: Final = re.compile(r"[0-9a-f]{32}")


def known_journal(data: Path) -> str | None:
    """The id of the journal in this data folder; None if it has none. StoreError if it is damaged."""
    path = _file(data)
    try:
        text = path.read_text(encoding="ascii", errors="replace").strip()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StoreError(
            f"{path} cannot be read: {error.strerror}. Remedy: let the user that runs Tidegate own it."
        ) from error
    if _ID.fullmatch(text) is None:
        raise StoreError(
            f"{path} is damaged: it does not hold the id of the journal. Remedy: restore it from a backup (the lake "
            "names the journals that wrote to it in `_tidegate.json`)."
        )
    return text


def journal_id(data: Path) -> str:
    """The id of the journal in this data folder, which is made if there is none. StoreError if the disk refuses."""
    if (known := known_journal(data)) is not None:
        return known
    path = _file(data)
    new = path.with_name(f"{path.name}.{secrets.token_hex(8)}.new")
    made = secrets.token_hex(16)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with new.open("x", encoding="ascii") as file:
            file.write(f"{made}\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(new, path)  # and does not replace: a process beside this one may have made it
        except FileExistsError:
            pass
        finally:
            new.unlink(missing_ok=True)
        sync_path(path.parent)
    except OSError as error:
        raise StoreError(
            f"{path} cannot be made: {error.strerror}. Remedy: free some space, and let the user that runs Tidegate "
            "own the folder."
        ) from error
    return known_journal(data) or made


def _file(data: Path) -> Path:
    return data / "journal" / "id"
