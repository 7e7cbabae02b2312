"""The session of a link to a scope of another node.

It is a session like a client's: queue, windows, order and QoS 2 are the same, and so is what happens over a restart.
Three things differ. It acts as two links of its own, `near->far` and `far->near`. What it sends has the topic that the
other side knows, and an envelope in front of the payload. And its client is another node, which is never a target of
the fast lane.

A message over which the other side ends each connection, and says so, would keep all others from it for ever. So the
oldest that was on its way is sent alone over the next connections, and goes if these end like that, too.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from tidegate.native import mypyc_attr
from tidegate.policy import Subject
from tidegate.session.decider import Decider
from tidegate.session.frames import Parts
from tidegate.session.gathering import Gathering
from tidegate.session.link import Link, NodeLinkEnd
from tidegate.session.message import SENT, Delivery, Message
from tidegate.session.runtime import Full, Site
from tidegate.session.session import NEVER, Session
from tidegate.wire import Reason
from tidegate.wire.envelope import MAX_BUNDLE

if TYPE_CHECKING:
    from tidegate.session.connection import Connection
    from tidegate.session.host import Route

LONGEST_BUNDLED: Final = 16 * 1024  # bytes of a payload; a longer one leaves by itself
ROOM_FOR_BUNDLES: Final = 256 * 1024  # bytes: whoever takes no packet of that size is sent none

BLAMING: Final = frozenset(
    (
        *(Reason.MALFORMED_PACKET, Reason.PROTOCOL_ERROR, Reason.TOPIC_NAME_INVALID, Reason.PACKET_TOO_LARGE),
        *(Reason.PAYLOAD_FORMAT_INVALID, Reason.RETAIN_NOT_SUPPORTED, Reason.QOS_NOT_SUPPORTED),
    )
)
"""What the other side ends a connection with because of what it was sent, and not because of itself."""
TIMES: Final = 3  # in a row over the same message, after which that goes


class Exporter(Protocol):
    """Puts messages into the form in which they cross a link."""

    def parts(self, message: Message, qos: int, retain: bool, now: float) -> Parts:
        """The frame of a message, split where the packet identifier goes."""
        ...

    def head(self, name: bytes, source: Session) -> bytes:
        """What all QoS 0 messages of a client and topic that take the fast lane begin with; `name` is the topic as it
        stands in a packet. ValueError: what stands beside them does not fit an envelope."""
        ...

    def frame(self, head: bytes, payloads: Sequence[bytes]) -> bytes:
        """The frame of some of them."""
        ...

    def relayed(self, message: Message) -> bytes:
        """What messages begin with that came from another node as this one did, up to the dynamic part of their
        envelope; empty if they cannot go on as they came. ValueError as `head`."""
        ...


@mypyc_attr(allow_interpreted_subclasses=True)
class LinkSession(Session):
    """What is owed to another node, and what it has published here and not released yet."""

    __slots__ = (
        "_ended",
        "_narrowed",
        "_suspect",
        "deferring",
        "displaced",
        "exporter",
        "fatal",
        "gathering",
        "refusing",
        "ringed",
    )

    guards = False
    """It stands for the broker behind its scope, and only clients of that scope reach it by the fast lane."""

    def __init__(self, *, site: Site, decider: Decider, principal: str, name: str, subject: Subject) -> None:
        self.exporter: Exporter
        self.displaced: Callable[[Message], None] = lambda message: None  # told of what had to make room
        self.fatal: Callable[[Message], None] = lambda message: None  # told of what the other side hangs up over
        self._suspect: Delivery | None = None  # the oldest on its way when a connection ended like that
        self._ended = 0  # how often that has been so
        self._narrowed = 0  # by how much the window is smaller until it is acknowledged
        self.deferring: Callable[[], None] = _nothing  # told when something waits for a better connection
        self.refusing = False  # at its bound publishers are told, and nobody is sent anything
        self.ringed = False  # what goes over it may get where what goes over another link gets
        self.gathering = Gathering(site, self.gathered)
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

    def defer_in(self, stream: Hashable, delivery: Delivery, link: Link) -> None:
        super().defer_in(stream, delivery, link)
        self.deferring()

    def settle(self, delivery: Delivery) -> bool:
        """What waited for a better connection has been delivered over one; whether it still waited."""
        if self.deferred is None or not self.deferred.remove(delivery):
            return False
        self._owe(-1, -delivery.message.size)
        self._unstore(delivery)
        if not self.deferred:
            self.readmit()
            self._set_direct()
        return True

    def refuses(self, message: Message) -> bool:
        """Whether a QoS 1 or 2 message finds no room here, and is to be refused to its publisher then."""
        if not self.refusing or self.room(message):
            return False
        return self.connection is None or self.window <= 0 or self.queued > 0

    def carry(self, route: Route, name: bytes, payload: bytes, source: Session) -> None:
        """A QoS 0 message of a client, which a plan has decided. It leaves with those of this turn that begin alike: in
        the order of each publisher and topic. `name`: its topic as it stands in a packet."""
        # hot: one look-up, one append; most that follow are appended by `Reader._read`
        if self.shut:
            self.site.counters.dropped += self.connection is not None
            return
        try:
            self.gathering.add(route, payload, source, lambda: self.exporter.head(name, source))
        except ValueError:  # too much stands beside it
            self.site.counters.dropped += 1
        if not self.bundling:
            self.gathered()

    def gathered(self) -> None:
        if not self.gathering:
            return
        for head, payloads in self.gathering.taken():
            count = len(payloads)
            if count == 1:  # hot: of many publishers
                self._put(head, payloads)
                continue
            most = MAX_BUNDLE if max(map(len, payloads)) <= LONGEST_BUNDLED else 1
            if count <= most:
                self._put(head, payloads)
                continue
            for first in range(0, count, most):
                self._put(head, payloads[first : first + most])

    def begin_anew(self) -> None:
        """What was gathered leaves, and what follows may begin otherwise."""
        self.gathered()
        self.gathering.forget()

    @property
    def bundling(self) -> bool:
        """The other node takes several messages in one envelope."""
        return self.gathering.patient

    @bundling.setter
    def bundling(self, takes: bool) -> None:
        self.begin_anew()
        self.gathering.patient = takes

    def _put(self, head: bytes, payloads: list[bytes]) -> None:
        frame, count = self.exporter.frame(head, payloads), len(payloads)
        if self.shut or (self.maximum and len(frame) > self.maximum):
            self.site.counters.dropped += count
        else:
            self.site.counters.frames_sent += count - 1
            super()._append(frame)

    def relayed(self, message: Message) -> bytes:
        """What messages from another node begin with that go on as they came; empty if they do not."""
        try:
            return self.exporter.relayed(message)
        except ValueError:  # too much stands beside it
            return b""

    def relay(self, frame: bytes, count: int) -> None:
        """Sends it. Nothing that was gathered is of the same publisher."""
        if self.shut:
            self.site.counters.dropped += count if self.connection is not None else 0
            return
        self.site.counters.frames_sent += count - 1
        super()._append(frame)

    def _append(self, frame: bytes) -> None:
        if self.gathering:
            self.gathered()  # it does not overtake what came before it
        super()._append(frame)

    def pause(self) -> None:
        self.gathered()
        super().pause()

    def detach(self) -> None:
        self.gathering.forget()
        super().detach()

    def attach(self, connection: Connection | Any, *, version: int, window: int, maximum: int, aliases: int) -> None:
        self._narrowed = 0 if self._suspect is None else window - 1
        super().attach(connection, version=version, window=window - self._narrowed, maximum=maximum, aliases=aliases)

    @property
    def suspects(self) -> bool:
        """Whether a message may have ended the last connection."""
        return self._suspect is not None

    def cut_off(self, reason: int) -> None:
        """The other side has ended the connection, with this reason."""
        if reason not in BLAMING:
            return
        first = next((each for each in (self._inflight or {}).values() if each.state is SENT), None)
        if first is not self._suspect:
            self._suspect, self._ended = first, 0
        self._ended += 1
        if first is not None and self._ended >= TIMES:
            self.fatal(first.message)
            self.site.counters.dropped += 1
            self._suspect = None
            self._forget(first)

    def pump(self) -> None:
        suspect = self._suspect
        if suspect is not None and (
            (self._inflight or {}).get(suspect.pid) is not suspect or suspect.state is not SENT
        ):
            self._suspect = None  # it was not that message
            self.window += self._narrowed
            self._narrowed = 0
        super().pump()

    def _set_direct(self) -> None:
        self.direct = not self.shut and not self._again and self.deferred is None

    def _send_directly(self, delivery: Delivery, shown: Message) -> None:
        if self.gathering:
            self.gathered()
        try:
            super()._send_directly(delivery, shown)
        except ValueError:
            self.site.counters.dropped += 1

    def _fitting(self, message: Message, qos: int, retain: bool, ids: tuple[int, ...]) -> Parts | None:
        try:
            return super()._fitting(message, qos, retain, ids)
        except ValueError:
            return None

    def parts(
        self, message: Message, version: int, qos: int, retain: bool, ids: tuple[int, ...], now: float, alias: int = 0
    ) -> Parts:
        """ValueError: what stands beside it (topic, table of visibility) does not fit an envelope, or the other node
        takes no packet of that size."""
        head, tail = self.exporter.parts(message, qos, retain, now)
        if self.maximum and len(head) + len(tail) + 2 > self.maximum:
            raise ValueError("the other node takes no packet of that size")
        return head, tail


def _nothing() -> None:
    pass
