"""The ids of QoS 1 and 2 messages that came over links from other nodes, so that none of them is taken twice.

- An id belongs to the domain of its publisher: who does not speak for that domain cannot use up its ids.
- Each link has a share of its own, and forgets the oldest of it: no neighbour makes the node forget what came over
  another link. What a sender has not seen acknowledged it sends again before anything new, and that is less than a
  share.
- An id is noted in the same turn as what becomes of the message, so both are in the store with one commit: after a
  crash either both are there, and the message is not taken again, or neither is. All that come before that commit are
  one record: to write each by itself would cost as much as the message.
- QoS 0 messages have ids that are remembered, in memory, where links form a ring (`scope.neighbourhood`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from struct import Struct
from struct import error as StructError
from typing import Final

from tidegate.errors import StoreError
from tidegate.session import Message, Store

MOST: Final = 50_000
"""Ids of one link. A connection has up to 65,535 identifiers, of which `receive_maximum` (1000) are in use."""
LONGEST: Final = 500
"""Ids of one record."""
PARTS: Final = 10
"""A share has at least so many records, so that it does not forget too much at once."""
ROOM: Final = "seen"
"""In the store: `LINK bNUMBER`, and `LINK SLOT` as earlier versions wrote it, with one id each."""
_ID: Final = Struct(">14sQQH")
"""Node and boot, number, output, length of the domain, which follows."""
_OLD: Final = Struct(">Q14sQQ")
"""Position, node and boot, number, output; the domain follows."""

Id = tuple[str, bytes, int, int]
"""Domain, node and boot, number, output."""


class SeenIds:
    """What one scope remembers. In it the shares of all links are together, each with a circle of its own."""

    def __init__(self) -> None:
        self.ids: set[Id] = set()
        self.unkept: set[Id] = set()
        """Of QoS 0 messages that come over several ways. Nobody is owed those, so the store does not keep them."""
        self._released: dict[Id, Message] = {}

    def __len__(self) -> int:
        return len(self.ids)

    def __contains__(self, id: Id) -> bool:
        return id in self.ids

    def forget(self, id: Id) -> None:
        """It may be taken once more."""
        self.ids.discard(id)

    def share(self, link: str, store: Store) -> Share:
        return Share(link, store, self)

    def release(self, id: Id, message: Message) -> bool:
        """Whether a QoS 2 message may be published now: it has not been, and no other copy of it is about to be."""
        return id not in self.ids and self._released.setdefault(id, message) is message

    def let_go(self, id: Id, message: Message) -> bool:
        """It has been published, or refused: whether it was this copy."""
        if self._released.get(id) is not message:
            return False
        del self._released[id]
        return True


@dataclass(slots=True)
class _Record:
    """Some ids that have come one after the other."""

    key: str
    ids: list[Id] = field(default_factory=list)
    data: bytearray = field(default_factory=bytearray)
    """What the store keeps of it. The batch that holds it grows with it until it is handed over."""
    batch: int = -1


class Share:
    """What one link has brought."""

    def __init__(self, link: str, store: Store, all: SeenIds) -> None:
        self._link = link
        self._store = store
        self._ids, self._all_unkept = all.ids, all.unkept
        self._unkept: deque[Id] = deque()  # the oldest first
        self._records: deque[_Record] = deque()  # the oldest first
        self._open: _Record | None = None  # the last one, while it takes more
        self._count = 0  # of all their ids
        self._number = 0  # of the last record

    def add(self, id: Id) -> None:
        """The message has been taken."""
        # hot: once per QoS 1 or 2 message
        if id in self._ids:
            return
        record = self._open
        if record is None or record.batch != self._store.sequence or len(record.ids) >= min(LONGEST, MOST // PARTS):
            record = self._begin()
        domain, origin, number, output = id
        name = domain.encode()
        record.data += _ID.pack(origin, number, output, len(name)) + name
        record.ids.append(id)
        self._ids.add(id)
        self._count += 1
        if self._count > MOST:
            self._drop(self._records.popleft())

    def note(self, id: Id) -> None:
        """A QoS 0 message has been taken, and may come another way too."""
        if id not in self._all_unkept:
            self._all_unkept.add(id)
            self._unkept.append(id)
            if len(self._unkept) > MOST:
                self._all_unkept.discard(self._unkept.popleft())

    def _begin(self) -> _Record:
        """A record of what comes in this batch."""
        self._number += 1
        record = self._open = _Record(f"{self._link} b{self._number}", batch=self._store.sequence)
        self._records.append(record)
        self._store.keep(ROOM, record.key, record.data, urgent=False)
        return record

    def _drop(self, record: _Record) -> None:
        self._ids.difference_update(record.ids)
        self._count -= len(record.ids)
        self._store.keep(ROOM, record.key, None, urgent=False)

    def restore(self, records: Mapping[str, bytes]) -> None:
        """What the store kept, by what stands behind the link in its key."""
        old, blocks = [], []
        for name, data in records.items():
            key = f"{self._link} {name}"
            if name.startswith("b"):
                blocks.append((int(name[1:]), _Record(key, list(_ids_in(data)))))
            else:
                position, *id = _OLD.unpack_from(data)
                old.append((position, _Record(key, [(data[_OLD.size :].decode(), *id)])))
        for _, record in (*sorted(old, key=_place), *sorted(blocks, key=_place)):
            self._records.append(record)
            self._ids.update(record.ids)
            self._count += len(record.ids)
        self._number = max((number for number, _ in blocks), default=0)

    def end(self) -> None:
        """The link is gone."""
        while self._records:
            self._drop(self._records.popleft())
        self._open = None
        self._all_unkept.difference_update(self._unkept)
        self._unkept.clear()


def _place(entry: tuple[int, _Record]) -> int:
    return entry[0]


def _ids_in(data: bytes) -> Iterator[Id]:
    """The ids of one record."""
    at = 0
    while at < len(data):
        origin, number, output, length = _ID.unpack_from(data, at)
        at += _ID.size + length
        yield data[at - length : at].decode(), origin, number, output


def by_link(records: Mapping[str, bytes]) -> Iterator[tuple[str, dict[str, bytes]]]:
    """The records of the store, by the link that they came over."""
    links: dict[str, dict[str, bytes]] = {}
    for key, record in records.items():
        link, _, name = key.rpartition(" ")
        try:
            known = list(_ids_in(record)) if name[:1] == "b" else [_OLD.unpack_from(record)]
        except (StructError, UnicodeDecodeError):
            known = []
        if not name.removeprefix("b").isdecimal() or not known:
            raise StoreError(f"the record {key!r} of ids of messages cannot be read. Remedy: restore a backup.")
        links.setdefault(link, {})[name] = record
    yield from links.items()
