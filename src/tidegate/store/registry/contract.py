"""What every registry does, whatever it keeps it in.

All calls block and belong on a worker thread; several threads may call at once. Time comes in as an argument: seconds
of the wall clock.

StoreError if the database is in trouble; it names the remedy, and nothing was changed. Uncertain, a StoreError, if the
connection broke while a change was being committed and the database did not come back in time: then `outcome` tells as
soon as it is there again, and the same call with the same id does it unless it was done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from tidegate.store.registry.documents import Answer, Applied, Change, Entry, Secret, Snapshot


class Listening(Protocol):
    """Notices of changes, until it is closed."""

    @property
    def trouble(self) -> str | None:
        """Why no notices come at the moment; None if they do."""
        ...

    def close(self) -> None: ...


class Secrets(Protocol):
    """Small binary records by room and key. They have no history."""

    def get(self, room: str, key: str, *, at: float) -> Secret | None:
        """None also if it has expired."""
        ...

    def all(self, room: str, *, at: float) -> list[Secret]:
        """Those that have not expired, by key."""
        ...

    def put(
        self,
        room: str,
        key: str,
        value: bytes | None,
        *,
        expected: int | None,
        at: float,
        expires: float | None = None,
        id: str = "",
    ) -> Answer:
        """Compare and set; None removes. `expected` as in `Change`; what has expired does not exist."""
        ...

    def changed(self, sequence: int) -> frozenset[str]:
        """The rooms in which something was put or removed after the change `sequence`."""
        ...


class Registry(Protocol):
    """What people administer: documents with a history, and secrets."""

    @property
    def secrets(self) -> Secrets: ...

    def open(self) -> None:
        """Connect; make or migrate the tables."""
        ...

    def close(self) -> None:
        """Ends the listening as well. What waits for the database gives up."""
        ...

    def load(self) -> Snapshot:
        """Everything."""
        ...

    def since(self, sequence: int) -> list[Entry] | None:
        """The changes after `sequence`, oldest first; None: they cannot be told any more, load again.

        Of a document that was changed very often only the last versions are among them, always the current one.
        """
        ...

    def apply(self, changes: Sequence[Change], *, by: str, why: str, at: float, id: str = "") -> Answer:
        """Make all these changes or none. One that is repeated with the same `id` is not made again."""
        ...

    def revert(self, sequence: int, *, by: str, why: str, at: float, id: str = "") -> Answer:
        """Take one change back, with everything that was made together with it; that is a new change.

        A Conflict if any of it was changed again since.
        """
        ...

    def outcome(self, id: str) -> Applied | None:
        """Whether the change of that id was made. None: it was not, and what became of it cannot make it any more.

        For the last thousand changes.
        """
        ...

    def history(self, kind: str, id: str) -> list[Entry]:
        """The versions of a document, oldest first, deletions included."""
        ...

    def listen(self, callback: Callable[[int], None], *, after: int) -> Listening:
        """Call back, on a thread of its own, with the number of the newest change whenever it is not `after` any more.

        Within a second of any change, by whomever; several changes may be one call. A number that is lower than the
        last one means that the database was put back: load again.
        """
        ...
