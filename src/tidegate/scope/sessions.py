"""The sessions of one scope: by principal and client identifier, and in the order of their client identifiers.

The order is for whoever lists them: a page begins where the last one ended without a look at those before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from sortedcontainers import SortedList

from tidegate.session import Session

Key = tuple[str, str]
"""A principal and a client identifier."""
Place = tuple[str, str]
"""A client identifier and a principal: where a session stands in the order."""
FIRST: Final[Place] = ("", "")
_AFTER: Final = "\U0010ffff"


class Sessions(dict[Key, Session]):
    """Changed one by one only: with `[]`, `del` and `pop`."""

    def __init__(self) -> None:
        super().__init__()
        self._places: SortedList = SortedList()

    def __setitem__(self, key: Key, session: Session) -> None:
        if key not in self:
            self._places.add((key[1], key[0]))
        super().__setitem__(key, session)

    def __delitem__(self, key: Key) -> None:
        super().__delitem__(key)
        self._places.remove((key[1], key[0]))

    def pop(self, key: Key, default: Any = None) -> Any:
        if key not in self:
            return default
        session = self[key]
        del self[key]
        return session

    def after(self, place: Place, limit: int, *, inclusive: bool = False) -> list[tuple[Place, Session]]:
        """At most so many that stand behind a place, in their order."""
        places: Iterator[Place] = self._places.irange(place, inclusive=(inclusive, True))
        return [(each, self[each[1], each[0]]) for each in islice(places, limit)]

    def named(self, client: str, limit: int) -> list[Session]:
        """At most so many that have a client identifier, each of another principal."""
        places: Iterator[Place] = self._places.irange((client, ""), (client, _AFTER))
        return [self[each[1], each[0]] for each in islice(places, limit)]
