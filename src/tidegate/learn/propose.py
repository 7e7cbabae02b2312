"""The smallest readable policies that allow everything that was seen.

Candidates are a template of topics and exactly the people who used it: found among everybody, in each role and group,
and for each person alone. Of these the cheapest set is taken that covers all that was seen, as a description that is
to be short: a rule, a selector, a level and a condition each cost something, a wildcard more than a literal, and so
does what a rule allows beyond what was seen. A candidate that would allow what was denied is not considered, unless
nothing else covers what was seen.

The search is greedy, and its order does not depend on that of the table.
"""

from __future__ import annotations

import heapq
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from tidegate.learn.hours import Hours, hours_that_matter
from tidegate.learn.selectors import Members, Society, Subjects
from tidegate.learn.table import READ, SUBSCRIBE, WRITE, Person, Seen, Table, Who, seen
from tidegate.learn.templates import ANY, REST, Evidence, Levels, Read, has_placeholder, literal, read, shapes, written
from tidegate.policy.template import Template
from tidegate.topics import overlaps, valid_filter

_STRANGE: Final = re.compile(r"[^A-Za-z0-9]+")
_RULE: Final = 10.0
_LEVELS: Final = {ANY: 2.0, REST: 4.0}
_BEYOND: Final = 2.0
_REFUSED: Final = 5000
"""Denials that candidates are compared with."""
_TOLD: Final = 5
"""Values that a reason names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    evidence: Evidence = field(default_factory=Evidence)
    hours: bool = True
    include_denied: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """One policy, and why."""

    id: str
    subjects: Subjects
    levels: Levels
    actions: tuple[str, ...]
    when: str | None
    used: int
    first: float
    last: float
    by: tuple[str, ...]
    """Who used it, the most frequent first."""
    reasons: tuple[str, ...]
    example: Seen
    """Something that it allows, and that was seen; a subscription if nothing else was."""

    @property
    def subject(self) -> str | tuple[str, ...]:
        return self.subjects.selectors[0] if len(self.subjects.selectors) == 1 else self.subjects.selectors

    @property
    def topic(self) -> str:
        return written(self.levels)[0]

    def allows(self, who: Who, action: str, topic: Read) -> bool:
        """Whether it allows that to somebody who was there, at some time."""
        return action in self.actions and who in self.subjects.members and topic.fits(self.levels)

    @property
    def once(self) -> bool:
        return self.used == 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposals:
    policies: tuple[Proposal, ...]
    once: tuple[Seen, ...]
    """What was seen once only."""
    denied: tuple[tuple[Seen, str], ...]
    """What was denied and stays so, and by which rule it was denied."""
    allowed_now: tuple[tuple[Seen, str], ...]
    """What was denied, and what the proposals would allow."""
    not_expressed: tuple[tuple[Seen, str], ...]
    """What no policy can say, and why."""
    writers: Mapping[str, Person]
    """For each topic somebody who published to it."""
    notes: tuple[str, ...]
    first: float | None
    last: float | None


@dataclass(slots=True)
class _Candidate:
    action: str
    levels: Levels
    subjects: Subjects
    covers: frozenset[int]
    cost: float

    @property
    def key(self) -> tuple[object, ...]:
        return self.action, self.levels, self.subjects.selectors, self.subjects.when or ""


def propose(table: Table, options: Options | None = None) -> Proposals:
    options = options or Options()
    every = seen(table, include=options.include_denied)
    refused = [] if options.include_denied else seen(table, denied=True)
    society = Society.of(table.people, table.others, table.registered)
    search = _Search(society, every, refused, options)
    chosen = search.cover()
    chosen += search.asked_only(chosen)
    policies = _named(search.merged(chosen))
    denied, allowed_now = search.outcome(policies)
    notes = list(table.notes)
    if table.left_out:
        notes.append(f"{table.left_out:,} uses are left out: there are more different ones than a table keeps")
    return Proposals(
        policies=tuple(policies),
        once=tuple(each for each in every if each.count == 1 and each.action != SUBSCRIBE),
        denied=tuple(denied),
        allowed_now=tuple(allowed_now),
        not_expressed=tuple(search.not_expressed),
        writers=search.writers,
        notes=tuple(notes),
        first=table.first,
        last=table.last,
    )


class _Search:
    def __init__(self, society: Society, every: Sequence[Seen], refused: Sequence[Seen], options: Options) -> None:
        self.society = society
        self.options = options
        self.not_expressed: list[tuple[Seen, str]] = []
        self.filters: dict[Who, list[str]] = {}
        for each in every:
            if each.action == SUBSCRIBE:
                self.filters.setdefault(each.person.who, []).append(each.topic)
        self.every = [each for each in every if each.action == SUBSCRIBE or self._expressible(each)]
        self.uses = [each for each in self.every if each.action != SUBSCRIBE]
        self.reads = [
            read(each.person, each.topic, self.filters.get(each.person.who, ()) if each.action == READ else ())
            for each in self.uses
        ]
        passed = {(each.person.who, each.action, each.topic) for each in every}
        self.refused = [
            (each, read(each.person, each.topic))
            for each in refused
            if each.action in (READ, WRITE) and (each.person.who, each.action, each.topic) not in passed
        ][:_REFUSED]
        self.writers: dict[str, Person] = {}
        for each in every:
            if each.action == WRITE:
                self.writers.setdefault(each.topic, each.person)
        topics = list({each.topic: each for each in self.reads}.values())
        self.topics = _Index(topics, range(len(topics)))
        self._beyond: dict[Levels, int] = {}

    def _expressible(self, each: Seen) -> bool:
        why = self.society.unspeakable.get(each.person.who)
        if why is not None:
            self.not_expressed.append((each, why))
        return why is None

    # -- candidates ----------------------------------------------------------------------------------------------

    def candidates(self) -> list[_Candidate]:
        made: dict[tuple[object, ...], _Candidate] = {}
        for action in (READ, WRITE):
            mine = [at for at, each in enumerate(self.uses) if each.action == action]
            by_person: dict[Who, list[int]] = {}
            for at in mine:
                by_person.setdefault(self.uses[at].person.who, []).append(at)
            index = _Index(self.reads, mine)
            tried: set[tuple[Levels, Members]] = set()
            for members in self.society.classes():
                theirs = [at for who in members if who in by_person for at in by_person[who]]
                reads = [self.reads[at] for at in sorted(theirs)]
                for levels in shapes(reads, self.options.evidence) if reads else ():
                    covered = frozenset(
                        at
                        for at in index.of(levels)
                        if self.uses[at].person.who in members and _asked_for(levels, self.reads[at], action)
                    )
                    users = frozenset(self.uses[at].person.who for at in covered)
                    if not covered or (levels, users) in tried:
                        continue
                    tried.add((levels, users))
                    for subjects in self.society.subjects(users, levels):
                        candidate = _Candidate(action, levels, subjects, covered, 0.0)
                        candidate.cost = self._cost(candidate)
                        made[candidate.key] = candidate
        return list(made.values())

    def _cost(self, candidate: _Candidate) -> float:
        cost = _RULE + candidate.subjects.cost + sum(_LEVELS.get(level, 1.0) for level in candidate.levels)
        granted = self._granted(candidate)
        return cost + _BEYOND * math.log2(max(1.0, granted / len(candidate.covers)))

    def _granted(self, candidate: _Candidate) -> float:
        """How many pairs of people and topics it allows, of those that are known."""
        people = max(len(candidate.subjects.members), candidate.subjects.known)
        if any(map(has_placeholder, candidate.levels)):
            return len(candidate.covers) / max(1, len(candidate.subjects.members)) * people
        if ANY not in candidate.levels and candidate.levels[-1] != REST:
            return float(people)
        topics = self._beyond.get(candidate.levels)
        if topics is None:
            topics = len(self.topics.of(candidate.levels))
            self._beyond[candidate.levels] = topics
        return float(people * topics)

    def _allows_denied(self, candidate: _Candidate) -> bool:
        members = candidate.subjects.members
        return any(
            each.action == candidate.action and each.person.who in members and topic.fits(candidate.levels)
            for each, topic in self.refused
        )

    # -- the cheapest cover --------------------------------------------------------------------------------------

    def cover(self) -> list[_Candidate]:
        left = set(range(len(self.uses)))
        candidates = sorted(self.candidates(), key=lambda each: (each.cost, each.key))
        clean: list[_Candidate] = []
        unclean: list[_Candidate] = []
        for each in candidates:
            (unclean if self._allows_denied(each) else clean).append(each)
        chosen = self._greedy(clean, left)
        if left:
            chosen += self._greedy(unclean, left)
        return self._pruned(chosen)

    def _greedy(self, candidates: Sequence[_Candidate], left: set[int]) -> list[_Candidate]:
        heap = [(each.cost / len(each.covers), at) for at, each in enumerate(candidates)]
        heapq.heapify(heap)
        chosen: list[_Candidate] = []
        while left and heap:
            was, at = heapq.heappop(heap)
            candidate = candidates[at]
            new = len(candidate.covers & left)
            if not new:
                continue
            now = candidate.cost / new
            if now > was + 1e-9:
                heapq.heappush(heap, (now, at))
                continue
            chosen.append(candidate)
            left -= candidate.covers
        return chosen

    def _pruned(self, chosen: list[_Candidate]) -> list[_Candidate]:
        """Without those that the others make superfluous, the most expensive first."""
        times: dict[int, int] = {}
        for candidate in chosen:
            for at in candidate.covers:
                times[at] = times.get(at, 0) + 1
        for candidate in sorted(chosen, key=lambda each: (-each.cost, each.key)):
            if all(times[at] > 1 for at in candidate.covers):
                chosen = [each for each in chosen if each is not candidate]
                for at in candidate.covers:
                    times[at] -= 1
        return chosen

    def asked_only(self, chosen: Sequence[_Candidate]) -> list[_Candidate]:
        """For subscriptions that nothing was received by: otherwise they would be refused."""
        lacking: dict[Levels, set[Who]] = {}
        filled: dict[Who, list[str]] = {}
        for each in self.every:
            if each.action != SUBSCRIBE:
                continue
            who = each.person.who
            if who not in filled:
                filled[who] = list(_readable(self.society, chosen, who))
            if any(overlaps(filter, each.topic) for filter in filled[who]):
                continue
            why = self.society.unspeakable.get(who) or (None if valid_filter(each.topic) else "it is no topic filter")
            if why is not None:
                self.not_expressed.append((each, why))
                continue
            levels = tuple(_asked_level(each, at, text) for at, text in enumerate(each.topic.split("/")))
            lacking.setdefault(levels, set()).add(who)
        made: list[_Candidate] = []
        for levels, people in sorted(lacking.items()):
            for subjects in sorted(self.society.subjects(frozenset(people), levels), key=lambda each: each.cost)[:1]:
                made.append(_Candidate(SUBSCRIBE, levels, subjects, frozenset(), _RULE))
        return made

    # -- as policies ---------------------------------------------------------------------------------------------

    def merged(self, chosen: Sequence[_Candidate]) -> list[Proposal]:
        """Reading and writing of the same by the same people is one policy. The most used come first."""
        groups: dict[tuple[object, ...], list[_Candidate]] = {}
        for candidate in chosen:
            key = (candidate.levels, candidate.subjects.selectors, candidate.subjects.when)
            groups.setdefault(key, []).append(candidate)
        made = [self._proposal(candidates) for candidates in groups.values()]
        return sorted(made, key=lambda each: (each.subjects.selectors, -each.used, each.topic))

    def _proposal(self, candidates: Sequence[_Candidate]) -> Proposal:
        first = candidates[0]
        uses = [self.uses[at] for at in sorted(frozenset().union(*(each.covers for each in candidates)))]
        members = first.subjects.members
        if not uses:
            filled = {_fill(first.levels, self.society, who) for who in members}
            uses = [
                each
                for each in self.every
                if each.action == SUBSCRIBE and each.person.who in members and each.topic in filled
            ]
        hours = hours_that_matter(uses, self.every) if self.options.hours else None
        used = sum(each.count for each in uses if each.action != SUBSCRIBE)
        by: dict[str, int] = {}
        for each in uses:
            by[each.person.name] = by.get(each.person.name, 0) + each.count
        actions = tuple(sorted({READ if each.action == SUBSCRIBE else each.action for each in candidates}))
        conditions = [first.subjects.when, *written(first.levels)[1], hours.when if hours else None]
        return Proposal(
            id="",
            subjects=first.subjects,
            levels=first.levels,
            actions=actions,
            when=" && ".join(each for each in conditions if each) or None,
            used=used,
            first=min((each.first for each in uses), default=0.0),
            last=max((each.last for each in uses), default=0.0),
            by=tuple(sorted(by, key=lambda name: (-by[name], name))),
            reasons=tuple(self._reasons(first, actions, uses, hours)),
            example=max(uses, key=lambda each: (each.count, each.topic, each.person.name)),
        )

    def _reasons(
        self, candidate: _Candidate, actions: Sequence[str], uses: Sequence[Seen], hours: Hours | None
    ) -> Iterable[str]:
        subjects = candidate.subjects
        people = len(subjects.members)
        verb = {(READ,): "read", (WRITE,): "publish", (READ, WRITE): "publish and read"}[tuple(actions)]
        if people > 1 or subjects.selectors[0].startswith(("role:", "group:", "*")):
            whom = ", ".join("everybody" if each == "*" else each for each in subjects.selectors)
            were = f"{people} of {people} who were there"
            were += f", of {subjects.known} known" if subjects.known > people else ""
            yield f"{whom} ({were}) {verb} {written(candidate.levels)[0]}"
        if subjects.reason:
            yield subjects.reason
        for at, level in enumerate(candidate.levels):
            if level == REST and candidate.covers:
                tails = sorted({"/".join(each.topic.split("/")[at:]) for each in uses})
                yield f"`#` stands for {_some(tails)}"
            values = sorted({parts[at] for each in uses if len(parts := each.topic.split("/")) > at})
            if level == ANY and candidate.covers:
                yield f"`+` at level {at + 1} stands for {_some(values)}"
            elif has_placeholder(level):
                listed = level.startswith("{in ")
                own = f"level {at + 1} is in `{level[4:-1]}`" if listed else f"`{level}` is the own one"
                yield f"{own} of each, {len(values)} different ones: {_some(values)}"
        if candidate.action == SUBSCRIBE:
            yield "it was subscribed to, and nothing was received by it"
        if hours is not None:
            yield hours.reason

    def outcome(self, policies: Sequence[Proposal]) -> tuple[list[tuple[Seen, str]], list[tuple[Seen, str]]]:
        stays: list[tuple[Seen, str]] = []
        allowed: list[tuple[Seen, str]] = []
        for each, topic in self.refused:
            by = next((rule.id for rule in policies if rule.allows(each.person.who, each.action, topic)), None)
            (stays if by is None else allowed).append((each, by or ""))
        return stays, allowed


class _Index:
    """Which uses a template fits, without asking all of them."""

    def __init__(self, reads: Sequence[Read], mine: Iterable[int]) -> None:
        self._reads = reads
        self._at: dict[tuple[int, str], set[int]] = {}
        self._length: dict[int, set[int]] = {}
        for at in mine:
            self._length.setdefault(len(reads[at].levels), set()).add(at)
            for level, texts in enumerate(reads[at].levels):
                for text in texts:
                    if text != ANY:
                        self._at.setdefault((level, text), set()).add(at)

    def of(self, template: Levels) -> set[int]:
        sets = [self._at.get((at, text), set()) for at, text in enumerate(template) if text not in (ANY, REST)]
        if template[-1] != REST:
            sets.append(self._length.get(len(template), set()))
        if not sets:
            sets.append(set().union(*self._length.values()))
        found = set.intersection(*sorted(sets, key=len))
        if template[-1] != REST and template[0] != ANY:
            return found  # it fits whatever has the levels
        return {at for at in found if self._reads[at].fits(template)}


def _asked_for(levels: Levels, each: Read, action: str) -> bool:
    """Whether a reader has asked for as much as a `#` says; publishers cannot ask."""
    if levels[-1] != REST or action != READ:
        return True
    return any(filter.endswith(REST) and filter.count("/") < len(levels) for filter in each.filters)


def _readable(society: Society, chosen: Iterable[_Candidate], who: Who) -> Iterable[str]:
    for candidate in chosen:
        if candidate.action == READ and who in candidate.subjects.members:
            filter = _fill(candidate.levels, society, who)
            if filter is not None:
                yield filter


def _fill(levels: Levels, society: Society, who: Who) -> str | None:
    return Template.parse(written(levels)[0]).fill(society.people[who].texts)


def _asked_level(each: Seen, at: int, text: str) -> str:
    if text in (ANY, REST):
        return text
    choices = sorted(read(each.person, text).levels[0], reverse=True)  # the user before the client
    # nobody else has to have it: a name of the own in a filter that is asked for is hardly by chance
    return next((choice for choice in choices if choice in ("{s.user}", "{s.client}")), literal(text))


def _some(values: Sequence[str]) -> str:
    told = ", ".join(values[:_TOLD])
    return told if len(values) <= _TOLD else f"{told} and {len(values) - _TOLD:,} more"


def _named(policies: Sequence[Proposal]) -> list[Proposal]:
    """With ids that say who does what."""
    taken: dict[str, int] = {}
    named: list[Proposal] = []
    for each in policies:
        who = "-".join(name.partition(":")[2] or "everybody" for name in each.subjects.selectors[:2])
        words = [level for level in each.levels if level not in (ANY, REST) and not has_placeholder(level)]
        verb = "uses" if len(each.actions) > 1 else {READ: "reads", WRITE: "writes"}[each.actions[0]]
        slug = _STRANGE.sub("-", f"{who}-{verb}-{words[-1] if words else 'topics'}").strip("-")[:60]
        taken[slug] = number = taken.get(slug, 0) + 1
        named.append(replace(each, id=slug if number == 1 else f"{slug}-{number}"))
    return named
