"""The numbers of owners' sets of preferences (`policy.preference_numbers`), for all nodes on a registry.

A number is given under the lock, so nodes that change the same owner at once do not give the same one. It changes no
document: nobody is told.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tidegate.policy.home_preferences import HomePreferences
from tidegate.policy.preference_numbers import OwnerNumber, newest
from tidegate.store.registry.database import Connection, Mode
from tidegate.store.registry.state import read_state

if TYPE_CHECKING:
    from tidegate.store.registry.registry import Registry


class PreferenceNumbers:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def all(self) -> dict[str, OwnerNumber]:
        """By owner."""

        def work(connection: Connection) -> dict[str, OwnerNumber]:
            read_state(connection)
            return _all(connection)

        return self._registry.run(Mode.READ, work)

    def take_up(
        self, home: HomePreferences, *, at: float, brought: Iterable[OwnerNumber] = ()
    ) -> dict[str, OwnerNumber]:
        """All numbers, after those have changed whose owners say something else now.

        `brought` are numbers that the node has kept elsewhere so far.
        """
        brought = tuple(brought)
        known = self.all()
        if not brought and not home.renumbered(known, at):
            return known

        def work(connection: Connection) -> dict[str, OwnerNumber]:
            read_state(connection, lock=True)
            before = _all(connection)
            known = newest((*before.values(), *brought))
            known |= {each.owner: each for each in home.renumbered(known, at)}
            _write(connection, [each for owner, each in known.items() if before.get(owner) != each])
            return known

        return self._registry.run(Mode.WRITE, work)


def _all(connection: Connection) -> dict[str, OwnerNumber]:
    rows = connection.execute("SELECT owner, name, digest, number FROM tidegate_preferences ORDER BY owner")
    return {
        owner: OwnerNumber(owner=owner, name=name, digest=bytes(digest), number=number)
        for owner, name, digest, number in rows
    }


def _write(connection: Connection, numbers: Iterable[OwnerNumber]) -> None:
    for each in numbers:
        connection.execute("DELETE FROM tidegate_preferences WHERE owner = ?", each.owner)
        connection.execute(
            "INSERT INTO tidegate_preferences (owner, name, digest, number) VALUES (?, ?, ?, ?)",
            *(each.owner, each.name, each.digest, each.number),
        )
