"""Every row of {connect, publish, subscribe, receive, will, retained, queued, resumed} and {allow, deny, no rule, error
in rule}, through real sockets, in MQTT 3.1.1 and 5: what the client is told, and what is delivered.

For CONNECT the rule is the trust list, over real TLS; for everything else it is a policy on the topic `t`, known before
a message comes or decided by the message. That denied events leave no other trace is in the other modules.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from harness import Client
from processes import Served, on_uvloop
from sockets.acts import BOTH, Section, come, door, go, inbox, payloads, policy, say, secure, setting
from tidegate import wire

BODY = b'{"a":1}'
OPEN = [policy("ok", "ok/#")]  # so that a subscription to `#` is granted, whatever is said of `t`


class Row(NamedTuple):
    """What should be seen: the code in MQTT 5 and its reason string, the code in 3.1.1, whether it is delivered."""

    code: int
    why: str | None
    old: int
    delivered: bool


class Seen(NamedTuple):
    """What was seen; `codes` of all acknowledgements."""

    codes: set[int]
    reasons: set[str | None]
    delivered: bool


TABLE: dict[tuple[str, str], Row] = {
    # -- the trust list: on it, not on it, no list, a certificate that cannot be read
    ("connect", "allow"): Row(0, None, 0, True),
    ("connect", "deny"): Row(0x87, "not trusted: CN=bob is not on the trust list", 5, False),
    ("connect", "no rule"): Row(0, None, 0, True),
    ("connect", "error in rule"): Row(0x87, "not trusted: its certificate cannot be read", 5, False),
    # -- PUBACK and PUBREC; 3.1.1 acknowledges and drops
    ("publish", "allow"): Row(0, None, 0, True),
    ("publish", "deny"): Row(0x87, "denied by no", 0, False),
    ("publish", "no rule"): Row(0x87, "denied by default", 0, False),
    ("publish", "error in rule"): Row(0x87, "denied by bad", 0, False),
    # -- SUBACK: granted if some allowing policy overlaps, so one that denies besides only denies the messages
    ("subscribe", "allow"): Row(1, None, 1, True),
    ("subscribe", "deny"): Row(1, None, 1, False),
    ("subscribe", "no rule"): Row(0x87, "denied by default", 0x80, False),
    ("subscribe", "error in rule"): Row(0x87, "denied by bad", 0x80, False),
    # -- the publisher's PUBACK: nobody was there to get it
    ("receive", "allow"): Row(0, None, 0, True),
    ("receive", "deny"): Row(0x10, None, 0, False),
    ("receive", "no rule"): Row(0x10, None, 0, False),
    ("receive", "error in rule"): Row(0x10, None, 0, False),
    # -- CONNACK, where it is known before
    ("will", "allow"): Row(0, None, 0, True),
    ("will", "deny"): Row(0x87, "the will may not be published: denied by no", 5, False),
    ("will", "no rule"): Row(0x87, "the will may not be published: denied by default", 5, False),
    ("will", "error in rule"): Row(0x87, "the will may not be published: denied by bad", 5, False),
    # -- SUBACK of a wider filter: of what is not sent nobody is told
    ("retained", "allow"): Row(1, None, 1, True),
    ("retained", "deny"): Row(1, None, 1, False),
    ("retained", "no rule"): Row(1, None, 1, False),
    ("retained", "error in rule"): Row(1, None, 1, False),
    # -- CONNACK of the session that comes back
    ("queued", "allow"): Row(0, None, 0, True),
    ("queued", "deny"): Row(0, None, 0, False),
    ("queued", "no rule"): Row(0, None, 0, False),
    ("queued", "error in rule"): Row(0, None, 0, False),
    ("resumed", "allow"): Row(0, None, 0, True),
    ("resumed", "deny"): Row(0, None, 0, False),
    ("resumed", "no rule"): Row(0, None, 0, False),
    ("resumed", "error in rule"): Row(0, None, 0, False),
}
CASES = ["allow", "deny", "no rule", "error in rule"]
EVENTS = ["connect", "publish", "subscribe", "receive", "will", "retained", "queued", "resumed"]
RULED = {"publish": "write", "will": "write"}  # the others are about reading


def rules(case: str, action: str, by_message: bool) -> list[Section]:
    """The policies of a case. Those on the other action allow everything."""
    yes = policy("yes", "t", action, **({"when": "o.payload.a == 1"} if by_message else {}))
    made = {
        "allow": [yes],
        "deny": [yes, policy("no", "t", action, effect="deny", **({"when": "o.payload.a == 1"} if by_message else {}))],
        "no rule": [policy("yes", "t", action, when="o.payload.a == 2")] if by_message else [],
        "error in rule": [yes, policy("bad", "t", action, when=f"{'o.payload' if by_message else 's'}.nothing == 1")],
    }[case]
    return [*OPEN, policy("rest", "t", "read" if action == "write" else "write"), *made]


# -- the events --------------------------------------------------------------------------------------------------


def told(packet: wire.Connack | wire.Suback | wire.Puback | wire.Pubrec) -> str | None:
    return packet.properties.reason_string


async def publish(node: Served, version: int, after: str) -> Seen:
    watcher, mary = await come(node, "alice", version=version), await come(node, "mary", version=version)
    await watcher.subscribe("t", qos=2)
    codes: set[int] = set()
    reasons: set[str | None] = set()
    await mary.publish("t", BODY)
    for qos in (1, 2):
        await mary.send(wire.Publish(topic="t", payload=BODY, qos=qos, packet_id=qos))
        answer: wire.Puback | wire.Pubrec = await mary.expect(wire.Puback if qos == 1 else wire.Pubrec)
        codes.add(answer.reason)
        reasons.add(told(answer))
        if qos == 2 and answer.reason < 0x80:
            await mary.send(wire.Pubrel(packet_id=qos))
            await mary.expect(wire.Pubcomp)
    return Seen(codes, reasons, _whole(await inbox(watcher), 3))


async def subscribe(node: Served, version: int, after: str) -> Seen:
    mary, alice = await come(node, "mary", version=version), await come(node, "alice", version=version)
    answer = await alice.subscribe("t", qos=1)
    shared = await alice.subscribe("$share/g/t", qos=1)  # judged by the filter without the group
    assert (shared.reasons, told(shared)) == (answer.reasons, told(answer))
    await alice.unsubscribe("$share/g/t")
    await say(mary, "t", BODY, qos=1)
    return Seen(set(answer.reasons), {told(answer)}, _whole(await inbox(alice), 1))


async def receive(node: Served, version: int, after: str) -> Seen:
    mary, alice = await come(node, "mary", version=version), await come(node, "alice", version=version)
    assert (await alice.subscribe("#", qos=2)).reasons == (2,)
    codes = {await say(mary, "t", BODY, qos=qos) for qos in (1, 1)}
    for qos in (0, 0, 2):
        await say(mary, "t", BODY, qos=qos)
    return Seen(codes, {None}, _whole(await inbox(alice), 5))


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
    else:
        assert await mary.closed() == b""
    return Seen({answer.reason}, {told(answer)}, _whole(await inbox(watcher), 1))


async def retained(node: Served, version: int, after: str) -> Seen:
    mary, alice = await come(node, "mary", version=version), await come(node, "alice", version=version)
    await say(mary, "t", BODY, qos=1, retain=True)
    answer = await alice.subscribe("#", qos=1)
    return Seen(set(answer.reasons), {told(answer)}, _whole(await inbox(alice), 1))


async def queued(node: Served, version: int, after: str) -> Seen:
    mary, alice = await come(node, "mary", version=version), await come(node, "alice", version=version, stays=True)
    await alice.subscribe("#", qos=2)
    await go(node, alice)
    for qos in (1, 2):
        await say(mary, "t", BODY, qos=qos)
    await node.reload(after)
    alice = await come(node, "alice", version=version, stays=True)
    assert alice.connack.session_present
    return Seen({alice.connack.reason}, {None}, _whole(await inbox(alice), 2))


async def resumed(node: Served, version: int, after: str) -> Seen:
    mary, alice = await come(node, "mary", version=version), await come(node, "alice", version=version, stays=True)
    await alice.subscribe("#", qos=2)
    for qos in (1, 2):
        await say(mary, "t", BODY, qos=qos)
        assert not (await alice.expect(wire.Publish)).dup
    await go(node, alice)
    await node.reload(after)
    alice = await come(node, "alice", version=version, stays=True)
    assert alice.connack.session_present
    found = await inbox(alice)
    assert all(message.dup for message in found)
    return Seen({alice.connack.reason}, {None}, _whole(found, 2))


def _whole(found: list[wire.Publish], count: int) -> bool:
    """Whether all of it came; a part of it is neither."""
    assert [message.payload for message in found] in ([], [BODY] * count)
    return bool(found)


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


def expected(event: str, case: str, version: int, by_message: bool) -> Row:
    row = TABLE[event, case]
    if by_message and event == "subscribe":
        row = Row(1, None, 1, row.delivered)  # some message may be allowed
    if by_message and event == "will":
        row = Row(0, None, 0, row.delivered)  # what is not static is decided when it fires
    return row


@pytest.mark.parametrize("by_message", [False, True], ids=["known", "by the message"])
@pytest.mark.parametrize("version", BOTH, ids=["3.1.1", "5"])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("event", EVENTS[1:])
@on_uvloop
async def test_matrix(tmp_path: Path, event: str, case: str, version: int, by_message: bool) -> None:
    """One row of the table; for what waits, the rule comes between queueing or sending and coming back."""
    row = expected(event, case, version, by_message)
    ruled = rules(case, RULED.get(event, "read"), by_message)
    if event == "subscribe" and case == "error in rule":
        ruled = [each for each in ruled if each["id"] != "yes"]  # or that would grant it
    before = [*OPEN, policy("all", "t")] if event in ("queued", "resumed") else ruled
    async with door(tmp_path, *before, explain=True) as node:
        seen = await HAPPENS[event](node, version, setting(*ruled, explain=True))
    assert seen.delivered == row.delivered
    if version == wire.V5:
        assert (seen.codes, seen.reasons) == ({row.code}, {row.why})
    else:
        assert (seen.codes, seen.reasons) == ({row.old}, {None})


@pytest.mark.parametrize("version", BOTH, ids=["3.1.1", "5"])
@pytest.mark.parametrize("case", CASES)
@on_uvloop
async def test_matrix_of_connect(tmp_path: Path, garbled: Path, case: str, version: int) -> None:
    """The rows of CONNECT: a TLS client with a certificate, and the node's list."""
    row = TABLE["connect", case]
    shown = {"deny": "bob", "error in rule": "garbled"}.get(case, "sensor")
    sections: Section = {} if case == "no rule" else {"trust": {"accept": ["CN=sensor"], "otherwise": "close"}}
    async with door(tmp_path, certificates=garbled, **sections) as node:
        alice = await come(node, "alice")
        await alice.subscribe("#")
        end = await come(
            node,
            None,
            client="x",
            version=version,
            tls=secure(garbled, shown),
            expect=row.code if version == wire.V5 else row.old,
        )
        why = told(end.connack)
        if version == wire.V5 and row.why is not None:
            assert why is not None
            assert why.startswith(row.why)
        else:
            assert why is None
        if row.delivered:
            await say(end, "t", BODY)
            assert await payloads(alice) == [BODY]
        else:
            assert await end.closed() == b""
            assert await inbox(alice) == []


def test_the_table_is_complete() -> None:
    assert set(TABLE) == {(event, case) for event in EVENTS for case in CASES}


# -- other ways of saying no -------------------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("case", CASES)
@on_uvloop
async def test_denied_publish_that_closes_a_3_1_1_connection(tmp_path: Path, case: str, qos: int) -> None:
    """*MQTT 3.1.1: … a publish is acknowledged and dropped, or the connection closed, as configured.* MQTT 5 is told,
    and nobody who is allowed is closed."""
    async with door(tmp_path, *rules(case, "write", False), denied_publish_311="disconnect") as node:
        watcher, newer = await come(node, "alice"), await come(node, "mary")
        await watcher.subscribe("t", qos=2)
        assert await say(newer, "t", BODY, qos=qos) == (0 if case == "allow" or not qos else 0x87)
        old = await come(node, "bob", version=wire.V311)
        if case == "allow":
            await say(old, "t", BODY, qos=qos)
            await old.silent()
            assert await payloads(watcher) == [BODY, BODY]
        else:
            await old.send(wire.Publish(topic="t", payload=BODY, qos=qos, packet_id=1 if qos else 0))
            assert await old.closed() == b""
            assert await inbox(watcher) == []


@on_uvloop
async def test_rules_are_not_named_unless_the_node_may_say_so(tmp_path: Path) -> None:
    """*a reason string naming the rule when `explain: true`*: not by default, and not to who does not want to know."""
    ruled = [*OPEN, policy("no", "#", effect="deny")]
    for explain, asked in ((False, None), (True, 0)):
        folder = tmp_path / str(explain)
        folder.mkdir()
        async with door(folder, *ruled, explain=explain) as node:
            mary = await come(node, "mary", properties=wire.Properties(request_problem_information=asked))
            assert told(await mary.subscribe("t")) is None
            await mary.send(wire.Publish(topic="t", payload=BODY, qos=1, packet_id=1))
            answer = await mary.expect(wire.Puback)
            assert (answer.reason, told(answer)) == (0x87, None)
        left = wire.Will(topic="t", payload=BODY, qos=1, retain=False)
        async with door(folder, *ruled, explain=False) as node:
            bob = await come(node, "bob", will=left, expect=0x87)
            assert told(bob.connack) == "the will may not be published"


@on_uvloop
async def test_a_filter_list_is_answered_one_by_one(tmp_path: Path) -> None:
    """Each filter of a SUBSCRIBE has its own answer; the refused ones are not subscribed."""
    async with door(tmp_path, policy("ok", "ok/#")) as node:
        for version, no in ((wire.V311, 0x80), (wire.V5, 0x87)):
            end: Client = await come(node, "alice", version=version)
            answer = await end.subscribe("ok/1", "t", "ok/#", "+/1", "$share/g/t", qos=1)
            assert answer.reasons == (1, no, 1, 1, no)
            mary = await come(node, "mary")
            await say(mary, "ok/1", BODY)
            assert await payloads(end) == [BODY]
            await end.disconnect()
