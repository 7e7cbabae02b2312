"""What is owed to one client: what is on its way, what waits, and within which limits.

- at most `window` more QoS 1 and 2 messages may be on their way; the rest waits in a queue, within limits.
- what its user and the node are owed, all sessions together, is bounded as well (`usage`).
- what is owed to a persistent session is in the store before it is acknowledged to its publisher.

It does not send: `session` does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

from tidegate.native import mypyc_attr
from tidegate.session.link import Link
from tidegate.session.message import Delivery, Message, State
from tidegate.session.outlet import Outlet
from tidegate.session.runtime import Full, Site
from tidegate.session.usage import Usage
from tidegate.session.waiting_deliveries import WaitingDeliveries
from tidegate.wire import Reason

if TYPE_CHECKING:
    from tidegate.session.connection import Connection


PIECE = 1000  # microseconds that deciding what waits may take at once


@mypyc_attr(allow_interpreted_subclasses=True)
class DeliveryQueue(Outlet):
    """Deliveries of one session."""

    __slots__ = (
        "_again",
        "_inflight",
        "_queue",
        "connection",
        "deferred",
        "flying",
        "pid",
        "postponed",
        "pumping",
        "queued_bytes",
        "row",
        "site",
        "stale_at",
        "usage",
        "window",
    )

    def __init__(self, site: Site, usage: Usage) -> None:
        self.site = site
        self.usage = usage  # of its user
        self.connection: Connection | Any | None = None  # a guard has others, which stand for the broker
        self.row = 0  # in the store; 0: a transient session
        self.flying = 0  # bytes of payload on their way
        self._inflight: dict[int, Delivery] | None = None
        self._queue: deque[Delivery] | None = None
        self._again: deque[Delivery] | None = None  # was on its way when the last connection ended
        self.queued_bytes = 0
        self.deferred: WaitingDeliveries | None = None  # what the present connection is too weak for
        self.stale_at = 0.0  # no look for expired messages in the queue before
        self.window = 0
        self.pid = 0
        self.pumping = False  # what waits is looked at in pieces, and there is more
        self.postponed = False  # QoS 0 messages wait to be decided: others do not overtake them

    @property
    def inflight(self) -> int:
        return len(self._inflight) if self._inflight else 0

    @property
    def queued(self) -> int:
        return len(self._queue) if self._queue else 0

    @property
    def oldest(self) -> float | None:
        """When that was published which has been owed longest (wall clock); None: nothing is owed."""
        for deliveries in (self._inflight and self._inflight.values(), self._queue):
            for delivery in deliveries or ():
                return delivery.message.published
        return None

    @property
    def behind(self) -> bool:
        """Something waits that the monitors of its link have not seen: it stands last, behind what they have."""
        queue = self._queue
        return bool(queue) and not queue[-1].seen  # type: ignore[index]

    def unsee(self) -> None:
        """There are monitors that have not seen what waits."""
        for delivery in (*(self._queue or ()), *(self.deferred or ())):
            delivery.seen = False

    # -- the queue ---------------------------------------------------------------------------------------------

    @property
    def full(self) -> Full:
        """What happens when it takes no more."""
        return self.site.limits.full

    def room(self, message: Message) -> bool:
        """Whether its queue would take it."""
        limits, size = self.site.limits, message.size
        if self.queued >= limits.queue_messages or self.queued_bytes + size > limits.queue_bytes:
            return False
        usage, node = self.usage, self.usage.node
        return (
            usage.queued_messages < limits.user.queued_messages
            and usage.queued_bytes + size <= limits.user.queued_bytes
            and node.queued_messages < limits.node.queued_messages
            and node.queued_bytes + size <= limits.node.queued_bytes
        )

    def may_fly(self) -> bool:
        """Whether more may be under way than every session is allowed, by what its user and the node hold."""
        limits = self.site.limits
        return (
            self.flying < limits.queue_bytes
            and self.usage.queued_bytes < limits.user.queued_bytes
            and self.usage.node.queued_bytes < limits.node.queued_bytes
        )

    def _count(self, messages: int, size: int) -> None:
        """So many more wait, or fewer."""
        self.queued_bytes += size
        self._owe(messages, size)

    def _owe(self, messages: int, size: int) -> None:
        """Its user and the node hold so many more that wait, or fewer."""
        for usage in (self.usage, self.usage.node):
            usage.queued_messages += messages
            usage.queued_bytes += size

    def _owed_too_much(self) -> bool:
        """Whether its user or the node holds more than it may."""
        limits, usage, node = self.site.limits, self.usage, self.usage.node
        return (
            usage.queued_messages > limits.user.queued_messages
            or usage.queued_bytes > limits.user.queued_bytes
            or node.queued_messages > limits.node.queued_messages
            or node.queued_bytes > limits.node.queued_bytes
        )

    def _fly(self, size: int) -> None:
        """So many more bytes are under way, or fewer."""
        self.flying += size
        self.usage.queued_bytes += size
        self.usage.node.queued_bytes += size

    def _weed(self, queue: deque[Delivery]) -> deque[Delivery]:
        """What has expired makes room for what has not. At most once a second: it looks at the whole queue."""
        self.stale_at = self.site.now + 1.0
        keep: deque[Delivery] = deque()
        for delivery in queue:
            if self._stale(delivery):
                self._count(-1, -delivery.message.size)
                self._unstore(delivery)
            else:
                keep.append(delivery)
        self._queue = keep
        return keep

    def _wait(self, delivery: Delivery) -> None:
        """Queues it, within limits."""
        limits = self.site.limits
        queue = self._queue
        if queue is None:
            queue = self._queue = deque()
        size = delivery.message.size
        if not self.room(delivery.message) and self.site.now >= self.stale_at:
            queue = self._weed(queue)
        if not self.room(delivery.message):
            self.site.counters.dropped += 1
            self._note_bound(delivery.message.size)
            if self.full is Full.DISCONNECT and self.connection is not None:
                self.connection.close(Reason.QUOTA_EXCEEDED, "the queue of this session is full")
                return
            if self.full is not Full.DROP_OLDEST or not queue or size > limits.queue_bytes:
                return
            while queue and not self.room(delivery.message):
                self._displace(self._take(queue))
            if not self.room(delivery.message):
                return  # other sessions of its user, or of the node, hold too much
        if delivery.seen and queue and not queue[-1].seen:  # of a timer: what they have not seen stays last
            queue.insert(next(place for place, one in enumerate(queue) if not one.seen), delivery)
        else:
            queue.append(delivery)
        self._count(1, size)
        if self.row and delivery.qos and not delivery.row:
            self.site.store.enqueue(self.row, delivery)

    def postpone(self, delivery: Delivery) -> None:
        """Owes it something that is not decided yet: that is done when it is sent. Whoever calls sees to `pump`."""
        if delivery.qos:
            self._wait(delivery)
        elif self.shut:
            self.site.counters.dropped += self.connection is not None
        elif self.room(delivery.message):  # QoS 0 makes nothing else leave
            queue = self._queue
            if queue is None:
                queue = self._queue = deque()
            if queue and queue[-1].qos:  # before all that needs the window: it does not wait for acknowledgements
                queue.insert(next(place for place, one in enumerate(queue) if one.qos), delivery)
            else:
                queue.append(delivery)
            self._count(1, delivery.message.size)
            self.postponed = True
        else:
            self.site.counters.dropped += 1
            self._note_bound(delivery.message.size)

    def _later(self, pump: Callable[[], None]) -> None:
        """Deciding what waits has taken long: the rest is looked at when others had a turn."""
        if self.pumping:
            return
        self.pumping = True

        def piece() -> bool:
            self.pumping = False
            if self.connection is not None:
                pump()
            return False

        self.site.unfinished.append(piece)

    def _take(self, queue: deque[Delivery]) -> Delivery:
        delivery = queue.popleft()
        self._count(-1, -delivery.message.size)
        return delivery

    def _note_bound(self, size: int) -> None:
        """Counts the bound of its user or of the node that leaves no room, if it is not its own."""
        limits, accounts = self.site.limits, self.site.accounts
        for name, more in (("queued_messages", 1), ("queued_bytes", size)):
            if accounts.full(self.usage, limits.user, limits.node, name, more):
                return

    def _stale(self, delivery: Delivery) -> bool:
        expires = delivery.message.expires
        if expires is None or expires > self.site.now:
            return False
        self.site.counters.expired += 1
        return True

    def _displace(self, oldest: Delivery) -> None:
        """It makes room for a newer one."""
        self._unstore(oldest)

    def _unstore(self, delivery: Delivery) -> None:
        if delivery.row:
            self.site.store.done(delivery)

    def _forget(self, delivery: Delivery) -> None:
        """Off its way without an acknowledgement."""
        if self._ground(delivery):
            self._unstore(delivery)

    def _ground(self, delivery: Delivery) -> bool:
        """The same, but it stays in the store: whoever hands it on strikes it out. Whether it was on its way."""
        if not self._inflight or self._inflight.pop(delivery.pid, None) is None:
            return False
        self.window += 1
        self._fly(-len(delivery.message.payload))
        return True

    # -- what waits for a better connection --------------------------------------------------------------------

    def defer_in(self, stream: Hashable, delivery: Delivery, link: Link) -> None:
        """Keeps it until there is a better connection than this link, within limits."""
        if self.deferred is None:
            self.deferred = WaitingDeliveries(link)
        if self._inflight is not None and self._inflight.get(delivery.pid) is delivery:
            del self._inflight[delivery.pid]
            self._fly(-len(delivery.message.payload))
        if self.row and not delivery.row:
            self.site.store.enqueue(self.row, delivery)
        self.deferred.add(stream, delivery)
        self._owe(1, delivery.message.size)
        if self._owed_too_much():
            self._note_bound(0)
        for oldest in self.deferred.excess(self.site.limits, self._owed_too_much):
            self._owe(-1, -oldest.message.size)
            self.site.counters.dropped += 1
            self._unstore(oldest)

    def readmit(self) -> None:
        """What waits for a better connection goes back to where it was: on its way, or to the front of the queue."""
        deferred, self.deferred = self.deferred, None
        if not deferred:
            return
        self._owe(-len(deferred), -deferred.bytes)
        sent = {delivery.pid: delivery for delivery in deferred if delivery.pid}
        if sent:
            self._inflight = {**sent, **(self._inflight or {})}
            self._fly(sum(len(delivery.message.payload) for delivery in sent.values()))
            if self.connection is not None:
                self._again = deque((*sent.values(), *(self._again or ())))
        waiting = [delivery for delivery in deferred if not delivery.pid]
        queue = [*waiting, *(self._queue or ())]
        self._queue = deque(sorted(queue, key=lambda one: not one.seen))  # what monitors have not seen stays last
        self._count(len(waiting), sum(delivery.message.size for delivery in waiting))

    # -- from the store, and to others -------------------------------------------------------------------------

    def restore(self, deliveries: list[Delivery]) -> None:
        """What the store kept, in its order.

        That QoS 1 went from the queue on its way is not in the store. What was sent directly after it is: it waits
        behind it again, under a new identifier, or it would overtake [MQTT-4.6.0-5]. The store is told: else the next
        start would find it under an identifier that something else has by then, and which of both the other side
        releases or acknowledges could not be told.
        """
        exchanges = {one.pid for one in deliveries if one.qos == 2 and one.state is not State.QUEUED}
        for delivery in deliveries:
            self.pid = max(self.pid, delivery.pid)
            inflight = self._inflight or {}
            taken = delivery.qos == 1 and (delivery.pid in exchanges or delivery.pid in inflight)
            overtakes = delivery.qos == 1 and self._queue is not None
            if delivery.pid and delivery.state is not State.QUEUED and not overtakes and not taken:
                self._inflight = inflight
                delivery.seen = True
                inflight[delivery.pid] = delivery
                self._fly(len(delivery.message.payload))
            else:
                delivery.state = State.QUEUED
                if delivery.pid:
                    delivery.pid = 0
                    self.site.store.update(delivery)
                if self._queue is None:
                    self._queue = deque()
                self._queue.append(delivery)
                self._count(1, delivery.message.size)
        if self._queue:  # what monitors made was noted later than what waits behind it, which they have not seen
            self._queue = deque(sorted(self._queue, key=lambda one: not one.seen))

    def shared_out(self, filter: str | None = None) -> list[Delivery]:
        """Takes back what came through a shared subscription and may still go to another member. It stays in the
        store: whoever hands it on strikes it out afterwards, so that it is owed to somebody at every moment.

        A QoS 2 message that has been sent to this client must not be sent to any other [MQTT-4.8.2-5].
        With `filter`, what still waits of that group; else, at the end of the session, everything of all groups.
        """
        taken = []
        self.readmit()
        if self._queue:
            keep: deque[Delivery] = deque()
            for delivery in self._queue:
                if _through(delivery, filter):
                    taken.append(delivery)
                    self._count(-1, -delivery.message.size)
                else:
                    keep.append(delivery)
            self._queue = keep
        if self._inflight and filter is None:  # [MQTT-3.10.4-3] unsubscribing does not end what has been sent
            back = [d for d in self._inflight.values() if d.qos == 1 and _through(d, filter)]
            for delivery in back:
                del self._inflight[delivery.pid]
                self.window += 1
                self._fly(-len(delivery.message.payload))
            taken = back + taken
        return taken

    def withdraw(self, whether: Callable[[Message], bool]) -> int:
        """Takes back what waits, also for a better connection; and, of somebody who is away, what was sent and not
        received yet. What is on its way to somebody who is there has been sent. How many that were."""
        taken = 0
        queue = self._queue
        if queue:
            keep: deque[Delivery] = deque()
            for delivery in queue:
                if whether(delivery.message):
                    self._count(-1, -delivery.message.size)
                    self._unstore(delivery)
                    taken += 1
                else:
                    keep.append(delivery)
            self._queue = keep
        deferred = self.deferred
        for delivery in tuple(deferred or ()):
            if deferred is not None and not delivery.pid and whether(delivery.message):
                deferred.remove(delivery)
                self._owe(-1, -delivery.message.size)
                self._unstore(delivery)
                taken += 1
        if self.connection is None:
            for delivery in tuple((self._inflight or {}).values()):
                if delivery.state is not State.RELEASED and whether(delivery.message):
                    self._forget(delivery)
                    taken += 1
        return taken


def _through(delivery: Delivery, filter: str | None) -> bool:
    group = delivery.group
    return group is not None and (filter is None or f"$share/{group[0]}/{group[1]}" == filter)
