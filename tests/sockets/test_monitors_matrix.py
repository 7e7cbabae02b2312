"""Each kind of monitor, on the way in and on the way out, with publishers and subscribers of both versions and every
QoS, through real sockets: what arrives, how, and what the publisher is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from harness import Client
from processes import Served, on_uvloop
from sockets.acts import BOTH, Section, come, door, inbox, say
from sockets.watchers import automaton, denials, emitting, states, tally, watching
from tidegate import wire


class Kind(NamedTuple):
    """A monitor, what is published, and what becomes of it: topic, payload and, if that is changed, QoS."""

    monitor: Section
    trace: list[tuple[str, bytes]]
    becomes: list[list[tuple[str, bytes] | tuple[str, bytes, int]]]


def same(*trace: tuple[str, bytes], without: tuple[int, ...] = ()) -> tuple[Any, Any]:
    return list(trace), [[] if number in without else [each] for number, each in enumerate(trace)]


def topics(text: str) -> list[tuple[str, bytes]]:
    return [(topic, b"%d" % number) for number, topic in enumerate(text.split())]


KINDS = {
    "filter": Kind({"filter": ["ok/#", "too"]}, *same(*topics("ok/1 no too ok ok/1/2 no"), without=(1, 5))),
    "map": Kind(
        {"map": {"raw/+": "new/+", "old/#": "new/x/#"}},
        topics("raw/1 raw old/a/b other raw/1/2"),
        [[("new/1", b"0")], [("raw", b"1")], [("new/x/a/b", b"2")], [("other", b"3")], [("raw/1/2", b"4")]],
    ),
    "sequence": Kind(
        {"only": "go", "after": ["ask", "yes"], "reset": "no"},
        *same(*topics("go yes ask go yes no go ask x yes go go"), without=(0, 3, 6, 11)),
    ),
    "several": Kind(
        emitting("a", {"topic": "b", "qos": 1}, "same", {"payload": {"n": 1}}, {"topic": "c", "payload": "", "qos": 2}),
        topics("a d a"),
        [
            [("b", b"0", 1), ("a", b"0"), ("a", b'{"n":1}'), ("c", b"", 2)],
            [("d", b"1")],
            [("b", b"2", 1), ("a", b"2"), ("a", b'{"n":1}'), ("c", b"", 2)],
        ],
    ),
    "rate": Kind(
        {"rate": "1/h", "burst": 2, "on": "r/#"}, *same(*topics("r/1 r/2 r/1 other r/3 other"), without=(2, 4))
    ),
    "dedupe": Kind(
        {"dedupe": "1h", "on": "+"},
        *same(("t", b"1"), ("t", b"2"), ("t", b"1"), ("u", b"1"), ("t/u", b"1"), ("t/u", b"1"), without=(2,)),
    ),
    "payload": Kind(
        {"only": "heat", "payload": "o.payload.to < 25 && o.topic == 'heat'"},
        *same(("heat", b'{"to":20}'), ("heat", b'{"to":30}'), ("cool", b'{"to":30}'), ("heat", b"hot"), without=(1, 3)),
    ),
    "hsup": Kind({"use": "hsup_em"}, *same(*topics("a b c d"), without=(1, 3))),
    "multi": Kind({"use": "multi_em"}, topics("a b"), [[("a", b"0")] * 2, [("b", b"1")] * 2]),
    "python": Kind(
        {"python": "sockets.watchers:Numbering"}, topics("a b a"), [[("a", b"1")], [("b", b"2")], [("a", b"3")]]
    ),
}

Crowd = list[tuple[Client, int]]


async def crowd(node: Served) -> Crowd:
    """Subscribers of both versions and every QoS, and their QoS."""
    made = []
    for version in BOTH:
        for qos in (0, 1, 2):
            end = await come(node, "alice", client=f"alice-{version}-{qos}", version=version)
            assert (await end.subscribe("#", qos=qos)).reasons == (qos,)
            made.append((end, qos))
    return made


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("version", BOTH, ids=["3.1.1", "5"])
@pytest.mark.parametrize("side", ["in", "out"])
@pytest.mark.parametrize("kind", KINDS)
@on_uvloop
async def test_matrix(tmp_path: Path, kind: str, side: str, version: int, qos: int) -> None:
    monitor, trace, becomes = KINDS[kind]
    async with door(tmp_path, monitors=[watching(side, "m", **monitor)]) as node:
        ends = await crowd(node)
        mary = await come(node, "mary", version=version)
        codes = [await say(mary, topic, payload, qos=qos) for topic, payload in trace]
        await mary.silent()  # every handshake is complete
        told = version == wire.V5 and qos == 1 and side == "in"  # monitors see QoS 2 at PUBREL
        assert codes == [0x10 if told and not each else 0 for each in becomes]
        for end, granted in ends:
            wanted = [
                (topic, payload, min(changed[0] if changed else qos, granted))
                for each in becomes
                for topic, payload, *changed in each
            ]
            came = [(one.topic, one.payload, one.qos) for one in await inbox(end)]
            for level in (0, 1, 2):  # each is in order; on a busy machine QoS 0 does not wait behind the others
                assert [one for one in came if one[-1] == level] == [one for one in wanted if one[-1] == level]
            await end.silent()
        suppressed = sum(not each for each in becomes)
        rows = [row for row in await denials(node, "m") if row.user == ("mary" if side == "in" else "alice")]
        links = 1 if side == "in" else len(ends)
        assert {(row.stage, row.action) for row in rows} == (
            {(f"monitor {side}", "write" if side == "in" else "read")} if suppressed else set()
        )
        assert sum(row.count for row in rows) == suppressed * links
        assert len(states(node, "m")) == len(ends) + 1  # each client's link has its own


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("version", BOTH, ids=["3.1.1", "5"])
@pytest.mark.parametrize("suppressed", ["accept", "refuse"])
@on_uvloop
async def test_what_publishers_are_told(tmp_path: Path, version: int, qos: int, suppressed: str) -> None:
    """*A publisher's QoS handshake completes normally whatever the monitor does; MQTT 5 acknowledges a suppressed
    QoS 1 publish with 0x10 or 0x87 as configured.* Monitors see QoS 2 at PUBREL."""
    monitors = [watching("in", "m", filter=["ok"], suppressed=suppressed)]
    async with door(tmp_path, monitors=monitors) as node:
        alice, mary = await come(node, "alice"), await come(node, "mary", version=version)
        await alice.subscribe("#", qos=2)
        for _ in range(3):  # the same packet identifier is free again each time
            await mary.send(wire.Publish(topic="no", payload=b"x", qos=qos, packet_id=7))
            answer: Any = await mary.expect(wire.Puback if qos == 1 else wire.Pubrec)
            code = {"accept": 0x10, "refuse": 0x87}[suppressed] if version == wire.V5 and qos == 1 else 0
            assert (answer.packet_id, answer.reason) == (7, code)
            if qos == 2:
                await mary.send(wire.Pubrel(packet_id=7))
                assert (await mary.expect(wire.Pubcomp)).reason == 0
        assert await say(mary, "ok", b"1", qos=qos) == 0
        assert [one.topic for one in await inbox(alice)] == ["ok"]
        assert tally(node, "m") == (3, 3, 0, 0)


@pytest.mark.parametrize("version", BOTH, ids=["3.1.1", "5"])
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("side", ["in", "out"])
@on_uvloop
async def test_silence(tmp_path: Path, side: str, qos: int, version: int) -> None:
    """A timer's output goes to who has subscribed to it, once, whatever the QoS of what it waits for."""
    emit = {"topic": "alarm", "payload": {"silent": True}, "qos": 1}
    monitors = [watching(side, "quiet", silence="60ms", on="beat", emit=emit)]
    async with door(tmp_path, monitors=monitors) as node:
        alice, mary = await come(node, "alice", version=version), await come(node, "mary", version=version)
        await alice.subscribe("alarm", qos=2)
        await say(mary, "other", qos=qos)
        await say(mary, "beat", qos=qos)
        alarm = await alice.message()
        assert (alarm.topic, alarm.payload, alarm.qos) == ("alarm", b'{"silent":true}', 1)
        await say(mary, "beat", qos=qos)
        assert (await alice.message()).topic == "alarm"
        await alice.silent()


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("side", ["in", "out"])
@on_uvloop
async def test_an_automaton_with_a_timer(tmp_path: Path, side: str, qos: int) -> None:
    """The timer of a state is taken when nothing has come; what it leads to holds for what comes then."""
    open = [{"silent": "500ms", "go": "shut", "emit": [{"topic": "shut", "payload": "now"}]}]
    machine = automaton("shut", shut=[{"on": "open", "go": "open"}, {"on": "in", "emit": []}], open=open)
    async with door(tmp_path, monitors=[watching(side, "m", **machine)]) as node:
        alice, mary = await come(node, "alice"), await come(node, "mary")
        await alice.subscribe("#", qos=2)
        for topic in ("in", "open", "in"):
            await say(mary, topic, qos=qos)
        assert [one.topic for one in await inbox(alice)] == ["open", "in"]
        assert (await alice.message()).topic == "shut"
        await say(mary, "in", qos=qos)
        assert await inbox(alice) == []


@on_uvloop
async def test_several_on_one_link_act_in_the_order_of_the_file(tmp_path: Path) -> None:
    """*Several on one link act in file order*, each on what the one before put out; a loop of names ends."""
    ring = [watching(side, f"{side}{n}", map={f"t{n}": f"t{(n + 1) % 3}"}) for side in ("in", "out") for n in (0, 1, 2)]
    twice = [watching(side, f"{side}-twice", use="multi_em") for side in ("in", "out")]
    async with door(tmp_path, monitors=[*ring, *twice]) as node:
        alice, mary = await come(node, "alice"), await come(node, "mary")
        await alice.subscribe("#", qos=1)
        for qos, topic in ((0, "t0"), (1, "t1"), (2, "t2")):
            await say(mary, topic, b"1", qos=qos)
            assert [(one.topic, one.qos) for one in await inbox(alice)] == [("t0", min(qos, 1))] * 4
        assert tally(node, "in0")[0] == 1  # only what is called so when it is its turn


@on_uvloop
async def test_links_of_one_client_and_default(tmp_path: Path) -> None:
    """*a monitor given by `link: A->B` acts once*; *`default: true` applies where no other does*"""
    monitors = [
        {"id": "mary", "link": "client:mary->main", "map": {"t": "of/mary"}},
        {"id": "alice", "link": "main->client:alice", "map": {"t": "for/alice"}},
        watching("in", "rest", default=True, map={"t": "of/others"}),
    ]
    async with door(tmp_path, monitors=monitors) as node:
        mary, bob, alice, carol = [await come(node, name) for name in ("mary", "bob", "alice", "carol")]
        for end in (alice, carol):
            await end.subscribe("#", qos=1)
        for publisher, topic in ((mary, "of/mary"), (bob, "of/others")):
            await say(publisher, "t", b"1", qos=1)
            for end in (alice, carol):
                assert [one.topic for one in await inbox(end)] == [topic]
        await say(mary, "u", b"1", qos=1)  # it hears nothing of it, and still no other applies
        assert [one.topic for one in await inbox(carol)] == ["u"]
        assert set(states(node, "mary")) == {"user:mary client:mary->scope:main"}
