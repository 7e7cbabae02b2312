"""Nodes whose keys are with a key service: what they do with it, and without it while it is away."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from keyservice.keyholding import come, text
from keyservice.test_ktm import authority, ktm
from processes import from_file, on_uvloop, until
from tidegate.errors import Problem
from tidegate.keys import NONCE, Group, ReadKey, TopicKey, key_id, seal, unseal
from tidegate.keyservice.control_commands import RevokeKey, RotateKeys

__all__ = ["authority"]  # the fixture

CLEAR = b'{"value":21.5}'
SERVICE = 'keys: {protect: ["p/#"], end_to_end: ["e/#"], ktm: {url: "tls://127.0.0.1:%d", cert: %s, key: %s, ca: %s}}\n'


def keys(port: int, folder: Path, name: str) -> str:
    return SERVICE % (port, folder / f"{name}.pem", folder / f"{name}.key", folder / "ca.pem")


def sealed(key: ReadKey, topic: str, payload: bytes = CLEAR) -> bytes:
    """As a publisher seals it."""
    whole = TopicKey(
        id=key.id, group=Group.of(filter="#", conditions=[]), secret=key.secret, made=0, valid_until=1, readable_until=1
    )
    return seal(whole, payload, topic=topic, nonce=os.urandom(NONCE))


@on_uvloop
async def test_what_is_sealed_at_one_node_is_read_with_a_key_from_another(tmp_path: Path, authority: Path) -> None:
    for name in ("ktm", "a", "b"):
        (tmp_path / name).mkdir()
    with ktm(tmp_path / "ktm", authority) as service:
        first, second = (text(keys=keys(service.port, authority, name)) for name in ("node-a", "node-b"))
        async with from_file(tmp_path / "a", first) as a, from_file(tmp_path / "b", second) as b:
            await until(lambda: all(node.node.keys.state()["trouble"] is None for node in (a, b)), 20)
            nos, mary, elsewhere = await come(a, "nos"), await come(a, "mary", "p/#"), await come(b, "mary", "q")
            assert await nos.publish("p/x", CLEAR) == 0
            message = await mary.message()
            key = await elsewhere.key(key_id(message.payload))
            assert unseal(key.secret, message.payload, topic="p/x") == CLEAR


@on_uvloop
async def test_a_node_goes_on_while_the_service_is_away(tmp_path: Path, authority: Path) -> None:
    for name in ("ktm", "a"):
        (tmp_path / name).mkdir()
    with ktm(tmp_path / "ktm", authority) as service:
        file = text(keys=keys(service.port, authority, "node-a"))
        async with from_file(tmp_path / "a", file) as a:
            node = a.node
            await until(lambda: node.keys.state()["trouble"] is None, 20)
            nos, mary = await come(a, "nos", "q"), await come(a, "mary", "p/#", "e/#")
            mine = await nos.sealing("e/x")
            assert isinstance(mine, ReadKey)
            service.kill()
            await until(lambda: node.keys.state()["trouble"] is not None, 20)
            assert await nos.publish("p/x", CLEAR) == 0
            assert await mary.opened(await mary.message()) == CLEAR, "its own keys it has"
            other = await nos.sealing("e/x")
            assert isinstance(other, dict)
            assert other["problem"] == "unavailable"
            assert await nos.publish("e/x", sealed(mine, "e/x")) == 0, "what was given seals until its end"
            message = await mary.message()
            assert (await mary.refused(mine.id))[0] == "unavailable"
            service.again()
            await until(lambda: node.keys.state()["trouble"] is None, 20)
            assert await mary.opened(message) == CLEAR


@on_uvloop
async def test_no_node_sees_what_is_sealed_end_to_end(tmp_path: Path, authority: Path) -> None:
    for name in ("ktm", "a"):
        (tmp_path / name).mkdir()
    with ktm(tmp_path / "ktm", authority) as service:
        file = text(keys=keys(service.port, authority, "node-a"))
        async with from_file(tmp_path / "a", file) as a:
            await until(lambda: a.node.keys.state()["trouble"] is None, 20)
            nos, mary, bob = await come(a, "nos", "q"), await come(a, "mary", "e/#"), await come(a, "bob", "e/#")
            key = await nos.sealing("e/x")
            assert isinstance(key, ReadKey)
            assert 0 < key.seconds <= 300
            assert await nos.publish("e/x", b'{"keyId":"%b","data":"in clear"}' % key.id.encode()) == 0x87
            assert await nos.publish("e/x", sealed(key, "e/x")) == 0
            assert await mary.opened(await mary.message()) == CLEAR
            assert await bob.opened(await bob.message()) == CLEAR
            topic_keys = a.node.keys.topic_keys
            assert topic_keys is not None
            assert not topic_keys.listed(), "the node was never told the secret"
            # bob is gone: what he has seals nothing any more, and is not what seals next
            await a.reload(text("bob", keys=keys(service.port, authority, "node-a")).replace("PORT", str(a.port)))
            assert await nos.publish("e/x", sealed(key, "e/x")) == 0x87
            found = await nos.sealing("e/x")
            assert isinstance(found, ReadKey)
            assert found.id != key.id


@on_uvloop
async def test_a_key_that_only_the_service_has_is_revoked_and_rotated(tmp_path: Path, authority: Path) -> None:
    for name in ("ktm", "a", "b"):
        (tmp_path / name).mkdir()
    with ktm(tmp_path / "ktm", authority) as service:
        first, second = (text(keys=keys(service.port, authority, name)) for name in ("node-a", "node-b"))
        async with from_file(tmp_path / "a", first) as a, from_file(tmp_path / "b", second) as b:
            await until(lambda: all(node.node.keys.state()["trouble"] is None for node in (a, b)), 20)
            nos, mary = await come(a, "nos", "q"), await come(a, "mary", "e/#")
            key = await nos.sealing("e/x")
            assert isinstance(key, ReadKey)
            assert await nos.publish("e/x", sealed(key, "e/x")) == 0
            message = await mary.message()
            assert await b.node.keys.revoked(RevokeKey(id=key.id, by="test", dry_run=True)) == {
                "revoked": key.id,
                "key": None,
            }
            assert await mary.opened(message) == CLEAR
            assert await b.node.keys.revoked(RevokeKey(id=key.id, by="test")) == {"revoked": key.id}
            while await nos.publish("e/x", sealed(key, "e/x")) == 0:  # the other node is told by the service
                await mary.message()
            assert (await mary.refused(key.id))[0] == "unknown"
            other = await nos.sealing("e/x")
            assert isinstance(other, ReadKey)
            assert other.id != key.id
            with pytest.raises(Problem, match="there is no key"):
                await a.node.keys.revoked(RevokeKey(id="nothing", by="test"))
            assert await nos.publish("e/x", sealed(other, "e/x")) == 0
            a.node.keys.rotated(RotateKeys(filter="e/#", by="test"))
            assert await nos.publish("e/x", sealed(other, "e/x")) == 0x87
