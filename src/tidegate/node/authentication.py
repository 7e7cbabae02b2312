"""Who a client is: by user name and password, by its certificate, or anonymous where the listener says so.

A client that offers credentials is judged by them alone: a wrong password does not become anonymous. Only where
nobody is known at all (no `directory.users`) does an anonymous listener take whatever is offered, as other brokers do,
and then it is as nobody in particular.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from dataclasses import replace

import structlog

from tidegate.config import Config
from tidegate.errors import ConfigError
from tidegate.node.passwords import Outcome, Passwords
from tidegate.policy import Close, Facts, judged
from tidegate.scope import Exchange, Identity, Refused
from tidegate.session import Bucket, Peer, Session
from tidegate.wire import Connect, Reason

log = structlog.get_logger("tidegate.node")

ANONYMOUS = "anonymous"
Method = Callable[[Peer, Connect], Exchange]

_REFUSALS = {
    Outcome.REFUSED: Refused(reason=Reason.BAD_USER_NAME_OR_PASSWORD),
    Outcome.BUSY: Refused(reason=Reason.SERVER_BUSY, text="too many logins at once; try again"),
    Outcome.LIMITED: Refused(reason=Reason.CONNECTION_RATE_EXCEEDED, text="too many failed attempts; wait a minute"),
}


class Authentication:
    """The authenticator of a node (scope.Authenticator), and what is known of those it lets in."""

    def __init__(self, config: Config, passwords: Passwords) -> None:
        self.users = config.directory.users
        self.built = config.built
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
        if name is not None and (users or not anonymous):
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
                    answer(self._identity(f"user:{name}", name, packet.client_id, facts))
                else:
                    self._tell(name, peer.address, outcome)
                    answer(_REFUSALS[outcome])

            self._passwords.verify(name, packet.password or b"", stored, peer.address, verified)
        elif (common_name := _common_name(peer)) is not None:
            user_name = common_name if common_name in users else None
            principal = f"{'user' if user_name else 'certificate'}:{common_name}"
            answer(self._identity(principal, user_name, packet.client_id, facts))
        elif anonymous:
            answer(self._identity(ANONYMOUS, None, packet.client_id, facts))
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

    def _identity(self, principal: str, user: str | None, client: str, facts: Facts) -> Identity:
        # a certificate made out to a client proves that it is that client
        as_client = principal == f"certificate:{client}"
        known = self.built.directory.known(user=user, client=client, as_client=as_client)
        tls = {}
        if facts.tls_version is not None:
            tls = {"version": facts.tls_version, "cipher": facts.tls_cipher or ""}
        return Identity(
            principal=principal,
            user=known.user,
            roles=known.roles,
            groups=known.groups,
            attributes=known.attributes,
            level=self.built.rules.levels.level_of(facts),
            tls=tls,
            impostor=known.impostor,
        )

    def exchange(self, peer: Peer, packet: Connect, method: str) -> Exchange | None:
        factory = self._methods.get(method)
        return None if factory is None else factory(peer, packet)

    def completed(self, peer: Peer, client: str, identity: Identity) -> Identity | Refused:
        facts = self._facts(peer)
        if isinstance(facts, Refused):
            return facts
        return self._known(identity, client, facts)

    def _known(self, said: Identity, client: str, facts: Facts) -> Identity:
        """Who a method says it is, over this connection; the directory has the last word of those it knows."""
        kind, _, name = said.principal.partition(":")
        user = name if kind == "user" else None
        found = self._identity(said.principal, user, client, facts)
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
        if kind == "user" and name not in self.users and not self._methods:
            # removed while the node did not run: without a method nobody else could have vouched for it
            return Refused(text="your access has been withdrawn")
        if principal == ANONYMOUS and peer is not None and not getattr(peer.listener, "anonymous", False):
            return Refused(text="this listener wants to know who you are")
        said = Identity(
            principal=principal, user=old.user, roles=old.roles, groups=old.groups, attributes=old.attributes
        )
        if peer is None:
            return replace(self._known(said, session.client, Facts()), level=old.level, tls=old.tls)
        return self.completed(peer, session.client, said)

    def replace(self, newer: Authentication, generation: int) -> None:
        """Judges by another directory from now on; `generation` is the number of the rules that come with it."""
        for name, user in self.users.items():
            now = newer.users.get(name)
            if now is None or now.password != user.password:
                self._changed[name] = generation
        self.users = newer.users
        self.built = newer.built
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
