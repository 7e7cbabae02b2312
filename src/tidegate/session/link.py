"""Who acts, and over which directed link.

A client's connection is two links: `client:X->scope:S`, over which it publishes, and `scope:S->client:X`, over which
it receives. Both have the same subject.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from tidegate.policy import Demand
from tidegate.policy.capability import Capability

_NOTHING: Mapping[str, Any] = MappingProxyType({})


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
    address: str = ""
    listener: str = ""
    roles: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    tls: Mapping[str, str] = field(default_factory=lambda: _NOTHING)  # version and cipher
    impostor: bool = False  # it uses the identifier of a client of the directory, and has not proved to be it
    principal: str = ""  # what it authenticated as, if that is no user; empty: nobody in particular
    attributes: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
    capability: Capability | None = None  # what it came with, and may do at most

    @property
    def name(self) -> str:
        """As on the command line: `client:tr1`, `service:sys`."""
        return f"{self.kind}:{self.client}"


class Link:
    """A directed pair of entities. Every hop of a message crosses one. Two per connection, so it is kept small."""

    __slots__ = ("demand", "inward", "scope", "subject", "type")

    def __init__(
        self, subject: Subject, inward: bool, type: str, demand: Demand | None = None, scope: str | None = None
    ) -> None:
        self.subject = subject
        self.scope = subject.scope if scope is None else scope
        self.inward = inward  # towards the scope
        self.type = type
        self.demand = demand  # what CONNECT demanded for everything after; None: it said nothing

    @property
    def source(self) -> str:
        return self.subject.name if self.inward else f"scope:{self.scope}"

    @property
    def target(self) -> str:
        return f"scope:{self.scope}" if self.inward else self.subject.name

    def __str__(self) -> str:
        return f"{self.source}->{self.target}"


class ScopeLinkEnd(Link):
    """One end of a link between two scopes: where it leaves the one, or where it enters the other (`inward`).

    Its subject is the link itself, acting in the scope at this end.
    """

    __slots__ = ()

    @property
    def source(self) -> str:
        return f"scope:{self.subject.client.partition('->')[0]}"

    @property
    def target(self) -> str:
        return f"scope:{self.subject.client.partition('->')[2]}"
