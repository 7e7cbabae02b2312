"""A Mosquitto with a whole configuration, and the node that has taken it over, before the same random clients.

The configurations are folders of `mosquitto_shapes`. Words in capitals stand for ports and places; both sides have
their own. What is compared: who is let in, which subscriptions are granted, who receives what from whom. Bridges of
both lead to a Mosquitto of their own, whose clients count as receivers and publishers, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import shutil
import ssl
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import websockets

from cli.driving import mosquitto_program, running
from harness import PATIENCE, Client, free_port
from tidegate import wire
from tidegate.config import parse
from tidegate.importing import mosquitto_takeover, to_yaml
from tidegate.importing.mosquitto_behind import Wanted
from tidegate.importing.mosquitto_takeover import TakenOver
from tidegate.node.node import Node

SHAPES: Final = Path(__file__).with_name("mosquitto_shapes")
DYNSEC: Final = next(Path("/usr/lib").rglob("mosquitto_dynamic_security.so"), Path("mosquitto_dynamic_security.so"))
READY: Final = "ready"  # the last level of topics that are published until a bridge carries them
DONE: Final = "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A folder with a `mosquitto.conf`, and what its clients may be like."""

    name: str
    users: tuple[str, ...]
    topics: tuple[str, ...]
    """Topics around which its rules are; `{u}` and `{c}` stand for users and client identifiers."""
    listeners: tuple[str, ...] = ("PORT",)
    certificates: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Listeners with TLS, and the certificates that clients show there."""
    believes: tuple[str, ...] = ()
    """Listeners where Mosquitto believes any name, because there is no password file. Here it needs a password."""
    refuses_subscriptions: bool = False
    """Whether Mosquitto refuses subscriptions too; here they are held."""
    crossing: tuple[str, str] | None = None
    """Of a bridge: the topics of a last message out and in, as this side has them, and behind the bridge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Visitor:
    """A client and what it does."""

    client: str
    listener: str
    user: str | None
    password: bytes | None
    certificate: str | None
    filters: tuple[str, ...]


@dataclass(slots=True)
class Outcome:
    let_in: set[str] = field(default_factory=set)
    granted: set[tuple[str, str]] = field(default_factory=set)
    received: set[tuple[str, str, str]] = field(default_factory=set)
    """Receiver, publisher, topic."""


def visitors(shape: Shape, dice: random.Random, count: int) -> list[Visitor]:
    """Clients of all kinds: with the right name, a wrong password, an unknown name, none."""
    made = []
    for number in range(count):
        listener = shape.listeners[number % len(shape.listeners)]
        client = f"c{number}" if number % 4 else f"dev-{number}"
        everybody = [*shape.users, *(dice.choice((*shape.users, "stranger", None)) for _ in range(count))]
        user = everybody[number // len(shape.listeners)]
        password = None if user is None else f"{user}-secret".encode()
        if user is not None and number > len(shape.users) * len(shape.listeners) and dice.random() < 0.3:
            password = b"wrong"
        certificate = None
        if listener in shape.certificates:
            shown = shape.certificates[listener]
            certificate, user, password = shown[number // len(shape.listeners) % len(shown)], None, None
        filters = dice.sample(("#", "+/#", *topics(shape, ("c1", "dev-4"))), 2)
        made.append(
            Visitor(
                client=client,
                listener=listener,
                user=user,
                password=password,
                certificate=certificate,
                filters=tuple(dict.fromkeys((*filters, "#"))) if number % 3 else tuple(filters),
            )
        )
    return made


def topics(shape: Shape, clients: Iterable[str]) -> list[str]:
    """The topics of a shape with names in them."""
    filled = [
        topic.replace("{u}", user).replace("{c}", client)
        for topic in shape.topics
        for user in (*shape.users, "stranger")
        for client in clients
    ]
    return list(dict.fromkeys(filled))


# -- the two sides ---------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Side:
    """Where the listeners are, and the folder of the configuration."""

    folder: Path
    ports: dict[str, int]
    cloud: int | None = None

    @property
    def conf(self) -> Path:
        return self.folder / "mosquitto.conf"


def lay_out(shape: Shape, folder: Path, certificates: Path, cloud: int | None) -> Side:
    """The files of a shape, with ports and places of its own."""
    shutil.copytree(SHAPES / shape.name, folder)
    folder.chmod(0o777)  # Mosquitto may give up root
    side = Side(folder, {}, cloud)

    def port(found: re.Match[str]) -> str:
        return str(side.ports.setdefault(found[0], free_port()))

    for file in folder.rglob("*"):
        if file.is_dir():
            file.chmod(0o777)
            continue
        text = file.read_text().replace("FOLDER", str(folder)).replace("CERTS", str(certificates))
        text = text.replace("DYNSEC", str(DYNSEC)).replace("CLOUD_PORT", str(cloud))
        file.write_text(re.sub(r"\b(?:[A-Z]+_)?PORT\b", port, text))
        file.chmod(0o644)
    return side


@contextlib.contextmanager
def real(side: Side, conf: Path | None = None, port: int | None = None) -> Iterator[Side]:
    """Mosquitto itself."""
    command = [mosquitto_program(), "-c", str(conf or side.conf)]
    with running(command, port or next(iter(side.ports.values())), side.folder / "log"):
        yield side


@contextlib.contextmanager
def cloud(folder: Path) -> Iterator[int]:
    """The broker behind the bridge."""
    folder.mkdir()
    port = free_port()
    (folder / "mosquitto.conf").write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\n")
    with running([mosquitto_program(), "-c", str(folder / "mosquitto.conf")], port, folder / "log"):
        yield port


class Disk:
    """The files of this machine."""

    def text(self, path: str) -> str:
        return Path(path).read_text()

    def names(self, folder: str) -> Sequence[str]:
        return [str(path) for path in Path(folder).iterdir()]

    def absolute(self, path: str) -> str:
        return str(Path(path).absolute())


def imported(side: Side, behind: int | None = None) -> TakenOver:
    wanted = None
    if behind is not None:
        folder, salt = str(side.folder), b"0123456789ab"
        wanted = Wanted(port=behind, folder=folder, stem="mosquitto-behind", password="guard-secret", salt=salt)
    return mosquitto_takeover.read(side.conf.read_text(), str(side.conf), Disk(), name="twin", behind=wanted)


@contextlib.asynccontextmanager
async def node(side: Side, taken: TakenOver) -> AsyncIterator[Side]:
    """The node that takes its place."""
    text = to_yaml(taken.imported, str(side.conf))
    path = side.folder / "tidegate.yaml"
    path.write_text(text)
    node = Node(parse(text, str(path)), None, asyncio.get_running_loop())
    await node.start()
    try:
        yield side
    finally:
        await node.close()


# -- what happens ----------------------------------------------------------------------------------------------------


async def play(
    shape: Shape, side: Side, people: Sequence[Visitor], published: Mapping[str, Sequence[str]], certificates: Path
) -> Outcome:
    """Everybody comes, subscribes and publishes, at one side."""
    outcome, inside = Outcome(), _Inside()
    try:
        for person in people:
            client = await _enter(person, side, certificates)
            if client is not None:
                outcome.let_in.add(person.client)
                inside.add(person.client, client)
        if side.cloud is not None:
            visitor = Visitor(
                client="cloud", listener="CLOUD", user=None, password=None, certificate=None, filters=("#",)
            )
            far = await _enter(visitor, Side(side.folder, {"CLOUD": side.cloud}), certificates)
            assert far is not None
            inside.add("cloud", far)
        for person in people:
            if person.client in inside.clients:
                suback = await inside.clients[person.client].subscribe(*person.filters)
                pairs = zip(person.filters, suback.reasons, strict=True)
                outcome.granted |= {(person.client, filter) for filter, reason in pairs if reason < 0x80}
        if side.cloud is not None:
            await inside.clients["cloud"].subscribe("#")
            await inside.joined(shape)
        for name, client in inside.clients.items():
            for topic in published[name]:
                await client.publish(topic, name.encode())
            await inside.settle(name)
        if side.cloud is not None:
            await inside.crossed(shape)
        for name in inside.clients:
            await inside.settle(name)
            outcome.received |= {
                (name, message.payload.decode(), message.topic)
                for message in inside.kept[name]
                if message.payload not in (READY.encode(), DONE.encode()) and not message.topic.startswith("$")
            }
        return outcome
    finally:
        inside.leave()


class _Inside:
    """Who was let in, and what each has received."""

    def __init__(self) -> None:
        self.clients: dict[str, Client] = {}
        self.kept: dict[str, list[wire.Publish]] = {}

    def add(self, name: str, client: Client) -> None:
        self.clients[name] = client
        self.kept[name] = []

    async def settle(self, name: str) -> None:
        """What it has sent was answered, and what came before the answer is kept."""
        client = self.clients[name]
        await client.send(wire.Pingreq())
        while not isinstance(packet := await client.receive(), wire.Pingresp):
            await self._keep(name, packet)

    async def _keep(self, name: str, packet: wire.Packet) -> wire.Publish:
        assert isinstance(packet, wire.Publish), packet
        if packet.qos == 1:
            await self.clients[name].send(wire.Puback(packet_id=packet.packet_id))
        self.kept[name].append(packet)
        return packet

    async def joined(self, shape: Shape) -> None:
        """The bridge carries in both directions."""
        await self._carried(shape, READY, again=True)

    async def crossed(self, shape: Shape) -> None:
        """What was published before has crossed."""
        await self._carried(shape, DONE, again=False)

    async def _carried(self, shape: Shape, word: str, *, again: bool) -> None:
        assert shape.crossing is not None
        out, into = shape.crossing
        for name, other, topic in (("near", "cloud", out), ("cloud", "near-reader", into)):
            async with asyncio.timeout(PATIENCE):
                await self.clients[name].publish(topic, word.encode())
                while not any(message.payload == word.encode() for message in self.kept[other]):
                    await self.settle(other)
                    await asyncio.sleep(0.01)
                    if again:
                        await self.clients[name].publish(topic, word.encode())
            await self.settle(name)

    def leave(self) -> None:
        for client in self.clients.values():
            client.writer.close()


async def _enter(person: Visitor, side: Side, certificates: Path) -> Client | None:
    """Connected; None if it is not let in."""
    port = side.ports[person.listener]
    try:
        if person.listener.startswith("WS_"):
            client = await _over_websocket(port)
        else:
            context = None if person.certificate is None else _context(certificates, person.certificate)
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
            client = Client(reader, writer)
        fields: dict[str, Any] = {}
        if person.user is not None:
            fields = {"username": person.user, "password": person.password}
        client.version = wire.V311
        await client.send(
            wire.Connect(version=wire.V311, client_id=person.client, clean_start=True, keep_alive=0, **fields)
        )
        connack = await client.expect(wire.Connack)
    except (OSError, asyncio.IncompleteReadError):
        return None
    if connack.reason:
        client.writer.close()
        return None
    return client


def _context(certificates: Path, name: str) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(certificates / "ca.pem"))
    context.check_hostname = False
    if name:
        context.load_cert_chain(certificates / f"{name}.pem", certificates / f"{name}.key")
    return context


class _Frames:
    """What a `Client` writes, as frames."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._waiting = b""
        self.task: asyncio.Task[None]

    def write(self, data: bytes) -> None:
        self._waiting += data

    async def drain(self) -> None:
        data, self._waiting = self._waiting, b""
        await self._connection.send(data)

    def close(self) -> None:
        self.task.cancel()
        self._connection.transport.close()


async def _over_websocket(port: int) -> Client:
    connection = await websockets.connect(f"ws://127.0.0.1:{port}/mqtt", subprotocols=["mqtt"])  # type: ignore[list-item]
    reader, writer = asyncio.StreamReader(), _Frames(connection)

    async def feed() -> None:
        with contextlib.suppress(websockets.ConnectionClosed):
            async for frame in connection:
                reader.feed_data(frame if isinstance(frame, bytes) else frame.encode())
        reader.feed_eof()

    writer.task = asyncio.get_running_loop().create_task(feed())
    return Client(reader, writer)  # type: ignore[arg-type]
