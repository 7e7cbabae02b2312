"""Bearer tokens: random, hashed, expiring, revocable; the first one is shown once."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any
from unittest.mock import create_autospec

import pytest
import structlog

from admin.registries import FILE, administered
from processes import on_uvloop
from tidegate.admin.change_audit import ChangeAudit
from tidegate.admin.registry_threads import RegistryThreads
from tidegate.admin.token_administration import Configured, TokenAdministration
from tidegate.admin.tokens import FirstToken, Token, Tokens
from tidegate.errors import Problem
from tidegate.store.registry import Registry, registry

NOW = 1_000_000.0
DAY = 86400.0


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Registry]:
    made = registry(f"sqlite:///{tmp_path}/admin.db")
    made.open()
    yield made
    made.close()


def tokens(kept: Registry, *, most: int = 100) -> Tokens:
    made = Tokens(kept, valid=90 * DAY, most=most)
    made.load(NOW)
    return made


def make(
    made: Tokens, role: str = "admin", *, user: str | None = None, seconds: float | None = None
) -> tuple[Token, str]:
    return made.make(role=role, user=user, name="n", seconds=seconds, by="test", now=NOW)


def test_a_token_counts_until_it_expires(kept: Registry) -> None:
    made = tokens(kept)
    token, text = make(made, seconds=DAY)
    found = made.check(text, NOW)
    assert found == token
    assert made.check(text, NOW + DAY - 1) is not None
    assert made.check(text, NOW + DAY) is None
    assert [each.id for each in made.all(NOW)] == [token.id]
    assert made.all(NOW + DAY) == []


def test_what_is_stored_is_a_hash(kept: Registry, tmp_path: Path) -> None:
    token, text = make(tokens(kept))
    assert len(text) >= 43 + 16
    _, _, secret = text.split("_", 2)  # which may have more of them
    assert secret not in repr(token)
    with sqlite3.connect(tmp_path / "admin.db") as database:
        [(value,)] = database.execute("SELECT value FROM tidegate_secret")
    database.close()
    assert text.encode() not in value
    assert text[-43:].encode() not in value


@pytest.mark.parametrize("change", ["", "tg_", "x", "tg_0000000000000000_" + "A" * 43, "ü"])
def test_others_do_not_count(kept: Registry, change: str) -> None:
    made = tokens(kept)
    _, text = make(made)
    assert made.check(change, NOW) is None
    assert made.check(text + "A", NOW) is None
    assert made.check(text[:-1], NOW) is None
    for at in (len(text) - 1, len(text) - 20, 5):
        other = text[:at] + ("b" if text[at] == "a" else "a") + text[at + 1 :]
        assert made.check(other, NOW) is None


def test_revoked_here_and_elsewhere(kept: Registry) -> None:
    here, there = tokens(kept), tokens(kept)
    token, text = make(here)
    assert there.check(text, NOW) is None
    there.load(NOW)
    assert there.check(text, NOW) is not None
    assert there.revoke(token.id, by="somebody", now=NOW).revoked_by == "somebody"
    assert there.check(text, NOW) is None
    assert here.check(text, NOW) is not None  # until it is told
    assert here.revoke(token.id, by="me", now=NOW).revoked_by == "somebody"
    assert here.check(text, NOW) is None
    assert [each.revoked_at for each in here.all(NOW)] == [NOW]  # still listed
    with pytest.raises(Problem) as problem:
        here.revoke("nothing", by="me", now=NOW)
    assert problem.value.problem == "unknown"


@pytest.mark.parametrize(
    ("role", "user", "seconds"),
    [("boss", None, None), ("user", None, None), ("admin", None, 0.0), ("admin", None, 91 * DAY)],
)
def test_what_cannot_be_made(kept: Registry, role: str, user: str | None, seconds: float | None) -> None:
    with pytest.raises(Problem) as problem:
        make(tokens(kept), role, user=user, seconds=seconds)
    assert problem.value.problem == "invalid"


def test_their_number_is_bounded(kept: Registry) -> None:
    made = tokens(kept, most=1)
    make(made)
    with pytest.raises(Problem, match="1 tokens already"):
        make(made)


# -- the first one -----------------------------------------------------------------------------------------------------


class Dead(BaseException):
    """The node is killed here."""


class DyingThreads(RegistryThreads):
    """Threads on which the call of that name kills the node."""

    def __init__(self, dies: str) -> None:
        super().__init__()
        self._dies = dies

    async def call(self, do: Any, *args: Any, **kwargs: Any) -> Any:
        if getattr(do, "func", do).__name__ == self._dies:
            raise Dead
        return await super().call(do, *args, **kwargs)


class Starting(TokenAdministration):
    """As much of a node as shows the first token. It dies just before the step of that name."""

    def __init__(self, kept: Registry, *, dies: str = "") -> None:
        self.tokens = tokens(kept)
        super().__init__(
            create_autospec(Configured), self.tokens, DyingThreads(dies), create_autospec(ChangeAudit, instance=True)
        )
        self.shown: list[str] = []
        self._dies = dies

    async def _show(self, token: Token, text: str, named: FirstToken) -> None:
        if self._dies == "show":
            raise Dead
        self.shown.append(text)
        await super()._show(token, text, named)


async def starts(one: Starting) -> str:
    """What is shown; nothing: an empty text."""
    try:
        await one.show_first()
    finally:
        one._threads.close()
    return "".join(one.shown)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.admin.token_administration.SHOWING", 0.5)


def counting(kept: Registry) -> list[str]:
    """The tokens that count, by id."""
    return [each.id for each in tokens(kept).all(time.time()) if each.revoked_at is None]


async def test_the_first_one_is_shown_once(kept: Registry, at_once: None) -> None:
    shown = await starts(Starting(kept))
    assert tokens(kept).check(shown, time.time()) is not None
    for _ in range(2):
        assert await starts(Starting(kept)) == ""
    assert counting(kept) == [shown.split("_")[1]]
    tokens(kept).revoke(counting(kept)[0], by="me", now=time.time())
    assert await starts(Starting(kept)) == "", "nor when it is gone"


async def test_a_node_that_dies_before_it_has_shown_it_leaves_that_to_the_next(kept: Registry, at_once: None) -> None:
    """At every step, and twice in a row; what was shown and not noted as such does not count then."""
    dead: list[str] = []
    for dies in ("first", "make", "name_first", "show", "shown_first", "name_first", "show", "shown_first"):
        one = Starting(kept, dies=dies)
        with pytest.raises(Dead):
            await starts(one)
        dead += one.shown
    shown = await starts(Starting(kept))
    known = tokens(kept)
    assert known.check(shown, time.time()) is not None
    assert len(dead) == 2, "killed right after they had shown it"
    assert [known.check(each, time.time()) for each in dead] == [None, None]
    assert await starts(Starting(kept)) == ""
    named = [each for each in known.all(time.time()) if each.revoked_at is not None]
    assert len(named) == 4, "whatever may have been shown"


async def test_of_many_that_start_at_once_one_shows_it(kept: Registry, at_once: None) -> None:
    shown = await asyncio.gather(*(starts(Starting(kept)) for _ in range(8)))
    [text] = [each for each in shown if each]
    assert tokens(kept).check(text, time.time()) is not None
    assert counting(kept) == [text.split("_")[1]], "nothing is left of the others"


async def test_many_that_start_at_once_after_one_has_died(kept: Registry, at_once: None) -> None:
    one = Starting(kept, dies="shown_first")
    with pytest.raises(Dead):
        await starts(one)
    shown = await asyncio.gather(*(starts(Starting(kept)) for _ in range(8)))
    [text] = [each for each in shown if each]
    assert counting(kept) == [text.split("_")[1]]
    assert one.shown != []


async def test_one_that_is_slow_shows_none_that_others_take_for_lost(
    kept: Registry, at_once: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, other = Starting(kept), Starting(kept)
    name, waited = slow.tokens.name_first, Event()

    def late(*args: Any) -> FirstToken | None:
        found = name(*args)
        if not waited.is_set():
            waited.set()
            time.sleep(1.2)  # until the other one takes it for dead
        return found

    monkeypatch.setattr(slow.tokens, "name_first", late)
    slowly = asyncio.create_task(starts(slow))
    await asyncio.get_running_loop().run_in_executor(None, waited.wait, 10)
    shown = [await starts(other), await slowly]
    assert shown[0]
    assert shown[1] == ""
    assert counting(kept) == [shown[0].split("_")[1]]


# -- in a node -----------------------------------------------------------------------------------------------------


@on_uvloop
async def test_a_node_shows_the_first_token_once(tmp_path: Path) -> None:
    text = FILE + "http: {url: 'http://127.0.0.1:HTTP_PORT'}\n"
    with structlog.testing.capture_logs() as logs:
        async with administered(tmp_path, "", text=text) as node:
            [line] = [each for each in logs if "first token" in each["event"]]
            found = await node.ask("token_check", token=line["token"])
            assert (found["id"], found["role"], found["user"]) == (line["id"], "admin", None)
            assert [each["id"] for each in (await node.ask("token_list"))["tokens"]] == [line["id"]]
            assert "digest" not in str(await node.ask("token_list"))
    with structlog.testing.capture_logs() as logs:
        async with administered(tmp_path, "", text=text) as node:
            assert not [each for each in logs if "first token" in each["event"]]
            assert (await node.ask("token_check", token=line["token"]))["id"] == line["id"]
            await node.ask("token_revoke", id=line["id"], by="me")
            assert (await node.problem("token_check", token=line["token"])).problem == "unknown"
    with structlog.testing.capture_logs() as logs:
        async with administered(tmp_path, "", text=text) as node:
            assert not [each for each in logs if "first token" in each["event"]]
            assert (await node.problem("token_check", token=line["token"])).problem == "unknown"
            rows = [(row.action, row.user, row.rule) for row in node.node.audit.sink.recent()]
            made = await node.ask("token_make", role="operator", name="mine", seconds=3600, by="token:x")
            rows = [(row.action, row.user, row.rule) for row in node.node.audit.sink.recent()]
            assert ("token make", "token:x", f"token:{made['id']}") in rows


@on_uvloop
async def test_a_token_of_somebody_who_is_gone_does_not_count(tmp_path: Path) -> None:
    async with administered(tmp_path) as node:
        assert (await node.problem("token_make", role="user", user="bob", by="x")).problem == "unknown"
        await node.put("user", "bob", {})
        token = (await node.ask("token_make", role="user", user="bob", by="x"))["token"]
        assert (await node.ask("token_check", token=token))["user"] == "bob"
        await node.put("user", "bob", None)
        assert (await node.problem("token_check", token=token)).problem == "unknown"
        assert (await node.problem("token_check", token=7)).problem == "invalid"


# -- the rest of the desk --------------------------------------------------------------------------------------------


@on_uvloop
async def test_explanations_and_numbers(tmp_path: Path) -> None:
    async with administered(tmp_path) as node:
        found = await node.ask("explain", subject="user:keeper", action="write", topic="filed/1", payload="x")
        assert (found["allowed"], found["rule"]) == (True, "filed")
        found = await node.ask("explain", subject="client:x", action="read", topic="a", publisher="client:y")
        assert not found["allowed"]
        for wrong in ({"action": "eat"}, {"topic": "a/#"}, {"qos": 3}, {"properties": [1]}, {"overrides": 7}):
            asked = {"subject": "client:x", "action": "write", "topic": "a", **wrong}
            assert (await node.problem("explain", **asked)).problem == "invalid"
        metrics = await node.ask("metrics")
        assert metrics["scopes"]["main"]["sessions"] == 0
        assert metrics["registry"]["reachable"]
        assert metrics["registry"]["in_force"]
