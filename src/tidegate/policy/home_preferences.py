"""The sets of the owners of this domain, with their numbers, as they go to other nodes (`preference_sets`).

Invariants
- An owner whose preferences have no number, because it could not be kept, travels with one that no set has: nobody
  elsewhere receives the message.
- An owner is numbered under its id and, since messages from before there were ids have none, under its name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from tidegate.policy.preference_numbers import OwnerNumber, next_number
from tidegate.policy.preference_sets import NAMED, UNNUMBERED, PreferenceSet, owner_id, set_of, sign
from tidegate.policy.preferences import Preferences
from tidegate.policy.subject import Subject


class HomePreferences:
    """What all owners of this domain say, under one version of the rules.

    `id_of` finds the identity of whoever has a name now, `name_of` what an identity is called now.
    """

    def __init__(
        self,
        preferences: Preferences,
        *,
        id_of: Callable[[str], str] = lambda name: "",
        name_of: Callable[[str], str | None] = lambda id: None,
        beliefs: Mapping[str, Any] | None = None,
        places: Mapping[str, str] | None = None,
    ) -> None:
        self.preferences = preferences
        self._id_of = id_of
        self._name_of = name_of
        self._beliefs = beliefs or {}
        self._places = places or {}

    @cached_property
    def owners(self) -> dict[str, str]:
        """All who have preferences now, and their names."""
        owners: dict[str, str] = {}
        for each in self.preferences.preferences:
            owners[owner_id(each.user, "")] = each.user
            if id := self._id_of(each.user):
                owners[id] = each.user
            if each.owner is not None:
                owners[each.owner] = self._name_of(each.owner) or each.user
        return owners

    @cached_property
    def digests(self) -> dict[str, bytes]:
        """Of what they say."""
        return {owner: self.set(owner, name).digest for owner, name in self.owners.items()}

    def set(self, owner: str, name: str, number: int = 0) -> PreferenceSet:
        """That of an owner, not signed yet."""
        identity = "" if owner == owner_id(name, "") else owner
        return set_of(self.preferences, name, identity, number=number, beliefs=self._beliefs, places=self._places)

    def renumbered(self, known: Mapping[str, OwnerNumber], now: float) -> list[OwnerNumber]:
        """The numbers that change, of those that are known, at this time of the wall clock."""
        changed: list[OwnerNumber] = []
        for owner in dict.fromkeys((*known, *self.owners)):
            before = known.get(owner)
            name = self.owners.get(owner) or (before.name if before is not None else owner.removeprefix(NAMED))
            digest = self.digests.get(owner) or self.set(owner, name).digest
            if before is None or before.digest != digest:
                number = next_number(0 if before is None else before.number, now)
                changed.append(OwnerNumber(owner=owner, name=name, digest=digest, number=number))
        return changed


class TravellingPreferences:
    """What goes to other nodes: the number that a message carries, and the signed set behind it."""

    def __init__(
        self,
        home: HomePreferences,
        numbers: Mapping[str, OwnerNumber],
        *,
        signer: Callable[[bytes], bytes],
        certificate: bytes,
        before: TravellingPreferences | None = None,
    ) -> None:
        """`before`: what went to other nodes so far; what is still the same is not signed again."""
        self._home = home
        self._numbers = numbers
        self._signer = signer
        self._certificate = certificate
        self._signed: dict[str, PreferenceSet] = {}
        if before is not None and before._certificate == certificate:
            changed = set(self.changed(before))
            self._signed = {owner: each for owner, each in before._signed.items() if owner not in changed}

    def changed(self, before: TravellingPreferences) -> list[str]:
        """The owners whose sets are others than before: who has been told of them has to be told again."""
        old = before._numbers
        return [owner for owner, each in self._numbers.items() if owner not in old or old[owner].number != each.number]

    def of(self, subject: Subject) -> tuple[str, int] | None:
        """The owner of what somebody of this domain publishes, and the number; None: nobody owns it."""
        if subject.user is None:
            return None
        owner = owner_id(subject.user, subject.identity)
        numbered = self._numbers.get(owner)
        if numbered is not None:
            return owner, numbered.number
        preferences = self._home.preferences
        silent = not preferences.of(subject.user, preferences.domain, subject.identity)
        return owner, 0 if silent else UNNUMBERED

    def signed(self, owner: str) -> PreferenceSet | None:
        """The set of an owner; None: there is none. MalformedPacket if it is too large to travel."""
        numbered = self._numbers.get(owner)
        if numbered is None:
            return None
        found = self._signed.get(owner)
        if found is None:
            bare = self._home.set(owner, numbered.name, numbered.number)
            found = self._signed[owner] = sign(bare, self._signer, self._certificate)
        return found
