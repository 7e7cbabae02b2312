"""The state of monitors on disk: with the commit of what changed it, within 50 ms otherwise, and after `kill -9`.

`complex_em` makes it visible: its state is the number of events it has seen.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import sqlite3
import time
from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import cbor2
import pytest

from harness import Client
from processes import STARTING, File, Process, Served, from_file, on_uvloop, until
from sockets.acts import Section, come, inbox, say, setting
from sockets.watchers import entering, gated, states, watching
from tidegate import wire
from tidegate.net.control_socket import ask

COUNTING = {"use": "complex_em"}
ROOMY: Section = {"log": {"format": "json"}, "limits": {"queue": {"messages": 1_000_000, "bytes": "1GiB"}}}
MARY = "user:mary client:mary->scope:main"
ALICE = "user:alice scope:main->client:alice"
_copies = count()


@contextlib.contextmanager
def slow_disk(node: Served) -> Iterator[None]:
    """Commits take long enough for whatever does not wait for them to come first."""
    store: Any = node.node.site.store
    before, store._interval = store._interval, 0.1
    yield
    store._interval = before


def kept(folder: Path) -> dict[str, Any]:
    """What the disk has at this moment, by monitor and whose it is: what a crash would leave."""
    there = folder / f"copy-{next(_copies)}"
    there.mkdir()
    for file in (folder / "data").glob("tidegate.db*"):
        shutil.copy(file, there)
    found = sqlite3.connect(there / "tidegate.db")
    try:
        rows = found.execute("SELECT key, value FROM record WHERE room = 'monitor/main'").fetchall()
    finally:
        found.close()
    return {key.replace("\n", " of "): cbor2.loads(value[1:])["state"] for key, value in rows}


def _is_kept(folder: Path, whose: str, state: Any) -> bool:
    return bool(kept(folder).get(whose) == state)


def _has(found: list[float], count: int) -> bool:
    return len(found) == count


# -- with the commit ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("shown", ["whole", "in part"])
@pytest.mark.parametrize("side", ["in", "out"])
@on_uvloop
async def test_it_is_on_disk_when_the_message_is_acknowledged(tmp_path: Path, side: str, shown: str, qos: int) -> None:
    """*A monitor's state is committed with the QoS ≥ 1 message that changed it*, and that is acknowledged after it:
    by PUBACK and PUBCOMP."""
    views = [{"id": "v", "topic": "t", "for": "*", "keep": ["/a"] if shown == "in part" else "all"}]
    text = setting(data=True, views=views, monitors=[watching(side, "m", **COUNTING)])
    async with from_file(tmp_path, text) as node:
        mary, alice = await come(node, "mary"), await come(node, "alice")
        await alice.subscribe("t", qos=0)  # nothing of it is kept for her
        whose = f"m of {MARY if side == 'in' else ALICE}"
        with slow_disk(node):
            for number in (1, 2):
                await mary.send(wire.Publish(topic="t", payload=b'{"a":1,"b":2}', qos=qos, packet_id=number))
                if qos == 1:
                    await mary.expect(wire.Puback)
                else:
                    await mary.expect(wire.Pubrec)
                    if side == "in":
                        assert kept(tmp_path).get(whose) == (number - 1 or None)  # monitors see it at PUBREL
                    await mary.send(wire.Pubrel(packet_id=number))
                    await mary.expect(wire.Pubcomp)
                assert kept(tmp_path).get(whose) == number


@on_uvloop
async def test_what_is_overheard_is_on_disk_when_it_is_acknowledged(tmp_path: Path) -> None:
    """Also on the link of a client that has subscribed to nothing."""
    views = [{"id": "v", "topic": "t", "for": "*", "keep": ["/a"]}]
    text = setting(data=True, views=views, monitors=[{"id": "m", "link": "main->client:alice", **COUNTING}])
    async with from_file(tmp_path, text) as node:
        mary, _ = await come(node, "mary"), await come(node, "alice")
        with slow_disk(node):
            for number in (1, 2, 3):
                await say(mary, "t", b'{"a":1,"b":2}', qos=1 + number % 2)
                assert kept(tmp_path).get(f"m of {ALICE}") == number


@pytest.mark.parametrize("side", ["in", "out"])
@on_uvloop
async def test_of_qos_0_it_is_on_disk_soon(tmp_path: Path, side: str) -> None:
    """*otherwise within 50 ms*: it is noted after 20, and nothing but the commit comes after that."""
    text = setting(data=True, monitors=[watching(side, "m", **COUNTING)])
    async with from_file(tmp_path, text) as node:
        mary, alice = await come(node, "mary"), await come(node, "alice")
        await alice.subscribe("t")
        whose = f"m of {MARY if side == 'in' else ALICE}"
        links = 1 if side == "in" else 2  # mary's hears of it too
        store = node.node.site.store
        noted: list[float] = []
        keep = store.keep

        def noting(room: str, key: str, value: bytes | None) -> None:
            noted.append(time.monotonic())
            keep(room, key, value)

        store.keep = noting  # type: ignore[method-assign]
        waits = []
        for number in range(1, 8):
            begun = time.monotonic()
            await say(mary, "t")
            await until(partial(_has, noted, number * links))
            waits.append(noted[-1] - begun)
            await until(partial(_is_kept, tmp_path, whose, number))
        assert min(waits) < 0.04  # a busy machine may be late, but not each time
        assert sorted(waits)[3] < 0.05


@on_uvloop
async def test_back_at_the_start_nothing_is_kept(tmp_path: Path) -> None:
    """Only what differs from the start is kept, and what monitors that are gone knew is not."""
    before = [entering("m", **gated("t", "key", "lock")), entering("n", **COUNTING)]
    text = setting(data=True, monitors=before)
    async with from_file(tmp_path, text) as node:
        mary = await come(node, "mary")
        await say(mary, "key", qos=1)
        assert kept(tmp_path) == {f"m of {MARY}": "open", f"n of {MARY}": 1}
        await say(mary, "lock", qos=1)
        assert kept(tmp_path) == {f"n of {MARY}": 2}
        await node.reload(setting(data=True, monitors=before[:1]))
        await until(lambda: kept(tmp_path) == {})


@on_uvloop
async def test_a_restart_keeps_it_and_its_timer(tmp_path: Path) -> None:
    """*State survives a restart*: what is due comes when the node is back, with the owner's preference."""
    quiet = entering("quiet", silence="400ms", on="beat", emit={"topic": "alarm", "payload": {"a": 1, "b": 2}})
    preferences = [{"id": "mine", "user": "mary", "topic": "beat", "when": "s.user == 'alice'", "keep": ["/a"]}]
    text = setting(data=True, monitors=[entering("n", **COUNTING), quiet], preferences=preferences)
    async with from_file(tmp_path, text) as node:
        await say(await come(node, "mary"), "beat", qos=1)
    async with from_file(tmp_path, text) as node:
        assert states(node, "n") == {MARY: 1}
        alice, bob = await come(node, "alice"), await come(node, "bob")
        for end in (alice, bob):
            await end.subscribe("alarm")
        assert (await alice.message()).payload == b'{"a":1}'
        assert await inbox(bob) == []


@on_uvloop
async def test_definitions_that_changed_over_a_restart(tmp_path: Path) -> None:
    """*kept if the new definition accepts it, else from the start*, also when the node was stopped in between."""

    def text(machine: Section) -> str:
        return setting(data=True, monitors=[entering("m", **machine)])

    async with from_file(tmp_path, text(gated("t", "key", "lock"))) as node:
        await say(await come(node, "mary"), "key", qos=1)
    async with from_file(tmp_path, text(gated("t", "other", "lock"))) as node:
        assert states(node, "m") == {MARY: "open"}
    async with from_file(tmp_path, text({"use": "hsup_em"})) as node:
        assert states(node, "m") == {}, "nothing is remembered that it does not know"
    async with from_file(tmp_path, setting(data=True)):
        await until(lambda: kept(tmp_path) == {})


# -- killed ------------------------------------------------------------------------------------------------------


def seed() -> int:
    found = int(os.environ.get("TIDEGATE_SEED", time.time_ns() % 2**32))
    print(f"TIDEGATE_SEED={found}")
    return found


def counted(node: Process, id: str, whose: str) -> int:
    rows = {row["of"]: row["state"] for row in ask(node.control, "monitor_state", id=id)["states"]}
    found = rows.get(whose, 0)
    assert isinstance(found, int)
    return found


async def arrive(port: int, name: str, *, stays: bool = False) -> Client:
    """A user connects to a node in a process of its own."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    end = Client(reader, writer)
    properties = wire.Properties(session_expiry_interval=1000) if stays else wire.NONE
    await end.send(
        wire.Connect(
            version=wire.V5,
            client_id=name,
            clean_start=not stays,
            keep_alive=0,
            username=name,
            password=b"pw",
            properties=properties,
        )
    )
    assert (await end.expect(wire.Connack)).reason == 0
    return end


class Publisher:
    """Publishes as fast as a window allows until the node dies."""

    def __init__(self, end: Client, qos: int) -> None:
        self.end = end
        self.qos = qos
        self.sent = 0
        self.acknowledged = 0  # by PUBACK or PUBREC: its monitor has decided
        self.completed = 0  # by PUBACK or PUBCOMP: it has been handed on

    async def run(self) -> None:
        try:
            while True:
                await self._some(20)
        except (ConnectionError, asyncio.IncompleteReadError):
            self.end.writer.close()

    async def _some(self, window: int) -> None:
        self.sent += window
        for pid in range(1, window + 1):
            await self.end.send(wire.Publish(topic="t", payload=b"x", qos=self.qos, packet_id=pid))
        for _ in range(window * self.qos):
            match packet := await self.end.receive():
                case wire.Puback():
                    self.acknowledged += 1
                    self.completed += 1
                case wire.Pubrec():
                    self.acknowledged += 1
                    await self.end.send(wire.Pubrel(packet_id=packet.packet_id))
                case _:
                    assert isinstance(packet, wire.Pubcomp)
                    self.completed += 1


def restarted(file: File) -> Process:
    node = Process(file)
    node.wait_for("ready", seconds=STARTING)
    return node


@pytest.fixture
def crashing(tmp_path: Path) -> Iterator[list[Process]]:
    """Processes that a test starts and kills; what is left of them is killed in the end."""
    running: list[Process] = []
    yield running
    for one in running:
        one.kill()


@pytest.mark.timeout(180)
@pytest.mark.parametrize("qos", [1, 2])
async def test_killed_at_any_moment(tmp_path: Path, crashing: list[Process], qos: int) -> None:
    """Of what was acknowledged nothing is forgotten, on the way in and where it was overheard; and what QoS 1 put into
    a queue is what was counted: they are one commit."""
    rng = random.Random(seed())
    carols = "user:carol scope:main->client:carol"
    monitors = [entering("in", **COUNTING), {"id": "out", "link": "main->client:carol", **COUNTING}]
    file = File(tmp_path, setting(data=True, monitors=monitors, **ROOMY))
    crashing.append(restarted(file))
    port = file.ports["PORT"]
    alice = await arrive(port, "alice", stays=True)
    await alice.subscribe("t", "mark", qos=1)
    await alice.disconnect()
    inside = outside = 0
    for _ in range(3):
        carol = await arrive(port, "carol")  # hears of everything, and has subscribed to nothing
        mary = Publisher(await arrive(port, "mary"), qos)
        publishing = asyncio.create_task(mary.run())
        await asyncio.sleep(rng.uniform(0.05, 0.4))  # the random moment, not a wait for anything
        crashing[-1].kill()
        await publishing
        carol.writer.close()
        crashing.append(await asyncio.to_thread(restarted, file))
        seen = counted(crashing[-1], "in", MARY) - inside
        heard = counted(crashing[-1], "out", carols) - outside
        assert (mary.acknowledged if qos == 1 else mary.completed) <= seen <= mary.sent
        assert mary.completed <= heard <= seen
        alice = await arrive(port, "alice", stays=True)
        bob = await arrive(port, "bob")
        await say(bob, "mark", qos=1)
        waited = 0
        while (await alice.message()).topic != "mark":
            waited += 1
        assert mary.completed <= waited <= seen
        if qos == 1:
            assert waited == seen
        await alice.disconnect()
        await bob.disconnect()
        inside, outside = inside + seen, outside + heard
    assert inside > 0


@pytest.mark.timeout(120)
async def test_of_qos_0_what_is_on_disk_survives_a_crash(tmp_path: Path, crashing: list[Process]) -> None:
    """*otherwise within 50 ms*, without another message: then the node is killed, and comes back where it was."""
    file = File(tmp_path, setting(data=True, monitors=[entering("in", **COUNTING)], **ROOMY))
    crashing.append(restarted(file))
    total = 0
    for number in (1, 40):
        mary = await arrive(file.ports["PORT"], "mary")
        for _ in range(number):
            await mary.publish("t")
        await mary.silent()
        total += number
        assert counted(crashing[-1], "in", MARY) == total
        async with asyncio.timeout(STARTING):
            while total not in kept(tmp_path).values():  # within 50 ms, if the machine has time for it
                await asyncio.sleep(0.01)
        crashing[-1].kill()
        mary.writer.close()
        crashing.append(await asyncio.to_thread(restarted, file))
        assert counted(crashing[-1], "in", MARY) == total
