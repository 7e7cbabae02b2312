"""Accepting connections in pieces, and reading the PROXY header where a load balancer sends one.

A turn of the loop accepts only as many as it has room for; the rest waits in the system's queue. While an address that
takes too much of the loop keeps coming, the listener rests between turns as that address does. The header is taken from
the socket before anybody else sees it, TLS included, to the last byte and no further. A connection that begins
otherwise is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Final

import structlog

from tidegate.errors import MalformedPacket
from tidegate.net.proxy_header import LONGEST_V2, parse
from tidegate.session import Site
from tidegate.session.packet_costs import ACCEPT, Payer

ACCEPTED: Final = 16  # connections in one turn at most
FULL: Final = 1.0  # seconds before it tries again when the system has no descriptor for another connection

log = structlog.get_logger(__name__)


class Acceptor:
    """Accepts connections on a socket, and hands each on with its address."""

    def __init__(
        self,
        listening: socket.socket,
        loop: asyncio.AbstractEventLoop,
        site: Site,
        arrived: Callable[[socket.socket, str], Payer],
    ) -> None:
        """`arrived` is given each connection and its address, and says who pays for it."""
        self._listening = listening
        self._loop = loop
        self._site = site
        self._arrived = arrived
        self._payer = Payer()  # its place in the queue of those who rest: nobody else pushes it back
        self._closed = False
        self._reading = False
        self._read_on()

    def close(self) -> None:
        self._closed = True
        self._pause()
        self._listening.close()

    def _read_on(self) -> None:
        if not (self._reading or self._closed):
            self._reading = True
            self._loop.add_reader(self._listening, self._accept)

    def _pause(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._listening)

    def _accept(self) -> None:
        """As many as this turn has room for."""
        site = self._site
        site.open()
        for _ in range(ACCEPTED):
            if self._closed:
                return
            try:
                connected, name = self._listening.accept()
            except BlockingIOError:
                break
            except ConnectionError:  # it has left before it was accepted
                continue
            except OSError as error:
                log.warning("cannot accept", reason=error.strerror)
                self._pause()
                self._loop.call_later(FULL, self._read_on)
                return
            connected.setblocking(False)
            payer = self._take(connected, str(name[0]))
            if payer is not None:
                site.charge(payer, ACCEPT)
                self._payer.paid += ACCEPT
                if site.rests(payer):
                    self._pause()
                    site.resting.add(self._payer, self._accept)
                    return
            if site.effort > site.room:
                break
        self._read_on()

    def _take(self, connected: socket.socket, address: str) -> Payer | None:
        """Hands it on; who pays for it, if that is known yet."""
        return self._arrived(connected, address)


class ProxyAcceptor(Acceptor):
    """Accepts connections that begin with a PROXY header, and hands each on with the address in it."""

    def __init__(
        self,
        listening: socket.socket,
        loop: asyncio.AbstractEventLoop,
        site: Site,
        arrived: Callable[[socket.socket, str], Payer],
        *,
        patience: float,
        most: int,
    ) -> None:
        """`patience`: seconds for a header to come; `most`: connections without one at a time."""
        self._patience = patience
        self._most = most
        self._waiting: dict[socket.socket, asyncio.TimerHandle] = {}
        super().__init__(listening, loop, site, arrived)

    def close(self) -> None:
        super().close()
        for waiting in list(self._waiting):
            self._drop(waiting)

    def _take(self, connected: socket.socket, address: str) -> Payer | None:
        self._site.effort += ACCEPT
        if len(self._waiting) >= self._most:
            connected.close()
        else:
            self._waiting[connected] = self._loop.call_later(self._patience, self._drop, connected)
            self._loop.add_reader(connected, self._read, connected)
        return None

    def _read(self, accepted: socket.socket) -> None:
        try:
            data = accepted.recv(LONGEST_V2, socket.MSG_PEEK)
            header = parse(data) if data else None
            if not data:
                self._drop(accepted)
                return
            if header is None:
                if accepted.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT) > len(data):
                    self._drop(accepted)  # woken without more: it has ended
                    return
                # what is there would wake us up again and again: wait for more than that
                accepted.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, len(data) + 1)
                return
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
            accepted.recv(header.length)
            peer = accepted.getpeername()[0]
        except BlockingIOError:
            return
        except MalformedPacket as error:
            log.warning("connection closed", reason=str(error), address=_peer(accepted))
            self._drop(accepted)
            return
        except OSError:
            self._drop(accepted)
            return
        self._forget(accepted)
        self._site.open()
        self._arrived(accepted, header.address or peer)

    def _forget(self, accepted: socket.socket) -> None:
        self._waiting.pop(accepted).cancel()
        self._loop.remove_reader(accepted)

    def _drop(self, accepted: socket.socket) -> None:
        if accepted in self._waiting:
            self._forget(accepted)
            accepted.close()


def _peer(accepted: socket.socket) -> str:
    with contextlib.suppress(OSError):
        return str(accepted.getpeername()[0])
    return ""
