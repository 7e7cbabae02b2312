"""Two node processes on one PostgreSQL server: a key that one has made the other hands out, until it is revoked."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Iterator

import aiomqtt
import httpx
import pytest

import postgres
from harness import PATIENCE
from keys.making import entropy
from node.test_two_nodes import Times
from reliability.nodes import FILE, Node, pair
from tidegate.keys import Keychain, PrivateKey, key_id, new_master, open_message, read_key

MARY = PrivateKey.generate(entropy("mary"))


@pytest.fixture(scope="module")
def server() -> Iterator[postgres.Server]:
    with postgres.running() as server:
        yield server


@pytest.fixture(scope="module")
def two(server: postgres.Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Node, Node]]:
    folder = tmp_path_factory.mktemp("keys")
    master = folder / "master.key"
    master.write_text(new_master(os.urandom))
    master.chmod(0o600)
    text = FILE.replace('"plain:secret"', f'"plain:secret", public_key: "{MARY.public}"') + (
        '  - {id: key_set, subject: "*", topic: "key_set/#", action: [read, write]}\n'
        'keys: {protect: ["key_set/#"]}\n'
        f"master_key: {{file: {master}}}\n"
    )
    with pair(server, folder, text=text, other=text) as both:
        yield both


async def sealed(by: aiomqtt.Client, to: aiomqtt.Client, topic: str) -> bytes:
    """A message as it is received."""
    await by.publish(topic, b"clear", qos=1)
    async with asyncio.timeout(PATIENCE):
        message = await anext(to.messages)
    assert isinstance(message.payload, bytes)
    return message.payload


async def asked(api: httpx.AsyncClient, id: str) -> tuple[str, str] | None:
    """The mark of the request and the answer; None if there is no such key."""
    mark = secrets.token_hex(16)
    answer = await api.get(f"/keys/{id}", params={"request": mark})
    assert answer.status_code in (200, 404), answer.text
    return (mark, answer.text) if answer.status_code == 200 else None


async def test_a_key_of_one_is_handed_out_by_the_other(two: tuple[Node, Node]) -> None:
    times = Times()
    for here, there in (two, two[::-1]):
        async with here.client() as api, here.mqtt() as publisher, here.mqtt() as subscriber:
            token = (await api.post("/tokens", json={"role": "user", "user": "mary"})).json()["token"]
            await subscriber.subscribe("key_set/#", qos=1)
            async with there.client(token) as mary:
                for each in range(3):
                    topic = f"key_set/{here.process.pid}/{each}"
                    payload = await sealed(publisher, subscriber, topic)
                    id = key_id(payload)
                    assert id is not None

                    async def given(id: str = id) -> bool:
                        return await asked(mary, id) is not None

                    async def refused(id: str = id) -> bool:
                        return await asked(mary, id) is None

                    if each == 0:
                        await token_counts(mary)
                    await times("a key that is made", given)
                    found = await asked(mary, id)
                    assert found is not None
                    mark, answer = found
                    chain = Keychain()
                    chain.put(read_key(answer, MARY, reader="user:mary", request=mark), now=0.0)
                    assert open_message(payload, topic, chain, now=0.0) == b"clear"
                    assert (await api.delete(f"/keys/{id}", params={"why": "lost"})).status_code == 200
                    await times("a key that is revoked", refused)
                    # and whoever made it makes another one
                    assert key_id(await sealed(publisher, subscriber, topic)) != id
    times.tell()


async def test_keys_that_are_rotated_at_one_are_rotated_at_the_other(two: tuple[Node, Node]) -> None:
    here, there = two
    async with here.client() as api, there.mqtt() as publisher, there.mqtt() as subscriber:
        await subscriber.subscribe("key_set/#", qos=1)
        first = key_id(await sealed(publisher, subscriber, "key_set/rotated"))
        assert key_id(await sealed(publisher, subscriber, "key_set/rotated")) == first
        for _ in range(2):
            answer = await api.post("/keys/rotate", json={}, params={"why": "suspicion"})
            assert answer.status_code == 200, answer.text

            async def another(before: str | None = first) -> bool:
                return key_id(await sealed(publisher, subscriber, "key_set/rotated")) != before

            await Times()("keys that are rotated", another)
            first = key_id(await sealed(publisher, subscriber, "key_set/rotated"))


async def token_counts(api: httpx.AsyncClient) -> None:
    async with asyncio.timeout(PATIENCE):
        while (await api.get("/me")).status_code != 200:
            await asyncio.sleep(0.05)
