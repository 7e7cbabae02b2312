"""An owner stops one reader: from the very next message on, however it comes to him, beside what the file allows."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from api.real import Administrator, administering
from harness import Client
from processes import until
from tidegate import wire
from tidegate.admin.control_commands import MakeToken

FILE = """
version: 1
node: {name: test, data: data}
listeners: [{url: "mqtt://127.0.0.1:PORT"}]
store: sqlite
sys: {interval: 0s}
directory: {users: {mary: {password: "plain:m"}, bob: {password: "plain:b"}, alice: {password: "plain:a"}}}
policies: [{id: p1, subject: "*", topic: "tr/#", action: [read, write]}]
preferences: [{id: filed, user: mary, topic: "tr/#", when: "s.user in ['bob', 'alice']"}]
"""
BOB = {"topic": "tr/#", "effect": "deny", "when": "s.user == 'bob'"}


class Gym:
    def __init__(self, admin: Administrator, mary: str) -> None:
        self.admin = admin
        self.mary = mary

    async def connect(self, user: str, *, clean_start: bool = True) -> Client:
        client = await self.admin.served.socket()
        stays = wire.Properties(session_expiry_interval=1000)
        await client.send(
            wire.Connect(
                version=wire.V5,
                client_id=user,
                clean_start=clean_start,
                keep_alive=0,
                username=user,
                password=user[:1].encode(),
                properties=stays,
            )
        )
        assert (await client.expect(wire.Connack)).reason == 0
        return client

    async def stop(self, body: dict[str, Any] = BOB) -> tuple[str, str]:
        """A preference of mary; its id and ETag."""
        made = await self.admin.ask("POST", "/me/preferences", self.mary, json=body)
        assert made.status_code == 201, made.text
        return made.json()["id"], made.headers["etag"]

    async def allow_again(self, id: str, etag: str) -> None:
        path = f"/me/preferences/{id}"
        gone = await self.admin.ask("DELETE", path, self.mary, headers={"If-Match": etag})
        assert gone.status_code == 200, gone.text


@pytest.fixture
async def gym(tmp_path: Path) -> AsyncIterator[Gym]:
    async with administering(tmp_path, FILE) as admin:
        administration = admin.served.node.administration
        assert administration is not None
        made = await administration.tokens.make(MakeToken(role="user", user="mary", by="test"))
        yield Gym(admin, made["token"])


async def test_live(gym: Gym) -> None:
    mary, bob, alice = [await gym.connect(user) for user in ("mary", "bob", "alice")]
    for client in (bob, alice):
        await client.subscribe("tr/#", qos=1)
    await mary.publish("tr/1", b"1", qos=1)
    assert [(await client.message()).payload for client in (bob, alice)] == [b"1", b"1"]
    id, etag = await gym.stop()
    await mary.publish("tr/1", b"2", qos=1)
    assert (await alice.message()).payload == b"2"
    await bob.silent()
    await gym.allow_again(id, etag)
    await mary.publish("tr/1", b"3", qos=1)
    assert [(await client.message()).payload for client in (bob, alice)] == [b"3", b"3"]


async def test_retained(gym: Gym) -> None:
    mary = await gym.connect("mary")
    await mary.publish("tr/1", b"kept", qos=1, retain=True)
    await gym.stop()
    bob, alice = await gym.connect("bob"), await gym.connect("alice")
    for client in (bob, alice):
        await client.subscribe("tr/#", qos=1)
    assert (await alice.message()).payload == b"kept"
    await bob.silent()


async def test_queued(gym: Gym) -> None:
    mary, bob = await gym.connect("mary"), await gym.connect("bob")
    await bob.subscribe("tr/#", qos=1)
    await bob.disconnect()
    await until(lambda: gym.admin.served.node.scopes["main"].connected == 1)
    await mary.publish("tr/1", b"waits", qos=1)
    assert gym.admin.served.node.scopes["main"].sessions["user:bob", "bob"].queued == 1
    await gym.stop()
    bob = await gym.connect("bob", clean_start=False)
    await bob.silent()


async def test_one_that_fails_forbids_and_the_owner_is_never_forbidden(gym: Gym) -> None:
    mary, alice = await gym.connect("mary"), await gym.connect("alice")
    for client in (mary, alice):
        await client.subscribe("tr/#", qos=1)
    id, etag = await gym.stop({"topic": "tr/#", "effect": "deny", "when": "s.nothing == 1"})
    await mary.publish("tr/1", b"1", qos=1)
    await alice.silent()
    await gym.allow_again(id, etag)
    # what denies has no say over the owner; what only allows others still has
    await gym.stop({"topic": "tr/#", "when": "s.user == 'mary'"})
    await gym.stop({"topic": "tr/#", "effect": "deny"})
    await mary.send(wire.Publish(topic="tr/1", payload=b"2", qos=0, packet_id=0))
    assert (await mary.message()).payload == b"2"
    await alice.silent()


async def test_it_ends_by_itself(gym: Gym) -> None:
    """A preference that expires stops at that moment, without any change."""
    mary, bob = await gym.connect("mary"), await gym.connect("bob")
    await bob.subscribe("tr/#", qos=1)
    expires = time.time() + 1.5
    written = datetime.fromtimestamp(expires, UTC).isoformat()
    await gym.stop({**BOB, "expires": written})
    number = 0
    while time.time() < expires + 0.1:
        number += 1
        await mary.publish("tr/1", b"%d" % number, qos=1)
    await mary.publish("tr/1", b"after", qos=1)
    payloads = []
    while not payloads or payloads[-1] != b"after":
        payloads.append((await bob.message()).payload)
    assert b"1" not in payloads


async def test_what_a_denial_cannot_say(gym: Gym) -> None:
    for body in ({**BOB, "keep": ["/a"]}, {**BOB, "expires": "soon"}, {**BOB, "effect": "perhaps"}):
        refused = await gym.admin.ask("POST", "/me/preferences", gym.mary, json=body)
        assert refused.status_code == 422, refused.text
