"""The preferences of owners of other domains, as their sets come in: taken, kept, and counted with from then on.

- Nothing counts that was not verified: when it comes, when it is loaded from the store, and again when other nodes are
  trusted (`review`).
- A newer set counts for the very next message, live, queued and retained. What nobody has asked for yet changes nothing
  that was decided.
- Scopes are called as this node calls them: one of this node by its name here, one behind a link by that of the link.
- What is taken is in the store before its sender is told so, if whoever tells waits for `store.after`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

import orjson

from tidegate.bounded import Bounded
from tidegate.errors import MalformedPacket, StoreError
from tidegate.gate import Lane
from tidegate.policy.preference_sets import (
    UNNUMBERED,
    ForeignPreferences,
    Key,
    Offer,
    OwnerSet,
    PreferenceSet,
    Verify,
    read,
    verified,
)
from tidegate.predicate import Predicate
from tidegate.session import Session, Site
from tidegate.session.packet_costs import CONDITION, SIGNATURE
from tidegate.wire import cbor

if TYPE_CHECKING:
    from tidegate.gate import RuleSet
    from tidegate.scope.scope import Scope

ROOM: Final = "preferences"  # in the store
VERSION: Final = 1
FORGETFUL: Final = ""
"""The key of the record which says that some owners had to be forgotten."""
CONDITIONS: Final = 10_000  # compiled ones that are kept for the next set
ASKED: Final = 100_000  # owners of whom it is remembered that they were asked for


class ForeignOwners:
    """The sets of owners of other domains that this node knows (gate.stages.read_preferences.ForeignOwners)."""

    def __init__(self, site: Site, scopes: Mapping[str, Scope], *, sets: ForeignPreferences | None = None) -> None:
        self.site = site
        self._scopes = scopes
        self._sets = ForeignPreferences() if sets is None else sets
        self._understood: dict[Key, OwnerSet] = {}
        self._conditions: Bounded[str, Predicate | str] = Bounded(CONDITIONS)
        self._rules: RuleSet | None = None  # those by which they are understood
        self._far: dict[str, str] = {}  # scopes behind links: the ids of their nodes
        self._asked: set[Key] = set()  # since the last revision
        self._revision = 0
        self._present: set[Session] = set()  # of people of other domains who are here; looked through when it doubles
        self._most_present = 100

    def __len__(self) -> int:
        return len(self._sets)

    # -- for the gate (gate.stages.read_preferences.ForeignOwners) -----------------------------------------------

    @property
    def revision(self) -> int:
        return self._revision

    def of(self, owner: Key, number: int) -> OwnerSet | None:
        if len(self._asked) >= ASKED:
            self._renew()
        self._asked.add(owner)
        rules = next(iter(self._scopes.values())).rules
        if rules is not self._rules:
            self._adopt(rules)
        found = self._sets.find(owner, number)
        if found is None:
            return None
        known = self._understood.get(owner)
        if known is None or known.set is not found:
            texts = {each.get("when", "") for each in found.preferences}
            self.site.effort += CONDITION * sum(len(text) for text in texts if text not in self._conditions)
            try:
                preferences = found.understood(rules.functions, rules.levels.ranking, self._named, self._conditions)
            except MalformedPacket:
                return None  # nobody here knows who is whom at its home
            known = OwnerSet(found, preferences)
            if len(found.preferences):
                self._understood[owner] = known
        return known

    def _adopt(self, rules: RuleSet) -> None:
        """Other rules are in force, which may understand conditions otherwise."""
        old, self._rules = self._rules, rules
        if old is None or rules.functions or old.functions or rules.levels.order != old.levels.order:
            self._understood.clear()
            self._conditions.clear()

    def _named(self, place: str) -> str:
        """What this node calls a scope that others write as `name@node id`."""
        name, _, node = place.rpartition("@")
        return name if name and node in (self.site.origin.node, self._far.get(name)) else place

    def get(self, owner: Key) -> PreferenceSet | None:
        """The set of an owner as it came, signed."""
        return self._sets.get(owner)

    # -- taking ----------------------------------------------------------------------------------------------------

    def take(self, set: PreferenceSet, neighbour: str, verify: Verify) -> Offer:
        """A set that a neighbour brings: what becomes of it."""
        self.site.effort += SIGNATURE
        if not verified(set, verify):
            return Offer.UNVERIFIED
        before = self._sets.neighbours(set.key)
        offer, gone = self._sets.offer(set, neighbour, self._ours())
        if offer is Offer.TAKEN or (offer is Offer.HELD and neighbour not in before):
            self._keep(set.key)
        self._let_go(gone, [set.key] if offer is Offer.TAKEN else [])
        return offer

    def forget(self, neighbour: str) -> None:
        """A neighbour is none any more: what it alone has brought is unknown."""
        self._let_go(self._sets.forget(neighbour))

    def review(self, verify: Verify) -> None:
        """Others may speak for domains now: what they have not signed is unknown."""
        self._let_go([set.key for set in self._sets if not verified(set, verify) and self._sets.evict(set.key)])

    def found(self, scope: str, node: str) -> None:
        """The scope at the far end of a link is one of this node, by its id."""
        if self._far.get(scope) != node:
            self._far[scope] = node
            self._understood.clear()
            self._renew()

    def _ours(self) -> frozenset[str]:
        """What nobody else may say anything of. Other nodes of this domain are listed with it."""
        rules = next(iter(self._scopes.values())).rules
        known = rules.domains.get(rules.domain)
        return frozenset() if known is not None and known.nodes else rules.formerly | {rules.domain}

    def _let_go(self, gone: Iterable[Key], others: Iterable[Key] = ()) -> None:
        """These owners are unknown now, and others have another set: what was decided by it does not hold."""
        gone = list(gone)
        for key in gone:
            self._keep(key)
        self._keep_forgotten()
        for key in (*gone, *others):
            self._understood.pop(key, None)
        if not self._asked.isdisjoint((*gone, *others)):
            self._renew()

    def came(self, session: Session) -> None:
        """Somebody of another domain has connected here: their sets decide what they publish, too."""
        self._present.add(session)
        if len(self._present) > self._most_present:
            self._present = {each for each in self._present if self._is_here(each)}
            self._most_present = 2 * len(self._present) + 100

    def _is_here(self, session: Session) -> bool:
        scope = self._scopes.get(session.home)
        return scope is not None and scope.sessions.get((session.principal, session.client)) is session

    def _renew(self) -> None:
        self._asked.clear()
        self._revision += 1
        lanes: dict[str, set[Lane]] = {}
        for session in list(self._present):
            connection, scope = session.connection, self._scopes.get(session.home)
            if connection is not None and scope is not None:
                gate, lane = scope.entrance.gate, connection.reader.lane
                if isinstance(lane, Lane) and lane.version == gate.version:
                    lanes.setdefault(scope.entrance.name, set()).add(lane)
                connection.reader.lane = gate.nowhere
        for name, scope in self._scopes.items():
            if name in lanes:
                scope.gate.cache.abandon(lanes[name])
                self.site.unfinished.append(scope.gate.cache.tidy)
            scope.gate.cache.renew()
            scope.sweep()

    # -- in the store ----------------------------------------------------------------------------------------------

    def _keep(self, key: Key) -> None:
        held, evicted = self._sets.get(key), self._sets.evicted(key)
        value = None
        if held is not None:
            value = cbor.canonical([VERSION, list(self._sets.neighbours(key)), held.encode()])
        elif evicted is not None:
            value = cbor.canonical([VERSION, *key, *evicted])
        self.site.store.keep(ROOM, orjson.dumps(key).decode(), value)

    def _keep_forgotten(self) -> None:
        if self._sets.forgotten:
            self.site.store.keep(ROOM, FORGETFUL, cbor.canonical([VERSION]))
            for key in self._sets.forgotten:
                self._keep(key)
            self._sets.forgotten.clear()

    def restore(self, records: Mapping[str, bytes], verify: Verify) -> list[Key]:
        """What the store kept, before anything is decided. The owners whose sets nobody vouches for any more, who are
        unknown now.
        """
        dropped: list[Key] = []
        for name, data in records.items():
            match _record(name, data):
                case ():
                    self._sets.forgetful = True
                case (str(domain), str(owner), int(number), bytes(digest)):
                    self._sets.remember((domain, owner), number, digest)
                case (PreferenceSet() as set, list(neighbours)):
                    for neighbour in neighbours:
                        self._let_go(self._sets.offer(set, neighbour, self._ours())[1])
                    if self._sets.get(set.key) is not None and not verified(set, verify):
                        self._sets.evict(set.key)
                        self._keep(set.key)
                        dropped.append(set.key)
        return dropped


def _record(name: str, data: bytes) -> tuple[object, ...]:
    """One record of the store: a set with those who brought it, or an owner whose set had to make room; nothing: some
    of these had to go.
    """
    try:
        match cbor.plain(data):
            case [int(version)] if version == VERSION and name == FORGETFUL:
                return ()
            case [int(version), [*neighbours], bytes(encoded)] if version == VERSION:
                return read(encoded), neighbours
            case [int(version), str(domain), str(owner), int(number), bytes(digest)] if (
                version == VERSION and 0 <= number < UNNUMBERED
            ):
                return domain, owner, number, digest
    except MalformedPacket as error:
        raise StoreError(f"the preferences of {name} cannot be read: {error}. Remedy: restore a backup.") from error
    raise StoreError(f"preferences of {name} in a form that this version does not know: run the newer Tidegate")
