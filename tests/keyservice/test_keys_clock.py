"""Keys and clocks: a node whose clock is set, and one that is asked while nothing else happens. Without sockets."""

from __future__ import annotations

from typing import Any

import pytest

from keys.making import entropy
from keyservice.keyholding import mark
from pure import End, World
from tidegate import wire
from tidegate.config import parse
from tidegate.errors import Problem
from tidegate.keys import PrivateKey, ReadKey, key_id, read_key, unseal
from tidegate.keyservice.control_commands import GetKey
from tidegate.keyservice.release import BURST, RATE, KeyRelease
from tidegate.keyservice.topic_keys import MANY, TopicKeys

MARY = PrivateKey.generate(entropy("mary"))
TEXT = f"""
version: 1
node: {{name: n}}
listeners: [{{url: "mqtt://127.0.0.1:1883", anonymous: true}}]
policies: open
keys: {{protect: ["p/#"], rotate: 5m, overlap: 1h}}
directory: {{users: {{mary: {{password: "plain:m", public_key: "{MARY.public}"}}}}}}
"""


class Listening:
    """Stands for the audit."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []

    def handed(self, link: Any, topic: str, id: str) -> None:
        self.told.append((topic, id))


class Node:
    """A node in memory that hands out keys."""

    def __init__(self) -> None:
        config = parse(TEXT, "test.yaml")
        self.world = World(rules=config.built.rules)
        self.audit = Listening()
        self.topic_keys = TopicKeys(self.world.site, config.keys, None, None)
        self.world.scope.path.protector.keyring = self.topic_keys
        self.release = KeyRelease(
            self.topic_keys,
            self.world.realm,
            self.audit,  # type: ignore[arg-type]
            config=lambda: config,
            service=lambda: None,
            capability=lambda request: None,
            turn=lambda call, *args: call(*args),
        )
        self.source = self.world.peer("source")
        self.end = self.world.peer("end", username="mary")
        self.end.subscribe("p/#")
        self.end.take()

    def message(self) -> bytes:
        self.source.send(wire.Publish(topic="p/x", payload=b"clear"))
        (found,) = self.end.messages()
        assert isinstance(found.payload, bytes)
        return found.payload

    async def get(self, payload: bytes) -> ReadKey:
        """Over HTTP; Problem if there is no such key."""
        self.world.turn()
        request = mark()
        try:
            asked = GetKey(user="mary", key=key_id(payload) or "", request=request, level="plain", address="127.0.0.1")
            answer = await self.release.get(asked)
        finally:
            self.world.turn()
        return read_key(answer, MARY.text(), reader="user:mary", request=request)


async def test_a_clock_that_is_put_forward_ends_keys_early() -> None:
    node = Node()
    first = node.message()
    key = await node.get(first)
    assert unseal(key.secret, first, topic="p/x") == b"clear"
    node.world.wall += 301
    second = node.message()
    assert key_id(second) != key_id(first)
    assert (await node.get(first)).seconds < 3600
    node.world.wall += 2 * 3600
    with pytest.raises(Problem) as caught:
        await node.get(first)
    assert caught.value.problem == "unknown"
    assert key_id(node.message()) not in (key_id(first), key_id(second))


@pytest.mark.parametrize("back", [1, 600, 86400, 10 * 366 * 86400])
async def test_a_clock_that_is_put_back_lengthens_no_key(back: float) -> None:
    node = Node()
    first = node.message()
    before = (await node.get(first)).seconds
    node.world.wall -= back
    assert key_id(node.message()) == key_id(first)
    assert (await node.get(first)).seconds <= before
    node.world.turn(301)
    assert key_id(node.message()) != key_id(first), "it seals no longer than it would have"
    node.world.turn(3600)
    with pytest.raises(Problem):
        await node.get(first)


async def test_a_clock_that_goes_to_and_fro_brings_no_key_back() -> None:
    node = Node()
    first = node.message()
    node.world.wall += 2 * 3600
    second = node.message()
    node.world.wall -= 2 * 3600
    for _ in range(3):
        with pytest.raises(Problem):
            await node.get(first)
        assert key_id(node.message()) == key_id(second)
        node.world.turn(10)


async def test_requests_are_slowed_down_by_a_clock_that_nobody_sets() -> None:
    node = Node()
    payload = node.message()
    for _ in range(int(BURST)):
        await node.get(payload)
    with pytest.raises(Problem) as caught:
        await node.get(payload)
    assert caught.value.problem == "unavailable"
    node.world.wall += 3600
    with pytest.raises(Problem):
        await node.get(payload)
    node.world.wall -= 3600
    node.world.turn(1)
    for _ in range(int(RATE)):
        await node.get(payload)
    with pytest.raises(Problem):
        await node.get(payload)
    assert len(node.audit.told) == int(BURST) + int(RATE) == node.release.handed


async def test_who_was_given_the_present_key_is_known() -> None:
    node = Node()
    payload = node.message()
    await node.get(payload)
    (group,) = node.topic_keys.ring.groups()
    assert node.topic_keys.had_by({"user:mary"}) == {group.id}
    assert node.topic_keys.had_by({"user:bob", "client:end"}) == set()
    node.topic_keys.rotate()
    node.message()
    await node.get(payload)
    assert node.topic_keys.had_by({"user:mary"}) == set(), "that one seals nothing any more"
    id = key_id(node.message())
    assert id is not None
    for number in range(MANY + 1):
        node.topic_keys.given(id, f"user:{number}")
    assert node.topic_keys.had_by({"user:bob"}) == {group.id}, "it was given to too many to tell"
    node.world.turn(400)
    node.topic_keys.tidy()
    assert node.topic_keys.had_by({"user:bob"}) == set()


async def test_an_answer_after_its_reader_has_gone() -> None:
    node = Node()
    end: End = node.end
    end.subscribe("$tidegate/keys/answer", qos=1)
    end.take()
    payload = node.message()
    asked = b'{"keyId":"%b","request":"%b"}' % ((key_id(payload) or "").encode(), mark().encode())
    end.feed(wire.encode(wire.Publish(topic="$tidegate/keys/get", payload=asked), wire.V5))
    end.lose()
    assert node.world.bugs == []
