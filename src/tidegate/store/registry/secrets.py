"""Small binary records by room and key. They have no history."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidegate.store.registry import validation
from tidegate.store.registry.database import Connection, Mode
from tidegate.store.registry.documents import Answer, Refused, Secret, Signature
from tidegate.store.registry.state import State, conflict, finish, read_state

if TYPE_CHECKING:
    from tidegate.store.registry.registry import Registry

GRACE: Final = 3600.0
"""Seconds before an expired secret is removed: the clock of another node may be behind. One that is far ahead removes
nothing that has not expired by the clock of the database."""

_SELECT: Final = "SELECT room, key, value, version, expires FROM tidegate_secret WHERE room = ?"


class Secrets:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def get(self, room: str, key: str, *, at: float) -> Secret | None:
        """None also if it has expired."""
        if validation.name(room, key) is not None:
            return None
        secrets = self._read(_SELECT + " AND key = ?", room, key, at=at)
        return secrets[0] if secrets else None

    def all(self, room: str, *, at: float) -> list[Secret]:
        """Those that have not expired, by key."""
        return [] if validation.name(room, "-") is not None else self._read(_SELECT + " ORDER BY key", room, at=at)

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
        limits = self._registry.limits
        wrong = validation.secret(room, key, value, expires, limits)
        if wrong is not None:
            return wrong
        signed = Signature.of(by="secrets", why="", at=at, id=id)

        def work(connection: Connection, state: State) -> Answer:
            rows = connection.execute(
                "SELECT version, expires FROM tidegate_secret WHERE room = ? AND key = ?", room, key
            )
            version = rows[0][0] if rows and _lasts(rows[0][1], at) else None
            wrong = conflict(room, key, version, expected, removing=value is None)
            if wrong is not None:
                return wrong
            if value is not None and not rows and state.secrets >= limits.secrets:
                what = f"there are {state.secrets} secrets, and no more than {limits.secrets} may be stored"
                return Refused(what=what)
            state.sequence += 1
            state.secrets += (value is not None) - bool(rows)
            connection.execute("DELETE FROM tidegate_secret WHERE room = ? AND key = ?", room, key)
            if value is not None:
                connection.execute(
                    "INSERT INTO tidegate_secret (room, key, value, version, expires) VALUES (?, ?, ?, ?, ?)",
                    *(room, key, value, state.sequence, expires),
                )
            ((now,),) = connection.execute(connection.dialect.now)
            expired = "DELETE FROM tidegate_secret WHERE expires < ? RETURNING room"
            state.secrets -= len(connection.execute(expired, min(at, now) - GRACE))
            return finish(connection, state, signed.id, room=room)

        return self._registry.write(signed, work)

    def changed(self, sequence: int) -> frozenset[str]:
        """The rooms in which something was put or removed after the change `sequence`."""

        def work(connection: Connection) -> frozenset[str]:
            # a number beyond the newest: the database was put back, and anything may be different
            since = sequence if 0 <= sequence <= read_state(connection).sequence else 0
            rows = connection.execute("SELECT room FROM tidegate_room WHERE sequence > ?", since)
            return frozenset(room for (room,) in rows)

        return self._registry.run(Mode.READ, work)

    def _read(self, query: str, *values: str, at: float) -> list[Secret]:
        rows = self._registry.run(Mode.READ, lambda connection: connection.execute(query, *values))
        return [
            Secret(room=room, key=key, value=bytes(value), version=version, expires=expires)
            for room, key, value, version, expires in rows
            if _lasts(expires, at)
        ]


def _lasts(expires: float | None, at: float) -> bool:
    return expires is None or expires > at
