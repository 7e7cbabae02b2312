"""Ten thousand connections: all served, with flat memory."""

from __future__ import annotations

import os
import resource
import select
import socket
import time
from pathlib import Path

import pytest

from processes import Process, process

COUNT = 10_000
CONFIG = """
version: 1
node: {name: crowd}
listeners: [{url: "mqtt://127.0.0.1:PORT", anonymous: true, connect_timeout: 60s}]
policies: open
log: {format: json}
sys: {interval: 0s}
"""
MESSAGE = b"\x30\x0a\x00\x03allhello"
PATIENCE = 60.0


class Crowd:
    """Many idle subscribers on raw sockets."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.sockets: dict[int, socket.socket] = {}
        self.poll = select.epoll()

    def join(self, count: int) -> None:
        """Connects, subscribes to `all`, and waits for the SUBACK of each."""
        for start in range(0, count, 500):
            fresh = []
            for number in range(start, min(start + 500, count)):
                sock = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)
                name = f"c{number}".encode()
                connect = b"\x00\x04MQTT\x04\x02\x00\x00" + len(name).to_bytes(2, "big") + name
                sock.sendall(bytes((0x10, len(connect))) + connect + b"\x82\x08\x00\x01\x00\x03all\x00")
                fresh.append(sock)
            for sock in fresh:
                answer = b""
                while len(answer) < 9:
                    answer += sock.recv(9 - len(answer))
                assert answer == b"\x20\x02\x00\x00\x90\x03\x00\x01\x00"
                sock.setblocking(False)
                self.sockets[sock.fileno()] = sock
                self.poll.register(sock.fileno(), select.EPOLLIN)

    def everybody_gets(self, sender: socket.socket) -> None:
        """One message to all of them."""
        sender.sendall(MESSAGE)
        waiting = dict.fromkeys(self.sockets, b"")
        deadline = time.monotonic() + PATIENCE
        while waiting:
            assert time.monotonic() < deadline, f"{len(waiting)} did not get it"
            for number, _ in self.poll.poll(1.0, 4096):
                waiting[number] += self.sockets[number].recv(100)
                if waiting[number] == MESSAGE:
                    del waiting[number]

    def leave(self) -> None:
        for sock in self.sockets.values():
            sock.close()


def room_for(count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + 500
    if soft < wanted:
        if hard != resource.RLIM_INFINITY and hard < wanted:
            text = f"only {hard} files may be open here; {wanted} are needed"
            if os.environ.get("CI") == "true":
                pytest.fail(text)
            pytest.skip(text)
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


@pytest.mark.timeout(240)
def test_ten_thousand_connections(tmp_path: Path) -> None:
    room_for(COUNT)
    with process(tmp_path, CONFIG) as node:
        crowd = Crowd(node.ports["PORT"])
        before = node.memory()
        crowd.join(COUNT)
        sender = socket.create_connection(("127.0.0.1", node.ports["PORT"]))
        sender.sendall(b"\x10\x10\x00\x04MQTT\x04\x02\x00\x00\x00\x04send")
        assert sender.recv(4) == b"\x20\x02\x00\x00"
        crowd.everybody_gets(sender)
        settled = node.memory()
        for _ in range(10):
            crowd.everybody_gets(sender)
        after = node.memory()
        print(
            f"{(settled - before) / COUNT:.0f} bytes a subscribed connection, {after - settled} more after ten rounds"
        )
        assert after - settled < 8 * 2**20
        crowd.leave()
        sender.close()
        _wait_for_nobody(node)
        full = []
        for _ in range(2):  # what was given back is used again
            crowd = Crowd(node.ports["PORT"])
            crowd.join(COUNT)
            full.append(node.memory())
            crowd.leave()
            _wait_for_nobody(node)
        assert full[1] - full[0] < 8 * 2**20


def _wait_for_nobody(node: Process) -> None:
    deadline = time.monotonic() + PATIENCE
    while node.ask("status")["numbers"]["clients/connected"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
