"""Clients that try to stop a node, one per way to try. `python attacks.py NAME PORT` runs one until it is ended.

All are as fast as the node lets them: they send whatever the socket takes, read all answers, and come back when they
are thrown out.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import selectors
import socket
import ssl
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tidegate import wire

CONNECTIONS = 4
CHUNK = 1 << 18
PIECE = 1 << 14  # of each send: the kernel does not give way to other processes while it copies
COSTLY = " && ".join(["o.size + 1 > 0"] * 29)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """One way to try it: what is sent on a connection, again and again; `login`, whether it says CONNECT before."""

    text: str
    data: Callable[[int], Iterator[bytes]]
    login: bool = True
    user: str | None = None
    leaves: bool = False  # when all is sent, without waiting for an answer
    port: str = "PORT"


def _connect(client: str = "", user: str | None = None, **fields: object) -> bytes:
    password = None if user is None else b"pw"
    packet = wire.Connect(
        version=5, client_id=client, clean_start=True, keep_alive=0, username=user, password=password, **fields
    )
    return wire.encode(packet, 5)


def _again(*packets: wire.Packet, raw: bytes = b"") -> Callable[[int], Iterator[bytes]]:
    once = raw + b"".join(wire.encode(packet, 5) for packet in packets)
    data = once * max(1, CHUNK // len(once))
    return lambda number: itertools.repeat(data)


def _conditions(filter: str) -> Callable[[int], Iterator[bytes]]:
    def data(number: int) -> Iterator[bytes]:
        for turn in itertools.count():
            where = wire.Properties(user_properties=(("where", f"{COSTLY} && o.size > {number}{turn:05d}"),))
            subscriptions = (wire.Subscription(filter=filter),)
            yield wire.encode(wire.Subscribe(packet_id=1, subscriptions=subscriptions, properties=where), 5)

    return data


def _filters(number: int) -> Iterator[bytes]:
    names = [f"t/{number}/{each}" for each in range(5000)]
    subscriptions = tuple(wire.Subscription(filter=name) for name in names)
    request = wire.encode(wire.Subscribe(packet_id=1, subscriptions=subscriptions), 5)
    return itertools.cycle((request, wire.encode(wire.Unsubscribe(packet_id=1, filters=tuple(names)), 5)))


def _topics(number: int) -> Iterator[bytes]:
    for turn in itertools.count():
        topics = (f"t/{number}/{turn}/{each}" for each in range(1000))
        yield b"".join(wire.encode(wire.Publish(topic=topic, payload=b""), 5) for topic in topics)


def _overlapping(number: int) -> Iterator[bytes]:
    """4,096 filters that match each of its topics."""
    start = f"t/{number}/"
    filters = [start + "/".join(levels) + "/+" for levels in itertools.product("a+", repeat=12)]
    for at in range(0, len(filters), 512):
        subscriptions = tuple(wire.Subscription(filter=each) for each in filters[at : at + 512])
        yield wire.encode(wire.Subscribe(packet_id=1, subscriptions=subscriptions), 5)
    for turn in itertools.count():
        topics = (start + "/".join("a" * 12) + f"/{turn}-{each}" for each in range(100))
        yield b"".join(wire.encode(wire.Publish(topic=topic, payload=b""), 5) for topic in topics)


def _shared(number: int) -> Iterator[bytes]:
    """Members of many groups, whose conditions nothing meets."""
    for group in range(60):
        where = wire.Properties(user_properties=(("where", f"o.payload.a > {group}"),))
        subscriptions = (wire.Subscription(filter=f"$share/{group}/t/#", qos=1),)
        yield wire.encode(wire.Subscribe(packet_id=1, subscriptions=subscriptions, properties=where), 5)
    message = wire.encode(wire.Publish(topic="t/x", payload=b'{"a":0}', qos=1, packet_id=1), 5)
    yield from itertools.repeat(message * 1000)


def _properties(number: int) -> Iterator[bytes]:
    size = (1 << 20) - 100
    properties = b"\x26\0\0\0\0" * (size // 5)
    body = b"\x00\x04MQTT\x05\x02\x00\x00" + wire.encode_varint(len(properties)) + properties + b"\x00\x00"
    return iter((b"\x10" + wire.encode_varint(len(body)) + body,))


@functools.cache
def _hello() -> bytes:
    """What begins a TLS handshake."""
    outgoing = ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


@functools.cache
def _first(number: int) -> list[bool]:
    """Empty once the session of that number is there."""
    return [True]


def _back(number: int) -> Iterator[bytes]:
    """A session with 5,000 subscriptions that comes back."""
    lasting = wire.Properties(session_expiry_interval=1000)
    packet = wire.Connect(
        version=5,
        client_id=f"large-{number}",
        clean_start=False,
        keep_alive=0,
        username="mary",
        password=b"pw",
        properties=lasting,
    )
    yield wire.encode(packet, 5)
    if _first(number):
        _first(number).clear()
        for start in range(0, 5000, 500):
            subscriptions = tuple(wire.Subscription(filter=f"t/{number}/{each}") for each in range(start, start + 500))
            yield wire.encode(wire.Subscribe(packet_id=1, subscriptions=subscriptions), 5)
    yield b"\xe0\x00"


def _burst(number: int) -> Iterator[bytes]:
    """As much as nobody has to wait for, on one connection after the other."""
    message = wire.encode(wire.Publish(topic="t/x", payload=b"", qos=1, packet_id=1), 5)
    yield _connect(f"burst-{number}", "mary") + message * 300 + b"\xe0\x00"


def _ways(number: int) -> Iterator[bytes]:
    """4,096 filters that each of its topics agrees with up to the last level."""
    start, tail = f"t/{number}/", "/b" * 50
    filters = [start + "/".join(levels) + tail + "/end" for levels in itertools.product("a+", repeat=12)]
    for at in range(0, len(filters), 512):
        subscriptions = tuple(wire.Subscription(filter=each) for each in filters[at : at + 512])
        yield wire.encode(wire.Subscribe(packet_id=1, subscriptions=subscriptions), 5)
    for turn in itertools.count():
        topics = (start + "/".join("a" * 12) + tail + f"/{turn}-{each}" for each in range(10))
        yield b"".join(wire.encode(wire.Publish(topic=topic, payload=b""), 5) for topic in topics)


def _half(number: int) -> Iterator[bytes]:
    will = wire.Will(topic="w", payload=b"x" * 60_000, qos=0, retain=False)
    return iter((_connect("half", will=will)[:-1],))


ATTACKS = {
    "where-refused": Attack(
        text="SUBSCRIBE with a costly `where`, each another one, without the right", data=_conditions("secret/x")
    ),
    "where": Attack(text="the same with the right", data=_conditions("t/x"), user="mary"),
    "properties": Attack(text="CONNECT of 1 MiB of empty user properties", data=_properties, login=False),
    "connect": Attack(
        text="CONNECT and DISCONNECT", data=lambda number: iter((_connect() + b"\xe0\x00",)), login=False
    ),
    "connection": Attack(text="connections that say nothing", data=lambda number: iter(()), login=False, leaves=True),
    "hello": Attack(
        text="TLS handshakes that stop half-way",
        data=lambda number: iter((_hello(),)),
        login=False,
        leaves=True,
        port="TLS_PORT",
    ),
    "half": Attack(text="CONNECT without its last byte", data=_half, login=False),
    "password": Attack(
        text="CONNECT with a wrong password", data=lambda number: iter((_connect("", "bob"),)), login=False
    ),
    "filters": Attack(text="SUBSCRIBE and UNSUBSCRIBE of 5,000 filters", data=_filters, user="mary"),
    "ping": Attack(text="PINGREQ", data=_again(wire.Pingreq())),
    "acknowledgements": Attack(text="PUBACK of nothing", data=_again(wire.Puback(packet_id=1))),
    "release": Attack(text="PUBREL of nothing", data=_again(wire.Pubrel(packet_id=1))),
    "qos0": Attack(text="PUBLISH, QoS 0", data=_again(wire.Publish(topic="t/x", payload=b"")), user="mary"),
    "qos1": Attack(
        text="PUBLISH, QoS 1", data=_again(wire.Publish(topic="t/x", payload=b"", qos=1, packet_id=1)), user="mary"
    ),
    "denied": Attack(
        text="PUBLISH, QoS 1, without the right",
        data=_again(wire.Publish(topic="secret/x", payload=b"", qos=1, packet_id=1)),
    ),
    "topics": Attack(text="PUBLISH, each to another topic", data=_topics, user="mary"),
    "conditions": Attack(
        text="PUBLISH that a policy denies because of a long list in the payload",
        data=_again(wire.Publish(topic="checked/x", payload=json.dumps({"l": [0] * 1500}).encode())),
    ),
    "user-properties": Attack(
        text="PUBLISH with 990 user properties",
        data=_again(
            wire.Publish(topic="t/x", payload=b"", properties=wire.Properties(user_properties=(("k", "v"),) * 990))
        ),
        user="mary",
    ),
    "overlapping": Attack(
        text="PUBLISH, each to another topic, under 4,096 filters of its own that all match",
        data=_overlapping,
        user="mary",
    ),
    "back": Attack(text="sessions with 5,000 subscriptions that come back", data=_back, login=False),
    "burst": Attack(text="CONNECT, 300 PUBLISH of QoS 1 and DISCONNECT", data=_burst, login=False),
    "ways": Attack(
        text="PUBLISH, each to another topic, under 4,096 long filters of its own that nearly match",
        data=_ways,
        user="mary",
    ),
    "shared": Attack(
        text="PUBLISH, QoS 1, to 60 shared subscriptions with a `where` that nothing meets", data=_shared, user="mary"
    ),
    "large": Attack(text="PUBLISH of 1 MB", data=_again(wire.Publish(topic="t/x", payload=bytes(10**6))), user="mary"),
}


class Attacker:
    """One connection that is made again whenever it ends."""

    def __init__(self, attack: Attack, port: int, number: int, poll: selectors.BaseSelector) -> None:
        self.attack, self.port, self.number, self.poll = attack, port, number, poll
        self.socket: socket.socket | None = None
        self.rounds = 0

    def come(self) -> None:
        self.leave()
        with contextlib.suppress(OSError):
            self.socket = socket.create_connection(("127.0.0.1", self.port), timeout=5)
            self.left = memoryview(b"")
            self.said = self.attack.data(self.number)
            if self.attack.login:
                self.socket.sendall(_connect(f"attacker-{self.number}", self.attack.user))
                self.socket.recv(1000)
            self.socket.setblocking(False)
            self.poll.register(self.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, self)

    def leave(self) -> None:
        if self.socket is not None:
            with contextlib.suppress(KeyError):
                self.poll.unregister(self.socket)
            self.socket.close()
            self.socket = None

    def go_on(self, events: int) -> None:
        assert self.socket is not None
        try:
            if events & selectors.EVENT_READ and not self.socket.recv(CHUNK):
                self.come()
                return
            if events & selectors.EVENT_WRITE:
                self.left = self.left or memoryview(next(self.said, b""))
                if not self.left and self.attack.leaves:
                    self.come()
                    return
                if not self.left:
                    self.poll.modify(self.socket, selectors.EVENT_READ, self)
                    return
                self.left = self.left[self.socket.send(self.left[:PIECE]) :]
        except BlockingIOError:
            pass
        except OSError:
            self.come()


def run(name: str, port: int) -> None:
    poll = selectors.DefaultSelector()
    attackers = [Attacker(ATTACKS[name], port, number, poll) for number in range(CONNECTIONS)]
    for attacker in attackers:
        attacker.come()
    print("attacking", flush=True)
    while True:
        for key, events in poll.select(0.1):
            key.data.go_on(events)
        for attacker in attackers:
            if attacker.socket is None:
                attacker.come()


if __name__ == "__main__":
    run(sys.argv[1], int(sys.argv[2]))
