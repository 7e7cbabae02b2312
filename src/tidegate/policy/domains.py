"""What is believed of people of other domains (semantics, *Identity*).

A user, role or group belongs to a domain. Policies name those of the domain that they were written in by their bare
name, and those of others as `name@domain`. `trust.domains` says what a domain believes of another one: that its users,
roles or groups are the same as some here, and which of its attributes count.

Invariants
- Nothing is believed by default.
- What is believed of one domain says nothing of another.
- Nobody appears as somebody else, unless `trust.domains` says so.

It does not find out which domain somebody is of: `scope/subjects.py` does. The default, the name of the node, is in
`config/model.py` (`Node`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidegate.errors import ConfigError

if TYPE_CHECKING:
    from tidegate.policy.subject import Subject

_NOBODY: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """What is believed of one other domain."""

    nodes: tuple[str, ...] = ()
    """Nodes of that domain: their links speak for it."""
    through: tuple[str, ...] = ()
    """Nodes of other domains whose links may speak for it too."""
    users: Mapping[str, str] = field(default_factory=lambda: _NOBODY)
    """Users there, and the user here that each of them is."""
    roles: Mapping[str, str] = field(default_factory=lambda: _NOBODY)
    """Roles there, and the role here that each of them is."""
    groups: Mapping[str, str] = field(default_factory=lambda: _NOBODY)
    """Groups there, and the group here that each of them is."""
    attributes: tuple[str, ...] = ()
    """Attributes of people there that count."""
    provider: bool = False
    """An identity provider of this node vouches for its people: what they publish here has no other home."""

    @property
    def plain(self) -> dict[str, Any]:
        """What is believed, as plain data; which nodes speak for the domain is known to this node only."""
        kept = {"users": dict(self.users), "roles": dict(self.roles), "groups": dict(self.groups)}
        data: dict[str, Any] = {name: names for name, names in kept.items() if names}
        return data | ({"attributes": list(self.attributes)} if self.attributes else {})


Domains = Mapping[str, Domain]
NO_DOMAINS: Final[Domains] = MappingProxyType({})
"""Nothing is believed of anybody elsewhere."""
_UNKNOWN: Final = Domain()


def spoken_for(name: str, domains: Domains) -> frozenset[str]:
    """The domains whose people a node may speak of, by the name in its certificate."""
    return frozenset(domain for domain, known in domains.items() if name in known.nodes or name in known.through)


MAX_NAMES: Final = 1_000
"""Names and attributes that may come from another node with what its domain believes."""


def domains_of(data: object) -> Domains:
    """From plain data of another node. ConfigError if it is none."""
    domains: dict[str, Domain] = {}
    names = 0
    for home, plain in _entries(data):
        if not isinstance(plain, Mapping) or not plain.keys() <= {"users", "roles", "groups", "attributes"}:
            raise ConfigError("`domains` says what is believed of each domain")
        users, roles, groups = (dict(_names(plain.get(key, {}))) for key in ("users", "roles", "groups"))
        attributes = plain.get("attributes", [])
        if not isinstance(attributes, list) or not all(isinstance(each, str) for each in attributes):
            raise ConfigError("`attributes` is a list of names")
        names += 1 + len(users) + len(roles) + len(groups) + len(attributes)
        domains[home] = Domain(users=users, roles=roles, groups=groups, attributes=tuple(attributes))
    if names > MAX_NAMES:
        raise ConfigError(f"`domains` has more than {MAX_NAMES} names")
    return MappingProxyType(domains)


def _entries(data: object) -> Iterator[tuple[str, object]]:
    if not isinstance(data, Mapping):
        raise ConfigError("`domains`, `users`, `roles` and `groups` are mappings")
    for name, value in data.items():
        if not isinstance(name, str):
            raise ConfigError("names are texts")
        yield name, value


def _names(data: object) -> Iterator[tuple[str, str]]:
    for there, here in _entries(data):
        if not isinstance(here, str):
            raise ConfigError("names are texts")
        yield there, here


class Name(NamedTuple):
    """A user, role or group, and the domain that it belongs to."""

    name: str
    domain: str


def shown(name: str, domain: str, here: str) -> str:
    """A user, role or group as policies of the domain `here` write it. One with an `@` is qualified at home too."""
    return name if domain == here and "@" not in name else f"{name}@{domain}"


class Believed(NamedTuple):
    """A subject as policies of some domain see it."""

    user: Name | None
    roles: tuple[Name, ...]
    groups: tuple[Name, ...]
    attributes: Mapping[str, Any]


def believed(subject: Subject, here: str, domains: Domains = NO_DOMAINS) -> Believed:
    """What policies of the domain `here`, which believes this of other domains, see of a subject."""
    home = subject.domain
    if home == here:
        return Believed(
            None if subject.user is None else Name(subject.user, home),
            tuple(Name(role, home) for role in subject.roles),
            tuple(Name(group, home) for group in subject.groups),
            subject.attributes,
        )
    domain = domains.get(home, _UNKNOWN)

    def name(foreign: str, same: Mapping[str, str]) -> Name:
        return Name(same[foreign], here) if foreign in same else Name(foreign, home)

    return Believed(
        None if subject.user is None else name(subject.user, domain.users),
        tuple(name(role, domain.roles) for role in subject.roles),
        tuple(name(group, domain.groups) for group in subject.groups),
        {key: value for key, value in subject.attributes.items() if key in domain.attributes},
    )
