"""Preferences that travel: all of one owner as one set, signed by a node of the owner's home domain.

The set goes ahead of the owner's first message; messages then carry the owner's id and the number of the set. Of
several sets of one owner the one with the highest number counts, for every message of the owner, however old.

A set is CBOR, canonical, so that one content is one text:

    [1, {domain, owner, name, number, preferences, beliefs}, signer, signature]

`signature` is over "tidegate-preferences-1", a NUL, and the map. `preferences` are as `Preferences.encode` writes them,
with whatever a newer node writes beside that; `beliefs` says who elsewhere is somebody of the home domain
(`trust.domains`). `signer` is a certificate in DER, or the id of a key.

Invariants
- What is not understood here is passed on as it came, and counts as false (`preferences`).
- A set is taken whole or not at all; nothing in it counts before its signature was verified by whoever hands it over.
- An owner whose set had to make room is unknown, and never counts as an owner without preferences.

It signs and verifies nothing itself, and does not know who speaks for a domain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from hashlib import sha256
from types import MappingProxyType
from typing import Any, Final

from tidegate.errors import MalformedPacket
from tidegate.policy.levels import DEFAULT_RANKING
from tidegate.policy.preferences import Applicable, Conditions, Preferences, check_travelling
from tidegate.policy.subject import Subject
from tidegate.predicate import Function, Ranking
from tidegate.wire import cbor

VERSION: Final = 1
MAX: Final = 64 * 1024
"""Bytes of a set, whose conditions are compiled in one go. An owner who has more is unknown elsewhere."""
MAX_NAME: Final = 65_535
"""Bytes of a domain, an owner's id or name."""
MAX_SIGNER: Final = 16 * 1024
MAX_SIGNATURE: Final = 1024
UNNUMBERED: Final = 2**53 - 1
"""The number of an owner whose set has none: no set can have it, and all are lower."""
NAMED: Final = "user:"
"""Before the name of an owner who has no id."""
SETS: Final = 10_000
"""Sets that one neighbour may bring."""
SIZE: Final = 32 * 1024 * 1024
"""Their bytes together."""
EVICTED: Final = 100_000
"""Owners whose set had to make room, and is remembered by its number."""
_DEPTH: Final = 16
_PURPOSE: Final = b"tidegate-preferences-1\0"
_FIELDS: Final = frozenset(("domain", "owner", "name", "number", "preferences", "beliefs"))
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})

Key = tuple[str, str]
"""A home domain, and the id of an owner there."""
Verify = Callable[[bytes, bytes, bytes], str | None]
"""Of a signer, what it signed and its signature: the domain that it speaks for; None if it has not signed this."""


def owner_id(user: str, identity: str) -> str:
    """What an owner is called in sets and messages: by its identity; who has none by its name."""
    return identity or f"{NAMED}{user}"


def owner_key(subject: Subject) -> Key | None:
    """Whose messages a subject's are; None: nobody's."""
    return None if subject.user is None else (subject.domain, owner_id(subject.user, subject.identity))


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferenceSet:
    """All preferences of one owner. Equal ones have the same content and were signed by the same."""

    domain: str
    owner: str
    name: str
    number: int
    preferences: tuple[Mapping[str, Any], ...] = ()
    """As they travel."""
    beliefs: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
    """What the home believes of other domains, by their names."""
    signer: bytes = b""
    signature: bytes = b""

    @property
    def key(self) -> Key:
        return self.domain, self.owner

    @property
    def identity(self) -> str:
        """Of the owner; empty: it has only a name."""
        return "" if self.owner.startswith(NAMED) else self.owner

    @property
    def content(self) -> dict[str, Any]:
        return {
            "domain": self.domain,
            "owner": self.owner,
            "name": self.name,
            "number": self.number,
            "preferences": [dict(each) for each in self.preferences],
            "beliefs": dict(self.beliefs),
        }

    @property
    def signed(self) -> bytes:
        """What the signature is over."""
        return _PURPOSE + cbor.canonical(self.content)

    @property
    def digest(self) -> bytes:
        """Of what the set says, whatever its number and whoever signed it."""
        return sha256(cbor.canonical({**self.content, "number": 0})).digest()

    def encode(self) -> bytes:
        return cbor.canonical([VERSION, self.content, self.signer, self.signature])

    def understood(
        self,
        functions: Mapping[str, Function] | None = None,
        ranking: Ranking = DEFAULT_RANKING,
        named: Callable[[str], str] = str,
        conditions: Conditions | None = None,
    ) -> Preferences:
        """The preferences as this node understands them. `named`: what it calls a scope that some are about.
        `conditions` as in `Preferences.decode`. MalformedPacket if what the home believes cannot be read here.
        """
        entries = [{**each, "to": named(each["to"])} if "to" in each else each for each in self.preferences]
        data = {"domain": self.domain, "preferences": entries, "domains": dict(self.beliefs)}
        return Preferences.decode(data, functions=functions, ranking=ranking, conditions=conditions)


@dataclass(frozen=True, slots=True)
class OwnerSet:
    """A set as this node understands it."""

    set: PreferenceSet
    preferences: Preferences

    def receiving(self, topic: str, now: float) -> Applicable:
        """What the owner says of subscribers that receive a message; `topic` is the original one."""
        return self.preferences.receiving(self.set.name, self.set.domain, topic, self.set.identity, now)

    def forwarding(self, topic: str, to: str, now: float) -> Applicable:
        """The same of forwarding it to the scope `to`."""
        return self.preferences.forwarding(self.set.name, self.set.domain, topic, to, self.set.identity, now)


def set_of(
    preferences: Preferences,
    user: str,
    identity: str,
    *,
    number: int = 0,
    beliefs: Mapping[str, Any] = _NOTHING,
    places: Mapping[str, str] = MappingProxyType({}),
) -> PreferenceSet:
    """The set of an owner at home, not signed yet.

    `places`: scopes by their name here, as `name@node id`. A scope without one is meant wherever it has this name.
    """
    own = Preferences(preferences.of(user, preferences.domain, identity), domain=preferences.domain)
    entries = own.encode()["preferences"]
    for entry in entries:
        if "to" in entry:
            entry["to"] = places.get(entry["to"], entry["to"])
    return PreferenceSet(
        domain=preferences.domain,
        owner=owner_id(user, identity),
        name=user,
        number=number,
        preferences=tuple(entries),
        beliefs=beliefs,
    )


def sign(set: PreferenceSet, signer: Callable[[bytes], bytes], certificate: bytes) -> PreferenceSet:
    """The same with the signature of the holder of a certificate. MalformedPacket if the set is too large to travel."""
    set = replace(set, signer=certificate)
    set = replace(set, signature=signer(set.signed))
    read(set.encode())  # what others would refuse is not sent
    return set


def read(data: bytes) -> PreferenceSet:
    """From bytes of another node: MalformedPacket if they are no set. The signature is still to be verified."""
    if len(data) > MAX:
        raise MalformedPacket(f"a set of preferences of {len(data)} bytes: up to {MAX} are taken")
    match cbor.plain_canonical(data, _DEPTH):
        case [int(version), dict(content), bytes(signer), bytes(signature)] if (
            version == VERSION and type(version) is int
        ):
            pass
        case _:
            raise MalformedPacket("it is no set of preferences, or of another version")
    if content.keys() != _FIELDS:
        raise MalformedPacket("a set of preferences without some of its fields, or with others")
    if len(signer) > MAX_SIGNER or len(signature) > MAX_SIGNATURE:
        raise MalformedPacket("the signature of a set of preferences is too long")
    match content:
        case {
            "domain": str(domain),
            "owner": str(owner),
            "name": str(name),
            "number": int(number),
            "preferences": list(preferences),
            "beliefs": dict(beliefs),
        } if type(number) is int:
            pass
        case _:
            raise MalformedPacket("a set of preferences with a field of another kind")
    if not 0 <= number < UNNUMBERED:
        raise MalformedPacket("the number of a set of preferences is out of bounds")
    if not all(0 < len(text.encode()) <= MAX_NAME for text in (domain, owner, name)):
        raise MalformedPacket("a name in a set of preferences is empty or too long")
    if not _named(content):
        raise MalformedPacket("a set of preferences holds a map whose keys are no texts")
    check_travelling(preferences)
    found = PreferenceSet(
        domain=domain,
        owner=owner,
        name=name,
        number=number,
        preferences=tuple(preferences),
        beliefs=beliefs,
        signer=signer,
        signature=signature,
    )
    if owner.startswith(NAMED) and owner != owner_id(name, ""):
        raise MalformedPacket("a set of preferences gives its owner two names")
    for entry in preferences:
        of_name = entry["user"] == name and (not found.identity or "owner" not in entry)
        if not of_name and entry.get("owner") != found.identity:
            raise MalformedPacket("a set of preferences holds one of somebody else")
    return found


def _named(value: object) -> bool:
    """Whether all keys of maps are texts."""
    match value:
        case dict():
            return all(isinstance(key, str) and _named(item) for key, item in value.items())
        case list():
            return all(map(_named, value))
        case _:
            return True


def verified(set: PreferenceSet, verify: Verify) -> bool:
    """Whether it was signed by somebody who speaks for its domain."""
    return verify(set.signer, set.signed, set.signature) == set.domain


class Offer(Enum):
    """What becomes of a set that a neighbour brings."""

    TAKEN = "it counts from now on"
    HELD = "it is known here"
    OLDER = "a newer one is known here"
    CONTRADICTING = "another one with the same number is known here"
    OURS = "it is of the domain of this node"
    UNVERIFIED = "nobody who speaks for its domain has signed it"

    @property
    def good(self) -> bool:
        """Whether the neighbour may rely on this set or a newer one being known here."""
        return self in (Offer.TAKEN, Offer.HELD, Offer.OLDER)


@dataclass(slots=True, eq=False)
class _Held:
    set: PreferenceSet
    size: int
    digest: bytes
    neighbours: dict[str, None]  # those that have brought it


@dataclass(slots=True, eq=False)
class _Share:
    """What one neighbour has brought."""

    keys: dict[Key, int] = field(default_factory=dict)  # and the size, the oldest first
    size: int = 0


class ForeignPreferences:
    """The sets of owners of other domains that are known here, each verified. Each neighbour has a share of its own."""

    def __init__(self, *, sets: int = SETS, size: int = SIZE, evicted: int = EVICTED) -> None:
        self._bounds = sets, size
        self._most_evicted = evicted
        self._held: dict[Key, _Held] = {}
        self._shares: dict[str, _Share] = {}
        self._evicted: dict[Key, tuple[int, bytes]] = {}  # number and digest
        self.forgetful = False
        """Some of these had to go: nobody can be said to have no preferences any more."""
        self.forgotten: list[Key] = []
        """Which ones, for whoever stores them."""

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[PreferenceSet]:
        return iter([held.set for held in self._held.values()])

    def offer(self, set: PreferenceSet, neighbour: str, ours: frozenset[str]) -> tuple[Offer, list[Key]]:
        """A verified set that a neighbour brings, and the owners whose sets had to make room for it.

        `ours`: what the domain of this node is called, and was.
        """
        if set.domain in ours:
            return Offer.OURS, []
        digest, held = set.digest, self._held.get(set.key)
        number, said = (held.set.number, held.digest) if held is not None else self._evicted.get(set.key, (-1, digest))
        if set.number < number:
            return Offer.OLDER, []
        if set.number == number and digest != said:
            return Offer.CONTRADICTING, []
        if held is not None and set.number == number:
            held.neighbours[neighbour] = None
            return Offer.HELD, self._charge(set.key, held.size, neighbour)
        self._evicted.pop(set.key, None)
        if held is not None:
            for each in held.neighbours:
                self._discharge(set.key, each)
        size = len(set.encode())
        self._held[set.key] = _Held(set, size, digest, {neighbour: None})
        return Offer.TAKEN, self._charge(set.key, size, neighbour)

    def _charge(self, key: Key, size: int, neighbour: str) -> list[Key]:
        """Counts a set among those of a neighbour, as its newest; the owners whose sets have to go."""
        self._discharge(key, neighbour)
        share = self._shares.setdefault(neighbour, _Share())
        share.keys[key] = size
        share.size += size
        most, bytes = self._bounds
        gone: list[Key] = []
        while len(share.keys) > 1 and (len(share.keys) > most or share.size > bytes):
            oldest = next(iter(share.keys))
            self._discharge(oldest, neighbour)
            held = self._held[oldest]
            del held.neighbours[neighbour]
            if not held.neighbours:
                self._forget_set(oldest)
                gone.append(oldest)
        return gone

    def _discharge(self, key: Key, neighbour: str) -> None:
        share = self._shares.get(neighbour)
        if share is not None and key in share.keys:
            share.size -= share.keys.pop(key)

    def _forget_set(self, key: Key) -> None:
        held = self._held.pop(key)
        self.remember(key, held.set.number, held.digest)

    def evict(self, key: Key) -> bool:
        """A set does not count any more: its owner is unknown. False if there is none."""
        held = self._held.get(key)
        if held is None:
            return False
        for neighbour in held.neighbours:
            self._discharge(key, neighbour)
        self._forget_set(key)
        return True

    def remember(self, key: Key, number: int, digest: bytes) -> None:
        """An owner's set had to make room."""
        while len(self._evicted) >= self._most_evicted:
            oldest = next(iter(self._evicted))
            del self._evicted[oldest]
            self.forgotten.append(oldest)
            self.forgetful = True
        self._evicted[key] = number, digest

    def forget(self, neighbour: str) -> list[Key]:
        """A neighbour is none any more: the owners whose sets nobody else has brought, which are unknown now."""
        share = self._shares.pop(neighbour, None)
        gone: list[Key] = []
        for key in () if share is None else share.keys:
            held = self._held[key]
            del held.neighbours[neighbour]
            if not held.neighbours:
                self._forget_set(key)
                gone.append(key)
        return gone

    def evicted(self, key: Key) -> tuple[int, bytes] | None:
        """The number and the digest of a set that had to make room."""
        return self._evicted.get(key)

    def get(self, key: Key) -> PreferenceSet | None:
        held = self._held.get(key)
        return None if held is None else held.set

    def neighbours(self, key: Key) -> tuple[str, ...]:
        """Those that have brought the set that counts."""
        held = self._held.get(key)
        return () if held is None else tuple(held.neighbours)

    def find(self, key: Key, number: int) -> PreferenceSet | None:
        """The set that counts for a message which travelled with this number; None: it is not known here.

        An owner who never had any preference travels with the number 0, and needs no set.
        """
        held = self._held.get(key)
        if held is not None:
            return held.set if held.set.number >= number else None
        if number or self.forgetful or key in self._evicted:
            return None
        return PreferenceSet(domain=key[0], owner=key[1], name=key[1].removeprefix(NAMED), number=0)
