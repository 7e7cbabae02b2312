"""Protected topics through a real node: who may read reads, who may not is told the rule."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from client.test_keys import got, received
from harness import PATIENCE, Live, live
from keys.making import entropy
from tidegate import wire
from tidegate.client import (
    V311,
    Client,
    Denied,
    Kem,
    Keychain,
    KeysError,
    PrivateKey,
    Refused,
    key_id,
    open_message,
    read_key,
)
from tidegate.keyservice.control_commands import RevokeKey, RotateKeys

MARY = PrivateKey.generate(entropy("mary"))
BOB = PrivateKey.generate(entropy("bob"), Kem.HYBRID)
STATION = PrivateKey.generate(entropy("station"))
CONFIGURATION = f"""
listeners: [{{url: "mqtt://127.0.0.1:PORT"}}]
explain: true
keys: {{protect: ["campodenno/#"], end_to_end: ["vault/#"]}}
directory:
  users:
    station: {{password: "plain:s", public_key: "{STATION.public}"}}
    mary: {{password: "plain:m", roles: [farmer], public_key: "{MARY.public}"}}
    bob: {{password: "plain:b", public_key: "{BOB.public}"}}
    ann: {{password: "plain:a", roles: [farmer]}}
policies:
  - {{id: send, subject: "user:station", topic: "#", action: write}}
  - {{id: farmers, subject: "role:farmer", topic: "#", action: read}}
  - {{id: everybody, subject: "*", topic: "open/#", action: [read, write]}}
  - {{id: not-bob, subject: "user:bob", topic: "campodenno/#", action: read, effect: deny}}
"""


@contextlib.asynccontextmanager
async def town() -> AsyncIterator[Live]:
    async with live(CONFIGURATION, policies="") as running:
        yield running


def client(node: Live, user: str, private: PrivateKey | None = None, **options: Any) -> Client:
    options.setdefault("patience", PATIENCE)
    return Client("127.0.0.1", port=node.port, user=user, password=user[0], private_key=private, **options)


@pytest.mark.parametrize("version", [5, V311])
async def test_who_may_read_reads(version: int) -> None:
    async with (
        town() as node,
        client(node, "station") as station,
        client(node, "mary", MARY, version=version) as mary,
        client(node, "ann") as ann,
    ):
        await mary.subscribe("campodenno/#")
        await ann.subscribe("campodenno/#")
        for number in range(20):
            await station.publish("campodenno/soil", b"%d" % number)
            await station.publish(f"campodenno/air/{number}", b"%d" % number)
        found = await received(mary, 40)
        assert all(each.error is None and each.sealed_by is not None for each in found)
        assert [int(each.payload) for each in found if each.topic == "campodenno/soil"] == list(range(20))
        for each in await received(ann, 40):
            assert key_id(each.raw.payload) == each.sealed_by
            assert "no private key" in str(each.error)


async def test_who_may_not_is_told_the_rule() -> None:
    """Bob comes by a sealed message some other way; the key is not given to him."""
    async with (
        town() as node,
        client(node, "station") as station,
        client(node, "mary", MARY) as mary,
        client(node, "bob", BOB) as bob,
    ):
        await mary.subscribe("campodenno/#")
        await bob.subscribe("open/#")
        await station.publish("campodenno/soil", b"wet")
        message = await got(mary)
        assert message.payload == b"wet"
        await mary.publish("open/leak", message.raw.payload)
        leaked = await got(bob)
        assert isinstance(leaked.error, Denied)
        assert (leaked.error.rule, leaked.error.problem) == ("not-bob", "denied")
        assert leaked.payload == message.raw.payload
        with pytest.raises(Refused):
            await bob.subscribe("campodenno/#")


async def test_whoever_has_no_key_registered_or_another_one() -> None:
    async with (
        town() as node,
        client(node, "station") as station,
        client(node, "ann", MARY) as ann,
        client(node, "mary", STATION) as mary,
        client(node, "mary", MARY, reader="user:ann") as other,
    ):
        for each in (ann, mary, other):
            await each.subscribe("campodenno/#")
        await station.publish("campodenno/soil", b"wet")
        assert isinstance((await got(ann)).error, Denied)
        for each in (mary, other):
            error = (await got(each)).error
            assert error is not None
            assert "not for this private key" in str(error)


async def test_keys_change_in_mid_stream() -> None:
    async with town() as node, client(node, "station") as station, client(node, "mary", MARY) as mary:
        await mary.subscribe("campodenno/#")
        keys = node.node.keys
        for number in range(60):
            if number % 20 == 10:
                assert keys.rotated(RotateKeys(by="test")) == {"groups": 1}
            await station.publish("campodenno/soil", b"%d" % number)
        found = await received(mary, 60)
        assert [int(each.payload) for each in found] == list(range(60))
        assert len({each.sealed_by for each in found}) == 4
        # what was revoked is not given, and the next message is readable again
        await station.publish("campodenno/soil", b"before")
        last = await got(mary)
        assert last.sealed_by is not None
        async with client(node, "mary", MARY, identifier="late") as late:
            await late.subscribe("open/#")
            await keys.revoked(RevokeKey(id=last.sealed_by, by="test"))
            await mary.publish("open/again", last.raw.payload)
            error = (await got(late)).error
            assert isinstance(error, Denied)
            assert error.problem == "unknown"
        await station.publish("campodenno/soil", b"after")
        assert (await got(mary)).payload == b"after"


async def test_a_replayed_answer_is_ignored() -> None:
    """Somebody records the answer to Mary's first question and shows it again to her next one."""
    async with town() as node, client(node, "station") as station, client(node, "mary", MARY) as mary:
        await mary.subscribe("campodenno/#")
        answers: list[bytes] = []
        await station.publish("campodenno/soil", b"one")
        assert (await got(mary)).payload == b"one"
        asking = mary._key_requester
        assert asking is not None
        take = asking.take

        def recorded(payload: bytes) -> None:
            answers.append(payload)
            for old in answers[:-1]:
                take(old)
            take(payload)
            take(payload)

        asking.take = recorded  # type: ignore[method-assign]
        for number in range(3):
            node.node.keys.rotated(RotateKeys(by="test"))
            await station.publish("campodenno/soil", b"%d" % number)
            message = await got(mary)
            assert (message.payload, message.error) == (b"%d" % number, None)
        assert len(answers) == 3
        assert asking.ignored == 0 + 1 + 2 + 3


async def test_end_to_end() -> None:
    async with (
        town() as node,
        client(node, "station", STATION) as station,
        client(node, "mary", MARY) as mary,
        client(node, "bob", BOB) as bob,
    ):
        await mary.subscribe("vault/#", "campodenno/#")
        await station.publish("vault/1", b"secret", encrypt=True)
        await station.publish("vault/1", b"again", encrypt=True)
        one, two = await received(mary, 2)
        assert (one.payload, two.payload, one.sealed_by == two.sealed_by) == (b"secret", b"again", True)
        with pytest.raises(Refused, match="sealed"):
            await station.publish("vault/1", b"in clear")
        node.node.keys.rotated(RotateKeys(by="test"))
        assert one.sealed_by is not None
        await node.node.keys.revoked(RevokeKey(id=one.sealed_by, by="test"))
        await station.publish("vault/1", b"anew", encrypt=True)
        three = await got(mary)
        assert three.payload == b"anew"
        assert three.sealed_by != one.sealed_by
        await station.publish("campodenno/1", b"by myself", encrypt=True)
        message = await got(mary)
        assert (message.payload, message.error) == (b"by myself", None)
        with pytest.raises(Denied):
            await bob.publish("vault/1", b"forged", encrypt=True)
        # an empty retained message clears: it is not sealed
        await station.publish("vault/2", b"kept", encrypt=True, retain=True)
        assert (await got(mary)).payload == b"kept"
        await station.publish("vault/2", b"", encrypt=True, retain=True)
        assert (await got(mary)).payload == b""


async def test_reading_with_packets_and_two_functions() -> None:
    """What the client does, by hand: the answer comes over the wire as the contract says."""
    async with town() as node, client(node, "station") as station:
        mary = await node.connect("m", username="mary", password=b"m")
        await mary.subscribe("campodenno/#", "$tidegate/keys/answer", qos=1)
        await station.publish("campodenno/soil", b"wet")
        message = await mary.message()
        asked = json.dumps({"keyId": key_id(message.payload), "request": "r" * 22}).encode()
        await mary.send(wire.Publish(topic="$tidegate/keys/get", payload=asked))
        answer = await mary.message()
        chain = Keychain()
        key = read_key(answer.payload, MARY.text(), reader="user:mary", request="r" * 22)
        chain.put(key, now=time.monotonic())
        assert open_message(message.payload, message.topic, chain, now=time.monotonic()) == b"wet"


async def test_a_node_without_keys() -> None:
    async with live() as node, client(node, "mary", MARY) as mary:
        await mary.subscribe("a")
        await mary.publish("a", b'{"keyId":"k","data":""}')
        message = await got(mary)
        assert isinstance(message.error, KeysError)
        with pytest.raises(KeysError):
            await mary.publish("a", b"b", encrypt=True)


async def test_many_readers_at_once() -> None:
    async with town() as node, client(node, "station") as station, contextlib.AsyncExitStack() as stack:
        readers = [
            await stack.enter_async_context(client(node, "mary", MARY, identifier=f"m{number}")) for number in range(5)
        ]
        for each in readers:
            await each.subscribe("campodenno/#")
        await asyncio.gather(*(station.publish(f"campodenno/{n % 7}", b"%d" % n) for n in range(100)))
        for each in readers:
            found = await received(each, 100)
            assert {int(one.payload) for one in found} == set(range(100))
