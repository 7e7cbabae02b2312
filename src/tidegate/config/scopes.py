"""From the checked configuration to the scopes and links that run: the space, and who is where."""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType
from typing import TYPE_CHECKING

from tidegate import policy
from tidegate.config.link_types import link_types
from tidegate.config.links import directed_links, scope_names
from tidegate.config.parser import Parser
from tidegate.flow.presence import Presence
from tidegate.policy.brokering import UNTYPED, Brokering
from tidegate.policy.scopes import Role, ScopeGraph, ScopeLink, Way
from tidegate.session import Subject

if TYPE_CHECKING:
    from tidegate.config.model import Config


def space(config: Config, parser: Parser) -> ScopeGraph:
    """The scopes and their links."""
    types = link_types(config)
    links = tuple(
        ScopeLink(
            source=joint.source,
            target=joint.target,
            type=types[joint.name] or UNTYPED,
            way=joint.way,
            shares=joint.crossings(parser),
            back=joint.crossings(parser, back=True),
        )
        for joint in directed_links(config)
    )
    parents: dict[str, tuple[str, ...]] = {}
    for link in links:
        if link.way is Way.UP:
            parents[link.source] = (*parents.get(link.source, ()), link.target)
    roles = config.brokering.expanded.items()
    return ScopeGraph(
        scopes=scope_names(config),
        parents=MappingProxyType(parents),
        links=links,
        roles=MappingProxyType({name: Role(publishing=pub, receiving=sub) for name, (pub, sub) in roles}),
        bus=config.brokering.bus or "",
    )


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
