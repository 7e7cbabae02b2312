"""Who acts, as policies see it: the attributes in `s`.

The entity's own name stands in `client` whatever its kind: a client's identifier, a scope's name, `A->B` of a link, the
name of a service, the id of a monitor. `scope` is the event space it acts in; for a link, the scope on this side of it.

Invariants
- A built-in name always means the built-in: what the directory or a capability adds cannot stand in for it, not even
  where the built-in has no value (a client without a user has no `s.user`, whatever its attributes say).
- People, roles and groups of another domain, and those whose name holds an `@`, appear as `name@domain`, so nobody
  appears as somebody else. Clients of another domain do too. What is believed of that domain is the exception: see
  `domains`.

It does not find out who somebody is, nor look attributes up: see `directory`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from tidegate.policy.domains import NO_DOMAINS, Domains, believed, shown
from tidegate.predicate import Attributes

if TYPE_CHECKING:
    from tidegate.policy.capability import Capability
    from tidegate.policy.person import Person

TEXTS: Final = ("kind", "client", "user", "domain", "scope", "node", "level", "address", "listener")
LISTS: Final = ("facts", "roles", "groups")
BUILT_IN: Final = frozenset((*TEXTS, *LISTS, "role", "tls"))
"""Names in `s` that only the node itself gives."""

KINDS: Final = frozenset(("client", "scope", "link", "service", "monitor"))
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Subject:
    """Who is at the other end: the attributes in `s`. Built-in ones are fields, the directory's are in `attributes`.

    Compared by identity: one is made for each connection, and what is known of it is kept under it.
    """

    kind: str  # client, scope, link, service, monitor
    client: str
    user: str | None
    scope: str
    node: str
    domain: str = ""  # whose people the user is one of
    level: str = "plain"
    facts: tuple[str, ...] = ()  # besides the level, of its connection
    address: str = ""
    listener: str = ""
    roles: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    tls: Mapping[str, str] = field(default_factory=lambda: _NOTHING)  # version and cipher
    impostor: bool = False  # it uses the identifier of a client of the directory, and has not proved to be it
    certified: bool = False  # its certificate says who it is
    principal: str = ""  # what it authenticated as; empty: as its user, or as nobody in particular
    identity: str = ""  # the id of the user or client of the directory that it is; empty: it is none of them
    attributes: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
    capability: Capability | None = None  # what it came with, and may do at most
    person: Person | None = None  # whom an identity provider vouches for
    foreign: tuple[str, int] | None = None  # of a user of another domain: their id there, the number of preferences
    bridge: bool = False  # a broker that bridges, which says under its own name whether it is there

    @property
    def name(self) -> str:
        """As on the command line: `client:tr1`, `service:sys`."""
        return f"{self.kind}:{self.client}"

    @property
    def session(self) -> tuple[str, str | None, str, str]:
        """Whose session it is: a session belongs to a principal and a client identifier, in one scope."""
        return self.principal, self.user, self.client, self.scope

    @property
    def full_name(self) -> str:
        """The same with its user: `user:mary/client:tr1`; empty if it has no name."""
        if self.user is None:
            return f"{self.kind}:{self.client}" if self.client else ""
        return f"user:{self.user}/{self.kind}:{self.client}"


def in_list(name: str) -> str:
    """A name as it stands among others, with `, ` between them: clients choose theirs, and must not look like two."""
    return name.replace(", ", ",")


def state_topic(client: str) -> str:
    """Where a bridge says whether it is connected; empty if no topic can hold its name."""
    return "" if not client or {"/", "+", "#"} & set(client) else f"$SYS/broker/connection/{client}/state"


def attributes_of(actor: Subject, here: str, domains: Domains = NO_DOMAINS) -> dict[str, Any]:
    """The root `s` of predicates that were written in the domain `here`, which believes this of others."""
    seen = believed(actor, here, domains)
    roles = tuple(shown(*role, here) for role in seen.roles)
    s = {name: value for name, value in seen.attributes.items() if name not in BUILT_IN}
    s |= {
        "kind": actor.kind,
        "domain": actor.domain,
        "scope": actor.scope,
        "node": actor.node,
        "level": actor.level,
        "facts": actor.facts,
        "address": actor.address,
        "listener": actor.listener,
        "roles": roles,
        "groups": tuple(shown(*group, here) for group in seen.groups),
    }
    if not actor.impostor:
        # at home a client may be called anything, elsewhere nothing that a client there is called
        s["client"] = actor.client if actor.domain == here else f"{actor.client}@{actor.domain}"
    if seen.user is not None:
        s["user"] = shown(*seen.user, here)
    if roles:
        s["role"] = roles[0]
    if actor.tls:
        s["tls"] = actor.tls
    return s


Paths = tuple[tuple[str, ...], ...]


def paths_below(root: str, reads: Iterable[str]) -> Paths:
    """The paths below `root` among attributes that are read, in their order."""
    return tuple(tuple(path.split(".")[1:]) for path in sorted(reads) if path.partition(".")[0] == root)


def facets(attributes: Attributes, paths: Paths) -> Hashable:
    """What stands at these paths, so that attributes which they cannot tell apart are equal."""
    return tuple(frozen(_reached(attributes, path)) for path in paths)


class _Absent:
    """Stands for an attribute that is not there, which is a value like any other to tell subjects apart by."""


def _reached(attributes: object, path: tuple[str, ...]) -> object:
    value = attributes
    for name in path:
        try:
            value = value[name]  # type: ignore[index]
        except (KeyError, TypeError, IndexError):
            return _Absent
    return value


def frozen(value: object) -> Hashable:
    """A value that can be hashed, and that tells 1, 1.0 and true apart as predicates do."""
    match value:
        case str():
            return value
        case Mapping():
            return ("map", frozenset((frozen(key), frozen(item)) for key, item in value.items()))
        case list() | tuple():
            return ("list", *map(frozen, value))
        case Hashable():
            return (type(value), value)
        case _:
            return (type(value), id(value))
