"""Topic templates that stand for several topics: placeholders, `+` and `#`, each for a reason.

A level of a template is a text as a policy writes it: a literal (braces doubled), a placeholder such as `{s.client}`,
or `+`. The last may be `#`. `{in s.reads}` stands for a level that is in a list of the person: a `+` with a condition.

- A placeholder needs `users` people whose levels are their own, and different ones.
- `+` needs `topics` different values at its level, everything else being equal: `topics` if they are numbered (`tr1`,
  `tr2`), two more if they are words, three times as many if nothing but `+` would be left. Everybody must have used
  so many, unless all have the same roles or groups. Two values are enough where the reader's own subscription has a
  wildcard there.
- `#` needs `topics` topics of at least two shapes below it, which one `+` more cannot say; and a reader who subscribed
  so, or topics of different length.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Final

from tidegate.learn.table import Person
from tidegate.topics import matches

ANY: Final = "+"
REST: Final = "#"
_SHAPES: Final = 4000
"""Templates that are looked at for one group of people."""
_WORDS: Final = 2
"""Values more that a `+` needs if they are words, and not numbered."""
_BARE: Final = 3
"""Times more that it needs if the template has no other level than `+`."""
_NUMBER: Final = re.compile(r"[0-9]+")
_PART: Final = 3
"""Characters that a value must have to be found as a part of a level."""

Levels = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """How much has to be seen before something more general is proposed."""

    users: int = 2
    topics: int = 3


@dataclass(slots=True)
class Read:
    """One topic of one person, level by level: every text that a template may have there."""

    person: Person
    topic: str
    levels: tuple[frozenset[str], ...]
    literal: Levels
    filters: tuple[str, ...] = ()
    """Of this person's subscriptions, those that match the topic."""

    def fits(self, template: Levels) -> bool:
        levels = self.levels
        if template[-1] == REST:
            template = template[:-1]
            if len(levels) < len(template) or (not template and self.topic[:1] == "$"):
                return False
        elif len(levels) != len(template):
            return False
        return all(want in have for want, have in zip(template, levels, strict=False))


def literal(level: str) -> str:
    return level.replace("{", "{{").replace("}", "}}")


def read(person: Person, topic: str, filters: Iterable[str] = ()) -> Read:
    levels = topic.split("/")
    choices = [frozenset(_choices(person, level, first=not at)) for at, level in enumerate(levels)]
    asked = tuple(each for each in filters if matches(each, topic))
    return Read(person, topic, tuple(choices), tuple(map(literal, levels)), asked)


def _choices(person: Person, level: str, *, first: bool) -> Iterable[str]:
    yield literal(level)
    if not (first and level[:1] == "$"):
        yield ANY
    for name, value in person.texts.items():
        if not value or value not in level or any(mark in value for mark in "/+#\0"):
            continue
        if value == level:
            if not (first and value[0] == "$"):
                yield f"{{s.{name}}}"
        elif len(value) >= _PART:
            at = level.index(value)
            before, after = level[:at], level[at + len(value) :]
            if not (before[-1:].isalnum() or after[:1].isalnum()):
                yield f"{literal(before)}{{s.{name}}}{literal(after)}"
    for name, values in person.lists.items():
        if level in values:
            yield f"{{in s.{name}}}"


_PLACEHOLDER: Final = re.compile(r"(?<!\{)\{(?:in )?s\.[^{}]+\}")
_MEMBER: Final = re.compile(r"\{in (s\.[^{}]+)\}")


def written(template: Levels) -> tuple[str, list[str]]:
    """The topic of a policy, and the conditions that go with it."""
    conditions = [
        f"o.levels[{at}] in {list[1]}" for at, level in enumerate(template) if (list := _MEMBER.fullmatch(level))
    ]
    return "/".join(ANY if _MEMBER.fullmatch(level) else level for level in template), conditions


def has_placeholder(level: str) -> bool:
    return _PLACEHOLDER.search(level.replace("{{", "")) is not None


@dataclass(slots=True)
class Shape:
    """A template, and what was seen of it."""

    levels: Levels
    values: dict[int, set[str]] = field(default_factory=dict)
    """What stood where it has a wildcard."""


def shapes(reads: Sequence[Read], evidence: Evidence) -> dict[Levels, Shape]:
    """Templates for what these people have in common, from the most special to the most general."""
    chosen = _placeholders(reads, evidence)
    members: dict[Levels, list[Read]] = {}
    for each in reads:
        members.setdefault(tuple(chosen(each)), []).append(each)
    members |= _diagonal(members, evidence)
    found: dict[Levels, Shape] = {levels: Shape(levels) for levels in members}
    waiting = dict(members)
    while waiting and len(found) < _SHAPES:
        wider: dict[Levels, list[Read]] = {}
        buckets: dict[Levels, list[Levels]] = {}
        for levels in members:
            for at, level in enumerate(levels):
                if level != ANY and not (at == 0 and level[:1] == "$"):
                    buckets.setdefault((*levels[:at], ANY, *levels[at + 1 :]), []).append(levels)
        for template, narrow in buckets.items():
            if template in found or not any(levels in waiting for levels in narrow):
                continue
            covered = [each for levels in narrow for each in members[levels]]
            at = next(at for at, level in enumerate(template) if level != narrow[0][at])
            # where nothing but `+` is left, every level needs its own support once more
            bare = all(level == ANY for level in template)
            if all(_supported(template, each, covered, evidence) for each in (range(len(template)) if bare else (at,))):
                wider[template] = covered
                found[template] = Shape(template)
                if len(found) >= _SHAPES:
                    break
        members |= wider
        waiting = wider
    for template in _open_ended(reads, evidence):
        found.setdefault(template, Shape(template))
    for shape in found.values():
        _values(shape, members.get(shape.levels) or [each for each in reads if each.fits(shape.levels)])
    return found


def _diagonal(members: Mapping[Levels, list[Read]], evidence: Evidence) -> dict[Levels, list[Read]]:
    """Templates with a `+` at two levels that change together, such as sensors that measure one thing each."""
    buckets: dict[Levels, list[Levels]] = {}
    for levels in members:
        for one, other in combinations(range(len(levels)), 2):
            if levels[0][:1] != "$" and len(levels) > 2 and ANY not in (levels[one], levels[other]):
                template = tuple(ANY if at in (one, other) else level for at, level in enumerate(levels))
                buckets.setdefault(template, []).append(levels)
    found: dict[Levels, list[Read]] = {}
    for template, narrow in buckets.items():
        if len(narrow) < 2 * evidence.topics:
            continue
        covered = [each for levels in narrow for each in members[levels]]
        changed = [at for at, level in enumerate(template) if level == ANY and narrow[0][at] != ANY]
        if all(_supported(template, at, covered, evidence) for at in changed):
            found[template] = covered
    return found


def _supported(template: Levels, at: int, covered: Sequence[Read], evidence: Evidence) -> bool:
    """Whether what was seen is enough for a `+` at this level."""
    values = {each.literal[at] for each in covered}
    if len(values) >= 2 and all(_asked(each, at) for each in covered):
        return True
    needed = evidence.topics if _numbered(values) else evidence.topics + _WORDS
    if all(level == ANY for level in template):
        needed *= _BARE
    if len(values) < needed:
        return False
    # what everybody did by themselves, or people who are alike; different people's different topics are no pattern
    if len({(each.person.roles, each.person.groups) for each in covered}) == 1 and (
        covered[0].person.roles or covered[0].person.groups
    ):
        return True
    own: dict[tuple[str | None, str], set[str]] = {}
    for each in covered:
        own.setdefault(each.person.who, set()).add(each.literal[at])
    return all(len(each) >= min(needed, len(values)) for each in own.values())


def _numbered(values: Iterable[str]) -> bool:
    """Whether they look like names of instances, such as `tr1` and `tr2`."""
    forms = {_NUMBER.sub("0", value) for value in values}
    return len(forms) == 1 and "0" in next(iter(forms))


def _values(shape: Shape, reads: Iterable[Read]) -> None:
    for at, level in enumerate(shape.levels):
        if level == ANY or has_placeholder(level):
            shape.values[at] = {each.literal[at] for each in reads}


def _asked(each: Read, at: int) -> bool:
    for filter in each.filters:
        levels = filter.split("/")
        if (at < len(levels) and levels[at] == ANY) or (levels[-1] == REST and at >= len(levels) - 1):
            return True
    return False


def _placeholders(reads: Sequence[Read], evidence: Evidence) -> _Choice:
    """For each level the placeholder that most people support, if enough do."""
    support: dict[tuple[int, int, str], dict[str, set[tuple[str | None, str]]]] = {}
    for each in reads:
        for at, level in enumerate(each.levels):
            for text in level:
                if has_placeholder(text):
                    values = support.setdefault((len(each.levels), at, text), {})
                    values.setdefault(each.literal[at], set()).add(each.person.who)
    enough = {
        key: len(values)
        for key, values in support.items()
        if len(values) >= evidence.users and len(set().union(*values.values())) >= evidence.users
    }
    return _Choice(enough)


@dataclass(frozen=True, slots=True)
class _Choice:
    support: Mapping[tuple[int, int, str], int]

    def __call__(self, each: Read) -> Iterable[str]:
        for at, level in enumerate(each.levels):
            known = [(self.support.get((len(each.levels), at, text), 0), _rank(text), text) for text in level]
            most, _, text = max(known)
            yield text if most else each.literal[at]


def _rank(text: str) -> int:
    """Of placeholders with the same support, the best known one."""
    if _MEMBER.fullmatch(text):
        return -1
    return 2 if "{s.user}" in text else 1 if "{s.client}" in text else 0


def _open_ended(reads: Sequence[Read], evidence: Evidence) -> Iterable[Levels]:
    """Templates that end in `#`."""
    asked = {filter for each in reads for filter in each.filters if filter.endswith(REST)}
    prefixes: dict[Levels, list[Read]] = {}
    for each in reads:
        for at in range(1, len(each.literal) + 1):
            prefixes.setdefault(each.literal[:at], []).append(each)
    for prefix, below in prefixes.items():
        if len(prefixes) > _SHAPES:
            break
        topics = {each.topic for each in below}
        lengths = {len(each.literal) for each in below}
        if len(topics) >= 2 * evidence.topics and len(lengths) >= 3:
            yield (*prefix, REST)
    for filter in sorted(asked):
        levels = tuple(level if level in (ANY, REST) else literal(level) for level in filter.split("/"))
        below = [each for each in reads if filter in each.filters]
        topics = {each.topic for each in below}
        branches = {each.literal[len(levels) - 1] for each in below if len(each.literal) >= len(levels)}
        tails = {each.literal[len(levels) - 1 :] for each in below}
        if len(topics) >= evidence.topics and len(tails) >= 2 and (len(levels) > 1 or len(branches) >= evidence.topics):
            yield levels
