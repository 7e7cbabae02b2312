"""Preferences that follow the messages of their owner over a link, and their changes, which reach every copy there.

They go as a signed set: before the first message of that owner on a connection, and when they change. They are control
packets, so nothing overtakes them, and a new connection begins anew: with all owners whose messages the other node has
been given, who may have changed theirs while there was no connection. The store knows them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

import orjson

from tidegate.errors import MalformedPacket, ProtocolError
from tidegate.policy.home_preferences import TravellingPreferences
from tidegate.policy.preference_sets import UNNUMBERED, Key, Offer, PreferenceSet, Verify, owner_id, read
from tidegate.session import Context

if TYPE_CHECKING:
    from tidegate.scope.foreign_preferences import ForeignOwners
    from tidegate.scope.node_links import LinkEnd, NodeLinks

TOPIC: Final = "$tidegate/link/preferences"
TOLD: Final = 100_000  # owners of whom it is known that the other node has messages
ROOM: Final = "told"
"""In the store: link, domain and owner as JSON."""
PIECE: Final = 200  # owners looked at in one go


class OwnerSets:
    """The preferences that go to other nodes, and those that come from there."""

    def __init__(self, foreign: ForeignOwners) -> None:
        self.foreign = foreign
        self.travelling: TravellingPreferences | None = None
        """Of the owners of this domain; None: this node has no identity to sign them with."""
        self.verify: Verify = lambda signer, signed, signature: None
        """For which domain a signer speaks."""

    def number(self, context: Context, here: str) -> tuple[Key, int] | None:
        """The owner of a message and the number of the set that it travels with; None: nobody owns it."""
        subject = context.subject
        if subject.user is None:
            return None
        if context.foreign is not None:
            return (subject.domain, context.foreign[0]), context.foreign[1]
        numbered = None if self.travelling is None or subject.domain != here else self.travelling.of(subject)
        if numbered is None:  # nobody can say what its owner wants: nobody elsewhere receives it
            return (subject.domain, owner_id(subject.user, subject.identity)), UNNUMBERED
        return (subject.domain, numbered[0]), numbered[1]

    def set(self, key: Key, here: str) -> PreferenceSet | None:
        """The newest set of an owner that this node has, signed."""
        if key[0] == here and self.travelling is not None and (own := self.travelling.signed(key[1])) is not None:
            return own
        return self.foreign.get(key)


class PreferenceChanges:
    """Which owners' preferences the other end of a link has been told, and is told when they change."""

    def __init__(self, end: LinkEnd, links: NodeLinks) -> None:
        self.end = end
        self.links = links
        self._told: dict[Key, int] = {}  # on this connection
        self._given: dict[Key, None] = {}  # owners of whom the other node may have messages

    def opened(self) -> None:
        """There is a new connection."""
        self._told.clear()

    def tell_owner(self, key: Key, number: int) -> None:
        """A message of that owner is about to leave with this number."""
        if number == UNNUMBERED or self.end.session.connection is None:
            return
        if key not in self._given:
            if len(self._given) >= TOLD:
                self._forget(next(iter(self._given)))
            self._given[key] = None
            self.end.site.store.keep(ROOM, self._name(key), b"", urgent=False)
        if self._told.get(key, -1) < number:  # also without a number: newer ones than it left with may be known
            self.renumbered(key)

    def renumbered(self, key: Key) -> None:
        """An owner's preferences may have changed: whoever has been given messages of that owner is told."""
        if key not in self._given or self.end.session.connection is None:
            return
        try:
            found = self.links.owners.set(key, self.end.scope.gate.rules.domain)
        except MalformedPacket:  # too large to travel: unknown there, so nobody receives the next message
            return
        if found is not None and self._told.get(key, -1) < found.number:
            self._told[key] = found.number
            self.end.control.send(TOPIC, found.encode())

    def tell_again(self) -> None:
        """There is a new connection, or owners may have said something new: all of them are looked at."""
        if self._given and self.end.session.connection is not None:
            self.end.site.unfinished.append(self._told_again().__next__)

    def _told_again(self) -> Iterator[bool]:
        for number, key in enumerate(tuple(self._given), 1):
            self.renumbered(key)
            if number % PIECE == 0:
                yield True
        yield False

    def restore(self, owners: Iterable[Key]) -> None:
        """What the store kept."""
        self._given |= dict.fromkeys(owners)

    def ended(self) -> None:
        """The link is gone."""
        for key in tuple(self._given):
            self._forget(key)

    def _forget(self, key: Key) -> None:
        del self._given[key]
        self._told.pop(key, None)
        self.end.site.store.keep(ROOM, self._name(key), None)

    def _name(self, key: Key) -> str:
        return orjson.dumps((self.end.link.name, *key)).decode()

    def take(self, data: bytes) -> None:
        """The other node tells a set of preferences."""
        try:
            offered = read(data)
        except MalformedPacket as error:
            raise ProtocolError(f"a set of preferences that cannot be read: {error}") from error
        owners = self.links.owners
        offer = owners.foreign.take(offered, self.end.link.name, owners.verify)
        if not offer.good:
            self.end.refused(f"preferences of {offered.name[:100]}@{offered.domain[:100]}: {offer.value}")
        elif offer is Offer.TAKEN:
            self.links.renumbered(offered.key, self.end)
