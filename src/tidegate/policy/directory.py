"""The directory: users, clients, roles and groups, and what is known of an identity.

An identity has what its roles, then its groups, then its user, then its client say, the later winning; of several roles
or groups the first wins.

Invariants
- No entry can set a built-in name of `s` (semantics, *Attributes*): that is refused when it is loaded.
- A client's entry applies only to a connection authenticated for that client, not to one that merely uses its name.

It knows no passwords and authenticates nobody.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from tidegate.errors import ConfigError
from tidegate.policy.selector import Term
from tidegate.policy.subject import BUILT_IN


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What the directory says of a user or a client. `user` is whose client it is."""

    user: str | None = None
    roles: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    scopes: tuple[str, ...] = ()
    """Of a client: the scopes that it may connect to; none: all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    user: str | None
    roles: tuple[str, ...]
    groups: tuple[str, ...]
    attributes: Mapping[str, Any]
    impostor: bool = False
    """It uses the name of a client of the directory, and is not authenticated for it."""
    scopes: tuple[str, ...] = ()
    """Whoever uses that name may connect to these only; none: to all."""


def check_attributes(names: Iterable[str], where: str) -> None:
    """ConfigError if one of the names could not be, or must not be, an attribute of a subject."""
    for name in names:
        if name in BUILT_IN:
            raise ConfigError(f"{where} sets `{name}`, which only the node itself sets: call it otherwise")
        if not name.isidentifier():
            raise ConfigError(f"{where} sets `{name}`, which cannot be read as `s.{name}`: use letters, digits and `_`")


class Directory:
    """Everybody whom the node knows, as one immutable value."""

    def __init__(
        self,
        *,
        users: Mapping[str, Entry] | None = None,
        clients: Mapping[str, Entry] | None = None,
        roles: Mapping[str, Mapping[str, Any]] | None = None,
        groups: Mapping[str, Mapping[str, Any]] | None = None,
        domain: str = "",
    ) -> None:
        self.users = dict(users or {})
        self.clients = dict(clients or {})
        self.roles = dict(roles or {})
        self.groups = dict(groups or {})
        self.domain = domain
        for name, entry in self.users.items():
            if not name or "@" in name:
                raise ConfigError(f"a user cannot be called `{name}`: `@` stands between a name and its domain")
            check_attributes(entry.attributes, f"user `{name}`")
        for name, entry in self.clients.items():
            if entry.user is not None and entry.user not in self.users:
                raise ConfigError(f"client `{name}` is of `{entry.user}`, who is no user")
            check_attributes(entry.attributes, f"client `{name}`")
        for name, attributes in self.roles.items():
            check_attributes(attributes, f"role `{name}`")
        for name, attributes in self.groups.items():
            check_attributes(attributes, f"group `{name}`")

    def known(
        self,
        *,
        user: str | None = None,
        client: str | None = None,
        as_client: bool = False,
        roles: tuple[str, ...] = (),
        groups: tuple[str, ...] = (),
    ) -> Known:
        """What is known of a connection that authenticated as `user`, or `as_client` for the client itself.

        A user is authenticated for the clients that the directory gives it. `roles` and `groups` were granted to it by
        others; they come after its own.
        """
        entry = None if client is None else self.clients.get(client)
        impostor = False
        scopes = () if entry is None else entry.scopes
        if entry is not None:
            own = as_client if user is None else entry.user == user or (as_client and entry.user is None)
            impostor = not own
            entry = entry if own else None
        if entry is not None:
            user = entry.user if user is None else user
        person = None if user is None else self.users.get(user)
        entries = [each for each in (person, entry) if each is not None]
        roles = _distinct((*(role for each in entries for role in each.roles), *roles))
        groups = _distinct((*(group for each in entries for group in each.groups), *groups))
        attributes: dict[str, Any] = {}
        for role in reversed(roles):
            attributes |= self.roles.get(role, {})
        for group in reversed(groups):
            attributes |= self.groups.get(group, {})
        for each in entries:
            attributes |= each.attributes
        known = MappingProxyType(attributes)
        return Known(user=user, roles=roles, groups=groups, attributes=known, impostor=impostor, scopes=scopes)

    def terms(self) -> frozenset[Term]:
        """The users, roles and groups that exist, for warnings about rules that speak of others."""
        entries = [*self.users.values(), *self.clients.values()]
        roles = {*self.roles, *(role for entry in entries for role in entry.roles)}
        groups = {*self.groups, *(group for entry in entries for group in entry.groups)}
        named = (("user", self.users), ("role", roles), ("group", groups))
        return frozenset(Term(sort, name, self.domain) for sort, names in named for name in names)


def _distinct(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
