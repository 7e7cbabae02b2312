"""Recorded traffic of the examples, played again by clients that write down every byte they are sent.

The traffic is that of tests/learn/traffic, and after it the attacks of tests/learn/attacks.py. What each client said to
the node is the same whoever answers, so that answers can be compared. What was denied when it was recorded is in the
traffic without its content, and is said again without any. Properties that ask something of a node (`view`, `require`)
were not recorded, so that what an open node or a broker gives is plain.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from docs.pages import ROOT
from harness import Client
from learn.attacks import ATTACKS
from learn.recorded_examples import EXAMPLES, rows
from sockets.shadowing import Denials
from tidegate import wire
from tidegate.config.document import read_source
from tidegate.node.node import Node
from tidegate.store.journal import TRAFFIC

DEFAULT = "main"

Sent = list[tuple[str, list[bytes]]]
"""The bytes of each packet, connection by connection."""


@dataclass(frozen=True, kw_only=True)
class Act:
    """Somebody does something: `connect`, `disconnect`, `subscribe` or `publish`."""

    event: str
    client: str
    user: str
    topic: str = ""
    payload: bytes = b""
    retain: bool = False


def section(name: str) -> dict[str, Any]:
    """The configuration of an example as it is, but for how its clients prove who they are: all have a password."""
    found: dict[str, Any] = read_source(EXAMPLES / name / "tidegate.yaml").tree.data()
    for unneeded in ("tests", "capabilities", "trust"):
        found.pop(unneeded, None)
    found["node"].pop("data", None)
    scopes = [each.get("scope", DEFAULT) for each in found["listeners"]]
    found["listeners"] = [
        {"url": f"mqtt://127.0.0.1:{port(scope)}"} | ({} if scope == DEFAULT else {"scope": scope}) for scope in scopes
    ]
    for user in found["directory"]["users"].values():
        user["password"] = "plain:pw"
    return {**found, "sys": {"interval": "0s"}}


def port(scope: str) -> str:
    return f"{scope.upper()}_PORT"


def recorded(name: str) -> list[Act]:
    acts: list[Act] = []
    there: set[str] = set()
    for row in rows(name):
        entry = dict(zip(TRAFFIC.columns, row, strict=True))
        client, topic = entry["client"], entry["topic"] or entry["filter"] or ""
        event = "publish" if entry["event"] == "message" else entry["event"]
        if entry["source_kind"] != "client" or event == "unsubscribe" or topic.startswith("$"):
            continue
        if event == "connect":
            there.add(client)
        elif client not in there:
            continue  # a monitor says it in the name of one who has gone
        elif event == "disconnect":
            there.remove(client)
        acts.append(
            Act(
                event=event,
                client=client,
                user=entry["user"] or "",
                topic=topic,
                payload=entry["payload"] or b"",
                retain=bool(entry["retain"]),
            )
        )
    return acts


def attacking(name: str) -> Iterator[Act]:
    """The attacks, each by clients that come for it."""
    for attack in ATTACKS[name]:
        user, client = _who(attack.who)
        doing = "publish" if attack.action == "write" else "subscribe"
        yield Act(event="connect", client=client, user=user)
        yield Act(event=doing, client=client, user=user, topic=attack.topic, payload=b'{"x": 1}')
        if attack.publisher is not None:
            other, publisher = _who(attack.publisher)
            if publisher != client:
                yield Act(event="connect", client=publisher, user=other)
            yield Act(event="publish", client=publisher, user=other, topic=attack.topic, payload=b'{"x": 1}')


def _who(selector: str) -> tuple[str, str]:
    user, _, client = selector.partition("/")
    return user.removeprefix("user:"), client.removeprefix("client:")


def homes(name: str) -> dict[str, str]:
    """In which scope each client is."""
    found: dict[str, str] = {}
    for row in rows(name):
        entry = dict(zip(TRAFFIC.columns, row, strict=True))
        if entry["event"] == "connect":
            found[entry["client"]] = json.loads(entry["attributes"])["scope"]
    return found


def summed(name: str, sent: Sent, denied: Denials) -> str:
    """A line of the table of docs/design/shadow-examples.md, behind the example and who answers."""
    said, packets = len([*recorded(name), *attacking(name)]), sum(len(each) for _, each in sent)
    return f"{said:,} | {packets:,} | {len(denied):,} | {sum(denied.values()):,}"


def on_page(name: str, kind: str) -> str:
    beginning = f"| {name} | {kind} | "
    lines = (ROOT / "docs/design/shadow-examples.md").read_text().splitlines()
    return next(line.removeprefix(beginning).removesuffix(" |") for line in lines if line.startswith(beginning))


def _is_message(packet: bytes) -> bool:
    return packet[0] >> 4 == 3


class Tape(asyncio.StreamReader):
    """A stream that writes down what is read from it."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self.since = bytearray()

    async def readexactly(self, n: int) -> bytes:
        data = await self._reader.readexactly(n)
        self.since += data
        return data

    async def read(self, n: int = -1) -> bytes:
        return await self._reader.read(n)


@dataclass
class Player:
    """Plays acts to whoever listens at the ports; `sent`: the bytes of each packet, connection by connection.

    Answers to CONNECT, which say what a server can do, and to PING are not written down. Acknowledgements come first,
    and then messages: which of them is sent before the other depends on how busy a server is.
    """

    ports: Callable[[str], int]
    version: int
    node: Node | None = None  # if it runs on this loop
    sent: Sent = field(default_factory=list)
    _there: dict[str, tuple[Client, list[bytes]]] = field(default_factory=dict)

    async def play(self, acts: list[Act]) -> None:
        for act in acts:
            match act.event:
                case "connect":
                    await self._connect(act)
                case "disconnect":
                    await self._leave(act.client)
                case "subscribe":
                    wanted = wire.Subscription(filter=act.topic, qos=1)
                    await self._say(act.client, wire.Subscribe(packet_id=1, subscriptions=(wanted,)))
                case _:
                    packet = wire.Publish(topic=act.topic, payload=act.payload, qos=1, packet_id=1, retain=act.retain)
                    await self._say(act.client, packet)
            await self._everybody_takes()
        for client in list(self._there):
            await self._leave(client)
        for _, packets in self.sent:
            packets.sort(key=_is_message)

    def abandon(self) -> None:
        for end, _ in self._there.values():
            end.writer.close()

    async def _everybody_takes(self) -> None:
        for client in self._there:
            await self._take(client)

    async def _connect(self, act: Act) -> None:
        await self._leave(act.client)
        reader, writer = await asyncio.open_connection("127.0.0.1", self.ports(act.client))
        end = Client(Tape(reader), writer)
        end.version, end.node = self.version, self.node
        self._there[act.client] = end, []
        self.sent.append((act.client, self._there[act.client][1]))
        who = wire.Connect(version=self.version, client_id=act.client, clean_start=True, keep_alive=0)
        await end.send(replace(who, username=act.user, password=b"pw"))
        assert (await end.expect(wire.Connack)).reason == 0

    async def _leave(self, client: str) -> None:
        if client in self._there:
            end, _ = self._there.pop(client)
            await end.send(wire.Disconnect())
            await end.closed()
            end.writer.close()

    async def _say(self, client: str, packet: wire.Packet) -> None:
        await self._there[client][0].send(packet)
        await self._take(client, owed=1)

    async def _take(self, client: str, owed: int = 0) -> None:
        """Takes and acknowledges what comes, until nothing more does. `owed`: acknowledgements that have to come."""
        end, sent = self._there[client]
        more = True
        while more or owed:
            more = False
            await end.settled()
            await end.send(wire.Pingreq())
            while not isinstance(packet := await self._packet(end), wire.Pingresp):
                assert isinstance(end.reader, Tape)
                sent.append(bytes(end.reader.since))
                more = True
                match packet:
                    case wire.Publish(qos=1):
                        await end.send(wire.Puback(packet_id=packet.packet_id))
                    case wire.Puback() | wire.Suback():
                        owed -= 1

    async def _packet(self, end: Client) -> wire.Packet:
        assert isinstance(end.reader, Tape)
        end.reader.since.clear()
        return await end.receive()
