"""Hostile bytes leave the node up, its memory flat, and nobody else disturbed.

Mutated frames go through real sockets to a node process: some before CONNECT, most after it, many on one connection
until the node closes it. A witness publishes and receives throughout.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from harness import Client
from processes import Process, process
from tidegate import wire
from wire_cases import mutations

CONFIG = """
version: 1
node: {name: fuzz, data: DATA}
listeners: [{url: "mqtt://127.0.0.1:PORT", anonymous: true, max_packet: 64KiB, connect_timeout: 5s}]
policies: open
limits: {session_expiry: 1s, queue: {messages: 100, bytes: 1MiB}, retained: 1000}
log: {format: json}
"""
FRAMES = 30  # sent on one connection
AT_ONCE = 20
MiB = 2**20
REPORT = Path(__file__).parents[2] / "docs" / "reliability" / "fuzz.md"


async def attack(port: int, version: int, frames: list[bytes], handshake: bool) -> None:
    """Sends them all and reads whatever comes until the node closes or has answered."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return
    try:
        if handshake:
            connect = wire.Connect(version=version, client_id="", clean_start=True, keep_alive=0)
            writer.write(wire.encode(connect, version))
        writer.write(b"".join(frames))
        writer.write_eof()
        async with asyncio.timeout(10):
            while await reader.read(65536):
                pass
    except (OSError, TimeoutError):
        pass
    finally:
        writer.transport.abort()


async def storm(node: Process, seed: int, count: int) -> list[int]:
    """All frames of this seed; the node's memory along the way."""
    port = node.ports["PORT"]
    frames = mutations(seed, count)
    memory: list[int] = []
    witness = await _witness(port)
    turn = 0
    for batch in _batches(frames, FRAMES * AT_ONCE):
        attacks = []
        for start in range(0, len(batch), FRAMES):
            piece = batch[start : start + FRAMES]
            turn += 1
            attacks.append(attack(port, piece[0][0], [frame for _, frame in piece], handshake=turn % 10 > 0))
        await asyncio.gather(*attacks)
        await witness.publish("witness", str(turn).encode())
        assert (await witness.message()).payload == str(turn).encode()
        memory.append(node.memory())
    await witness.disconnect()
    return memory


async def _witness(port: int) -> Client:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    client = Client(reader, writer)
    await client.send(wire.Connect(version=wire.V5, client_id="witness", clean_start=True, keep_alive=0))
    await client.expect(wire.Connack)
    await client.subscribe("witness", qos=0)
    return client


def _batches(frames: Iterator[tuple[int, bytes]], size: int) -> Iterator[list[tuple[int, bytes]]]:
    while batch := list(islice(frames, size)):
        yield batch


def _seed() -> int:
    seed = int(os.environ.get("TIDEGATE_SEED", time.time_ns() % 2**32))
    print(f"TIDEGATE_SEED={seed}")
    return seed


async def test_a_short_storm(tmp_path: Path) -> None:
    with process(tmp_path, CONFIG.replace("DATA", str(tmp_path / "data"))) as node:
        node.ask("audit_written")  # what the journal needs is loaded with its first row
        memory = await storm(node, _seed(), 20_000)
        assert node.ask("status")["bugs"] == 0
        assert memory[-1] - memory[len(memory) // 2] < 16 * MiB


@pytest.mark.soak
async def test_a_million_frames(tmp_path: Path) -> None:
    seed = _seed()
    with process(tmp_path, CONFIG.replace("DATA", str(tmp_path / "data"))) as node:
        node.ask("audit_written")
        memory = await storm(node, seed, 1_000_000)
        status = node.ask("status")
    quarter = len(memory) // 4
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(
        f"""# A million mutated frames

Written by `make soak` (`tests/reliability/test_fuzz.py`). Frames of every packet type of both versions, damaged at
random, through real sockets to a node process, {FRAMES} to a connection, one connection in ten without CONNECT; a
witness publishes and receives all the while.

| | |
|---|---:|
| seed | {seed} |
| frames | 1,000,000 |
| connections accepted | {status["numbers"]["connections/accepted"]} |
| connections refused | {status["numbers"]["connections/refused"]} |
| **exceptions other than `MalformedPacket` and `ProtocolError`** | **{status["bugs"]}** |
| memory after a quarter | {memory[quarter] / MiB:.1f} MiB |
| memory at the end | {memory[-1] / MiB:.1f} MiB |
"""
    )
    assert status["bugs"] == 0
    assert memory[-1] - memory[quarter] < 16 * MiB
