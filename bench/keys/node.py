"""A node of the weather station, with its HTTP process if it has one: started on loopback, pinned, stopped again.

The HTTP process can be moved to another core while it runs. Tokens are made over the control socket, topic keys by a
first message of each sensor.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.harness import servers
from bench.harness.servers import START_TIMEOUT, BenchError, Peer, Server, Setting
from bench.keys.weather import SOURCE, TOPICS, Ports, Rules, Station, configuration
from bench.load import frames, sessions
from bench.load.job import PAYLOAD, LoadError
from tidegate.errors import TidegateError
from tidegate.keys import key_id

VERSION = 4
ANSWER = "$tidegate/keys/answer"
GET = "$tidegate/keys/get"
LOOK = 0.02  # seconds between looks whether it has started


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A message that was received sealed, what it is, and the key it was sealed with."""

    topic: str
    key: str
    sealed: str
    clear: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One that runs."""

    server: Server
    station: Station
    ports: Ports
    authority: Path | None
    """The certificate that clients trust, of a node that speaks TLS."""

    @property
    def pid(self) -> int:
        return self.server.process.pid

    def asked(self, command: str, **arguments: Any) -> dict[str, object]:
        """What the node answers on its control socket."""
        from tidegate.net.control_socket import ask  # not when a load generator starts, which has no use for a node

        try:
            answer: dict[str, object] = ask(self.server.control, command, **arguments)
        except TidegateError as error:
            raise BenchError(f"the node does not do {command}: {error}") from None
        return answer

    def api(self) -> int:
        """The HTTP process."""
        told = self.asked("status").get("http")
        pid = told.get("pid") if isinstance(told, dict) else None
        if not isinstance(pid, int):
            raise BenchError(f"the HTTP process does not run{self.server.last_words()}")
        return pid

    def token(self, role: str, user: str | None = None) -> str:
        made = self.asked("token_make", role=role, user=user, name="bench", seconds=None, by="bench")
        return str(made["token"])

    def tls(self) -> ssl.SSLContext | None:
        return None if self.authority is None else ssl.create_default_context(cafile=str(self.authority))

    def session(self, name: str, client: str = "") -> socket.socket:
        """A connection over MQTT as this user."""
        return mqtt_session(self.ports.mqtt, name, self.tls(), client)

    def samples(self) -> list[Sample]:
        """One message of each sensor, as a reader receives it."""
        found = []
        with ExitStack() as stack:
            reader = stack.enter_context(self.session(self.station.asking[0], "sampling"))
            sessions.subscribe(reader, ["campodenno/#"], qos=0, version=VERSION)
            for number, topic in enumerate(TOPICS, 1):
                sensor = stack.enter_context(self.session(f"sensor{number}"))
                clear = content(PAYLOAD, number)
                sensor.sendall(frames.publish(topic, clear, qos=0, packet_id=0, version=VERSION))
                _, sealed = parts_of(sessions.read_packet(reader))
                key = key_id(sealed)
                if key is None:
                    raise BenchError(f"what was published to {topic} is not protected: {sealed[:60]!r}")
                found.append(Sample(topic=topic, key=key, sealed=sealed.decode(), clear=clear.decode()))
        return found

    def source(self, admin: str) -> str:
        """The token of a new source."""
        tls = self.tls()
        port = self.ports.http
        line = (
            http.client.HTTPConnection("127.0.0.1", port, timeout=sessions.PATIENCE)
            if tls is None
            else http.client.HTTPSConnection("127.0.0.1", port, timeout=sessions.PATIENCE, context=tls)
        )
        body = json.dumps({"NodeId": SOURCE, "NodeType": "sensor", "CommunicationMode": "discrete"})
        try:
            line.request(
                "POST",
                "/registration",
                body,
                {"Authorization": f"Bearer {admin}", "Content-Type": "application/json"},
            )
            answer = line.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise BenchError(f"the HTTP process does not answer: {error}") from None
        finally:
            line.close()
        if answer.status != http.client.CREATED:
            raise BenchError(f"no source could be registered: {text[:300]!r}")
        return str(json.loads(text)["token"])


def content(size: int, number: int = 0) -> bytes:
    """A JSON document of exactly so many bytes."""
    short = {"NodeId": f"sensor{number}", "value": 21.5, "unit": "C", "note": ""}
    left = size - len(json.dumps(short, separators=(",", ":")))
    return json.dumps({**short, "note": "x" * left}, separators=(",", ":")).encode()


def parts_of(packet: bytes) -> tuple[bytes, bytes]:
    """Topic and payload of a PUBLISH with QoS 0 in version 4."""
    if packet[0] != frames.PUBLISH:
        raise LoadError(f"something else than a message came: {packet[:40].hex()}")
    start = 2
    while packet[start - 1] & 0x80:
        start += 1
    end = start + 2 + int.from_bytes(packet[start : start + 2], "big")
    return packet[start + 2 : end], packet[end:]


def dialled(port: int, tls: ssl.SSLContext | None) -> socket.socket:
    """A connection that sends at once."""
    sock = socket.create_connection(("127.0.0.1", port), timeout=sessions.PATIENCE)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sessions.never_paced(sock)
        return sock if tls is None else tls.wrap_socket(sock, server_hostname="127.0.0.1")
    except BaseException:
        sock.close()
        raise


def mqtt_session(port: int, name: str, tls: ssl.SSLContext | None, client: str = "") -> socket.socket:
    """A session as this user, whose password is his name."""
    sock = dialled(port, tls)
    try:
        sock.sendall(frames.connect(client or name, version=VERSION, clean=True, login=name))
        reply = sessions.read_packet(sock)
        if reply[0] != frames.CONNACK or reply[3]:
            raise LoadError(f"CONNECT was refused: {reply.hex()}")
    except BaseException:
        sock.close()
        raise
    return sock


@contextmanager
def running(
    station: Station, rules: Rules, *, core: int, http: bool = False, certificates: Path | None = None
) -> Iterator[Node]:
    """A fresh node, until the end of the block; with all its processes on one core."""

    setting = Setting(
        text=lambda numbers: configuration(station.rules(rules), _ports(numbers), certificates),
        listeners=2 if http else 1,
        durable=True,
    )
    authority = None if certificates is None else certificates / "ca.pem"
    with servers.running(Peer.TIDEGATE, setting, core=core) as server:
        node = Node(server=server, station=station, ports=_ports(server.ports), authority=authority)
        if http:
            _await_http(node)
        yield node


def _ports(numbers: tuple[int, ...]) -> Ports:
    return Ports(mqtt=numbers[0], http=numbers[1] if len(numbers) > 1 else 0)


def _await_http(node: Node) -> None:
    """Until the HTTP process answers: its socket is there before it is."""
    deadline = time.monotonic() + START_TIMEOUT
    while time.monotonic() < deadline:
        if words := node.server.obituary():
            raise BenchError(words)
        try:
            if _answers(node):
                return
        except OSError:
            pass  # not yet
        time.sleep(LOOK)
    raise BenchError(f"the HTTP process does not answer after {START_TIMEOUT:.0f} s{node.server.last_words()}")


def _answers(node: Node) -> bool:
    sock = dialled(node.ports.http, node.tls())
    with sock:
        sock.settimeout(START_TIMEOUT)
        sock.sendall(b"GET /health/live HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n")
        return sock.recv(4096).startswith(b"HTTP/1.1 200")


def moved(pid: int, core: int) -> None:
    """Puts a process with all its threads on a core."""
    for thread in os.listdir(f"/proc/{pid}/task"):
        os.sched_setaffinity(int(thread), {core})
