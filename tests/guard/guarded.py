"""What tests of guarded scopes share: a Mosquitto, a node in front of it, and who goes around the guard."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from cli.driving import mosquitto_program, running
from harness import PATIENCE, Client, free_port
from importing.twins import mosquitto
from processes import Served, from_file
from sockets.acts import policy, setting
from tidegate import wire

PLAIN = "allow_anonymous true\npersistence false\n"
HERE = {"authenticate": "here"}
RULES = (policy("all", "open/#"), policy("mary", "mary/#", subject="user:mary"))


@contextlib.contextmanager
def broker(configuration: str = PLAIN, **files: str) -> Iterator[int]:
    """A Mosquitto; its port."""
    mosquitto_program()
    with mosquitto(configuration, **files) as port:
        yield port


def password_file(folder: Path, **words: str) -> str:
    """What Mosquitto reads passwords from."""
    path = folder / "passwords"
    path.touch()
    for name, word in words.items():
        subprocess.run(["mosquitto_passwd", "-b", str(path), name, word], check=True)
    return path.read_text()


class Restartable:
    """A Mosquitto that keeps what it has when it is stopped, and that can be killed."""

    def __init__(self, folder: Path, more: str = "") -> None:
        self.port = free_port()
        self._folder = folder / "mosquitto"
        self._folder.mkdir()
        self._folder.chmod(0o777)
        lines = f"listener {self.port} 127.0.0.1\nallow_anonymous true\npersistence true\nautosave_interval 1\n"
        lines += f"autosave_on_changes true\npersistence_location {self._folder}/\nuser root\n{more}"
        (self._folder / "mosquitto.conf").write_text(lines)
        self._running: contextlib.ExitStack | None = None

    def start(self) -> None:
        self._running = contextlib.ExitStack()
        command = [mosquitto_program(), "-c", str(self._folder / "mosquitto.conf")]
        self._running.enter_context(running(command, self.port, self._folder / "log"))

    def stop(self) -> None:
        if self._running is not None:
            self._running.close()
            self._running = None


@contextlib.contextmanager
def restartable(folder: Path, more: str = "") -> Iterator[Restartable]:
    server = Restartable(folder, more)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@contextlib.asynccontextmanager
async def guarded(
    folder: Path, port: int, *policies: Any, scope: dict[str, Any] | None = None, **sections: Any
) -> AsyncIterator[Served]:
    """A node whose scope guards the broker at `port`."""
    text = guarding(port, *policies, scope=scope, **sections)
    async with from_file(folder, text) as node:
        yield node


def guarding(port: int, *policies: Any, scope: dict[str, Any] | None = None, **sections: Any) -> str:
    section = {"backend": f"mqtt://127.0.0.1:{port}", **(HERE if scope is None else scope)}
    return setting(*(policies or RULES), **{"scopes": {"legacy": section}, **sections})


async def around(node: Served, port: int, name: str = "around", **fields: Any) -> Client:
    """A client of the broker itself."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    client = Client(reader, writer)
    node.clients.append(client)
    client.version = fields.pop("version", wire.V5)
    await client.send(wire.Connect(version=client.version, client_id=name, clean_start=True, keep_alive=0, **fields))
    client.connack = await client.expect(wire.Connack)
    assert client.connack.reason == 0, client.connack
    return client


async def drained(client: Client) -> list[tuple[str, bytes, int]]:
    """All that it has been sent up to now; exchanges go on in both directions."""
    messages: list[tuple[str, bytes, int]] = []
    await client.send(wire.Pingreq())
    while not isinstance(packet := await client.receive(), wire.Pingresp):
        match packet:
            case wire.Publish():
                messages.append((packet.topic, packet.payload, packet.qos))
                if packet.qos == 1:
                    await client.send(wire.Puback(packet_id=packet.packet_id))
                elif packet.qos == 2:
                    await client.send(wire.Pubrec(packet_id=packet.packet_id))
            case wire.Pubrel():
                await client.send(wire.Pubcomp(packet_id=packet.packet_id))
            case wire.Pubrec():
                await client.send(wire.Pubrel(packet_id=packet.packet_id))
            case _:
                pass
    return messages


async def gathered(least: int, *clients: Client) -> list[tuple[str, bytes, int]]:
    """At least so many messages to these clients."""
    messages: list[tuple[str, bytes, int]] = []
    async with asyncio.timeout(PATIENCE):
        while len(messages) < least:
            for client in clients:
                messages += await drained(client)
    return messages
