"""Who somebody of the directory is at a scope, when they come over the HTTP interface instead of over MQTT."""

from __future__ import annotations

from typing import Final, Protocol

from tidegate.admin.identities import NodeIdentities
from tidegate.config import Config
from tidegate.errors import Problem
from tidegate.policy import Transport
from tidegate.policy.capability import Capability
from tidegate.policy.scopes import Role as Placed
from tidegate.scope import Realm, Scope
from tidegate.scope.authenticator import ANONYMOUS, Identity
from tidegate.session import Subject

HTTP: Final = "http"
"""How their listener is called."""


class HttpNode(Protocol):
    """What is needed of a node."""

    config: Config
    realm: Realm
    identities: NodeIdentities


def http_subject(
    node: HttpNode,
    user: str,
    *,
    client: str,
    address: str,
    level: str,
    at: str | None = None,
    capability: Capability | None = None,
) -> tuple[Scope, Subject]:
    """The scope that they are in, and who they are there, by the directory and the rules in force.

    `at`: the scope that they come to; None: that of the first listener. A Problem if they may not come there.
    """
    config, realm = node.config, node.realm
    scope, rules = realm.scope(at or config.listeners[0].scope), realm.rules
    known = config.built.directory.known(
        user=user,
        client=client,
        roles=() if capability is None else capability.roles,
        groups=() if capability is None else capability.groups,
    )
    placed = rules.space.role(scope.name, known.roles)
    if isinstance(placed, Placed):
        scope = realm.scope(placed.receiving)
    elif placed:
        raise _not_here(placed)
    identity = Identity(
        principal=f"user:{user}" if known.user is not None else ANONYMOUS,
        user=known.user,
        roles=known.roles,
        groups=known.groups,
        attributes=known.attributes if capability is None else {**capability.attributes, **known.attributes},
        level=level,
        facts=rules.levels.facts_of(Transport.over_http(HTTP, address, level)),
        impostor=known.impostor,
        capability=capability,
        scopes=known.scopes,
        id="" if known.user is None else node.identities.owner(known.user),
    )
    subject = scope.subjects.subject(identity, client=client, address=address, listener=HTTP)
    if objection := scope.subjects.objection(identity, subject):
        raise _not_here(objection)
    return scope, subject


def _not_here(why: str) -> Problem:
    return Problem(why, problem="denied", details=[{"rule": "connect", "stage": "connect"}])
