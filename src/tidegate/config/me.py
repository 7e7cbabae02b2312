"""What people may do with their own data, and learn about others by it."""

from __future__ import annotations

from enum import StrEnum

from tidegate.config.section import Section


class Names(StrEnum):
    """What owners learn of those who can read, or have read, what is theirs."""

    USERS = "users"
    ROLES = "roles"


class Erase(StrEnum):
    """What becomes of somebody's wish that what is theirs be erased."""

    YES = "yes"
    ASK = "ask"
    NO = "no"


class Me(Section):
    """What people may do with their own data, and learn when they ask about it."""

    names: Names = Names.USERS
    """`users`: who can read it and who has, by name; `roles`: only their roles, and how many they are."""
    erase: Erase = Erase.ASK
    """`yes`: what is theirs is erased when they ask; `ask`: once an administrator has granted it; `no`: not at all."""
