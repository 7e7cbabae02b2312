"""Keys for the pipeline: which ones seal what it publishes, and which ones open what it takes in."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

from keyservice.keyholding import come
from keyservice.test_keys_ktm import keys
from keyservice.test_ktm import authority, ktm
from node.piping import BODY, POLICIES, b64, piped, record, secret, text, told
from processes import File, Process, on_uvloop
from tidegate.keys import key_id, unseal
from tidegate.keys.key import TopicKey
from tidegate.keys.sealing import NONCE, seal
from tidegate.net.control_socket import ask
from tidegate.session import Context, Subject

__all__ = ["authority"]  # a fixture
CLEAR = b'{"t": 21.5}'


def sealed(answer: dict[str, object], topic: str, payload: bytes = BODY) -> bytes:
    """As Spark does it."""
    found = secret(answer)
    key = TopicKey(
        id=str(answer["keyId"]),
        group=None,  # type: ignore[arg-type]
        secret=found,
        made=0.0,
        valid_until=1.0,
        readable_until=2.0,
    )
    return seal(key, payload, topic=topic, nonce=os.urandom(NONCE))


@on_uvloop
async def test_where_it_may_write_and_under_which_key(tmp_path: Path) -> None:
    async with piped(tmp_path) as node:
        row = await node.row()
        assert await node.key("weather/1", row) == {"open": True}
        denied = await node.key("elsewhere", row)
        assert denied["denied"]
        assert denied["why"]
        first = await node.key("p/weather/1", row)
        assert 290 < first["seconds"] <= 300
        again, other = await node.key("p/weather/1", row), await node.key("p/weather/2", row)
        assert first["keyId"] == again["keyId"] == other["keyId"], "the same readers may read these"
        mary = await come(node, "mary", "p/weather/#")
        body = sealed(first, "p/weather/1")
        assert (await node.publish(record(row, "p/weather/1", body), row=row))["published"] == 1
        message = await mary.message()
        assert message.payload == body
        assert told(message.properties.user_properties) == {
            "id": f"{row['id']}.1",
            "scores": '{"timeliness":0.9}',
            "keyId": first["keyId"],
        }
        assert await mary.opened(message) == BODY


@on_uvloop
async def test_uses_are_counted_and_keys_of_a_first_attempt_come_again(tmp_path: Path) -> None:
    async with piped(tmp_path, text(keys='keys: {protect: ["p/#"], uses: 1000}')) as node:
        row = await node.row()
        first = await node.key("p/weather/1", row, count=999)
        assert (await node.key("p/weather/1", row))["keyId"] == first["keyId"]
        second = await node.key("p/weather/1", row)
        assert second["keyId"] != first["keyId"], "it has sealed a thousand"
        replayed = await node.key("p/weather/1", row, keyIds=["unknown", first["keyId"], 7], count=999)
        assert (replayed["keyId"], replayed["secret"]) == (first["keyId"], first["secret"])
        assert replayed["seconds"] == 0, "it is not for anything new"
        gone = await node.key("p/weather/1", row, keyIds=["unknown"])
        assert gone["keyId"] == second["keyId"]
        mary = await come(node, "mary", "p/weather/#")
        body = sealed(replayed, "p/weather/1")
        assert (await node.publish(record(row, "p/weather/1", body), row=row))["published"] == 1
        assert await mary.opened(await mary.message()) == BODY


@on_uvloop
async def test_a_key_of_other_readers_does_not_come_again(tmp_path: Path) -> None:
    more = """preferences: [{id: raw, user: nos, topic: "raw/private", when: "s.user == 'bob'"}]\n"""
    async with piped(tmp_path, text(more=more)) as node:
        row, private = await node.row(), await node.row("raw/private")
        wide = await node.key("p/weather/1", row)
        narrow = await node.key("p/weather/1", private, keyIds=[wide["keyId"]])
        assert narrow["keyId"] != wide["keyId"]
        mary, bob = await come(node, "mary", "p/weather/#"), await come(node, "bob", "p/weather/#")
        body = sealed(wide, "p/weather/1")
        assert (await node.publish(record(private, "p/weather/1", body), row=private))["published"] == 1
        assert key_id((await bob.message()).payload) == narrow["keyId"], "it is under the key of its readers"
        assert (await mary.refused(narrow["keyId"]))[0] == "denied"


@on_uvloop
async def test_rotated_in_mid_stream(tmp_path: Path) -> None:
    async with piped(tmp_path) as node:
        row = await node.row()
        mary = await come(node, "mary", "p/weather/#")
        old = await node.key("p/weather/1", row)
        await node.ask("key_rotate", by="test")
        body = sealed(old, "p/weather/1")
        assert (await node.publish(record(row, "p/weather/1", body), row=row))["published"] == 1
        message = await mary.message()
        assert key_id(message.payload) != old["keyId"]
        assert await mary.opened(message) == BODY
        await node.ask("key_revoke", id=old["keyId"], by="test")
        answer = await node.publish(record(row, "p/weather/1", body), row=row)
        assert [(each["index"], each["rule"]) for each in answer["denied"]] == [(0, "keys")]


def test_a_key_that_was_given_outlives_the_node(tmp_path: Path) -> None:
    """Rows of the lake are under it: killed right after the answer, it is there."""
    first = Process(File(tmp_path, text()))
    try:
        first.wait_until_it_accepts()
        context = b64(b"")  # of nobody: only to learn of a scope that is there
        answer = ask(first.control, "pipeline_keys", contexts=[context], asks=[{"topic": "p/weather/1", "context": 0}])
        assert answer["answers"][0]["denied"] == "scope"
        known = ask(
            first.control, "pipeline_keys", contexts=[_context()], asks=[{"topic": "p/weather/1", "context": 0}]
        )
        first.kill()
    finally:
        first.kill()
    given = known["answers"][0]["keyId"]
    second = Process(first.file)
    try:
        second.wait_until_it_accepts()
        assert given in [each["id"] for each in ask(second.control, "key_list")["keys"]]
        assert second.stop() == 0
    finally:
        second.kill()


def _context() -> str:
    subject = Subject(kind="client", client="nos", user="nos", scope="main", node="test", domain="test")
    return b64(Context(subject=subject).encode())


@on_uvloop
async def test_end_to_end(tmp_path: Path) -> None:
    """Without a key service the node has the keys of these topics, too."""
    async with piped(tmp_path) as node:
        row = await node.row()
        mary = await come(node, "mary", "e/#")
        given = await node.key("e/1", row)
        body = sealed(given, "e/1")
        assert (await node.publish(record(row, "e/1", body), record(row, "e/1", part=1), row=row)) == {
            "taken": 2,
            "lost": {},
            "published": 1,
            "denied": [{"index": 1, "rule": "keys", "why": _not_sealed("e/1")}],
        }
        assert await mary.opened(await mary.message()) == BODY


def _not_sealed(topic: str) -> str:
    return f"what is published to `{topic}` comes sealed or not at all: ask for its key on `$tidegate/keys/publish`"


@on_uvloop
async def test_end_to_end_with_a_key_service(tmp_path: Path, authority: Path) -> None:
    for name in ("ktm", "a"):
        (tmp_path / name).mkdir()
    with ktm(tmp_path / "ktm", authority) as service:
        whole = text(keys=keys(service.port, authority, "node-a"))
        async with piped(tmp_path / "a", whole) as node:
            row = await node.row()
            answer = await node.key("e/1", row)
            assert answer["denied"] == "keys"
            assert "only the key service has its keys" in answer["why"]
            assert "keyId" in await node.key("p/weather/1", row), "these the node makes itself"


# -- what comes in -------------------------------------------------------------------------------------------------


@on_uvloop
async def test_what_it_may_read_it_opens(tmp_path: Path) -> None:
    async with piped(tmp_path) as node:
        row = await node.row("p/raw/1", CLEAR)
        assert CLEAR not in row["payload"]
        assert unseal(secret(await node.open(row)), row["payload"], topic="p/raw/1") == CLEAR
        plain = await node.row("raw/1", row["payload"])
        answer = await node.open(plain)
        assert answer["denied"] == "keys", "it only looks like one"
        await node.reload(text(policies=text_without_reading()))
        answer = await node.open(row)
        assert "secret" not in answer
        assert answer["denied"]


def text_without_reading() -> str:
    return "".join(line + "\n" for line in POLICIES.splitlines() if "pipe-reads" not in line)


@on_uvloop
async def test_the_owner_is_asked(tmp_path: Path) -> None:
    more = """preferences: [{id: mine, user: nos, topic: "p/raw/#", when: "s.kind == 'client'"}]\n"""
    async with piped(tmp_path, text(more=more)) as node:
        row = await node.row("p/raw/1", CLEAR)
        assert (await node.open(row))["denied"] == "mine"


@on_uvloop
async def test_a_key_that_has_ended_is_with_the_row(tmp_path: Path) -> None:
    async with piped(tmp_path, text(keys='keys: {protect: ["p/#"], rotate: 1s, overlap: 0s}')) as node:
        row = await node.row("p/raw/1", CLEAR)
        id = json.loads(row["payload"])["keyId"]
        async with asyncio.timeout(10):
            while node.node.keys.topic_keys.ring.find(id, node.node.site.wall) is not None:  # type: ignore[union-attr]
                await asyncio.sleep(0.02)
                node.node.site.open()
        assert unseal(secret(await node.open(row)), row["payload"], topic="p/raw/1") == CLEAR
        other = await node.open(row, keyId="another")
        assert other["denied"] == "keys"


@on_uvloop
async def test_a_key_that_was_revoked_is_not_given(tmp_path: Path) -> None:
    async with piped(tmp_path) as node:
        row = await node.row("p/raw/1", CLEAR)
        await node.ask("key_revoke", id=json.loads(row["payload"])["keyId"], by="test")
        answer = await node.open(row)
        assert (answer["denied"], "secret" in answer) == ("keys", False)


@on_uvloop
async def test_asks_that_cannot_be_understood(tmp_path: Path) -> None:
    async with piped(tmp_path) as node:
        context = _context()
        for command, asks in (
            ("pipeline_keys", [{"context": 0}]),
            ("pipeline_keys", [{"topic": "t", "context": 1}]),
            ("pipeline_keys", [{"topic": "t", "context": 0, "count": "many"}]),
            ("pipeline_keys", [{"topic": "t", "context": 0, "keyIds": 7}]),
            ("pipeline_keys", [{"topic": "t", "context": 0, "from": 7}]),
            ("pipeline_keys", {}),
            ("pipeline_open", [{"topic": "t", "context": 0}]),
            ("pipeline_open", [None]),
        ):
            problem = await node.problem(command, contexts=[context], asks=asks)
            assert problem.problem == "invalid", (command, asks)
