"""Names that belong to somebody whom an authority vouches for: a certificate, a capability, a method.

They stand in no directory, so that nothing else tells that they are taken. A stranger who registers must not get one:
rules with a placeholder (`home/{s.user}/#`) would take him for its owner. Users of the directory whom the file or an
administrator made are noted when they are removed, for the same reason.

A name is noted when it is first used, and stays. When there are too many, all count as taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

ROOM: Final = "names"  # in the store of the node
MOST: Final = 1_000_000
LONGEST: Final = 256
"""Characters: nobody can register a longer one."""

Keep = Callable[[str, str, bytes | None], None]


class Names:
    """Those of one node. `kept` is what the store had under `ROOM`, `keep` is the store's."""

    def __init__(self, kept: Iterable[str] = (), keep: Keep = lambda room, key, value: None) -> None:
        self._names = set(kept)
        self._keep = keep

    def note(self, name: str) -> None:
        if name not in self._names and len(name) <= LONGEST and len(self._names) < MOST:
            self._names.add(name)
            self._keep(ROOM, name, b"")

    def taken(self, name: str) -> bool:
        """Whether somebody has it, or had it, for whom others vouch."""
        return name in self._names or len(self._names) >= MOST

    def __contains__(self, name: str) -> bool:
        return name in self._names
