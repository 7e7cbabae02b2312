"""What the packets of clients cost, and who is served next when a turn has no room for everybody.

Every packet has a price in microseconds of the loop, roughly. What a turn has spent is `site.effort`. Packets that
need more than a look-up are put off once it exceeds `TURN`: nothing is read from their sender until it is served, so
a client that makes much work waits, in its own socket. QoS 0 messages with a known route are not put off for what
others have spent; a flood of them is, by the stretch (see `reader`). Nor are QoS 2 messages and their PUBREL, up to
`AMPLE`, unless their sender is heavy or has spent `LONG` in this turn: a message takes two packets of its publisher,
and to put off both costs a tenth of the node's speed.

Nobody overtakes those who wait: while somebody does, whoever sends QoS 1 messages queues as well. And whoever is served
may spend another `TURN`. Both keep batches together. A client sends as much as was just acknowledged, so a batch that
was cut in two stays cut.

Whoever waits is served by start-time fair queueing: the one who was given least is next, so a client that asks for
little never waits behind those who ask for much. Before login the payer is the address, after it the connection.

A client that takes more than a tenth of the loop is *heavy*. While others publish, heavy clients are served only now
and then (`Turns`), with rests in between: most messages of the others find the loop idle. While nobody else is there,
nobody rests.

A piece of work that cannot be divided and takes longer than a turn (`LONG`) is followed by a rest of `REST` times its
price before the next such piece begins, whoever asks for it: however many ask, the loop is free most of the time.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count
from typing import Final

from tidegate.wire import Type

TURN: Final = 400  # microseconds of work in a turn before those who need more wait for the next
AMPLE: Final = 30_000  # the same for QoS 2 of light clients
AMPLE_LINK: Final = 2000  # the same for QoS 1 over a link, while nobody else publishes or waits: it is many clients
SECONDS: Final = 1e-5  # in which a microsecond of work is paid for: a tenth of the loop; whoever takes more is heavy
BURST: Final = 0.005  # seconds: work of a tenth of that is done for anybody before it makes heavy
CREDIT: Final = 100  # microseconds of work that a light client is done before its account is looked at
MEMORY: Final = 0.1  # seconds: after that nobody is heavy for what it has done before
LONG: Final = 1000  # a piece of work that costs more has to wait until the last such piece is paid for
REST: Final = 3  # times its price, before another one begins
STRETCH: Final = 2048  # bytes of quick packets that are read before their price is counted
QUICK: Final = 1  # a QoS 0 message with a known route, for each eight receivers
ACKNOWLEDGED: Final = 1  # an acknowledgement in its shortest form
FLUSH_BYTES: Final = 64 * 1024  # read in one turn before what they caused is written, without waiting for its end
LARGE: Final = 16 * 1024  # bytes: a packet that is longer is paid for while it comes
BYTES: Final = 1024  # of it that cost a microsecond
READ_ON: Final = LONG  # to read on in such a packet when its sender is served: nobody else is in the same stretch
STALLED: Final = 1 << 40  # bytes that never come: what is left of a chunk is looked at when the journal has caught up
VISITED: Final = 7  # a message in one of several scopes, apart from its receivers
TAKEN: Final = 4  # a message on the general path, and 1 for each receiver
COPIED: Final = 12  # of its payload, each receiver costs one more for so many bytes, as a power of two
FILTER: Final = 20  # a filter that is subscribed to or unsubscribed from
CONDITION: Final = 6  # a byte of a condition that has to be compiled
TARGET: Final = 10  # to compile one target of a plan
ACCEPT: Final = 20  # to take a connection from the system
OPEN: Final = 100  # to open it, and to close it some time
TLS: Final = 1000  # a handshake, with a key that takes long
SIGNATURE: Final = 200  # to verify one, with a key that takes long
ASKED: Final = 2  # whether a member of a shared subscription may have a message, with the condition that it has
LOOK: Final = 1  # at a member again, when none of them could have it at once
OVERLAPPING: Final = 3  # in a plan, each further filter of a session that has one for the topic already
NODE: Final = 1  # each place among the subscriptions that is looked at for a new plan
PROPERTY: Final = 1  # a user property
PLAN: Final = 20  # a plan without policies; with them it takes five times as long

_BASE: Final = {Type.CONNECT: 200, Type.AUTH: 200, Type.PUBLISH: 6, Type.SUBSCRIBE: 15, Type.UNSUBSCRIBE: 15}
_LISTS: Final = (Type.SUBSCRIBE, Type.UNSUBSCRIBE)
_PRICES: Final = tuple((_BASE.get(kind, 4), 3 if kind in _LISTS else 9) for kind in (Type.CONNECT, *Type))


def price(kind: int, length: int) -> int:
    """What a packet of this type and length costs before anybody has looked into it.

    Eight bytes of filters cost as much as half a kilobyte of anything else.
    """
    base, shift = _PRICES[kind]
    return base + (length >> shift)


class Payer:
    """Whoever work is done for. `credit` is spent first: when it is used up, the account is settled.

    So a light client costs one subtraction per read. Heavy ones have no credit.
    """

    __slots__ = ("_given", "credit", "paid", "until")

    def __init__(self) -> None:
        self.credit = 0  # below 0, `settle` has to be called
        self._given = 0  # what `credit` was then
        self.paid = 0  # where its next piece of work begins, in the time of the queue
        self.until = 0.0  # when its share of the loop will have paid for what was done for it

    def settle(self, now: float, heavy_after: float) -> bool:
        """Counts what was done for it since the last time; whether it is heavy."""
        spent = self._given - self.credit
        self.paid += spent
        until = max(self.until, now) + spent * SECONDS
        self.until = min(until, now + MEMORY)
        heavy = until > heavy_after
        self.credit = self._given = 0 if heavy else CREDIT
        return heavy

    def owe(self, until: float, now: float) -> None:
        """It pays for what another one has left unpaid."""
        if until > now:
            self.until = min(max(self.until, now) + until - now, now + MEMORY)


class TurnOrder:
    """Work that waits for a turn; its payers have equal shares."""

    __slots__ = ("_sequence", "_time", "heap")

    def __init__(self) -> None:
        self.heap: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = count()
        self._time = 0  # where the piece of work began that was served last

    def __len__(self) -> int:
        return len(self.heap)

    def add(self, payer: Payer, work: Callable[[], None]) -> None:
        payer.paid = max(payer.paid, self._time)
        heapq.heappush(self.heap, (payer.paid, next(self._sequence), work))

    def next(self) -> Callable[[], None]:
        """Takes the piece of work whose payer was given least."""
        self._time, _, work = heapq.heappop(self.heap)
        return work
