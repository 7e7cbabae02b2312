"""The session of a link to a scope of another node.

It is a session like a client's: queue, windows, order and QoS 2 are the same, and so is what happens over a restart.
Three things differ. It acts as two links of its own, `near->far` and `far->near`. What it sends has the topic that the
other side knows, and an envelope in front of the payload. And its client is another node, which is never a target of
the fast lane.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tidegate.policy import Subject
from tidegate.session.decider import Decider
from tidegate.session.frames import Parts
from tidegate.session.link import NodeLinkEnd
from tidegate.session.message import Delivery, Message
from tidegate.session.runtime import Full, Site
from tidegate.session.session import NEVER, Session


class Exporter(Protocol):
    """Puts messages into the form in which they cross a link."""

    def parts(self, message: Message, qos: int, retain: bool, now: float) -> Parts:
        """The frame of a message, split where the packet identifier goes."""
        ...

    def frame(self, name: bytes, payload: bytes, source: Session) -> bytes:
        """The frame of a QoS 0 message that takes the fast lane; `name` is its topic as it stands in a packet."""
        ...


class LinkSession(Session):
    """What is owed to another node, and what it has published here and not released yet."""

    __slots__ = ("displaced", "exporter", "refusing")

    guards = False
    """It stands for the broker behind its scope, and only clients of that scope reach it by the fast lane."""

    def __init__(self, *, site: Site, decider: Decider, principal: str, name: str, subject: Subject) -> None:
        self.exporter: Exporter
        self.displaced: Callable[[Message], None] = lambda message: None  # told of what had to make room
        self.refusing = False  # at its bound publishers are told, and nobody is sent anything
        super().__init__(site=site, decider=decider, principal=principal, client=name, subject=subject)
        self.expiry = NEVER

    def act(self, outward: NodeLinkEnd, inward: NodeLinkEnd) -> None:
        """Over which links it acts from now on: where messages leave the scope, and where they enter it."""
        self.subject = outward.subject
        self.outward, self.inward = outward, inward

    @property
    def plain(self) -> bool:
        return False

    @property
    def full(self) -> Full:
        return Full.DROP_OLDEST  # a long outage must not stop what is new

    def deliver(
        self,
        message: Message,
        qos: int,
        retain: bool,
        ids: tuple[int, ...],
        group: tuple[str, str] | None = None,
        shown: Message | None = None,
    ) -> None:
        """Owes it a message, with the QoS of the first share that has its topic."""
        link = self.outward
        assert isinstance(link, NodeLinkEnd)
        super().deliver(message, min(qos, link.qos(message.topic)), retain, ids, group, shown)

    def _displace(self, oldest: Delivery) -> None:
        self.displaced(oldest.message)
        super()._displace(oldest)

    def refuses(self, message: Message) -> bool:
        """Whether a QoS 1 or 2 message finds no room here, and is to be refused to its publisher then."""
        if not self.refusing or self.room(message):
            return False
        return self.connection is None or self.window <= 0 or self.queued > 0

    def carry(self, name: bytes, payload: bytes, source: Session) -> None:
        """A QoS 0 message of a client, which a plan has decided."""
        # hot: as `Reader` appends to other outboxes, with the envelope
        if self.shut:
            self.site.counters.dropped += self.connection is not None
            return
        try:
            frame = self.exporter.frame(name, payload, source)
        except ValueError:  # too much stands beside it
            self.site.counters.dropped += 1
            return
        if self.maximum and len(frame) > self.maximum:
            self.site.counters.dropped += 1
            return
        out = self.out
        if not out:
            self.site.dirty.append(self)
        out.append(frame)

    def _fitting(self, message: Message, qos: int, retain: bool, ids: tuple[int, ...]) -> Parts | None:
        try:
            return super()._fitting(message, qos, retain, ids)
        except ValueError:  # what stands beside it (topic, table of visibility) does not fit an envelope
            return None

    def parts(
        self, message: Message, version: int, qos: int, retain: bool, ids: tuple[int, ...], now: float, alias: int = 0
    ) -> Parts:
        return self.exporter.parts(message, qos, retain, now)
