"""What people may do with their own data, and learn about others by it."""

from __future__ import annotations

from enum import StrEnum

from tidegate.config.section import Section


class Names(StrEnum):
    """What owners learn of those who can read, or have read, what is theirs."""

    USERS = "users"
    ROLES = "roles"


class Me(Section):
    """What people learn when they ask about their own data."""

    names: Names = Names.USERS
    """`users`: who can read it and who has, by name; `roles`: only their roles, and how many they are."""
