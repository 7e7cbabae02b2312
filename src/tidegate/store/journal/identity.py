"""The id of a journal: made once with its folder, and never again.

Offsets begin at 0 in every journal. So whoever keeps an offset outside the journal keeps the id with it: the journal of
another node, or of a data folder that was made anew, has another one. All streams of a node have the same.
"""

from __future__ import annotations

import re
import secrets
from pathlib import Path
from typing import Final

from tidegate.errors import StoreError
from tidegate.store.disk import create_once, with_remedy

_ID: Final = re.compile(r"[0-9a-f]{32}")


def known_journal(data: Path) -> str | None:
    """The id of the journal in this data folder; None if it has none. StoreError if it is damaged."""
    path = data / "journal" / "id"
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
    path = data / "journal" / "id"
    made = secrets.token_hex(16)
    remedy = "free some space, and let the user that runs Tidegate own the folder"
    with with_remedy(f"{path} cannot be made", remedy):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        create_once(path, f"{made}\n".encode())  # a process beside this one may have been faster
    return known_journal(data) or made
