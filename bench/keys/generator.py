"""The load on a node of the weather station, from a generator on a core of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from bench.harness.generator import Generator
from bench.harness.servers import BenchError
from bench.keys.load import Found, Task
from bench.keys.node import Node
from bench.load.job import MEASURING

PATIENCE = 60.0
MODULE = "bench.keys.load"


def apply(node: Node, task: Task, core: int) -> Found:
    """The load of `task`."""
    with Generator(node.server, core, MODULE) as generator:
        generator.tell(task.to_json())
        return Found.from_json(generator.line(PATIENCE + task.duration))


@dataclass(slots=True)
class Going:
    """A load that goes on; what it found is there in the end."""

    found: Found | None = None


@contextmanager
def during(node: Node, task: Task, core: int) -> Iterator[Going]:
    """The load of `task` from the moment it is in full swing until the end of the block."""
    going = Going()
    with Generator(node.server, core, MODULE) as generator:
        generator.tell(task.to_json())
        if generator.line(PATIENCE) != MEASURING:
            raise BenchError("the load generator ended before it measured anything")
        yield going
        generator.close()
        going.found = Found.from_json(generator.line(PATIENCE))
