"""Which scopes there are, how they are linked, and what crosses each link (semantics, *Brokering* and *Flows*).

A link between scopes is directed and has a type, as every link has. It carries everything, or what its shares list,
under the names that they give it on the other side.

Invariants
- There is at most one link from one scope to another.
- A topic crosses by the first share that matches it, so it has one name on the other side.
- Reserved topics (`$…`) are about one scope, and never cross; nor does what would be too long behind a link.
- A link to a scope of another node has exactly one end here. No scope here has the name of its far end.

It does not decide who may see what crosses, nor which type may follow which: see `brokering` and `access`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Final

from tidegate.policy.brokering import PLAIN
from tidegate.policy.failover import Failover
from tidegate.topics import covers, intersection, matches, overlaps, valid_topic

ORIGINALS: Final = 50
"""Names in scopes from which something may have come, that are looked at."""


class Way(Enum):
    """Where a link leads in the hierarchy."""

    UP = "up"
    """To a parent."""
    DOWN = "down"
    """To a child."""
    ACROSS = "across"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicMapping:
    """Topics that cross a link, what they are called on either side, and the highest QoS they keep."""

    filter: str
    here: str = ""
    """In front of the filter where they come from. It is taken away."""
    there: str = ""
    """In front of what is left, where they go to."""
    qos: int = 2

    def renamed(self, topic: str) -> str | None:
        """What a topic is called on the other side; None if it does not cross by this."""
        if not topic.startswith(self.here):
            return None
        rest = topic[len(self.here) :]
        return self.there + rest if matches(self.filter, rest) else None

    def before(self, filter: str) -> str | None:
        """A filter of all topics that cross by this and then match a filter; perhaps of some more. None: there are
        none."""
        rest = _behind(self.there, filter)
        if rest is None or not overlaps(rest, self.filter):
            return None
        if covers(rest, self.filter):
            rest = self.filter
        return self.here + rest if not self.here or self.here.endswith("/") else "#"

    def asked_for(self, filter: str) -> str | None:
        """A filter of topics that cross by this and are called on the other side so that they match a filter: of all of
        them, and of none that does not cross. None: there are none."""
        rest = _behind(self.there, filter)
        crossing = None if rest is None else intersection(rest, self.filter)
        if crossing is None:
            return None
        return self.here + (crossing if not self.here or self.here.endswith("/") else self.filter)

    @property
    def turned(self) -> TopicMapping:
        """The same for the other direction."""
        return TopicMapping(filter=self.filter, here=self.there, there=self.here, qos=self.qos)


def _behind(prefix: str, filter: str) -> str | None:
    """A filter of what may stand behind a prefix in topics that match a filter; None: no such topic begins with it."""
    if not prefix:
        return filter
    if not prefix.endswith("/"):
        return "#"  # it ends within a level
    levels = filter.split("/")
    for part in prefix[:-1].split("/"):
        if not levels or levels[0] not in (part, "+", "#"):
            return None
        if levels[0] == "#":
            return "#"
        del levels[0]
    return "/".join(levels) or None


ALL: Final = (TopicMapping(filter="#"),)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeLink:
    source: str
    target: str
    type: str = PLAIN.inward
    way: Way = Way.ACROSS
    shares: tuple[TopicMapping, ...] = ALL
    """What crosses; the first that matches counts."""
    back: tuple[TopicMapping, ...] = ()
    """What crosses the link in the other direction, so that answers can be addressed."""

    @property
    def name(self) -> str:
        return f"{self.source}->{self.target}"

    def crossing(self, topic: str) -> tuple[str, int] | None:
        """What a topic is called behind this link, and with which QoS at most; None if it does not cross."""
        if topic.startswith("$"):
            return None
        for share in self.shares:
            renamed = share.renamed(topic)
            if renamed:
                return None if renamed.startswith("$") or not valid_topic(renamed) else (renamed, share.qos)
        return None

    def before(self, topic: str) -> str | None:
        """What a topic behind this link is called before it; None if nothing that crosses is called that."""
        for share in self.shares:
            name = share.turned.renamed(topic)
            if name and (crossed := self.crossing(name)) is not None and crossed[0] == topic:
                return name
        return None

    def brings_back(self, topic: str) -> bool:
        """Whether something that is called so before this link can come over the one in the other direction."""
        return any(share.turned.renamed(topic) for share in self.back)

    def answered(self, topic: str) -> str:
        """Where somebody behind this link has to answer, so that the answer arrives under this topic before it."""
        for share in self.back:
            renamed = share.turned.renamed(topic)
            if renamed:
                return renamed
        return topic

    def __str__(self) -> str:
        return self.name


class Forward(Enum):
    """What goes over a link of all that crosses it."""

    ALL = "all"
    """Everything."""
    SUBSCRIPTIONS = "subscriptions"
    """What the other side has subscribed to."""


class Overflow(Enum):
    """What happens when the queue of a link is full."""

    DROP = "drop"
    """The oldest message goes."""
    REFUSE = "refuse"
    """The new one is refused to its publisher."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """The other end of a link is any MQTT broker, which this node connects to as a client."""

    mqtt5: bool = True
    """Whether it is spoken to in MQTT 5, and not in 3.1.1."""
    client: str
    """The client id that this node has there."""
    user: str | None = None
    password: bytes | None = field(default=None, repr=False)
    ca: str | None = None
    """The file of the authorities that may have signed its certificate; None: those that the system knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLink:
    """A link between a scope of this node and one of another node, or a foreign broker: both directions."""

    near: str
    """The scope of this node."""
    far: str
    """The scope of the other one."""
    out: ScopeLink | None
    """From near to far; None: nothing goes out."""
    into: ScopeLink | None
    """From far to near; None: nothing comes in."""
    via: tuple[str, ...] = ()
    """The addresses of the other end, the preferred one first; none: the other end connects."""
    peer: str | None = None
    """The certificate of the other end: its subject (RFC 4514), or `sha256:` and its fingerprint."""
    trusted: bool = True
    """Whether the node at the other end is believed."""
    plain_backup: bool = False
    """Whether the other end may connect without a certificate."""
    sign: bool = False
    """Whether what leaves is signed, and what comes has to be."""
    overflow: Overflow = Overflow.DROP
    forward: Forward = Forward.ALL
    export: tuple[str, ...] = ()
    """Attributes of publishers that the other side is told."""
    broker: Broker | None = None
    """How the foreign broker there is reached; None: there is a Tidegate node."""
    failover: Failover | None = None
    """How the connections to several addresses are used; None: one after the other, until one opens."""

    @property
    def name(self) -> str:
        """As this end calls it: at the other one near and far change places."""
        return f"{self.near}->{self.far}"

    @property
    def reads(self) -> bool:
        """Whether the far end is itself a reader of the full content, which nobody holds to anything."""
        return self.broker is not None or not self.trusted

    @property
    def plain(self) -> bool:
        """Whether a connection without certificates may carry it while there is no better one."""
        return self.plain_backup or any(address.startswith("mqtt:") for address in self.via)

    @property
    def directions(self) -> tuple[ScopeLink, ...]:
        """The directed links that there are, outward first."""
        return tuple(link for link in (self.out, self.into) if link is not None)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """The two scopes of a role: where its members publish, and where they receive."""

    publishing: str
    receiving: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeGraph:
    """All scopes of a node and their links."""

    scopes: tuple[str, ...] = ()
    parents: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    links: tuple[ScopeLink, ...] = ()
    roles: Mapping[str, Role] = field(default_factory=lambda: MappingProxyType({}))
    """With `rbac`: who connects to the bus belongs to exactly one of these."""
    bus: str = ""
    remote: tuple[NodeLink, ...] = ()
    """Links to scopes of other nodes, which are not among `scopes`, nor these links among `links`."""

    @property
    def joined(self) -> dict[str, frozenset[str]]:
        """For each scope those that it is linked with inside the node, however indirectly, itself included."""
        joined = {name: {name} for name in self.scopes or ("main",)}
        for link in self.links:
            source, target = joined[link.source], joined[link.target]
            if source is not target:
                source |= target
                for name in target:
                    joined[name] = source
        return {name: frozenset(names) for name, names in joined.items()}

    def role(self, scope: str, held: Iterable[str]) -> Role | str | None:
        """The scopes of whoever connects to a scope with these roles; why it may not; None if it stays there."""
        if scope != self.bus or not self.roles:
            return None
        names = [name for name in dict.fromkeys(held) if name in self.roles]
        if len(names) == 1:
            return self.roles[names[0]]
        if not names:
            return "brokering: you have none of the roles that may connect here"
        return f"brokering: you have several roles ({', '.join(names)}), and may have one here"

    def originals(self, scope: str, filter: str) -> frozenset[str]:
        """Filters of all topics under which something may have been published that matches a filter in a scope, over
        whatever links it has come; perhaps of some more, and `#` if there are too many."""
        return frozenset(called for _, called in self.called_before(scope, filter))

    def called_before(self, scope: str, filter: str) -> frozenset[tuple[str, str]]:
        """The same, each with the scope where it is called so."""
        found = {(scope, filter)}
        waiting = [(scope, filter)]
        for here, called in waiting:
            for link in self.links:
                for share in link.shares if link.target == here else ():
                    before = share.before(called)
                    if before is not None and (link.source, before) not in found:
                        found.add((link.source, before))
                        waiting.append((link.source, before))
            if len(waiting) > ORIGINALS:
                return frozenset((name, "#") for name in {name for name, _ in found} | set(self.scopes))
        return frozenset(waiting)

    def place(self, scope: str, held: Iterable[str]) -> Role | str:
        """The same, where whoever stays in a scope publishes and receives there."""
        return self.role(scope, held) or Role(publishing=scope, receiving=scope)


ALONE: Final = ScopeGraph()
