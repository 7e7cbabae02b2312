"""Who a session's client is: its subject under the rules in force, and whether it may be connected here; and who a
service of this node is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tidegate.policy import Demand
from tidegate.policy.scopes import Role
from tidegate.scope.authenticator import ANONYMOUS, Authenticator, Identity, Refused
from tidegate.session import Link, LinkSession, Session, Subject

if TYPE_CHECKING:
    from tidegate.scope.scope import Scope


def service_subject(scope: Scope, name: str) -> Subject:
    """A service of this node in a scope: it acts inside, at the highest level and with all facts."""
    rules = scope.gate.rules
    return Subject(
        kind="service",
        client=name,
        user=None,
        scope=scope.name,
        node=scope.node,
        domain=rules.domain,
        level=rules.levels.highest,
        facts=rules.levels.facts,
    )


class Subjects:
    """The subjects of one scope's sessions."""

    def __init__(self, scope: Scope, authenticator: Authenticator) -> None:
        self.scope = scope
        self.site = scope.site
        self.authenticator = authenticator
        self.identified: Callable[[Session], None] = lambda session: None  # told whose subject has been found

    def subject(self, identity: Identity, *, client: str, address: str, listener: str, bridge: bool = False) -> Subject:
        return Subject(
            kind="client",
            client=client,
            user=identity.user,
            scope=self.scope.name,
            node=self.scope.node,
            domain=self._domain(identity),
            level=identity.level,
            facts=identity.facts,
            address=address,
            listener=listener,
            roles=identity.roles,
            groups=identity.groups,
            tls=identity.tls,
            impostor=identity.impostor,
            certified=identity.certified,
            principal="" if identity.principal in (ANONYMOUS, f"user:{identity.user}") else identity.principal,
            attributes=identity.attributes,
            capability=identity.capability,
            person=identity.person,
            identity=identity.id,
            bridge=bridge,
            foreign=None if identity.vouched is None else identity.vouched.owner,
        )

    def _domain(self, identity: Identity) -> str:
        if identity.person is not None:
            return identity.person.provider
        return self.scope.gate.rules.domain if identity.vouched is None else identity.vouched.domain

    def own_roles(self, whose: Identity | Subject) -> tuple[str, ...]:
        """The roles that somebody has in this domain: of those that an identity provider says, only what the file says
        they are here."""
        if whose.person is None:
            return whose.roles
        domain = self.scope.gate.rules.domains.get(whose.person.provider)
        return () if domain is None else tuple(domain.roles[role] for role in whose.roles if role in domain.roles)

    def identify(self, session: Session, subject: Subject, demand: Demand | None) -> None:
        """Who a session's client is, and what it demands, under the rules in force."""
        types = self.scope.gate.rules.brokering.types(subject)
        context = self.scope.gate.context(Link(subject, True, types.inward, demand))
        old = session.subject
        session.identify(subject, demand, context.encode(), types, self.scope.entrance.name)
        session.generation = self.site.generation
        self.identified(session)
        self.scope.publishers.came(session, old)
        if subject.foreign is not None and self.scope.node_links is not None:
            self.scope.node_links.owners.foreign.came(session)
        self.scope.path.monitoring.states.attach(session)

    def objection(self, identity: Identity, subject: Subject) -> str:
        """Why a client may not be connected here; empty if it may."""
        if identity.scopes and self.front not in identity.scopes:
            return f"you may not connect to the scope {self.front}"
        if self.front != self.scope.name:
            placed = self.scope.gate.rules.space.role(self.front, self.own_roles(subject))
            if not isinstance(placed, Role):
                return placed or ""
            if placed.receiving != self.scope.name:
                return "brokering: you have another role now; connect again"
        return self.scope.gate.rules.brokering.objection(subject)

    def fresh(self, session: Session) -> bool:
        """Brings a session's subject up to the rules in force; False if its access has been withdrawn."""
        return session.generation == self.site.generation or self.reauthorize(session) is None

    def reauthorize(self, session: Session) -> Refused | None:
        """Why a session's access has been withdrawn; None if it has not, and then its subject is up to date."""
        if session.generation == self.site.generation or isinstance(session, LinkSession):
            return None  # a link is brought up to the rules with them
        identity = self.authenticator.reauthorize(session)
        if isinstance(identity, Refused):
            return identity
        old = session.subject
        subject = self.subject(
            identity, client=session.client, address=old.address, listener=old.listener, bridge=old.bridge
        )
        if objection := self.objection(identity, subject):
            return Refused(text=objection)
        self.identify(session, subject, session.inward.demand)
        return None

    def another(self, session: Session, subject: Subject) -> bool:
        """Whether a session belongs to somebody else who had the name of this subject."""
        before = session.subject.identity
        return before != subject.identity and (bool(before) or subject.user is not None)

    @property
    def front(self) -> str:
        """The scope that its clients connect to: with roles, the bus."""
        return self.scope.gate.rules.space.bus if self.scope.entrance is not self.scope else self.scope.name
