"""What is believed of people of other domains (semantics, *Identity*).

A user, role or group belongs to a domain. Policies name those of the domain that they were written in by their bare
name, and those of others as `name@domain`. `trust.domains` says what a domain believes of another one: that its users,
roles or groups are the same as some here, and which of its attributes count.

Invariants
- Nothing is believed by default.
- What is believed of one domain says nothing of another.

It does not find out which domain somebody is of.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

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


Domains = Mapping[str, Domain]
NO_DOMAINS: Final[Domains] = MappingProxyType({})
"""Nothing is believed of anybody elsewhere."""
_UNKNOWN: Final = Domain()


class Name(NamedTuple):
    """A user, role or group, and the domain that it belongs to."""

    name: str
    domain: str

    def shown(self, here: str) -> str:
        """As policies of the domain `here` write it. One that holds an `@` is qualified at home too."""
        return self.name if self.domain == here and "@" not in self.name else f"{self.name}@{self.domain}"


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
