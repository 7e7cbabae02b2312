"""Identities of nodes that share a PostgreSQL server: they agree on ids, and on who is no more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import postgres
from admin.registries import FILE, Administered, administered
from processes import on_uvloop, until
from tidegate.errors import Problem
from tidegate.wire import Reason

BOB = '    bob: {password: "plain:first"}\n'
NEXT = '    bob: {password: "plain:second"}\n'
USERS = "directory:\n  users:\n"
WITHOUT = FILE.replace(USERS, f"{USERS}BOB").replace("anonymous: true", "anonymous: false")
Both = AsyncIterator[tuple[Administered, Administered, str]]


@pytest.fixture(scope="module")
def server() -> Iterator[postgres.Server]:
    with postgres.running() as server:
        yield server


def text(bob: str, name: str, store: str) -> str:
    return WITHOUT.replace("BOB", bob).replace("NAME", name).replace("STORE", store)


@asynccontextmanager
async def both(server: postgres.Server, folder: Path, bob: str = BOB) -> Both:
    store = f'store: "{server.address(schema=server.schema())}"'
    file = WITHOUT.replace("BOB", bob)
    async with (
        administered(folder / "a", store, name="a", text=file) as a,
        administered(folder / "b", store, name="b", text=file) as b,
    ):
        yield a, b, store


def id_of(node: Administered, name: str = "bob") -> str:
    return node.node.identities.table.id("user", name)


async def make_token(node: Administered, user: str = "bob") -> str:
    made = await node.ask("token_make", role="user", user=user, by="test")
    return str(made["token"])


async def counts(node: Administered, token: str) -> bool:
    try:
        await node.ask("token_check", token=token)
    except Problem:
        return False
    return True


@on_uvloop
async def test_they_agree_and_a_removal_here_counts_there(tmp_path: Path, server: postgres.Server) -> None:
    async with both(server, tmp_path) as (a, b, store):
        first = id_of(a)
        assert first == id_of(b) != ""
        token = await make_token(a)
        await wait_for(lambda: counts(b, token), True)
        bob = await b.connect("c", username="bob", password=b"first")
        await a.reload(text("", "a", store))
        assert not await counts(a, token)
        await a.connect("c", username="bob", password=b"first", expect=Reason.BAD_USER_NAME_OR_PASSWORD)
        # the file of b still has the name: it is another bob there, and the token of the first counts nowhere
        await until(lambda: id_of(b) not in ("", first))
        await wait_for(lambda: counts(b, token), False)
        await bob.closed()
        await a.reload(text(NEXT, "a", store))
        assert id_of(a) == id_of(b) != first
        assert not await counts(a, token)


@on_uvloop
async def test_a_document_is_the_same_on_both(tmp_path: Path, server: postgres.Server) -> None:
    async with both(server, tmp_path, "") as (a, b, _):
        await a.put("user", "zoe", {})
        await until(lambda: id_of(b, "zoe") != "")
        first = id_of(a, "zoe")
        assert id_of(b, "zoe") == first
        await until(lambda: "zoe" in b.node.config.directory.users)  # ids are known before they count
        token = await make_token(b, "zoe")
        await b.put("user", "zoe", None)
        await until(lambda: id_of(a, "zoe") == "")
        await a.put("user", "zoe", {})
        assert id_of(a, "zoe") not in ("", first)
        await until(lambda: id_of(a, "zoe") == id_of(b, "zoe"))
        await wait_for(lambda: counts(a, token), False)
        assert not await counts(b, token)


@on_uvloop
async def test_a_file_can_be_taken_up_while_the_server_is_away(tmp_path: Path) -> None:
    """Somebody is removed in a hurry; the others hear of it when the server is back."""
    with postgres.running() as server:
        async with both(server, tmp_path) as (a, b, store):
            first, token = id_of(a), await make_token(a)
            await wait_for(lambda: counts(b, token), True)
            bob = await a.connect("c", username="bob", password=b"first")
            await asyncio.to_thread(server.stop)
            await until(lambda: not a.node.status()["registry"]["reachable"])
            await a.reload(text("", "a", store))
            await bob.closed()
            assert not await counts(a, token)
            assert a.node.identities.untold
            await asyncio.to_thread(server.start)
            await until(lambda: not a.node.identities.untold)
            await until(lambda: id_of(b) != first)
            await wait_for(lambda: counts(b, token), False)


async def wait_for(condition: object, wanted: bool) -> None:
    async with asyncio.timeout(10):
        while await condition() is not wanted:  # type: ignore[operator]
            await asyncio.sleep(0.02)
