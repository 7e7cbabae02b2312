"""The rules of all publishers: taken, kept, and counted with as long as they may (semantics, *Publisher rules*).

- RuleSet that lie outside what the administrator lets publishers say stay stored, and count for nothing while they do.
- A change makes anew what it concerns and nothing else: the plans of its publisher, which has lanes of its own as long
  as it has rules, and held subscriptions that overlap, in pieces. Nobody else's plans are touched.
- How long a rule lasts is judged by the later of the wall clock and the steady one. One that was seen to expire does
  not come back, whatever the clock does.
- Publishers are slowed down: each may send a few publications at once, then one a second.

What is accepted is in the store before it is acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tidegate.bounded import Bounded
from tidegate.gate import Deny, Lane, RuleSet, Step
from tidegate.policy import Term, Terms
from tidegate.policy.domains import domains_of
from tidegate.policy.publisher_rules import (
    ActiveRule,
    ActiveRules,
    Book,
    Fault,
    Home,
    Rule,
    Unfit,
    condition,
    covered,
    owner_identity,
    owner_name,
    owner_of,
    read,
    stored_content,
    with_identity,
)
from tidegate.policy.travelling_rules import home_of, meant
from tidegate.predicate import Predicate, PredicateError, quoted
from tidegate.scope.allowing_rules import AllowingRules
from tidegate.scope.held_review import HeldReview
from tidegate.scope.rule_expiry import RuleExpiry
from tidegate.session import Bucket, Message, Session, Site, Subject
from tidegate.session.packet_costs import CONDITION
from tidegate.topics import overlaps
from tidegate.wire import Reason

if TYPE_CHECKING:
    from tidegate.scope.decision_reports import Audit
    from tidegate.scope.scope import Scope

ROOM = "rules"  # in the store
TOTAL = 10_000  # rules of all publishers
PUBLISHERS = 10_000  # that have ever sent any: the sequence of the last is kept
RATE, BURST = 1.0, 10.0  # publications a second
RULES = "rules"
"""The rule that refuses a publication of rules."""

_REASONS: Mapping[Fault, Reason] = {
    Fault.UNREADABLE: Reason.PAYLOAD_FORMAT_INVALID,
    Fault.FORBIDDEN: Reason.NOT_AUTHORIZED,
    Fault.EXCESSIVE: Reason.QUOTA_EXCEEDED,
}


@dataclass(slots=True)
class Count:
    """How much is kept."""

    rules: int = 0
    publishers: int = 0


class _Entry:
    """What one publisher has said, and over which link that has come, with what the domain of the publisher believes of
    others; no link: it has said so here."""

    __slots__ = ("active_rules", "beliefs", "book", "conditions", "rule_set", "through")

    def __init__(self, book: Book, through: str = "", beliefs: Mapping[str, Any] = MappingProxyType({})) -> None:
        self.book = book
        self.through = through
        self.beliefs = beliefs
        self.conditions: dict[str, Predicate | str] = {}  # by their text; if not understood, why not
        self.rule_set: RuleSet | None = None  # the administrator's rules that `active_rules` were made under
        self.active_rules: ActiveRules | None = None


class Publishers:
    """The rules of all publishers of a node (gate.granting.Publishing)."""

    def __init__(self, site: Site, scopes: Mapping[str, Scope], audit: Audit) -> None:
        self.site = site
        self._scopes = scopes  # what is published in one may be read in others
        self._audit = audit
        self._entries: dict[str, _Entry] = {}
        self._identified: dict[str, str] = {}  # whose rules they are, by the ids of identities
        self._unidentified: dict[str, str] = {}  # whose rules speak of messages from before there were identities
        self._counts: dict[str, Count] = {}  # by the link that they have come over
        self._revision = 0
        self.on_change: Callable[[str], None] = lambda key: None
        """Called with whose rules have changed."""
        self._allowing = AllowingRules()
        self._sessions: dict[str, set[Session]] = {}  # those connected, or that were, by publisher
        self._buckets: Bounded[str, Bucket] = Bounded(PUBLISHERS, lambda _: Bucket(RATE, BURST, self.site.now))
        self._expiry = RuleExpiry(
            site,
            now=lambda: self.now,
            rules=lambda: ((key, rule) for key, entry in self._entries.items() for rule in entry.book.rules.values()),
            expired=self._drop_expired,
        )
        self._held = HeldReview(site, scopes)

    def __len__(self) -> int:
        return sum(count.rules for count in self._counts.values())

    @property
    def _rules(self) -> RuleSet:
        """Those of the administrator, which are the same in all scopes."""
        return next(iter(self._scopes.values())).rules

    @property
    def revision(self) -> int:
        """Another number, other rules of some publisher."""
        return self._revision

    @property
    def now(self) -> float:
        """The wall clock, unless it was put back."""
        return max(self.site.wall, self.site.steady)

    # -- for the gate (gate.granting.Publishing) -------------------------------------------------------------------

    def of(self, publisher: Subject) -> ActiveRules | None:
        key = self.owner(publisher) if self._entries else None
        entry = None if key is None else self._entries.get(key)
        if entry is None:
            return None
        assert key is not None
        if entry.rule_set is not self._rules:
            self._speak(key, entry)
        return entry.active_rules

    def left(self, active: ActiveRule) -> float:
        assert active.expires is not None
        left = active.expires - self.now
        if left <= 0 and not active.over:
            active.over = True
            self._expiry.seen(active.owner)
        return 0.0 if active.over else left

    def allowing(self, filter: str, scope: str, terms: Terms) -> Iterator[ActiveRule]:
        rules = self._rules
        indexes = self._allowing.about(terms)
        # a rule is about the original topic, a filter about the one that is delivered
        originals = rules.originals(scope, filter) if indexes else frozenset()
        # what another node calls otherwise on its way here is not known here
        elsewhere = originals | {"#"} if rules.space.remote else originals
        for index in indexes:
            told: set[tuple[str, str]] = set()
            for original in elsewhere:
                for key, rule in index.overlapping(original):
                    entry = self._entries[key]
                    if original not in originals and not entry.through:
                        continue
                    if not overlaps(rule.topic, original) or not covered(rule.topic, rules.ceiling):
                        continue
                    if (rule.expires is None or rule.expires > self.now) and (key, rule.id) not in told:
                        if len(elsewhere) > 1:
                            told.add((key, rule.id))
                        yield self._activated(key, entry, rule)

    def _speak(self, key: str, entry: _Entry) -> None:
        """Makes what counts of a publisher's rules."""
        rules = entry.rule_set = self._rules
        over = (
            [active.rule for active in entry.active_rules.rules if active.over]
            if entry.active_rules is not None
            else []
        )
        active_rules = [
            self._activated(key, entry, rule)
            for rule in entry.book.rules.values()
            if covered(rule.topic, rules.ceiling) and not any(rule is each for each in over)
        ]
        self._revision += 1
        entry.active_rules = ActiveRules(active_rules, self._revision) if active_rules else None

    def _activated(self, key: str, entry: _Entry, rule: Rule) -> ActiveRule:
        rules = self._rules
        terms, home = self._meant(key, entry, rule)
        when: Predicate | str | None = None
        if rule.when is not None:
            when = entry.conditions.get(rule.when)
            if when is None:
                try:
                    when = condition(rule.when, rules.functions, rules.levels.ranking)
                except PredicateError as error:
                    when = f"it is not understood any more: {error}"
                entry.conditions[rule.when] = when
        return ActiveRule(rule, key, terms, when, home)

    def _meant(self, key: str, entry: _Entry, rule: Rule) -> tuple[Terms, Home | None]:
        """Whom a rule is about: names in it are those of the domain of its publisher."""
        rules = self._rules
        found = home_of(key, rules.domain)
        if found is None or found[1] in rules.formerly | {rules.domain}:
            return rule.subject.within(rules.domain).terms, None
        home = found[1], domains_of(entry.beliefs)
        return meant(rule, *home), home

    def owner(self, publisher: Subject) -> str | None:
        """Whose rules speak of the messages of a publisher; None: nobody's."""
        key = owner_of(publisher, self._rules.domain)
        if key is None:
            return None
        if publisher.identity:
            return self._identified.get(publisher.identity, key)  # whatever it was called when it sent the first
        return self._unidentified.get(key, key)

    # -- who they are ----------------------------------------------------------------------------------------------

    def came(self, session: Session, old: Subject) -> None:
        """A session's subject was found, under the rules in force."""
        rules = self._rules
        if not rules.ceiling:
            return
        before, key = _who(old, rules.domain), _who(session.subject, rules.domain)
        if before != key:
            self._gone(session, before)
        if key is not None:
            self._sessions.setdefault(key, set()).add(session)

    def ended(self, session: Session) -> None:
        self._gone(session, _who(session.subject, self._rules.domain))

    def _gone(self, session: Session, key: str | None) -> None:
        if key is not None and key in self._sessions:
            self._sessions[key].discard(session)
            if not self._sessions[key]:
                del self._sessions[key]

    def retire(self, retired: Callable[[str], bool]) -> None:
        """Whoever is no more, by the id, and has no rules left gives its place back: that id never publishes again."""
        for id, key in [each for each in self._identified.items() if retired(each[0])]:
            if not (entry := self._entries[key]).book.rules:
                del self._entries[key], self._identified[id]
                self._unidentified = {name: other for name, other in self._unidentified.items() if other != key}
                self.counted(entry.through).publishers -= 1
                self.site.store.keep(ROOM, key, None)

    def changed(self, old: RuleSet) -> None:
        """Other rules of the administrator are in force."""
        rules = self._rules
        if not rules.ceiling:
            self._sessions.clear()  # all are found again if publishers get a say
        if rules.functions or old.functions or rules.levels.order != old.levels.order:
            for entry in self._entries.values():
                entry.conditions = {}

    def mention(self, name: str) -> str | None:
        """A rule of some publisher that is about a user or a client of that name; None: there is none."""
        terms = {Term("user", name, self._rules.domain), Term("client", name, self._rules.domain)}
        names = {name, f"{name}@{self._rules.domain}"}
        for key, entry in list(self._entries.items()):
            for rule in entry.book.rules.values():
                if terms & self._meant(key, entry, rule)[0] or (rule.when and names & quoted(rule.when)):
                    return f"rule:{owner_name(key)}/{rule.id}"
        return None

    # -- taking ----------------------------------------------------------------------------------------------------

    def take(self, message: Message) -> Deny | None:
        """A publication of rules; why it is refused, if it is."""
        if message.use is not None and message.use.handled:
            return None  # a repetition: others may have come since, which it must not undo
        rules, site = self._rules, self.site
        subject = next(iter(self._scopes.values())).gate.attributes.context(message).subject
        key = self.owner(subject)
        if key is None:
            return _refusal(Fault.FORBIDDEN, "nobody in particular has no messages of its own: say who you are")
        if message.retain:
            return _refusal(Fault.FORBIDDEN, "rules are not retained: send them without that flag, they are kept")
        if not self._buckets[key].afford(site.now):
            return _refusal(Fault.EXCESSIVE, "too many publications of rules: wait a second")
        if site.store.refusing:
            return _refusal(Fault.EXCESSIVE, "nothing can be stored at the moment: try again later")
        entry = self._entries.get(key)
        if (entry is None or entry.through) and self.counted("").publishers >= PUBLISHERS:
            return _refusal(Fault.EXCESSIVE, "too many publishers have rules here: ask the administrator")
        known = {} if entry is None else entry.conditions
        publication = read(message.payload, self.now, rules.functions, known, rules.levels.ranking)
        if isinstance(publication, Unfit):
            return _refusal(publication.fault, publication.text)
        parsed = sum(len(each) for each in publication.conditions.keys() - known)
        site.effort += 100 + 20 * len(publication.rules) + CONDITION * parsed
        book = (entry or _Entry(Book())).book.after(publication, rules.ceiling)
        if isinstance(book, Unfit):
            return _refusal(book.fault, book.text)
        before = 0 if entry is None or entry.through else len(entry.book.rules)
        if self.counted("").rules + len(book.rules) - before > TOTAL:
            return _refusal(Fault.EXCESSIVE, f"there are {TOTAL} rules of publishers here: remove some")
        if entry is None:
            entry = self._enter(key, _Entry(Book()))
        self._moved(entry, "")
        entry.conditions |= publication.conditions
        self._replace(key, entry, book)
        message.noted = True
        if message.use is not None:
            message.use.handled = True
        self._audit.ruled(subject, book.sequence, publication.ids)
        self.on_change(key)
        return None

    # -- of other nodes (scope.spreading_rules) --------------------------------------------------------------------

    def counted(self, through: str) -> Count:
        """What there is that has come over a link; without one: what has been said here."""
        return self._counts.setdefault(through, Count())

    def keys(self) -> tuple[str, ...]:
        """Whoever has ever said something."""
        return tuple(self._entries)

    def said(self, key: str) -> tuple[Book, str, Mapping[str, Any]] | None:
        """What somebody says, over which link that has come, and what their domain believes of others."""
        entry = self._entries.get(key)
        return None if entry is None else (entry.book, entry.through, entry.beliefs)

    def told(self, key: str, book: Book, through: str, beliefs: Mapping[str, Any]) -> None:
        """A publisher has other rules from now on, as they have come over a link."""
        entry = self._entries.get(key)
        if entry is not None and entry.beliefs != beliefs:  # the same names mean others
            self._replace(key, entry, Book(sequence=entry.book.sequence))
        if entry is None:
            entry = self._enter(key, _Entry(Book(), through))
        self._moved(entry, through)
        entry.beliefs = beliefs
        self._replace(key, entry, book)
        self.on_change(key)

    def _moved(self, entry: _Entry, through: str) -> None:
        """It counts among what has come over this link from now on."""
        if entry.through != through:
            for name, sign in ((entry.through, -1), (through, 1)):
                count = self.counted(name)
                count.rules += sign * len(entry.book.rules)
                count.publishers += sign
            entry.through = through

    def _enter(self, key: str, entry: _Entry) -> _Entry:
        self._entries[key] = entry
        self.counted(entry.through).publishers += 1
        if id := owner_identity(key):
            self._identified[id] = key
        return entry

    def _replace(self, key: str, entry: _Entry, book: Book) -> None:
        """A publisher has other rules from now on."""
        before = entry.book.rules
        gone = [rule for id, rule in before.items() if book.rules.get(id) is not rule]
        come = [rule for id, rule in book.rules.items() if before.get(id) is not rule]
        had_lanes = entry.rule_set is self._rules and entry.active_rules is not None
        for rule in gone:
            if rule.allows:
                self._allowing.discard(key, rule, self._meant(key, entry, rule)[0])
        for rule in come:
            if rule.allows:
                self._allowing.add(key, rule, self._meant(key, entry, rule)[0])
        self.counted(entry.through).rules += len(book.rules) - len(before)
        entry.book = book
        texts = {rule.when for rule in book.rules.values()}
        entry.conditions = {text: when for text, when in entry.conditions.items() if text in texts}
        beside = {"through": entry.through, "beliefs": entry.beliefs} if entry.through else {}
        self.site.store.keep(ROOM, key, book.encode(beside))
        self._speak(key, entry)
        self._relane(key, had_lanes)
        self._held.review(rule.topic for rule in (*gone, *come))
        self._expiry.wait(key, come, kept=len(self))

    def _relane(self, key: str, had_lanes: bool) -> None:
        """Its connections look for other plans with their next message, and so does what is stored of it."""
        lanes: dict[str, set[Lane]] = {name: set() for name in self._scopes}
        for session in self._sessions.get(owner_identity(key) or key, ()):
            connection = session.connection
            scope = self._scopes.get(session.home)
            if connection is not None and scope is not None:
                gate, lane = scope.entrance.gate, connection.reader.lane
                if had_lanes and isinstance(lane, Lane) and lane.version == gate.version:
                    lanes[scope.entrance.name].add(lane)
                connection.reader.lane = gate.nowhere
        for name, scope in self._scopes.items():
            scope.gate.cache.abandon(lanes[name])
            if self._rules.space.remote:  # what has come over a link finds its plans by the rules of its publisher
                scope.gate.cache.renew()
            self.site.unfinished.append(scope.gate.cache.tidy)
            scope.sweep()

    # -- expiring --------------------------------------------------------------------------------------------------

    def _drop_expired(self, keys: Iterable[str], now: float) -> None:
        """Drops the rules of these publishers that have expired."""
        for key in keys:
            entry = self._entries.get(key)
            if entry is None:
                continue  # it has given its place back
            over = (
                []
                if entry.active_rules is None
                else [active.rule for active in entry.active_rules.rules if active.over]
            )
            expired = frozenset(
                id
                for id, rule in entry.book.rules.items()
                if (rule.expires is not None and rule.expires <= now) or any(rule is each for each in over)
            )
            if expired:
                self._replace(key, entry, entry.book.without(expired))

    # -- from the store --------------------------------------------------------------------------------------------

    def restore(self, records: Mapping[str, bytes], identities: Mapping[str, str] = MappingProxyType({})) -> None:
        """What the store kept; before anything is decided.

        `identities`: the ids of publishers whose rules were stored before there were identities.
        """
        for stored, data in records.items():
            key = stored
            if owner_name(stored) == stored and stored in identities:
                key = with_identity(stored, identities[stored])
                self.site.store.keep(ROOM, stored, None)
                self.site.store.keep(ROOM, key, data)
            self._unidentified.setdefault(owner_name(key), key)
            beside = stored_content(data)
            said = _Entry(Book.decode(data, self.now), beside.get("through", ""), beside.get("beliefs", {}))
            entry = self._enter(key, said)
            rules = entry.book.rules.values()
            self.counted(entry.through).rules += len(rules)
            for rule in rules:
                if rule.allows:
                    self._allowing.add(key, rule, self._meant(key, entry, rule)[0])
            self._expiry.wait(key, rules, kept=len(self))


def _who(publisher: Subject, domain: str) -> str | None:
    """A publisher by its id, or by its name if it has none."""
    key = owner_of(publisher, domain)
    return key if key is None else owner_identity(key) or key


def _refusal(fault: Fault, text: str) -> Deny:
    return Deny(step=Step.WRITE, rule=RULES, reason=_REASONS[fault], error=text, said=f"{RULES}: {text}")
