"""The guard's own connection to the broker: for wills, for services, and for what comes over links (`ServiceSession`).

It is there as long as the scope is, and is opened again with back-off. It also finds out which version of MQTT the
broker speaks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from tidegate.errors import ProtocolError
from tidegate.guard.service_session import ServiceSession
from tidegate.guard.upstream import Upstream
from tidegate.session import Hold
from tidegate.session.store import Volatile
from tidegate.wire import (
    V5,
    V311,
    Connect,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Reason,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    encode,
)

if TYPE_CHECKING:
    from tidegate.guard.guarded_scope import GuardedScope

FIRST: Final = 0.1  # seconds before the second attempt
LONGEST: Final = 10.0  # and between attempts at most
QUESTION: Final = "tidegate/question"
"""What is subscribed to for a moment, to see with which QoS. Nothing is published there."""
KEEP_ALIVE: Final = 20  # seconds
EXPIRY: Final = 3600  # seconds that the broker keeps what it owes to this connection


class ServiceConnection:
    """One for each guarded scope. To its `Upstream` it is session, publishing and incoming envelopes at once, and to
    the `ServiceSession` its connection."""

    certificate = None

    def __init__(self, scope: GuardedScope) -> None:
        self.scope = scope
        self.site = scope.site
        self.upstream: Upstream | None = None
        self.version = V5
        """The newest version that the broker is known to speak."""
        self.error = ""
        """Why there is no connection."""
        self.unfit = ""
        """Why there had better be none: it would make less of what clients send, and not say so."""
        self.since: float | None = None
        """When it was opened (wall clock)."""
        self.connection = self
        self.relaying = self
        self.write: Callable[[bytes], None]
        self.session = ServiceSession(scope, scope.target.subject, self)
        self.name = f"tidegate-{scope.site.origin.node}"
        self._began = False  # it was connected before: what was on its way may be known to the broker
        self._clean = False
        self._closed = False
        self._wait = FIRST
        self._timer: Any = None

    # -- opening -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Opens it, now and whenever it is gone."""
        if self._closed or self.upstream is not None:
            return
        settings = self.scope.settings
        properties = Properties()
        if self.version == V5:
            properties = Properties(session_expiry_interval=EXPIRY, maximum_packet_size=settings.max_packet)
        self._clean = not (self._began or self.session.row)  # what the broker knows and the guard does not is ended
        packet = Connect(
            version=self.version,
            client_id=self.name,
            clean_start=self._clean,
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
        if self._clean and self.version == V311 and not isinstance(self.site.store, Volatile):
            upstream.close()  # 3.1.1: a session that begins anew would end with its connection
            self.upstream = None
            self.start()
            return
        self.error, self.since = "", self.site.wall
        if not self.session.suspects:
            self._wait = FIRST
        upstream.attach(self)  # type: ignore[arg-type]
        upstream.incoming = self  # type: ignore[assignment]
        assert upstream.connack is not None
        present = upstream.connack.session_present
        self.write = upstream.write
        upstream.begin()
        self.session.attach_to(upstream, present=present)
        if self.version == V5:
            self.unfit = ""
        elif self.scope.settings.abilities.qos == 2:
            wanted = Subscription(filter=QUESTION, qos=2)
            upstream.send(encode(Subscribe(packet_id=65535, subscriptions=(wanted,)), V311))

    def asked(self, packet: Suback | Unsuback) -> None:
        """The broker says with which QoS it would deliver, which 3.1.1 has no other way to find out."""
        upstream = self.upstream
        if upstream is None or isinstance(packet, Unsuback):
            return
        upstream.send(encode(Unsubscribe(packet_id=65535, filters=(QUESTION,)), V311))
        self.unfit = ""
        if packet.reasons in ((0,), (1,)):
            self.unfit = f"it grants QoS {packet.reasons[0]} where 2 was asked for: say which broker it is with `kind`"
            for session in list(self.scope.owners.values()):
                if session.upstream is not None:
                    session.upstream.end(self.unfit)
            upstream.end(self.unfit)

    def _again(self) -> None:
        if not self._closed:
            self._timer = self.site.timers.at(self.site.now + self._wait, self.start)
            self._wait = min(self._wait * 2, LONGEST)

    def left_by(self, upstream: Upstream, reason: Reason, why: str) -> None:
        """The connection is over."""
        if upstream is self.upstream:
            self.upstream, self.since = None, None
            self.session.cut_off(reason)
            self.session.detach()
            self.scope.name_proof.forget()
            self.error = why
            self._again()

    def renew(self) -> None:
        """The broker is another one, or knows the guard by another name."""
        self.unfit = ""
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
            self.session.detach()

    # -- between the broker and the session --------------------------------------------------------------------

    def answered(self, packet: Puback | Pubrec | Pubcomp) -> None:
        """The broker has acknowledged something."""
        match packet:
            case Puback():
                self.session.acknowledged(packet.packet_id)
            case Pubrec():
                self.session.received(packet.packet_id, packet.reason)
            case Pubcomp():
                self.session.completed(packet.packet_id)

    def hold_reading(self, reason: Hold | None = None) -> None:
        """The broker does not read fast enough."""
        self.session.pause()

    def release_reading(self, reason: Hold) -> None:
        self.session.unpause()

    # -- as `IncomingEnvelopes`: nothing is subscribed to ------------------------------------------------------

    def unacknowledged(self, data: bytes, start: int, stop: int) -> None:
        raise ProtocolError("a message that nobody has subscribed to")

    def published(self, packet: Publish) -> None:
        raise ProtocolError("a message that nobody has subscribed to")

    def released(self, packet: Pubrel) -> None:
        raise ProtocolError("PUBREL of a message that was never sent")
