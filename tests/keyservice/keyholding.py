"""People with key pairs, and how they ask a node for keys over raw MQTT."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from typing import Any

from harness import Client, Live
from keys.making import entropy
from tidegate import wire
from tidegate.keys import PrivateKey, ReadKey, key_id, read_key, unseal
from tidegate.policy.control_topics import ANSWER, GET_KEY, PUBLISH_KEY

PAIRS = {name: PrivateKey.generate(entropy(name)) for name in ("nos", "mary", "bob", "carol")}
KEEP = wire.Properties(session_expiry_interval=1000)
_marks = count(1)

HEAD = """
version: 1
node: {name: test, data: data}
listeners: [{url: "mqtt://127.0.0.1:PORT"}]
sys: {interval: 0s}
explain: true
log: {format: json}
"""
KEYS = 'keys: {protect: ["p/#"], end_to_end: ["e/#"]}\n'
POLICIES = """policies:
  - {id: station, subject: "user:nos", topic: "#", action: write}
  - {id: farmers, subject: "role:farmer", topic: "#", action: read}
"""


def people(*leaving_out: str, **roles: str) -> str:
    """A directory: all of `PAIRS` with the role `farmer`, or another one."""
    rows = "".join(
        f'    {name}: {{password: "plain:{name}", roles: [{roles.get(name, "farmer")}], public_key: "{pair.public}"}}\n'
        for name, pair in PAIRS.items()
        if name not in leaving_out
    )
    return f"directory:\n  users:\n{rows}"


def text(*leaving_out: str, keys: str = KEYS, policies: str = POLICIES, head: str = HEAD, **roles: str) -> str:
    return head + keys + policies + people(*leaving_out, **roles)


def mark() -> str:
    return f"request-{next(_marks):016d}"


class Reader:
    """Somebody who is connected."""

    def __init__(self, name: str, client: Client) -> None:
        self.name = name
        self.client = client
        self.answers: list[wire.Publish] = []
        self.messages: list[wire.Publish] = []

    async def subscribe(self, *filters: str) -> list[int]:
        """The reason codes. What comes before these is kept."""
        subscriptions = tuple(wire.Subscription(filter=each, qos=1) for each in filters)
        await self.client.send(wire.Subscribe(packet_id=78, subscriptions=subscriptions))
        while not isinstance(packet := await self.client.receive(), wire.Suback):
            await self._took(packet)
        return list(packet.reasons)

    async def ask(self, topic: str, payload: bytes, **properties: Any) -> int:
        """The reason code of the PUBACK. Answers and messages that come before it are kept."""
        said = wire.Properties(**properties) if properties else wire.NONE
        await self.client.send(wire.Publish(topic=topic, payload=payload, qos=1, packet_id=77, properties=said))
        while not isinstance(packet := await self.client.receive(), wire.Puback):
            await self._took(packet)
        return packet.reason

    async def _took(self, packet: wire.Packet) -> None:
        assert isinstance(packet, wire.Publish), packet
        if packet.qos == 1:
            await self.client.send(wire.Puback(packet_id=packet.packet_id))
        (self.answers if packet.topic == ANSWER else self.messages).append(packet)

    async def answer(self) -> dict[str, Any]:
        """The next answer, as it is."""
        return dict(json.loads((await self.answered()).payload))

    async def answered(self) -> wire.Publish:
        while not self.answers:
            await self._took(await self.client.receive())
        return self.answers.pop(0)

    async def message(self) -> wire.Publish:
        while not self.messages:
            await self._took(await self.client.receive())
        return self.messages.pop(0)

    async def get(self, id: str | None) -> dict[str, Any] | ReadKey:
        """The key, or why there is none."""
        return await self._got(GET_KEY, {"keyId": id})

    async def sealing(self, topic: str) -> dict[str, Any] | ReadKey:
        """The key that seals what is published to a topic."""
        return await self._got(PUBLISH_KEY, {"topic": topic})

    async def _got(self, where: str, what: dict[str, Any]) -> dict[str, Any] | ReadKey:
        request = mark()
        assert await self.ask(where, json.dumps({**what, "request": request}).encode()) == 0
        answer = (await self.answered()).payload
        said: dict[str, Any] = json.loads(answer)
        assert said["request"] == request
        if "error" in said:
            return said
        return read_key(answer, PAIRS[self.name].text(), reader=f"user:{self.name}", request=request)

    async def key(self, id: str | None) -> ReadKey:
        found = await self.get(id)
        assert isinstance(found, ReadKey), found
        return found

    async def refused(self, id: str | None) -> tuple[str, str | None]:
        """Why a key is not given: the problem, and the rule."""
        found = await self.get(id)
        assert isinstance(found, dict), found
        assert found["error"]
        return found["problem"], found["rule"]

    async def opened(self, message: wire.Publish) -> bytes:
        """What is in a message, with a key that is asked for now."""
        return unseal((await self.key(key_id(message.payload))).secret, message.payload, topic=message.topic)

    async def publish(self, topic: str, payload: bytes, **fields: Any) -> int:
        answer = await self.client.publish(topic, payload, qos=1, **fields)
        assert isinstance(answer, wire.Puback)
        return answer.reason


async def come(node: Live, name: str, *filters: str, client: str = "", **fields: Any) -> Reader:
    """Connected, with answers subscribed to; `filters` first, as what is retained comes at once."""
    found = await node.connect(client or name, username=name, password=name.encode(), **fields)
    reader = Reader(name, found)
    if filters:
        await reader.subscribe(ANSWER, *filters)
    return reader


def clear_bytes(folder: Path, *secrets: bytes) -> list[str]:
    """Which files hold one of these."""
    return [
        f"{path.relative_to(folder)}: {secret!r}"
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        for secret in secrets
        if secret in path.read_bytes()
    ]
