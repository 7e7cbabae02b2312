"""QoS 0 messages that are gathered before they leave for another node: by publisher and topic, which they agree in.

To write to the other node, and to be read there, costs as much as dozens of messages. So what one flush finds leaves
together, and if many have left lately it waits a moment for more.

A stream stays for a while, so that its sources need not look for it: they append to it (`Session.crossing`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tidegate.session.runtime import Site
from tidegate.session.session import NOT_CROSSING, Session

if TYPE_CHECKING:
    from tidegate.session.host import Route

GATHERED: Final = 256 * 1024  # bytes: when so much has been read meanwhile, what was gathered leaves
PACE: Final = 0.001  # seconds from one writing to the next while there is much: so long a message waits at most
BUSY: Final = 8  # messages that are much
LATELY: Final = 0.005  # seconds in which they leave; see `docs/design/hot-path.md`
STREAMS: Final = 4096  # that are kept at a time,
KEPT: Final = 1.0  # and for how many seconds


class Stream:
    """Payloads that have not left yet. Whoever appends the first one says so to `gathering`."""

    __slots__ = ("gathering", "head", "payloads")

    def __init__(self, gathering: Gathering, head: bytes) -> None:
        self.gathering = gathering
        self.payloads: list[bytes] = []
        self.head = head
        """What they begin with."""


class Gathering:
    """What is gathered for one link."""

    __slots__ = (
        "_active",
        "_appended_to",
        "_begun",
        "_listed",
        "_put",
        "_put_at",
        "_recent",
        "_site",
        "_streams",
        "_waiting",
        "patient",
    )

    def __init__(self, site: Site, put: Callable[[], None]) -> None:
        """`put`: has everything leave."""
        self._site = site
        self._put = put
        self.patient = False  # several may leave together
        self._streams: dict[tuple[bytes, Route], Stream] = {}
        self._active: list[Stream] = []  # those that hold something, in order
        self._appended_to: list[tuple[dict[Route, Stream], Route]] = []  # where sources have them
        self._begun = 0  # so many bytes had been read when the first message came
        self._listed = False  # the site asks at each flush
        self._put_at = float("-inf")  # when some left last,
        self._recent = 0.0  # and how many did lately, those of long ago counting less
        self._waiting = False  # some wait for a moment

    def __bool__(self) -> bool:
        return bool(self._active)

    def add(self, route: Route, payload: bytes, source: Session, head: Callable[[], bytes]) -> None:
        """`head`: what messages of this source and route begin with."""
        # hot: one look-up, one append; most that follow are appended by `Reader._read`
        stream = self._streams.get((source.context, route))
        if stream is None:
            stream = self._open(route, source, head())
        if not stream.payloads:
            self.begins(stream)
        stream.payloads.append(payload)

    def _open(self, route: Route, source: Session, head: bytes) -> Stream:
        if len(self._streams) >= STREAMS:
            self._put()
            self.forget()
        if not self._streams:
            self._site.timers.at(self._site.now + KEPT, self._expire)
        stream = self._streams[source.context, route] = Stream(self, head)
        if self.patient and len(route.cross) == len(route.cross[0][1]) == 1:  # it goes nowhere else
            if source.crossing is NOT_CROSSING:
                source.crossing = {}
            source.crossing[route] = stream
            self._appended_to.append((source.crossing, route))
        return stream

    def begins(self, stream: Stream) -> None:
        """It gets its first message now."""
        if not self._active:
            self._begun = self._site.counters.bytes_received
            if not self._listed:
                self._listed = True
                self._site.gathered.append(self._flushed)
        self._active.append(stream)

    def _flushed(self) -> bool:
        """What was gathered leaves, or a moment later; whether something stays."""
        site = self._site
        if self._active and site.counters.bytes_received - self._begun < GATHERED:
            if self._recent >= BUSY and site.now < self._put_at + PACE and not self._waiting:
                self._waiting = True
                site.unfinished.append(self._moment_later)
            if self._waiting:
                return True
        self._put()
        self._listed = False
        return False

    def _moment_later(self) -> bool:
        self._waiting = False
        self._put()
        return False

    def taken(self) -> list[tuple[bytes, list[bytes]]]:
        """Everything, by what it begins with. From now on it is on its way."""
        active, self._active = self._active, []
        now, count = self._site.now, sum(len(stream.payloads) for stream in active)
        if self.patient:
            self._recent = self._recent * max(0.0, 1 - (now - self._put_at) / LATELY) + count
        self._put_at = now
        taken = [(stream.head, stream.payloads) for stream in active]
        for stream in active:
            stream.payloads = []
        return taken

    def forget(self) -> None:
        """Streams begin anew: what they begin with may be something else. What they hold is lost."""
        for stream in self._active:
            stream.payloads.clear()
        self._active = []
        for crossing, route in self._appended_to:
            crossing.pop(route, None)
        self._appended_to.clear()
        self._streams.clear()

    def _expire(self) -> None:
        self._put()
        self.forget()
