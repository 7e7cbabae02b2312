"""What the parts cost by themselves, without sockets: looking policies up, one encryption, one request for a key.

Everything is the real thing, built from the configuration of the node that is measured over sockets; only sockets, disk
and the registry are missing. Times are CPU time of this thread, as in `bench gate`.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import count as numbers
from itertools import cycle
from typing import Any

from bench.gate.in_process import NOBODY, TURN, Known, World, site_of
from bench.gate.steps import REPEATS, Cost, found_in, spent, timed
from bench.harness import procfs
from bench.harness.figures import Spread
from bench.harness.procfs import fresh_processes
from bench.harness.servers import BenchError
from bench.keys.connections import MARK
from bench.keys.node import ANSWER, GET, content
from bench.keys.weather import READERS, TOPICS, Ports, Rules, Station, configuration
from bench.load import frames
from bench.load.job import PAYLOAD
from tidegate.audit.auditor import Auditor
from tidegate.audit.journals import Journals
from tidegate.config import parse
from tidegate.errors import TidegateError
from tidegate.gate import Allow
from tidegate.keys import Group, Kem, Ring, key_id, read_key, unseal, wrap
from tidegate.keyservice.control_commands import GetKey
from tidegate.keyservice.release import KeyRelease
from tidegate.keyservice.topic_keys import TopicKeys
from tidegate.scope import Realm
from tidegate.session import Link

SIZES = (PAYLOAD, 1024)
SECONDS = 0.5  # for each figure
KEYS = (1000, 10_000)
MEMORY_ROUNDS = 5
TOPIC = TOPICS[0]
SENSOR = "sensor1"


@dataclass(slots=True, kw_only=True)
class Indoors:
    """What was found: times, and bytes for each key of a ring with so many."""

    costs: list[Cost] = field(default_factory=list)
    memory: dict[int, Spread] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def of(self, name: str) -> Spread | None:
        return next((one.nanos for one in self.costs if one.name == name), None)


class Room(World):
    """A node without sockets and disk."""

    def __init__(self, station: Station, rules: Rules) -> None:
        self.version = 4
        self.station = station
        self.config = parse(configuration(station.rules(rules), Ports(mqtt=1883)), "bench.yaml")
        built = self.config.built
        self.site = site_of()
        self.topic_keys = TopicKeys(self.site, self.config.keys, None, None)
        audit = Auditor(self.site, Journals(lambda call: call()), node="bench")
        self.realm = Realm(
            node="bench",
            site=self.site,
            authenticator=Known(built.rules, built.directory, NOBODY),
            rules=built.rules,
            audit=audit,
            keyring=self.topic_keys,
        )
        self.scope = next(iter(self.realm.scopes.values()))
        self.gate = self.scope.gate
        self.release = KeyRelease(
            self.topic_keys,
            self.realm,
            audit,
            config=lambda: self.config,
            service=lambda: None,
            capability=lambda request: None,
            turn=lambda call, *arguments: call(*arguments),
        )

    def key(self) -> str:
        """The id of the key of `TOPIC`, once a message is under it."""
        reader = self.subscriber(self.station.asking[0], TOPIC)
        sensor = self.end(SENSOR)
        self.play([sensor], [self.frame(TOPIC, content(PAYLOAD))], 1)
        if not reader.written:
            raise BenchError("the reader received nothing")
        (only,) = self.topic_keys.listed()
        return str(only["id"])


def _finished(question: Coroutine[Any, Any, bytes]) -> bytes:
    """What a coroutine answers that waits for nobody."""
    try:
        question.send(None)
    except StopIteration as ended:
        answer: bytes = ended.value
        return answer
    raise BenchError("a key that is here was asked for elsewhere")


def measure(before: Callable[[str], None], seconds: float = SECONDS, memory_rounds: int = MEMORY_ROUNDS) -> Indoors:
    """Everything, in the order of the table."""
    found = Indoors()
    for name, part in PARTS.items():
        before(f"without sockets: {name}")
        try:
            found.costs += part(seconds)
        except (BenchError, TidegateError) as error:
            found.failures.append(f"without sockets, {name}: {error}")
    before("without sockets: memory")
    with fresh_processes() as pool:
        for keys in KEYS:
            try:
                sizes = [pool.submit(_resident, keys).result() for _ in range(memory_rounds)]
            except BenchError as error:
                found.failures.append(f"memory of {keys} keys: {error}")
                continue
            found.memory[keys] = found_in(size / keys for size in sizes)
    return found


def _cost(name: str, nanos: Spread) -> Cost:
    return Cost(group="keys", name=name, nanos=nanos)


# -- a message ---------------------------------------------------------------------------------------------------------


def _messages(seconds: float) -> Iterator[Cost]:
    """The whole way, from the bytes that come in to those that go out."""
    for rules in Rules:
        for size in SIZES:
            room = Room(Station.of(1), rules)
            reader = room.subscriber("r000", "campodenno/#")
            sensors = [room.end(f"sensor{number}") for number in range(1, len(TOPICS) + 1)]
            data = [room.frame(topic, content(size, number)) for number, topic in enumerate(TOPICS, 1)]
            play = partial(room.play, sensors, data, TURN)
            nanos = timed(play, seconds, per=TURN)
            seen = reader.written
            play()
            if reader.written == seen:
                raise BenchError(f"nothing was delivered by {rules.value}")
            yield _cost(f"a message, {rules.value}, {size} bytes", nanos)


def _stages(seconds: float) -> Iterator[Cost]:
    """What happens to a message that is protected."""
    room = Room(Station.of(1), Rules.PROTECTED)
    room.subscriber("r000", "campodenno/#")
    sensor = room.end(SENSOR)
    lane = room.gate.lane(sensor.connection.session.inward, room.version)
    make = partial(room.gate.compiler.compile, TOPIC, lane)
    plan = make()
    if len(plan.targets) != 1 or plan.sealing is None:
        raise BenchError("the plan that is timed protects nothing, or delivers to nobody")
    yield _cost("policies looked up, once for a publisher and topic", timed(make, seconds))
    group = plan.sealing.group
    room.site.open()
    for size in SIZES:
        clear = content(size)
        yield _cost(
            f"one encryption, {size} bytes", timed(partial(room.topic_keys.sealed, group, clear, TOPIC), seconds)
        )
        key = room.topic_keys.current(group)
        sealed = room.topic_keys.sealed(group, clear, TOPIC)
        if key_id(sealed) != key.id or unseal(key.secret, sealed, topic=TOPIC) != clear:
            raise BenchError("what was encrypted cannot be decrypted")
        yield _cost(
            f"one decryption, by the reader, {size} bytes",
            timed(partial(unseal, key.secret, sealed, topic=TOPIC), seconds),
        )


# -- a request ---------------------------------------------------------------------------------------------------------


def _requests(seconds: float) -> Iterator[Cost]:
    """A key, decided and wrapped."""
    for kem in Kem:
        station = Station.of(READERS, kem)
        room = Room(station, Rules.PROTECTED)
        id = room.key()
        key = room.topic_keys.ring.find(id, time.time())
        assert key is not None
        if kem is Kem.X25519:
            yield from _decided(room, key.group, seconds)
        name = station.asking[0]
        private = station.readers[name]
        mark = "0" * MARK
        wrapping = partial(wrap, key, private.public, reader=f"user:{name}", request=mark, seconds=60.0)
        yield _cost(f"a key wrapped, {kem.value}", timed(wrapping, seconds))
        reading = partial(read_key, wrapping(), private, reader=f"user:{name}", request=mark)
        yield _cost(f"a key unwrapped, by the reader, {kem.value}", timed(reading, seconds))
        yield _cost(f"a key request, as HTTP asks the node, {kem.value}", timed(_over_control(room, id), seconds))
        yield _cost(
            f"a key request, MQTT packet to packet, {kem.value}", timed(_over_mqtt(room, id), seconds, per=TURN)
        )


def _decided(room: Room, group: Group, seconds: float) -> Iterator[Cost]:
    """Whether a reader may have a key: for the first time under these rules, and again."""
    link = room.end(room.station.asking[1]).connection.session.outward
    links = [Link(link.subject, False, link.type) for _ in range(READERS)]  # decisions are remembered for each
    decide = partial(room.gate.stored.readable, group.topic, group.context)
    if not all(isinstance(decide(each), Allow) for each in links):
        raise BenchError("a reader may not read")

    def everybody() -> None:
        for each in links:
            decide(each)

    firsts = []
    for _ in range(REPEATS):
        room.gate.cache.clear()
        firsts.append(spent(everybody, 1) / len(links))
    yield _cost("may a reader have a key, for the first time", found_in(firsts))
    yield _cost("may a reader have a key, decided before", timed(partial(decide, link), seconds))


def _over_control(room: Room, id: str) -> Callable[[], None]:
    readers, marks = cycle(room.station.asking), numbers()
    level = room.gate.rules.levels.highest

    def ask() -> None:
        mark = f"{next(marks):0{MARK}d}"
        asked = GetKey(user=next(readers), key=id, request=mark, level=level, address="127.0.0.1")
        _finished(room.release.get(asked))
        room.site.close()
        room.rest()

    return ask


def _over_mqtt(room: Room, id: str) -> Callable[[], None]:
    """So many requests as come in one turn of a busy loop, all by other readers."""
    ends = [room.subscriber(name, ANSWER) for name in room.station.asking[2:]]  # the first two are connected
    if len(ends) < TURN:
        raise BenchError("there are too few readers")
    turns, marks = cycle(ends), numbers()
    question = '{"keyId":"%s","request":"%s"}'

    def ask() -> None:
        handed = room.release.handed
        room.site.open()
        for _ in range(TURN):
            payload = (question % (id, f"{next(marks):0{MARK}d}")).encode()
            next(turns).connection.reader.receive(
                frames.publish(GET, payload, qos=0, packet_id=0, version=room.version)
            )
        room.site.close()
        room.rest()
        if room.release.handed != handed + TURN:
            raise BenchError("not every request was answered with a key")

    return ask


PARTS: dict[str, Callable[[float], Iterator[Cost]]] = {
    "messages": _messages,
    "stages": _stages,
    "requests": _requests,
}


# -- memory ------------------------------------------------------------------------------------------------------------


CONTEXT = 200  # bytes that a message's context has, more or less
FIRST = 50  # keys that pay for what is made only once


def _resident(keys: int) -> int:
    """By how many bytes a process grows that makes a ring with so many keys, each of another group."""
    ring = Ring(entropy=os.urandom, groups=keys + FIRST)
    now = time.time()

    def make(first: int, many: int) -> None:
        for number in range(first, first + many):
            topic = f"campodenno/sensor{number}/temperature"
            context = number.to_bytes(4, "big") * (CONTEXT // 4)
            ring.current(Group.of(filter="campodenno/#", conditions=[topic], topic=topic, context=context), now)

    make(0, FIRST)
    gc.collect()
    before = procfs.resident_bytes(os.getpid())
    make(FIRST, keys)
    if len(ring) != keys + FIRST:
        raise BenchError("the ring has forgotten keys")
    return procfs.resident_bytes(os.getpid()) - before


def count() -> int:
    """How often `before` will be told something."""
    return len(PARTS) + 1
