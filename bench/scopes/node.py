"""A node with a chain of scopes, started on loopback, pinned to one core, stopped again; and the load it gets.

As in `servers`, each start is fresh. The difference is the two listeners: publishers connect to the first scope of the
chain and subscribers to the last.
"""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.job import Outcome
from bench.rounds import GENERATOR_TIMEOUT, Plan
from bench.scopes.chain import Chain, configuration
from bench.scopes.load import Task
from bench.servers import (
    CONFIGURATION,
    START_TIMEOUT,
    STOP_TIMEOUT,
    BenchError,
    Peer,
    Server,
    free_port,
    pinned,
    tidegate,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A chain that listens at both ends."""

    chain: Chain
    server: Server
    far: int
    """The port of the last scope."""


@contextmanager
def running(chain: Chain, *, core: int) -> Iterator[Node]:
    """A fresh node, until the end of the block."""
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        near, far = _two_ports()
        file, log = folder / CONFIGURATION, folder / "log"
        file.write_text(configuration(chain, near, far))
        with log.open("wb") as sink, pinned(core):
            process = subprocess.Popen(
                tidegate("run", "-c", str(file)),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                cwd=folder,
                env={**os.environ, "XDG_RUNTIME_DIR": name},
            )
        server = Server(peer=Peer.TIDEGATE, port=near, process=process, log=log)
        try:
            for port in (near, far):
                _wait(server, port)
            yield Node(chain=chain, server=server, far=far)
        finally:
            process.terminate()
            try:
                process.wait(STOP_TIMEOUT)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _two_ports() -> tuple[int, int]:
    near = free_port()
    while (far := free_port()) == near:
        pass
    return near, far


def _wait(server: Server, port: int) -> None:
    deadline = time.monotonic() + START_TIMEOUT
    while time.monotonic() < deadline:
        if words := server.obituary():
            raise BenchError(words)
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
        except OSError:
            time.sleep(0.02)
        else:
            return
    raise BenchError(f"the node does not listen after {START_TIMEOUT:.0f} s{server.last_words()}")


def apply(node: Node, task: Task, plan: Plan) -> list[Outcome]:
    """The load of `task`, from a generator on its own core: an outcome for each of its rates, or of its window."""
    chain = node.chain
    task = dataclasses.replace(
        task,
        near=node.server.port,
        far=node.far,
        server=node.server.process.pid,
        configuration=chain.configuration.name,
        scopes=chain.scopes,
        extra=chain.extra,
        warmup=plan.warmup,
        duration=plan.duration,
    )
    with pinned(plan.load_core):
        generator = subprocess.Popen(
            [sys.executable, "-m", "bench.scopes.load"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    with generator:
        try:
            out, err = generator.communicate(task.to_json(), GENERATOR_TIMEOUT)
        except BaseException as error:
            generator.kill()
            if isinstance(error, subprocess.TimeoutExpired):
                raise BenchError(f"{chain.name}: the load generator did not finish") from None
            raise
    if generator.returncode == 0:
        return [Outcome.from_json(line) for line in out.splitlines()]
    if words := node.server.obituary():
        raise BenchError(words)
    try:
        reason = json.loads(out)["error"]
    except (ValueError, KeyError):
        reason = err.strip() or f"the load generator ended with code {generator.returncode}"
    raise BenchError(reason)
