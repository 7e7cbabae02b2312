"""Two nodes that are not alike: with different files, clocks or releases, and one that is slower than the other."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import httpx
import psycopg
import pytest

import postgres
from admin.registries import OPEN as ANYBODY
from admin.registries import administered
from node.test_two_nodes import counts, number
from processes import STARTING, on_uvloop
from processes import until as soon
from reliability.nodes import FILE, OPEN, Node, eyes, pair, ready, running, until

CANNOT = "what is stored cannot be put in force here, the last good one stays"
AHEAD = """
import time
real = time.time
time.time = lambda: real() + 100 * 86400
"""


@pytest.fixture(scope="module")
def server() -> Iterator[postgres.Server]:
    with postgres.running() as server:
        yield server


@pytest.fixture(scope="module")
def two(server: postgres.Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Node, Node]]:
    """The file of the second one has a policy `taken`."""
    other = FILE + '  - {id: taken, subject: "*", topic: "other/#", action: [read, write]}\n'
    with pair(server, tmp_path_factory.mktemp("apart"), other=other, allowed=(CANNOT,)) as both:
        yield both


async def unready(api: httpx.AsyncClient) -> bool:
    return not await ready(api)


async def alike(one: Node, other: Node) -> bool:
    return await one.digest() == await other.digest()


async def shows(api: httpx.AsyncClient, path: str, version: int) -> bool:
    return bool((await api.get(path)).headers.get("etag") == f'"{version}"')


async def test_a_document_that_is_impossible_with_the_other_file(two: tuple[Node, Node]) -> None:
    """It is said there, the last good rules stay, and it is mended on either side."""
    a, b = two
    async with a.client() as here, b.client() as there, eyes(b, "other/#", "t/#") as seen:
        assert await ready(here)
        assert await ready(there)
        for mend in ("the document", "the file"):
            version = number(await here.put("/policies/taken", json=OPEN), 201)
            await until(partial(unready, there))
            assert await ready(here)
            state = (await b.status())["registry"]
            assert (state["in_force"], state["reachable"], state["sequence"]) == (False, True, version)
            assert "policy/taken: `id` is `taken`" in state["trouble"]
            # it goes on with what it had, and takes no change on top of what it cannot have
            assert await seen.passes("other/1")
            assert not await seen.passes("t/1")
            refused = await there.put("/policies/more", json=OPEN)
            assert refused.status_code == 422, refused.text
            assert refused.json()["errors"][0]["at"] == "policy/taken"
            if mend == "the document":
                assert (await here.delete("/policies/taken")).status_code == 200
            else:
                b.process.file.write(b.process.file.path.read_text().replace("id: taken", "id: mended"))
                b.process.signal(signal.SIGHUP)
            await until(partial(ready, there))
            assert await seen.passes("t/1") is (mend == "the file")
            assert (await b.status())["registry"]["trouble"] is None
        number(await there.put("/policies/more", json={**OPEN, "topic": "more"}), 201)
        for id in ("taken", "more"):
            assert (await there.delete(f"/policies/{id}")).status_code == 200


async def test_clocks_that_differ(two: tuple[Node, Node], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Versions are numbers, not times. What has expired for a node that is far ahead is still there for the others."""
    a, _ = two
    (tmp_path / "sitecustomize.py").write_text(AHEAD)
    with monkeypatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
        ahead = Node(tmp_path / "ahead", a.store, "ahead")
    with running(ahead):
        ahead.token = (await ahead.ask("token_make", role="admin", by="test"))["token"]
        async with a.client() as here, ahead.client() as there:
            version = number(await here.put("/policies/p", json=OPEN), 201)
            for one, other in ((there, here), (here, there), (there, here)):
                await until(partial(shows, one, "/policies/p", version))
                seen = {"If-Match": f'"{version}"'}
                newer = number(await one.put("/policies/p", json={**OPEN, "topic": "t/1"}, headers=seen), 200)
                assert newer > version
                assert (await other.put("/policies/p", json=OPEN, headers=seen)).status_code == 412
                version = newer
            history = (await here.get("/policies/p/history")).json()["items"]
            numbers, times = [each["sequence"] for each in history], [each["at"] for each in history]
            assert (numbers == sorted(numbers), times == sorted(times)) == (True, False)
            # the first token has expired for who is a hundred days ahead, and for nobody else
            assert not await counts(ahead, a.token)
            made = await ahead.ask("token_make", role="auditor", by="test")
            await until(partial(counts, a, made["token"]))
            assert await counts(a, a.token)
            assert a.token[3:19] in {each["id"] for each in (await here.get("/tokens")).json()["items"]}
            await until(partial(alike, a, ahead))
            assert (await there.delete("/policies/p")).status_code == 200


async def test_a_registry_of_a_newer_release(two: tuple[Node, Node], server: postgres.Server, tmp_path: Path) -> None:
    """A node does not start on it; those that run go on, say so, and change nothing."""
    a, b = two
    async with a.client() as here, b.client() as there, eyes(a, "t/#") as seen:
        number(await here.put("/policies/before", json=OPEN), 201)
        with psycopg.connect(a.store, autocommit=True) as database:
            database.execute("UPDATE tidegate_schema SET version = version + 1")
            late = Node(tmp_path, a.store, "late")
            for node, api in ((a, here), (b, there)):
                await until(partial(unready, api))
                assert "newer Tidegate" in (await node.status())["registry"]["trouble"]
                refused = await api.put("/policies/after", json=OPEN)
                assert refused.status_code == 503, refused.text
                assert "newer Tidegate" in refused.json()["detail"]
                assert refused.json()["remedy"].startswith("run the newer Tidegate on every node")
            assert await seen.passes("t/1")
            try:
                assert late.process.popen.wait(STARTING) == 1
                [said] = late.process.events("cannot start")
                assert "newer Tidegate" in said["reason"]
            finally:
                late.process.kill()
            database.execute("UPDATE tidegate_schema SET version = version - 1")
        for api in (here, there):
            await until(partial(ready, api))
        number(await there.put("/policies/after", json=OPEN), 201)


@on_uvloop
async def test_a_token_that_was_made_right_before_a_change_here(server: postgres.Server, tmp_path: Path) -> None:
    """The change has a higher number than the token, of which nothing was heard yet."""
    store = f'store: "{server.address(schema=server.schema())}"'
    async with administered(tmp_path / "a", store, name="a") as a, administered(tmp_path / "b", store, name="b") as b:
        here = a.node.administration
        assert here is not None
        follower = here._follower
        notice, heard = follower._notice, list[int]()
        follower._notice = heard.append  # type: ignore[assignment,method-assign]
        token = await b.ask("token_make", role="auditor", by="test")
        done = await a.put("policy", "p", ANYBODY)
        await soon(lambda: done["sequence"] in heard)
        notice(heard[-1])
        follower._notice = notice  # type: ignore[method-assign]
        await soon(lambda: here.tokens._tokens.check(token["token"], 0.0) is not None)
