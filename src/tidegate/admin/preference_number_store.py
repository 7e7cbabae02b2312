"""The numbers of the owners' sets of preferences: given with each configuration, and kept where documents are.

With a registry they are there, for all nodes that share it. Without one they are in the node's own store, or, if it has
none, in memory. A node that gets a registry later takes them along, and so does one whose registry was away.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from tidegate.errors import MalformedPacket, StoreError
from tidegate.policy.home_preferences import HomePreferences
from tidegate.policy.preference_numbers import OwnerNumber, newest
from tidegate.store.registry import Registry
from tidegate.wire import cbor

ROOM: Final = "preference numbers"  # in the store of the node
VERSION: Final = 1

log = structlog.get_logger("tidegate.node")

Keep = Callable[[str, str, bytes | None], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberedOwners:
    """The numbers of all owners under some rules."""

    numbers: Mapping[str, OwnerNumber]
    local: Sequence[OwnerNumber] = ()
    """Those that this node has to keep."""
    registered: bool = False
    """The registry has all of them."""


class NodePreferenceNumbers:
    def __init__(self, records: Mapping[str, bytes], keep: Keep, registry: Registry | None) -> None:
        """`records` is what the store kept under `ROOM`, `keep` is the store's."""
        self._keep = keep
        self._registry = registry
        self._local = {owner: _read(owner, data) for owner, data in records.items()}
        self.numbers: Mapping[str, OwnerNumber] = dict(self._local)
        """By owner."""

    async def take_up(self, home: HomePreferences) -> NumberedOwners:
        """What becomes of them under these rules: nothing counts before `adopt`.

        While the registry is away they are kept here, and it is told later.
        """
        return await asyncio.to_thread(self._take_up, home, time.time())

    def _take_up(self, home: HomePreferences, at: float) -> NumberedOwners:
        if self._registry is not None:
            try:
                numbers = self._registry.preference_numbers.take_up(home, at=at, brought=self._local.values())
            except StoreError as error:
                log.warning("the registry is told later which preferences have changed", reason=str(error))
            else:
                return NumberedOwners(numbers=numbers, registered=True)
        known = newest((*self.numbers.values(), *self._local.values()))
        changed = home.renumbered(known, at)
        return NumberedOwners(numbers=known | {each.owner: each for each in changed}, local=changed)

    def adopt(self, taken: NumberedOwners) -> None:
        """They count from now on."""
        self.numbers = taken.numbers
        if taken.registered:
            for owner in self._local:
                self._keep(ROOM, owner, None)
            self._local = {}
        for each in taken.local:
            self._local[each.owner] = each
            self._keep(ROOM, each.owner, cbor.canonical([VERSION, each.name, each.digest, each.number]))


def _read(owner: str, data: bytes) -> OwnerNumber:
    try:
        match cbor.plain(data):
            case [int(version), str(name), bytes(digest), int(number)] if version == VERSION:
                return OwnerNumber(owner=owner, name=name, digest=digest, number=number)
    except MalformedPacket as error:
        raise StoreError(f"the number of the preferences of {owner} cannot be read: {error}") from error
    raise StoreError(f"the number of the preferences of {owner} is of a newer Tidegate: run that one")
