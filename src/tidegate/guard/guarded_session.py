"""The session of a client of a guarded scope: what the broker does not know of it.

The broker keeps what is owed to the client. Here is who it is, what it has subscribed to, its will, and its connection
to the broker.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tidegate.bounded import Bounded
from tidegate.gate import Deny, Step
from tidegate.guard.client_window import ClientWindow
from tidegate.guard.lending import Lending
from tidegate.policy import Subject
from tidegate.session import Delivery, Grant, Link, Message, Session, Site
from tidegate.session.decider import Decider
from tidegate.topics import matches
from tidegate.wire import NONE, V5, Connect, Disconnect, Properties, Publish, Reason, Subscribe, Unsubscribe
from tidegate.wire.envelope import Envelope, MessageId

if TYPE_CHECKING:
    from tidegate.guard.bridging import Bridge
    from tidegate.guard.relayed_publishing import RelayedPublishing
    from tidegate.guard.upstream import Upstream
    from tidegate.scope.subscribing import Request


REPLAYED: Final = Deny(step=Step.WRITE, rule="replayed")
RECENT: Final = 64  # messages of one publisher and topic among which the order may be another one
LATE: Final = 60_000_000  # microseconds that one of them may be older than the newest
ORIGINS: Final = 8  # guards, and starts of them, that one publisher and topic may come from within that time
MOST_OWED: Final = 8  # SUBSCRIBEs in a row that bring the same retained message
KNOWN: Final = 10_000  # publishers and topics of which each client's last message is known


class Asked:
    """A SUBSCRIBE or UNSUBSCRIBE that the broker has not answered.

    It is known by the identifier that the broker was asked with. That is the one of the client's `packet`, unless the
    guard itself has asked with that before."""

    __slots__ = ("data", "packet", "positions", "request", "said")

    def __init__(
        self,
        packet: Subscribe | Unsubscribe,
        data: bytes,
        request: Request | None = None,
        said: Properties = NONE,
        positions: Sequence[int] = (),
    ) -> None:
        self.packet = packet
        self.data = data  # as the broker was asked
        self.request = request  # None: the guard asked for itself, or it is UNSUBSCRIBE
        self.said = said  # what SUBACK says beside its reason codes
        self.positions = positions  # of those filters that the broker was asked for


class Last:
    """The last message of one publisher and topic that came to one client, and whether the next ones just pass.

    The broker keeps their order, so one that is not newer has been here: somebody has replayed it.
    """

    __slots__ = (
        "again",
        "copies",
        "epoch",
        "head",
        "kept",
        "late",
        "link",
        "micros",
        "most",
        "numbers",
        "origin",
        "others",
        "outputs",
        "owed",
        "recent",
        "rounds",
    )

    def __init__(self, origin: bytes, most: int) -> None:
        self.origin = origin
        self.most = most  # messages among which the order may be another one
        self.numbers = [-1, -1, -1]  # of the last message of each QoS that it was published with
        self.outputs = [0, 0, 0]  # and of what monitors had made of it
        self.recent: array[int] | None = None  # the latest of QoS 1 and 2, in order: `_packed`
        self.others: dict[bytes, tuple[list[int], list[int], array[int] | None, int]] | None = None
        """Of other origins in the last minute: what is known of this one, and when the newest message was published."""
        self.late = (-1, 0)  # the number and output of the last one that came behind a newer one
        self.again = (-1, 0)  # the number and output of the one that has come more than once
        self.copies = 0  # how often
        self.kept: tuple[int, int, int] | None = None
        """The newest retained message: when it was published, number and output."""
        self.owed = 0  # how often one may still come,
        self.rounds = 0  # after so many SUBSCRIBEs
        self.micros = 0
        self.head = b""  # what its client's packets begin with; empty: each is decided
        self.epoch = -1  # of the decisions, when that was so
        self.link: Link | None = None  # for this client as it was then

    def is_newer(self, id: MessageId, micros: int, qos: int) -> bool:
        """Whether a message has not been here; then it is the last one."""
        if id.origin != self.origin:
            if not self._turns_to(id.origin, micros):
                return False
        if (id.number, id.output) <= (self.numbers[qos], self.outputs[qos]):
            return qos > 0 and self._is_late(id, micros)
        if qos:
            self._remember(id)
        self.numbers[qos], self.outputs[qos] = id.number, id.output
        self.micros = max(self.micros, micros)
        return True

    def _turns_to(self, origin: bytes, micros: int) -> bool:
        """Whether the next one may come from another guard, or from one that was started again. Their clocks differ, so
        it may seem older than the newest; what each had numbered is remembered for as long."""
        others = self.others or {}
        for other, (_, _, _, newest) in list(others.items()):
            if newest < self.micros - LATE:
                del others[other]
        known = others.pop(origin, None)
        if known is None and micros <= self.micros and (micros < self.micros - LATE or len(others) >= ORIGINS):
            return False
        if len(others) < ORIGINS:
            others[self.origin] = (self.numbers, self.outputs, self.recent, self.micros)
        self.others, self.origin = others, origin
        if known is None:
            self.numbers, self.outputs, self.recent = [-1, -1, -1], [0, 0, 0], None
        else:
            self.numbers, self.outputs, self.recent, _ = known
        return True

    def _is_late(self, id: MessageId, micros: int) -> bool:
        """Whether it has not been here although a newer one has. QoS 2 is published when it is released, in whatever
        order that is, and what the guard publishes itself goes over another connection."""
        recent, packed = self.recent, _packed(id)
        if recent is None or micros < self.micros - LATE:
            return False
        at = bisect_left(recent, packed)
        if (not at and len(recent) >= self.most) or (at < len(recent) and recent[at] == packed):
            return False
        self._remember(id)
        self.late = (id.number, id.output)
        return True

    def _remember(self, id: MessageId) -> None:
        recent = self.recent
        if recent is None:
            recent = self.recent = array("Q")
        elif len(recent) >= self.most:
            del recent[0]
        insort(recent, _packed(id))

    def is_owed(self, id: MessageId, micros: int, rounds: int, copies: int) -> bool:
        """Whether a retained message may come: each SUBSCRIBE makes the broker send it, and whatever is newer."""
        this = (micros, id.number, id.output)
        self.owed = min(self.owed + (rounds - self.rounds) * copies, MOST_OWED * copies)
        self.rounds = rounds
        if self.kept is None or this > self.kept:
            self.kept, self.owed = this, max(self.owed, copies)
        if not self.owed:
            return False
        self.owed -= 1
        return True

    def is_copy(self, id: MessageId, qos: int, copies: int) -> bool:
        """Whether it is the last one again, and no more than the broker sends so many of."""
        this = (id.number, id.output)
        if id.origin != self.origin or this not in ((self.numbers[qos], self.outputs[qos]), self.late):
            return False
        if this != self.again:
            self.again, self.copies = this, 1
        self.copies += 1
        return self.copies <= copies


def _packed(id: MessageId) -> int:
    """One number for an id within its origin, in the same order."""
    return (id.number << 12 | min(id.output, 0xFFF)) & 0xFFFF_FFFF_FFFF_FFFF


class GuardedSession(Session):
    """One client of a guarded scope."""

    __slots__ = (
        "asked",
        "asks",
        "bridge",
        "greeting",
        "interned",
        "last",
        "lent",
        "relaying",
        "reopen",
        "rounds",
        "taking",
        "upstream",
    )

    def __init__(self, *, site: Site, decider: Decider, principal: str, client: str, subject: Subject) -> None:
        self.bridge: Bridge | None = None  # it is another broker's
        super().__init__(site=site, decider=decider, principal=principal, client=client, subject=subject)
        self.upstream: Upstream | None = None
        self.relaying: RelayedPublishing  # what it publishes over its present connection, once it has had one
        self.rounds = 0  # how often the broker has been asked for subscriptions
        self.asks = 0  # subscriptions that ask for anything themselves
        self.interned: dict[bytes, bytes] = {}
        self.last: Bounded[bytes, Last] | None = None  # what came last, by topic and static part
        self.asked: dict[int, Asked] | None = None  # SUBSCRIBE and UNSUBSCRIBE that the broker has not answered
        self.lent: Lending | None = None  # what the guard itself has sent
        self.taking: ClientWindow | None = None  # of its connection, if it has said how much it takes at a time
        self.greeting: Connect | None = None  # what the broker is told when it is back, if that is waited for
        self.reopen: Callable[[GuardedSession], None] | None = None  # and who tells it

    def crosses(self, bridge: Bridge | None) -> None:
        """It is a link between environments, and acts as that."""
        self.bridge = bridge
        if bridge is not None:
            self.inward, self.outward = bridge.inward, bridge.outward

    # -- the two connections -----------------------------------------------------------------------------------

    def leave(self, packet: Disconnect | None = None) -> None:
        """The client's connection is over: so is that to the broker."""
        upstream, self.upstream = self.upstream, None
        self.asked = self.greeting = self.reopen = self.taking = None
        if self.lent is not None:
            self.lent.end()
        if upstream is not None:
            upstream.session = None
            upstream.close(packet)

    def left_by(self, upstream: Upstream, reason: Reason, why: str) -> None:
        """The connection to the broker is over."""
        if self.upstream is upstream:
            self.upstream = None
            taken_over = upstream.scope.handshake.awaited(
                self.client
            )  # a broker of 3.1.1 cannot say so, and few of 5 do
            if taken_over and self.connection is not None:
                self.connection.close(Reason.SESSION_TAKEN_OVER)
            elif self.connection is not None and self.reopen is not None and upstream.vanished:
                if any(upstream.pings):
                    self.send(b"\xd0\x00")  # PINGRESP: a client that waits has not lost its server
                self.reopen(self)
            elif self.connection is not None:
                self.connection.close(reason, why)

    def pause(self) -> None:
        super().pause()
        if self.upstream is not None:
            self.upstream.pause()

    def unpause(self) -> None:
        super().unpause()
        if self.upstream is not None:
            self.upstream.resume()

    # -- what the broker delivers --------------------------------------------------------------------------------

    def append(self, frame: bytes, *, acknowledged: bool) -> None:
        """A PUBLISH that was decided. While the client does not read, nothing more is read from the broker either; what
        had been read until then is kept if it is to be acknowledged."""
        if not self.shut:
            out = self.out
            if not out:
                self.site.dirty.append(self)
            out.append(frame)
        elif acknowledged and self.connection is not None:
            self.write(frame)
        else:
            self.site.counters.dropped += 1

    @property
    def lending(self) -> Lending:
        """Sends what is the guard's own."""
        if self.lent is None:
            self.lent = Lending(self)
        return self.lent

    def overlapping(self, topic: str) -> int:
        """How many of its subscriptions a topic matches: some brokers send a message once for each."""
        return len(self.matching(topic))

    def add(self, delivery: Delivery, shown: Message) -> None:
        """What its monitors have made."""
        if self.upstream is not None:
            self.lending.send(shown, delivery.qos, delivery.retain, delivery.ids)

    def offer(self, delivery: Delivery, shown: Message | None = None) -> None:
        """What its monitors are to see although it has not subscribed to it: what it has, the broker delivers."""
        if not self.matching(delivery.message.topic):
            for output, visible in self.decider.monitored(self, delivery, shown):
                self.add(output, visible)

    def retains_as_published(self, topic: str) -> bool:
        """Whether it wants to know which messages were published as retained ones."""
        return any(grant.retain_as_published for grant in self.matching(topic))

    # -- what has been here --------------------------------------------------------------------------------------

    def replayed(self, packet: Publish, topic: str, envelope: Envelope, oldest: int) -> Deny | None:
        """Whether a message has been here. What is retained comes again when it is asked for, and so does what the
        broker says is a repetition.

        One that is too old is none that a broker still owes to anybody, unless it is retained.
        """
        micros = round(envelope.published * 1e6)
        last, id, qos = self.last_of(topic, envelope), envelope.id, envelope.qos
        if packet.retain:
            owed = packet.dup or last.is_owed(id, micros, self.rounds, self.overlapping(topic))
            return None if owed else REPLAYED
        if micros < oldest:
            return replace(REPLAYED, detail="it is older than `max_age`")
        if packet.dup or last.is_newer(id, micros, qos) or last.is_copy(id, qos, self.overlapping(topic)):
            return None
        return REPLAYED

    def last_of(self, topic: str, envelope: Envelope) -> Last:
        """The last message of the same publisher and topic."""
        name, v5 = topic.encode(), self.upstream is not None and self.upstream.v5
        known = self.last
        if known is None:
            known = self.last = Bounded(KNOWN)
        key = b"%b%b%b%b" % (len(name).to_bytes(2, "big"), name, b"\0" if v5 else b"", envelope.static.data)
        last = known.get(key)
        if last is None:
            most = RECENT if self.upstream is None else self.upstream.scope.settings.abilities.reorders
            last = known[self.interned[key]] = Last(envelope.id.origin, most)
        return last

    # What a broker of MQTT 3.1.1 does not know of subscriptions.

    def identifiers(self, topic: str) -> tuple[int, ...]:
        """The subscription identifiers that a message of this topic comes by."""
        ids = {id for grant in self.matching(topic) for id in grant.ids}
        return tuple(sorted(ids)) if self.version == V5 else ()

    def wants_no_own(self, topic: str) -> bool:
        """Whether it does not want its own messages of this topic."""
        grants = self.matching(topic) if self.version == V5 else []
        return bool(grants) and all(grant.no_local for grant in grants)

    def matching(self, topic: str) -> list[Grant]:
        return [
            grant
            for filter, grant in (self.subscriptions or {}).items()
            if matches(filter if grant.group is None else grant.group[1], topic)
        ]

    # -- what the client acknowledges ----------------------------------------------------------------------------

    def acknowledged(self, pid: int) -> None:
        if self.lent is not None and pid in self.lent:
            self.lent.acknowledged(pid)
        else:
            self._answer(b"\x40\x02", pid)
        self._settled(pid)

    def received(self, pid: int, reason: int = 0) -> None:
        if self.lent is not None and pid in self.lent:
            self.lent.received(pid, reason)
        elif reason >= 0x80 and self.upstream is not None and self.upstream.v5:
            self.upstream.send(b"\x50\x03%b%c" % (pid.to_bytes(2, "big"), reason))
        else:
            self._answer(b"\x50\x02", pid)
        if reason >= 0x80:
            self._settled(pid)

    def completed(self, pid: int) -> None:
        if self.lent is not None and pid in self.lent:
            self.lent.completed(pid)
        else:
            self._answer(b"\x70\x02", pid)
        self._settled(pid)

    def _settled(self, pid: int) -> None:
        if self.taking is not None:
            self.taking.settled(pid)

    def _answer(self, head: bytes, pid: int) -> None:
        if self.upstream is not None:
            self.upstream.send(head + pid.to_bytes(2, "big"))
