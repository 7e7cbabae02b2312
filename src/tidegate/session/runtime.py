"""What all sessions of a node share: the time of this turn, ids, limits, the store, and who has something to send.

The loop's work comes in turns: everything that one poll brought in. The shell opens a turn before the first
callback (`open` reads both clocks once) and closes it after the last (`flush` writes each socket once).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from tidegate.session.journal import Journal, Unwritten
from tidegate.session.message import Origin
from tidegate.session.outlet import Outlet
from tidegate.session.packet_costs import BURST, LONG, MEMORY, REST, TURN, Payer, TurnOrder
from tidegate.session.store import Store
from tidegate.session.timers import Timers
from tidegate.session.usage import NODE_BOUNDS, USER_BOUNDS, Accounts, Bounds
from tidegate.topics import MAX

if TYPE_CHECKING:
    pass


class Full(Enum):
    """What happens when a session's queue is full."""

    DROP_NEWEST = "drop-newest"
    DROP_OLDEST = "drop-oldest"
    DISCONNECT = "disconnect"


FREE = 64 * 1024  # bytes that may be under way to every session, whatever its user and the node hold


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of every session, of every user, and of the node."""

    user: Bounds = USER_BOUNDS
    node: Bounds = NODE_BOUNDS

    inflight: int = 1000  # QoS 1 and 2 messages on their way to a client that does not say how many it takes
    receive_maximum: int = 1000  # the same towards us
    clock_skew: float = 60.0  # seconds that the clock of another node may be ahead
    queue_messages: int = 10_000
    queue_bytes: int = 16 * 2**20
    full: Full = Full.DROP_NEWEST
    topic_aliases: int = 64
    max_keep_alive: int | None = None
    session_expiry: int | None = None  # the longest we keep a session; None: as long as it asks
    retained: int = 1_000_000
    retained_bytes: int = 2**30
    subscriptions: int = 10_000  # per session
    shares: int = 100  # shared subscriptions per session
    patterns: int = 100  # of wildcards among the subscriptions of one session: see `scope.subscription_patterns`
    held: int = 100  # subscriptions per session that nobody allows yet, with `subscribe: hold`
    topic_levels: int = MAX + 1  # as many as the longest topic can have
    topic_length: int = MAX  # bytes
    handshake_bytes: int = 16 * 2**20  # of clients that have not logged in, all together
    max_qos: int = 2
    retain: bool = True
    wildcards: bool = True
    shared: bool = True
    disconnect_denied_311: bool = False  # a denied publish of a 3.1.1 client closes its connection
    explain: bool = False  # reason strings name the rule
    tell_no_subscribers: bool = True  # PUBACK says 0x10 if a message has reached nobody
    unreleased_time: float = 300.0  # seconds in which a client that is connected releases a QoS 2 message
    free_bytes: int = field(init=False, default=FREE)
    short_topic: int = field(
        init=False, default=0
    )  # characters: a topic that is not longer has not too much of anything

    def __post_init__(self) -> None:
        object.__setattr__(self, "free_bytes", min(FREE, self.queue_bytes))
        object.__setattr__(self, "short_topic", min(self.topic_levels - 1, self.topic_length // 4))

    def excess(self, topic: str) -> str:
        """What a topic or filter has too much of; empty if it is as long as is allowed."""
        if topic.count("/") >= self.topic_levels:
            return f"more than {self.topic_levels} levels"
        if self.topic_length < MAX and len(topic.encode()) > self.topic_length:
            return f"more than {self.topic_length} bytes"
        return ""


class Counters:
    """Statistics of a node; plain numbers, because they are on the hot path."""

    __slots__ = (
        "bytes_received",
        "bytes_sent",
        "connections",
        "denied",
        "dropped",
        "expired",
        "frames_sent",
        "publishes_received",
        "refused",
        "shadowed",
    )

    def __init__(self) -> None:
        self.publishes_received = 0
        self.frames_sent = 0
        self.bytes_received = 0
        self.bytes_sent = 0
        self.dropped = 0  # by full queues and slow consumers
        self.expired = 0
        self.denied = 0
        self.shadowed = 0  # would have been denied, if rules were enforced
        self.refused = 0  # connections
        self.connections = 0  # ever accepted


class Site:
    """Shared by all sessions of a node."""

    __slots__ = (
        "accounts",
        "alarm",
        "closing",
        "contended",
        "counters",
        "dirty",
        "effort",
        "epoch",
        "gathered",
        "generation",
        "handshake_bytes",
        "heavy",
        "heavy_after",
        "journal",
        "limits",
        "now",
        "number",
        "on_alarm",
        "on_open",
        "opened",
        "origin",
        "owed",
        "publishes",
        "random_id",
        "read",
        "rested",
        "resting",
        "room",
        "serving",
        "shared",
        "since",
        "steady",
        "store",
        "timers",
        "unfinished",
        "waiting",
        "wall",
    )

    def __init__(
        self,
        *,
        store: Store,
        origin: Origin,
        limits: Limits,
        on_open: Callable[[], None],
        random_id: Callable[[], str],
    ) -> None:
        self.store = store
        self.journal: Journal = Unwritten()  # of messages for the pipeline; whoever has one takes its place
        self.origin = origin
        self.limits = limits
        self.on_open = on_open  # the shell: sets `now` and `wall`, sees to it that `close` is called after this turn
        self.random_id = random_id
        self.timers = Timers()
        self.counters = Counters()
        self.accounts = Accounts()
        self.dirty: list[Outlet] = []
        self.gathered: list[
            Callable[[], bool]
        ] = []  # at each flush: what was gathered for links may leave; True: ask again
        self.unfinished: deque[Callable[[], bool]] = deque()  # long work in pieces; True: call again next turn
        self.opened = False
        self.closing = False  # the node is about to stop: wills wait for its next start
        self.read = 0  # bytes since the last flush
        self.publishes = 0  # received since the last flush
        self.now = 0.0
        self.wall = 0.0
        self.steady = 0.0  # what the wall clock would show had it never been set since the node was started
        self.epoch: float | None = None  # of that
        self.alarm = float("inf")  # wall clock: what was decided by it until then has to be decided again
        self.since = 0.0  # or if it is put back to before this
        self.on_alarm: list[Callable[[], None]] = []
        self.number = 0  # of the last message
        self.effort = 0  # spent in this turn, in microseconds: see `packet_costs`
        self.room = TURN  # what may be spent in this turn
        self.waiting = TurnOrder()  # clients whose packets this turn has no room for
        self.resting = TurnOrder()  # those of them who take too large a part of the loop while there are others
        self.serving = False  # what is read now has waited for it
        self.heavy_after = 0.0  # in this turn, those are heavy whose work is paid for only after that
        self.heavy = 0  # publishes among those since the last flush that came from heavy clients
        self.shared = float("-inf")  # when somebody who is not heavy has last published
        self.contended = False  # that was a moment ago
        self.owed = 0  # microseconds of work that was begun in a stretch, and is done when the loop comes to it
        self.rested = 0.0  # when the next piece of work that takes longer than a turn may begin
        self.handshake_bytes = 0  # received and not read yet, of all clients that have not logged in
        self.generation = 0  # of the rules; another number, other decisions

    def open(self) -> None:
        """Begins a turn, unless one is open."""
        if not self.opened:
            self.opened = True
            self.effort = 0
            self.on_open()
            self.heavy_after = self.now + BURST
            self.contended = self.now - self.shared < MEMORY
            if self.epoch is None:
                self.epoch = self.wall - self.now
            self.steady = self.epoch + self.now
            if not self.since <= self.wall < self.alarm:
                self.since = self.wall
                self.alarm = float("inf")
                for callback in self.on_alarm:
                    callback()

    def serve(self, queue: TurnOrder, room: int, run: Callable[[Callable[[], None]], object]) -> None:
        """A turn of what waits; whoever was given least comes first."""
        self.open()
        self.room = self.effort + room
        self.serving = True
        while len(queue) and self.effort <= self.room:
            run(queue.next())
        self.serving = False
        self.room = TURN

    def rests(self, payer: Payer) -> bool:
        """Whether it takes too large a part of the loop while there are others."""
        return self.contended and payer.until > self.heavy_after

    def line_up(self, payer: Payer, work: Callable[[], None]) -> None:
        """Work that waits for a turn with room for it."""
        (self.resting if self.rests(payer) else self.waiting).add(payer, work)

    def charge(self, payer: Payer, price: int) -> None:
        """Somebody pays for work in this turn."""
        self.effort += price
        payer.credit -= price
        if payer.credit < 0:
            payer.settle(self.now, self.heavy_after)

    def may_begin(self, effort: int) -> bool:
        """Whether so long a piece of work may begin now; the next one then waits until this one is paid for."""
        if effort > LONG:
            if self.now < self.rested:
                return False
            self.rested = self.now + (1 + REST) * effort / 1e6
        self.effort += effort
        return True

    def flush(self) -> None:
        """Writes what sessions have to send, each socket once."""
        dirty = self.dirty
        counters = self.counters
        counters.bytes_received += self.read
        counters.publishes_received += self.publishes
        if self.publishes > self.heavy:
            self.shared = self.now
        self.read = self.publishes = self.heavy = 0
        if self.gathered:
            asked, self.gathered = self.gathered, []
            self.gathered += [put for put in asked if put()]
        while dirty:
            later: list[Outlet] = []
            self.dirty = later
            for session in dirty:
                out = session.out
                if not isinstance(out, list) or not (waiting := len(out)):
                    continue  # it was shut since it was marked
                counters.frames_sent += waiting
                data = out[0] if waiting == 1 else b"".join(out)
                out.clear()
                counters.bytes_sent += len(data)
                session.write(data)
            dirty = later  # a write may close a connection, which may fire a will

    def rest(self) -> None:
        """Between two turns, where no loop drives it: what is due, who waits, and a piece of what takes long."""
        while (timer := self.timers.due(self.now)) is not None:
            timer.callback(*timer.args)
        for queue in (self.waiting, self.resting):
            while len(queue):
                self.serve(queue, TURN, lambda work: work())
                self.close()
        for _ in range(len(self.unfinished)):
            piece = self.unfinished.popleft()
            if piece():
                self.unfinished.append(piece)

    def close(self) -> None:
        """Ends the turn."""
        self.opened = False
        self.flush()
