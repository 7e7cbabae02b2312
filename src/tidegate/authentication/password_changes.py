"""Users who were removed or have another password, so that whoever has logged in before is not let back in.

A hash that replaces another one of the same password is no change.
"""

from __future__ import annotations


class PasswordChanges:
    """Those of one node since it runs."""

    def __init__(self) -> None:
        self._changed: dict[str, int] = {}  # users removed or with another password, and under which rules
        self._rehashed: dict[str, tuple[str, str]] = {}  # users with a hash of Mosquitto's, and what replaces it

    def rehashed(self, name: str, stored: str, hashed: str) -> None:
        """Two stored values are of one password: if one replaces the other, nobody has to log in again."""
        self._rehashed[name] = (stored, hashed)

    def same(self, name: str, before: str | None, now: str | None) -> bool:
        """Whether two stored values are of one password."""
        return before == now or self._rehashed.get(name) == (before, now)

    def note(self, name: str, generation: int) -> None:
        """A user was removed or has another password, under the rules of this number."""
        self._changed[name] = generation

    def since(self, name: str, generation: int) -> bool:
        """Whether that was after the rules of this number."""
        return self._changed.get(name, -1) > generation
