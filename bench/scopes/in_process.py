"""A chain of scopes without sockets, clock or disk: what a message costs by itself, at one scope and at five.

The scopes are those of a node, built from the same configuration. Only their time counts: what the clients do between
two turns, such as acknowledging, is not timed. Chains that are compared take turns in one process, with the garbage
collector off.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bench.gate import in_process
from bench.gate.in_process import NOBODY, TURN, Known
from bench.load import frames, sessions
from bench.load.job import PAYLOAD
from bench.scopes import chain as chains
from bench.scopes.chain import Chain
from bench.scopes.contest import CONTESTS, Compared, Contest
from tidegate.config import parse
from tidegate.scope import Realm, Scope
from tidegate.session import Limits, Site

VERSION = 4
PUBLISHERS = 28
ROUNDS = 7
WARM = 50
SECONDS = 0.15
"""For each chain in each round."""


class End(in_process.End):
    """Keeps what is written to it."""

    def __init__(self, site: Site, scope: Scope, name: str) -> None:
        self.data = bytearray()
        super().__init__(site, scope, name, VERSION)

    def write(self, data: bytes) -> None:
        self.data += data


class World:
    """A chain with its publishers and subscribers, who speak with one QoS."""

    def __init__(self, chain: Chain, qos: int) -> None:
        built = parse(chains.configuration(chain, 1883, 1884), "bench.yaml").built
        self.qos = qos
        self.site = in_process.site_of(Limits(inflight=65535, receive_maximum=65535))
        realm = Realm(
            node="bench",
            site=self.site,
            authenticator=Known(built.rules, built.directory, NOBODY),
            rules=built.rules,
        )
        last, first = realm.scopes[chain.last], realm.scopes[chain.first]
        topics = chains.topics()
        self._readers = [self._end(last, f"s{number:05d}") for number in range(len(topics))]
        for end, topic in zip(self._readers, topics, strict=True):
            self._said(end, frames.subscribe(1, [chain.arrives(topic)], qos=qos, version=VERSION))
        self._writers = [self._end(first, f"p{number:05d}") for number in range(PUBLISHERS)]
        self._turn = [
            (
                self._writers[number % PUBLISHERS].connection.reader.receive,
                frames.publish(
                    topics[number % PUBLISHERS % len(topics)],
                    sessions.BODY,
                    qos=qos,
                    packet_id=1 + number // PUBLISHERS,
                    version=VERSION,
                ),
            )
            for number in range(TURN)
        ]
        self._length = len(self._turn[0][1])
        self._place = frames.packet_id_offset(topics[0], PAYLOAD, version=VERSION)

    def _end(self, scope: Scope, name: str) -> End:
        made = End(self.site, scope, name)
        self.site.close()
        made.data.clear()
        return made

    def _said(self, end: End, data: bytes) -> None:
        end.connection.reader.receive(data)
        self.site.close()
        end.data.clear()

    def warm(self) -> None:
        """Until plans are made. That is spread over turns, and a message may wait for its plan."""
        for _ in range(WARM):
            self._turned()

    def play(self, turns: int) -> int:
        """Nanoseconds of CPU that so many turns of `TURN` messages took the scopes."""
        spent = 0
        for _ in range(turns):
            took, arrived = self._turned()
            if arrived != TURN:
                raise AssertionError(f"{arrived} of {TURN} messages arrived")
            spent += took
        return spent

    def _turned(self) -> tuple[int, int]:
        """What a turn took, and how many messages arrived."""
        site = self.site
        begin = time.thread_time_ns()
        site.open()
        for receive, data in self._turn:
            receive(data)
        site.close()
        site.rest()
        took = time.thread_time_ns() - begin
        arrived = sum(len(end.data) for end in self._readers) // self._length
        if self.qos:
            took += self._acknowledged()
        for end in (*self._readers, *self._writers):
            end.data.clear()
        return took, arrived

    def _acknowledged(self) -> int:
        """What the acknowledgements of those who received something take the scopes."""
        site, length, place = self.site, self._length, self._place
        answers = []
        for end in [one for one in self._readers if one.data]:
            made = bytearray(frames.answer(frames.PUBACK, 0) * (len(end.data) // length))
            made[2::4], made[3::4] = end.data[place::length], end.data[place + 1 :: length]
            answers.append((end.connection.reader.receive, bytes(made)))
        begin = time.thread_time_ns()
        site.open()
        for receive, data in answers:
            receive(data)
        site.close()
        return time.thread_time_ns() - begin


# -- comparing -------------------------------------------------------------------------------------------------------


def measure(before: Callable[[str], None], rounds: int = ROUNDS, seconds: float = SECONDS) -> list[Compared]:
    """Every contest with QoS 0 and with QoS 1."""
    return [_compared(contest, qos, before, rounds, seconds) for contest in CONTESTS for qos in (0, 1)]


def _compared(contest: Contest, qos: int, before: Callable[[str], None], rounds: int, seconds: float) -> Compared:
    before(f"without sockets: {contest.name}, QoS {qos}")
    found = Compared(contest=contest, qos=qos)
    one, several = World(contest.one, qos), World(contest.several, qos)
    with _undisturbed():
        turns = [_enough(world, seconds) for world in (one, several)]
        for number in range(rounds):
            both = [(one, turns[0], found.one), (several, turns[1], found.several)]
            for world, count, costs in both if number % 2 == 0 else reversed(both):
                costs.append(world.play(count) / count / TURN / 1e3)
                gc.collect()
    return found


@contextmanager
def _undisturbed() -> Iterator[None]:
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _enough(world: World, seconds: float) -> int:
    """Turns that take so long. What is only done the first time has been done then."""
    world.warm()
    return max(2, int(seconds * 1e9 * 4 / world.play(4)))
