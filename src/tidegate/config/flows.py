"""Flows in the configuration: what must not be possible, and what must be.

The texts are parsed here. `violations` checks them against a configuration in which nothing else is wrong, and says
which of them do not hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

from tidegate import policy
from tidegate.config.policies import parses
from tidegate.config.problems import DocumentPath, Finding
from tidegate.config.section import Section
from tidegate.config.units import Switch
from tidegate.flow.assertions import Assertion, Expect
from tidegate.flow.presence import Presence
from tidegate.flow.watch import violated
from tidegate.policy.brokering import Brokering
from tidegate.policy.scopes import Role, ScopeGraph
from tidegate.session import Subject

if TYPE_CHECKING:
    from tidegate.config.model import Config

_REMEDY: Final = {
    Expect.FORBID: "take one of these links away, give it another type, or allow less in `brokering`",
    Expect.REQUIRE: "add a link, give one another type, or allow more in `brokering`",
}


class Topology(StrEnum):
    """What links between nodes may form."""

    ANY = "any"
    FOREST = "forest"


class Flows(Section):
    """What must not flow, and what must be able to."""

    forbid: tuple[Annotated[str, parses(lambda _, text: Assertion.parse(text, Expect.FORBID))], ...] = ()
    """Flows that must not be possible, such as `client:MD -> scope:internet`. A configuration that opens one is
    refused, and the route is shown."""
    require: tuple[Annotated[str, parses(lambda _, text: Assertion.parse(text, Expect.REQUIRE))], ...] = ()
    """Flows that must be possible."""
    topology: Topology = Topology.ANY
    """What links between nodes may form. `forest`: one that would be a second way from a scope to another one, over
    whichever nodes, does not open."""
    paths: Switch = False
    """Whether devices on the way count, which may tell what they have read. Default: only scopes are on the way."""

    def written(self) -> Iterator[tuple[DocumentPath, Assertion]]:
        """All assertions with their paths, forbidden flows first."""
        for expect, texts in ((Expect.FORBID, self.forbid), (Expect.REQUIRE, self.require)):
            for index, text in enumerate(texts):
                yield ("flows", expect.value, index), Assertion.parse(text, expect, paths=self.paths)


def violations(config: Config) -> Iterator[Finding]:
    """Assertions that the scopes, links and clients of the directory break."""
    built = config.built
    paths: dict[Assertion, DocumentPath] = {}
    for path, assertion in config.flows.written():
        paths.setdefault(assertion, path)
    for violation in violated(built.rules.space, built.rules.brokering, built.presences, built.flows):
        assertion = violation.assertion
        yield paths[assertion], f"does not hold: {violation}; {_REMEDY[assertion.expect]}"


def presences(
    config: Config, directory: policy.Directory, brokering: Brokering, joined: ScopeGraph
) -> Iterator[Presence]:
    """Each client of the directory, at each scope that it may connect to."""
    entered = tuple(dict.fromkeys(listener.scope for listener in config.listeners))
    for name, entry in directory.clients.items():
        known = directory.known(user=entry.user, client=name, as_client=entry.user is None)
        actor = Subject(
            kind="client",
            client=name,
            user=known.user,
            scope="",
            node=config.node.name,
            domain=directory.domain,
            roles=known.roles,
            groups=known.groups,
            attributes=known.attributes,
        )
        if brokering.objection(actor):
            continue
        types = brokering.types(actor)
        for scope in entry.scopes or entered:
            placed = joined.place(scope, known.roles)
            if isinstance(placed, Role):
                yield Presence(
                    client=actor.name,
                    enters=placed.publishing,
                    leaves=placed.receiving,
                    inward=types.inward,
                    outward=types.outward,
                )
