"""The same clients do the same at a real Mosquitto and at a node with the imported policies.

Every client subscribes, then every client publishes every topic, over real sockets. What is compared is who received
what from whom. Nothing is waited for by the clock: a broker answers a PING after what it was sent before, and puts the
answer behind what it has sent itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import tempfile
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from cli.driving import mosquitto_program, running
from harness import Client, Live, free_port
from tidegate import wire
from tidegate.config import parse
from tidegate.importing import Imported, to_yaml
from tidegate.node.node import Node

PASSWORD = "plain:secret"


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody who connects; without a user, anonymously."""

    client: str
    user: str | None = None

    def __str__(self) -> str:
        return self.client


@dataclass(frozen=True, slots=True, order=True)
class Received:
    """A message that arrived."""

    receiver: str
    publisher: str
    topic: str


Outcome = set[Received]


async def play(port: int, people: Sequence[Person], filters: Iterable[str], published: Sequence[str]) -> Outcome:
    """What happens at the broker on `port`."""
    place = _Place(port)
    try:
        clients = {person: await place.enter(person) for person in people}
        for client in clients.values():
            for filter in filters:
                await client.subscribe(filter)
        for person, client in clients.items():
            for topic in published:
                await client.publish(topic, person.client.encode())
            await _settled(client, place.kept[client])
        got: Outcome = set()
        for person, client in clients.items():
            await _settled(client, place.kept[client])
            got |= {Received(person.client, message.payload.decode(), message.topic) for message in place.kept[client]}
        return got
    finally:
        place.leave()


class _Place:
    """Connections to one broker."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.kept: dict[Client, list[wire.Publish]] = {}

    async def enter(self, person: Person) -> Client:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        client = Client(reader, writer)
        self.kept[client] = []
        identity: dict[str, Any] = {} if person.user is None else {"username": person.user, "password": b"secret"}
        await client.send(
            wire.Connect(version=wire.V5, client_id=person.client, clean_start=True, keep_alive=0, **identity)
        )
        connack = await client.expect(wire.Connack)
        assert connack.reason == 0, (person, connack)
        return client

    def leave(self) -> None:
        for client in self.kept:
            client.writer.close()


async def _settled(client: Client, into: list[wire.Publish]) -> None:
    """Everything that was sent has been answered; messages that came before the answer go `into`."""
    await client.send(wire.Pingreq())
    while not isinstance(packet := await client.receive(), wire.Pingresp):
        assert isinstance(packet, wire.Publish), packet
        into.append(packet)


# -- the two brokers -------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def mosquitto(configuration: str, **files: str) -> Any:
    """A Mosquitto with these lines; `{name}` in them is the path of a file with that content."""
    port = free_port()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)  # it may give up root
        for file, content in files.items():
            (folder / file).write_text(content)
            (folder / file).chmod(0o644)
        paths = {file: folder / file for file in files}
        lines = f"listener {port} 127.0.0.1\n{configuration.format(**paths)}\n"
        (folder / "mosquitto.conf").write_text(lines)
        with running([mosquitto_program(), "-c", str(folder / "mosquitto.conf")], port, folder / "log"):
            yield port


@contextlib.asynccontextmanager
async def tidegate(imported: Imported, people: Iterable[Person]) -> AsyncIterator[int]:
    """A node with what was imported, where everybody of `people` can log in."""
    port = free_port()
    data = yaml.safe_load(to_yaml(imported, "source"))
    users = data.setdefault("directory", {}).setdefault("users", {})
    for user in {person.user for person in people} - {None}:
        users.setdefault(user, {})["password"] = PASSWORD
    data |= {
        "node": {"name": "twin"},
        "listeners": [{"url": f"mqtt://127.0.0.1:{port}", "anonymous": True}],
        "sys": {"interval": 0},
    }
    node = Node(parse(yaml.safe_dump(data, allow_unicode=True), "twin.yaml"), None, asyncio.get_running_loop())
    live = Live(node, port)
    await node.start()
    try:
        yield live.port
    finally:
        await node.close()


def difference(one: Outcome, other: Outcome) -> str:
    """What only one of them has, for people."""
    shown = [f"only the first: {each}" for each in sorted(one - other)]
    shown += [f"only the second: {each}" for each in sorted(other - one)]
    return "\n".join(itertools.islice(shown, 20))
