"""Who a client is: by user name and password, by its certificate, by a capability, or anonymous where the listener
says so.

A client that offers credentials is judged by them alone: a wrong password does not become anonymous. Only where
nobody is known at all (no `directory.users`) does an anonymous listener take whatever is offered, as other brokers do,
and then it is as nobody in particular.

A capability is shown beside other credentials, and must then be for the same person and client, or instead of any
(`presented_capabilities`). One that is wrong refuses the connection, whatever else is right.

A user who registered without an administrator chose the name freely. So nothing but that user's own password speaks
for it: a certificate of that name is a certificate, and a capability or a method that says so is refused. The other way
round, a name that others have vouched for is not for whoever registers it (`names`).
"""

from __future__ import annotations

import importlib
import ssl
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial

from tidegate.authentication import bearer_tokens, federated_identity, presented_capabilities
from tidegate.authentication.certified_name import certified_name
from tidegate.authentication.logged_refusals import LoggedRefusals
from tidegate.authentication.names import Names
from tidegate.authentication.password_changes import PasswordChanges
from tidegate.authentication.passwords import Outcome, Passwords
from tidegate.authentication.presented_capabilities import NEEDED, refusal
from tidegate.config import Config
from tidegate.config.directory import self_registered
from tidegate.errors import ConfigError
from tidegate.policy import Close, Transport, judged
from tidegate.policy.capability import METHOD, Accepts, Capability
from tidegate.policy.identities import BACKDATED, CLIENT, USER, Identities
from tidegate.policy.person import Person
from tidegate.policy.revocation import REVOKED, PeerCertificate, Revocation
from tidegate.policy.trust_list import By, Trust, Trusted, common_name, is_fingerprint, subject_text
from tidegate.scope import Exchange, Identity, Refused
from tidegate.scope.authenticator import ANONYMOUS, Answer
from tidegate.scope.certificate_requests import CertificateRequests
from tidegate.scope.link_greeting import Peer
from tidegate.session import Connection, Phase, Session, Site
from tidegate.wire import V5, Connect, Reason

CERTIFICATE = "certificate:"  # before the name in the certificate, the principal of whoever is no user

Method = Callable[[Connection, Connect], Exchange]

_REFUSALS = {
    Outcome.REFUSED: Refused(reason=Reason.BAD_USER_NAME_OR_PASSWORD),
    Outcome.BUSY: Refused(reason=Reason.SERVER_BUSY, text="too many logins at once; try again"),
    Outcome.LIMITED: Refused(reason=Reason.CONNECTION_RATE_EXCEEDED, text="too many failed attempts; wait a minute"),
}


WITHDRAWN = Refused(text="your access has been withdrawn")
ENDED = replace(WITHDRAWN, ended=True)
OFF_LIST = Refused(text="your certificate is not on the trust list any more")
TAKEN = Refused(text="somebody else has that name here; ask an administrator")


@dataclass(frozen=True, slots=True)
class _NoExchange:
    """An exchange that is over before it has begun (scope.Exchange)."""

    why: Refused

    def step(self, data: bytes | None) -> Refused:
        return self.why


class Authentication:
    """The authenticator of a node (scope.Authenticator), and what is known of those it lets in."""

    def __init__(
        self,
        config: Config,
        passwords: Passwords,
        register: presented_capabilities.Register | None = None,
        accepts: Accepts | None = None,
        identities: Identities | None = None,
        revocation: Revocation | None = None,
        names: Names | None = None,
    ) -> None:
        """`accepts`: which capabilities are taken, with the keys that had to be fetched. `revocation`: certificates
        that count no more. `names`: those that others have vouched for."""
        self.names = Names() if names is None else names
        self.revocation = Revocation() if revocation is None else revocation
        self.identities = Identities() if identities is None else identities
        self.users = config.directory.users
        self.asking_brokers = asking_brokers(config)
        self.built = config.built
        self._users_of = users_of_listeners(config)
        self.accepts = accepts
        self._register = register or presented_capabilities.Register()
        self._passwords = passwords
        self._methods = {name: load_method(name, place) for name, place in config.authentication.methods.items()}
        self.password_changes = PasswordChanges()
        self.bearers: bearer_tokens.BearerTokens | None = None  # tokens of issuers; None: none are taken
        self.has_session: Callable[[str, str], bool] = lambda principal, client: False
        """Whether there is a session of this principal with this client identifier, in any scope."""
        self.certificates: CertificateRequests | None = None  # whom neighbours vouch for; None: nobody is asked
        self._logged = LoggedRefusals()

    def authenticate(self, connection: Connection, packet: Connect, answer: Answer) -> None:
        unknown = self._unknown(connection)
        if unknown is None or self.certificates is None:
            self._authenticate(connection, packet, answer)
            return

        def asked() -> None:
            if connection.phase is Phase.WAITING:
                connection.site.open()
                self._authenticate(connection, packet, answer)

        self.certificates.ask(unknown, asked)

    def _unknown(self, connection: Connection) -> bytes | None:
        """The certificate of a connection that neighbours are to be asked about; None: there is none."""
        trust, shown = self.built.trust, (connection.certificate or {}).get("verified")
        if trust is None or not trust.asks or shown is None or self.certificates is None:
            return None
        listed = isinstance(trust.judge(shown.der), Trusted)
        if listed or self.certificates.vouched(shown.der) is not None or not common_name(shown.der):
            return None
        site = connection.site
        refused = self.revocation.refuses(shown, connection.listener.name, site.wall, site.steady)
        return None if refused else shown.der

    def _authenticate(self, connection: Connection, packet: Connect, answer: Answer) -> None:
        transport = self._transport(connection)
        if isinstance(transport, Refused):
            answer(transport)
            return
        anonymous = bool(getattr(connection.listener, "anonymous", False))
        users = self.users
        name = packet.username
        if self.bearers is not None and (shown := bearer_tokens.token_in(packet, self.bearers.providers)) is not None:
            self.bearers.find(connection, packet, shown, lambda found: answer(self._person(connection, found)))
            return
        token = presented_capabilities.token_in(packet, self.accepts)
        if isinstance(token, Refused):
            answer(token)
        elif token is not None and token.password:
            answer(self._admitted(connection, packet, token, transport))
        elif name is not None and (users or not anonymous):
            user = users.get(name)
            stored = user.password if user is not None else None
            identity = self.identities.id(USER, name)

            def verified(outcome: Outcome) -> None:
                now = self.users.get(name)
                kept = now is not None and self.password_changes.same(name, stored, now.password)
                same = kept and self.identities.id(USER, name) == identity
                if outcome is Outcome.ACCEPTED and not same:
                    outcome = Outcome.REFUSED  # it was withdrawn while the password was verified
                transport = self._transport(connection)  # the levels or the list may have changed meanwhile, too
                if isinstance(transport, Refused):
                    answer(transport)
                elif outcome is Outcome.ACCEPTED and self.displaced(name):
                    answer(self._taken(name))
                elif outcome is Outcome.ACCEPTED:
                    answer(self._admitted(connection, packet, token, transport, f"user:{name}", name))
                else:
                    self._logged.login(name, connection.address, outcome)
                    answer(_REFUSALS[outcome])

            self._passwords.verify(
                name,
                packet.password or b"",
                stored,
                connection.address,
                verified,
                client=packet.client_id,
                session=self.has_session(f"user:{name}", packet.client_id),
            )
        elif transport.vouched is not None:
            principal = federated_identity.principal_of(transport.vouched)
            answer(self._admitted(connection, packet, token, transport, principal, certified=True))
        elif (certified := certified_name(connection, transport)) is not None:
            user_name = certified if certified in users and not self._self_registered(certified) else None
            principal = f"user:{user_name}" if user_name else f"{CERTIFICATE}{certified}"
            if (outdated := self._outdated(connection, certified)) is not None:
                answer(outdated)
            else:
                answer(self._admitted(connection, packet, token, transport, principal, user_name, certified=True))
        elif token is not None or anonymous:
            answer(self._admitted(connection, packet, token, transport))
        else:
            answer(Refused(reason=Reason.NOT_AUTHORIZED, text="this listener wants to know who you are"))

    def _transport(self, connection: Connection, peer: str | None = None) -> Transport | Refused:
        """What is known of a connection, after the trust list was asked; refused if that closes it.

        `peer`: the certificate that a link to another node expects; no other is accepted then.
        """
        tls, transport = connection.certificate, _encryption(connection)
        if tls is None:
            return transport
        transport = replace(transport, certificate=tls["certificate"] is not None)
        trust = self.built.trust if peer is None else _only(peer)
        return self._judged(transport, tls["verified"], connection.site, trust)

    def _judged(
        self, transport: Transport, shown: PeerCertificate | None, site: Site, trust: Trust | None
    ) -> Transport | Refused:
        """What is known of a TLS peer after its certificate was looked up."""
        why = "" if shown is None else self.revocation.refuses(shown, transport.listener, site.wall, site.steady)
        if why:
            return Refused(text=f"the certificate is not accepted: {why}", ended=why == REVOKED)
        if trust is None:
            return transport
        outcome = trust.judge(None if shown is None else shown.der)
        if shown is not None and trust.asks and self.certificates is not None and not isinstance(outcome, Trusted):
            word = self.certificates.vouched(shown.der)
            if word is not None:
                return replace(judged(transport, Trusted(word.domain)), vouched=word)
        if isinstance(outcome, Close):
            return Refused(text=f"not trusted: {outcome.reason}")
        return judged(transport, outcome)

    def peer(self, connection: Connection, expected: str | None, plain: bool = False) -> Peer | Refused:
        shown: PeerCertificate | None = (connection.certificate or {}).get("verified")
        subject = name = degraded = ""
        transport: Transport | Refused
        if shown is not None:
            transport = self._transport(connection, expected)
            trust = self.built.trust
            if not isinstance(transport, Refused) and transport.vouched is not None and trust is not None:
                outcome = trust.judge(shown.der)  # a neighbour's word is for clients
                closed = isinstance(outcome, Close)
                transport = Refused(text=f"not trusted: {outcome}") if closed else transport.degrade()
            if isinstance(transport, Refused):
                return transport
            try:
                subject, name = subject_text(shown.der), common_name(shown.der)
            except ValueError as error:
                return Refused(text=f"its certificate cannot be read: {error}")
            if not transport.trusted:
                degraded = "its certificate is not on the trust list"
                if not transport.degraded:
                    return Refused(text=f"{degraded}, and no link names it as its `peer`")
        elif plain:
            transport, degraded = _encryption(connection), "it shows no certificate"
        else:
            return Refused(text="a node shows its certificate, and this connection has none")
        levels = self.built.rules.levels
        return Peer(
            subject=subject,
            name="" if degraded else name,
            certificate=None if shown is None else shown.der,
            degraded=degraded,
            address=connection.address,
            listener=transport.listener,
            level=levels.level_of(transport),
            facts=levels.facts_of(transport),
            tls=federated_identity.encryption(transport),
        )

    def _outdated(self, connection: Connection, name: str) -> Refused | None:
        """Why a certificate proves nothing: it is of somebody who had its name, and was removed."""
        removed = self.identities.removed(name)
        if removed is None or name in self.built.directory.clients:
            return None
        if name not in self.users or self._self_registered(name):
            return Refused(text=f"`{name}` was removed, and so was what its certificate is good for")
        tls = connection.certificate
        assert tls is not None
        if ssl.cert_time_to_seconds(tls["certificate"]["notBefore"]) >= removed - BACKDATED:
            return None
        return Refused(text=f"the certificate is of another `{name}`, who was removed; issue a new one")

    def _identity(
        self, principal: str, user: str | None, client: str, transport: Transport, capability: Capability | None = None
    ) -> Identity | Refused:
        if user is not None and user not in self._users_of.get(transport.listener, (user,)):
            return Refused(text="this listener is not for this user")
        if principal.startswith(federated_identity.VOUCHED):
            return federated_identity.identity(principal, transport, capability, self.built.rules.levels)
        if principal.startswith(CERTIFICATE) and transport.degraded:
            principal = ANONYMOUS  # semantics, *Trust*: a degraded peer is nobody by its certificate
        # a certificate or a capability made out to a client proves that it is that client
        as_client = principal == f"{CERTIFICATE}{client}" or (capability is not None and capability.client == client)
        known = self.built.directory.known(
            user=user,
            client=client,
            as_client=as_client,
            roles=() if capability is None else capability.roles,
            groups=() if capability is None else capability.groups,
        )
        if user is not None and user not in self.users and self.identities.removed(user) is not None:
            return WITHDRAWN  # whoever vouches for them
        id = ""
        if known.user is not None:
            id = self.identities.id(USER, known.user)
        elif as_client and not known.impostor:
            id = self.identities.id(CLIENT, client)
        attributes = known.attributes
        if capability is not None and capability.attributes:
            attributes = {**capability.attributes, **attributes}  # the directory has the last word
        if user is not None and user not in self.users:
            self.names.note(user)
        elif principal.startswith((CERTIFICATE, f"{CLIENT}:")):
            self.names.note(principal.partition(":")[2])
        levels = self.built.rules.levels
        return Identity(
            principal=principal,
            user=known.user,
            roles=known.roles,
            groups=known.groups,
            attributes=attributes,
            level=levels.level_of(transport),
            facts=levels.facts_of(transport),
            tls=federated_identity.encryption(transport),
            impostor=known.impostor,
            capability=capability,
            scopes=known.scopes,
            id=id,
        )

    def _admitted(
        self,
        connection: Connection,
        packet: Connect,
        token: presented_capabilities.Token | None,
        transport: Transport,
        principal: str | None = None,
        user: str | None = None,
        *,
        certified: bool = False,
    ) -> Identity | Refused:
        """Who it is: by `principal`, if other credentials said so, and by what it shows in clear, if it does.

        `certified`: its certificate said so.
        """
        capability: Capability | None = None
        if token is not None:
            name = self._certificate_name(connection)
            found = presented_capabilities.capability_of(
                connection, packet, token.text, self.accepts, self._register, name
            )
            if isinstance(found, Refused):
                return replace(found, reason=Reason.BAD_USER_NAME_OR_PASSWORD) if token.password else found
            capability = found
            if principal is None or (capability.user is not None and user is None):
                if capability.user is not None and self._self_registered(capability.user):
                    return self._taken(capability.user)
                principal, user, certified = presented_capabilities.principal_of(capability), capability.user, False
        elif self.accepts is not None and self.accepts.required:
            return NEEDED
        identity = self._identity(principal or ANONYMOUS, user, packet.client_id, transport, capability)
        return identity if isinstance(identity, Refused) else replace(identity, certified=certified)

    def _certificate_name(self, connection: Connection) -> str | None:
        transport = self._transport(connection)
        return None if isinstance(transport, Refused) else certified_name(connection, transport)

    def capability_of(self, request: presented_capabilities.HttpRequest, site: Site) -> Capability | Refused | None:
        """What a user shows who asks for a topic key over HTTP; None: nothing, and nothing is needed."""
        return presented_capabilities.capability_of_request(request, self.accepts, self._register, site)

    def travelled(self, token: str, known: Capability | None, site: Site) -> Capability | str:
        return presented_capabilities.travelled(token, known, self.accepts, self._register, site)

    # -- enhanced authentication -----------------------------------------------------------------------------------

    def exchange(self, connection: Connection, packet: Connect, method: str) -> Exchange | None:
        token = presented_capabilities.token_in(packet, self.accepts)
        if token is not None:
            return _NoExchange(token if isinstance(token, Refused) else refusal("it is shown beside another method"))
        if method == bearer_tokens.METHOD and self.bearers is not None and self.bearers.providers.bearing:
            return bearer_tokens.Bearer(tokens=self.bearers, connection=connection, packet=packet)
        if method == METHOD and self.accepts is not None:
            name = partial(self._certificate_name, connection)
            return presented_capabilities.Challenge(self.accepts, self._register, connection, packet, name)
        factory = self._methods.get(method)
        return None if factory is None else factory(connection, packet)

    def completed(self, connection: Connection, client: str, identity: Identity) -> Identity | Refused:
        kind, _, name = identity.principal.partition(":")
        if kind == "user" and self._self_registered(name):
            return self._taken(name)
        return self._completed(connection, client, identity)

    def _person(self, connection: Connection, found: Person | Refused) -> Identity | Refused:
        """Whom an issuer vouches for, with what is known of the connection; or why they may not stay."""
        if isinstance(found, Refused):
            return found
        transport = self._transport(connection)
        if isinstance(transport, Refused):
            return transport
        if self.bearers is None or not self.bearers.counts(found):
            return bearer_tokens.refusal("its issuer is not known here")
        site = connection.site
        if found.left(site.wall, site.steady) <= 0:
            return bearer_tokens.refusal("it has expired")
        if self.accepts is not None and self.accepts.required:
            return NEEDED
        return bearer_tokens.identity(found, transport, self.built.rules.levels)

    def _completed(self, connection: Connection, client: str, identity: Identity) -> Identity | Refused:
        if identity.person is not None:
            return self._person(connection, identity.person)
        transport = self._transport(connection)
        if isinstance(transport, Refused):
            return transport
        capability = identity.capability
        if capability is None and self.accepts is not None and self.accepts.required:
            return NEEDED
        # it may have been revoked, or a reload come, since the challenge
        if capability is not None and (why := self._objection(capability, connection.version)):
            return refusal(why, capability.id)
        return self._known(identity, client, transport)

    def _known(self, said: Identity, client: str, transport: Transport) -> Identity | Refused:
        """Who a method says it is, over this connection; the directory has the last word of those it knows."""
        kind, _, name = said.principal.partition(":")
        user = name if kind == "user" else None
        found = self._identity(said.principal, user, client, transport, said.capability)
        if isinstance(found, Refused) or said.capability is not None:
            return found
        if user in self.users if user is not None else kind in ("certificate", ANONYMOUS, "vouched"):
            return found
        return replace(found, user=said.user, roles=said.roles, groups=said.groups, attributes=said.attributes)

    def reauthorize(self, session: Session) -> Identity | Refused:
        """Who a session's client is by the directory, the levels and the trust list in force now."""
        principal, connection, old = session.principal, session.connection, session.subject
        if old.person is not None:
            if connection is not None:
                return self._person(connection, old.person)
            if self.bearers is None or not self.bearers.counts(old.person):
                return WITHDRAWN
            person = bearer_tokens.identity(old.person, Transport(), self.built.rules.levels)
            return replace(person, level=old.level, facts=old.facts, tls=old.tls)
        kind, _, name = principal.partition(":")
        if self.ended(session):
            return ENDED
        if kind == "user" and (called := self._called(session)) is not None and called != name:
            name, principal = called, f"user:{called}"
        if kind == "user" and self.password_changes.since(name, session.authenticated):
            if connection is not None or name not in self.users:
                return WITHDRAWN
        if connection is not None and old.certified:
            transport = self._transport(connection)
            lost = not isinstance(transport, Refused) and transport.degraded
            if kind == "vouched" and (
                isinstance(transport, Refused)
                or transport.vouched is None
                or federated_identity.principal_of(transport.vouched) != principal
            ):
                return OFF_LIST
            if lost and (old.user is not None or not getattr(connection.listener, "anonymous", False)):
                return OFF_LIST
        if old.capability is not None and (why := self._objection(old.capability, session.version)):
            return refusal(why, old.capability.id)
        if principal == ANONYMOUS and connection is not None and not getattr(connection.listener, "anonymous", False):
            return Refused(text="this listener wants to know who you are")
        said = Identity(
            principal=principal,
            user=old.user,
            roles=old.roles,
            groups=old.groups,
            attributes=old.attributes,
            capability=old.capability,
        )
        if connection is None:
            if (refused := self._left(session)) is not None:
                return refused
            away = self._known(said, session.client, Transport())
            if isinstance(away, Refused):
                return away
            return replace(away, level=old.level, facts=old.facts, tls=old.tls, certified=old.certified)
        found = self._completed(connection, session.client, said)
        return found if isinstance(found, Refused) else replace(found, certified=old.certified)

    def _left(self, session: Session) -> Refused | None:
        """Why what a client who is away has left, such as a will, does not count: its certificate does not any more."""
        if session.certificate is None:
            return None
        transport = Transport(listener=session.subject.listener, certificate=True)
        found = self._judged(transport, session.certificate, session.site, self.built.trust)
        if isinstance(found, Refused):
            return found
        return OFF_LIST if found.degraded and session.subject.certified else None

    def ended(self, session: Session) -> bool:
        """Whether the owner of a session is no more. Without a method nobody but the directory vouches for users."""
        kind, _, name = session.principal.partition(":")
        vouched = self._methods or session.subject.capability is not None or session.home in self.asking_brokers
        return self._called(session) is None or (kind == "user" and name not in self.users and not vouched)

    def _called(self, session: Session) -> str | None:
        """What the owner of a session is called now; None: they are no more, or it is somebody else."""
        kind, _, name = session.principal.partition(":")
        if identity := session.subject.identity:
            called = self.identities.name(identity)
            return called if called is None or kind == "user" else name
        return None if kind == "user" and self.identities.id(USER, name) and name in self.users else name

    def _objection(self, capability: Capability, version: int) -> str:
        """Why what a session came with does not count any more."""
        if self.accepts is None:
            return "this node takes none any more"
        if capability.id in self._register.revoked:
            return "it has been revoked"
        return self.accepts.objection(capability, proofs=version == V5)

    def known(self, session: Session) -> bool:
        """Whether there still is the user that a session belongs to; other principals are not in the directory, nor has
        it all users of a broker that proves names."""
        kind, _, name = session.principal.partition(":")
        return kind != "user" or name in self.users or session.home in self.asking_brokers

    def taken(self, name: str) -> bool:
        """Whether a name belongs, or belonged, to somebody whom a stranger must not be taken for."""
        return self.names.taken(name) or name in self.built.directory.clients or self.identities.left_file(name)

    def displaced(self, name: str) -> bool:
        """Whether it is a user who registered by itself, at a node that did not know whose name it was."""
        return name in self.names and self._self_registered(name)

    def _self_registered(self, name: str) -> bool:
        user = self.users.get(name)
        return user is not None and self_registered(user.attributes)

    def _taken(self, name: str) -> Refused:
        """Somebody else has registered a name that others vouch for."""
        self._logged.taken(name)
        return TAKEN

    def replace(self, newer: Authentication, generation: int) -> None:
        """Judges by another directory from now on; `generation` is the number of the rules that come with it."""
        for name, user in self.users.items():
            now = newer.users.get(name)
            if now is None or not self.password_changes.same(name, user.password, now.password):
                self.password_changes.note(name, generation)
            if now is None and not self_registered(user.attributes):
                self.names.note(name)
        self.users, self.asking_brokers = newer.users, newer.asking_brokers
        self.built = newer.built
        self._users_of = newer._users_of
        self.accepts = newer.accepts
        self.revocation = newer.revocation
        self._methods = newer._methods


def users_of_listeners(config: Config) -> dict[str, frozenset[str]]:
    """The listeners that are for certain users."""
    return {str(each.url): frozenset(each.users) for each in config.listeners if each.users is not None}


def asking_brokers(config: Config) -> frozenset[str]:
    """The scopes whose broker says who a client is."""
    return frozenset(name for name, scope in config.scopes.items() if scope.asks_broker)


def _encryption(connection: Connection) -> Transport:
    """What is known of a connection without its certificates."""
    tls = connection.certificate
    transport = Transport(listener=connection.listener.name, address=connection.address)
    return transport if tls is None else replace(transport, tls_version=tls["version"], tls_cipher=tls["cipher"])


@lru_cache
def _only(peer: str) -> Trust:
    """The trust list of a link whose configuration names the certificate of its other end."""
    return Trust(By.CERTIFICATE if is_fingerprint(peer) else By.SUBJECT, (peer,))


def load_method(name: str, place: str) -> Method:
    """`package.module:factory`, called with the connection and its CONNECT for each new exchange."""
    module, _, attribute = place.partition(":")
    try:
        factory: Method = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # it is somebody else's code, and may fail in any way
        what = f"{type(error).__name__}: {error}"
        raise ConfigError(f"authentication.methods.{name}: cannot load {place}: {what}; mend it") from error
    return factory
