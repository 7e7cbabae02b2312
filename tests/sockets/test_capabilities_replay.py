"""Proofs that come again, or late: over another connection, after a crash, after a change of the rules."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from harness import Client
from processes import File, Process, Served, from_file, on_uvloop, until
from sockets.acts import ALL, asking, come, go, inbox, payloads, policy, say
from sockets.holding import OTHER, Holder, answer, denied, gated
from tidegate import wire
from tidegate.store import sqlite

EACH: dict[str, Any] = {"proof": "per-message"}
RULES = "$tidegate/rules"


async def reason(end: Client, topic: str, payload: bytes, *asks: tuple[str, str], **fields: Any) -> int:
    return await say(end, topic, payload, *asks, qos=1, **fields)


# -- late ----------------------------------------------------------------------------------------------------------


@on_uvloop
async def test_a_message_that_was_signed_before_the_connection_broke_is_not_lost(tmp_path: Path) -> None:
    """It comes with DUP, or for the first time, over a connection whose CONNECT has a higher counter."""
    second = 10**9  # counters that are times are far apart
    async with from_file(tmp_path, gated(tmp_path)) as node:
        holder, bob = Holder(**EACH), await come(node, "bob")
        await bob.subscribe("#")
        mary = await come(node, None, client="m", asks=holder.shows("m", second), stays=True)
        sent, queued = holder.write("t", b"sent", 2 * second), holder.write("t", b"queued", 3 * second)
        await go(node, mary)
        mary = await come(node, None, client="m", asks=holder.shows("m", 9 * second), stays=True)
        assert await reason(mary, "t", b"sent", sent, dup=True) == 0
        assert await reason(mary, "t", b"queued", queued) == 0
        assert await payloads(bob) == [b"sent", b"queued"]
        for body, proof in ((b"sent", sent), (b"queued", queued)):
            assert await reason(mary, "t", body, proof) == 0x87
        assert await inbox(bob) == []


@on_uvloop
async def test_a_connect_or_subscribe_that_somebody_held_back_is_worth_nothing_later(tmp_path: Path) -> None:
    """Else whoever kept it from the node could take the session over with it."""
    async with from_file(tmp_path, gated(tmp_path)) as node:
        holder = Holder(**EACH)
        kept, read = holder.shows("m", 1), holder.read("t", counter=2)
        mary = await come(node, None, client="m", asks=holder.shows("m", 3), stays=True)
        await come(node, None, client="m", asks=kept, stays=True, expect=0x87)
        assert await denied(node, holder.rule, "connect", "too old")
        assert (await mary.subscribe("t", properties=read)).reasons == (0x87,)
        await mary.silent()


@on_uvloop
async def test_nobody_uses_up_the_counters_of_another_issuer(tmp_path: Path) -> None:
    """Whose ids may be the same: issuers do not know each other."""
    visitors = Ed25519PrivateKey.generate()
    file = tmp_path / "visitors.pub"
    file.write_bytes(visitors.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    written = json.loads(gated(tmp_path, data=True))
    written["capabilities"]["issuers"].append({"name": "visitors", "keys": str(file)})
    mary = Holder(jti="shared")
    eve = Holder(jti="shared", iss="visitors", subject="user:eve", key=OTHER, issuer=visitors)
    first = mary.shows("m", 7)
    async with from_file(tmp_path, json.dumps(written)) as node:
        await come(node, None, client="e", asks=eve.shows("e", 2**63 - 1))
        await come(node, None, client="m", asks=first)
    async with from_file(tmp_path, json.dumps(written)) as node:
        await come(node, None, client="m", asks=first, expect=0x87)
        await come(node, None, client="m", asks=mary.shows("m", 8))


# -- repeated ------------------------------------------------------------------------------------------------------


@on_uvloop
async def test_a_repetition_does_not_bring_back_rules_that_were_removed_since(tmp_path: Path) -> None:
    policies = [policy("w", "#", "write"), policy("r", "t/other", "read")]
    async with from_file(tmp_path, gated(tmp_path, *policies, rules={"allow": ["t/#"]}, **EACH)) as node:
        holder = Holder("write:t/#", f"write:{RULES}")
        mary, alice = await holder.come(node, stays=True), await come(node, "alice")
        await alice.subscribe("t/#")
        opens = json.dumps([{"id": "r", "topic": "t/#", "subject": "user:alice"}]).encode()
        closes = b'[{"id": "r", "remove": true}]'
        first = holder.write(RULES, opens)

        async def heard() -> bool:
            assert await reason(mary, "t/x", b"x", holder.write("t/x")) in (0, 0x10)
            return await payloads(alice) == [b"x"]

        assert await reason(mary, RULES, opens, first) == 0
        assert await heard()
        assert await reason(mary, RULES, closes, holder.write(RULES, closes)) == 0
        assert not await heard()
        assert await reason(mary, RULES, opens, first, dup=True) == 0  # acknowledged, and that is all
        assert not await heard()
        await go(node, mary)
        mary = await holder.come(node, stays=True)
        for _ in range(20):  # nor is it counted against the rate
            assert await reason(mary, RULES, opens, first, dup=True) == 0
        assert not await heard()
        assert await reason(mary, RULES, opens, holder.write(RULES, opens)) == 0
        assert await heard()


@on_uvloop
async def test_a_repetition_of_rules_that_were_refused_is_judged_anew(tmp_path: Path) -> None:
    """It would else be acknowledged though nobody has taken it."""
    closed = gated(tmp_path, rules={"allow": ["other"]}, **EACH)
    async with from_file(tmp_path, closed) as node:
        holder = Holder(f"write:{RULES}")
        mary = await holder.come(node, stays=True)
        body = json.dumps([{"id": "r", "topic": "t", "subject": "user:alice"}]).encode()
        proof = holder.write(RULES, body)
        for dup in (False, True):
            assert await reason(mary, RULES, body, proof, dup=dup) == 0x87
        await node.reload(gated(tmp_path, rules={"allow": ["t"]}, **EACH))
        assert await reason(mary, RULES, body, proof, dup=True) == 0
        assert len(node.node.scopes["main"].publishers) == 1


# -- wills ---------------------------------------------------------------------------------------------------------


def will(*asks: tuple[str, str]) -> wire.Will:
    return wire.Will(topic="t", payload=b"x", qos=0, retain=False, properties=asking(*asks))


@pytest.mark.parametrize("proven", [False, True])
@on_uvloop
async def test_a_will_that_was_not_proven_does_not_fire_where_proofs_are_demanded_now(
    tmp_path: Path, proven: bool
) -> None:
    """Also if it had a proof that nobody looked at."""
    async with from_file(tmp_path, gated(tmp_path, **(EACH if proven else {}))) as node:
        holder, bob = Holder(), await come(node, "bob")
        await bob.subscribe("#")
        mary = await holder.come(node, will=will(holder.write("t", qos=0)))
        await node.reload(gated(tmp_path, explain=True, **EACH))
        await go(node, mary)
        assert await payloads(bob) == [b"x"] * proven
        assert await denied(node, holder.rule, "write", "no proof") is not proven


@on_uvloop
async def test_nor_for_whoever_came_again_with_a_stricter_capability(tmp_path: Path) -> None:
    async with from_file(tmp_path, gated(tmp_path)) as node:
        bob = await come(node, "bob")
        await bob.subscribe("#")
        mary = await Holder().come(node, will=will())
        stricter = Holder(**EACH)
        assert isinstance(await stricter.again(mary), wire.Auth)
        await go(node, mary)
        assert await inbox(bob) == []
        assert await denied(node, stricter.rule, "write", "no proof")


# -- crashes -------------------------------------------------------------------------------------------------------


class Disk:
    """Commits wait while it is held."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._free = threading.Event()
        self._free.set()
        write = sqlite.write

        def written(*arguments: Any) -> None:
            self._free.wait()
            write(*arguments)

        monkeypatch.setattr(sqlite, "write", written)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        self._free.clear()
        try:
            yield
        finally:
            self._free.set()


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def used(node: Served, holder: Holder) -> int:
    """The highest counter that the node has heard of."""
    return node.node.register._used.get(f"ward\n{holder.id}", (0, 0.0))[0]


async def waits(node: Served, holder: Holder, counter: int, witness: Client, end: Client) -> None:
    """The node has taken the counter, has ended its turn, and has said nothing."""
    await until(lambda: used(node, holder) == counter)
    await witness.silent()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await end.reader.readexactly(1)


def connecting(holder: Holder, client: str, counter: int, **fields: Any) -> wire.Connect:
    properties = asking(*holder.shows(client, counter))
    return wire.Connect(version=5, client_id=client, clean_start=True, keep_alive=0, properties=properties, **fields)


def subscribing(holder: Holder, topic: str, counter: int) -> wire.Subscribe:
    subscriptions = (wire.Subscription(filter=topic, qos=0),)
    return wire.Subscribe(packet_id=5, subscriptions=subscriptions, properties=holder.read(topic, counter=counter))


@on_uvloop
async def _held(folder: Path, disk: Disk) -> None:
    async with from_file(folder, gated(folder, data=True)) as node:
        holder, witness = Holder(**EACH), await come(node, "bob")
        mary = await node.dial(node.port)
        with disk.held():
            await mary.send(connecting(holder, "m", 1))
            await waits(node, holder, 1, witness, mary)
        assert (await mary.expect(wire.Connack)).reason == 0
        with disk.held():
            await mary.send(subscribing(holder, "t", 2))
            await mary.send(wire.Unsubscribe(packet_id=6, filters=("t",)))
            await waits(node, holder, 2, witness, mary)
        assert (await mary.expect(wire.Suback)).reasons == (0,)
        assert (await mary.expect(wire.Unsuback)).reasons == (0,)
        # a will has a proof of its own, also where the connection is proven by a challenge
        other = await holder.begins(node, "o", will=will(holder.write("t", counter=3, qos=0)))
        asked = (await other.expect(wire.Auth)).properties.authentication_data or b""
        with disk.held():
            await answer(other, holder.responds(asked, "o"))
            await waits(node, holder, 3, witness, other)
        assert (await other.expect(wire.Connack)).reason == 0
        assert not node.node._bugs


def test_nobody_is_told_of_a_proof_before_its_counter_is_safe(tmp_path: Path, disk: Disk) -> None:
    _held(tmp_path, disk)


@on_uvloop
async def _changed(folder: Path, disk: Disk) -> None:
    async with from_file(folder, gated(folder, data=True)) as node:
        holder, witness = Holder(), await come(node, "bob")
        mary, gone = await node.dial(node.port), await node.dial(node.port)
        with disk.held():
            await mary.send(connecting(holder, "m", 1))
            await waits(node, holder, 1, witness, mary)
            await gone.send(connecting(holder, "n", 2))
            await waits(node, holder, 2, witness, gone)
            gone.abort()
            revoking = asyncio.create_task(node.node.revoke(holder.id))
            await until(lambda: holder.id in node.node.register.revoked)
        await revoking
        assert (await mary.expect(wire.Connack)).reason == 0x89
        assert await mary.closed() == b""
        await come(node, None, client="m", asks=holder.shows("m"), expect=0x87)
        assert node.node.scopes["main"].connected == 1
        assert not node.node._bugs


def test_what_changes_while_the_counter_is_written_counts(tmp_path: Path, disk: Disk) -> None:
    """It was let in by rules that are not in force any more: it has to come again."""
    _changed(tmp_path, disk)


@pytest.mark.parametrize("kind", ["connect", "subscribe", "publish"])
@on_uvloop
async def test_what_was_acknowledged_is_not_taken_again_after_kill_9(tmp_path: Path, kind: str) -> None:
    holder = Holder(**EACH)
    file = File(tmp_path, gated(tmp_path, ALL, data=True))
    publish = wire.Publish(topic="t", payload=b"x", qos=1, packet_id=5, properties=asking(holder.write("t", counter=2)))

    async def arrive(counter: int, expect: int = 0) -> Client:
        end = Client(*await asyncio.open_connection("127.0.0.1", file.ports["PORT"]))
        await end.send(connecting(holder, "m", counter))
        assert (await end.expect(wire.Connack)).reason == expect
        return end

    async def tried(end: Client) -> int:
        if kind == "subscribe":
            await end.send(subscribing(holder, "t", 2))
            return (await end.expect(wire.Suback)).reasons[0]
        await end.send(publish)
        return (await end.expect(wire.Puback)).reason

    node = Process(file)
    try:
        await asyncio.to_thread(node.wait_until_it_accepts)
        mary = await arrive(1)
        if kind != "connect":
            assert await tried(mary) < 0x80
        node.kill()
        await mary.closed()
        mary.writer.close()
        node = Process(file)
        await asyncio.to_thread(node.wait_until_it_accepts)
        again = await arrive(1, expect=0x87)
        mary = await arrive(9)
        if kind != "connect":
            assert await tried(mary) == 0x87
        again.writer.close()
        mary.writer.close()
    finally:
        node.kill()
