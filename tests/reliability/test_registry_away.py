"""PostgreSQL goes away under load: nothing acknowledged is lost or done twice, nobody waits, and the nodes say so."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

import httpx
import pytest

import postgres
from processes import STARTING, TIDEGATE
from reliability.nodes import OPEN, Eyes, Node, eyes, hanging, pair, ready, until

PATIENCE = 20.0  # seconds until everything is well again: connections have to be found broken first
RESTARTS = (signal.SIGINT, signal.SIGQUIT)  # in order, and a crash


@pytest.fixture
def server() -> Iterator[postgres.Server]:
    with postgres.running() as server:
        yield server


class Load(Protocol):
    """Something that goes on until it is told to stop."""

    async def run(self, stop: asyncio.Event) -> None: ...


class Changes:
    """Makes one policy after the other on one node, as somebody does who wants each of them made once."""

    def __init__(self, api: httpx.AsyncClient, name: str) -> None:
        self.api = api
        self.name = name
        self.made: list[str] = []
        self.answers: Counter[int] = Counter()

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            await self.one(f"{self.name}{len(self.made)}")
            await asyncio.sleep(0.02)

    async def one(self, id: str) -> None:
        path, doubt = f"/policies/{id}", False
        while True:
            answer = await self.api.put(path, json={**OPEN, "topic": f"t/{id}"})
            self.answers[answer.status_code] += 1
            assert answer.status_code in (201, 428, 503, 504), answer.text
            if answer.status_code == 201 or (doubt and answer.status_code == 428):  # 428: it is there
                self.made.append(id)
                return
            assert answer.status_code != 428, answer.text
            doubt = doubt or answer.status_code == 504
            if answer.status_code == 503:
                assert int(answer.headers["Retry-After"]) >= 1
            await asyncio.sleep(0.1)


class Flow:
    """Messages through a node, one after the other, and how long each took."""

    def __init__(self, seen: Eyes) -> None:
        self.seen = seen
        self.times: list[float] = []

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            self.times.append(await self.seen.trip())
            await asyncio.sleep(0.01)  # the processors are for others, too

    def late(self, part: float) -> float:
        return sorted(self.times)[int(len(self.times) * part)]

    def told(self) -> str:
        middle, late, last = (1000 * each for each in (self.late(0.5), self.late(0.99), max(self.times)))
        return f"{len(self.times)} messages, p50 {middle:.1f} ms, p99 {late:.1f} ms, longest {last:.1f} ms"


class Honesty:
    """What a node says of its registry, over HTTP and to `tidegate status`, asked all the time."""

    def __init__(self, node: Node, api: httpx.AsyncClient) -> None:
        self.node = node
        self.api = api
        self.said: list[bool] = []

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            now = await ready(self.api)
            if self.said[-1:] != [now]:
                self.said.append(now)
            await asyncio.sleep(0.05)

    async def status(self) -> dict[str, Any]:
        command = [TIDEGATE, "status", "--json", "-c", str(self.node.process.file.path)]
        said = await asyncio.to_thread(subprocess.run, command, capture_output=True, check=True)
        found: dict[str, Any] = json.loads(said.stdout)["registry"]
        return found


def start(tasks: asyncio.TaskGroup, stop: asyncio.Event, *loads: Load) -> None:
    for each in loads:
        tasks.create_task(each.run(stop))


async def test_restarted_under_load(server: postgres.Server, tmp_path: Path) -> None:
    with pair(server, tmp_path) as two:
        a, b = two
        async with a.client() as here, b.client() as there, eyes(a) as one, eyes(b) as other:
            changes = [Changes(here, "a"), Changes(there, "b")]
            flows = [Flow(one), Flow(other)]
            honest = [Honesty(a, here), Honesty(b, there)]
            stop = asyncio.Event()

            async def away() -> bool:
                return all(each.said[-1:] == [False] for each in honest)

            async def back() -> bool:
                return all(each.said[-1:] == [True] for each in honest)

            async with asyncio.TaskGroup() as tasks:
                start(tasks, stop, *changes, *flows, *honest)
                await until(back)
                for how in RESTARTS:
                    await made(changes, 5)
                    await asyncio.to_thread(server.stop, how)
                    await until(away)
                    await asyncio.to_thread(server.start)
                    await until(back, PATIENCE)
                    await made(changes, 5)
                # away for longer than anybody waits
                await asyncio.to_thread(server.stop)
                before = [each.answers[503] + each.answers[504] for each in changes]
                sent = [len(each.times) for each in flows]
                late = Node(tmp_path / "late", server.address(schema="public"), "late")
                await until(away)
                said = await honest[0].status()
                assert said["reachable"] is False
                assert "Remedy: start the server" in said["trouble"]

                async def refused() -> bool:
                    after = [each.answers[503] + each.answers[504] for each in changes]
                    return all(now > then for now, then in zip(after, before, strict=True))

                await until(refused, PATIENCE)
                assert all(len(each.times) > then + 10 for each, then in zip(flows, sent, strict=True))
                await asyncio.to_thread(does_not_start, late)
                await asyncio.to_thread(server.start)
                await until(back, PATIENCE)
                await made(changes, 5)
                stop.set()
            print("", *(each.told() for each in flows), *(dict(each.answers) for each in changes), sep="\n")
            for each in honest:
                assert each.said == [True, False] * (len(RESTARTS) + 1) + [True]
            await alike(two, changes)
            said = await honest[1].status()
            assert (said["reachable"], said["in_force"], said["trouble"]) == (True, True, None)


def does_not_start(node: Node) -> None:
    """Without what was administered it could be open where it should be closed."""
    try:
        assert node.process.popen.wait(STARTING) == 1
        [said] = node.process.events("cannot start")
        assert "cannot be reached" in said["reason"]
        assert "Remedy: start the server, or mend the network or the address in the URL" in said["reason"]
        assert quote(postgres.PASSWORD, safe="") not in node.process.stderr.read_text()
        assert not node.process.events("listening")
    finally:
        node.process.kill()


async def made(changes: list[Changes], more: int) -> None:
    goals = [len(each.made) + more for each in changes]

    async def enough() -> bool:
        return all(len(each.made) >= goal for each, goal in zip(changes, goals, strict=True))

    await until(enough, PATIENCE)


async def alike(two: tuple[Node, Node], changes: list[Changes]) -> None:
    """Both have everything that was acknowledged, each of it made once."""
    wanted = {id for each in changes for id in each.made}

    async def same() -> bool:
        states = [await each.status() for each in two]
        return len({(each["registry"]["sequence"], each["rules"].partition("-")[2]) for each in states}) == 1

    await until(same, PATIENCE)
    for node in two:
        found = {each["id"] for each in (await node.ask("admin_list", kind="policy"))["documents"]}
        assert found == wanted | {"filed"}
    for id in wanted:
        assert len((await two[0].ask("admin_history", kind="policy", id=id))["entries"]) == 1


async def test_a_server_that_hangs(server: postgres.Server, tmp_path: Path) -> None:
    """It is there, and answers nothing: nobody who sends messages waits for it, and it is noticed."""
    with pair(server, tmp_path) as two:
        a, b = two
        async with a.client() as here, b.client() as there, eyes(a) as one, eyes(b) as other:
            changes = [Changes(here, "a"), Changes(there, "b")]
            honest = [Honesty(a, here), Honesty(b, there)]
            well = [Flow(one), Flow(other)]
            stop = asyncio.Event()
            async with asyncio.TaskGroup() as tasks:
                start(tasks, stop, *changes, *well)
                await made(changes, 5)
                stop.set()
            hung, stop = [Flow(one), Flow(other)], asyncio.Event()
            begin = time.monotonic()
            async with asyncio.TaskGroup() as tasks:
                with hanging(server):
                    start(tasks, stop, *changes, *hung, *honest)

                    async def noticed() -> bool:
                        return all(each.said[-1:] == [False] for each in honest)

                    print(f"\nnoticed after {await until(noticed, PATIENCE):.1f} s")
                    # what needs no registry: looking, and the file
                    assert (await here.get("/policies/filed")).status_code == 200
                    assert (await there.get("/policies")).status_code == 200
                    for each in changes:
                        await until(partial(refused, each), PATIENCE)
                    print(f"refused after {time.monotonic() - begin:.1f} s")
                    await a.ask("reload")
                await made(changes, 5)
                stop.set()
            for name, flows in (("well", well), ("hanging", hung)):
                for flow in flows:
                    print(f"{name}: {flow.told()}")
                    assert flow.late(0.99) < 0.25
            await until(lambda: ready(here), PATIENCE)
            await until(lambda: ready(there), PATIENCE)
            await alike(two, changes)
        # and a node is stopped in time
        with hanging(server):
            begin = time.monotonic()
            assert await asyncio.to_thread(b.process.stop) == 0
            print(f"stopped after {time.monotonic() - begin:.1f} s")


async def refused(changes: Changes) -> bool:
    return bool(changes.answers[503] + changes.answers[504])
