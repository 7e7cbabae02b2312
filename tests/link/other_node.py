"""The other node of a link, as a small server that says what a test has it say, and an end that dials it.

The server is real as far as sockets and TLS go. The end has an ordinary session: what a link's session does beyond that
is tested where it lives.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, cast

from harness import PATIENCE, Client, free_port
from tidegate import wire
from tidegate.authentication.authentication import Authentication
from tidegate.cli import certificates
from tidegate.config import parse
from tidegate.link import Dialer
from tidegate.net import Tls, client_context
from tidegate.node.revocation import read_revocation
from tidegate.node.turns import Turns
from tidegate.policy.scopes import NodeLink
from tidegate.scope import Realm
from tidegate.scope.link_greeting import GREETING, Greeting, Peer, refusal_text
from tidegate.session import NEVER, Connection, Limits, Origin, Session, Site, Subject, Volatile

HERE, THERE = "here", "there"
TRUSTED = 'trust: {by: subject, accept: ["CN=there"]}'
ACCEPTED = wire.Connack(
    session_present=True,
    reason=0,
    properties=wire.Properties(user_properties=((GREETING, Greeting(link="far->main", node="f", domain="f").text),)),
)

Answer = Callable[[Client, wire.Connect], Awaitable[None]]


def authority(folder: Path, *names: str) -> None:
    """A CA, and certificates that are good for both sides of a connection."""
    certificates.make_ca(folder, "Test CA", days=2)
    for name in names:
        certificates.issue(folder, name, ["127.0.0.1"], client=True, days=2)


class Server:
    """Accepts connections, and has `script` say what they are answered."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.connects: list[wire.Connect] = []
        self.script: Answer = accept
        self.clients: asyncio.Queue[Client] = asyncio.Queue()
        """Those that have been answered."""
        self._all: list[Client] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = Client(reader, writer)
        self._all.append(client)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            packet = await client.expect(wire.Connect)
            self.connects.append(packet)
            await self.script(client, packet)
            self.clients.put_nowait(client)

    async def next(self) -> Client:
        async with asyncio.timeout(PATIENCE):
            return await self.clients.get()

    def close(self) -> None:
        for client in self._all:
            client.abort()


async def accept(client: Client, packet: wire.Connect) -> None:
    await client.send(ACCEPTED)


def refuse(reason: int, text: str = "") -> Answer:
    async def answer(client: Client, packet: wire.Connect) -> None:
        await client.send(
            wire.Connack(session_present=False, reason=reason, properties=wire.Properties(reason_string=text))
        )

    return answer


@contextlib.asynccontextmanager
async def serving(tls: Tls | None = None, port: int | None = None) -> AsyncIterator[Server]:
    port = port or free_port()
    server = Server(port)
    context = None if tls is None else tls.context()
    listening = await asyncio.start_server(server.serve, "127.0.0.1", port, ssl=context)
    try:
        yield server
    finally:
        listening.close()
        server.close()
        await listening.wait_closed()


def node_tls(folder: Path, name: str = THERE, *, ca: str = "ca.pem") -> Tls:
    """What a node at the other end listens with."""
    return Tls(cert=folder / f"{name}.pem", key=folder / f"{name}.key", client_ca=folder / ca, client_cert="required")


class End:
    """This node's end (scope.node_links.LinkEnd)."""

    def __init__(self, site: Site, realm: Realm, link: NodeLink) -> None:
        self.link = link
        self.scope = scope = next(iter(realm.scopes.values()))
        self.handshake, self.lifetime, self.subscribing = scope.handshake, self, scope.subscribing
        self.ended_with: int | None = None
        self.plans, self.path = scope.plans, scope.path
        self.objection = ""
        self.peer: Peer | None = None
        self.attached = 0
        subject = Subject(kind="client", client=link.name, user=None, scope=self.scope.name, node=realm.node)
        self.session = Session(
            site=site, decider=self.scope.path.egress, principal="link", client=link.name, subject=subject
        )
        self.session.expiry = NEVER
        self.scope.sessions["link", link.name] = self.session

    def greeting(self, peer: Peer | None = None) -> wire.Connect:
        properties = wire.Properties(session_expiry_interval=NEVER, user_properties=((GREETING, "1 a->b n d"),))
        return wire.Connect(
            version=wire.V5, client_id=self.link.name, clean_start=False, keep_alive=30, properties=properties
        )

    def disconnected(self, connection: Connection, packet: wire.Disconnect | None, reason: wire.Reason) -> None:
        self.ended_with = None if packet is None else packet.reason
        self.scope.lifetime.disconnected(connection, packet, reason)

    def refusal(self, packet: wire.Connack) -> str:
        return refusal_text(packet)

    def connected(self, connection: Connection, packet: wire.Connack, peer: Peer) -> str:
        if self.objection:
            return self.objection
        connection.version = wire.V5
        self.session.attach(connection, version=wire.V5, window=100, maximum=0, aliases=0)
        connection.accept(self.session, self.scope.gate.lane(self.session.inward, wire.V5))
        self.scope.connected += 1
        self.peer = peer
        self.attached += 1
        connection.finish_handshake()
        return ""


class Dialing:
    """A dialer, and what it is made of."""

    def __init__(self, dialer: Dialer, end: End) -> None:
        self.dialer = dialer
        self.end = end
        self.slept: list[float] = []
        self.bugs: list[BaseException] = []
        self.rested = asyncio.Event()
        """A pause has begun: what has gone before is over."""
        self.go_on = asyncio.Semaphore(0)

    async def sleep(self, seconds: float) -> None:
        """Pauses take no time, but last until the test says so."""
        self.slept.append(seconds)
        self.rested.set()
        await self.go_on.acquire()

    async def fails(self) -> str:
        """Why the next round does not end in a connection, or how that has ended."""
        async with asyncio.timeout(PATIENCE):
            await self.rested.wait()
        self.rested.clear()
        return self.dialer.error


@contextlib.asynccontextmanager
async def dialing(
    *via: str, folder: Path | None = None, name: str = HERE, peer: str | None = None, trust: str = "", **options: Any
) -> AsyncIterator[Dialing]:
    """A dialer that runs, with the certificate `name`."""
    loop = asyncio.get_running_loop()
    turns = Turns(loop)
    site = Site(
        store=Volatile(), origin=Origin("ab" * 8, 1), limits=Limits(), on_open=turns.opened, random_id=lambda: "id"
    )
    turns.drive(site)
    site.open()
    files = "" if folder is None else f", cert: {folder}/{name}.pem, key: {folder}/{name}.key, ca: {folder}/ca.pem"
    text = f"version: 1\nnode: {{name: n{files}}}\nlisteners: [{{url: 'mqtt://127.0.0.1:1'}}]\npolicies: open\n{trust}"
    config = parse(text, "test.yaml")
    authentication = Authentication(config, cast(Any, None), revocation=read_revocation(config))
    realm = Realm(node="n", site=site, authenticator=authentication, rules=config.built.rules)
    link = NodeLink(near="main", far="far", out=None, into=None, via=via, peer=peer)
    end = End(site, realm, link)

    def context() -> ssl.SSLContext:
        assert folder is not None
        return client_context(cert=folder / f"{name}.pem", key=folder / f"{name}.key", ca=folder / "ca.pem")

    dialer = Dialer(
        cast(Any, end),
        site=site,
        loop=loop,
        context=context,
        peer=authentication.peer,
        on_bug=lambda connection, error: running.bugs.append(error),
        max_packet=2**20,
        sleep=lambda seconds: running.sleep(seconds),  # noqa: PLW0108 - it is made below
        **options,
    )
    running = Dialing(dialer, end)
    dialer.start()
    try:
        yield running
    finally:
        await dialer.close()
        turns.stop()
        site.close()
    assert not running.bugs, running.bugs


@contextlib.asynccontextmanager
async def linked(
    folder: Path, *, tls: Tls | None = None, script: Answer = accept, trust: str = TRUSTED, **options: Any
) -> AsyncIterator[tuple[Server, Dialing]]:
    """A server, and a dialer of this node that connects to it."""
    async with serving(tls or node_tls(folder)) as server:
        server.script = script
        async with dialing(f"mqtts://127.0.0.1:{server.port}", folder=folder, trust=trust, **options) as running:
            yield server, running
