"""Who: the shortest list of selectors for exactly the people who did something.

- `role:` and `group:` stand for people only if all their members who were there did it, at least two, or all that the
  directory knows. Members who were never there do not count against it.
- Where only some did, and one attribute tells them from the others, the role stays with a condition.
- `*` stands for everybody only if everybody did it, several roles (or nobody has one) and at least three people.
- A role whose members all have an attribute that the topic names, while somebody else in the role lacks it, gets that
  condition too: it is why they may.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from tidegate.importing.imported_policies import quoted, unspeakable
from tidegate.learn.table import Person, Who

EVERYBODY: Final = "*"
_CROWD: Final = 3
"""People that are needed for `*`."""
_COSTS: Final = {"*": 4.0, "role": 2.0, "group": 2.0, "user": 2.5, "client": 3.0}
_REGISTERED: Final = 2.4
_CONDITION: Final = 2.4

Members = frozenset[Who]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subjects:
    """Selectors, the condition that they need, and whom they select."""

    selectors: tuple[str, ...]
    when: str | None = None
    members: Members
    known: int = 0
    """How many there are, with those who were never there."""
    reason: str = ""
    cost: float = 0.0


@dataclass(slots=True)
class Society:
    """All people: who was there, and whom the directory knows besides."""

    people: Mapping[Who, Person]
    others: tuple[Person, ...]
    terms: dict[str, Members]
    """Selectors of more than one client, and who of those that were there is selected."""
    unspeakable: dict[Who, str]
    """Whom no selector can name, and why."""
    registered: frozenset[str] = frozenset()
    by_person: dict[Who, list[str]] = field(default_factory=dict)

    @classmethod
    def of(
        cls, people: Mapping[Who, Person], others: Iterable[Person], registered: frozenset[str] = frozenset()
    ) -> Society:
        terms: dict[str, set[Who]] = {}
        by_person: dict[Who, list[str]] = {}
        strange: dict[Who, str] = {}
        for who, person in sorted(people.items(), key=lambda each: (each[0][0] or "", each[0][1])):
            named = False
            by_person[who] = _terms(person)
            for term in by_person[who]:
                terms.setdefault(term, set()).add(who)
                named = named or term.startswith(("user:", "client:"))
            if not named:
                sort, name = ("user", person.user) if person.user is not None else ("client", person.client)
                strange[who] = unspeakable(sort, name) or "another user has that client identifier"
        named_by = {term: frozenset(each) for term, each in terms.items()}
        return cls(people, tuple(others), named_by, strange, registered, by_person)

    def classes(self) -> Iterator[Members]:
        """Groups of people in which the same may be looked for: everybody, each role and group, each user."""
        yield frozenset(self.people)
        yield from dict.fromkeys(self.terms.values())

    # -- for exactly these ---------------------------------------------------------------------------------------

    def subjects(self, members: Members, topic: Sequence[str] = ()) -> list[Subjects]:
        """Ways to say who they are; none if somebody of them cannot be named."""
        ways: list[Subjects] = []
        if members == frozenset(self.people) and len(members) >= _CROWD and self._mixed(members):
            ways.append(Subjects(selectors=(EVERYBODY,), members=members, known=len(members) + len(self.others)))
        if (named := self._listed(members, topic)) is not None:
            ways.append(named)
        ways += self._conditional(members, topic)
        return [replace(each, cost=self._cost(each)) for each in ways]

    def _cost(self, subjects: Subjects) -> float:
        return sum(map(self._term_cost, subjects.selectors)) + _CONDITION * (subjects.when is not None)

    def _term_cost(self, term: str) -> float:
        """A client of the directory is named before its user, who may come with any client."""
        sort, _, name = term.partition(":")
        return _REGISTERED if sort == "client" and name in self.registered else _COSTS[sort]

    def _mixed(self, members: Members) -> bool:
        roles = {self.people[who].roles for who in members}
        return len(roles) > 1 or roles == {()}

    def _listed(self, members: Members, topic: Sequence[str]) -> Subjects | None:
        left = set(members)
        chosen: list[str] = []
        usable = [
            (term, whom)
            for term in {term for who in members for term in self.by_person[who]}
            if (whom := self.terms[term]) <= members
            and (term.startswith(("user:", "client:")) or self._enough(term, whom))
        ]
        usable.sort(key=lambda each: (-len(each[1]) / self._term_cost(each[0]), each[0]))
        for term, whom in usable:
            if whom & left:
                chosen.append(term)
                left -= whom
        if left or any(self._natural(term, topic) for term in chosen):
            return None
        # what a later selector says as well is left out
        for term in list(chosen):
            rest = [each for each in chosen if each != term]
            if rest and members <= frozenset().union(*(self.terms[each] for each in rest)):
                chosen.remove(term)
        known = len(members) + sum(1 for person in self.others if not chosen_none(chosen, person))
        return Subjects(selectors=tuple(sorted(chosen, key=_order)), members=members, known=known)

    def _natural(self, term: str, topic: Sequence[str]) -> bool:
        """Whether all of a role who were there have in a list what the topic names, and others of it lack it."""
        absent = [person for person in self.others if term in _terms(person)]
        whom = self.terms[term]
        if not absent or not whom or term.startswith(("user:", "client:")):
            return False
        return any(
            any(not has(person, name, value) for person in absent)
            for name, value, _ in self._common(whom, topic)
            if name in next(iter(self.people[who] for who in whom)).lists
        )

    def _enough(self, term: str, whom: Members) -> bool:
        if len({self.people[who].user or who for who in whom}) >= 2:
            return True
        # the only one: then the role is as exact as the name, unless somebody else has it who was never there
        sort = term.partition(":")[0]
        alone = all(len(self.people[who].roles if sort == "role" else self.people[who].groups) == 1 for who in whom)
        return alone and not any(term in _terms(person) for person in self.others)

    def _conditional(self, members: Members, topic: Sequence[str]) -> list[Subjects]:
        """One role or group with an attribute that those have who did it, and nobody else in it."""
        ways: list[Subjects] = []
        if len(members) < 2:
            return ways
        own = [(term, self.terms[term]) for term in self.by_person[next(iter(members))]]
        for term, whom in (*own, (EVERYBODY, frozenset(self.people))):
            if not members <= whom or term.startswith(("user:", "client:")):
                continue
            absent = [person for person in self.others if term == EVERYBODY or term in _terms(person)]
            outside = [self.people[who] for who in whom - members] + absent
            if not outside:
                continue
            for name, value, when in self._common(members, topic):
                if any(has(person, name, value) for person in outside if person not in absent):
                    continue
                if not any(not has(person, name, value) for person in outside):
                    continue  # it tells nobody apart
                known = len(members) + sum(has(person, name, value) for person in absent)
                reason = f"all of them have `{value}` in `s.{name}`, and others do not"
                ways.append(Subjects(selectors=(term,), when=when, members=members, known=known, reason=reason))
        return ways

    def _common(self, members: Members, topic: Sequence[str]) -> Iterator[tuple[str, str, str]]:
        """Attributes that they have in common: those that the topic names, as name, value and condition."""
        people = [self.people[who] for who in members]
        first = people[0]
        for name, values in sorted(first.lists.items()):
            for value in values:
                if value in topic and all(value in person.lists.get(name, ()) for person in people):
                    yield name, value, f"{quoted(value)} in s.{name}"
        for name, value in sorted(first.texts.items()):
            if name not in ("user", "client") and all(person.texts.get(name) == value for person in people):
                yield name, value, f"s.{name} == {quoted(value)}"


def has(person: Person, name: str, value: str) -> bool:
    return value in person.lists.get(name, ()) or person.texts.get(name) == value


def chosen_none(selectors: Iterable[str], person: Person) -> bool:
    return not set(selectors) & set(_terms(person))


def _terms(person: Person) -> list[str]:
    at = f"@{person.domain}" if person.domain else ""
    terms = [f"role:{role}{at}" for role in person.roles if unspeakable("role", role) is None]
    terms += [f"group:{group}{at}" for group in person.groups if unspeakable("group", group) is None]
    if person.user is not None and unspeakable("user", person.user) is None:
        terms.append(f"user:{person.user}{at}")
    if person.client and person.proven and unspeakable("client", person.client) is None:
        terms.append(f"client:{person.client}")
    return terms


def _order(term: str) -> tuple[int, str]:
    return list(_COSTS).index(term.partition(":")[0]), term
