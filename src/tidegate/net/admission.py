"""Who comes in, and when: connections that were accepted, until TLS and MQTT begin.

- To open a connection has a price (`session/packet_costs.py`), and a TLS handshake has a larger one. The address pays
  it (of IPv6: its /64 network), from the same account as what it sends before it has logged in. So one that comes all
  the time waits, as one that sends all the time does, and the others do not notice.
- `connect_rate` is asked and handshakes are counted before the first byte of TLS is read.
- Who exceeds a price, the rate or the number of handshakes waits; the address that was given least is next. Who has
  left meanwhile is not opened any more. Refused are only those for whom there is no place at all.
- If one address has most of the handshakes and there is none left for another, its oldest one is ended.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from tidegate.addresses import network
from tidegate.net.endpoint import Endpoint
from tidegate.session import Bucket, Site
from tidegate.session.packet_costs import OPEN, TLS, Payer, TurnOrder

SOON: Final = 0.001  # seconds: the time to a token may be too short to be added to a clock


class Address:
    """Where connections come from: how many there are, who pays for them until they have logged in, and who waits."""

    __slots__ = ("arrivals", "connections", "handshakes", "leaving", "lined_up", "payer")

    def __init__(self) -> None:
        self.connections = 0  # waiting, in a handshake, or open
        self.handshakes: dict[asyncio.Task[None], float] = {}  # and when they began, the oldest first
        self.leaving = False  # it is forgotten when it has paid
        self.payer = Payer()
        self.arrivals: deque[tuple[socket.socket, str]] = deque()
        self.lined_up = False  # it waits in a queue for one of its arrivals to be opened


class Admission:
    """The door of one listener."""

    def __init__(
        self, endpoint: Endpoint, site: Site, open: Callable[[socket.socket, str], asyncio.Task[None]]
    ) -> None:
        """`open` begins TLS or MQTT on a socket from an address; the task ends with the handshake."""
        self.addresses: dict[str, Address] = {}
        self.connections = 0  # as those of an address
        self.handshakes = 0
        self._shaking: set[Address] = set()  # those with handshakes
        self.turned_away = 0
        self._endpoint = endpoint
        self._site = site
        self._open = open
        self._stalled = TurnOrder()  # addresses for which there is no token of `connect_rate`, or no handshake
        self._bucket: Bucket | None = None
        self._ticking = False  # a timer runs for the next token
        self._closed = False

    def arrive(self, connected: socket.socket, address: str) -> Payer:
        """A connection was accepted: it is opened at once, or when it is its turn. Who pays for it."""
        source = self._source(address)
        endpoint = self._endpoint
        if self.connections >= endpoint.max_connections or source.connections >= endpoint.address_connections:
            self.turned_away += 1
            connected.close()
            self._forget(network(address))
            return source.payer
        self.enter(address)
        source.arrivals.append((connected, address))
        if not source.lined_up:
            if self._site.effort > self._site.room or self._site.rests(source.payer):
                self._line_up(source)
            else:
                self._serve(source)
        return source.payer

    def enter(self, address: str) -> None:
        """One more connection from there."""
        self.connections += 1
        self._source(address).connections += 1

    def leave(self, address: str) -> None:
        """One less; an address that owes nothing is forgotten."""
        self.connections -= 1
        source = self._source(address)
        source.connections -= 1
        if not source.connections:
            self._forget(network(address))

    def payer(self, address: str) -> Payer:
        return self._source(address).payer

    def handshake_ended(self, handshake: asyncio.Task[None], address: str) -> None:
        """Well or badly: somebody else may begin."""
        self.handshakes -= 1
        source = self._source(address)
        del source.handshakes[handshake]
        if not source.handshakes:
            self._shaking.discard(source)
        if source.arrivals and not source.lined_up and not self._closed:
            self._line_up(source)
        self._unstall()

    def close(self) -> list[tuple[socket.socket, str]]:
        """Opens nobody any more; who waits is handed back."""
        self._closed = True
        waiting = [arrival for source in self.addresses.values() for arrival in source.arrivals]
        for source in self.addresses.values():
            source.arrivals.clear()
        return waiting

    def _source(self, address: str) -> Address:
        name = network(address)
        source = self.addresses.get(name)
        if source is None:
            source = self.addresses[name] = Address()
        return source

    def _forget(self, name: str) -> None:
        source = self.addresses[name]
        if source.connections or source.leaving:
            return
        if source.payer.until > self._site.now:  # else it could come as if it had never been here
            source.leaving = True
            self._site.timers.at(source.payer.until, self._paid, name)
        else:
            del self.addresses[name]

    def _paid(self, name: str) -> None:
        self.addresses[name].leaving = False
        self._forget(name)

    def _line_up(self, source: Address) -> None:
        source.lined_up = True
        self._site.line_up(source.payer, partial(self._serve, source))

    def _serve(self, source: Address) -> None:
        """Opens the connection of an address that has waited longest, if it may be opened now."""
        source.lined_up = False
        if not source.arrivals:
            return
        endpoint, site = self._endpoint, self._site
        if endpoint.tls is not None and len(source.handshakes) >= endpoint.address_handshakes:
            return  # it is lined up when one of them has ended
        full = endpoint.tls is not None and self.handshakes >= endpoint.handshakes
        if full and not source.handshakes:
            self._end_oldest()
        if full or self._wait_for_token():
            source.lined_up = True
            self._stalled.add(source.payer, partial(self._line_up, source))
            return
        connected, address = source.arrivals.popleft()
        price = OPEN
        if _has_left(connected):
            connected.close()
            self.leave(address)
        else:
            if self._bucket is not None:
                self._bucket.afford(site.now)
            opening = self._open(connected, address)
            if endpoint.tls is not None:
                price += TLS
                self.handshakes += 1
                self._shaking.add(source)
                source.handshakes[opening] = site.now
            site.owed += price  # most of it is done when the loop comes to it
        site.charge(source.payer, price)
        if source.arrivals and not source.lined_up:
            self._line_up(source)

    def _end_oldest(self) -> None:
        """Of the address that has most handshakes: somebody else has none."""
        most = max(self._shaking, key=lambda each: (len(each.handshakes), -next(iter(each.handshakes.values()))))
        if len(most.handshakes) > 1:
            next(iter(most.handshakes)).cancel()

    def _wait_for_token(self) -> bool:
        """Whether `connect_rate` allows nobody now; a timer runs then."""
        rate, site = self._endpoint.connect_rate, self._site
        if rate is None:
            return False
        if self._bucket is None:
            self._bucket = Bucket(rate, max(1.0, rate), site.now)
        wait = self._bucket.wait(site.now)
        if wait > 0 and not self._ticking:
            self._ticking = True
            site.timers.at(site.now + max(wait, SOON), self._ticked)
        return wait > 0

    def _ticked(self) -> None:
        self._ticking = False
        self._unstall()

    def _unstall(self) -> None:
        """As many as may come in line up again."""
        room = len(self._stalled)
        if self._endpoint.tls is not None:
            room = min(room, self._endpoint.handshakes - self.handshakes)
        if room > 0 and self._bucket is not None:
            room = 0 if self._wait_for_token() else min(room, int(self._bucket.tokens))
        for _ in range(room):
            self._stalled.next()()


def _has_left(connected: socket.socket) -> bool:
    """Whether the other side has closed the connection while it waited, and has sent nothing."""
    try:
        return not connected.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        return True
