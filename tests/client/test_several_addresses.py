"""A client with several addresses: the default, backups while it does not answer, and the way back."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from client.test_keys import got
from harness import PATIENCE, free_port, live
from reliability.links import Proxy
from tidegate.client import Client, Refused, Unreachable
from tidegate.client.failover import place

FAST = {"attempts": 2, "interval": 0.02}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("h", ("h", 1)),
        ("h:2", ("h", 2)),
        ("[::1]", ("::1", 1)),
        ("[::1]:2", ("::1", 2)),
        ("::1", ("::1", 1)),
        ("127.0.0.1:99", ("127.0.0.1", 99)),
    ],
)
def test_place(text: str, expected: tuple[str, int]) -> None:
    assert place(text, 1) == expected


@pytest.mark.parametrize("text", ["h:", "h:x", "h:0", "h:65536", ":1"])
def test_no_place(text: str) -> None:
    with pytest.raises(ValueError, match="is no address"):
        place(text, 1)


async def test_the_first_address_that_answers() -> None:
    async with live() as node:
        nobody, default = free_port(), Proxy(free_port(), node.port)
        backups = [f"127.0.0.1:{nobody}", f"127.0.0.1:{node.port}"]
        await default.start()
        default.refusing = True
        async with Client("127.0.0.1", port=default.port, backups=backups, **FAST) as client:
            assert default.tried == 2
            await client.subscribe("t")
            await client.publish("t", b"1")
            assert (await got(client)).payload == b"1"
        await default.close()


async def test_nobody_answers() -> None:
    with pytest.raises(Unreachable, match="cannot connect"):
        await Client("127.0.0.1", port=free_port(), backups=[f"127.0.0.1:{free_port()}"], **FAST).__aenter__()


async def test_a_refusal_is_an_answer() -> None:
    async with live() as node, live("listeners: [{url: 'mqtt://127.0.0.1:PORT'}]") as strict:
        with pytest.raises(Refused):
            await Client("127.0.0.1", port=strict.port, backups=[f"127.0.0.1:{node.port}"], **FAST).__aenter__()


async def test_it_goes_on_over_a_backup_and_comes_back() -> None:
    async with live() as node, contextlib.AsyncExitStack() as stack:
        default, backup = (Proxy(free_port(), node.port) for _ in range(2))
        for proxy in (default, backup):
            await proxy.start()
            stack.push_async_callback(proxy.close)
        options = {"backups": [f"127.0.0.1:{backup.port}"], "restore": 0.05, **FAST}
        kept = {"identifier": "c", "clean": False, "session_expiry": 60}
        client = Client("127.0.0.1", port=default.port, **options, **kept)
        other = await node.connect("other")
        async with client:
            await client.subscribe("t/#", "gone")
            await client.unsubscribe("gone")
            default.refusing = True
            default.cut()
            await other.publish("t/1", b"while it is away", qos=1)
            await client.publish("t/2", b"over the backup")
            assert {(await got(client)).payload for _ in range(2)} == {b"while it is away", b"over the backup"}
            assert backup.connections == 1
            before, default.refusing = default.connections, False
            async with asyncio.timeout(PATIENCE):
                while default.connections < before + 2:  # one that looks, and the one that stays
                    await asyncio.sleep(0.005)
            await client.publish("t/3", b"over the default")
            assert (await got(client)).payload == b"over the default"
            backup.cut()
            await client.publish("t/4", b"still")
            assert (await got(client)).payload == b"still"


async def test_another_broker_takes_over_when_the_first_shuts_down() -> None:
    async with live() as second:
        async with live() as first:
            client = Client("127.0.0.1", port=first.port, backups=[f"127.0.0.1:{second.port}"], restore=None, **FAST)
            await client.__aenter__()
            await client.subscribe("t")
        await client.publish("t", b"1")  # the first one is gone
        assert (await got(client)).payload == b"1"
        await client.__aexit__(None, None, None)


async def test_with_one_address_it_says_so() -> None:
    async with live() as node:
        proxy = Proxy(free_port(), node.port)
        await proxy.start()
        async with Client("127.0.0.1", port=proxy.port) as client:
            proxy.cut()
            with pytest.raises(Unreachable):
                await got(client)
        await proxy.close()
