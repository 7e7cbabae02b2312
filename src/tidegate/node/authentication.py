"""Who a client is: by user name and password, by its certificate, or anonymous where the listener says so.

A client that offers credentials is judged by them alone: a wrong password does not become anonymous. Only where
nobody is known at all (no `directory.users`) does an anonymous listener take whatever is offered, as other brokers do,
and then it is as nobody in particular.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Mapping
from typing import Any

import structlog

from tidegate.config import Directory
from tidegate.errors import ConfigError
from tidegate.node.passwords import Outcome, Passwords
from tidegate.scope import Exchange, Identity, Refused
from tidegate.session import Bucket, Peer
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
    """The authenticator of a node (scope.Authenticator)."""

    def __init__(self, directory: Directory, passwords: Passwords, methods: Mapping[str, str]) -> None:
        self.directory = directory
        self._passwords = passwords
        self._methods = {name: load_method(name, place) for name, place in methods.items()}
        self._words = Bucket(2.0, 10.0, time.monotonic())
        self._untold = 0

    def authenticate(self, peer: Peer, packet: Connect, answer: Callable[[Identity | Refused], None]) -> None:
        anonymous = bool(getattr(peer.listener, "anonymous", False))
        users = self.directory.users
        name = packet.username
        if name is not None and (users or not anonymous):
            user = users.get(name)
            stored = user.password if user is not None else None

            def verified(outcome: Outcome) -> None:
                now = self.directory.users.get(name)
                if outcome is Outcome.ACCEPTED and (now is None or now.password != stored):
                    outcome = Outcome.REFUSED  # it was withdrawn while the password was verified
                if outcome is Outcome.ACCEPTED:
                    answer(self._identity(f"user:{name}", name, packet.client_id, peer))
                else:
                    self._tell(name, peer.address, outcome)
                    answer(_REFUSALS[outcome])

            self._passwords.verify(name, packet.password or b"", stored, peer.address, verified)
        elif (common_name := _common_name(peer)) is not None:
            if common_name in users:
                answer(self._identity(f"user:{common_name}", common_name, packet.client_id, peer))
            else:
                answer(self._identity(f"certificate:{common_name}", None, packet.client_id, peer))
        elif anonymous:
            answer(Identity(principal=ANONYMOUS, level=_level(peer)))
        else:
            answer(Refused(reason=Reason.NOT_AUTHORIZED, text="this listener wants to know who you are"))

    def _identity(self, principal: str, user: str | None, client_id: str, peer: Peer) -> Identity:
        known = self.directory.users.get(user) if user is not None else None
        attributes: dict[str, Any] = dict(known.attributes) if known else {}
        client = self.directory.clients.get(client_id)
        # semantics.md, Identity: an entry of `directory.clients` applies only to a connection authenticated for it
        if client is not None and client.user is not None and client.user == user:
            attributes |= client.attributes
        return Identity(
            principal=principal,
            user=user,
            roles=known.roles if known else (),
            groups=known.groups if known else (),
            attributes=attributes,
            level=_level(peer),
        )

    def exchange(self, peer: Peer, packet: Connect, method: str) -> Exchange | None:
        factory = self._methods.get(method)
        return None if factory is None else factory(peer, packet)

    def replace(self, newer: Authentication) -> None:
        """Judges by another directory from now on."""
        self.directory = newer.directory
        self._methods = newer._methods

    def known(self, principal: str) -> bool:
        """Whether there still is such a user; other principals are not in the directory."""
        return not principal.startswith("user:") or principal.removeprefix("user:") in self.directory.users

    def revoked(self, principal: str, before: Directory) -> bool:
        """Whether the directory knew this user before and does not any more."""
        name = principal.removeprefix("user:")
        return principal != name and name in before.users and name not in self.directory.users

    def still_valid(self, peer: Peer, before: Directory) -> bool:
        """Whether a client connected under `before` may stay: it is known, with the same password, or still
        need not be. Users the directory never knew were authenticated by a method, which has not changed."""
        principal = peer.session.principal
        if principal == ANONYMOUS:
            return bool(getattr(peer.listener, "anonymous", False))
        if not principal.startswith("user:"):
            return True
        name = principal.removeprefix("user:")
        user, old = self.directory.users.get(name), before.users.get(name)
        return old is None or (user is not None and old.password == user.password)

    def _tell(self, user: str, address: str, outcome: Outcome) -> None:
        """Refused logins are logged, a few a second at most: somebody may be guessing."""
        if self._words.afford(time.monotonic()):
            log.warning("login refused", user=user, address=address, why=outcome.value, left_out=self._untold)
            self._untold = 0
        else:
            self._untold += 1


def _level(peer: Peer) -> str:
    tls = peer.certificate
    if tls is None:
        return "plain"
    return "mtls" if tls["certificate"] else "tls"


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
