"""The numbers of owners' sets of preferences: the UTC millisecond of the change, at least the last one plus one.

The number of a set changes when what it says changes, and never goes back: `OwnerNumber` is what has to be kept of it.
An owner who never had any preference has the number 0, and needs no set.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


def next_number(last: int, now: float) -> int:
    """The number of a set that changes now, by the wall clock; `last` is that of the one before, or 0."""
    return max(int(now * 1000), last + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerNumber:
    """The number of an owner's set, and the digest of what that said."""

    owner: str
    name: str
    digest: bytes
    number: int


def newest(numbers: Iterable[OwnerNumber]) -> dict[str, OwnerNumber]:
    """By owner; of several that with the highest number."""
    known: dict[str, OwnerNumber] = {}
    for each in numbers:
        if each.owner not in known or known[each.owner].number < each.number:
            known[each.owner] = each
    return known
