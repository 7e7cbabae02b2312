"""What the guard itself owes to the broker: wills, what monitors made, what comes from services, scopes and links.

It is a session like that of a link: queue, windows, order and QoS 2 are the same, it is decided again when it is sent,
and QoS 1 and 2 are in the store until the broker has them. So nothing that was acknowledged to its publisher is lost.

At its bound whoever can be told is refused (`refuses`). What nobody can be told of, or was promised with PUBREC, is
still taken up to twice the bound; beyond that it goes, counted and audited. What a client waits for is always taken:
how much that is its receive maximum bounds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tidegate.gate import Deny, Step
from tidegate.guard.outgoing_envelopes import framed
from tidegate.policy import Subject
from tidegate.session import Delivery, LinkSession, Message, StoredSession
from tidegate.session.frames import Parts
from tidegate.session.message import RELEASED, SENT
from tidegate.wire import Reason

if TYPE_CHECKING:
    from tidegate.guard.guarded_scope import GuardedScope
    from tidegate.guard.service_connection import ServiceConnection
    from tidegate.guard.upstream import Upstream

PRINCIPAL: Final = "backend:"
FULL: Final = Deny(step=Step.WRITE, rule="backend", reason=Reason.QUOTA_EXCEEDED, detail="too much waits for it")
ENDED: Final = Deny(
    step=Step.WRITE, rule="backend", reason=Reason.UNSPECIFIED_ERROR, detail="it ends the connection over this message"
)
WINDOW: Final = 100  # QoS 1 and 2 messages on their way, if the broker does not say how many

Done = Callable[[], None]
"""Told when the broker has a message, or nobody owes it any more."""


class ServiceSession(LinkSession):
    """One for each guarded scope."""

    __slots__ = ("_awaited", "line", "scope")

    def __init__(self, scope: GuardedScope, subject: Subject, line: ServiceConnection) -> None:
        self.scope = scope
        self.line = line
        self._awaited: dict[Delivery, Done] = {}  # what a client waits for
        super().__init__(
            site=scope.site,
            decider=scope.path.egress,
            principal=PRINCIPAL + scope.name,
            name=scope.name,
            subject=subject,
        )
        self.fatal = self._fatal
        self.renew()

    @property
    def owed(self) -> int:
        """Messages that the broker has not acknowledged."""
        return self.queued + self.inflight + (len(self.deferred) if self.deferred else 0)

    def restore_from(self, record: StoredSession) -> None:
        """What the store kept. The broker has kept its half, so that what was on its way goes on where it stood."""
        self.row = record.row
        self.restore(record.deliveries)

    def renew(self) -> None:
        """There are other rules."""
        target = self.scope.target
        self.subject, self.outward, self.inward = target.subject, target.outward, target.inward
        self.generation = self.site.generation
        if self.connection is not None:
            self.pump()  # what waits for a better connection may have one

    # -- publishing --------------------------------------------------------------------------------------------

    def publish(self, message: Message, done: Done | None = None) -> None:
        """A message that may be written. `done` is called when the broker has it."""
        if done is None and self._overflows(message):
            self.site.counters.dropped += 1
            self.scope.report("write", self.outward, message.topic, FULL, message.context)
            return
        abilities = self.scope.settings.abilities
        delivery = Delivery(message, min(message.qos, abilities.qos), message.retain and abilities.retain)
        delivery.seen = True
        if message.qos:
            if not self.row:
                self.save()
            if done is not None:
                self._awaited[delivery] = done
        elif done is not None:
            done()
        if not message.qos and self.connection is None:
            self._wait(delivery)  # unlike a client, the broker is back soon
        else:
            self.add(delivery, message)

    def _overflows(self, message: Message) -> bool:
        limits = self.site.limits
        return self.queued >= 2 * limits.queue_messages or self.queued_bytes + message.size > 2 * limits.queue_bytes

    def refuses(self, message: Message) -> bool:
        return not self.room(message) and (self.connection is None or self.window <= 0 or self.queued > 0)

    def _wait(self, delivery: Delivery) -> None:
        if self._queue is None:
            self._queue = deque()
        self._queue.append(delivery)
        self._count(1, delivery.message.size)
        if delivery.qos and not delivery.row:
            self.site.store.enqueue(self.row, delivery)

    def attach_to(self, upstream: Upstream, *, present: bool) -> None:
        """The broker is there, with or without what it knew of this session."""
        if not present:  # it has forgotten what it was to be released from
            for delivery in (self._inflight or {}).values():
                if delivery.state is RELEASED:
                    delivery.state = SENT
                    self.site.store.update(delivery)
        window = min(upstream.quota, WINDOW)
        self.attach(self.line, version=upstream.version, window=window, maximum=upstream.maximum, aliases=0)
        self.pump()

    def _fatal(self, message: Message) -> None:
        """The broker ends the connection over it."""
        self.scope.report("write", self.outward, message.topic, ENDED, message.context)

    def parts(
        self, message: Message, version: int, qos: int, retain: bool, ids: tuple[int, ...], now: float, alias: int = 0
    ) -> Parts:
        clearing, head, tail = framed(self.scope, message, version, self.maximum, qos, retain)
        if clearing:
            self.send(clearing)
        return head, tail

    def _fitting(self, message: Message, qos: int, retain: bool, ids: tuple[int, ...]) -> Parts | None:
        if (objection := self.scope.settings.abilities.objection(message.topic)) is not None:
            self.scope.report("write", self.outward, message.topic, objection, message.context)
            return None
        try:
            return self.parts(message, self.version, qos, retain, ids, self.site.now)
        except ValueError as error:
            why = replace(FULL, detail=str(error))
            self.scope.report("write", self.outward, message.topic, why, message.context)
            return None

    # -- what the broker answers -------------------------------------------------------------------------------

    def acknowledged(self, pid: int) -> None:
        delivery = (self._inflight or {}).get(pid)
        super().acknowledged(pid)
        self._tell(delivery)

    def received(self, pid: int, reason: int = 0) -> None:
        delivery = (self._inflight or {}).get(pid)
        super().received(pid, reason)
        self._tell(delivery)

    def _unstore(self, delivery: Delivery) -> None:
        super()._unstore(delivery)
        self._tell(delivery)  # nobody is to have it any more

    def _tell(self, delivery: Delivery | None) -> None:
        if delivery is not None and (done := self._awaited.pop(delivery, None)) is not None:
            done()
