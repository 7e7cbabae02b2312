"""Nodes as they really run: from a file, on uvloop, and where it matters as a process of their own.

`process(...)` starts `tidegate run -c FILE`, waits until it accepts, and stops it with SIGTERM. It then insists that
the exit code is 0 and that nothing was logged that should not have been: no error, no bug, no traceback.
`from_file(...)` runs a node on the test's own loop with a file that it can reload; `on_uvloop` gives a test the loop
that real nodes have.

In configuration texts `PORT` and `ANYTHING_PORT` stand for free ports, the same word for the same port.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import uvloop

from harness import PATIENCE, Client, Live, free_port
from tidegate.config import load
from tidegate.net.control_socket import ask
from tidegate.node.node import Node

TIDEGATE = str(Path(sys.executable).with_name("tidegate"))
STARTING = 30.0  # seconds: importing everything on a busy machine
STOPPING = 15.0
ENDING = 120.0  # seconds that a command has to end what it has started


def needs(*programs: str) -> None:
    """Skips the test where a program is missing; in continuous integration nothing may be missing."""
    for program in programs:
        if not any(os.access(Path(folder) / program, os.X_OK) for folder in os.get_exec_path()):
            missing(f"{program} is not installed")


def missing(reason: str) -> None:
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def on_uvloop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Runs an asynchronous test on the loop that `tidegate run` uses."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(test(*args, **kwargs))

    return run


def end_group(leader: subprocess.Popen[Any]) -> None:
    """Ends a command that was started in a session of its own, and everything that it has started.

    SIGTERM comes first: only the command itself can end what has a session of its own.
    """
    number, deadline = signal.SIGTERM, time.monotonic() + ENDING
    with contextlib.suppress(ProcessLookupError):
        while True:
            os.killpg(leader.pid, number)
            leader.poll()
            time.sleep(0.02)
            number = 0 if time.monotonic() < deadline else signal.SIGKILL
    leader.wait()


def run_group(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end, as `subprocess.run` does, and ends what it has started, whatever happens."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "start_new_session": True}
    with subprocess.Popen(command, **pipes | options) as leader:
        try:
            stdout, stderr = leader.communicate()
        finally:
            end_group(leader)
    return subprocess.CompletedProcess(command, leader.returncode, stdout, stderr)


class File:
    """A configuration file in a folder, with real ports for the words that stand for them."""

    def __init__(self, folder: Path, text: str) -> None:
        self.folder = folder
        self.path = folder / "tidegate.yaml"
        self.ports: dict[str, int] = {}
        self.write(text)

    def write(self, text: str) -> None:
        self.path.write_text(re.sub(r"\b(?:[A-Z0-9]+_)?PORT\b", self._port, text))

    def _port(self, found: re.Match[str]) -> str:
        return str(self.ports.setdefault(found[0], free_port()))

    def line(self, text: str) -> int:
        """The number of the first line that contains `text`."""
        lines = self.path.read_text().splitlines()
        return next(number for number, line in enumerate(lines, 1) if text in line)


class Process:
    """`tidegate run -c FILE`. `within`: a command before it, which has to become it; `env`: more variables."""

    def __init__(self, file: File, *, within: Iterable[str] = (), env: Mapping[str, str] | None = None) -> None:
        self.file = file
        self.ports = file.ports
        self.stderr = next(path for number in count(1) if not (path := file.folder / f"stderr-{number}.log").exists())
        self._stream = self.stderr.open("wb")
        self.popen = subprocess.Popen(
            [*within, TIDEGATE, "run", "-c", str(file.path)],
            stdin=subprocess.DEVNULL,
            stdout=self._stream,
            stderr=self._stream,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **(env or {})},
        )

    @property
    def pid(self) -> int:
        return self.popen.pid

    @property
    def control(self) -> Path:
        return load(self.file.path).control_socket

    def ask(self, command: str, **arguments: Any) -> Any:
        return ask(self.control, command, **arguments)

    def admin_token(self) -> str:
        """A token of an administrator, as `tidegate token make --socket` makes it."""
        return str(self.ask("token_make", role="admin", by="test")["token"])

    def lines(self) -> list[dict[str, Any]]:
        """What it logged. A line that is not JSON is reported as the event `not JSON`."""
        found = []
        for line in self.stderr.read_text().splitlines():
            try:
                found.append(json.loads(line))
            except json.JSONDecodeError:
                found.append({"event": "not JSON", "level": "error", "text": line})
        return found

    def events(self, event: str) -> list[dict[str, Any]]:
        return [line for line in self.lines() if line["event"] == event]

    def wait_for(self, event: str, count: int = 1, seconds: float = PATIENCE) -> dict[str, Any]:
        """The `count`-th log line of that name."""
        deadline = time.monotonic() + seconds
        while len(found := self.events(event)) < count:
            assert self.popen.poll() is None, self.stderr.read_text()
            assert time.monotonic() < deadline, f"no {event!r} in\n{self.stderr.read_text()}"
            time.sleep(0.02)
        return found[count - 1]

    def wait_until_it_accepts(self) -> None:
        self.wait_for("ready", seconds=STARTING)
        for line in self.events("listening"):
            host = re.sub(r"^\w+://\[?|[\]/].*$|:\d+(/.*)?$", "", line["url"])
            socket.create_connection((host, line["port"]), timeout=PATIENCE).close()

    def signal(self, number: int) -> None:
        self.popen.send_signal(number)

    def stop(self) -> int:
        """SIGTERM, if it still runs; its exit code."""
        if self.popen.poll() is None:
            self.popen.terminate()
        try:
            return self.popen.wait(STOPPING)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()
            raise
        finally:
            self._stream.close()

    def kill(self) -> None:
        if self.popen.poll() is None:
            self.popen.kill()
            self.popen.wait()
        self._stream.close()

    def memory(self, what: str = "VmRSS") -> int:
        """Bytes; `VmHWM` is the most it ever had."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(f"{what}:"):
                return int(line.split()[1]) * 1024
        raise AssertionError(f"no {what} of process {self.pid}")

    def check(self, *allowed: str) -> None:
        """Nothing was logged that should not have been; `allowed` are events a test provoked."""
        wrong = [
            line
            for line in self.lines()
            if (line.get("level") in ("error", "critical") or line["event"] == "bug") and line["event"] not in allowed
        ]
        assert not wrong, wrong


@contextlib.contextmanager
def process(folder: Path, text: str, *, allowed: tuple[str, ...] = ()) -> Iterator[Process]:
    """A node as a process of its own, until the block ends."""
    running = Process(File(folder, text))
    try:
        running.wait_until_it_accepts()
        yield running
    except BaseException:
        running.kill()
        raise
    code = running.stop()
    assert code == 0, running.stderr.read_text()
    running.check(*allowed)


class Served(Live):
    """A node on the test's own loop that was started from a file."""

    def __init__(self, node: Node, file: File) -> None:
        super().__init__(node, file.ports.get("PORT", 0))
        self.file = file
        self.ports = file.ports

    async def reload(self, text: str | None = None) -> dict[str, Any]:
        if text is not None:
            self.file.write(text)
        return await self.node.reload()

    async def dial(self, port: int, context: Any = None, host: str = "127.0.0.1", local: str | None = None) -> Client:
        """A connection to `port` that has said nothing yet; with a context, over TLS; `local`: from this address."""
        local_addr = None if local is None else (local, 0)
        reader, writer = await asyncio.open_connection(host, port, ssl=context, local_addr=local_addr)
        client = Client(reader, writer)
        client.node = self.node
        self.clients.append(client)
        return client


@contextlib.asynccontextmanager
async def from_file(folder: Path, text: str) -> AsyncIterator[Served]:
    """A node on this loop that can read its file again."""
    file = File(folder, text)
    node = Node(load(file.path), file.path, asyncio.get_running_loop())
    served = Served(node, file)
    try:
        await node.start()
        yield served
    finally:
        for client in served.clients:
            client.writer.close()
        await node.close()
        for client in served.clients:
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(PATIENCE):
                    await client.writer.wait_closed()


async def until(condition: Callable[[], bool], seconds: float = PATIENCE) -> None:
    """Waits for something that nobody announces."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)
