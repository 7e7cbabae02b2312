"""A link without sockets, TLS, clock or disk: what a message costs the node that sends it, and the node that gets it.

Both nodes are made from the configurations that `nodes` writes, and the link is opened as two nodes open it. What the
one writes is handed to the other as one read of a socket would bring it. Only the time of the nodes counts.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from bench.gate.in_process import End
from bench.harness.figures import Spread, spread
from bench.links import nodes
from bench.links.in_memory import Node, opened
from bench.links.nodes import SUBSCRIBERS, Formation, Place
from bench.load import frames, sessions

VERSION = 4
BATCH = 6 * SUBSCRIBERS
"""Messages that one read brings."""
TURN = 2
"""Reads that come in one turn of the loop."""
WARM = 50
ROUNDS = 7
SECONDS = 0.15
"""Of each formation in each round."""


class World:
    """One node, or two that are linked, with one publisher and the subscribers of the load."""

    def __init__(self, formation: Formation) -> None:
        linked = formation.linked
        self.near = _node(formation, Place(number=1, port=1883, next_port=8883 if linked else 0))
        self.far = _node(formation, Place(number=2, port=1884, tls_port=8883)) if linked else None
        self._link = opened(self.near, self.far, level="mtls") if self.far is not None else None
        topics = [f"bench/k{number:02d}" for number in range(SUBSCRIBERS)]
        edge = SUBSCRIBERS - linked
        self._ends = [self._reader(self.near, topic) for topic in topics[:edge]]
        if self.far is not None:
            self._ends += [self._reader(self.far, topic) for topic in topics[edge:]]
        self._writer = _end(self.near, "p00000")
        batch = [
            frames.publish(topics[number % SUBSCRIBERS], sessions.BODY, qos=0, packet_id=0, version=VERSION)
            for number in range(BATCH)
        ]
        self._length = len(batch[0])
        self._data = b"".join(batch)
        for _ in range(WARM):  # until plans are made
            self._turn()

    def _reader(self, node: Node, topic: str) -> End:
        end = _end(node, f"s-{topic}")
        end.connection.reader.receive(frames.subscribe(1, [topic], qos=0, version=VERSION))
        node.site.close()
        return end

    def play(self, turns: int) -> tuple[float, float]:
        """CPU of the near and the far node per message, in microseconds."""
        near = far = 0
        for _ in range(turns):
            took = self._turn()
            near, far = near + took[0], far + took[1]
            arrived = sum(end.written for end in self._ends)
            if arrived != TURN * BATCH * self._length:
                raise AssertionError(f"{arrived // self._length} of {TURN * BATCH} messages arrived")
        count = turns * TURN * BATCH * 1e3
        return near / count, far / count

    def _turn(self) -> tuple[int, int]:
        """Nanoseconds that a turn took both."""
        for end in self._ends:
            end.written = 0
        receive, data = self._writer.connection.reader.receive, self._data
        near = _timed(self.near, lambda: [receive(data) for _ in range(TURN)])
        if self._link is None or self.far is None:
            return near, 0
        mine, theirs = self._link
        came, take = mine.taken(), theirs.connection.reader.receive
        return near, _timed(self.far, lambda: take(came))


def _node(formation: Formation, place: Place) -> Node:
    return Node(place.name, nodes.linked(formation, Path(), place), place.number)


def _end(node: Node, name: str) -> End:
    made = End(node.site, node.scope, name, VERSION, login=False)
    node.site.close()
    return made


def _timed(node: Node, work: Callable[[], object]) -> int:
    """A turn of a node's loop in which this happens."""
    site = node.site
    begin = time.thread_time_ns()
    site.open()
    work()
    site.close()
    site.rest()
    site.close()  # what left a moment later
    return time.thread_time_ns() - begin


@dataclass(slots=True, kw_only=True)
class Indoors:
    """Microseconds per message of the near and the far node, by round."""

    formation: Formation
    costs: list[tuple[float, float]] = field(default_factory=list)

    @property
    def near(self) -> Spread | None:
        return spread(near for near, _ in self.costs)

    @property
    def far(self) -> Spread | None:
        return spread(far for _, far in self.costs if far)

    @property
    def both(self) -> Spread | None:
        return spread(near + far for near, far in self.costs)


def measure(
    formations: list[Formation], before: Callable[[str], None], rounds: int = ROUNDS, seconds: float = SECONDS
) -> list[Indoors]:
    """All formations in turn in one process, with the garbage collector off."""
    before("without sockets")
    taking = [(World(one), Indoors(formation=one)) for one in formations]
    enabled = gc.isenabled()
    gc.disable()
    try:
        turns = [max(2, int(seconds * 1e6 / (sum(world.play(4)) * TURN * BATCH))) for world, _ in taking]
        for number in range(rounds):
            first = number % len(taking)
            order = [*range(first, len(taking)), *range(first)]
            for place in order:
                world, found = taking[place]
                found.costs.append(world.play(turns[place]))
                gc.collect()
    finally:
        if enabled:
            gc.enable()
    return [found for _, found in taking]
