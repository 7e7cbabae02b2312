"""Several guards in front of one broker: a client comes back at any of them, to the session that the broker has, and
nobody else gets that with the client's identifier."""

from __future__ import annotations

import base64
import contextlib
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

import postgres
from backends import SECRET, mosquitto_of
from processes import Served, from_file, on_uvloop, until
from sockets.acts import PEOPLE, come, inbox, policy, say, setting
from tidegate import wire


@pytest.fixture(scope="module")
def server() -> Iterator[postgres.Server]:
    with postgres.running() as server:
        yield server


@pytest.fixture
def database(server: postgres.Server) -> str:
    return server.address(schema=server.schema())


@contextlib.asynccontextmanager
async def two(folder: Path, database: str) -> AsyncIterator[tuple[Served, Served]]:
    """Two guards, and the broker behind them."""
    with mosquitto_of(folder / "mosquitto") as broker:
        legacy = {"backend": broker.url, "authenticate": "here", "guards": "several", "secret": SECRET}
        key = folder / "master.key"
        key.write_text(base64.b64encode(os.urandom(32)).decode() + "\n")
        key.chmod(0o600)
        async with contextlib.AsyncExitStack() as stack:
            guards = []
            for name in ("a", "b"):
                (folder / name).mkdir()
                text = setting(
                    policy("all", "open/#"),
                    policy("mary", "mary/#", subject="user:mary"),
                    node={"name": name, "domain": "farm", "data": str(folder / name / "data")},
                    scopes={"main": legacy},
                    store=database,
                    master_key={"file": str(key)},
                    directory={"users": PEOPLE},
                )
                guards.append(await stack.enter_async_context(from_file(folder / name, text)))
            yield guards[0], guards[1]


@on_uvloop
async def test_a_client_comes_back_at_another_guard(tmp_path: Path, database: str) -> None:
    async with two(tmp_path, database) as (a, b):
        mary = await come(a, "mary", stays=True)
        await mary.subscribe("#", qos=2)
        await mary.send(wire.Disconnect())
        await mary.closed()
        bob = await come(b, "bob")
        for qos in (1, 2):
            await say(bob, "open/x", b"%d" % qos, qos=qos)
        mary = await come(b, "mary", stays=True)
        assert mary.connack.session_present
        assert [message.payload for message in await inbox(mary)] == [b"1", b"2"]
        await say(await come(a, "carol"), "open/x", b"3", qos=1)
        await until(lambda: bool(mary.reader._buffer))  # type: ignore[attr-defined]
        assert [message.payload for message in await inbox(mary)] == [b"3"]


@on_uvloop
async def test_nobody_gets_the_session_of_somebody_else_at_another_guard(tmp_path: Path, database: str) -> None:
    """With the same client identifier each has a session of its own there, and does not end the other's connection."""
    async with two(tmp_path, database) as (a, b):
        mary = await come(a, "mary", client="tablet", stays=True)
        await mary.subscribe("open/#", qos=1)
        bob = await come(b, "bob", client="tablet", stays=True)
        assert not bob.connack.session_present
        await say(bob, "open/x", b"1", qos=1)
        assert [message.payload for message in await inbox(mary)] == [b"1"]
        assert await inbox(bob) == []
        await come(a, "bob", client="tablet", expect=0x85)  # and at one guard it is one name


@on_uvloop
async def test_what_one_guard_only_would_know_is_refused(tmp_path: Path, database: str) -> None:
    """A condition of a subscription that outlives its connection; one that ends with it is known where it counts."""
    async with two(tmp_path, database) as (a, _):
        condition = wire.Properties(user_properties=(("where", "o.payload.a > 1"),))
        for stays, reason in ((True, 0x83), (False, 0)):
            end = await come(a, "mary", client=f"{stays}", stays=stays)
            subscription = wire.Subscription(filter="open/#", qos=0)
            await end.send(wire.Subscribe(packet_id=1, subscriptions=(subscription,), properties=condition))
            assert (await end.expect(wire.Suback)).reasons == (reason,)
