"""Bearer tokens: random, hashed, expiring, revocable; the log has none."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from admin.registries import FILE, administered
from processes import on_uvloop
from tidegate.admin.control_commands import MakeToken
from tidegate.admin.tokens import Token, Tokens
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
    return made.make(MakeToken(role=role, user=user, name="n", seconds=seconds, by="test"), now=NOW)


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


# -- in a node -----------------------------------------------------------------------------------------------------


@on_uvloop
async def test_a_node_says_that_no_administrator_has_a_token_and_shows_none(tmp_path: Path) -> None:
    text = FILE + "http: {url: 'http://127.0.0.1:HTTP_PORT'}\n"
    said = "nobody has a token of an administrator"
    with structlog.testing.capture_logs() as logs:
        async with administered(tmp_path, "", text=text) as node:
            assert (await node.ask("token_list"))["tokens"] == []
            await node.ask("token_make", role="operator", by="uid:0")
            node.node.announce()
            [line] = [each for each in logs if each["event"] == said]
            assert line["remedy"] == f"tidegate token make --socket -c {node.file.path}"
            token = (await node.ask("token_make", role="admin", by="uid:0"))["token"]
            node.node.announce()
            assert (await node.ask("token_check", token=token))["role"] == "admin"
            assert "digest" not in str(await node.ask("token_list"))
            rows = [(row.action, row.user, row.rule) for row in node.node.audit.sink.recent()]
            assert ("token make", "uid:0", f"token:{token.split('_')[1]}") in rows
            assert [each["event"] for each in logs].count(said) == 1
            await node.ask("token_revoke", id=token.split("_")[1], by="me")
            assert (await node.problem("token_check", token=token)).problem == "unknown"
            node.node.announce()
    assert [each["event"] for each in logs].count(said) == 2
    assert "tg_" not in str(logs)


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
