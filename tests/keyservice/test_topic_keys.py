"""Keys of a real node: who is given one, what becomes of it when rights change, and what is asked wrongly."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from keyservice.keyholding import PAIRS, POLICIES, Reader, come, mark, text
from processes import Served, from_file, on_uvloop, until
from tidegate import wire
from tidegate.errors import KeysError
from tidegate.keys import NONCE, Group, PublicKey, ReadKey, TopicKey, key_id, read_key, seal, unseal
from tidegate.keyservice.control_commands import ListKeys
from tidegate.net.control_socket import ask
from tidegate.policy.control_topics import ANSWER, GET_KEY, PUBLISH_KEY

CLEAR = b'{"value":21.5}'


async def sealed(nos: Reader, reader: Reader, topic: str = "p/x", payload: bytes = CLEAR) -> wire.Publish:
    """A message as the reader receives it."""
    assert await nos.publish(topic, payload) == 0
    return await reader.message()


# -- asking --------------------------------------------------------------------------------------------------------


@on_uvloop
async def test_who_may_read_is_given_the_key(tmp_path: Path) -> None:
    async with from_file(tmp_path, text(bob="visitor")) as node:
        nos, mary, bob = await come(node, "nos"), await come(node, "mary", "p/#"), await come(node, "bob", "q")
        message = await sealed(nos, mary)
        assert list(json.loads(message.payload)) == ["keyId", "data"]
        key = await mary.key(key_id(message.payload))
        assert unseal(key.secret, message.payload, topic="p/x") == CLEAR
        assert 3600 < key.seconds <= 3900
        assert await bob.refused(key.id) == ("denied", "default")
        again = await sealed(nos, mary)
        assert key_id(again.payload) == key.id
        assert unseal(key.secret, again.payload, topic="p/x") == CLEAR


@pytest.mark.parametrize("version", [wire.V311, wire.V5])
async def test_whoever_does_not_listen_is_told_so(tmp_path: Path, version: int) -> None:
    async with from_file(tmp_path, text()) as node:
        mary = await come(node, "mary", version=version)
        reason = await mary.ask(GET_KEY, json.dumps({"keyId": "k", "request": mark()}).encode())
        assert reason == (0x10 if version == wire.V5 else 0)
        await mary.client.silent()


@on_uvloop
async def test_answers_reach_only_those_who_asked(tmp_path: Path) -> None:
    async with from_file(tmp_path, text()) as node:
        nos, mary = await come(node, "nos"), await come(node, "mary", "p/#")
        other, bob = await come(node, "mary", "q", client="other"), await come(node, "bob", "q")
        await mary.key(key_id((await sealed(nos, mary)).payload))
        for each in (other, bob):
            await each.client.silent()
        assert await bob.subscribe("$tidegate/keys/get", "$tidegate/#", "$tidegate/keys/+") == [0x87] * 3
        assert await bob.ask(ANSWER, b"{}") == 0x87, "nobody speaks for the node"


@on_uvloop
async def test_what_the_request_carries_comes_back(tmp_path: Path) -> None:
    async with from_file(tmp_path, text()) as node:
        mary = await come(node, "mary", "p/#")
        asked = json.dumps({"keyId": "none", "request": mark()}).encode()
        assert await mary.ask(GET_KEY, asked, correlation_data=b"\x00mine") == 0
        answer = await mary.answered()
        assert answer.properties.correlation_data == b"\x00mine"
        assert answer.qos == 1
        assert not answer.retain


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"x",
        b"[]",
        b"null",
        b"{}",
        b'{"keyId":7,"request":"r234567890123456"}',
        b'{"request":"r234567890123456"}',
        b'{"keyId":"k"}',
        b'{"keyId":"k","request":"short"}',
        b'{"keyId":"k","request":"with spaces and so on"}',
        b'{"keyId":"k","request":7}',
        b"\xff\xfe",
        b"[" * 3000,
        b'{"keyId":"' + b"k" * 5000 + b'","request":"r234567890123456"}',
        b'{"keyId":"\\ud800","request":"r234567890123456"}',
    ],
)
async def test_garbage(tmp_path: Path, payload: bytes) -> None:
    async with from_file(tmp_path, text()) as node:
        mary = await come(node, "mary", "p/#")
        for topic in (GET_KEY, PUBLISH_KEY):
            assert await mary.ask(topic, payload) == 0
            said = await mary.answer()
            assert said["problem"] == "invalid"
            assert said["error"]
            assert said["rule"] is None
        await mary.client.silent()


@pytest.mark.parametrize("id", ["", "unknown", "ff" * 12, "k" * 3000, "../../x", "\0"])
async def test_keys_that_are_not_there(tmp_path: Path, id: str) -> None:
    async with from_file(tmp_path, text()) as node:
        mary = await come(node, "mary", "p/#")
        assert await mary.refused(id) == ("unknown", None)


@pytest.mark.parametrize("topic", ["", "p/+", "p/#", "$SYS/x", "$tidegate/keys/get", "p/\0"])
async def test_topics_that_nobody_publishes_to(tmp_path: Path, topic: str) -> None:
    async with from_file(tmp_path, text()) as node:
        nos = await come(node, "nos", "p/#")
        found = await nos.sealing(topic)
        assert isinstance(found, dict)
        assert found["problem"] == "invalid"


@on_uvloop
async def test_a_publisher_that_seals_by_itself(tmp_path: Path) -> None:
    async with from_file(tmp_path, text()) as node:
        nos, mary = await come(node, "nos", "q"), await come(node, "mary", "#")
        for topic in ("p/x", "e/x"):
            key = await nos.sealing(topic)
            assert isinstance(key, ReadKey)
            assert 0 < key.seconds <= 300
            made = with_key(key, CLEAR, topic)
            message = await sealed(nos, mary, topic, made)
            assert message.payload == made
            assert await mary.opened(message) == CLEAR
        found = await mary.sealing("e/x")
        assert isinstance(found, dict)
        assert (found["problem"], found["rule"]) == ("denied", "default")
        found = await nos.sealing("q/x")
        assert isinstance(found, dict)
        assert found["problem"] == "invalid"
        assert "not protected" in found["error"]


@on_uvloop
async def test_who_may_write_and_not_read_is_given_a_key_of_its_own(tmp_path: Path) -> None:
    policies = POLICIES + '  - {id: both, subject: "user:carol", topic: "#", action: [read, write]}\n'
    policies += '  - {id: device, subject: "user:bob", topic: "#", action: write}\n'
    async with from_file(tmp_path, text(policies=policies, nos="device", bob="device")) as node:
        nos, bob = await come(node, "nos", "q"), await come(node, "bob", "q")
        mary, carol = await come(node, "mary", "#"), await come(node, "carol", "q")
        for topic in ("p/x", "e/x"):
            mine = await nos.sealing(topic)
            assert isinstance(mine, ReadKey)
            assert await mary.opened(await sealed(nos, mary, topic, with_key(mine, CLEAR, topic))) == CLEAR
            others, theirs = await bob.sealing(topic), await carol.sealing(topic)
            assert isinstance(others, ReadKey)
            assert isinstance(theirs, ReadKey)
            assert len({mine.id, others.id, theirs.id}) == 3, "no device reads what another one sealed"
            assert await nos.refused(theirs.id) == ("denied", "default")
            # nor does it seal in the name of another one
            assert await nos.publish("e/x", with_key(others, CLEAR, "e/x")) == 0x87
        message = await sealed(nos, mary, "p/x")
        assert key_id(message.payload) not in (mine.id, others.id), "what the node seals no device reads"
        assert await mary.opened(message) == CLEAR
        again = await carol.sealing("p/x")
        assert isinstance(again, ReadKey)
        assert again.id == key_id(message.payload), "who may read it may have it"


@on_uvloop
async def test_what_only_names_a_key_counts_as_clear(tmp_path: Path) -> None:
    async with from_file(tmp_path, text()) as node:
        nos, mary = await come(node, "nos", "q"), await come(node, "mary", "#")
        for topic in ("p/x", "e/x"):
            key = await nos.sealing(topic)
            assert isinstance(key, ReadKey)
            right = json.loads(with_key(key, CLEAR, topic))["data"]
            elsewhere = json.loads(with_key(key, CLEAR, "p/other"))["data"]
            for data in ("in clear", "", right[:-8] + "AAAAAAA=", elsewhere):
                forged = json.dumps({"keyId": key.id, "data": data}).encode()
                if topic == "e/x":
                    assert await nos.publish(topic, forged) == 0x87
                else:
                    message = await sealed(nos, mary, topic, forged)
                    assert await mary.opened(message) == forged


def with_key(key: ReadKey, payload: bytes, topic: str) -> bytes:
    """Sealed by somebody who was given a key."""
    made = TopicKey(
        id=key.id,
        group=Group.of(filter="", conditions=()),
        secret=key.secret,
        made=0,
        valid_until=1,
        readable_until=1,
    )
    return seal(made, payload, topic=topic, nonce=bytes(NONCE))


@on_uvloop
async def test_too_many_requests(tmp_path: Path) -> None:
    async with from_file(tmp_path, text()) as node:
        mary, bob = await come(node, "mary", "p/#"), await come(node, "bob", "p/#")
        asked = [wire.Publish(topic=GET_KEY, payload=json.dumps({"keyId": "k", "request": mark()}).encode())] * 1500
        await mary.client.raw(b"".join(wire.encode(each, wire.V5) for each in asked))
        found = [(await mary.answer())["problem"] for _ in asked]
        assert found[:1000] == ["unknown"] * 1000
        assert "unavailable" in found[1000:]
        assert await bob.refused("k") == ("unknown", None), "others are not slowed down"


@on_uvloop
async def test_the_same_request_twice_is_answered_twice_and_counts_for_that_request_only(tmp_path: Path) -> None:
    async with from_file(tmp_path, text()) as node:
        nos, mary = await come(node, "nos"), await come(node, "mary", "p/#")
        id = key_id((await sealed(nos, mary)).payload)
        request = mark()
        answers = []
        for _ in range(2):
            assert await mary.ask(GET_KEY, json.dumps({"keyId": id, "request": request}).encode()) == 0
            answers.append((await mary.answered()).payload)
        assert answers[0] != answers[1], "each is wrapped anew"
        keys = [read_key(each, PAIRS["mary"].text(), reader="user:mary", request=request) for each in answers]
        assert keys[0].secret == keys[1].secret
        for wrong in (
            {"private": PAIRS["mary"].text(), "reader": "user:mary", "request": mark()},
            {"private": PAIRS["mary"].text(), "reader": "user:bob", "request": request},
            {"private": PAIRS["bob"].text(), "reader": "user:mary", "request": request},
        ):
            with pytest.raises(KeysError):
                read_key(answers[0], wrong.pop("private"), **wrong)


@on_uvloop
async def test_a_reader_without_a_public_key_or_with_another_one(tmp_path: Path) -> None:
    other = PublicKey.parse(str(PAIRS["carol"].public))
    swapped = text().replace(str(PAIRS["bob"].public), str(other))
    whole = swapped.replace(f', public_key: "{PAIRS["mary"].public}"', "")
    async with from_file(tmp_path, whole) as node:
        nos, mary, bob = await come(node, "nos"), await come(node, "mary", "p/#"), await come(node, "bob", "p/#")
        message = await sealed(nos, mary)
        found = await mary.get(key_id(message.payload))
        assert isinstance(found, dict)
        assert (found["problem"], found["rule"]) == ("conflict", None)
        assert "register" in found["error"]
        with pytest.raises(KeysError, match="private key"):
            await bob.get(key_id(message.payload))


@on_uvloop
async def test_a_node_whose_policies_are_open(tmp_path: Path) -> None:
    async with from_file(tmp_path, text(policies="policies: open\n")) as node:
        nos, mary = await come(node, "nos"), await come(node, "mary", "p/#")
        assert await mary.opened(await sealed(nos, mary)) == CLEAR
        assert await mary.subscribe("$tidegate/#", "$tidegate/keys/get") == [0x87] * 2


@on_uvloop
async def test_a_client_without_a_user(tmp_path: Path) -> None:
    whole = text(policies="policies: open\n").replace('PORT"}', 'PORT", anonymous: true}')
    whole += f'  clients: {{tr1: {{public_key: "{PAIRS["carol"].public}"}}}}\n'
    async with from_file(tmp_path, whole) as node:
        nos = await come(node, "nos")
        client = Reader("carol", await node.connect("tr1"))
        await client.subscribe(ANSWER, "p/#")
        message = await sealed(nos, client)
        request = mark()
        asked = json.dumps({"keyId": key_id(message.payload), "request": request}).encode()
        assert await client.ask(GET_KEY, asked) == 0
        answer = (await client.answered()).payload
        key = read_key(answer, PAIRS["carol"].text(), reader="client:tr1", request=request)
        assert unseal(key.secret, message.payload, topic="p/x") == CLEAR


# -- rights that change --------------------------------------------------------------------------------------------


async def _lost(node: Served, change: str, *, problem: str = "denied", rule: str | None = None) -> None:
    """Bob loses his right by another file: he is given nothing any more, and what he has opens nothing new."""
    nos, mary, bob = await come(node, "nos"), await come(node, "mary", "p/#"), await come(node, "bob", "p/#")
    before = await sealed(nos, mary)
    await bob.message()
    had = await bob.key(key_id(before.payload))
    await node.reload(change)
    assert await bob.refused(had.id) == (problem, rule)
    after = await sealed(nos, mary)
    assert key_id(after.payload) != had.id
    with pytest.raises(KeysError):
        unseal(had.secret, after.payload, topic="p/x")
    assert await bob.refused(key_id(after.payload)) == (problem, rule)
    assert await mary.opened(after) == CLEAR
    assert await mary.opened(before) == CLEAR, "what was sealed before can still be read"
    await bob.client.silent()


@on_uvloop
async def test_a_role_that_is_lost(tmp_path: Path) -> None:
    async with from_file(tmp_path, text()) as node:
        await _lost(node, text(bob="visitor"), rule="default")


@on_uvloop
async def test_a_right_that_is_lost_by_policy(tmp_path: Path) -> None:
    async with from_file(tmp_path, text()) as node:
        denied = POLICIES + '  - {id: no-bob, subject: "user:bob", topic: "p/#", action: read, effect: deny}\n'
        await _lost(node, text(policies=denied), rule="no-bob")


@on_uvloop
async def test_a_right_that_is_lost_by_a_preference(tmp_path: Path) -> None:
    async with from_file(tmp_path, text()) as node:
        prefers = "preferences: [{id: u1, user: nos, topic: 'p/#', when: \"s.user == 'mary'\"}]\n"
        await _lost(node, text() + prefers, rule="u1")


@pytest.mark.parametrize(
    "when",
    [
        "cidr(s.address, '127.0.0.0/8')",
        "s.listener != ''",
        "s.client == 'bob'",
        "s.level == 'plain'",
    ],
)
async def test_a_role_that_is_lost_by_somebody_who_could_read_by_how_they_came(tmp_path: Path, when: str) -> None:
    policies = POLICIES.replace("action: read}", f"action: read, when: \"{when} || s.user == 'mary'\"}}")
    async with from_file(tmp_path, text(policies=policies)) as node:
        await _lost(node, text(policies=policies, bob="visitor"), rule="default")


@on_uvloop
async def test_a_user_who_is_removed(tmp_path: Path) -> None:
    async with from_file(tmp_path, text()) as node:
        nos, mary, bob = await come(node, "nos"), await come(node, "mary", "p/#"), await come(node, "bob", "p/#")
        before = await sealed(nos, mary)
        had = await bob.key(key_id(before.payload))
        await node.reload(text("bob"))
        rest = await bob.client.closed()
        assert wire.decode(rest[0], rest[2:], wire.V5).reason == 0x87  # type: ignore[union-attr]
        await node.connect("bob", username="bob", password=b"bob", expect=0x86)
        after = await sealed(nos, mary)
        assert key_id(after.payload) != had.id
        with pytest.raises(KeysError):
            unseal(had.secret, after.payload, topic="p/x")
        assert await mary.opened(after) == CLEAR


@on_uvloop
async def test_who_comes_changes_nothing(tmp_path: Path) -> None:
    async with from_file(tmp_path, text("carol")) as node:
        nos, mary = await come(node, "nos"), await come(node, "mary", "p/#")
        before = await sealed(nos, mary)
        await node.reload(text())
        carol = await come(node, "carol", "p/#")
        after = await sealed(nos, mary)
        assert key_id(after.payload) == key_id(before.payload)
        assert await carol.opened(before) == CLEAR


# -- settings that change --------------------------------------------------------------------------------------------


@on_uvloop
async def test_protection_that_comes_and_goes_while_messages_flow(tmp_path: Path) -> None:
    async with from_file(tmp_path, text(keys="")) as node:
        nos, mary = await come(node, "nos"), await come(node, "mary")
        await mary.subscribe("p/#")
        assert await mary.subscribe(ANSWER) == [1], "keys of earlier may be asked for at any time"
        seen: list[bytes] = []
        stop = asyncio.Event()

        async def flow() -> int:
            number = 0
            while not stop.is_set():
                assert await nos.publish("p/x", b"clear %d" % number) == 0
                number += 1
            return number

        async def read_until(sealed: bool) -> None:
            """Messages come in order: from one on they are all of the other kind."""
            while not seen or (key_id(seen[-1]) is not None) is not sealed:
                seen.append((await mary.message()).payload)

        flowing = asyncio.create_task(flow())
        await read_until(sealed=False)
        for whole, sealed_then in ((text(), True), (text(keys=""), False)):
            await node.reload(whole)
            await read_until(sealed=sealed_then)
        stop.set()
        for _ in range(await flowing - len(seen)):
            seen.append((await mary.message()).payload)
        shape = "".join("s" if key_id(each) else "c" for each in seen)
        assert re.fullmatch("c+s+c+", shape)
        known = {id: await mary.key(id) for id in {key_id(each) for each in seen} if id is not None}
        for payload in seen:
            if (id := key_id(payload)) is not None:
                assert unseal(known[id].secret, payload, topic="p/x").startswith(b"clear")


@on_uvloop
async def test_a_key_that_has_ended(tmp_path: Path) -> None:
    keys = 'keys: {protect: ["p/#"], rotate: 1s, overlap: 1s}\n'
    async with from_file(tmp_path, text(keys=keys)) as node:
        nos, mary = await come(node, "nos"), await come(node, "mary", "p/#")
        before = await sealed(nos, mary)
        key = await mary.key(key_id(before.payload))
        assert key.seconds <= 2

        def ended() -> bool:
            return all(each["id"] != key.id for each in node.node.keys.list_all(ListKeys())["keys"])

        await until(ended)
        assert await mary.refused(key.id) == ("unknown", None)
        after = await sealed(nos, mary)
        assert key_id(after.payload) != key.id
        with pytest.raises(KeysError):
            unseal(key.secret, after.payload, topic="p/x")
        assert await mary.opened(after) == CLEAR


@on_uvloop
async def test_a_key_that_was_used_often_enough(tmp_path: Path) -> None:
    async with from_file(tmp_path, text(keys='keys: {protect: ["p/#"], uses: 3}\n')) as node:
        nos, mary = await come(node, "nos"), await come(node, "mary", "p/#")
        ids = [key_id((await sealed(nos, mary)).payload) for _ in range(7)]
        assert [ids.count(each) for each in dict.fromkeys(ids)] == [3, 3, 1]


# -- administration ------------------------------------------------------------------------------------------------


async def _asked(node: Served, command: str, **said: Any) -> Any:
    return await asyncio.get_running_loop().run_in_executor(
        None, lambda: ask(node.node.config.control_socket, command, **said)
    )


@on_uvloop
async def test_keys_are_listed_rotated_and_revoked(tmp_path: Path) -> None:
    async with from_file(tmp_path, text(carol="visitor")) as node:
        nos, mary = await come(node, "nos"), await come(node, "mary", "p/#")
        before = await sealed(nos, mary)
        (listed,) = (await _asked(node, "key_list"))["keys"]
        assert (listed["id"], listed["filter"], listed["topic"], listed["used"]) == (
            key_id(before.payload),
            "p/#",
            "p/x",
            1,
        )
        assert "secret" not in listed
        assert await _asked(node, "key_rotate", by="test", user="carol") == {"groups": 0}
        assert key_id((await sealed(nos, mary)).payload) == listed["id"]
        assert await _asked(node, "key_rotate", by="test", user="mary") == {"groups": 1}
        after = await sealed(nos, mary)
        assert key_id(after.payload) != listed["id"]
        assert await mary.opened(before) == CLEAR
        assert await _asked(node, "key_revoke", id=listed["id"], by="test", why="stolen") == {"revoked": listed["id"]}
        assert await mary.refused(listed["id"]) == ("unknown", None)
        assert key_id((await sealed(nos, mary)).payload) != key_id(after.payload), "its group has another one"
        assert await _asked(node, "key_rotate", by="test", filter="p/#") == {"groups": 1}
        assert (await _asked(node, "status"))["keys"]["refused"] == 0
        ids = sorted(each["id"] for each in (await _asked(node, "key_list"))["keys"])
        assert len(ids) == 2
        for after, limit, wanted in ((None, 1, ids[:1]), (ids[0], 9, ids[1:]), (ids[1], 9, []), (None, 0, [])):
            page = (await _asked(node, "key_list", after=after, limit=limit))["keys"]
            assert [each["id"] for each in page] == wanted


@on_uvloop
async def test_of_very_many_groups_all_are_rotated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.node.key_service.ASKED", 0)
    async with from_file(tmp_path, text(carol="visitor")) as node:
        nos, mary = await come(node, "nos"), await come(node, "mary", "p/#")
        before = await sealed(nos, mary)
        assert await _asked(node, "key_rotate", by="test", user="carol") == {"groups": 1}
        assert key_id((await sealed(nos, mary)).payload) != key_id(before.payload)
