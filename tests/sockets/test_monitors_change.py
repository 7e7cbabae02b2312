"""Monitors that change while the node runs, that fail, that are written in Python, and that are flooded."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from processes import on_uvloop
from sockets.acts import BOTH, Section, come, door, go, inbox, payloads, policy, say, setting
from sockets.watchers import automaton, denials, entering, gated, got, leaving, names, states, tally, watching
from tidegate import wire
from tidegate.errors import TidegateError

both = pytest.mark.parametrize("version", BOTH, ids=["3.1.1", "5"])
sides = pytest.mark.parametrize("side", ["in", "out"])


# -- other rules while it runs -----------------------------------------------------------------------------------


@both
@sides
@on_uvloop
async def test_a_monitor_comes_changes_and_goes(tmp_path: Path, side: str, version: int) -> None:
    """The next message is decided by the rules then; connections, subscriptions and fast lanes notwithstanding."""

    def with_(*monitors: Section) -> str:
        return setting(monitors=list(monitors))

    async with door(tmp_path) as node:
        mary, alice = await come(node, "mary", version=version), await come(node, "alice", version=version)
        await alice.subscribe("#", qos=2)

        async def heard(qos: int) -> list[str]:
            for topic in ("a", "b"):
                await say(mary, topic, qos=qos)
            return await names(alice)

        for qos in (0, 1, 2):
            await node.reload(with_())
            assert await heard(qos) == ["a", "b"]
            await node.reload(with_(watching(side, "m", filter=["a"])))
            assert await heard(qos) == ["a"]
            await node.reload(with_(watching(side, "m", filter=["b"]), watching(side, "n", map={"b": "c"})))
            assert await heard(qos) == ["c"]
            await node.reload(with_(watching(side, "n", map={"b": "c"})))
            assert await heard(qos) == ["a", "c"]


@both
@sides
@on_uvloop
async def test_state_over_a_change(tmp_path: Path, side: str, version: int) -> None:
    """*kept if the new definition accepts it, else from the start*, for those connected and those who are away."""

    def text(machine: Section) -> str:
        return setting(monitors=[watching(side, "m", **machine)])

    async with door(tmp_path, monitors=[watching(side, "m", **gated("t", "key", "lock"))]) as node:
        mary, alice = await come(node, "mary", version=version), await come(node, "alice", version=version, stays=True)
        await alice.subscribe("t", qos=1)
        await say(mary, "key", qos=1)
        await node.reload(text(gated("t", "other", "close")))  # another definition with the same states
        await say(mary, "lock", qos=1)
        await say(mary, "t", b"1", qos=1)
        assert await payloads(alice) == [b"1"]
        await go(node, alice)
        closed: list[Section] = [{"on": "key", "go": "ajar"}, {"on": "t", "emit": []}]
        await node.reload(text(automaton("shut", shut=closed, ajar=[])))  # does not know `open`
        alice = await come(node, "alice", version=version, stays=True)
        await say(mary, "t", b"2", qos=1)
        assert await inbox(alice) == []
        assert set(states(node, "m").values()) == {"shut"}
        await say(mary, "key", qos=1)
        await say(mary, "t", b"3", qos=1)
        assert await payloads(alice) == [b"3"]


@both
@on_uvloop
async def test_a_change_between_publish_and_pubrel(tmp_path: Path, version: int) -> None:
    """*monitors see it at PUBREL, once*; what leaves is decided at sending."""
    async with door(tmp_path, monitors=[entering("m", map={"raw": "new", "no": "never"})]) as node:
        mary, alice = await come(node, "mary", version=version), await come(node, "alice", version=version)
        await alice.subscribe("#", qos=2)
        for pid, topic in ((1, "raw"), (2, "t"), (3, "leaves")):
            await mary.send(wire.Publish(topic=topic, payload=b"%d" % pid, qos=2, packet_id=pid))
            assert (await mary.expect(wire.Pubrec)).reason == 0
        after = [entering("m", map={"raw": "newer"}), leaving("out", map={"leaves": "left"})]
        await node.reload(setting(monitors=after))
        await mary.send(wire.Publish(topic="raw", payload=b"1", qos=2, packet_id=1, dup=True))  # the same again
        assert (await mary.expect(wire.Pubrec)).reason == 0
        for pid in (1, 2, 3):
            await mary.send(wire.Pubrel(packet_id=pid))
            assert (await mary.expect(wire.Pubcomp)).reason == 0
        assert await got(alice) == [("newer", b"1"), ("t", b"2"), ("left", b"3")]
        assert tally(node, "m")[0] == 1  # it was shown to the monitor that is there at PUBREL, once


@both
@on_uvloop
async def test_a_monitor_that_is_gone_at_pubrel_never_saw_the_message(tmp_path: Path, version: int) -> None:
    """*what is never released was never seen*"""
    async with door(tmp_path, monitors=[entering("m", filter=["ok"])]) as node:
        mary, alice = await come(node, "mary", version=version), await come(node, "alice", version=version)
        await alice.subscribe("#", qos=2)
        await mary.send(wire.Publish(topic="t", payload=b"1", qos=2, packet_id=1, retain=True))
        assert (await mary.expect(wire.Pubrec)).reason == 0
        assert tally(node, "m") == (0, 0, 0, 0)
        await node.reload(setting())
        await mary.send(wire.Pubrel(packet_id=1))
        assert (await mary.expect(wire.Pubcomp)).reason == 0
        assert await got(alice) == [("t", b"1")]


@both
@on_uvloop
async def test_a_change_while_messages_wait(tmp_path: Path, version: int) -> None:
    """What was queued before a monitor came is seen by it; what was in flight is sent again as it was."""
    async with door(tmp_path) as node:
        mary, alice = await come(node, "mary", version=version), await come(node, "alice", version=version, stays=True)
        await alice.subscribe("#", qos=1)
        await say(mary, "flying", b"0", qos=1)
        assert (await alice.expect(wire.Publish)).payload == b"0"
        await go(node, alice)
        for number, topic in enumerate(("t", "key", "t", "raw"), 1):
            await say(mary, topic, b"%d" % number, qos=1)
        monitors = [leaving("m", **gated("t", "key", "lock")), leaving("names", map={"raw": "new", "flying": "not"})]
        await node.reload(setting(monitors=monitors))
        alice = await come(node, "alice", version=version, stays=True)
        assert await got(alice) == [("flying", b"0"), ("key", b"2"), ("t", b"3"), ("new", b"4")]


@pytest.mark.parametrize(
    "broken",
    [
        {"automaton": {"start": "x", "states": {"y": []}}},
        {"payload": "o.payload.a >"},
        {"python": "sockets.watchers:Missing"},
        {"python": "sockets.watchers:Slow"},
        {"rate": "often"},
        {"map": {"a/+": "b"}},
        {"filter": ["a"], "use": "hsup_em"},
    ],
    ids=["automaton", "condition", "class", "arguments", "rate", "map", "two ways"],
)
@on_uvloop
async def test_a_broken_change_is_refused(tmp_path: Path, broken: Section) -> None:
    """All of it takes effect, or none: the monitors go on as they were, with their states."""
    good = entering("m", **gated("t", "key", "lock"))
    async with door(tmp_path, monitors=[good]) as node:
        mary, alice = await come(node, "mary"), await come(node, "alice")
        await alice.subscribe("#", qos=1)
        await say(mary, "key", qos=1)
        with pytest.raises(TidegateError):
            await node.reload(setting(monitors=[entering("n", filter=["none"]), entering("m", **broken)]))
        await say(mary, "t", b"1", qos=1)
        assert await names(alice) == ["key", "t"]
        assert states(node, "m")["user:mary client:mary->scope:main"] == "open"


@on_uvloop
async def test_a_timer_over_a_change(tmp_path: Path) -> None:
    """A silence that has begun ends by the rules then: told otherwise, or not at all."""

    def text(*monitors: Section) -> str:
        return setting(monitors=list(monitors))

    def quiet(payload: str) -> Section:
        return entering("q", silence="2s", on="beat", emit={"topic": "alarm", "payload": payload})

    async with door(tmp_path, monitors=[quiet("old")]) as node:
        mary, alice = await come(node, "mary"), await come(node, "alice")
        await alice.subscribe("alarm")
        await say(mary, "beat")
        await node.reload(text(quiet("new")))
        assert (await alice.message()).payload == b"new"
        await say(mary, "beat")
        await node.reload(text())
        await asyncio.sleep(2.2)  # longer than the silence
        await alice.silent()


@both
@pytest.mark.parametrize("kept", [False, True], ids=["in memory", "on disk"])
@on_uvloop
async def test_what_a_member_may_not_have_any_more_goes_to_another(tmp_path: Path, version: int, kept: bool) -> None:
    """*the receiver is chosen among the members that are allowed this message*, also when a monitor would have seen
    it next: it is not shown to that, and not lost."""
    monitors = [{"id": "a", "link": "main->client:alice", "use": "complex_em"}]
    no = policy("no", "t", "read", subject="user:alice", effect="deny")
    async with door(tmp_path, data=kept, monitors=monitors) as node:
        mary, alice = await come(node, "mary", version=version), await come(node, "alice", version=version, stays=True)
        await alice.subscribe("$share/g/t", qos=1)
        await go(node, alice)
        for number in (b"1", b"2", b"3"):
            await say(mary, "t", number, qos=1)
        bob = await come(node, "bob", version=version, stays=True)
        await bob.subscribe("$share/g/t", qos=1)
        await node.reload(setting(policy("all"), no, data=kept, monitors=monitors))
        alice = await come(node, "alice", version=version, stays=True)
        assert [(await bob.message()).payload for _ in range(3)] == [b"1", b"2", b"3"]
        await alice.silent()
        await bob.silent()
        assert states(node, "a") == {"user:alice scope:main->client:alice": 0}


# -- a client that does not read ---------------------------------------------------------------------------------


@pytest.mark.parametrize("subscribed", [False, True], ids=["overheard", "subscribed"])
@pytest.mark.parametrize("qos", [0, 1, 2])
@on_uvloop
async def test_who_does_not_read_cannot_stop_its_monitor_from_seeing(
    tmp_path: Path, qos: int, subscribed: bool
) -> None:
    """*the automaton must see what it waits for*: also what closes the door, on a link whose client reads nothing."""
    async with door(
        tmp_path, monitors=[{"id": "m", "link": "main->client:alice", **gated("t", "key", "lock")}]
    ) as node:
        mary, alice = await come(node, "mary"), await come(node, "alice")
        await alice.subscribe("t", *(["lock"] if subscribed else []), qos=2)
        await say(mary, "key", qos=1)
        session = node.node.scopes["main"].sessions["user:alice", "alice"]
        session.pause()  # as its connection does when its socket is full
        await say(mary, "lock", b"", qos=qos)
        await say(mary, "t", b"1", qos=1)
        session.unpause()
        assert [topic for topic in await names(alice) if topic == "t"] == []


@sides
@on_uvloop
async def test_one_state_for_the_whole_scope(tmp_path: Path, side: str) -> None:
    """*one instance per … scope*: what one client does holds for all, and stays when they go."""
    monitors = [watching(side, "m", each="scope", **gated("t", "key", "lock"))]
    async with door(tmp_path, monitors=monitors) as node:
        mary, bob, alice = [await come(node, name) for name in ("mary", "bob", "alice")]
        await alice.subscribe("t", qos=1)

        async def heard(qos: int) -> bool:
            await say(bob, "t", qos=qos)
            return bool(await inbox(alice))

        for qos in (0, 1, 0):
            assert not await heard(qos)
            await say(mary, "key", qos=qos)
            assert await heard(qos)
            await node.reload(setting(monitors=[*monitors, entering(f"other{qos}", filter=["#"])]))
            assert await heard(qos)
            await say(bob, "lock", qos=qos)
            assert not await heard(qos)
        await say(mary, "key")
        await go(node, mary)
        assert await heard(0)
        assert states(node, "m") == {"scope:main": "open"}


# -- failures ----------------------------------------------------------------------------------------------------


@both
@sides
@pytest.mark.parametrize("qos", [0, 1, 2])
@on_uvloop
async def test_a_condition_that_fails_suppresses(tmp_path: Path, side: str, qos: int, version: int) -> None:
    """*An unknown attribute, a type error or an exception: … in a monitor's condition suppresses the event*, is
    counted, and shown in the audit; the state stays."""
    machine = automaton("x", x=[{"on": "t", "when": "o.payload.n > 3", "go": "y"}], y=[{"on": "t", "emit": []}])
    async with door(tmp_path, monitors=[watching(side, "m", **machine)]) as node:
        mary, alice = await come(node, "mary", version=version), await come(node, "alice", version=version)
        await alice.subscribe("t", qos=2)
        told = 0x10 if side == "in" and qos == 1 and version == wire.V5 else 0  # they see QoS 2 at PUBREL
        for payload in (b"no json", b"{}", b'{"n":"5"}'):
            assert await say(mary, "t", payload, qos=qos) == told
        assert await inbox(alice) == []
        assert await say(mary, "t", b'{"n":1}', qos=qos) == 0
        assert await say(mary, "t", b'{"n":5}', qos=qos) == 0
        assert await say(mary, "t", b'{"n":1}', qos=qos) == told
        assert await payloads(alice) == [b'{"n":1}', b'{"n":5}']
        rows = [row for row in await denials(node, "m") if row.detail]
        assert {row.stage for row in rows} == {f"monitor {side}"}
        assert all("o.payload" in (row.detail or "") for row in rows)
        assert tally(node, "m")[3] == (3 if side == "in" else 6)  # for mary's link and alice's


@both
@sides
@on_uvloop
async def test_python_that_raises(tmp_path: Path, side: str, version: int) -> None:
    """It suppresses the event, keeps its state although it has changed what it was given, and breaks nothing else."""
    async with door(tmp_path, monitors=[watching(side, "m", python="sockets.watchers:Raising")]) as node:
        mary, alice = await come(node, "mary", version=version), await come(node, "alice", version=version)
        await alice.subscribe("#", qos=2)
        for qos in (0, 1, 2):
            for topic in ("good", "bad", "good"):
                await say(mary, topic, qos=qos)
        assert await names(alice) == ["good"] * 6
        whose = "user:mary client:mary->scope:main" if side == "in" else "user:alice scope:main->client:alice"
        assert states(node, "m")[whose] == [6]
        rows = await denials(node, "m")
        assert {row.stage for row in rows} == {f"monitor {side}"}
        assert {row.topic for row in rows} == {"bad"}
        assert all("LookupError: nothing there" in (row.detail or "") for row in rows)
        assert node.node.status()["bugs"] == 0


@sides
@on_uvloop
async def test_python_that_puts_out_what_it_may_not(tmp_path: Path, side: str) -> None:
    wrong = b"nothing|no pair|no event|wildcard|reserved|qos|payload|retain|too many|state|large state".split(b"|")
    async with door(tmp_path, monitors=[watching(side, "m", python="sockets.watchers:Wrong")]) as node:
        mary, alice = await come(node, "mary"), await come(node, "alice")
        await alice.subscribe("#", qos=2)
        for number, payload in enumerate(wrong):
            await say(mary, "t", payload, qos=number % 3)
        assert await inbox(alice) == []
        await say(mary, "t", b"fine", qos=1)
        assert await payloads(alice) == [b"fine"]
        whose = "user:mary client:mary->scope:main" if side == "in" else "user:alice scope:main->client:alice"
        assert states(node, "m")[whose] == 1
        assert tally(node, "m")[3] == len(wrong) * (1 if side == "in" else 2)
        assert node.node.status()["bugs"] == 0


@on_uvloop
async def test_python_that_is_slow_is_measured(tmp_path: Path) -> None:
    """*The time that administrators' Python takes is measured and reported; it cannot be bounded.*"""
    monitors = [
        {"id": "slow", "link": "client:mary->main", "python": "sockets.watchers:Slow", "with": {"seconds": 0.02}},
        entering("quick", filter=["#"]),
    ]
    async with door(tmp_path, monitors=monitors) as node:
        mary, alice = await come(node, "mary"), await come(node, "alice")
        await alice.subscribe("#", qos=1)
        for qos in (0, 1, 2):
            await say(mary, "t", qos=qos)
        assert len(await inbox(alice)) == 3
        tallies = node.node.scopes["main"].path.monitoring.states.tallies
        assert 0.06 <= tallies["slow"].spent < 5
        assert tallies["quick"].spent == 0


@pytest.mark.parametrize("qos", [1, 2])
@on_uvloop
async def test_a_refusal_names_the_monitor_where_the_node_may_say_so(tmp_path: Path, qos: int) -> None:
    """*reason codes (0x87 and friends) with a reason string naming the rule when `explain: true`*"""
    async with door(tmp_path, explain=True, monitors=[entering("m", filter=["ok"], suppressed="refuse")]) as node:
        mary = await come(node, "mary")
        await mary.send(wire.Publish(topic="t", payload=b"x", qos=qos, packet_id=1))
        answer = await mary.receive()
        if qos == 2:  # they see it at PUBREL, and PUBCOMP cannot say no
            assert isinstance(answer, wire.Pubrec)
            assert answer.reason == 0
            await mary.send(wire.Pubrel(packet_id=1))
            assert (await mary.expect(wire.Pubcomp)).reason == 0
            assert [row.stage for row in await denials(node, "m")] == ["monitor in"]
            return
        assert isinstance(answer, wire.Puback)
        assert (answer.reason, answer.properties.reason_string) == (0x87, "suppressed by m")


# -- a flood -----------------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("qos", [0, 1])
@on_uvloop
async def test_a_flood_of_suppressed_publishes_disturbs_nobody(tmp_path: Path, qos: int, version: int) -> None:
    """Others publish and receive meanwhile; the flood is counted in the audit, not written down one by one."""
    many = 5000
    monitors = [{"id": "calm", "link": "client:mary->main", "rate": "1/h", "burst": 1}]
    async with door(tmp_path, monitors=monitors) as node:
        mary, bob, alice = [await come(node, name, version=version) for name in ("mary", "bob", "alice")]
        await alice.subscribe("#", qos=1)
        await say(mary, "first", qos=1)
        assert await names(alice) == ["first"]
        flood = [
            wire.encode(
                wire.Publish(topic=f"t/{n % 50}", payload=b"x" * 50, qos=qos, packet_id=n if qos else 0), version
            )
            for n in range(1, many + 1)
        ]

        async def flooded() -> None:
            acknowledged = 0
            for at in range(0, many, 500):
                await mary.raw(b"".join(flood[at : at + 500]))
                for _ in range(500 if qos else 0):
                    assert (await mary.expect(wire.Puback)).reason == (0x10 if version == wire.V5 else 0)
                    acknowledged += 1
            await mary.silent()

        flooding = asyncio.create_task(flooded())
        waits = []
        rounds = 0
        while not flooding.done() or rounds < 5:
            begun = time.monotonic()
            assert await say(bob, "mine", b"%d" % rounds, qos=1) == 0
            assert (await alice.message()).payload == b"%d" % rounds
            waits.append(time.monotonic() - begun)
            rounds += 1
        await flooding
        assert await inbox(alice) == []
        assert tally(node, "calm")[:2] == (many + 1, many)
        rows = await denials(node, "calm")
        assert len(rows) < many / 2
        assert sum(row.count for row in rows) <= many
        assert sorted(waits)[len(waits) // 2] < 1.0
