"""The generator's sessions: opened, subscribed and proved before any load.

Everything here blocks with a timeout and may be slow; the loops of `window` and `paced` start afterwards with
non-blocking sockets. `prove` sends one message to every subscriber and compares it byte by byte: only
then may the loops count messages by length.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from bench.load import frames
from bench.load.job import PAYLOAD, Job, LoadError

PATIENCE = 10.0
AT_ONCE = 64  # connections opened at a time: fewer than the listening backlog of any server
SUBSCRIPTIONS_PER_PACKET = 100
RING = 256  # packet ids that a publisher uses in turn; publishers x ring is far above every window
PROOF_ID = 60000  # outside the ring
PRINTABLE = range(0x20, 0x7F)
BODY = bytes(range(48, 48 + 75)) + bytes(range(48, 48 + 75)) + bytes(range(48, 48 + PAYLOAD - 150))


def read_packet(sock: socket.socket) -> bytes:
    """The next whole packet from a blocking socket."""
    data = _read(sock, 2)
    while (length := frames.total_length(data)) is None:
        data += _read(sock, 1)
    return data + _read(sock, length - len(data))


def _read(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        try:
            chunk = sock.recv(count - len(data))
        except TimeoutError:
            raise LoadError(f"the server did not answer within {PATIENCE:.0f} s") from None
        if not chunk:
            raise LoadError("the server closed a connection")
        data += chunk
    return data


def open_sessions(
    port: int,
    names: Iterable[str],
    *,
    version: int,
    clean: bool,
    stack: ExitStack,
    abort: bool = False,
    login: bool = False,
) -> list[socket.socket]:
    """Connections with a successful CONNACK each. `abort`: closed by reset, so that thousands of them
    leave no TIME_WAIT behind. `login`: as the users of these names."""
    opened: list[socket.socket] = []
    pending = list(names)
    while pending:
        batch, pending = pending[:AT_ONCE], pending[AT_ONCE:]
        fresh: list[socket.socket] = []
        for name in batch:
            sock = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            never_paced(sock)
            if abort:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            sock.sendall(frames.connect(name, version=version, clean=clean, login=name if login else ""))
            fresh.append(sock)
        for sock in fresh:
            reply = read_packet(sock)
            if reply[0] != frames.CONNACK or reply[3]:
                raise LoadError(f"CONNECT was refused: {reply.hex()}")
        opened += fresh
    return opened


def never_paced(sock: socket.socket) -> None:
    """BBR, the default of some systems, paces what it sends; on loopback that would only delay the load."""
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
    except OSError:
        return  # not built into this kernel: then the system's default it is, which `machine` reports


def subscribe(sock: socket.socket, filters: Sequence[str], *, qos: int, version: int, pairs: frames.Pairs = ()) -> None:
    """Subscribes and waits for every SUBACK."""
    for start in range(0, len(filters), SUBSCRIPTIONS_PER_PACKET):
        part = filters[start : start + SUBSCRIPTIONS_PER_PACKET]
        sock.sendall(frames.subscribe(1, part, qos=qos, version=version, pairs=pairs))
        reply = read_packet(sock)
        if reply[0] != frames.SUBACK or any(code != qos for code in reply[-len(part) :]):
            raise LoadError(f"SUBSCRIBE was refused: {reply.hex()}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Which socket sends which bytes, in turn and for ever."""

    fds: list[int]
    frames: list[bytes]
    write_length: int
    """Length of each of `frames`."""
    per_write: int
    """Messages in each of `frames`."""
    frame_length: int
    """Length of one message as the subscriber receives it."""
    id_offset: int
    publishers: int


def topic_names(job: Job) -> list[str]:
    """The topics of the load, all of the same length so that messages can be counted by length."""
    if job.fanout:
        return ["bench/k00"]
    if job.topics:
        return [f"t/{number % job.subscribers:02d}/{number:06d}" for number in range(job.topics)]
    return [f"bench/k{number:02d}" for number in range(job.subscribers // job.copies)]


def filter_of(job: Job, subscriber: int) -> str:
    if job.fanout:
        return "bench/k00"
    return f"t/{subscriber:02d}/#" if job.topics else arriving(job, f"bench/k{subscriber // job.copies:02d}")


def arriving(job: Job, topic: str) -> str:
    """What a topic of the load is called where it arrives."""
    return f"{job.arrives}/{topic.partition('/')[2]}" if job.arrives else topic


def content(job: Job) -> bytes:
    """What is published."""
    if not job.content:
        return BODY
    made = job.content.encode()
    if len(made) != job.size:
        raise LoadError(f"the payload has {len(made)} bytes instead of {job.size}")
    return made


def shown(job: Job) -> list[bytes]:
    """What the subscribers of a topic receive, each in turn."""
    made = [text.encode() for text in job.shown] or [content(job)]
    if len(set(map(len, made))) != 1:
        raise LoadError("what is shown must have one length, or messages cannot be counted by it")
    return made


def _own(body: bytes, publisher: int) -> bytes:
    """Content that no other publisher sends, as long as all have: nothing is gained by having seen it."""
    return body.replace(b"xxxxxxxx", b"%08d" % publisher, 1)


def schedule(job: Job, publishers: Sequence[socket.socket]) -> Schedule:
    """Pre-encodes all that will be sent: round robin over the publishers."""
    topics = topic_names(job)
    fds = [sock.fileno() for sock in publishers]
    count = len(fds)
    body = content(job)

    def encode(topic: str, packet_id: int, payload: bytes = body) -> bytes:
        return frames.publish(topic, payload, qos=job.qos, packet_id=packet_id, version=job.version)

    writes: list[bytes]
    if job.batch > 1:
        if job.qos or job.topics:
            raise LoadError("batches are for QoS 0 and one topic per subscriber")
        # One publisher alone reaches every subscriber; of many, each has its topic.
        step = 1 if count == 1 else 0
        writes = [
            b"".join(encode(topics[(publisher + step * number) % len(topics)], 0) for number in range(job.batch))
            for publisher in range(count)
        ]
    elif job.qos:
        known = {(topic, packet_id): encode(topic, packet_id) for topic in topics for packet_id in range(1, RING + 1)}
        writes = [
            known[topics[publisher % len(topics)], packet_id]
            for packet_id in range(1, RING + 1)
            for publisher in range(count)
        ]
    elif job.topics:
        writes = [encode(topic, 0) for topic in topics]
    else:
        writes = [encode(topics[publisher % len(topics)], 0, _own(body, publisher)) for publisher in range(count)]
    if job.qos and count * RING < 4 * job.window:
        raise LoadError("too few publishers for this window: packet ids would be reused while in flight")
    if len(writes) % count:
        raise LoadError("the number of topics must be a multiple of the number of publishers")
    return Schedule(
        fds=fds,
        frames=writes,
        write_length=len(writes[0]),
        per_write=job.batch,
        frame_length=len(encode(topics[0], 1, shown(job)[0])),
        id_offset=frames.packet_id_offset(topics[0], job.size, version=job.version),
        publishers=count,
    )


def prove(job: Job, publishers: Sequence[socket.socket], subscribers: Sequence[socket.socket]) -> None:
    """Messages to every subscriber, compared byte by byte, with their whole QoS flow: one each, or as many as make a
    whole number of deliveries, after which every monitor is as it was before.

    Each from a publisher that will send on this topic, if there are enough: it may be the only one that may.
    """
    topics = topic_names(job)
    copies = len(subscribers) if job.fanout else job.copies
    views = shown(job)
    for number, topic in enumerate(topics[: len(subscribers) // copies]):
        publisher = publishers[number % len(publishers)]
        for place in range(job.fewer):
            packet_id = PROOF_ID + place
            publisher.sendall(
                frames.publish(topic, content(job), qos=job.qos, packet_id=packet_id, version=job.version)
            )
            _finish(publisher, job.qos, packet_id)
        for place, sock in enumerate(subscribers[number * copies : (number + 1) * copies]):
            for packet in _delivered(job, publisher, sock):
                _compare(packet, sock, arriving(job, topic), views[place % len(views)], job)


def _delivered(job: Job, publisher: socket.socket, subscriber: socket.socket) -> list[bytes]:
    if not job.subscriber_port:
        return [read_packet(subscriber)]
    # Over several scopes too few or too many may come: all that was sent has been dealt with when a PING is answered.
    publisher.sendall(frames.PINGREQ)
    _expect(publisher, frames.PINGRESP)
    subscriber.sendall(frames.PINGREQ)
    packets = list(iter(partial(read_packet, subscriber), frames.PINGRESP))
    if len(packets) != job.more:
        raise LoadError(f"of {job.fewer} messages {len(packets)} arrived instead of {job.more}")
    return packets


def prove_silence(barred: Sequence[socket.socket]) -> None:
    """Nothing was ever sent to these: the answer to a PING is the next packet."""
    for sock in barred:
        sock.settimeout(PATIENCE)
        sock.sendall(frames.PINGREQ)
        got = read_packet(sock)
        if got != frames.PINGRESP:
            raise LoadError(f"somebody who may read nothing received {got[:40].hex()}...")


def speak(job: Job, publishers: Sequence[socket.socket]) -> None:
    """One message of each, with QoS 1 so that it has certainly been dealt with."""
    data = frames.publish(topic_names(job)[0], content(job), qos=1, packet_id=PROOF_ID, version=job.version)
    for sock in publishers:
        sock.sendall(data)
        reply = read_packet(sock)
        if reply[0] != frames.PUBACK or reply[2:4] != PROOF_ID.to_bytes(2, "big"):
            raise LoadError(f"a message was not acknowledged: {reply.hex()}")


def _finish(publisher: socket.socket, qos: int, packet_id: int) -> None:
    if qos == 1:
        _expect(publisher, frames.answer(frames.PUBACK, packet_id))
    elif qos == 2:
        _expect(publisher, frames.answer(frames.PUBREC, packet_id))
        publisher.sendall(frames.answer(frames.PUBREL, packet_id))
        _expect(publisher, frames.answer(frames.PUBCOMP, packet_id))


def _compare(packet: bytes, sock: socket.socket, topic: str, payload: bytes, job: Job) -> None:
    """Under the right name; with the right payload, or with another one of the same length that can be printed."""
    expected = frames.publish(topic, payload, qos=job.qos, packet_id=0, version=job.version)
    packet_id = 0
    if job.qos:
        place = frames.packet_id_offset(topic, job.size, version=job.version)
        packet_id = int.from_bytes(packet[place : place + 2], "big")
        expected = expected[:place] + packet[place : place + 2] + expected[place + 2 :]
    same = packet == expected
    if job.rewritten:
        head = len(expected) - len(payload)
        printable = all(byte in PRINTABLE for byte in packet[head:])
        same = len(packet) == len(expected) and packet[:head] == expected[:head] and printable and packet != expected
    if not same:
        raise LoadError(f"a subscriber received {packet[:40].hex()}... instead of {expected[:40].hex()}...")
    if job.qos == 1:
        sock.sendall(frames.answer(frames.PUBACK, packet_id))
    elif job.qos == 2:
        sock.sendall(frames.answer(frames.PUBREC, packet_id))
        _expect(sock, frames.answer(frames.PUBREL, packet_id))
        sock.sendall(frames.answer(frames.PUBCOMP, packet_id))


def _expect(sock: socket.socket, expected: bytes) -> None:
    packet = read_packet(sock)
    if packet != expected:
        raise LoadError(f"the server answered {packet.hex()} instead of {expected.hex()}")
