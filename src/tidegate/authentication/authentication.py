"""Who a client is: by user name and password, by its certificate, by a capability, or anonymous where the listener
says so.

A client that offers credentials is judged by them alone: a wrong password does not become anonymous. Only where
nobody is known at all (no `directory.users`) does an anonymous listener take whatever is offered, as other brokers do,
and then it is as nobody in particular.

A capability is shown beside other credentials, and must then be for the same person and client, or instead of any. One
that is wrong refuses the connection, whatever else is right. It is shown in clear only over TLS, unless the connection
is proven with its key.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import structlog

from tidegate.authentication.capabilities import RULE, Challenge, Register, principal_of, refusal, verified_token
from tidegate.authentication.passwords import Outcome, Passwords
from tidegate.config import Config
from tidegate.errors import ConfigError
from tidegate.policy import Close, Facts, judged
from tidegate.policy.capability import METHOD, PROPERTY, Accepts, Capability, looks_like_one
from tidegate.policy.capability.proof import CONNECT, objection, shown_by
from tidegate.scope import Exchange, Identity, Refused
from tidegate.scope.authenticator import ANONYMOUS
from tidegate.session import Bucket, Peer, Session
from tidegate.wire import V5, Connect, Reason

log = structlog.get_logger("tidegate.node")

Method = Callable[[Peer, Connect], Exchange]

_REFUSALS = {
    Outcome.REFUSED: Refused(reason=Reason.BAD_USER_NAME_OR_PASSWORD),
    Outcome.BUSY: Refused(reason=Reason.SERVER_BUSY, text="too many logins at once; try again"),
    Outcome.LIMITED: Refused(reason=Reason.CONNECTION_RATE_EXCEEDED, text="too many failed attempts; wait a minute"),
}


NEEDED = Refused(text="every client needs a capability here", rule=RULE)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Token:
    """A capability that is shown in clear."""

    text: str
    password: bool = False


class _No:
    """An exchange that is over before it has begun (scope.Exchange)."""

    def __init__(self, why: Refused) -> None:
        self._why = why

    def step(self, data: bytes | None) -> Refused:
        return self._why


class Authentication:
    """The authenticator of a node (scope.Authenticator), and what is known of those it lets in."""

    def __init__(
        self, config: Config, passwords: Passwords, register: Register | None = None, accepts: Accepts | None = None
    ) -> None:
        """`accepts`: which capabilities are taken, with the keys that had to be fetched."""
        self.users = config.directory.users
        self.built = config.built
        self.accepts = accepts
        self._register = register or Register()
        self._passwords = passwords
        self._methods = {name: load_method(name, place) for name, place in config.authentication.methods.items()}
        self._changed: dict[str, int] = {}  # users removed or with another password, and under which rules
        self._words = Bucket(2.0, 10.0, time.monotonic())
        self._untold = 0

    def authenticate(self, peer: Peer, packet: Connect, answer: Callable[[Identity | Refused], None]) -> None:
        facts = self._facts(peer)
        if isinstance(facts, Refused):
            answer(facts)
            return
        anonymous = bool(getattr(peer.listener, "anonymous", False))
        users = self.users
        name = packet.username
        token = self._token(packet)
        if isinstance(token, Refused):
            answer(token)
        elif token is not None and token.password:
            answer(self._admitted(peer, packet, token, facts))
        elif name is not None and (users or not anonymous):
            user = users.get(name)
            stored = user.password if user is not None else None

            def verified(outcome: Outcome) -> None:
                now = self.users.get(name)
                if outcome is Outcome.ACCEPTED and (now is None or now.password != stored):
                    outcome = Outcome.REFUSED  # it was withdrawn while the password was verified
                facts = self._facts(peer)  # the levels or the list may have changed meanwhile, too
                if isinstance(facts, Refused):
                    answer(facts)
                elif outcome is Outcome.ACCEPTED:
                    answer(self._admitted(peer, packet, token, facts, f"user:{name}", name))
                else:
                    self._tell(name, peer.address, outcome)
                    answer(_REFUSALS[outcome])

            self._passwords.verify(name, packet.password or b"", stored, peer.address, verified)
        elif (common_name := _common_name(peer)) is not None:
            user_name = common_name if common_name in users else None
            principal = f"{'user' if user_name else 'certificate'}:{common_name}"
            answer(self._admitted(peer, packet, token, facts, principal, user_name))
        elif token is not None or anonymous:
            answer(self._admitted(peer, packet, token, facts))
        else:
            answer(Refused(reason=Reason.NOT_AUTHORIZED, text="this listener wants to know who you are"))

    def _facts(self, peer: Peer) -> Facts | Refused:
        """What is known of a connection, after the trust list was asked; refused if that closes it."""
        tls = peer.certificate
        facts = Facts(listener=peer.listener.name, address=peer.address)
        if tls is None:
            return facts
        facts = replace(
            facts, tls_version=tls["version"], tls_cipher=tls["cipher"], certificate=tls["certificate"] is not None
        )
        trust = self.built.trust
        if trust is None:
            return facts
        outcome = trust.judge(tls["der"])
        if isinstance(outcome, Close):
            return Refused(text=f"not trusted: {outcome.reason}")
        return judged(facts, outcome)

    def _identity(
        self, principal: str, user: str | None, client: str, facts: Facts, capability: Capability | None = None
    ) -> Identity:
        # a certificate or a capability made out to a client proves that it is that client
        as_client = principal == f"certificate:{client}" or (capability is not None and capability.client == client)
        known = self.built.directory.known(user=user, client=client, as_client=as_client)
        attributes = known.attributes
        if capability is not None and capability.attributes:
            attributes = {**capability.attributes, **attributes}  # the directory has the last word
        tls = {}
        if facts.tls_version is not None:
            tls = {"version": facts.tls_version, "cipher": facts.tls_cipher or ""}
        return Identity(
            principal=principal,
            user=known.user,
            roles=known.roles,
            groups=known.groups,
            attributes=attributes,
            level=self.built.rules.levels.level_of(facts),
            tls=tls,
            impostor=known.impostor,
            capability=capability,
            scopes=known.scopes,
        )

    # -- capabilities ----------------------------------------------------------------------------------------------

    def _token(self, packet: Connect) -> _Token | Refused | None:
        """What CONNECT shows in clear: in a user property, or as the password."""
        texts = [value for name, value in packet.properties.user_properties if name == PROPERTY]
        password = packet.password or b""
        if self.accepts is None:
            return refusal("this node takes none") if texts else None
        if looks_like_one(password):
            if texts:
                return refusal("there are several")
            return _Token(text=password.decode("ascii"), password=True)
        if len(texts) > 1:
            return refusal("there are several")
        return _Token(text=texts[0]) if texts else None

    def _admitted(
        self,
        peer: Peer,
        packet: Connect,
        token: _Token | None,
        facts: Facts,
        principal: str | None = None,
        user: str | None = None,
    ) -> Identity | Refused:
        """Who it is: by `principal`, if other credentials said so, and by what it shows in clear, if it does."""
        if token is None:
            if self.accepts is not None and self.accepts.required:
                return NEEDED
            return self._identity(principal or ANONYMOUS, user, packet.client_id, facts)
        found = self._capability(peer, packet, token.text)
        if isinstance(found, Refused):
            return replace(found, reason=Reason.BAD_USER_NAME_OR_PASSWORD) if token.password else found
        if principal is None or (found.user is not None and user is None):
            principal, user = principal_of(found), found.user
        return self._identity(principal, user, packet.client_id, facts, found)

    def _capability(self, peer: Peer, packet: Connect, token: str) -> Capability | Refused:
        """What is shown in clear: it counts over TLS, or if CONNECT proves that the key is there, too."""
        accepts = self.accepts
        if accepts is None:  # a reload came in between
            return refusal("this node takes none")
        found = verified_token(token, accepts, self._register, peer)
        if isinstance(found, Refused):
            return found
        shown = shown_by(packet.properties.user_properties)
        why = self._mismatch(peer, packet, found)
        if not why and shown.texts:
            why = objection(found, shown, CONNECT, packet.client_id)
            found = replace(found, proven=True)
        elif not why and peer.certificate is None:
            why = "without a proof it is shown over TLS only"
        why = why or accepts.objection(found, proofs=packet.version == V5)
        return refusal(why, found.id) if why else found

    def _mismatch(self, peer: Peer, packet: Connect, capability: Capability) -> str:
        """Why it is not for whoever shows it; nothing if it is."""
        client, user = capability.client, capability.user
        if client is not None and client != packet.client_id:
            return "it is for another client"
        named = packet.username
        if named and user is not None and named != user:
            return "it is for another user"
        if named and user is None and named != client and looks_like_one(packet.password or b""):
            return "it is for a client, and the user name is another"
        common_name = _common_name(peer)
        if common_name is not None and user is not None and common_name not in (user, client):
            return "it is for another user than the certificate"
        return ""

    # -- enhanced authentication -----------------------------------------------------------------------------------

    def exchange(self, peer: Peer, packet: Connect, method: str) -> Exchange | None:
        token = self._token(packet)
        if token is not None:
            return _No(token if isinstance(token, Refused) else refusal("it is shown beside another method"))
        if method == METHOD and self.accepts is not None:
            return Challenge(self.accepts, self._register, peer, packet, self._mismatch)
        factory = self._methods.get(method)
        return None if factory is None else factory(peer, packet)

    def completed(self, peer: Peer, client: str, identity: Identity) -> Identity | Refused:
        facts = self._facts(peer)
        if isinstance(facts, Refused):
            return facts
        capability = identity.capability
        if capability is None and self.accepts is not None and self.accepts.required:
            return NEEDED
        # it may have been revoked, or a reload come, since the challenge
        if capability is not None and (why := self._objection(capability, peer.version)):
            return refusal(why, capability.id)
        return self._known(identity, client, facts)

    def _known(self, said: Identity, client: str, facts: Facts) -> Identity:
        """Who a method says it is, over this connection; the directory has the last word of those it knows."""
        kind, _, name = said.principal.partition(":")
        user = name if kind == "user" else None
        found = self._identity(said.principal, user, client, facts, said.capability)
        if said.capability is not None:
            return found
        if user in self.users if user is not None else kind in ("certificate", ANONYMOUS):
            return found
        return replace(found, user=said.user, roles=said.roles, groups=said.groups, attributes=said.attributes)

    def renew(self, session: Session) -> Identity | Refused:
        """Who a session's client is by the directory, the levels and the trust list in force now."""
        principal, peer, old = session.principal, session.peer, session.subject
        kind, _, name = principal.partition(":")
        if kind == "user" and self._changed.get(name, -1) > session.authenticated:
            if peer is not None or name not in self.users:
                return Refused(text="your access has been withdrawn")
        if kind == "user" and name not in self.users and not self._methods and old.capability is None:
            # removed while the node did not run: without a method nobody else could have vouched for it
            return Refused(text="your access has been withdrawn")
        if old.capability is not None and (why := self._objection(old.capability, session.version)):
            return refusal(why, old.capability.id)
        if principal == ANONYMOUS and peer is not None and not getattr(peer.listener, "anonymous", False):
            return Refused(text="this listener wants to know who you are")
        said = Identity(
            principal=principal,
            user=old.user,
            roles=old.roles,
            groups=old.groups,
            attributes=old.attributes,
            capability=old.capability,
        )
        if peer is None:
            return replace(self._known(said, session.client, Facts()), level=old.level, tls=old.tls)
        return self.completed(peer, session.client, said)

    def _objection(self, capability: Capability, version: int) -> str:
        """Why what a session came with does not count any more."""
        if self.accepts is None:
            return "this node takes none any more"
        if capability.id in self._register.revoked:
            return "it has been revoked"
        return self.accepts.objection(capability, proofs=version == V5)

    def replace(self, newer: Authentication, generation: int) -> None:
        """Judges by another directory from now on; `generation` is the number of the rules that come with it."""
        for name, user in self.users.items():
            now = newer.users.get(name)
            if now is None or now.password != user.password:
                self._changed[name] = generation
        self.users = newer.users
        self.built = newer.built
        self.accepts = newer.accepts
        self._methods = newer._methods

    def known(self, principal: str) -> bool:
        """Whether there still is such a user; other principals are not in the directory."""
        return not principal.startswith("user:") or principal.removeprefix("user:") in self.users

    def _tell(self, user: str, address: str, outcome: Outcome) -> None:
        """Refused logins are logged, a few a second at most: somebody may be guessing."""
        if self._words.afford(time.monotonic()):
            log.warning("login refused", user=user, address=address, why=outcome.value, left_out=self._untold)
            self._untold = 0
        else:
            self._untold += 1


def _common_name(peer: Peer) -> str | None:
    tls = peer.certificate
    if tls is None or not tls["certificate"]:
        return None
    for relative in tls["certificate"].get("subject", ()):
        for key, value in relative:
            if key == "commonName":
                return str(value)
    return None


def load_method(name: str, place: str) -> Method:
    """`package.module:factory`, called with the peer and its CONNECT for each new exchange."""
    module, _, attribute = place.partition(":")
    try:
        factory: Method = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # it is somebody else's code, and may fail in any way
        what = f"{type(error).__name__}: {error}"
        raise ConfigError(f"authentication.methods.{name}: cannot load {place}: {what}; mend it") from error
    return factory
