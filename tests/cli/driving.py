"""Runs the command, and brokers: a Mosquitto, and one that says whatever a test wants."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from harness import PATIENCE, free_port

TIDEGATE = str(Path(sys.executable).with_name("tidegate"))
# Control sockets of nodes without a data folder; not among those of the user who runs the tests.
RUNTIME = tempfile.mkdtemp(prefix="tidegate-")
atexit.register(shutil.rmtree, RUNTIME)
ENVIRONMENT = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1", "XDG_RUNTIME_DIR": RUNTIME}

Tidegate = Callable[..., subprocess.CompletedProcess[str]]


@contextlib.contextmanager
def running(command: list[str], port: int, log: Path) -> Iterator[None]:
    """A server that answers on a port."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=ENVIRONMENT)
    try:
        deadline = time.monotonic() + PATIENCE
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.02)
        yield
    finally:
        process.terminate()
        process.wait(PATIENCE)


def mosquitto_program() -> str:
    """Where Mosquitto is; without it the test is skipped, and fails where nothing may be skipped."""
    found = shutil.which("mosquitto", path=f"{os.environ['PATH']}:/usr/sbin")
    if found is None:
        reason = "mosquitto is not installed"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return found


@contextlib.asynccontextmanager
async def command(*arguments: object, **variables: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """The command while it runs."""
    process = await asyncio.create_subprocess_exec(
        TIDEGATE,
        *map(str, arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**ENVIRONMENT, **variables},
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@contextlib.asynccontextmanager
async def subscriber(port: int, *arguments: object) -> AsyncIterator[asyncio.subprocess.Process]:
    """`tidegate sub -v` that is subscribed."""
    async with command("sub", "-v", "-p", port, *arguments) as process:
        assert process.stderr is not None
        async with asyncio.timeout(PATIENCE):
            line = await process.stderr.readline()
        assert line.startswith(b"subscribed to "), line
        yield process


@contextlib.asynccontextmanager
async def scripted(*answers: bytes) -> AsyncIterator[tuple[int, list[bytes]]]:
    """A broker that answers each packet with the next of `answers` (empty: nothing), then closes.

    Yields its port and the packets it has received.
    """
    received: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            for answer in answers:
                received.append(await packet(reader))
                writer.write(answer)
                await writer.drain()
        except asyncio.IncompleteReadError:
            pass  # the client had heard enough
        finally:
            writer.close()

    port = free_port()
    server = await asyncio.start_server(serve, "127.0.0.1", port)
    async with server:
        yield port, received


async def packet(reader: asyncio.StreamReader) -> bytes:
    """One whole MQTT packet; lengths below 16384 are enough here."""
    head = await reader.readexactly(2)
    length = head[1] & 0x7F
    if head[1] & 0x80:
        more = await reader.readexactly(1)
        length |= more[0] << 7
        head += more
    return head + await reader.readexactly(length)
