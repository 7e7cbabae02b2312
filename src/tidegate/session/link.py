"""Over which directed link somebody acts.

A client's connection is two links: `client:X->scope:S`, over which it publishes, and `scope:S->client:X`, over which
it receives. Both have the same subject.
"""

from __future__ import annotations

from typing import Final

from tidegate.bounded import Weighed
from tidegate.policy import Demand, Subject
from tidegate.policy.brokering import PLAIN
from tidegate.policy.demands import RELAXED
from tidegate.policy.scopes import ScopeLink

TOPICS: Final = 10_000
"""Topics whose names at the other end are kept for one link,"""
TOPIC_BYTES: Final = 2**20
"""and what they have together."""


class Link:
    """A directed pair of entities. Every hop of a message crosses one. Two per connection, so it is kept small."""

    __slots__ = ("demand", "inward", "scope", "subject", "type")

    def __init__(
        self, subject: Subject, inward: bool, type: str, demand: Demand | None = None, scope: str | None = None
    ) -> None:
        self.subject = subject
        self.scope = subject.scope if scope is None else scope
        self.inward = inward  # towards the scope
        self.type = type
        self.demand = demand  # what CONNECT demanded for everything after; None: it said nothing

    @property
    def source(self) -> str:
        return self.subject.name if self.inward else f"scope:{self.scope}"

    @property
    def target(self) -> str:
        return f"scope:{self.scope}" if self.inward else self.subject.name

    @property
    def leads_to(self) -> str:
        """The scope that it leads to: owners may say something of it."""
        return self.subject.scope

    @property
    def exports(self) -> bool:
        """Whether it leads to another node, or to a foreign broker."""
        return False

    @property
    def bridges(self) -> bool:
        """Whether it leads to a foreign broker, which enforces nothing of what travels with a message."""
        return False

    @property
    def degraded(self) -> bool:
        """Whether it leads to a node that is trusted otherwise, but not over this connection."""
        return False

    @property
    def relays(self) -> bool:
        """Whether it leads to a broker that this node guards: no reader, since the guard decides again behind it."""
        return False

    def __str__(self) -> str:
        return f"{self.source}->{self.target}"


class BackendEnd(Link):
    """From a guarded scope to its broker. Its subject is the guard itself, over the connection in use."""

    __slots__ = ()

    @property
    def relays(self) -> bool:
        return True


class ScopeLinkEnd(Link):
    """One end of a link between two scopes: where it leaves the one, or where it enters the other (`inward`).

    Its subject is the link itself, acting in the scope at this end.
    """

    __slots__ = ()

    @property
    def source(self) -> str:
        return f"scope:{self.subject.client.partition('->')[0]}"

    @property
    def target(self) -> str:
        return f"scope:{self.subject.client.partition('->')[2]}"


class NodeLinkEnd(ScopeLinkEnd):
    """The end on this node of a link to a scope of another one (not `inward`), or from it."""

    __slots__ = ("_before", "_qos", "far", "link")

    def __init__(self, subject: Subject, inward: bool, link: ScopeLink | None, far: str) -> None:
        super().__init__(subject, inward, PLAIN.inward if link is None else link.type, RELAXED)
        self.link = link  # what crosses; None: nothing
        self.far = far  # as messages' paths name the scope there; empty while its node is not known
        # by topic: to ask each share takes as long as the message itself
        self._before: Weighed[str, str | None] = Weighed(TOPICS, TOPIC_BYTES, len, self._named_before)
        self._qos: Weighed[str, int] = Weighed(TOPICS, TOPIC_BYTES, len, self._highest_qos)

    def before(self, topic: str) -> str | None:
        """What a topic behind this link is called before it; None if it does not cross."""
        return self._before[topic]

    def qos(self, topic: str) -> int:
        """With which QoS at most something that is called so before it crosses."""
        return self._qos[topic]

    def _named_before(self, topic: str) -> str | None:
        return None if self.link is None else self.link.before(topic)

    def _highest_qos(self, topic: str) -> int:
        crossed = None if self.link is None else self.link.crossing(topic)
        return 0 if crossed is None else crossed[1]

    @property
    def leads_to(self) -> str:
        return self.target.removeprefix("scope:")

    @property
    def exports(self) -> bool:
        return not self.inward


class BrokerLinkEnd(NodeLinkEnd):
    """The same of a link to a foreign broker."""

    __slots__ = ()

    @property
    def bridges(self) -> bool:
        return not self.inward


class DegradedLinkEnd(BrokerLinkEnd):
    """The same of a link to a node that is trusted otherwise: what may not go over this connection waits."""

    __slots__ = ()

    @property
    def degraded(self) -> bool:
        return not self.inward
