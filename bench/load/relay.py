"""Not a broker: forwards bytes from publishers to subscribers without looking at them.

It exists to find the ceiling of the load generator: whatever a work reaches against this relay is more than
the generator will ever show for a broker.
MQTT 3.1.1, QoS 0, one topic per connection and chunk, no wildcards.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys

from bench.load import frames

BUFFER = 1 << 18
BACKLOG = 1024


class Relay:
    """One epoll loop; what arrives in a turn leaves in one write per subscriber at its end."""

    def __init__(self, port: int) -> None:
        self._listener = socket.create_server(("127.0.0.1", port), backlog=BACKLOG)
        self._listener.setblocking(False)
        self._epoll = select.epoll()
        self._epoll.register(self._listener.fileno(), select.EPOLLIN)
        self._sockets: dict[int, socket.socket] = {}
        self._greeted: set[int] = set()
        self._target: dict[int, list[int]] = {}
        self._subscribers: dict[bytes, list[int]] = {}
        self._outbox: dict[int, list[bytes]] = {}

    def run(self) -> None:
        listener = self._listener.fileno()
        while True:
            for fd, _event in self._epoll.poll():
                if fd == listener:
                    self._accept()
                else:
                    self._read(fd)
            self._flush()

    def _accept(self) -> None:
        sock, _address = self._listener.accept()
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sockets[sock.fileno()] = sock
        self._epoll.register(sock.fileno(), select.EPOLLIN)

    def _read(self, fd: int) -> None:
        try:
            data = os.read(fd, BUFFER)
        except ConnectionResetError:
            data = b""
        if not data:
            self._epoll.unregister(fd)
            self._sockets.pop(fd).close()
        elif fd not in self._greeted:
            self._greeted.add(fd)
            self._send(fd, b"\x20\x02\x00\x00")
        elif data[0] == 0x82:  # exactly one filter, a plain topic
            self._subscribers.setdefault(data[6:-1], []).append(fd)
            self._send(fd, b"\x90\x03" + data[2:4] + b"\x00")
        else:
            self._forward(fd, data)

    def _forward(self, fd: int, data: bytes) -> None:
        if data[0] == frames.PUBLISH:
            found = self._subscribers.get(data[5 : 5 + data[4]])
            if found:  # otherwise the chunk starts in the middle of a message
                self._target[fd] = found
        for subscriber in self._target.get(fd, ()):
            self._outbox.setdefault(subscriber, []).append(data)

    def _flush(self) -> None:
        for fd, chunks in self._outbox.items():
            self._send(fd, b"".join(chunks) if len(chunks) > 1 else chunks[0])
        self._outbox.clear()

    def _send(self, fd: int, data: bytes) -> None:
        try:
            taken = os.write(fd, data)
        except BlockingIOError:
            taken = 0
        except OSError:
            return  # the generator is leaving; reading will say so too
        if taken < len(data):
            select.select([], [fd], [])
            self._send(fd, data[taken:])


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    Relay(int(sys.argv[1])).run()


if __name__ == "__main__":
    main()
