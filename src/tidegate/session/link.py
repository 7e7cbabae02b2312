"""Over which directed link somebody acts.

A client's connection is two links: `client:X->scope:S`, over which it publishes, and `scope:S->client:X`, over which
it receives. Both have the same subject.
"""

from __future__ import annotations

from tidegate.policy import Demand, Subject


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
