"""How much a ring of keys takes: a process of its own makes so many and tells by how many bytes it has grown."""

from __future__ import annotations

import gc
import os
import sys
import time

from bench import procfs
from tidegate.keys import Group, Ring

CONTEXT = 200  # bytes that a message's context has, more or less
FIRST = 50  # keys that pay for what is made only once


def grown(keys: int) -> int:
    """Bytes."""
    ring = Ring(entropy=os.urandom, groups=keys + FIRST)
    now = time.time()

    def make(first: int, many: int) -> None:
        for number in range(first, first + many):
            topic = f"campodenno/sensor{number}/temperature"
            group = Group.of(
                filter="campodenno/#",
                conditions=[topic],
                topic=topic,
                context=number.to_bytes(4, "big") * (CONTEXT // 4),
            )
            ring.current(group, now)

    make(0, FIRST)
    gc.collect()
    before = procfs.resident_bytes(os.getpid())
    make(FIRST, keys)
    if len(ring) != keys + FIRST:
        raise SystemExit("the ring has forgotten keys")
    return procfs.resident_bytes(os.getpid()) - before


if __name__ == "__main__":
    print(grown(int(sys.argv[1])))
