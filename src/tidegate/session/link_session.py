"""The session of a link to a scope of another node.

It is a session like a client's: queue, windows, order and QoS 2 are the same, and so is what happens over a restart.
Three things differ. It acts as two links of its own, `near->far` and `far->near`. What it sends has the topic that the
other side knows, and an envelope in front of the payload. And its client is another node, which is never a target of
the fast lane.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from tidegate.policy import Subject
from tidegate.session.decider import Decider
from tidegate.session.frames import Parts
from tidegate.session.link import Link, NodeLinkEnd
from tidegate.session.message import Delivery, Message
from tidegate.session.runtime import Full, Site
from tidegate.session.session import NEVER, NOT_CROSSING, Session
from tidegate.wire.envelope import MAX_BUNDLE

if TYPE_CHECKING:
    from tidegate.session.host import Route

GATHERED: Final = 256 * 1024  # bytes: when so much has been read meanwhile, what was gathered leaves
PACE: Final = 0.001  # seconds from one writing to the next while there is much: so long a message waits at most
BUSY: Final = 8  # messages that are much
LATELY: Final = 0.005  # seconds in which they leave; see `docs/design/hot-path.md`
LONGEST_BUNDLED: Final = 16 * 1024  # bytes of a payload; a longer one leaves by itself
ROOM_FOR_BUNDLES: Final = 256 * 1024  # bytes: whoever takes no packet of that size is sent none


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

    def relayed(self, name: bytes, message: Message, body: bytes) -> bytes:
        """The frame of messages that came from another node, as `reencoding.relay` has them; empty if they cannot go on
        as they came. ValueError as `head`."""
        ...


class LinkSession(Session):
    """What is owed to another node, and what it has published here and not released yet."""

    __slots__ = (
        "_appended_to",
        "_begins",
        "_bundles",
        "_listed",
        "_opened_at",
        "_put_at",
        "_recent",
        "_waiting",
        "bundling",
        "deferring",
        "displaced",
        "exporter",
        "refusing",
        "ringed",
    )

    guards = False
    """It stands for the broker behind its scope, and only clients of that scope reach it by the fast lane."""

    def __init__(self, *, site: Site, decider: Decider, principal: str, name: str, subject: Subject) -> None:
        self.exporter: Exporter
        self.displaced: Callable[[Message], None] = lambda message: None  # told of what had to make room
        self.deferring: Callable[[], None] = _nothing  # told when something waits for a better connection
        self.refusing = False  # at its bound publishers are told, and nobody is sent anything
        self.ringed = False  # what goes over it may get where what goes over another link gets
        self.bundling = False  # the other node takes several messages in one envelope
        self._bundles: dict[tuple[bytes, Route], list[bytes]] = {}
        """QoS 0 messages of this turn, by what they agree in: the payload of each;"""
        self._begins: list[bytes] = []  # and how they begin
        self._appended_to: list[tuple[dict[Route, list[bytes]], Route]] = []
        """Where their sources have them, who append to them without asking (`Session.crossing`)."""
        self._opened_at = 0  # so many bytes had been read when the first of them came
        self._listed = False  # the site asks at each flush
        self._put_at = float("-inf")  # when some left last,
        self._recent = 0.0  # and how many did lately, those of long ago counting less
        self._waiting = False  # some wait for a moment
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
        key = source.context, route
        try:
            self._bundles[key].append(payload)
        except KeyError:
            self._open_bundle(key, name, payload, source)
        if not self.bundling:
            self.gathered()

    def _open_bundle(self, key: tuple[bytes, Route], name: bytes, payload: bytes, source: Session) -> None:
        site, route = self.site, key[1]
        try:
            head = self.exporter.head(name, source)
        except ValueError:  # too much stands beside it
            site.counters.dropped += 1
            return
        if not self._bundles:
            self._opened_at = site.counters.bytes_received
            if not self._listed:
                self._listed = True
                site.gathered.append(self._flushed)
        self._begins.append(head)
        bundle = self._bundles[key] = [payload]
        if self.bundling and len(route.cross) == len(route.cross[0][1]) == 1:  # it goes nowhere else
            if source.crossing is NOT_CROSSING:
                source.crossing = {}
            source.crossing[route] = bundle
            self._appended_to.append((source.crossing, route))

    def _flushed(self) -> bool:
        """What was gathered leaves; or a moment later, if many have left lately: to write to the other node, and to
        be read there, costs as much as dozens of messages. Whether something stays."""
        site = self.site
        if self._bundles and site.counters.bytes_received - self._opened_at < GATHERED:
            if self._recent >= BUSY and site.now < self._put_at + PACE and not self._waiting:
                self._waiting = True
                site.unfinished.append(self._moment_later)
            if self._waiting:
                return True
        self.gathered()
        self._listed = False
        return False

    def _moment_later(self) -> bool:
        self._waiting = False
        self.gathered()
        return False

    def _closed_bundles(self) -> Iterable[tuple[bytes, list[bytes]]]:
        """All that were open: what each begins with, and its payloads."""
        bundles, self._bundles = self._bundles, {}
        heads, self._begins = self._begins, []
        for crossing, route in self._appended_to:
            crossing.pop(route, None)
        self._appended_to.clear()
        return zip(heads, bundles.values(), strict=True)

    def gathered(self) -> None:
        if not self._bundles:
            return
        now = self.site.now
        self._recent *= max(0.0, 1 - (now - self._put_at) / LATELY)
        self._put_at = now
        for head, payloads in self._closed_bundles():
            count = len(payloads)
            if self.bundling:
                self._recent += count
            if count == 1:  # hot: of many publishers
                self._put(head, payloads)
                continue
            most = MAX_BUNDLE if max(map(len, payloads)) <= LONGEST_BUNDLED else 1
            if count <= most:
                self._put(head, payloads)
                continue
            for first in range(0, count, most):
                self._put(head, payloads[first : first + most])

    def _put(self, head: bytes, payloads: list[bytes]) -> None:
        frame, count = self.exporter.frame(head, payloads), len(payloads)
        if self.shut or (self.maximum and len(frame) > self.maximum):
            self.site.counters.dropped += count
        else:
            self.site.counters.frames_sent += count - 1
            super()._append(frame)

    def relayed(self, name: bytes, message: Message, body: bytes, count: int) -> bytes:
        """The frame in which messages from another node go on as they came; empty if they do not."""
        if count > 1 and not self.bundling:
            return b""
        try:
            frame = self.exporter.relayed(name, message, body)
        except ValueError:  # too much stands beside it
            return b""
        return b"" if self.maximum and len(frame) > self.maximum else frame

    def relay(self, frame: bytes, count: int) -> None:
        """Sends it. Nothing that was gathered is of the same publisher."""
        if self.shut:
            self.site.counters.dropped += count if self.connection is not None else 0
            return
        self.site.counters.frames_sent += count - 1
        super()._append(frame)

    def _append(self, frame: bytes) -> None:
        if self._bundles:
            self.gathered()  # it does not overtake what came before it
        super()._append(frame)

    def pause(self) -> None:
        self.gathered()
        super().pause()

    def detach(self) -> None:
        self._closed_bundles()
        super().detach()

    def _set_direct(self) -> None:
        self.direct = not self.shut and not self._again and self.deferred is None

    def _send_directly(self, delivery: Delivery, shown: Message) -> None:
        if self._bundles:
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
