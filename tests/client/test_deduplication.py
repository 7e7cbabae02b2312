"""What the pipeline publishes again is delivered once; everything else as often as it comes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from client.peer import K1, met, sealed
from client.test_keys import got, received
from node.piping import BODY, piped, record
from tidegate import wire
from tidegate.client import V311, Client

SCORES = '{"timeliness":0.9}'


def said(id: str | None, scores: str | None = SCORES, **fields: Any) -> wire.Properties:
    pairs = (("id", id), ("scores", scores))
    return wire.Properties(user_properties=tuple((name, text) for name, text in pairs if text is not None), **fields)


async def test_the_same_id_comes_once() -> None:
    async with met() as (client, other):
        for id in ("a.1", "a.2", "a.1", "a.3", "a.2"):
            await other.send(id.encode(), properties=said(id))
        await other.send(b"last")
        found = await received(client, 4)
        assert [each.payload for each in found] == [b"a.1", b"a.2", b"a.3", b"last"]
        assert [each.id for each in found] == ["a.1", "a.2", "a.3", None]
        assert found[0].scores == {"timeliness": 0.9}
        assert found[3].scores is None


@pytest.mark.parametrize(
    "properties",
    [
        said("a.1", None),
        said(None),
        said("a.1", "no JSON"),
        said("a.1", "7"),
    ],
)
async def test_what_is_not_of_the_pipeline_comes_as_often_as_it_comes(properties: wire.Properties) -> None:
    async with met() as (client, other):
        for _ in range(3):
            await other.send(b"x", properties=properties)
        await other.send(b"last")
        assert [each.payload for each in await received(client, 4)] == [b"x", b"x", b"x", b"last"]


async def test_by_topic_and_by_subscription() -> None:
    async with met() as (client, other):
        for topic, identifiers in (("t/1", ()), ("t/2", ()), ("t/1", (7,)), ("t/1", (8,)), ("t/1", (7,)), ("t/1", ())):
            await other.send(b"x", topic, properties=said("a.1", subscription_identifiers=identifiers))
        await other.send(b"last")
        assert [each.topic for each in await received(client, 5)] == ["t/1", "t/2", "t/1", "t/1", "flowers/1"]


async def test_what_is_retained_comes_again() -> None:
    async with met() as (client, other):
        for retain in (False, True, True, False):
            await other.send(b"x", retain=retain, properties=said("a.1"))
        await other.send(b"last")
        found = [(each.payload, each.retain) for each in await received(client, 4)]
        assert found == [(b"x", False), (b"x", True), (b"x", True), (b"last", False)]


async def test_only_so_many_are_remembered() -> None:
    async with met(dedupe=2) as (client, other):
        for id in ("1", "2", "3", "2", "1"):
            await other.send(id.encode(), properties=said(id))
        assert [each.payload for each in await received(client, 4)] == [b"1", b"2", b"3", b"1"]
    async with met(dedupe=0) as (client, other):
        for _ in range(2):
            await other.send(b"x", properties=said("1"))
        assert len(await received(client, 2)) == 2
    with pytest.raises(ValueError, match="dedupe"):
        Client("127.0.0.1", dedupe=-1)


async def test_what_could_not_be_opened_may_come_again() -> None:
    async with met() as (client, other):
        await other.send(sealed(K1, b"a rose"), properties=said("a.1"))
        await other.deny(await other.asked())
        assert (await got(client)).error is not None
        client._keyring._refused.clear()  # type: ignore[union-attr]
        await other.send(sealed(K1, b"a rose"), properties=said("a.1"))
        await other.give(await other.asked(), K1)
        assert (await got(client)).payload == b"a rose"
        await other.send(sealed(K1, b"a rose"), properties=said("a.1"))
        await other.send(b"last")
        assert (await got(client)).payload == b"last"


async def test_it_is_remembered_over_connections() -> None:
    async with met() as (client, other):
        await other.send(b"x", properties=said("a.1"))
        await got(client)
        await client.__aexit__(None, None, None)
        async with client:
            await other.send(b"x", properties=said("a.1"))
            await other.send(b"last")
            assert (await got(client)).payload == b"last"


async def test_a_batch_that_is_published_again(tmp_path: Path) -> None:
    """Through a real node, which does not remember."""
    async with piped(tmp_path) as node:
        row = await node.row()
        records = [record(row, f"weather/{at % 3}", part=at) for at in range(20)]
        options: dict[str, Any] = {"port": node.port, "user": "mary", "password": "mary"}
        async with (
            Client("127.0.0.1", identifier="once", **options) as once,
            Client("127.0.0.1", identifier="old", version=V311, **options) as old,
        ):
            for client in (once, old):
                await client.subscribe("weather/#")
            await node.publish(*records[:15], row=row)
            await node.publish(*records, row=row)
            found = await received(once, 20)
            assert [each.id for each in found] == [f"{row['id']}.{at + 1}" for at in range(20)]
            assert all(each.payload == BODY and each.scores == {"timeliness": 0.9} for each in found)
            assert len(await received(old, 35)) == 35, "MQTT 3.1.1 has no properties to tell"
