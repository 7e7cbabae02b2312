"""The ids of QoS 1 and 2 messages that came over links from other nodes, so that none of them is taken twice.

- An id belongs to the domain of its publisher: who does not speak for that domain cannot use up its ids.
- Each link has a share of its own, written in a circle: no neighbour makes the node forget what came over another link.
  What a sender has not seen acknowledged it sends again before anything new, and that is less than a share.
- An id is noted in the same turn as what becomes of the message, so both are in the store with one commit: after a
  crash either both are there, and the message is not taken again, or neither is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from struct import Struct
from typing import Final

from tidegate.errors import StoreError
from tidegate.session import Message, Store

MOST: Final = 50_000
"""Ids of one link. A connection has up to 65,535 identifiers, of which `receive_maximum` (1000) are in use."""
ROOM: Final = "seen"
"""In the store: `LINK SLOT`."""
_HEAD: Final = Struct(">Q14sQQ")
"""Position, node and boot, number, output; the domain follows."""

Id = tuple[str, bytes, int, int]
"""Domain, node and boot, number, output."""


class SeenIds:
    """What one scope remembers. In it the shares of all links are together, each with a circle of its own."""

    def __init__(self) -> None:
        self._ids: set[Id] = set()
        self._released: dict[Id, Message] = {}

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, id: Id) -> bool:
        return id in self._ids

    def forget(self, id: Id) -> None:
        """It may be taken once more."""
        self._ids.discard(id)

    def share(self, link: str, store: Store) -> Share:
        return Share(link, store, self._ids)

    def release(self, id: Id, message: Message) -> bool:
        """Whether a QoS 2 message may be published now: it has not been, and no other copy of it is about to be."""
        return id not in self._ids and self._released.setdefault(id, message) is message

    def let_go(self, id: Id, message: Message) -> bool:
        """It has been published, or refused: whether it was this copy."""
        if self._released.get(id) is not message:
            return False
        del self._released[id]
        return True


class Share:
    """What one link has brought."""

    def __init__(self, link: str, store: Store, ids: set[Id]) -> None:
        self._link = link
        self._store = store
        self._ids = ids
        self._circle: dict[int, Id] = {}  # by slot
        self._next = 0

    def add(self, id: Id) -> None:
        """The message has been taken."""
        # hot: once per QoS 1 or 2 message
        if id in self._ids:
            return
        position = self._next
        self._next = position + 1
        slot = position % MOST
        oldest = self._circle.get(slot)
        if oldest is not None:
            self._ids.discard(oldest)
        self._circle[slot] = id
        self._ids.add(id)
        domain, origin, number, output = id
        record = _HEAD.pack(position, origin, number, output) + domain.encode()
        self._store.keep(ROOM, f"{self._link} {slot}", record, urgent=False)

    def restore(self, records: Mapping[int, bytes]) -> None:
        """What the store kept, by slot."""
        found = sorted((_HEAD.unpack_from(record), record[_HEAD.size :].decode()) for record in records.values())
        for (position, *id), domain in found:
            self._circle[position % MOST] = one = (domain, *id)
            self._ids.add(one)
            self._next = position + 1

    def end(self) -> None:
        """The link is gone."""
        for slot, id in self._circle.items():
            self._ids.discard(id)
            self._store.keep(ROOM, f"{self._link} {slot}", None)
        self._circle.clear()


def by_link(records: Mapping[str, bytes]) -> Iterator[tuple[str, dict[int, bytes]]]:
    """The records of the store, by the link that they came over."""
    links: dict[str, dict[int, bytes]] = {}
    for key, record in records.items():
        link, _, slot = key.rpartition(" ")
        if not slot.isdecimal() or len(record) < _HEAD.size:
            raise StoreError(f"the id {key!r} of a message cannot be read. Remedy: restore a backup.")
        links.setdefault(link, {})[int(slot)] = record
    yield from links.items()
