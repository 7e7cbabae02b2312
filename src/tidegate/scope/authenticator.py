"""Who a connection turned out to be, and how that is found out.

The scope asks an `Authenticator`; the answer may come at once or later. Enhanced authentication (MQTT 5, 4.12) is an
`Exchange` that is fed the client's data until it accepts or refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from tidegate.policy.capability import Capability
from tidegate.policy.certificate_packets import Vouched
from tidegate.policy.person import Person
from tidegate.session import Connection, Session
from tidegate.wire import Connect, Reason

if TYPE_CHECKING:
    from tidegate.scope.link_greeting import Peer

ANONYMOUS = "anonymous"
"""The principal of whoever is nobody in particular."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """An authenticated principal. Sessions belong to (principal, client id)."""

    principal: str  # user:mary, certificate:CN=…, anonymous
    user: str | None = None
    roles: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    level: str = "plain"
    facts: tuple[str, ...] = ()  # besides the level, of the connection
    tls: Mapping[str, str] = field(default_factory=dict)  # version and cipher of the connection
    impostor: bool = False  # it uses the identifier of a client that it has not proved to be
    certified: bool = False  # its certificate says who it is
    capability: Capability | None = None  # what it came with
    scopes: tuple[str, ...] = ()  # it may connect to these only; none: to all
    id: str = ""  # of the user or client of the directory that it is
    person: Person | None = None  # it is somebody of an identity provider, by a token that they came with
    vouched: Vouched | None = None  # it is somebody of another domain, by the word of a neighbour


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Why a connection is not accepted."""

    reason: Reason = Reason.NOT_AUTHORIZED
    text: str = ""
    rule: str = "connect"  # what the audit calls it
    ended: bool = False  # whoever the session belonged to is no more: nobody can come back to it


@dataclass(frozen=True, slots=True, kw_only=True)
class Continue:
    """The exchange goes on: this is for the client."""

    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """The exchange is over; `data` goes to the client with the success."""

    identity: Identity
    data: bytes | None = None


class Exchange(Protocol):
    """One run of an enhanced authentication method."""

    def step(self, data: bytes | None) -> Continue | Accepted | Refused: ...


Answer = Callable[[Identity | Refused], None]


class Authenticator(Protocol):
    """Finds out who a connection is."""

    def authenticate(self, connection: Connection, packet: Connect, answer: Answer) -> None: ...

    def exchange(self, connection: Connection, packet: Connect, method: str) -> Exchange | None:
        """A new exchange of this method; None if it is not known."""
        ...

    def completed(self, connection: Connection, client: str, identity: Identity) -> Identity | Refused:
        """What a method said, with what else is known of the connection and of the user; or why it may not stay."""
        ...

    def peer(self, connection: Connection, expected: str | None, plain: bool = False) -> Peer | Refused:
        """Which node is at the other end of a connection, whichever side has made it.

        `expected`: its certificate, as a link has it; None: anybody on the trust list, and others as that says.
        `plain`: also somebody without a certificate, who is nobody in particular.
        """
        ...

    def reauthorize(self, session: Session) -> Identity | Refused:
        """Who a session's client is by what is known now; refused if it has no business here any more."""
        ...
