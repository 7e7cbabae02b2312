"""The topic keys of a node (KTM): made when they are needed, kept with what they protect, shared with other nodes.

- A publish waits for nobody. A key that is needed is made here, at once, and told to others after that (`exchange`); if
  whoever keeps keys for several nodes is away, the node goes on with its own.
- A key is noted in the store before the first message under it, and committed with that: no message that outlives a
  crash is under a key that does not. It is stored under the master key.
- Who loses a right gets no key any more, and what they could read is under another one from the next message on.

Who may have a key is decided in `release`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from heapq import nsmallest
from typing import TYPE_CHECKING, Any, Final

import structlog

from tidegate.bounded import Newest
from tidegate.config.keys import Keys
from tidegate.errors import KeysError
from tidegate.keys import Group, Ring, TopicKey, key_id, seal, unseal
from tidegate.keys.sealing import NONCE, TAG, decoded, parts
from tidegate.keyservice.exchange import KeyExchange
from tidegate.keyservice.master_keys import MasterKeys
from tidegate.session import Message, Session, Site

if TYPE_CHECKING:
    from tidegate.scope import Scope

ROOM: Final = "keys"  # in the store of the node
TIDY: Final = 60.0  # seconds between looks for rows of keys that have ended
LATE: Final = 10.0  # seconds that what a publisher has sealed itself may be on its way
ELSEWHERE: Final = 65_536  # keys that only the key service has, whose groups are remembered
MANY: Final = 1000  # names of those who were given a key, before it counts as given to everybody

Ask = Callable[["Scope", Session, Message], int]

log = structlog.get_logger("tidegate.keys")


class TopicKeys:
    """All keys of one node (scope.Keyring)."""

    def __init__(
        self, site: Site, settings: Keys, master_keys: MasterKeys | None, exchange: KeyExchange | None
    ) -> None:
        self.site = site
        self.master_keys = master_keys
        self.exchange = exchange
        self.ask: Ask = lambda scope, session, message: 0  # whoever answers requests takes its place
        self.made = 0
        self.ring = Ring(
            entropy=os.urandom,
            rotate=settings.rotate,
            overlap=settings.overlap,
            uses=settings.uses,
            groups=settings.groups,
        )
        self._elsewhere: Newest[str, tuple[Group, float]] = Newest(ELSEWHERE)
        self._stored: set[str] = set()
        self._closed: dict[str, bytes] = {}  # rows of the store under a master key that is not known
        self._given: dict[str, set[str] | None] = {}  # who has a key that seals; None: more than are remembered

    # -- for the gate (scope.Keyring) ------------------------------------------------------------------------------

    def sealed(self, group: Group, payload: bytes, topic: str) -> bytes:
        return seal(self.current(group), payload, topic=topic, nonce=os.urandom(NONCE))

    def opened(self, message: bytes, topic: str) -> bytes | None:
        id = key_id(message)
        key = None if id is None else self.ring.find(id, self.site.wall)
        try:
            return None if key is None else unseal(key.secret, message, topic=topic)
        except KeysError:
            return None

    def holds(self, id: str, group: Group) -> bool:
        wall = self.site.wall
        key = self.ring.find(id, wall)
        if key is not None:
            return key.group.id == group.id and self.ring.seals(id, wall, late=LATE)
        of, until = self._elsewhere.get(id, (None, 0.0))
        return of is not None and of.id == group.id and self.site.now < until

    def genuine(self, message: bytes, topic: str) -> bool:
        id, text = parts(message)
        if self.ring.find(id, self.site.wall) is not None:
            return self.opened(message, topic) is not None
        data = decoded(text)  # only the key service could open it
        return data is not None and len(data) >= NONCE + TAG

    def current(self, group: Group) -> TopicKey:
        """The key that seals the next message of a group."""
        wall = self.site.wall
        key = self.ring.held(group, wall)
        if key is None:
            key = self.ring.current(group, wall)
            self.made += 1
            self._keep(key)
            if self.exchange is not None:
                self.exchange.put(key)
        return key

    def elsewhere(self, id: str, group: Group, seconds: float) -> None:
        """A key that only the key service has is of this group, and seals for so long."""
        self._elsewhere[id] = (group, self.site.now + seconds + LATE)

    def given(self, id: str, *who: str) -> None:
        """Somebody has a key now, by these names."""
        if self.ring.lasts(id, self.site.wall) <= 0:
            return  # it is for nothing new
        names = self._given.setdefault(id, set())
        if names is not None:
            names.update(who)
            if len(names) > MANY:
                self._given[id] = None

    def had_by(self, who: Collection[str]) -> set[str] | None:
        """The groups whose present key one of these was given; None if other nodes may have given them any."""
        if self.exchange is not None:
            return None
        wall = self.site.wall
        found = {id for id, names in self._given.items() if names is None or not names.isdisjoint(who)}
        keys = [self.ring.find(id, wall) for id in found if self.ring.lasts(id, wall) > 0]
        return {key.group.id for key in keys if key is not None}

    # -- changing --------------------------------------------------------------------------------------------------

    def change(self, settings: Keys) -> None:
        self.ring.change(rotate=settings.rotate, overlap=settings.overlap, uses=settings.uses)

    def rotate(self, groups: Collection[str] | None = None) -> int:
        """Other keys from the next message on, for some groups or for all."""
        for id, (group, _) in list(self._elsewhere.items()):
            if groups is None or group.id in groups:
                del self._elsewhere[id]
        return self.ring.rotate_now(groups)

    def revoke(self, id: str) -> bool:
        """A key is never handed out again, and its group has another one; False if it is not known here."""
        key = self.ring.find(id, self.site.wall)
        if key is None:
            return False
        self.ring.revoke(id, self.site.wall)
        self._drop((id,))
        self.ring.rotate_now((key.group.id,))
        if self.exchange is not None:
            self.exchange.revoke((id,))
        return True

    def revoke_elsewhere(self, id: str) -> None:
        """The same for one that only the key service has."""
        assert self.exchange is not None
        self._elsewhere.pop(id, None)
        self.exchange.revoke((id,))

    def groups(self) -> list[Group]:
        """Those that have keys, here or with the key service."""
        return [*self.ring.groups(), *(group for group, _ in self._elsewhere.values())]

    # -- others ----------------------------------------------------------------------------------------------------

    def took(self, keys: Sequence[TopicKey], revoked: Collection[str]) -> None:
        self.site.open()
        wall = self.site.wall
        for id in revoked:
            self._elsewhere.pop(id, None)
            if self.ring.revoke(id, wall):
                self._drop((id,))
        for key in keys:
            if self.ring.find(key.id, wall) is None and self.ring.adopt(key, wall):
                self._keep(key)

    # -- the store -------------------------------------------------------------------------------------------------

    def _keep(self, key: TopicKey) -> None:
        if self.master_keys is None:
            return
        self.site.store.keep(ROOM, key.id, self.master_keys.seal_key(key))
        self._stored.add(key.id)

    def _drop(self, ids: Collection[str]) -> None:
        for id in ids:
            if id in self._stored:
                self._stored.discard(id)
                self.site.store.keep(ROOM, id, None)

    def restore(self, rows: Mapping[str, bytes]) -> None:
        """What the store kept; before anything is sealed."""
        for id, blob in rows.items():
            assert self.master_keys is not None
            try:
                key = self.master_keys.open_key(id, blob)
            except KeysError:
                self._closed[id] = blob  # it stays where it is, for whoever finds its master key again
            else:
                self._stored.add(id)
                self.ring.adopt(key, self.site.wall)
        if self._closed:
            remedy = "name the master key that they were stored under in `master_key`, behind the first one"
            log.error(
                "stored topic keys cannot be opened; what they protect cannot be read",
                count=len(self._closed),
                remedy=remedy,
            )
        self.tidy()

    def reopen(self) -> None:
        """Other master keys are known: what could not be opened is tried again."""
        closed, self._closed = self._closed, {}
        if closed:
            self.restore(closed)

    def stored(self) -> list[str]:
        return list(self._stored)

    def renew(self, ids: Collection[str]) -> None:
        """Another master key seals: these are stored again under it."""
        for id in ids:
            key = self.ring.find(id, self.site.wall)
            if key is not None and id in self._stored:
                self._keep(key)

    def tidy(self) -> None:
        """Lets go of what is stored of keys that have ended."""
        self.site.open()
        alive = {key.id for key, _ in self.ring.listed(self.site.wall)}
        self._given = {id: names for id, names in self._given.items() if self.ring.lasts(id, self.site.wall) > 0}
        self._drop([id for id in self._stored if id not in alive])

    # -- looking ---------------------------------------------------------------------------------------------------

    def listed(self, after: str | None = None, limit: int | None = None) -> list[dict[str, Any]]:
        """For `tidegate key list`; no secrets. With a limit the first so many behind `after`, by their ids."""
        found = self.ring.listed(self.site.wall)
        if limit is not None:
            behind = (each for each in found if after is None or each[0].id > after)
            found = nsmallest(limit, behind, key=lambda each: each[0].id)
        return [self._described(key, used) for key, used in found]

    def told(self, id: str) -> dict[str, Any] | None:
        key = self.ring.find(id, self.site.wall)
        return None if key is None else self._described(key, self.ring.used(id))

    def _described(self, key: TopicKey, used: int) -> dict[str, Any]:
        return {
            "id": key.id,
            "group": key.group.id,
            "filter": key.group.filter,
            "owner": key.group.owner,
            "demand": key.group.demand,
            "topic": key.group.topic,
            "made": key.made,
            "valid_until": key.valid_until,
            "readable_until": key.readable_until,
            "used": used,
            "seals": self.ring.lasts(key.id, self.site.wall) > 0,
        }

    def state(self) -> dict[str, Any]:
        return {
            "keys": len(self.ring),
            "groups": len(self.ring.groups()),
            "made": self.made,
            "forgotten": self.ring.forgotten,
            "trouble": None if self.exchange is None else self.exchange.trouble,
        }
