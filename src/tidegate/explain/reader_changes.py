"""Who could not read what of somebody's before a change, and can after it: the readers of both, compared.

Topics of somebody's are those that policies let them publish to, and within these every filter by which the rules make
a difference. Each filter is asked with a topic of which nothing more special is said, so one question stands for all
of its topics. A condition on the text of a topic may say otherwise of single ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Final

from tidegate import topics
from tidegate.config import Config
from tidegate.explain.readers import Can, Readable, Readers
from tidegate.policy import Action, Policies
from tidegate.policy.subject import attributes_of
from tidegate.session import Subject

MOST: Final = 64
"""Filters that are asked for one publisher."""
LEVEL: Final = "\ue000"
"""A level of a topic that nobody has in a rule."""
DEEP: Final = 4
"""Levels below a `#`: more than rules usually spell out."""
_RANK: Final = {Can.NO: 0, Can.IF: 1, Can.YES: 2}
_SILENT: Final = frozenset(
    (
        "version",
        "node",
        "monitors",
        "tests",
        "record",
        "audit",
        "traffic",
        "durability",
        "reload",
        "denied_publish_311",
        "explain",
        "tell_no_subscribers",
        "authentication",
        "sys",
        "log",
        "keys",
        "store",
        "master_key",
        "http",
        "tokens",
        "me",
        "sources",
        "pipeline",
        "limits",
        "subscribe",
        "functions",
    )
)
"""Parts of a configuration that make nobody a reader."""
_NAMED: Final = {"policies": "policy", "preferences": "preference", "views": "view"}
_PEOPLE: Final = {"users": "user", "clients": "client", "roles": "role", "groups": "group"}
Reader = tuple[str, str | None]
"""`user`, `client` or `other`, and the name; None: whoever has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A configuration at a time."""

    config: Config
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """Somebody who can read more than before."""

    reader: Reader
    before: Can
    now: Readable


@dataclass(frozen=True, slots=True, kw_only=True)
class Gained:
    """Topics of one publisher, and who can read them now. `device`: it is not the person, but a device of theirs."""

    filter: str
    device: str | None
    gains: tuple[Gain, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Differences:
    """What of a configuration is not as it was before: (kind, name, `added`, `changed` or `removed`)."""

    entries: tuple[tuple[str, str, str], ...]
    filters: tuple[str, ...] | None = field(default=None, repr=False)
    """Only topics of these are concerned; None: any."""
    users: frozenset[str] | None = field(default=None, repr=False)
    """Only these users can have become readers; None: anybody."""

    @classmethod
    def between(cls, before: Config, after: Config) -> Differences:
        entries: list[tuple[str, str, str]] = []
        filters: set[str] | None = set()
        users: set[str] | None = set()
        for name in type(after).model_fields:
            old, new = getattr(before, name), getattr(after, name)
            if name in _SILENT or old == new:
                continue
            if name in _NAMED and isinstance(old, tuple) and isinstance(new, tuple):
                found = list(_changed({each.id: each for each in old}, {each.id: each for each in new}))
                entries += [(_NAMED[name], id, how) for id, how, _ in found]
                users = None
                if filters is not None:
                    filters |= {_plain(each.topic) for _, _, each in found}
            elif name == "directory":
                for part, kind in _PEOPLE.items():
                    found = list(_changed(getattr(old, part), getattr(new, part)))
                    entries += [(kind, id, how) for id, how, _ in found]
                    if found:
                        filters = None
                        users = users | {id for id, _, _ in found} if kind == "user" and users is not None else None
            else:
                entries.append(("", name, "changed"))
                filters = users = None
        return cls(
            entries=tuple(entries),
            filters=None if filters is None else tuple(filters),
            users=None if users is None else frozenset(users),
        )


def _changed(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    for id, each in new.items():
        if id not in old:
            yield id, "added", each
        elif old[id] != each:
            yield id, "changed", each
            yield from ((id, "changed", old[id]) for _ in (0,) if _topic(old[id]) != _topic(each))
    yield from ((id, "removed", each) for id, each in old.items() if id not in new)


def _topic(entry: Any) -> str | None:
    return getattr(entry, "topic", None)


def _plain(topic: Any) -> str:
    """A filter that covers all that a template can become."""
    return "/".join("+" if "{" in level else level for level in str(topic).split("/"))


class ReaderChanges:
    """Compares two moments, for one publisher after the other."""

    def __init__(
        self, before: Moment, after: Moment, differences: Differences, identities: Mapping[str, str] | None = None
    ) -> None:
        self._before, self._after = before, after
        self._differences = differences
        self._identities = identities or {}

    def gained(self, owner: Subject, own: Sequence[str], device: str | None = None) -> list[Gained]:
        """What has become readable of what somebody publishes. `own`: users that are no strangers to them."""
        found: list[Gained] = []
        for filter in self._filters(owner):
            gains = tuple(self._gains(owner, filter, frozenset(own)))
            if gains and not any(topics.covers(each.filter, filter) and each.gains == gains for each in found):
                found.append(Gained(filter=filter, device=device, gains=gains))
        return found

    def _filters(self, owner: Subject) -> list[str]:
        """Those that the change is about, the widest first."""
        found = dict.fromkeys((*own_filters(self._after.config, owner), *own_filters(self._before.config, owner)))
        about = self._differences.filters
        # where two of them overlap both speak: what was denied by the one may come by the other now
        pairs = product(list(found), found if about is None else about)
        common = (topics.intersection(one, other) for one, other in pairs)
        found |= dict.fromkeys(each for each in common if each is not None)
        if about is not None:
            found = dict.fromkeys(each for each in found if any(topics.matches(one, sample(each)) for one in about))
        return list(found)[:MOST]

    def _gains(self, owner: Subject, filter: str, own: frozenset[str]) -> Iterator[Gain]:
        topic, users = sample(filter), self._differences.users
        after = self._readable(self._after, owner, topic, users)
        before = self._readable(self._before, owner, topic, users)
        nobody = Readable(can=Can.NO)
        for reader, now in after.items():
            if reader[0] == "user" and reader[1] in own:
                continue
            was = before.get(reader, nobody)
            if _RANK[now.can] > _RANK[was.can] or (now.can is was.can is not Can.NO and _shows_more(now, was)):
                yield Gain(reader=reader, before=was.can, now=now)

    def _readable(
        self, moment: Moment, owner: Subject, topic: str, users: frozenset[str] | None
    ) -> dict[Reader, Readable]:
        identities = {**self._identities, owner.user or "": owner.identity}
        readers = Readers.of_config(moment.config, owner, topic, moment.at, identities=identities)
        if users is not None:
            return {("user", user): readers.of(user) for user in users if user in moment.config.built.directory.users}
        found: dict[Reader, Readable] = {}
        for each in readers.classes():
            found |= dict.fromkeys((("user", user) for user in each.users), each.readable)
            found |= dict.fromkeys((("client", client) for client in each.clients), each.readable)
            found |= dict.fromkeys((("other", other) for other in each.others), each.readable)
        return found


def _shows_more(now: Readable, was: Readable) -> bool:
    if was.parts is None:
        return False
    return now.parts is None or not set(now.parts) <= set(was.parts)


def sample(filter: str) -> str:
    """A topic of a filter of which no other filter says more than one that covers this one."""
    levels = [LEVEL if level == "+" else level for level in filter.split("/")]
    return "/".join(levels if levels[-1] != "#" else [*levels[:-1], *[LEVEL] * DEEP])


def own_filters(config: Config, owner: Subject) -> list[str]:
    """The filters by which the rules make a difference among what somebody may publish, the widest first."""
    rules = config.built.rules
    written, read = ["#"], set[str]()
    if rules.policies is not None:
        written = _written(rules.policies, owner)
        read |= {"/".join(each.topic.levels) for each in rules.policies.policies if Action.READ in each.action}
    read |= {each.topic for each in rules.preferences.of(owner.user, owner.domain, owner.identity) if each.to is None}
    read |= {row.topic for row in rules.views.rows}
    found = dict.fromkeys(written)
    for filter in written:
        found |= dict.fromkeys(each for one in sorted(read) if (each := topics.intersection(filter, one)))
    return list(found)


def _written(policies: Policies, owner: Subject) -> list[str]:
    s = attributes_of(owner, policies.domain, policies.domains)
    outcomes = policies.considered_for(Action.WRITE, owner, "#", {"s": s})
    return [filter for policy, left in outcomes if left is not False and (filter := policy.topic.fill(s)) is not None]
