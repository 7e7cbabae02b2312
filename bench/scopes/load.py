"""The load generator of `bench scopes`: a process of its own, a `Task` as JSON on stdin, outcomes as JSON lines.

Publishers connect to the first scope of a chain and subscribers to the last. Before any load, `_prove` checks with
single messages that what arrives is what the configuration promises: how many, under which name, and with which
payload. Then it is counted by length.

Exit code 3 with `{"error": ...}` when the load could not be applied.
"""

from __future__ import annotations

import dataclasses
import gc
import json
import socket
import sys
from contextlib import ExitStack
from dataclasses import dataclass

from bench import crowd, frames
from bench.generator import FAILED, SEEN
from bench.inbox import Acknowledged, Counted, Inbox
from bench.job import PAYLOAD, Job, LoadError, Outcome
from bench.meter import Meter
from bench.pump import pump
from bench.scopes import chain as chains
from bench.scopes.chain import CONFIGURATIONS, TOPICS, Chain, Monitor
from bench.scopes.offer import Tap, offer

VERSION = 4
PRINTABLE = range(0x20, 0x7F)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What to do: rates one after the other, or a window of messages that are always outstanding."""

    near: int = 0
    far: int = 0
    server: int = 0
    configuration: str = ""
    scopes: int = 1
    extra: int = 0
    publishers: int = 100
    qos: int = 0
    rates: tuple[int, ...] = ()
    window: int = 0
    warmup: float = 0.1
    duration: float = 1.0

    @property
    def chain(self) -> Chain:
        found = next(one for one in CONFIGURATIONS if one.name == self.configuration)
        return Chain(configuration=found, scopes=self.scopes, extra=self.extra)

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Task:
        fields = json.loads(text)
        return cls(**fields | {"rates": tuple(fields["rates"])})


def measure(task: Task) -> list[Outcome]:
    with ExitStack() as stack:
        return _measured(task, stack)


def _measured(task: Task, stack: ExitStack) -> list[Outcome]:
    def sessions(letter: str, count: int, port: int) -> list[socket.socket]:
        names = [f"{letter}{number:05d}" for number in range(count)]
        return crowd.open_sessions(port, names, version=VERSION, clean=True, stack=stack)

    chain = task.chain
    subscribers = sessions("s", TOPICS, task.far)
    for topic, sock in zip(chains.topics(), subscribers, strict=True):
        crowd.subscribe(sock, [chain.arrives(topic)], qos=task.qos, version=VERSION)
    publishers = sessions("p", task.publishers, task.near)
    for number, sock in enumerate(subscribers):
        _prove(chain, publishers[number % len(publishers)], sock, chains.topics()[number], task.qos)
    job = Job(publishers=task.publishers, subscribers=TOPICS, qos=task.qos, window=task.window)
    plan = crowd.schedule(job, publishers)
    for sock in (*subscribers, *publishers):
        sock.setblocking(False)
    listen = [sock.fileno() for sock in subscribers]
    gc.collect()
    gc.disable()
    if task.window:
        return [_saturated(task, plan, listen)]
    tap = Tap(listen, plan.frame_length)
    stack.callback(tap.close)
    _learn(task, plan, tap)
    return [_paced(task, plan, tap, rate) for rate in task.rates]


def _learn(task: Task, plan: crowd.Schedule, tap: Tap) -> None:
    """What a node learns from the first messages of every publisher it has learnt then."""
    chain = task.chain
    enough = chain.configuration.arriving(SEEN * task.publishers, chain.scopes)
    meter = Meter(server=task.server, warmup=0.0, duration=0.0, at_least=enough)
    offer(plan, tap, chain, rate=task.rates[0], meter=meter)


def _paced(task: Task, plan: crowd.Schedule, tap: Tap, rate: int) -> Outcome:
    meter = Meter(server=task.server, warmup=task.warmup, duration=task.duration, at_least=0)
    seen = offer(plan, tap, task.chain, rate=rate, meter=meter)
    return meter.outcome(working=seen.working, lost=seen.lost)


def _saturated(task: Task, plan: crowd.Schedule, listen: list[int]) -> Outcome:
    if task.chain.configuration.factor != 1:
        raise LoadError("a window needs one delivery for each message")
    seen = SEEN * task.publishers
    meter = Meter(server=task.server, warmup=task.warmup, duration=task.duration, at_least=seen)
    inbox: Inbox
    if task.qos:
        inbox = Acknowledged(plan.frame_length, plan.id_offset, listen)
    else:
        inbox = Counted(plan.frame_length, 1)
    everyone = [*listen, *plan.fds] if task.qos else listen
    pumped = pump(plan, inbox, everyone, window=task.window, meter=meter, aside=None)
    return meter.outcome(lost=pumped.lost, outstanding=pumped.outstanding)


# -- proving ---------------------------------------------------------------------------------------------------------


def _prove(chain: Chain, publisher: socket.socket, subscriber: socket.socket, topic: str, qos: int) -> None:
    """As many messages as make a whole number of deliveries; then every monitor is as it was before."""
    kind = chain.configuration
    many = kind.fewer**chain.scopes
    for number in range(many):
        data = frames.publish(topic, crowd.BODY, qos=qos, packet_id=crowd.PROOF_ID + number, version=VERSION)
        publisher.sendall(data)
        if qos:
            _expect(publisher, frames.answer(frames.PUBACK, crowd.PROOF_ID + number))
    publisher.sendall(frames.PINGREQ)
    _expect(publisher, frames.PINGRESP)  # all that was sent has been dealt with
    subscriber.sendall(frames.PINGREQ)
    found = []
    while (packet := crowd.read_packet(subscriber)) != frames.PINGRESP:
        found.append(packet)
    wanted = kind.arriving(many, chain.scopes)
    if len(found) != wanted:
        raise LoadError(f"of {many} messages {len(found)} arrived instead of {wanted}")
    for packet in found:
        _compare(packet, chain, topic, qos)
        if qos:
            place = frames.packet_id_offset(topic, PAYLOAD, version=VERSION)
            packet_id = int.from_bytes(packet[place : place + 2], "big")
            subscriber.sendall(frames.answer(frames.PUBACK, packet_id))


def _compare(packet: bytes, chain: Chain, topic: str, qos: int) -> None:
    """Under the right name; with the same payload, or with another one of the same length that can be printed."""
    wanted = frames.publish(chain.arrives(topic), crowd.BODY, qos=qos, packet_id=0, version=VERSION)
    payload = packet[-PAYLOAD:]
    changed = chain.configuration.monitor is Monitor.COMPLEX
    head = len(wanted) - PAYLOAD - (2 if qos else 0)
    right = payload != crowd.BODY and all(byte in PRINTABLE for byte in payload) if changed else payload == crowd.BODY
    if len(packet) != len(wanted) or packet[:head] != wanted[:head] or not right:
        raise LoadError(f"a subscriber received {packet[:40].hex()}... instead of {wanted[:40].hex()}...")


def _expect(sock: socket.socket, expected: bytes) -> None:
    got = crowd.read_packet(sock)
    if got != expected:
        raise LoadError(f"the node answered {got.hex()} instead of {expected.hex()}")


def main() -> int:
    task = Task.from_json(sys.stdin.read())
    try:
        outcomes = measure(task)
    except (LoadError, OSError) as error:
        print(json.dumps({"error": str(error)}))
        return FAILED
    for outcome in outcomes:
        print(outcome.to_json())
    return 0


if __name__ == "__main__":
    sys.exit(main())
