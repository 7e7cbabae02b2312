"""One checkout's scopes in a process of its own, without sockets: builds a case, plays messages, answers the CPU time.

The parent starts this file with the checkout's `src` in PYTHONPATH, so only the standard library may be imported at the
top. The in-process harness is the checkout's own (`bench.in_process` or what older trees call it), because it is
written against the classes of that tree. Commands are JSON lines on stdin, answers JSON lines on stdout:

    {"chain": {"configuration": "NEW", "scopes": 5, "extra": 0}, "qos": 0}   build a chain of scopes
    {"rules": "policies: open", "version": 4, "copies": 1, "where": ""}      build one scope with these rules
    {"play": 1000}                                                           at least so many messages: [count, ns]
"""

from __future__ import annotations

import gc
import importlib
import json
import sys
import time
from collections.abc import Callable
from typing import Any

SUBSCRIBERS = 14
BATCH = 1024
WARM = 20


def _module(*names: str) -> Any:
    """The first of these modules that the checkout has."""
    for name in names:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not name.startswith(error.name):
                raise
    raise SystemExit(f"the checkout has none of {', '.join(names)}")


def chain(description: dict[str, Any], qos: int) -> Callable[[int], tuple[int, int]]:
    """Scopes in a row; messages enter the first and leave the last."""
    chains = _module("bench.scopes.chain", "tidegate.bench.scopes.chain")
    harness = _module("bench.scopes.in_process", "bench.scopes.indoors", "tidegate.bench.scopes.indoors")
    kind = next(one for one in chains.CONFIGURATIONS if one.name == description["configuration"])
    world = harness.World(
        chains.Chain(configuration=kind, scopes=description["scopes"], extra=description["extra"]), qos
    )
    world.warm()

    def play(count: int) -> tuple[int, int]:
        turns = max(1, count // harness.TURN)
        return turns * harness.TURN, world.play(turns)

    return play


def scope(rules: str, version: int, copies: int, where: str) -> Callable[[int], tuple[int, int]]:
    """One scope with rules, a publisher for each topic, and `copies` subscribers to each."""
    harness = _module("bench.gate.in_process", "bench.gate.indoors", "tidegate.bench.gate.indoors")
    rulebook = _module("bench.gate.rulebook", "tidegate.bench.gate.rulebook")
    world = harness.World(rules, version=version)
    connect = getattr(world, "connect", None) or world.end
    topics = [f"bench/k{number:02d}" for number in range(SUBSCRIBERS // copies)]
    readers = [world.subscriber(f"s{number:05d}", topics[number // copies], where) for number in range(SUBSCRIBERS)]
    writers = [connect(f"p{number:05d}") for number in range(len(topics))]
    frames = [world.frame(topic, rulebook.content().encode()) for topic in topics]

    def play(count: int) -> tuple[int, int]:
        batches = max(1, count // BATCH)
        begin = time.thread_time_ns()
        for _ in range(batches):
            world.play(writers, frames, BATCH)
        return batches * BATCH, time.thread_time_ns() - begin

    for _ in range(WARM):  # plans are compiled between turns, and a message may wait for its plan
        play(1)
    before = [reader.written for reader in readers]
    play(1)
    if any(reader.written == old for reader, old in zip(readers, before, strict=True)):
        raise SystemExit("a subscriber received nothing")
    return play


def main() -> None:
    gc.disable()
    play: Callable[[int], tuple[int, int]] | None = None
    for line in sys.stdin:
        command = json.loads(line)
        answer: object = "ready"
        if "play" in command:
            assert play is not None
            answer = play(command["play"])
        else:
            play = None
            gc.collect()
            if "chain" in command:
                play = chain(command["chain"], command["qos"])
            else:
                play = scope(**command)
        gc.collect()
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
