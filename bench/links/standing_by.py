"""What a link that nothing crosses costs the publishers of its node.

One node alone is measured beside the same node with everything that is between nodes, and nothing failing over: a link
with a default connection and one that stands by, both trusted; a trust list that asks neighbours; rules of publishers
that would spread; and the other node is told only what it subscribes to. What is published is delivered at the node
itself. For comparison a node is measured beside itself: that is what the machine cannot tell apart.

All is in one process, without sockets. Pairs are interleaved, and their order alternates; the CPU of the thread counts,
so that others on the machine disturb little.

    python -m bench.links.standing_by
"""

from __future__ import annotations

import gc
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from bench.compare.interval import Interval, ratio
from bench.gate.in_process import End
from bench.harness.machine import describe
from bench.links.in_memory import LinkSocket, Node, opened
from bench.load import frames, sessions

PAIRS: Final = 31
SECONDS: Final = 0.1
"""Of each side of a pair."""
TOPICS: Final = 14
BATCH: Final = 140
WARM: Final = 50
RESULT: Final = Path("bench/results/links-standing-by.md")
POLICIES: Final = 'policies: [{id: all, subject: "*", topic: "#", action: [read, write]}]\nlog: {level: error}\n'
ALONE: Final = f"""version: 1
node: {{name: near}}
listeners: [{{url: "mqtt://127.0.0.1:1883", scope: near, anonymous: true}}]
scopes: {{near: {{}}}}
{POLICIES}"""
NEAR: Final = f"""version: 1
node: {{name: near, cert: c.pem, key: c.key, ca: ca.pem}}
listeners: [{{url: "mqtt://127.0.0.1:1883", scope: near, anonymous: true}}]
scopes: {{near: {{}}}}
links:
  - {{from: near, to: far, via: ["mqtts://127.0.0.1:8883", "mqtts://127.0.0.1:8884"], forward: subscriptions,
     failover: {{mode: active, overload: 1000}}}}
trust: {{accept: [CN=near, CN=far], ask_neighbours: true, domains: {{far: {{nodes: [far]}}}}}}
rules: {{allow: ["#"]}}
{POLICIES}"""
FAR: Final = f"""version: 1
node: {{name: far}}
listeners:
  - {{url: "mqtts://127.0.0.1:8883", scope: far, client_cert: required, cert: c.pem, key: c.key, client_ca: ca.pem}}
scopes: {{far: {{}}}}
links: [{{from: far, to: near, peer: CN=near}}]
trust: {{accept: [CN=near, CN=far], domains: {{near: {{nodes: [near]}}}}}}
{POLICIES}"""


class World:
    """A node with a publisher and its subscribers, and if `linked` everything else."""

    def __init__(self, linked: bool, qos: int) -> None:
        self.node = near = Node("near", NEAR if linked else ALONE, 1)
        topics = [f"bench/k{number:02d}" for number in range(TOPICS)]
        self._sockets: list[tuple[LinkSocket, LinkSocket]] = []
        if linked:
            far = Node("far", FAR, 2)
            self._far = far
            reader = End(far.site, far.scope, "elsewhere", 4, login=False)
            reader.connection.reader.receive(frames.subscribe(1, ["elsewhere/#"], qos=1, version=4))
            far.rest()
            self._sockets = [opened(near, far, level="trusted", standby=standby) for standby in (False, True)]
            for _ in range(20):
                self._carry()
            assert near.link.trusted
            assert len(near.link.standbys) == 1
            assert set(near.link.session.subscriptions or ()) == {"elsewhere/#"}
        self._readers = [self._end(f"s{topic}") for topic in topics]
        for reader, topic in zip(self._readers, topics, strict=True):
            reader.connection.reader.receive(frames.subscribe(1, [topic], qos=0, version=4))
        near.rest()
        self._writer = self._end("p")
        self._batch = b"".join(
            frames.publish(topics[number % TOPICS], sessions.BODY, qos=qos, packet_id=number + 1, version=4)
            for number in range(BATCH)
        )
        for _ in range(WARM):
            self.turn()
        assert all(reader.written for reader in self._readers)

    def _end(self, name: str) -> End:
        end = End(self.node.site, self.node.scope, name, 4, login=False)
        self.node.rest()
        return end

    def _carry(self) -> None:
        for here, there in self._sockets:
            for source, target in ((here, there), (there, here)):
                data = source.taken()
                target.node.site.open()
                if data:
                    target.connection.reader.receive(data)
                target.node.rest()

    def turn(self) -> int:
        """Nanoseconds of CPU for a batch."""
        site = self.node.site
        begin = time.thread_time_ns()
        site.open()
        self._writer.connection.reader.receive(self._batch)
        site.close()
        site.rest()
        return time.thread_time_ns() - begin

    def play(self, turns: int) -> float:
        """Microseconds of CPU per message."""
        before = sum(reader.written for reader in self._readers)
        took = sum(self.turn() for _ in range(turns))
        assert sum(reader.written for reader in self._readers) > before
        assert not any(socket.sent for pair in self._sockets for socket in pair), "something has crossed"
        return took / (turns * BATCH * 1e3)


def compared(
    linked: bool, qos: int, pairs: int, seconds: float, before: Callable[[str], None]
) -> list[tuple[float, float]]:
    """Microseconds per message of two nodes: with the link if it is `linked`, and alone."""
    worlds = World(linked, qos), World(False, qos)
    turns = max(2, int(seconds * 1e6 / (worlds[1].play(20) * BATCH)))
    found: list[tuple[float, float]] = []
    gc.disable()
    try:
        for number in range(pairs):
            before(f"QoS {qos}, pair {number + 1} of {pairs}")
            values = [0.0, 0.0]
            for place in (0, 1) if number % 2 else (1, 0):
                values[place] = worlds[place].play(turns)
            found.append((values[0], values[1]))
            gc.collect()
    finally:
        gc.enable()
    return found


def report(found: dict[tuple[bool, int], list[tuple[float, float]]]) -> str:
    pairs = len(next(iter(found.values())))
    lines = [
        "# A link that nothing crosses: what it costs the publishers of its node",
        "",
        "Written by `python -m bench.links.standing_by`. CPU per message without sockets, of one node alone and of the",
        "same node with a link, a connection that stands by, trust, rules and forwarding of subscriptions:",
        f"{pairs} interleaved pairs, their medians, and the ratio with its 95 % interval. A node beside itself shows",
        "what cannot be told apart.",
        "",
        f"Machine: {json.dumps(describe())}; load average {os.getloadavg()[0]:.1f}",
        "",
        "| QoS | beside a node alone | alone | this one | ratio | 95 % |",
        "|---|---|---|---|---|---|",
    ]
    for (linked, qos), values in found.items():
        interval = ratio(values) or Interval(mean=0.0, low=0.0, high=0.0)
        this, alone = (statistics.median(each[side] for each in values) for side in (0, 1))
        lines.append(
            f"| {qos} | {'with everything' if linked else 'another one alone'} | {alone:.3f} µs | {this:.3f} µs | "
            f"{interval.mean:.4f} | {interval.low:.4f} to {interval.high:.4f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    def before(what: str) -> None:
        sys.stderr.write(f"{what}\n")

    cases = [(linked, qos) for qos in (0, 1) for linked in (True, False)]
    found = {(linked, qos): compared(linked, qos, PAIRS, SECONDS, before) for linked, qos in cases}
    RESULT.write_text(report(found))
    sys.stdout.write(RESULT.read_text())


if __name__ == "__main__":
    main()
