"""How the client comes by keys, with a key service that says whatever a test wants."""

from __future__ import annotations

import asyncio
import time

import pytest

from client.peer import ANSWER, K1, K2, K3, MARY, met, peer, sealed
from harness import PATIENCE
from keys.making import entropy, topic_key
from tidegate.client import V311, Client, Denied, KeysError, Message, PrivateKey, Refused, Unreachable
from tidegate.keys import unseal


async def received(client: Client, number: int = 1) -> list[Message]:
    async with asyncio.timeout(PATIENCE):
        return [await anext(client.messages) for _ in range(number)]


async def got(client: Client) -> Message:
    (message,) = await received(client)
    return message


@pytest.mark.parametrize("version", [5, V311])
async def test_a_message_is_opened_once_its_key_has_come(version: int) -> None:
    async with met(version=version) as (client, other):
        await other.send(sealed(K1, b"a rose"))
        question = await other.asked()
        assert (question["at"], question["keyId"]) == ("$tidegate/keys/get", "k1")
        assert other.subscribed == [ANSWER], "before the question"
        await other.give(question, K1)
        message = await got(client)
        assert (message.topic, message.payload, message.sealed_by, message.error) == (
            "flowers/1",
            b"a rose",
            "k1",
            None,
        )
        assert message.raw.payload == sealed(K1, b"a rose")
        await other.send(sealed(K1, b"another"))
        assert (await got(client)).payload == b"another"
        other.not_asked()


async def test_what_is_not_sealed_comes_as_it_is() -> None:
    async with met() as (client, other):
        for payload in (b"", b"plain", b'{"keyId":1,"data":""}', b'{"keyId":"k1","data":"","more":1}', b'x"keyId"'):
            await other.send(payload)
            message = await got(client)
            assert (message.payload, message.sealed_by, message.error) == (payload, None, None)
        other.not_asked()


async def test_many_that_wait_ask_once_and_stay_in_order() -> None:
    async with met() as (client, other):
        for number in range(50):
            await other.send(sealed(K1, b"%d" % number))
        for number in range(50):
            await other.send(sealed(K1, b"%d" % number, "flowers/2"), "flowers/2")
        await other.give(await other.asked(), K1)
        found = await received(client, 100)
        other.not_asked()
    for topic in ("flowers/1", "flowers/2"):
        assert [int(each.payload) for each in found if each.topic == topic] == list(range(50))


async def test_other_topics_go_ahead_and_the_same_topic_waits() -> None:
    async with met() as (client, other):
        await other.send(sealed(K1, b"first"))
        await other.send(b"second")
        await other.send(sealed(K2, b"third"))
        await other.send(b"ahead", "trees/1")
        assert (await got(client)).payload == b"ahead"
        one, two = await other.asked(), await other.asked()
        assert (one["keyId"], two["keyId"]) == ("k1", "k2"), "asked for while the first one waits"
        assert one["request"] != two["request"]
        await other.give(two, K2)
        await other.give(one, K1)
        assert [each.payload for each in await received(client, 3)] == [b"first", b"second", b"third"]


async def test_a_denial_names_the_rule_and_nothing_is_lost() -> None:
    async with met() as (client, other):
        for number in range(3):
            await other.send(sealed(K1, b"%d" % number))
        await other.deny(await other.asked())
        for number, message in enumerate(await received(client, 3)):
            assert isinstance(message.error, Denied)
            assert (message.error.rule, message.error.problem) == ("p7", "denied")
            assert "you may not read this" in str(message.error)
            assert message.payload == message.raw.payload == sealed(K1, b"%d" % number)
            assert message.sealed_by == "k1"
        other.not_asked()


async def test_a_denial_does_not_last() -> None:
    async with met() as (client, other):
        await other.send(sealed(K1, b"a"))
        await other.deny(await other.asked(), rule=None, problem="unknown")
        message = await got(client)
        assert isinstance(message.error, Denied)
        assert (message.error.rule, message.error.problem) == (None, "unknown")
        deadline = time.monotonic() + PATIENCE
        while message.error is not None:
            assert time.monotonic() < deadline
            await other.send(sealed(K1, b"b"))
            while other.questions.empty() and not client._inbox.qsize():
                await asyncio.sleep(0.01)
            if not other.questions.empty():
                await other.give(await other.asked(), K1)
            message = await got(client)
        assert message.payload == b"b"


async def test_a_service_that_is_silent_holds_up_nobody_for_long() -> None:
    async with met(patience=0.2) as (client, other):
        await other.send(sealed(K1, b"a"))
        await other.send(b"b")
        await other.send(sealed(K2, b"c"))
        began = time.monotonic()
        found = await received(client, 3)
        assert time.monotonic() - began < PATIENCE / 2
    assert [each.error is None for each in found] == [False, True, False]
    assert "within 0.2 s" in str(found[0].error)
    assert not isinstance(found[0].error, Denied)


async def test_answers_to_other_questions_are_ignored() -> None:
    """Replayed ones, those for somebody else, and things that are no answers."""
    async with met() as (client, other):
        await other.send(sealed(K1, b"one"))
        first = await other.asked()
        await other.give({"request": "x" * 22}, K1)
        for rubbish in (b"", b"{", b"[]", b"{}", b'{"request": 7}', b'{"request": {}, "error": "x"}', b"x" * 10_000):
            await other.send(rubbish, ANSWER)
        old = await other.give(first, K1)
        await other.give(first, topic_key("k1", fill=9))
        assert (await got(client)).payload == b"one"
        await other.send(sealed(K2, b"two"))
        second = await other.asked()
        await other.send(old, ANSWER)
        await other.send(old.replace(first["request"].encode(), b"y" * 22), ANSWER)
        await other.deny(first)
        await other.give(second, K2)
        assert (await got(client)).payload == b"two"
        await other.send(sealed(K1, b"three"))
        assert (await got(client)).payload == b"three", "the second answer to the first question was not taken"
        other.not_asked()


@pytest.mark.parametrize("how", ["reader", "pair", "key", "mark"])
async def test_an_answer_that_is_not_for_us_is_not_used(how: str) -> None:
    async with met() as (client, other):
        await other.send(sealed(K1, b"a"))
        question = await other.asked()
        if how == "reader":
            await other.give(question, K1, reader="user:bob")
        elif how == "pair":
            await other.give(question, K1, public=PrivateKey.generate(entropy("bob")).public)
        elif how == "key":
            await other.give(question, K2)
        else:  # an answer to another question with the mark of this one
            answer = await other.give({"request": "z" * 22}, K1)
            await other.send(answer.replace(b"z" * 22, question["request"].encode()), ANSWER)
        message = await got(client)
    assert message.error is not None
    assert not isinstance(message.error, Denied)
    assert message.payload == message.raw.payload


async def test_a_changed_message_is_delivered_as_such() -> None:
    async with met() as (client, other):
        moved = sealed(K1, b"a", "flowers/2")
        await other.send(moved)
        await other.give(await other.asked(), K1)
        message = await got(client)
        assert message.payload == moved
        assert "was changed" in str(message.error)
        await other.send(sealed(K1, b"b"))
        assert (await got(client)).payload == b"b"


async def test_seals_inside_each_other() -> None:
    async with met() as (client, other):
        await other.send(sealed(K1, sealed(K2, b"deep")))
        await other.give(await other.asked(), K1)
        await other.give(await other.asked(), K2)
        message = await got(client)
        assert (message.payload, message.sealed_by, message.error) == (b"deep", "k1", None)
        inner = sealed(K3, b"not for mary")
        await other.send(sealed(K1, inner))
        await other.deny(await other.asked())
        message = await got(client)
        assert message.payload == inner, "what opening came to"
        assert isinstance(message.error, Denied)
        bomb = b"x"
        for _ in range(6):
            bomb = sealed(K1, bomb)
        await other.send(bomb)
        assert "more than 4 seals" in str((await got(client)).error)


async def test_without_a_private_key_sealed_messages_are_told_apart() -> None:
    async with met(private_key=None) as (client, other):
        await other.send(sealed(K1, b"a"))
        message = await got(client)
        assert (message.sealed_by, message.payload) == ("k1", sealed(K1, b"a"))
        assert "no private key" in str(message.error)
        other.not_asked()
        with pytest.raises(KeysError, match="private_key"):
            await client.publish("a", b"b", encrypt=True)
        with pytest.raises(KeysError, match="no private key"):
            _ = client.public_key


async def test_a_broken_connection_delivers_what_waits_and_keys_stay() -> None:
    async with peer() as other:
        client = Client("127.0.0.1", port=other.port, user="mary", private_key=MARY.text())
        async with client:
            await other.send(sealed(K1, b"a"))
            await other.give(await other.asked(), K1)
            assert (await got(client)).payload == b"a"
            await other.send(sealed(K2, b"b"))
            await other.send(sealed(K1, b"c"))
            await other.asked()
            other.speaker.abort()
            lost, kept = await received(client, 2)
            assert "the connection ended" in str(lost.error)
            assert lost.payload == sealed(K2, b"b")
            assert (kept.payload, kept.error) == (b"c", None)
            for _ in range(2):
                with pytest.raises(Unreachable):
                    await got(client)
            with pytest.raises(Unreachable):
                await client.publish("a", b"b")
            with pytest.raises(Unreachable):
                await client.subscribe("a")
        with pytest.raises(Unreachable):
            await client.publish("a", b"b")
        async with client:
            await other.send(sealed(K1, b"d"))
            assert (await got(client)).payload == b"d"
            other.not_asked()
            await other.send(sealed(K2, b"e"))
            await other.give(await other.asked(), K2)
            assert (await got(client)).payload == b"e"
            await other.send(b"unread")
            await client.publish("a", b"b")  # its answer comes after the message
        with pytest.raises(Unreachable, match="connected already"):
            async with client, client:
                pass
        async with client:
            assert (await got(client)).payload == b"unread"


async def test_sealing_end_to_end() -> None:
    async with met() as (client, other):
        publishing = [asyncio.create_task(client.publish("flowers/1", b"%d" % n, encrypt=True)) for n in range(5)]
        question = await other.asked()
        assert (question["at"], question["topic"]) == ("$tidegate/keys/publish", "flowers/1")
        await other.give(question, K1)
        await asyncio.gather(*publishing)
        found = [await other.published.get() for _ in range(5)]
        assert {unseal(K1.secret, each.payload, topic="flowers/1") for each in found} == {b"%d" % n for n in range(5)}
        assert len({each.payload for each in found}) == 5
        other.not_asked()
        task = asyncio.create_task(client.publish("flowers/2", "text", encrypt=True))
        await other.give(await other.asked(), K2)
        await task
        assert unseal(K2.secret, (await other.published.get()).payload, topic="flowers/2") == b"text"


async def test_a_sealing_key_is_used_while_it_is_valid() -> None:
    async with met() as (client, other):
        task = asyncio.create_task(client.publish("flowers/1", b"a", encrypt=True))
        await other.give(await other.asked(), K1, seconds=0.2)
        await task
        assert b'"k1"' in (await other.published.get()).payload
        until = time.monotonic() + 0.2
        while time.monotonic() < until:
            await asyncio.sleep(0.02)
        task = asyncio.create_task(client.publish("flowers/1", b"b", encrypt=True))
        await other.give(await other.asked(), K2)
        await task
        assert b'"k2"' in (await other.published.get()).payload


async def test_a_revoked_sealing_key_is_replaced() -> None:
    async with met() as (client, other):
        task = asyncio.create_task(client.publish("flowers/1", b"a", encrypt=True))
        await other.give(await other.asked(), K1)
        await task
        other.refuse.add("flowers/1")
        task = asyncio.create_task(client.publish("flowers/1", b"b", encrypt=True))
        question = await other.asked()
        other.refuse.clear()
        await other.give(question, K2)
        await task
        keys = [(await other.published.get()).payload[10:12] for _ in range(3)]
        assert keys == [b"k1", b"k1", b"k2"]
        other.refuse.add("flowers/1")
        task = asyncio.create_task(client.publish("flowers/1", b"c", encrypt=True))
        await other.give(await other.asked(), K3)
        with pytest.raises(Refused, match="flowers/1"):
            await task
        other.not_asked()


async def test_no_key_to_seal_with() -> None:
    async with met() as (client, other):
        task = asyncio.create_task(client.publish("flowers/1", b"a", encrypt=True))
        await other.deny(await other.asked(), rule="w1")
        with pytest.raises(Denied, match="w1"):
            await task
        task = asyncio.create_task(client.publish("flowers/1", b"a", encrypt=True))
        await other.asked()
        other.speaker.abort()
        with pytest.raises(KeysError, match="cannot be requested"):
            await task
        assert other.published.empty(), "nothing left in clear"


async def test_a_question_that_is_refused() -> None:
    async with met() as (client, other):
        other.refuse.add("$tidegate/keys/get")
        await other.send(sealed(K1, b"a"))
        message = await got(client)
        assert "Not authorized" in str(message.error)


async def test_a_flood_of_strange_keys_asks_only_so_much_at_once() -> None:
    async with met() as (client, other):
        for number in range(200):
            await other.send(b'{"keyId":"strange-%d","data":""}' % number, f"t/{number}")
        asked = [await other.asked() for _ in range(32)]
        await client.publish("a", b"b")  # a round trip
        other.not_asked()
        await other.deny(asked[5], problem="unknown")
        message = await got(client)
        assert (message.topic, message.sealed_by) == ("t/5", "strange-5")
        assert (await other.asked())["keyId"] == "strange-32"
        other.not_asked()
