"""The guard's own connection to the broker: for wills, for services, and for what comes over links.

It is there as long as the scope is, and is opened again with back-off. What finds it closed waits, within the bounds of
a queue; at the bound the oldest goes, counted. It also finds out which version of MQTT the broker speaks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from tidegate.errors import ProtocolError
from tidegate.guard.upstream import Upstream
from tidegate.session import Message
from tidegate.wire import V5, V311, Connect, Properties, Puback, Pubcomp, Publish, Pubrec, Pubrel, Reason

if TYPE_CHECKING:
    from tidegate.guard.guarded_scope import GuardedScope

FIRST: Final = 0.1  # seconds before the second attempt
LONGEST: Final = 10.0  # and between attempts at most
KEEP_ALIVE: Final = 20  # seconds
EXPIRY: Final = 3600  # seconds that the broker keeps what it owes to this connection
WINDOW: Final = 100  # QoS 1 and 2 messages on their way, if the broker does not say how many


class _Sent:
    """A message on its way."""

    __slots__ = ("data", "done", "released")

    def __init__(self, data: bytes, done: Callable[[], None] | None) -> None:
        self.data = data
        self.done = done
        self.released = False


class ServiceConnection:
    """One for each guarded scope. To its `Upstream` it is session, publishing and receiving at once."""

    def __init__(self, scope: GuardedScope) -> None:
        self.scope = scope
        self.site = scope.site
        self.upstream: Upstream | None = None
        self.version = V5
        """The newest version that the broker is known to speak."""
        self.error = ""
        """Why there is no connection."""
        self.since: float | None = None
        """When it was opened (wall clock)."""
        self.connection = None  # no client is held up by it
        self.relaying = self
        self.name = f"tidegate-{scope.site.origin.node}"
        self._began = False  # it was connected before: what was on its way may be known to the broker
        self._closed = False
        self._wait = FIRST
        self._pid = 0
        self._queue: deque[tuple[Message, Callable[[], None] | None]] = deque()
        self._sent: dict[int, _Sent] = {}
        self._timer: Any = None

    @property
    def waiting(self) -> int:
        """Messages that the broker has not acknowledged."""
        return len(self._queue) + len(self._sent)

    # -- opening -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Opens it, now and whenever it is gone."""
        if self._closed or self.upstream is not None:
            return
        settings = self.scope.settings
        properties = Properties()
        if self.version == V5:
            properties = Properties(session_expiry_interval=EXPIRY, maximum_packet_size=settings.max_packet)
        packet = Connect(
            version=self.version,
            client_id=self.name,
            clean_start=not self._began,
            keep_alive=KEEP_ALIVE,
            username=settings.username,
            password=settings.password,
            properties=properties,
        )
        self.upstream = upstream = Upstream(self.scope, packet, self._answered)
        self.scope.dial(upstream)

    def _answered(self, upstream: Upstream) -> None:
        if upstream is not self.upstream:
            return
        refusal = upstream.refusal
        if refusal is None:
            self._opened(upstream)
            return
        self.upstream = None
        if self.version == V5 and upstream.outdated:
            self.version = V311
            self._wait = FIRST
        elif upstream.reached:
            self.version = V5  # it may be another broker the next time
        self.error = upstream.error or refusal.name.lower().replace("_", " ")
        self._again()

    def _opened(self, upstream: Upstream) -> None:
        self._began = True
        self.error, self.since, self._wait = "", self.site.wall, FIRST
        upstream.attach(self)  # type: ignore[arg-type]
        upstream.receiving = self  # type: ignore[assignment]
        assert upstream.connack is not None
        if not upstream.connack.session_present:
            for sent in self._sent.values():
                sent.released = False
        for pid, sent in self._sent.items():
            if sent.released:
                upstream.send(b"\x62\x02" + pid.to_bytes(2, "big"))
            else:
                upstream.send(bytes((sent.data[0] | 0x08,)) + sent.data[1:])
        upstream.begin()
        self._pump()

    def _again(self) -> None:
        if not self._closed:
            self._timer = self.site.timers.at(self.site.now + self._wait, self.start)
            self._wait = min(self._wait * 2, LONGEST)

    def left_by(self, upstream: Upstream, reason: Reason, why: str) -> None:
        """The connection is over."""
        if upstream is self.upstream:
            self.upstream, self.since = None, None
            self.scope.name_proof.forget()
            self.error = why
            self._again()

    def renew(self) -> None:
        """The broker is another one, or knows the guard by another name."""
        self.scope.name_proof.forget()
        upstream = self.upstream
        if upstream is not None and upstream.opened:
            upstream.end("the configuration has changed")
        elif upstream is None:
            self.site.timers.cancel(self._timer)
            self._wait = FIRST
            self.start()

    def close(self) -> None:
        self._closed = True
        self.site.timers.cancel(self._timer)
        upstream, self.upstream = self.upstream, None
        if upstream is not None:
            upstream.session = None
            upstream.close()

    # -- publishing --------------------------------------------------------------------------------------------

    def publish(self, message: Message, done: Callable[[], None] | None = None) -> None:
        """A message that may be written. `done` is called when the broker has it."""
        self._queue.append((message, done))
        self._pump()
        limits = self.site.limits
        while len(self._queue) > limits.queue_messages:
            self._queue.popleft()
            self.site.counters.dropped += 1

    def _pump(self) -> None:
        upstream = self.upstream
        while self._queue and upstream is not None and upstream.opened:
            message, done = self._queue[0]
            if message.qos and len(self._sent) >= min(upstream.quota, WINDOW):
                return
            self._queue.popleft()
            if message.expires is not None and message.expires <= self.site.now:
                self.site.counters.expired += 1
                if done is not None:
                    done()
                continue
            upstream.exchange = pid = self._next_pid() if message.qos else 0
            upstream.refused = None
            data = upstream.publish(message)
            if data is None:
                self.site.counters.dropped += 1
                if upstream.refused is not None:
                    self.scope.report("write", self.scope.target.outward, message.topic, upstream.refused)
            elif message.qos:
                self._sent[pid] = _Sent(data, done)
                continue
            if done is not None:
                done()

    def _next_pid(self) -> int:
        pid = self._pid
        while True:
            pid = pid + 1 if pid < 65535 else 1
            if pid not in self._sent:
                self._pid = pid
                return pid

    def answered(self, packet: Puback | Pubrec | Pubcomp) -> None:
        """The broker has acknowledged something."""
        pid = packet.packet_id
        sent = self._sent.get(pid)
        if isinstance(packet, Pubrec) and packet.reason < 0x80:
            if sent is not None:
                sent.released = True
                self._tell(sent)
            assert self.upstream is not None
            self.upstream.send(b"\x62\x02" + pid.to_bytes(2, "big"))
        elif sent is not None:
            del self._sent[pid]
            self._tell(sent)
            self._pump()

    @staticmethod
    def _tell(sent: _Sent) -> None:
        done, sent.done = sent.done, None
        if done is not None:
            done()

    def keep(self, pid: int, data: bytes) -> None:
        """`publish` keeps it (as `RelayedPublishing`)."""

    # -- as `Receiving`: nothing is subscribed to ----------------------------------------------------------------

    def unacknowledged(self, data: bytes, start: int, stop: int) -> None:
        raise ProtocolError("a message that nobody has subscribed to")

    def published(self, packet: Publish) -> None:
        raise ProtocolError("a message that nobody has subscribed to")

    def released(self, packet: Pubrel) -> None:
        raise ProtocolError("PUBREL of a message that was never sent")
