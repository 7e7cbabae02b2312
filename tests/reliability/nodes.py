"""Two nodes on one PostgreSQL server: real processes, asked over HTTP, watched through real MQTT clients."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import aiomqtt
import httpx

import postgres
from harness import PATIENCE
from processes import STARTING, File, Process
from tidegate.net.control_socket import ask

FILE = """
version: 1
node: {name: NAME, domain: sea, data: data}
listeners: [{url: "mqtt://127.0.0.1:PORT", anonymous: true}]
http: {url: "http://127.0.0.1:HTTP_PORT", rate: 1000, address_rate: 2000}
store: "STORE"
log: {format: json}
sys: {interval: 0s}
subscribe: hold
authentication: {attempts: 10000}
directory:
  users:
    mary: {password: "plain:secret"}
policies:
  - {id: filed, subject: "*", topic: "ping/#", action: [read, write]}
"""
OPEN = {"subject": "*", "topic": "t/#", "action": ["read", "write"]}
WELL = 5.0  # seconds for what should take less than one, on whatever machine


class Node:
    """One of them. `token` is that of an administrator."""

    def __init__(self, folder: Path, store: str, name: str, text: str = FILE) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.store = store
        self.process = Process(File(folder, text.replace("NAME", name).replace("STORE", store)))
        self.token = ""

    @property
    def port(self) -> int:
        return self.process.ports["PORT"]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.process.ports['HTTP_PORT']}"

    def client(self, token: str | None = None, **options: Any) -> httpx.AsyncClient:
        """Over HTTP, with a token."""
        return httpx.AsyncClient(
            base_url=self.url,
            headers={"Authorization": f"Bearer {self.token if token is None else token}"},
            timeout=STARTING,
            **options,
        )

    def mqtt(self, **options: Any) -> aiomqtt.Client:
        return aiomqtt.Client(
            "127.0.0.1", self.port, protocol=aiomqtt.ProtocolVersion.V5, timeout=PATIENCE, clean_start=True, **options
        )

    async def ask(self, command: str, **arguments: Any) -> Any:
        """As the HTTP process does."""
        return await asyncio.to_thread(ask, self.process.control, command, timeout=30.0, **arguments)

    async def status(self) -> dict[str, Any]:
        found: dict[str, Any] = await self.ask("status")
        return found

    async def digest(self) -> str:
        """Of the rules in force."""
        return str((await self.status())["rules"]).partition("-")[2]


@contextlib.contextmanager
def running(*made: Node, allowed: tuple[str, ...] = ()) -> Iterator[None]:
    """Until the block ends; then nothing was logged that should not have been."""
    try:
        for each in made:
            each.process.wait_until_it_accepts()
        for each in made:
            httpx.get(f"{each.url}/health/live", timeout=STARTING)  # waits for the HTTP process to start
        yield
        codes = [each.process.stop() for each in made]
        assert codes == [0] * len(made), [each.process.stderr.read_text() for each in made]
        for each in made:
            each.process.check(*allowed)
    finally:
        for each in made:
            each.process.kill()


@contextlib.contextmanager
def pair(
    server: postgres.Server, folder: Path, *, text: str = FILE, other: str = FILE, allowed: tuple[str, ...] = ()
) -> Iterator[tuple[Node, Node]]:
    """Two nodes, started at once on an empty database; a token of one of them counts on both."""
    store = server.address(schema=server.schema())
    a, b = Node(folder / "a", store, "a", text), Node(folder / "b", store, "b", other)
    with running(a, b, allowed=allowed):
        a.token = b.token = a.process.admin_token()
        yield a, b


class Eyes:
    """A publisher and a subscriber of one node, who see what it decides."""

    def __init__(self, publisher: aiomqtt.Client, subscriber: aiomqtt.Client) -> None:
        self._publisher = publisher
        self._subscriber = subscriber
        self._number = 0

    async def passes(self, topic: str) -> bool:
        """Whether a message arrives that is published now. The mark goes the same way behind it, and always does."""
        self._number += 1
        for to in (topic, "ping/mark"):
            await self._publisher.publish(to, str(self._number), qos=1)
        seen = False
        async with asyncio.timeout(PATIENCE):
            async for message in self._subscriber.messages:
                assert isinstance(message.payload, bytes)
                if int(message.payload) == self._number:
                    if str(message.topic) == "ping/mark":
                        return seen
                    seen = True
        raise AssertionError("the client was disconnected")

    async def trip(self) -> float:
        """Seconds that a message takes from one to the other."""
        begin = time.perf_counter()
        await self.passes("ping/other")
        return time.perf_counter() - begin


@contextlib.asynccontextmanager
async def eyes(node: Node, *topics: str, **publisher: Any) -> AsyncIterator[Eyes]:
    async with node.mqtt(**publisher) as one, node.mqtt() as other:
        for topic in ("ping/#", *topics):
            await other.subscribe(topic, qos=1)
        yield Eyes(one, other)


async def until(condition: Callable[[], Awaitable[object]], seconds: float = WELL) -> float:
    """Waits for something that nobody announces; how many seconds it took."""
    begin = time.perf_counter()
    async with asyncio.timeout(seconds):
        while not await condition():
            await asyncio.sleep(0.005)
    return time.perf_counter() - begin


async def ready(api: httpx.AsyncClient) -> bool:
    answer = await api.get("/health/ready")
    assert answer.json()["checks"]["registry"] is (answer.status_code == 200), answer.text
    return answer.status_code == 200


@contextlib.contextmanager
def hanging(server: postgres.Server) -> Iterator[None]:
    """The server is there and does nothing: all its processes are stopped for as long as the block takes."""
    assert server._process is not None
    family = [server._process.pid, *_children(server._process.pid)]
    try:
        for pid in family:
            os.kill(pid, signal.SIGSTOP)
        yield
    finally:
        for pid in reversed(family):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def _children(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has just ended
            if int(stat.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(stat.parent.name))
    return found
