"""Flow analysis on random graphs: all pairs of links, a witness on request, and the memory that it takes.

Each graph is looked at in a process of its own, so that its memory is its own too. What is timed is what a user waits
for: the graph is made from its links, everything is closed, and then routes between random entities are asked for. Time
is that of the CPU, which neighbours on the machine do not change; nothing here waits for anything else.
Graphs of one shape and size differ by round; the median counts.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import assert_never

from bench.harness.figures import Spread, spread
from bench.harness.procfs import fresh_processes
from tidegate.flow.graph import ConnectionGraph, Link, connection
from tidegate.flow.reach import Reach
from tidegate.flow.route import shortest
from tidegate.policy.brokering import chain

SIZES = (200, 500, 1_000, 2_000, 5_000, 10_000, 20_000)
GOALS = {2_000: 1.0, 20_000: 60.0}
"""Seconds, by number of links."""
CUBIC = 3.0
"""Growth by this power is a failure."""
ROUNDS = 3
WITNESSES = 200
LABELS = ("public", "internal", "secret", "top")


class Shape(Enum):
    """How the links of a graph lie."""

    FOREST = "forest"
    BUS = "bus"
    MESH = "mesh"
    CROWD = "crowd"

    @property
    def title(self) -> str:
        match self:
            case Shape.FOREST:
                return "a hierarchy of scopes with a client for each, types up and down"
            case Shape.BUS:
                return "roles around a bus, three clients for each, as `rbac` makes them"
            case Shape.MESH:
                return "scopes joined at random, three connections and one client for each, four labels"
            case Shape.CROWD:
                return "clients of one scope"
            case _:
                assert_never(self)


def graph(shape: Shape, links: int, seed: int) -> ConnectionGraph:
    """A random graph with about that many links."""
    chance = random.Random(seed)
    match shape:
        case Shape.FOREST:
            pairs = [("up", "up"), ("up", "down"), ("down", "down")]
            return ConnectionGraph(_forest(links, chance), allow=pairs)
        case Shape.BUS:
            pairs = [("PubUp", "SubDown"), ("DevUp", "PubUp"), ("SubDown", "DevDown")]
            return ConnectionGraph(_bus(links), allow=pairs)
        case Shape.MESH:
            return ConnectionGraph(_mesh(links, chance), allow=chain(LABELS))
        case Shape.CROWD:
            crowd = (connection(f"client:{number}", "scope:s", "in", "out") for number in range(links // 2))
            return ConnectionGraph(link for both in crowd for link in both)
        case _:
            assert_never(shape)


def _forest(links: int, chance: random.Random) -> Iterator[Link]:
    for number in range(max(1, links // 4)):
        if number:
            yield from connection(f"scope:{number}", f"scope:{chance.randrange(number)}", "up", "down")
        yield from connection(f"client:{number}", f"scope:{number}", "up", "down")


def _bus(links: int) -> Iterator[Link]:
    for role in range(max(1, links // 16)):
        yield from connection(f"scope:{role}.pub", "scope:bus", "PubUp", "PubDown")
        yield from connection(f"scope:{role}.sub", "scope:bus", "SubUp", "SubDown")
        for member in range(3):
            for half in ("pub", "sub"):
                yield from connection(f"client:{role}.{member}", f"scope:{role}.{half}", "DevUp", "DevDown")


def _mesh(links: int, chance: random.Random) -> Iterator[Link]:
    scopes = max(4, links // 8)
    for number in range(scopes):
        others = [other for other in chance.sample(range(scopes), 4) if other != number]
        for other in others[:3]:
            yield from connection(f"scope:{number}", f"scope:{other}", chance.choice(LABELS), chance.choice(LABELS))
        yield from connection(f"client:{number}", f"scope:{number}", chance.choice(LABELS), chance.choice(LABELS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What one graph took."""

    shape: Shape
    round: int
    wanted: int
    links: int
    entities: int
    joined: int
    """Pairs of links of which the first reaches the second."""
    made: float
    """Seconds to make the graph of its links,"""
    closed: float
    """to find all pairs of links,"""
    entity_pairs: float
    """to find all pairs of entities,"""
    witness: float
    """and for one route, in the middle"""
    slowest: float
    """and at most."""
    mib: float
    """Memory at its highest, without what Python has anyway."""

    @property
    def seconds(self) -> float:
        """The graph, all pairs of links, and one witness: the slowest."""
        return self.made + self.closed + self.slowest


def look(shape: Shape, links: int, round: int) -> Found:
    """Measures one graph, in this process."""
    before = _highest()
    started = time.process_time()
    made = graph(shape, links, seed=round)
    finished = time.process_time()
    reach = Reach(made)
    joined = reach.link_pairs
    closed = time.process_time()
    list(map(reach.reached, made.entities[:1]))  # makes what is known of all entities
    entities = time.process_time()
    routes = sorted(_witnesses(made, random.Random(round)))
    return Found(
        shape=shape,
        round=round,
        wanted=links,
        links=len(made.links),
        entities=len(made.entities),
        joined=joined,
        made=finished - started,
        closed=closed - finished,
        entity_pairs=entities - closed,
        witness=statistics.median(routes),
        slowest=routes[-1],
        mib=(_highest() - before) / 1024,
    )


def _witnesses(made: ConnectionGraph, chance: random.Random) -> Iterator[float]:
    names = made.entities
    for _ in range(WITNESSES):
        source, target = chance.choice(names), chance.choice(names)
        started = time.process_time()
        shortest(made, source, target)
        yield time.process_time() - started


def _highest() -> int:
    """The most memory that this process has had, in KiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1])
    return 0


def measure(sizes: Sequence[int], rounds: int, before: Callable[[str], None]) -> list[Found]:
    """Every shape in every size, each graph in a fresh process."""
    found = []
    with fresh_processes() as pool:
        for shape in Shape:
            for links in sizes:
                for number in range(rounds):
                    before(f"{shape.value}, {links:,} links, round {number + 1} of {rounds}")
                    found.append(pool.submit(look, shape, links, number).result())
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A shape in a size, over all rounds."""

    shape: Shape
    wanted: int
    found: tuple[Found, ...]

    def of(self, name: str, factor: float = 1.0) -> Spread:
        value = spread(getattr(one, name) * factor for one in self.found)
        assert value is not None  # a row has a round
        return value

    @property
    def goal(self) -> float | None:
        return GOALS.get(self.wanted)

    @property
    def reached(self) -> bool:
        return self.goal is None or self.of("seconds").median < self.goal


def rows(found: Sequence[Found]) -> list[Row]:
    keys = dict.fromkeys((one.shape, one.wanted) for one in found)
    return [
        Row(
            shape=shape,
            wanted=wanted,
            found=tuple(one for one in found if (one.shape, one.wanted) == (shape, wanted)),
        )
        for shape, wanted in keys
    ]


def growth(several: Sequence[Row]) -> dict[Shape, float]:
    """By which power of the number of links time grows, over the larger sizes. In small ones other things count."""
    powers: dict[Shape, float] = {}
    for shape in Shape:
        mine = [row for row in several if row.shape is shape]
        if len(mine) > 1:
            first, last = mine[(len(mine) - 1) // 2], mine[-1]
            times = last.of("seconds").median / first.of("seconds").median
            powers[shape] = math.log(times) / math.log(last.found[0].links / first.found[0].links)
    return powers
