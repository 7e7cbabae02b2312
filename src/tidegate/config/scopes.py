"""Scopes in the configuration: event spaces, and the brokers that some of them guard.

The bridges of other guarded brokers that are clients of a guarded one stand here too. Links between scopes are in
`links`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from pydantic import Field, ValidationInfo

from tidegate.config.address import BackendAddress
from tidegate.config.administration import SQLITE
from tidegate.config.links import ShareDirection, TopicMapping
from tidegate.config.policies import Subscribe
from tidegate.config.problems import Finding, unknown
from tidegate.config.section import CheckedSection, Identity, Name
from tidegate.config.units import Duration, Switch
from tidegate.policy.levels import ORDER
from tidegate.policy.scopes import ALL
from tidegate.policy.scopes import TopicMapping as Crossing

if TYPE_CHECKING:
    from tidegate.config.model import Config

_TOO_SHORT: Final = "must have 32 to 64 bytes; write for example what `openssl rand -hex 32` prints"


class Authenticate(StrEnum):
    """Who tells who a client of a guarded scope is."""

    BACKEND = "backend"
    HERE = "here"


class BackendKind(StrEnum):
    """What broker is guarded, where that cannot say what it can do."""

    MQTT = "mqtt"
    NATS = "nats"
    RABBITMQ = "rabbitmq"


class Guards(StrEnum):
    """How many guards stand in front of one broker."""

    ONE = "one"
    SEVERAL = "several"


class EnvelopeForm(StrEnum):
    """Where the envelope of a message in a guarded broker is."""

    PREFIX = "prefix"
    PROPERTY = "property"


class Gone(StrEnum):
    """What clients of a guarded scope see while its broker is gone."""

    REFUSE = "refuse"
    WAIT = "wait"


class Unenveloped(StrEnum):
    """What becomes of a message from a guarded broker that has come there around the guard."""

    DENY = "deny"
    PLAIN = "plain"


class Bridge(CheckedSection):
    """The bridge of another guarded broker that is a client here: a link between the two environments."""

    user: Identity
    """The user as whom the bridge authenticates."""
    secret: str = Field(repr=False)
    """The secret of the guards of the other environment."""
    share: tuple[TopicMapping, ...] = ()
    """What crosses, as `topic` lines of the bridge say it: `out` is what the bridge sends here, and the prefixes are
    `local_prefix` there and `remote_prefix` here. Default: everything, both ways."""

    def _problems(self, info: ValidationInfo) -> Iterator[Finding]:
        if not 32 <= len(self.secret.encode()) <= 64:
            yield ("secret",), _TOO_SHORT

    def crossings(self, *, into: bool) -> tuple[Crossing, ...]:
        """What crosses into the scope, or out of it."""
        if not self.share:
            return ALL
        wanted = ShareDirection.OUT if into else ShareDirection.IN
        crossings = (
            Crossing(filter=each.topic, here=each.local_prefix, there=each.remote_prefix, qos=each.qos)
            for each in self.share
            if each.direction in (wanted, ShareDirection.BOTH)
        )
        return tuple(crossing if into else crossing.turned for crossing in crossings)


class Scope(CheckedSection):
    """One event space. With `backend` its sessions, subscriptions and retained messages are those of another broker,
    which this node guards."""

    enforce: Switch = True
    """`false`: shadow mode. Everything passes; what the rules would deny is audited as `shadow`."""
    parents: tuple[Name, ...] = ()
    """The scopes above it, linked in both directions; several, with at most one way up from one scope to another."""
    backend: BackendAddress | None = None
    """The broker that this scope guards. Clients connect to this node instead, and nothing else may reach it.
    `unix://` and a path: its socket on this machine."""
    kind: BackendKind = BackendKind.MQTT
    """What broker that is: `mqtt`: one that does all of MQTT, or says in CONNACK what not. `nats`, `rabbitmq`: what
    these do not do the guard refuses."""
    guards: Guards = Guards.ONE
    """Whether this is the only guard of that broker, or one of `several`, between which its clients change. Those have
    the same `secret`, and `store` is a PostgreSQL database that they share."""
    authenticate: Authenticate = Authenticate.BACKEND
    """Who tells who a client is: `backend`: name and password are passed on to the broker. `here`: this node, as in
    other scopes."""
    unenveloped: Unenveloped = Unenveloped.DENY
    """What becomes of a message that has come to the broker around the guard: `deny`: nobody receives it. `plain`: it
    is decided as that of nobody in particular."""
    envelope: EnvelopeForm = EnvelopeForm.PREFIX
    """Where the envelope of a message is: `prefix`: before its content. `property`: in a user property, so that the
    content is left alone; the broker, and every bridge out of it, must speak MQTT 5."""
    level: Identity | None = None
    """The level of the connection to the broker. Default: the highest if it is on this machine, else what its
    encryption alone gives."""
    gone: Gone = Gone.REFUSE
    """What clients see while the broker is gone: `refuse`: they are disconnected, and refused until it is back. `wait`:
    they stay connected, and what they publish or ask for waits until it is back."""
    username: Identity | None = None
    """The user name with which the guard itself connects to the broker, and with `authenticate: here` for its
    clients."""
    password: str | None = Field(default=None, repr=False)
    """The password for `username`."""
    secret: str | None = Field(default=None, repr=False)
    """What messages are authenticated with on their way through the broker. All guards of one broker have the same.
    Default: one that is made once and kept in the data folder."""
    bridges: Mapping[Name, Bridge] = Field(default_factory=dict)
    """Bridges of other guarded brokers that are clients here, by the name of the environment behind each: `link:A->B`
    and `link:B->A` are between that and this scope."""
    max_age: Duration | None = Field(default=None, gt=0)
    """After how long a message that is not retained is not taken from the broker any more. It bounds how long whole
    messages could be replayed by who reads and writes around the guard. Default: `limits.session_expiry`, for so long
    they may wait for their receivers."""

    @property
    def asks_broker(self) -> bool:
        """Whether the broker says who a client is."""
        return self.backend is not None and self.authenticate is Authenticate.BACKEND

    def _problems(self, info: ValidationInfo) -> Iterator[Finding]:
        if self.backend is None:
            for key in (
                "kind",
                "guards",
                "authenticate",
                "envelope",
                "level",
                "unenveloped",
                "gone",
                "username",
                "password",
                "secret",
                "bridges",
                "max_age",
            ):
                if key in self.model_fields_set:
                    yield (key,), "has no effect without `backend`; add that, or remove it"
        elif self.password is not None and self.username is None:
            yield ("password",), "has no effect without `username`; add that, or remove it"
        if self.secret is not None and not 32 <= len(self.secret.encode()) <= 64:
            yield ("secret",), _TOO_SHORT


def problems(config: Config) -> Iterator[Finding]:
    """What the guards of one broker have to share, and levels that do not exist."""
    levels = ORDER if config.levels is None else config.levels.order
    for name, scope in config.scopes.items():
        if scope.guards is Guards.SEVERAL:
            if config.store == SQLITE:
                text = "needs a `store` that all of them share; write `store: postgresql://…`"
                yield ("scopes", name, "guards"), text
            if config.subscribe is Subscribe.HOLD:
                yield (
                    ("subscribe",),
                    f"is `hold`, and of what `{name}` holds its other guards know nothing; write `strict`",
                )
            if scope.secret is None:
                yield ("scopes", name, "secret"), "is missing, which all its guards have to share; add it"
        if scope.level is not None and scope.level not in levels:
            yield ("scopes", name, "level"), unknown("level", scope.level, levels, "levels.order")
