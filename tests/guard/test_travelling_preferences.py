"""Two guards of one broker: what an owner says at one of them binds at the other, which has other preferences."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from guard.guarded import HERE, broker, guarded, guarding
from guard.test_bridging import environments
from processes import Served, on_uvloop
from sockets.acts import come, inbox, policy
from tidegate.cli import certificates as cli

SECRET = "what the guards of this scope share"
ALL = policy("all", "open/#")


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("papers")
    cli.make_ca(folder, "Test CA", days=2)
    for name in ("near", "far"):
        cli.issue(folder, name, [], client=True, days=2)
    return folder


def section(papers: Path | None, name: str, domain: str) -> dict[str, Any]:
    files = {} if papers is None else {key: str(papers / f"{name}.{key}") for key in ("key",)}
    if papers is not None:
        files |= {"cert": str(papers / f"{name}.pem"), "ca": str(papers / "ca.pem")}
    trust = {} if papers is None else {"trust": {"domains": {"brand": {"nodes": ["near", "far"]}}}}
    return {"node": {"name": name, "domain": domain, **files}, "scope": {**HERE, "secret": SECRET}, **trust}


def only(reader: str) -> list[dict[str, Any]]:
    return [{"id": "up", "user": "mary", "topic": "open/#", "when": f"s.user == '{reader}'"}]


@contextlib.asynccontextmanager
async def two_guards(
    folder: Path, papers: Path | None, far: str = "brand", **near: Any
) -> AsyncIterator[tuple[Served, Served, int]]:
    for name in ("near", "far"):
        (folder / name).mkdir()
    with broker() as port:
        async with (
            guarded(folder / "near", port, ALL, **section(papers, "near", "brand"), **near) as one,
            guarded(folder / "far", port, ALL, **section(papers, "far", far)) as two,
        ):
            yield one, two, port


async def readers(one: Served, two: Served, qos: int) -> list[str]:
    """Which of alice and bob, at the second guard, receive what mary publishes at the first."""
    ends = {name: await come(two, name) for name in ("alice", "bob")}
    for end in ends.values():
        await end.subscribe("open/#", qos=2)
    mary = await come(one, "mary")
    await mary.publish("open/a", b"x", qos=qos)
    await mary.silent()
    return [name for name, end in ends.items() if await inbox(end)]


@on_uvloop
async def test_guards_of_one_brand_decide_alike(tmp_path: Path, papers: Path) -> None:
    async with two_guards(tmp_path, papers, preferences=only("alice")) as (one, two, port):
        for qos in (0, 1, 2):
            assert await readers(one, two, qos) == ["alice"]
        near = section(papers, "near", "brand")
        await one.reload(guarding(port, ALL, preferences=only("bob"), **near))
        assert await readers(one, two, 1) == ["bob"]
        await one.reload(guarding(port, ALL, **near))
        assert await readers(one, two, 1) == ["alice", "bob"]


@on_uvloop
async def test_guards_of_different_domains(tmp_path: Path, papers: Path) -> None:
    """Names in preferences mean people of the domain where they were written."""
    async with two_guards(tmp_path, papers, far="other", preferences=only("alice@other")) as (one, two, port):
        assert await readers(one, two, 1) == ["alice"]
        await one.reload(guarding(port, ALL, preferences=only("alice"), **section(papers, "near", "brand")))
        assert await readers(one, two, 1) == []


@on_uvloop
async def test_different_domains_over_a_bridge(tmp_path: Path, papers: Path) -> None:
    """The guard between two environments passes on what it was told, and decides by it for its own clients."""
    rules = (policy("all", subject=["*", "link:one->two", "link:two->one"]),)
    near, far = (section(papers, *place) for place in (("near", "brand"), ("far", "other")))
    for each in (near, far):
        del each["scope"]
    near["preferences"] = only("alice@other")
    async with environments(tmp_path, *rules, near=near, **far) as (one, two, _, _):
        alice, bob, mary = await come(two, "alice"), await come(two, "bob"), await come(one, "mary")
        for end in (alice, bob):
            await end.subscribe("open/#", qos=2)
        for qos in (0, 1, 2):
            await mary.publish("open/a", b"%d" % qos, qos=qos)
            assert (await alice.message()).payload == b"%d" % qos
        assert await inbox(bob) == []


@on_uvloop
async def test_what_nobody_has_signed_is_not_known(tmp_path: Path) -> None:
    """Without certificates a guard only says that there are preferences: another one that has none denies."""
    async with two_guards(tmp_path, None, preferences=only("alice")) as (one, two, port):
        assert await readers(one, two, 1) == []
        assert await readers(one, one, 1) == ["alice"]
        await two.reload(guarding(port, ALL, preferences=only("bob"), **section(None, "far", "brand")))
        assert await readers(one, two, 1) == ["bob"]
