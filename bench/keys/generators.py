"""Starting load generators, and what they say in the end."""

from __future__ import annotations

import json
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from bench.job import MEASURING
from bench.keys.load import Found, Task
from bench.keys.node import Node
from bench.servers import BenchError, pinned

PATIENCE = 60.0


def _started(core: int) -> subprocess.Popen[str]:
    with pinned(core):
        return subprocess.Popen(
            [sys.executable, "-m", "bench.keys.load"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


def apply(node: Node, task: Task, core: int) -> Found:
    """The load of `task`, from a generator on a core of its own."""
    with _started(core) as generator:
        try:
            out, err = generator.communicate(task.to_json() + "\n", PATIENCE + task.duration)
        except BaseException as error:
            generator.kill()
            if isinstance(error, subprocess.TimeoutExpired):
                raise BenchError("the load generator did not finish") from None
            raise
    return _answer(node, generator, out, err)


@dataclass(slots=True)
class Going:
    """A load that goes on; what it found is there in the end."""

    found: Found | None = None


@contextmanager
def during(node: Node, task: Task, core: int) -> Iterator[Going]:
    """The load of `task` from the moment it is in full swing until the end of the block."""
    going = Going()
    with _started(core) as generator:
        assert generator.stdin is not None
        assert generator.stdout is not None
        try:
            generator.stdin.write(task.to_json() + "\n")
            generator.stdin.flush()
            ready, _, _ = select.select([generator.stdout], [], [], PATIENCE)
            line = generator.stdout.readline().strip() if ready else ""
            if line == MEASURING:
                yield going
                out, err = generator.communicate(timeout=PATIENCE)
            else:
                out, err = line, "" if generator.poll() is None else generator.communicate()[1]
                generator.kill()
                generator.wait()
        except BaseException as error:
            generator.kill()
            if isinstance(error, subprocess.TimeoutExpired):
                raise BenchError("the load generator did not finish") from None
            raise
    going.found = _answer(node, generator, out, err)


def _answer(node: Node, generator: subprocess.Popen[str], out: str, err: str) -> Found:
    if generator.returncode == 0:
        return Found.from_json(out)
    if words := node.server.obituary():
        raise BenchError(words)
    try:
        reason = json.loads(out)["error"]
    except (ValueError, KeyError):
        reason = err.strip() or f"the load generator ended with code {generator.returncode}"
    raise BenchError(reason)
