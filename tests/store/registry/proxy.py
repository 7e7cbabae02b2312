"""A network between a registry and its server that breaks at the worst moment: when COMMIT is sent."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from enum import Enum

from harness import PATIENCE, free_port


class Cut(Enum):
    """What happens to the next COMMIT."""

    BEFORE = "the server never hears of it"
    AFTER = "the server does it, and nobody hears the answer"
    LATE = "the connection breaks, and the server hears of it when the client has long come back"


class Proxy:
    def __init__(self, target: int) -> None:
        self.port = free_port()
        self.released = threading.Event()  # a LATE commit is passed on
        self.refusing = False
        """From now on nobody gets through."""
        self.refuse_after = False
        """Nobody gets through once a COMMIT has been cut."""
        self.cuts = 0
        self._target = target
        self._next: Cut | None = None
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self._threads = [threading.Thread(target=self._accept)]
        self._sockets: list[socket.socket] = []
        self._threads[0].start()

    def cut(self, how: Cut) -> None:
        self._next = how

    def close(self) -> None:
        self.refusing = True
        self.released.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in self._sockets:
            _shut(each)
        for thread in self._threads:
            thread.join(PATIENCE)
        for each in self._sockets:
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._sockets.append(client)
            if self.refusing:
                _shut(client)
                continue
            server = socket.create_connection(("127.0.0.1", self._target))
            self._sockets.append(server)
            pumps = [
                threading.Thread(target=self._to_server, args=(client, server)),
                threading.Thread(target=self._to_client, args=(server, client)),
            ]
            self._threads += pumps
            for pump in pumps:
                pump.start()

    def _to_server(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                if b"COMMIT\0" in data and self._next is not None:
                    self._break(client, server, data)
                    return
                server.sendall(data)
        _shut(server)

    def _break(self, client: socket.socket, server: socket.socket, data: bytes) -> None:
        how, self._next = self._next, None
        self.refusing = self.refuse_after
        self.cuts += 1
        _shut(client)
        if how is Cut.LATE:
            assert self.released.wait(PATIENCE)
        if how is not Cut.BEFORE:
            server.sendall(data)
            return  # the other pump goes on until the server has done it, and then closes
        _shut(server)

    def _to_client(self, server: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                client.sendall(data)
        _shut(client)
        _shut(server)


def _shut(each: socket.socket) -> None:
    with contextlib.suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def proxy(target: int) -> Iterator[Proxy]:
    running = Proxy(target)
    try:
        yield running
    finally:
        running.close()
