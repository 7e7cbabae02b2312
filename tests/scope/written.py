"""Worlds from the text of a configuration, people with roles, and an audit that can be read."""

from __future__ import annotations

from textwrap import dedent
from typing import Any

from pure import Anybody, World
from tidegate import wire
from tidegate.config import parse
from tidegate.gate import Deny, Lane, Plan, RuleSet
from tidegate.scope import Identity, Refused
from tidegate.scope.authenticator import Answer
from tidegate.scope.decision_reports import Silent
from tidegate.session import Connection, Link, Session

HEAD = """
version: 1
node: {name: n}
listeners: [{url: "mqtt://127.0.0.1:1883", scope: a, anonymous: true}]
"""


def rules(text: str, *, policies: str = "open") -> RuleSet:
    """The rules of a configuration without its head; there is a scope `a` in all of them."""
    said = "" if "policies:" in text else f"policies: {policies}\n"
    return parse(HEAD + said + dedent(text), "tidegate.yaml").built.rules


def written(text: str, **fields: Any) -> World:
    world = World(rules=rules(text), **fields)
    world.heard = Recording()  # type: ignore[attr-defined]
    for scope in world.realm.scopes.values():
        scope.audit = world.heard  # type: ignore[attr-defined]
    return world


class Recording(Silent):
    """Remembers what was denied: the action, the link, the topic and the rule."""

    def __init__(self) -> None:
        self.denials: list[tuple[str, str, str, str]] = []

    def denied(
        self, action: str, link: Link, topic: str, why: Deny, publishers: str | None = None, message: object = None
    ) -> None:
        self.denials.append((action, str(link), topic, why.rule))

    def compiled(self, lane: Lane, plan: Plan) -> None:
        self.denials += [("plan", str(link), plan.topic, why.rule) for link, why in plan.denied]


class Roles(Anybody):
    """Everybody has the roles that are listed under the name."""

    def __init__(self, **roles: str) -> None:
        self.roles = roles

    def authenticate(self, connection: Connection, packet: wire.Connect, answer: Answer) -> None:
        answer(self._known(packet.username))

    def reauthorize(self, session: Session) -> Identity | Refused:
        return self._known(session.subject.user)

    def _known(self, user: str | None) -> Identity:
        held = tuple(self.roles.get(user or "", "").split())
        return Identity(principal=user or "anonymous", user=user, roles=held)
