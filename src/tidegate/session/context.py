"""The context of a message: what later decisions need to know of who published it, and how.

It travels with the message through queues, retained messages and the store as versioned bytes, made once per
publisher, so that a decision at the moment of sending can speak of `p` when the publisher is long gone.

What a monitor lets pass or makes may come from several messages: then it has the context of the last one, and beside
that those of the others (`others`). Who receives it must be allowed to by each of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import cbor2

from tidegate.policy import Demand, Subject
from tidegate.policy.capability import Capability
from tidegate.policy.subject import in_list

VERSION = b"\x01"
SEVERAL = b"\x02"
"""The version of one that has others beside it. Who does not know them must not take it for one without."""
_NOTHING: Mapping[str, Any] = MappingProxyType({})
_UNKNOWN = Subject(kind="client", client="", user=None, scope="", node="")


@dataclass(frozen=True, slots=True)
class MessageOptions:
    """What one message asks for itself: a level of every link it crosses, and who may see what of it."""

    demand: Demand | None = None
    view: str | None = None
    """The publisher's table of visibility, as it came."""


NO_OPTIONS = MessageOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Who published, what was demanded for the message, who may see it, and the surroundings then."""

    subject: Subject
    demand: Demand | None = None
    """What counted when it was published; None if nothing was demanded."""
    view: str | None = None
    surroundings: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
    topic: str | None = None
    """What it was published under, if a monitor or a link has changed that."""
    qos: int | None = None
    """With which QoS, if a link has lowered that."""
    sealed: bool = False
    """The payload is under a topic key: nobody on the way can look inside."""
    under: str | None = None
    """The topic that it was sealed under, if that has changed since."""
    key: bytes | None = None
    """Only in the journal: the topic key that it is under, wrapped for the node (keyservice.row_keys)."""
    signed: bool = False
    """Its publisher has proven it with the key of a capability."""
    scored: bool = False
    """The pipeline made it: what its properties say of its quality is true."""
    floor: str | None = None
    """The lowest level of its way to this node, if it comes from another one."""
    held: tuple[str, ...] = ()
    """The facts that held on all of that way."""
    path: tuple[str, ...] = ()
    """The scopes of other nodes that it has been in, as `name@node id`."""
    foreign: tuple[str, int] | None = None
    """It came from another node: the id of its owner at home, and the number of the preferences that travelled with
    it (`policy.preference_sets`). None: it was published here, or nobody owns it."""
    token: str = ""
    """The capability of its publisher, signed, if it goes on to other nodes."""
    attested: bytes = b""
    """The static part of its envelope as it came, if the node that made the message has signed that."""
    others: tuple[SourceContext, ...] = ()
    """Of the other messages that it comes from."""

    @property
    def level(self) -> str:
        """The lowest level of its way so far."""
        return self.subject.level if self.floor is None else self.floor

    @property
    def facts(self) -> tuple[str, ...]:
        """The facts that held on all of its way so far."""
        return self.subject.facts if self.floor is None else self.held

    @property
    def publishers(self) -> str:
        """Whom it comes from, as on the command line; several with commas between them. Empty: nobody knows."""
        # hot: asked for each denial that depends on the message
        if not self.others:
            return in_list(self.subject.full_name)
        names = dict.fromkeys((self.subject.full_name, *(other.context.subject.full_name for other in self.others)))
        return ", ".join(in_list(name) for name in names if name)

    def crossed(self) -> Context:
        """The same behind a link between scopes: all that it comes from has come over that one."""
        if all(other.link is None for other in self.others):
            return self
        return replace(self, others=unique(replace(other, link=None) for other in self.others))

    def called(self, before: str) -> Context:
        """The same of a message that has another topic from now on."""
        topic = before if self.topic is None else self.topic
        under = before if self.sealed and self.under is None else self.under
        return self if (topic, under) == (self.topic, self.under) else replace(self, topic=topic, under=under)

    def encode(self) -> bytes:
        subject = self.subject
        known: dict[str, Any] = {
            "kind": subject.kind,
            "client": subject.client,
            "user": subject.user,
            "domain": subject.domain,
            "scope": subject.scope,
            "node": subject.node,
            "level": subject.level,
            "address": subject.address,
            "listener": subject.listener,
        }
        for name in ("facts", "roles", "groups"):
            if value := getattr(subject, name):
                known[name] = value
        for name in ("tls", "attributes"):
            if value := getattr(subject, name):
                known[name] = dict(value)
        if subject.impostor:
            known["impostor"] = True
        if subject.principal:
            known["principal"] = subject.principal
        if subject.identity:
            known["id"] = subject.identity
        if subject.capability is not None:
            known["capability"] = subject.capability.id  # no more of it is kept: its client has to show it again
        if self.demand is not None:
            known["demand"] = self.demand.text
        if self.view is not None:
            known["view"] = self.view
        if self.surroundings:
            known["e"] = dict(self.surroundings)
        if self.topic is not None:
            known["topic"] = self.topic
        if self.qos is not None:
            known["qos"] = self.qos
        if self.sealed:
            known["sealed"] = True
        if self.under is not None:
            known["under"] = self.under
        if self.key is not None:
            known["key"] = self.key
        if self.signed:
            known["signed"] = True
        if self.scored:
            known["scored"] = True
        if self.floor is not None:
            known["floor"] = self.floor
            known["held"] = self.held
            known["path"] = self.path
        if self.foreign is not None:
            known["foreign"] = list(self.foreign)
        if self.token:
            known["token"] = self.token
        if self.attested:
            known["attested"] = self.attested
        if self.others:
            known["others"] = [other.fields() for other in self.others]
            return SEVERAL + cbor2.dumps(known)
        return VERSION + cbor2.dumps(known)

    @classmethod
    def decode(cls, data: bytes) -> Context:
        """From bytes; those of nobody in particular, or of a version not known here, are of an unknown client."""
        if data[:1] not in (VERSION, SEVERAL):
            return cls(subject=_UNKNOWN)
        known = cbor2.loads(data[1:])
        subject = Subject(
            kind=known.get("kind", "client"),
            client=known.get("client", ""),
            user=known.get("user"),
            scope=known.get("scope", ""),
            node=known.get("node", ""),
            domain=known.get("domain", ""),
            level=known.get("level", "plain"),
            facts=tuple(known.get("facts", ())),
            address=known.get("address", ""),
            listener=known.get("listener", ""),
            roles=tuple(known.get("roles", ())),
            groups=tuple(known.get("groups", ())),
            tls=known.get("tls", _NOTHING),
            impostor=known.get("impostor", False),
            principal=known.get("principal", ""),
            identity=known.get("id", ""),
            attributes=known.get("attributes", _NOTHING),
            capability=Capability.lapsed(known["capability"]) if "capability" in known else None,
        )
        demand = Demand.of(known["demand"]) if "demand" in known else None
        return cls(
            subject=subject,
            demand=demand,
            view=known.get("view"),
            surroundings=known.get("e", _NOTHING),
            topic=known.get("topic"),
            qos=known.get("qos"),
            sealed=known.get("sealed", False),
            under=known.get("under"),
            key=known.get("key"),
            signed=known.get("signed", False),
            scored=known.get("scored", False),
            floor=known.get("floor"),
            held=tuple(known.get("held", ())),
            path=tuple(known.get("path", ())),
            foreign=tuple(known["foreign"]) if "foreign" in known else None,
            token=known.get("token", ""),
            attested=known.get("attested", b""),
            others=tuple(SourceContext.read(fields) for fields in known.get("others", ())),
        )

    @property
    def unsigned(self) -> Context:
        """The same of what is not what its publisher has signed."""
        return replace(self, signed=False, token="") if self.signed or self.token else self


@dataclass(frozen=True, slots=True)
class SourceContext:
    """The context of another message that a message comes from, or that a monitor remembers. Equal ones are one."""

    data: bytes
    """That context without `others`. Its `topic` says what the message was published under."""
    link: str | None
    """The type of the link that it came over; None: the same as that of the message which has this beside it."""
    published: float | None = None
    """When, if conditions read that."""
    context: Context = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "context", Context.decode(self.data))

    @property
    def publisher(self) -> tuple[bytes, str | None]:
        """Whose it is: the same for all topics of one who publishes in the same way."""
        return replace(self.context, topic=None, qos=None, attested=b"").encode(), self.link

    def fields(self) -> list[Any]:
        """For the store."""
        return [self.data, self.link, self.published]

    @classmethod
    def read(cls, fields: Sequence[Any]) -> SourceContext:
        return cls(*fields)


def unique(sources: Iterable[SourceContext]) -> tuple[SourceContext, ...]:
    """Each once, in their order."""
    return tuple(dict.fromkeys(sources))


@dataclass(frozen=True, slots=True)
class Terms:
    """What a subscription asks for beside MQTT's options: a floor of what it receives, and a condition on it."""

    demand: Demand | None = None
    where: str | None = None
    held: bool = False
    """Of a stored one: nobody allowed it when it was last looked at, so its retained messages are still owed."""

    @property
    def asks(self) -> bool:
        return self.demand is not None or self.where is not None

    def encode(self) -> bytes:
        """For the store; nothing asked is no bytes."""
        known: dict[str, Any] = {}
        if self.demand is not None:
            known["demand"] = self.demand.text
        if self.where is not None:
            known["where"] = self.where
        if self.held:
            known["held"] = True
        return VERSION + cbor2.dumps(known) if known else b""

    @classmethod
    def decode(cls, data: bytes) -> Terms:
        if not data:
            return NO_TERMS
        known = cbor2.loads(data[1:])
        demand = Demand.of(known["demand"]) if "demand" in known else None
        return cls(demand, known.get("where"), known.get("held", False))


NO_TERMS = Terms()
