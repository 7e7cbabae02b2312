"""NATS and RabbitMQ behind a guard: what the table of docs/reference/guard-backends.md says of them, what is refused
there, and the part of the gate's matrix that they can do. RabbitMQ is started once, NATS for each cell.

A broker that answers PINGREQ has not delivered yet what was published before over another connection. So who is to get
something waits for it, and who is to get nothing for a message that comes behind it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from backends import mosquitto_of
from guard.backend_kinds import PAGE, consistent, joined, left, page, probe
from harness import PATIENCE, Client
from other_backends import RabbitMQ, Server, server_of
from processes import Served, from_file, on_uvloop, until
from sockets.acts import BOTH, Section, come, go, policy, say, setting
from sockets.test_matrix import BODY, CASES, OPEN, RULED, Row, Seen, expected, rules, told
from tidegate import wire
from tidegate.guard import GuardedScope
from tidegate.guard.guarded_session import GuardedSession
from tidegate.session import Message

OTHERS = ("nats", "rabbitmq")
CLIENTS = ("mary", "alice", "bob")
EVENTS = ("publish", "subscribe", "receive", "will", "retained", "queued", "resumed")
CANNOT = {("rabbitmq", "retained")}


@pytest.fixture(scope="module")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQ]:
    with server_of("rabbitmq", tmp_path_factory.mktemp("rabbitmq")) as server:
        assert isinstance(server, RabbitMQ)
        yield server


@contextlib.asynccontextmanager
async def broker(kind: str, folder: Path, request: pytest.FixtureRequest) -> AsyncIterator[Server]:
    """A broker of that kind in which nobody has a session."""
    if kind == "nats":
        with server_of(kind, folder / "nats") as server:
            yield server
        return
    server = request.getfixturevalue("rabbitmq")
    for name in CLIENTS:
        end = await joined(server.port, name)
        await end.send(wire.Disconnect())
        await end.closed()
    await left()
    yield server


def guarding(kind: str, server: Server, *policies: Section, **sections: object) -> str:
    legacy = {"backend": server.url, "kind": kind, "authenticate": "here"}
    return setting(*policies, **{"scopes": {"main": legacy}, **sections})  # type: ignore[arg-type]


@contextlib.asynccontextmanager
async def guarded(folder: Path, text: str) -> AsyncIterator[Served]:
    async with from_file(folder, text) as node:
        scope = node.node.scopes["main"]
        assert isinstance(scope, GuardedScope)
        await until(lambda: scope.service.version == wire.V311 and scope.service.since is not None)
        received = scope.path.egress.received

        def recorded(session: GuardedSession, message: Message) -> object:
            node.decided.append(message.topic)  # type: ignore[attr-defined]
            return received(session, message)

        node.decided = []  # type: ignore[attr-defined]
        scope.path.egress.received = recorded  # type: ignore[method-assign, assignment]
        yield node


async def decided(node: Served, topic: str, times: int = 1) -> None:
    """Waits until the guard has decided whether somebody gets it."""
    await until(lambda: node.decided.count(topic) >= times)  # type: ignore[attr-defined]


# -- the table -----------------------------------------------------------------------------------------------------


@pytest.mark.timeout(120)
async def test_the_table_is_what_the_brokers_do(tmp_path: Path, rabbitmq: RabbitMQ) -> None:
    with mosquitto_of(tmp_path / "mosquitto") as mosquitto, server_of("nats", tmp_path / "nats") as nats:
        ports = {"mosquitto": mosquitto.port, "nats": nats.port, "rabbitmq": rabbitmq.port}
        answers = await asyncio.gather(*(probe(port) for port in ports.values()))
        await left()
    found = dict(zip(ports, answers, strict=True))
    assert {name: consistent(name, each) for name, each in found.items()} == {name: [] for name in ports}
    assert PAGE.read_text() == page(found), "python tests/guard/backend_kinds.py --update"


# -- what is refused -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", OTHERS)
@on_uvloop
async def test_what_it_cannot_do_is_refused(tmp_path: Path, request: pytest.FixtureRequest, kind: str) -> None:
    async with broker(kind, tmp_path, request) as server, guarded(tmp_path, guarding(kind, server)) as node:
        old = await come(node, "alice", version=wire.V311)
        mary, bob = await come(node, "mary"), await come(node, "bob")
        await old.send(wire.Publish(topic="a", payload=b"x", packet_id=9, qos=2))
        assert await old.closed() == b""
        said = mary.connack.properties
        assert (said.maximum_qos, said.shared_subscription_available) == (1, 0)
        assert said.retain_available == (0 if kind == "rabbitmq" else None)
        for filter, reason in (("$share/g/a", 0x9E), ("a/b.c", 0x8F), ("a/*", 0x8F), ("#", 1)):
            assert (await mary.subscribe(filter, qos=2)).reasons == (reason,), filter
        for topic in ("a.b", "a/*"):
            assert await say(mary, topic, qos=1) == 0x90
            await say(mary, topic)
        assert await say(bob, "a/c", b"c", qos=1) == 0
        assert (await the_message(mary)).payload == b"c"
        await mary.send(wire.Publish(topic="a", payload=b"x", qos=2, packet_id=9))
        assert (await mary.expect(wire.Disconnect)).reason == 0x9B
        last_wish = wire.Will(topic="a", payload=b"x", qos=2, retain=False)
        await come(node, "bob", client="other", will=last_wish, expect=0x9B)
        if kind == "rabbitmq":
            bob = await come(node, "bob", client="another")
            await bob.send(wire.Publish(topic="a", payload=b"x", qos=1, packet_id=9, retain=True))
            assert (await bob.expect(wire.Disconnect)).reason == 0x9A


@on_uvloop
async def test_a_broker_that_takes_less_than_it_says_needs_a_kind(tmp_path: Path) -> None:
    """Without it clients are refused, and the status says why."""
    with server_of("nats", tmp_path / "nats") as server:
        async with from_file(tmp_path, guarding("mqtt", server)) as node:
            scope = node.node.scopes["main"]
            assert isinstance(scope, GuardedScope)
            await until(lambda: bool(scope.service.unfit))
            await come(node, "mary", expect=0x88)
            row = node.node.status()["guards"][0]
            assert row["state"] == "gone"
            assert "`kind`" in row["error"]
            await node.reload(guarding("nats", server))
            await until(lambda: scope.service.since is not None and not scope.service.unfit)
            mary = await come(node, "mary")
            assert mary.connack.properties.maximum_qos == 1


@on_uvloop
async def test_what_comes_from_elsewhere_goes_there_as_it_can(tmp_path: Path) -> None:
    """QoS 2 of another scope is owed with QoS 1; a topic that it does not take is audited."""
    with server_of("nats", tmp_path / "nats") as server:
        legacy = {"backend": server.url, "kind": "nats", "authenticate": "here", "parents": ["top"]}
        listeners = [
            {"url": "mqtt://127.0.0.1:PORT", "anonymous": True, "scope": "main"},
            {"url": "mqtt://127.0.0.1:TOP_PORT", "anonymous": True, "scope": "top"},
        ]
        text = setting(scopes={"main": legacy, "top": {}}, listeners=listeners)
        async with guarded(tmp_path, text) as node:
            mary = await come(node, "mary")
            await mary.subscribe("#", qos=1)
            bob = await come(node, "bob", port="TOP_PORT")
            for number, topic in enumerate(("a.b", "a/b"), 1):
                await bob.send(wire.Publish(topic=topic, payload=b"x", qos=2, packet_id=number))
                await bob.expect(wire.Pubrec)
                await bob.send(wire.Pubrel(packet_id=number))
                await bob.expect(wire.Pubcomp)
            message = await the_message(mary)
            assert (message.topic, message.qos) == ("a/b", 1)


# -- the matrix ----------------------------------------------------------------------------------------------------


async def the_message(end: Client) -> wire.Publish:
    message = await end.expect(wire.Publish)
    if message.qos:
        await end.send(wire.Puback(packet_id=message.packet_id))
    return message


async def delivered(node: Served, end: Client, most: int) -> list[wire.Publish]:
    """What comes before a message of each QoS that everybody may have; `most` of it has been published. A broker may
    deliver QoS 0 ahead of QoS 1."""
    other = await come(node, "bob")
    for qos in (0, 1):
        await say(other, "ok/mark", b"%d" % qos, qos=qos)
    found: list[wire.Publish] = []
    marks = 0
    async with asyncio.timeout(PATIENCE):
        while marks < 2:
            message = await the_message(end)
            marks += message.topic == "ok/mark"
            if message.topic == "t":
                found.append(message)
    assert [message.payload for message in found] in ([], [BODY] * most)
    return found


async def publish(node: Served, version: int, after: str) -> Seen:
    watcher, mary = await come(node, "alice", version=version), await come(node, "mary", version=version)
    await watcher.subscribe("#", qos=1)
    await mary.publish("t", BODY)
    await mary.send(wire.Publish(topic="t", payload=BODY, qos=1, packet_id=1))
    answer = await mary.expect(wire.Puback)
    return Seen({answer.reason}, {told(answer)}, bool(await delivered(node, watcher, 2)))


async def subscribe(node: Served, version: int, after: str) -> Seen:
    mary, alice = await come(node, "mary", version=version), await come(node, "alice", version=version)
    await alice.subscribe("ok/#", qos=1)
    answer = await alice.subscribe("t", qos=1)
    if answer.reasons[0] < 0x80:
        await say(mary, "t", BODY, qos=1)
        await decided(node, "t")  # another subscription than the one of the marks: the order is not known
    return Seen(set(answer.reasons), {told(answer)}, bool(await delivered(node, alice, 1)))


async def receive(node: Served, version: int, after: str) -> Seen:
    mary, alice = await come(node, "mary", version=version), await come(node, "alice", version=version)
    assert (await alice.subscribe("#", qos=2)).reasons == (1,)
    codes = {await say(mary, "t", BODY, qos=qos) for qos in (1, 1)}
    await say(mary, "t", BODY)
    return Seen(codes, {None}, bool(await delivered(node, alice, 3)))


async def will(node: Served, version: int, after: str) -> Seen:
    watcher = await come(node, "alice", version=version)
    await watcher.subscribe("#", qos=1)
    left = wire.Will(topic="t", payload=BODY, qos=1, retain=False)
    mary = await node.dial(node.ports["PORT"])
    mary.version = version
    who = {"client_id": "mary", "username": "mary", "password": b"pw"}
    await mary.send(wire.Connect(version=version, clean_start=True, keep_alive=0, will=left, **who))  # type: ignore[arg-type]
    answer = await mary.expect(wire.Connack)
    if answer.reason == 0:
        await go(node, mary)
        await _behind(node, watcher)  # what the guard publishes itself goes over another connection
        return Seen({answer.reason}, {told(answer)}, bool(LATER.pop("will", [])))
    assert await mary.closed() == b""
    return Seen({answer.reason}, {told(answer)}, bool(await delivered(node, watcher, 1)))


LATER: dict[str, list[wire.Publish]] = {}


async def _behind(node: Served, watcher: Client) -> None:
    """Waits for the will of somebody whose will everybody may publish."""
    mark = wire.Will(topic="ok/mark", payload=b"mark", qos=1, retain=False)
    await go(node, await come(node, "bob", will=mark))
    found: list[wire.Publish] = []
    while not found or found[-1].topic != "ok/mark":
        found.append(await the_message(watcher))
    assert [message.payload for message in found[:-1]] in ([], [BODY])
    LATER["will"] = found[:-1]


async def retained(node: Served, version: int, after: str) -> Seen:
    mary, alice = await come(node, "mary", version=version), await come(node, "alice", version=version)
    await say(mary, "t", BODY, qos=1, retain=True)
    await say(mary, "ok/kept", b"kept", qos=1, retain=True)
    await alice.send(wire.Subscribe(packet_id=9, subscriptions=(wire.Subscription(filter="#", qos=1),)))
    packets: list[wire.Packet] = []  # SUBACK and what everybody may have, in any order
    while len([each for each in packets if isinstance(each, wire.Suback) or each.topic == "ok/kept"]) < 2:  # type: ignore[union-attr]
        packets.append(await alice.receive())
    await decided(node, "t")
    codes = {reason for each in packets if isinstance(each, wire.Suback) for reason in each.reasons}
    early = [each for each in packets if isinstance(each, wire.Publish) and each.topic == "t"]
    return Seen(codes, {None}, bool(early or await delivered(node, alice, 1)))


async def queued(node: Served, version: int, after: str) -> Seen:
    mary, alice = await come(node, "mary", version=version), await come(node, "alice", version=version, stays=True)
    await alice.subscribe("#", qos=1)
    await go(node, alice)
    await say(mary, "t", BODY, qos=1)
    await node.reload(after)
    alice = await come(node, "alice", version=version, stays=True)
    assert alice.connack.session_present
    return Seen({alice.connack.reason}, {None}, bool(await delivered(node, alice, 1)))


async def resumed(node: Served, version: int, after: str) -> Seen:
    mary, alice = await come(node, "mary", version=version), await come(node, "alice", version=version, stays=True)
    await alice.subscribe("#", qos=1)
    await say(mary, "t", BODY, qos=1)
    assert not (await alice.expect(wire.Publish)).dup
    await go(node, alice)
    await node.reload(after)
    alice = await come(node, "alice", version=version, stays=True)
    assert alice.connack.session_present
    await decided(node, "t", times=2)  # NATS sends it again when it has waited long enough
    return Seen({alice.connack.reason}, {None}, bool(await delivered(node, alice, 1)))


Event = Callable[[Served, int, str], Awaitable[Seen]]
HAPPENS: dict[str, Event] = {
    "publish": publish,
    "subscribe": subscribe,
    "receive": receive,
    "will": will,
    "retained": retained,
    "queued": queued,
    "resumed": resumed,
}


def wanted(event: str, case: str, version: int, by_message: bool) -> Row:
    row = expected(event, case, version, by_message)
    return row._replace(code=0) if event == "receive" else row  # the broker has a subscriber


SAMPLE = {
    ("allow", wire.V5, False),
    ("deny", wire.V311, True),
}
CELLS = [
    pytest.param(
        kind,
        event,
        case,
        version,
        by_message,
        id=f"{kind}-{event}-{case}-{'3.1.1' if version == wire.V311 else '5'}-"
        f"{'by the message' if by_message else 'known'}",
        marks=() if (case, version, by_message) in SAMPLE else pytest.mark.soak,
    )
    for kind in OTHERS
    for event in EVENTS
    for case in CASES
    for version in BOTH
    for by_message in (False, True)
    if (kind, event) not in CANNOT
]


@pytest.mark.parametrize(("kind", "event", "case", "version", "by_message"), CELLS)
@on_uvloop
async def test_matrix(
    tmp_path: Path,
    request: pytest.FixtureRequest,
    kind: str,
    event: str,
    case: str,
    version: int,
    by_message: bool,
) -> None:
    """One row of the table of `test_matrix`, as far as the broker can do it."""
    row = wanted(event, case, version, by_message)
    ruled = rules(case, RULED.get(event, "read"), by_message)
    if event == "subscribe" and case == "error in rule":
        ruled = [each for each in ruled if each["id"] != "yes"]
    before = [*OPEN, policy("all", "t")] if event in ("queued", "resumed") else ruled
    async with (
        broker(kind, tmp_path, request) as server,
        guarded(tmp_path, guarding(kind, server, *before, explain=True)) as node,
    ):
        seen = await HAPPENS[event](node, version, guarding(kind, server, *ruled, explain=True))
    assert seen.delivered == row.delivered
    if version == wire.V5:
        assert (seen.codes, seen.reasons) == ({row.code}, {row.why})
    else:
        assert (seen.codes, seen.reasons) == ({row.old}, {None})
