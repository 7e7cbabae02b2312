"""A node with a chain of scopes, started on loopback, pinned to one core, stopped again; and the load it gets.

As in `servers`, each start is fresh. The difference is the two listeners: publishers connect to the first scope of the
chain and subscribers to the last.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.job import Outcome
from bench.rounds import GENERATOR_TIMEOUT, Plan
from bench.scopes.chain import Chain, configuration
from bench.scopes.load import Task
from bench.servers import CONFIGURATION, BenchError, Peer, Server, launched, pinned, tidegate


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A chain that listens at both ends."""

    chain: Chain
    server: Server


@contextmanager
def running(chain: Chain, *, core: int, source: Path | None = None) -> Iterator[Node]:
    """A fresh node, until the end of the block. `source`: see `servers.running`."""

    def command(folder: Path, ports: tuple[int, ...]) -> list[str]:
        file = folder / CONFIGURATION
        file.write_text(configuration(chain, *ports))
        return tidegate("run", "-c", str(file))

    with launched(Peer.TIDEGATE, command, listeners=2, core=core, source=source) as server:
        yield Node(chain=chain, server=server)


def apply(node: Node, task: Task, plan: Plan) -> list[Outcome]:
    """The load of `task`, from a generator on its own core: an outcome for each of its rates, or of its window."""
    chain = node.chain
    task = dataclasses.replace(
        task,
        near=node.server.port,
        far=node.server.ports[1],
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
