"""A broker and key service that does what a test says, one packet at a time, and notes what it was asked."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

from harness import PATIENCE, free_port
from harness import Client as Speaker
from keys.making import entropy, topic_key
from tidegate import wire
from tidegate.client import Client, PrivateKey
from tidegate.keys import PublicKey, TopicKey, seal, wrap

MARY = PrivateKey.generate(entropy("mary"))
ANSWER = "$tidegate/keys/answer"
K1, K2, K3 = (topic_key(f"k{number}", fill=number) for number in (1, 2, 3))
Question = dict[str, Any]


def sealed(key: TopicKey, payload: bytes, topic: str = "flowers/1") -> bytes:
    return seal(key, payload, topic=topic, nonce=entropy(payload)(12))


class Peer:
    """The other side of the newest connection."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.questions: asyncio.Queue[Question] = asyncio.Queue()
        self.published: asyncio.Queue[wire.Publish] = asyncio.Queue()
        self.connects: list[wire.Connect] = []
        self.subscribed: list[str] = []
        self.refuse: set[str] = set()
        self.speaker: Speaker
        self._pid = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        speaker = self.speaker = Speaker(reader, writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            await self._connect(speaker)
            while True:
                await self._packet(speaker, await self._next(speaker))
        writer.close()

    async def _connect(self, speaker: Speaker) -> None:
        head = await speaker.reader.readexactly(2)
        assert head[0] == 0x10
        assert head[1] < 128, "a short CONNECT"
        body = await speaker.reader.readexactly(head[1])
        speaker.version = wire.V5 if body[6] == 5 else wire.V311
        packet = wire.decode(head[0], body, speaker.version)
        assert isinstance(packet, wire.Connect)
        self.connects.append(packet)
        await speaker.send(wire.Connack(session_present=False, reason=0))

    async def _next(self, speaker: Speaker) -> wire.Packet:
        head = await speaker.reader.readexactly(1)
        length = shift = 0
        while True:
            byte = (await speaker.reader.readexactly(1))[0]
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 128:
                break
        return wire.decode(head[0], await speaker.reader.readexactly(length), speaker.version)

    async def _packet(self, speaker: Speaker, packet: wire.Packet) -> None:
        match packet:
            case wire.Subscribe():
                self.subscribed += [each.filter for each in packet.subscriptions]
                reasons = tuple(each.qos for each in packet.subscriptions)
                await speaker.send(wire.Suback(packet_id=packet.packet_id, reasons=reasons))
            case wire.Publish():
                if packet.topic.startswith("$tidegate/keys/"):
                    question = json.loads(packet.payload) | {"at": packet.topic}
                    self.questions.put_nowait(question)
                else:
                    self.published.put_nowait(packet)
                if packet.qos:
                    reason = 0x87 if packet.topic in self.refuse else 0
                    await speaker.send(wire.Puback(packet_id=packet.packet_id, reason=reason))
            case wire.Disconnect():
                speaker.writer.close()
            case _:
                pass

    async def send(self, payload: bytes, topic: str = "flowers/1", **fields: Any) -> None:
        await self.speaker.send(wire.Publish(topic=topic, payload=payload, **fields))

    async def asked(self) -> Question:
        async with asyncio.timeout(PATIENCE):
            return await self.questions.get()

    def not_asked(self) -> None:
        assert self.questions.empty(), self.questions.get_nowait()

    async def give(
        self,
        question: Question,
        key: TopicKey,
        *,
        seconds: float = 60.0,
        reader: str = "user:mary",
        public: PublicKey = MARY.public,
    ) -> bytes:
        answer = wrap(key, public, reader=reader, request=question["request"], seconds=seconds)
        await self.send(answer, ANSWER)
        return answer

    async def deny(self, question: Question, *, rule: str | None = "p7", problem: str = "denied") -> None:
        text = {"request": question["request"], "error": "you may not read this", "rule": rule, "problem": problem}
        await self.send(json.dumps(text).encode(), ANSWER)


@contextlib.asynccontextmanager
async def peer() -> AsyncIterator[Peer]:
    port = free_port()
    found = Peer(port)
    server = await asyncio.start_server(found.serve, "127.0.0.1", port)
    async with server:
        yield found


@contextlib.asynccontextmanager
async def met(**options: Any) -> AsyncIterator[tuple[Client, Peer]]:
    """Mary's client, connected to a peer."""
    options = {"user": "mary", "private_key": MARY, "patience": PATIENCE} | options
    async with peer() as other, Client("127.0.0.1", port=other.port, **options) as client:
        yield client, other
