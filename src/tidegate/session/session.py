"""One client's session: what it subscribed to, what is owed to it, and how far each delivery has come.

A session outlives its connections. While there is one, `connection` is set and frames go into `out`, which the site
writes once per turn. Invariants:

- `out` is a plain list while frames may be appended; else it is `Shut`, which swallows and counts.
- a QoS 2 packet identifier is in the store before it is used on the wire.
- a queued or resumed delivery is decided again when it is sent.
- what goes over a link with monitors (`leaving`) is shown to them once, in the order in which it comes. While the link
  is up that is at once, and what they make of it is sent or waits. What they have not seen, because it was queued
  while nobody was connected or before they were there, is shown to them at the head of the queue; until then
  everything else that they listen to waits behind it (`behind`), also what would not be queued otherwise.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from tidegate.errors import ProtocolError
from tidegate.native import mypyc_attr
from tidegate.policy import Demand, Subject
from tidegate.policy.brokering import PLAIN, Types
from tidegate.policy.revocation import PeerCertificate
from tidegate.session import unreleased_qos2 as unreleased
from tidegate.session.decider import Decider, Later
from tidegate.session.frames import Parts, TopicAliases, parts
from tidegate.session.grant import Grant
from tidegate.session.link import Link
from tidegate.session.message import RELEASED, SENT, Delivery, Message
from tidegate.session.outlet import Shut
from tidegate.session.queue import PIECE, DeliveryQueue
from tidegate.session.runtime import Site
from tidegate.session.store import StoredSession
from tidegate.session.timers import Timer
from tidegate.session.waiting_deliveries import waits_behind
from tidegate.wire import V5, Reason, Will

if TYPE_CHECKING:
    from tidegate.session.connection import Connection

NEVER = 0xFFFFFFFF
NOT_CROSSING: dict[Any, Any] = {}
PUBREL = b"\x62\x02"


@mypyc_attr(allow_interpreted_subclasses=True)
class Session(DeliveryQueue):
    """The state of one client at one scope."""

    __slots__ = (
        "aliases",
        "authenticated",
        "certificate",
        "client",
        "conditions",
        "context",
        "crossing",
        "decider",
        "direct",
        "ended",
        "entering",
        "expiry",
        "generation",
        "held",
        "home",
        "incoming",
        "incoming_bytes",
        "inward",
        "lagging",
        "leaving",
        "maximum",
        "offered",
        "outward",
        "overdue",
        "principal",
        "refused",
        "shares",
        "subject",
        "subscriptions",
        "timer",
        "version",
        "will",
        "will_proven",
        "will_timer",
    )

    def __init__(self, *, site: Site, decider: Decider, principal: str, client: str, subject: Subject) -> None:
        super().__init__(site, site.accounts.of(principal))
        self.decider = decider
        self.home = subject.scope  # the scope that it lives in, whatever is found out of its client later
        self.principal = principal
        self.client = client
        self.generation = self.authenticated = 0  # of the rules when `subject` was found, and when it proved itself
        self.certificate: PeerCertificate | None = None  # of its last connection: it may end when that has ended
        self.entering: tuple[Any, ...] = ()  # the monitors of its link to the scope, in order
        self.leaving: tuple[Any, ...] = ()  # and of that from it
        self.lagging = False  # those have not seen all that waits, and somebody wants to know when they have
        self.offered = (0, 0)  # to those: the last message, by its numbers
        self.identify(subject)
        self.version = V5
        self.write = _nowhere
        self.out = Shut()
        self.shut = True
        self.direct = False  # QoS 1 and 2 may be sent without a look at their size
        self.subscriptions: dict[str, Grant] | None = None
        self.incoming: dict[int, unreleased.Unreleased] | None = None  # QoS 2: what waits for PUBREL
        self.incoming_bytes = 0  # of what waits there for PUBREL
        self.shares = self.held = 0  # shared subscriptions among them, and those that nobody allows yet
        self.conditions = 0  # and those with a condition of their own
        self.refused = 0  # subscriptions that its connection was refused
        self.aliases: TopicAliases | None = None  # if the client takes any
        self.maximum = 0  # largest packet the client takes; 0: any
        self.overdue = 0  # control frames written although the client does not read
        self.expiry = 0
        self.ended: float | None = None  # wall clock of the last disconnection
        self.will: Will | None = None
        self.will_proven = False  # with CONNECT, each message having to be
        self.timer: Timer | None = None  # its expiry
        self.will_timer: Timer | None = None

    def __repr__(self) -> str:
        return f"<session {self.client!r} of {self.principal!r}>"

    # -- who it is ---------------------------------------------------------------------------------------------

    def identify(
        self,
        subject: Subject,
        demand: Demand | None = None,
        context: bytes = b"",
        types: Types = PLAIN,
        entrance: str | None = None,
    ) -> None:
        """The subject as this connection authenticated it, what it demands, the context of what it publishes, the
        types of its links, and the scope that it publishes into if that is another."""
        self.subject = subject
        self.inward = Link(subject, True, types.inward, demand, entrance)
        self.outward = Link(subject, False, types.outward, demand)
        self.context = context
        self.crossing = NOT_CROSSING  # by route: its stream to another node (`gathering`)

    @property
    def plain(self) -> bool:
        """May be sent frames exactly as another client of its version sent them."""
        return not self.maximum and self.aliases is None

    def save(self) -> None:
        """Notes it as persistent, as it now is."""
        record = StoredSession.of(self)
        self.site.store.save_session(record)
        self.row = record.row

    # -- coming and going --------------------------------------------------------------------------------------

    def attach(self, connection: Connection | Any, *, version: int, window: int, maximum: int, aliases: int) -> None:
        """A connection for it. Nothing is sent before `resume`."""
        self.connection = connection
        self.certificate = None if connection.certificate is None else connection.certificate.get("verified")
        self.version = version
        self.write = connection.write
        self.open_out()
        self.overdue = self.refused = 0
        self.maximum = maximum
        self.aliases = TopicAliases(aliases) if aliases else None
        # what was on its way goes first, once `resume` is called
        self._again = deque(self._inflight.values()) if self._inflight else None
        self.window = window
        self.ended = None
        self._set_direct()

    def detach(self) -> None:
        """The connection is gone. What was on its way stays owed."""
        self.connection = None
        self.postponed = False
        self.readmit()
        if self._queue and not all(delivery.qos for delivery in self._queue):
            # QoS 0 does not wait for the client to come back
            gone = [delivery for delivery in self._queue if not delivery.qos]
            self._queue = deque(delivery for delivery in self._queue if delivery.qos)
            self._count(-len(gone), -sum(delivery.message.size for delivery in gone))
        self.site.counters.dropped += self.dropped
        self.shut_out()
        self.direct = False
        self.write = _nowhere
        self.ended = self.site.wall

    def _resend(self, delivery: Delivery) -> None:
        if self._inflight is None or self._inflight.get(delivery.pid) is not delivery:
            return  # settled meanwhile, or handed to another member of its group
        self.window -= 1
        if delivery.state is RELEASED:
            _release(self, delivery)
        elif (shown := self.decider.permits(self, delivery)) is Later.LATER:
            self.window += 1
            self.defer(delivery)
        elif shown is None:
            # [MQTT-4.4.0-1] what has begun is sent again even if it has expired since [MQTT-3.3.2-5];
            # semantics.md, Time: in-flight packets that are now denied are not sent again
            if delivery.group is None or delivery.qos == 2:  # [MQTT-4.8.2-5] it was sent: to no other member
                self._forget(delivery)
            elif self._ground(delivery):
                self.decider.hand_on(delivery)
        else:
            self._emit(delivery, self.connection, shown, dup=True)

    def pause(self) -> None:
        """The client does not read fast enough: from now on QoS 0 is dropped, the rest waits."""
        if not self.shut:
            pending = self.out
            self.shut_out()
            self.direct = False
            if isinstance(pending, list) and pending:  # already decided and accepted; the transport takes it, once
                self.write(b"".join(pending))

    def unpause(self) -> None:
        if self.connection is not None and self.shut:
            self.site.counters.dropped += self.dropped
            self.open_out()
            self.overdue = 0
            self._set_direct()
            self.pump()

    def _set_direct(self) -> None:
        self.direct = not self.shut and not self._again and self.plain and self.deferred is None

    # -- sending -----------------------------------------------------------------------------------------------

    def parts(
        self, message: Message, version: int, qos: int, retain: bool, ids: tuple[int, ...], now: float, alias: int = 0
    ) -> Parts:
        """How it is sent a message: a link to another node has a way of its own."""
        return parts(message, version, qos, retain, ids, now, alias)

    def send(self, frame: bytes) -> None:
        """A control packet: never dropped while there is a connection."""
        if not self.shut:
            out = self.out
            if not out:
                self.site.dirty.append(self)
            out.append(frame)
        elif (connection := self.connection) is not None:
            self.write(frame)
            self.overdue += 1
            if self.overdue == 256:  # it sends to us and does not read our answers
                connection.hold_reading()

    def deliver(
        self,
        message: Message,
        qos: int,
        retain: bool,
        ids: tuple[int, ...],
        group: tuple[str, str] | None = None,
        shown: Message | None = None,
    ) -> None:
        """Owes `message`, which has been decided, to this session.

        `shown` is what it may see of it now, if that is not all. What waits is kept whole: it is decided again.
        """
        if self.leaving:
            self.offered = (message.number, message.output)
            if self.connection is not None:
                delivery = Delivery(message, qos, retain, ids, group)
                if not (qos and self.deferred is not None and waits_behind(self, self.deferred, delivery)):
                    self.offer(delivery, shown or message)
                return
        if not qos:
            if self.postponed:
                self.postpone(Delivery(message, 0, retain, ids, group))
            else:
                self._send_unacknowledged(shown or message, retain, ids)
            return
        delivery = Delivery(message, qos, retain, ids, group)
        room = self.window > 0 and (self.flying < self.site.limits.free_bytes or self.may_fly())
        if self.direct and room and not self._queue and message.expires is None:
            if self.row and qos == 2:
                self._transmit(delivery, shown or message)
            else:
                self._send_directly(delivery, shown or message)
        elif message.expires is not None and self._stale(delivery):
            return  # [MQTT-3.3.2-5] it expired between PUBREC and PUBREL
        elif self.deferred is not None and waits_behind(self, self.deferred, delivery):
            return
        elif room and not self.shut and not self._queue and not self._again:
            self._transmit(delivery, shown or message)
        else:
            self._wait(delivery)

    def defer(self, delivery: Delivery) -> None:
        """It waits: this connection is too weak for it, or for one before it of the same publisher and topic."""
        self.defer_in(self.decider.stream(delivery.message), delivery, self.outward)
        self.direct = False  # what follows has to be looked at

    def offer(self, delivery: Delivery, shown: Message | None = None) -> None:
        """Over a link with monitors that is up: what they make of it, which need not be of the same QoS.

        `shown`: what may be seen of it, if that has been decided just now.
        """
        if self.behind and (delivery.qos or self.decider.listened(self, delivery.message.topic)):
            self._wait(delivery)
            self.pump()
            return
        for output, visible in self.decider.monitored(self, delivery, shown):
            self.add(output, visible)

    def add(self, delivery: Delivery, shown: Message) -> None:
        """Owes it what its monitors have made or let pass, which has been decided. What waits is decided again."""
        room = self.window > 0 and (self.flying < self.site.limits.free_bytes or self.may_fly())
        if not delivery.qos:
            self._send_unacknowledged(shown, delivery.retain, delivery.ids)
        elif not room or self.shut or self._queue or self._again:
            self._wait(delivery)
            self.pump()
        elif not self._stale(delivery):
            self._transmit(delivery, shown)

    def _send_directly(self, delivery: Delivery, shown: Message) -> None:
        """The common case of `_transmit` and `_emit`: nothing to wait for, nothing to measure, no alias."""
        head, tail = self.parts(shown, self.version, delivery.qos, delivery.retain, delivery.ids, 0.0)
        inflight = self._inflight
        if inflight is None:
            inflight = self._inflight = {}
        pid = self.pid
        while True:
            pid = pid + 1 if pid < 65535 else 1
            if pid not in inflight:
                break
        self.pid = delivery.pid = pid
        delivery.state = SENT
        inflight[pid] = delivery
        self.window -= 1
        size = len(delivery.message.payload)
        self.flying += size  # as `_fly`, without the call
        usage = self.usage
        usage.queued_bytes += size
        usage.node.queued_bytes += size
        if self.row:
            self.site.store.enqueue(self.row, delivery)
        out = self.out
        if not out:
            self.site.dirty.append(self)
        out.append(b"%b%b%b" % (head, pid.to_bytes(2, "big"), tail))

    def _send_unacknowledged(self, message: Message, retain: bool, ids: tuple[int, ...]) -> None:
        """QoS 0, which has been decided."""
        if self.shut:
            self.site.counters.dropped += self.connection is not None
            return
        expires = message.expires
        if expires is not None and expires <= self.site.now:
            self.site.counters.expired += 1
            return
        frame = self._fitting(message, 0, retain, ids)
        if frame is None:
            self.site.counters.dropped += 1  # [MQTT-3.1.2-25] discard, as if it had been sent
        else:
            self._append(frame[0] + frame[1])

    def _fitting(self, message: Message, qos: int, retain: bool, ids: tuple[int, ...]) -> Parts | None:
        """Its frame for this connection; None if the client takes no packet of that size [MQTT-3.1.2-24]."""
        aliases = self.aliases
        alias = 0 if aliases is None else aliases.alias(message.topic)
        frame = self.parts(message, self.version, qos, retain, ids, self.site.now, alias)
        if not self.maximum:
            return frame
        room = self.maximum - (2 if qos else 0)
        if aliases is not None and alias > 0 and len(frame[0]) + len(frame[1]) > room:
            # the client does not learn an alias from a packet it is not sent; without one it may just fit
            aliases.forget(message.topic)
            frame = self.parts(message, self.version, qos, retain, ids, self.site.now)
        return frame if len(frame[0]) + len(frame[1]) <= room else None

    def _append(self, frame: bytes) -> None:
        out = self.out
        if not out:
            self.site.dirty.append(self)
        out.append(frame)

    def _transmit(self, delivery: Delivery, shown: Message) -> None:
        """Puts it on its way under a new packet identifier."""
        inflight = self._inflight
        if inflight is None:
            inflight = self._inflight = {}
        pid = self.pid
        while True:
            pid = pid + 1 if pid < 65535 else 1
            if pid not in inflight and (self.deferred is None or pid not in self.deferred.pids):
                break
        self.pid = delivery.pid = pid
        delivery.state = SENT
        inflight[pid] = delivery
        self.window -= 1
        self._fly(len(delivery.message.payload))
        if self.row:
            store = self.site.store
            if not delivery.row:
                store.enqueue(self.row, delivery)
            elif delivery.qos == 2:
                store.update(delivery)
            if delivery.qos == 2:
                # a crash after sending must not lead to another identifier for the same message
                store.after(self._emit_safe, delivery, self.connection, shown, self.site.generation)
                return
        self._emit(delivery, self.connection, shown)

    def _emit_safe(
        self, delivery: Delivery, connection: Connection | Any | None, shown: Message, generation: int
    ) -> None:
        """Its identifier is in the store. Decided again if the rules have changed meanwhile: it is sent now."""
        if generation != self.site.generation and self.connection is connection and delivery.state is SENT:
            permitted = self.decider.permits(self, delivery)
            if permitted is Later.LATER:
                self.window += 1
                self.defer(delivery)
                return
            if permitted is None:
                if delivery.group is None:
                    self._forget(delivery)
                elif self._ground(delivery):  # it was not sent yet
                    self.decider.hand_on(delivery)
                return
            shown = permitted
        self._emit(delivery, connection, shown)

    def _emit(self, delivery: Delivery, connection: Connection | Any | None, shown: Message, dup: bool = False) -> None:
        if connection is None or self.connection is not connection or delivery.state is not SENT:
            return
        fitting = self._fitting(shown, delivery.qos, delivery.retain, delivery.ids)
        if fitting is None:
            self.site.counters.dropped += 1
            self._forget(delivery)
            return
        head, tail = fitting
        if dup:
            head = bytes((head[0] | 0x08,)) + head[1:]
        frame = b"".join((head, delivery.pid.to_bytes(2, "big"), tail))
        if self.shut:
            self.write(frame)  # bounded by the window
        else:
            self._append(frame)

    def pump(self) -> None:
        """Sends what waits, as far as the window goes. Each is decided again: it is sent now, not then."""
        self.decider.fresh(self)  # its monitors and its level may be others by now
        if self.deferred is not None and self.deferred.link is not self.outward:
            self.readmit()
            self._set_direct()
        enough = self.site.effort + PIECE
        again = self._again
        if again:
            while again and self.window > 0 and not self.shut:
                if self.site.effort > enough:
                    self._later(self.pump)
                    break
                self._resend(again.popleft())
            self._set_direct()
        if again:
            return
        queue = self._queue
        most = self.site.limits.queue_bytes
        while queue and not self.shut and ((self.window > 0 and self.flying < most) or not queue[0].qos):
            if self.site.effort > enough:
                self._later(self.pump)
                return
            delivery = self._take(queue)
            if self._stale(delivery):
                self._unstore(delivery)
            elif delivery.qos and self.deferred is not None and waits_behind(self, self.deferred, delivery):
                continue
            elif self.leaving and not delivery.seen:
                if self.decider.too_weak(self, delivery):
                    self.defer(delivery)
                else:
                    self._replace(queue, delivery)
            elif not delivery.qos:  # it was postponed, or waited for monitors that are gone
                shown = None if delivery.overheard else self.decider.permits(self, delivery)
                if isinstance(shown, Message):
                    self._send_unacknowledged(shown, delivery.retain, delivery.ids)
            elif isinstance(shown := self.decider.permits(self, delivery), Message):
                self._transmit(delivery, shown)
            elif shown is Later.LATER:
                self.defer(delivery)
            elif delivery.group is not None:
                self.decider.hand_on(delivery)
            else:
                self._unstore(delivery)
        if not queue or queue[0].qos:
            self.postponed = False
        if self.lagging and not self.behind:
            self.decider.caught_up(self)

    def _replace(self, queue: deque[Delivery], delivery: Delivery) -> None:
        """What its monitors make of the next one takes its place."""
        outputs = self.decider.monitored(self, delivery, None)
        for output, shown in outputs:
            if not output.qos:
                self._send_unacknowledged(shown, output.retain, output.ids)
            elif output.row:
                self.site.store.update(output)
            elif self.row:
                self.site.store.enqueue(self.row, output)
        for output, _ in reversed(outputs):
            if output.qos:
                queue.appendleft(output)
                self._count(1, output.message.size)
        if not delivery.seen:
            self._unstore(delivery)

    # -- acknowledgements --------------------------------------------------------------------------------------

    def acknowledged(self, pid: int) -> None:
        """PUBACK. Unknown identifiers are ignored: they may belong to a time before a crash."""
        inflight = self._inflight
        delivery = inflight.get(pid) if inflight else None
        if inflight is None or delivery is None:
            _check_id(pid)
            return
        if delivery.qos != 1:
            raise ProtocolError("PUBACK for a QoS 2 message")
        del inflight[pid]
        self.window += 1
        size = len(delivery.message.payload)
        self.flying -= size
        usage = self.usage
        usage.queued_bytes -= size
        usage.node.queued_bytes -= size
        if delivery.row:
            self.site.store.done(delivery)
        if self._queue or self._again or self.lagging:
            self.pump()

    def received(self, pid: int, reason: int = 0) -> None:
        """PUBREC."""
        delivery = self._inflight.get(pid) if self._inflight else None
        if delivery is None:
            _check_id(pid)
            missing = b"\x62\x03" + pid.to_bytes(2, "big") + bytes((Reason.PACKET_IDENTIFIER_NOT_FOUND,))
            self.send(missing if self.version == V5 else PUBREL + pid.to_bytes(2, "big"))
            return
        if delivery.qos != 2:
            raise ProtocolError("PUBREC for a QoS 1 message")
        if reason >= 0x80:  # [MQTT-4.3.3-4] it will not have it: the exchange ends here
            self._forget(delivery)
            self.pump()
            return
        if delivery.state is SENT:
            delivery.state = RELEASED
            if delivery.row:
                self.site.store.update(delivery)
        _release(self, delivery)

    def completed(self, pid: int) -> None:
        """PUBCOMP."""
        delivery = self._inflight.get(pid) if self._inflight else None
        if delivery is None:
            _check_id(pid)
            return
        if delivery.state is not RELEASED:
            raise ProtocolError("PUBCOMP for a message that has not been released")
        self._forget(delivery)
        if self._queue or self._again or self.lagging:
            self.pump()

    # -- the end -----------------------------------------------------------------------------------------------

    def clear(self) -> None:
        """The session ends: nothing is owed any more."""
        if self.row:
            self.site.store.drop_session(self.row)
            self.row = 0
        self.readmit()
        self._count(-self.queued, -self.queued_bytes)
        self._fly(-self.flying)
        for pid in tuple(self.incoming or ()):
            unreleased.forget(self, pid)
        self._inflight = self._queue = self._again = self.incoming = None


def _release(session: Session, delivery: Delivery, safe: Connection | Any | None = None) -> None:
    """PUBREL, once it is `safe`: after a crash no PUBLISH may use an identifier that the client has let go of."""
    if delivery.row and safe is None:
        session.site.store.after(_release, session, delivery, session.connection)
    elif safe is None or session.connection is safe:  # else the client has gone meanwhile
        session.send(PUBREL + delivery.pid.to_bytes(2, "big"))


def _check_id(pid: int) -> None:
    if not pid:
        raise ProtocolError("packet identifier is 0")  # [MQTT-2.2.1-3]; the short forms are not decoded


def _nowhere(data: bytes) -> None:
    """Where a session without a connection writes."""
