"""What monitors must not break, through real sockets, whatever they remember or put out."""

from __future__ import annotations

from pathlib import Path

import pytest

from processes import on_uvloop, until
from sockets.acts import come, door, go, inbox, marked, say
from sockets.watchers import denials, emitting, entering, got, leaving, states
from tidegate import wire
from tidegate.session import Connection
from tidegate.store.journal import AUDIT, Reader

each_qos = pytest.mark.parametrize("qos", [0, 1, 2])
DEEP = "a" + "/b" * 126  # fits, but not with two levels more
DEEPER = {"map": {"a/#": "x/y/a/#"}}
LIMITS = {"topic_levels": 128}
TOO_DEEP = "puts out a topic of more than 128 levels"


# -- what monitors in Python remember ----------------------------------------------------------------------------


@each_qos
@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (b"[" * 101 + b"]" * 101, "the state is nested more than 100 deep"),
        (b"[" * 480 + b"]" * 480, "the state is nested more than 100 deep"),
        (b"[" * 5000 + b"]" * 5000, "RecursionError"),
        (b'"\\ud800"', "the state is no JSON ('utf-8' codec"),
        (b'{"\\udfff": 1}', "the state is no JSON ('utf-8' codec"),
    ],
    ids=["deep", "deeper", "too deep to read", "surrogate", "surrogate key"],
)
@on_uvloop
async def test_a_state_that_cannot_be_kept_suppresses_and_leaves_what_was_there(
    tmp_path: Path, payload: bytes, said: str, qos: int
) -> None:
    """The node must be able to write down every state and to read it when it starts, and others with it."""
    monitors = [entering("last", python="monitor.mine:Remembering"), entering("half", use="hsup_em")]
    async with door(tmp_path, data=True, monitors=monitors) as node:
        mary, alice = await come(node, "mary"), await come(node, "alice")
        await alice.subscribe("t", qos=1)
        assert await say(mary, "t", b"[1]", qos=1) == 0
        assert await say(mary, "t", payload, qos=qos) == (0x10 if qos == 1 else 0)
        assert (await inbox(alice))[0].payload == b"[1]"
        [row] = await denials(node, "last")
        assert row.stage == "monitor in"
        assert said in (row.detail or "")
    async with door(tmp_path, data=True, monitors=monitors) as node:
        whose = "user:mary client:mary->scope:main"
        assert states(node, "last") == {whose: [1]}
        assert states(node, "half") == {whose: "suppress"}


@on_uvloop
async def test_why_a_monitor_failed_is_audited_also_if_that_is_no_text(tmp_path: Path) -> None:
    monitors = [entering("loud", python="monitor.mine:Complaining")]
    async with door(tmp_path, data=True, monitors=monitors) as node:
        mary = await come(node, "mary")
        assert await say(mary, "t", b"\xff!", qos=1) == 0x10
    rows = Reader(tmp_path / "data", AUDIT).rows()
    assert [row["detail"] for row in rows if row["rule"] == "loud"] == [
        "monitor.mine:Complaining: ValueError: \\udcff!"
    ]


# -- topics that become too deep ---------------------------------------------------------------------------------


@each_qos
@on_uvloop
async def test_a_topic_that_a_map_makes_too_deep_is_denied(tmp_path: Path, qos: int) -> None:
    """`limits.topic_levels` holds for what monitors put out; its publisher is not to blame and stays connected."""
    async with door(
        tmp_path, limits=LIMITS, monitors=[entering("deeper", **DEEPER), entering("half", use="hsup_em")]
    ) as node:
        mary, alice = await come(node, "mary"), await come(node, "alice")
        await alice.subscribe("#", qos=2)
        assert await say(mary, DEEP, b"1", qos=qos) == (0x10 if qos == 1 else 0)
        assert await say(mary, "a/b", b"2", qos=qos) == 0
        assert await got(alice) == [("x/y/a/b", b"2")]
        [row] = await denials(node, "deeper")
        assert (row.action, row.stage, row.detail) == ("write", "monitor in", TOO_DEEP)


@on_uvloop
async def test_on_the_way_out_too(tmp_path: Path) -> None:
    async with door(tmp_path, limits=LIMITS, monitors=[leaving("deeper", **DEEPER)]) as node:
        mary, alice = await come(node, "mary"), await come(node, "alice")
        await alice.subscribe("#", qos=1)
        for topic in (DEEP, "a/b"):
            assert await say(mary, topic, qos=1) == 0
        assert await got(alice) == [("x/y/a/b", b"x")]
        rows = await denials(node, "deeper")  # also on the link to mary, who has subscribed to nothing
        assert {(row.action, row.stage, row.detail) for row in rows} == {("read", "monitor out", TOO_DEEP)}
        assert sorted(row.client or "" for row in rows) == ["alice", "mary"]


@on_uvloop
async def test_a_timer_that_speaks_too_deep(tmp_path: Path) -> None:
    silence = {"silence": "20ms", "emit": {"topic": "t" + "/b" * 200, "payload": "x"}}
    async with door(tmp_path, limits=LIMITS, monitors=[entering("quiet", **silence)]) as node:
        mary, alice = await come(node, "mary"), await come(node, "alice")
        await alice.subscribe("#", qos=1)
        await say(mary, "z", qos=1)
        await until(lambda: states(node, "quiet")["user:mary client:mary->scope:main"] is None)
        assert [one.topic for one in await inbox(alice)] == ["z"]
        [row] = await denials(node, "quiet")
        assert row.detail == TOO_DEEP


LISTENER = {"url": "mqtt://127.0.0.1:PORT", "anonymous": True, "max_connections": 2}


@on_uvloop
async def test_a_will_that_becomes_too_deep_takes_no_place_with_it(tmp_path: Path) -> None:
    async with door(tmp_path, limits=LIMITS, monitors=[entering("deeper", **DEEPER)], listeners=[LISTENER]) as node:
        alice = await come(node, "alice")
        await alice.subscribe("#", qos=1)
        for number in range(4):
            topic = DEEP if number < 3 else "a/will"
            will = wire.Will(topic=topic, payload=b"w", qos=1, retain=False)
            await go(node, await come(node, "mary", client=f"c{number}", will=will))
        assert await got(alice) == [("x/y/a/will", b"w")]
        rows = await denials(node, "deeper")
        assert {row.detail for row in rows} == {TOO_DEEP}
        assert sum(row.count for row in rows) == 3
        assert len(node.node.scopes["main"].sessions) == 1


@on_uvloop
async def test_whatever_fails_when_a_connection_is_lost_its_place_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = Connection.lost

    def failing(connection: Connection) -> None:
        lost(connection)
        raise LookupError("a bug")

    async with door(tmp_path, listeners=[LISTENER]) as node:
        alice = await come(node, "alice")
        with monkeypatch.context() as patched:
            patched.setattr(Connection, "lost", failing)
            for number in range(4):
                await go(node, await come(node, "mary", client=f"c{number}"))
        await say(alice, "t", qos=1)


# -- shared subscriptions, and limits ----------------------------------------------------------------------------


@each_qos
@on_uvloop
async def test_a_shared_subscription_gets_what_monitors_make(tmp_path: Path, qos: int) -> None:
    """What is changed on the way out goes to the subscription that its original came by, if that matches it."""
    monitors = [leaving("m", **emitting("t/+", {"payload": "new"}, {"topic": "t/also"}, {"topic": "other"}))]
    async with door(tmp_path, monitors=monitors) as node:
        mary, alice, bob = [await come(node, name) for name in ("mary", "alice", "bob")]
        await alice.subscribe("$share/g/t/+", qos=2)
        await bob.subscribe("t/+", qos=2)
        assert await say(mary, "t/1", b"1", qos=qos) == 0
        for end in (alice, bob):
            found = await inbox(end)
            assert [(one.topic, one.payload) for one in found] == [("t/1", b"new"), ("t/also", b"1")]
            assert {one.qos for one in found} == {qos}


@on_uvloop
async def test_one_member_of_the_group_gets_it_also_after_a_restart(tmp_path: Path) -> None:
    monitors = [leaving("m", **emitting("t", {"payload": "new"}))]
    async with door(tmp_path, data=True, monitors=monitors) as node:
        mary, alice = await come(node, "mary"), await come(node, "alice", stays=True)
        await alice.subscribe("$share/g/t", "mark", qos=1)
        await go(node, alice)
        assert await say(mary, "t", b"1", qos=1) == 0
    async with door(tmp_path, data=True, monitors=monitors) as node:
        alice = await come(node, "alice", stays=True)
        assert await marked(alice, node) == [b"new"]


@pytest.mark.parametrize(("most", "retain"), [(0, False), (1, False), (1, True), (2, True)])
@on_uvloop
async def test_limits_hold_for_what_monitors_put_out(tmp_path: Path, most: int, retain: bool) -> None:
    """`limits.max_qos` and `limits.retain` cap outputs, because no publisher could have sent more."""
    monitors = [entering("m", **emitting("t", {"topic": "u", "qos": 2, "retain": True}))]
    async with door(tmp_path, limits={"max_qos": most, "retain": retain}, monitors=monitors) as node:
        mary, alice = await come(node, "mary"), await come(node, "alice")
        await alice.subscribe("u", qos=most)
        await say(mary, "t", b"1")
        assert [(one.topic, one.qos) for one in await inbox(alice)] == [("u", most)]
        bob = await come(node, "bob")
        await bob.subscribe("u")
        assert [one.retain for one in await inbox(bob)] == ([True] if retain else [])
