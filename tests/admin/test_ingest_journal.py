"""Messages for the pipeline: in the journal before they are acknowledged, once each, as they are routed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from argon2 import PasswordHasher

from admin.registries import FILE, administered
from admin.test_sources import HERE, part, register
from harness import Client, Live, live
from node.disks import Disk, ingested
from processes import File, Process, from_file, on_uvloop, until
from tidegate import wire
from tidegate.gate import Plan
from tidegate.session import Context
from tidegate.store.journal import INGEST
from tidegate.store.journal.readers import readers_of

INGESTING = 'pipeline: {ingest: ["raw/#", "one/+/x"]}\n'
KEEP = wire.Properties(session_expiry_interval=1000)


def payloads(data: Path) -> list[bytes]:
    return [row["payload"] for row in ingested(data)]


async def after(node: Live, data: Path) -> list[dict[str, Any]]:
    """The rows, when all that has been taken is written."""
    done = asyncio.Event()
    node.node.site.journal.after(done.set)
    await done.wait()
    return ingested(data)


# -- what is written -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [wire.V311, wire.V5])
async def test_every_qos(tmp_path: Path, version: int) -> None:
    async with live(INGESTING, data=tmp_path) as node:
        client = await node.connect("dev", version=version)
        sub = await node.connect("sub")
        await sub.subscribe("#", qos=1)
        for qos in (0, 1, 2):
            await client.publish(f"raw/{qos}", b"%d" % qos, qos=qos)
            await client.publish(f"other/{qos}", b"not", qos=qos)
            await client.publish("one/a/x", b"", qos=qos, retain=True)
            await client.publish("one/a/y", b"not", qos=qos)
        rows = await after(node, tmp_path)
        got = [await sub.message() for _ in range(12)]
    assert [(row["topic"], row["payload"], row["qos"], row["retain"]) for row in rows] == [
        (topic, payload, qos, retain)
        for qos in (0, 1, 2)
        for topic, payload, retain in ((f"raw/{qos}", b"%d" % qos, False), ("one/a/x", b"", True))
    ]
    assert [row["offset"] for row in rows] == list(range(6))
    assert len({row["id"] for row in rows}) == 6
    assert [each.topic for each in got][:4] == ["raw/0", "other/0", "one/a/x", "one/a/y"], "and delivered"
    first = rows[0]
    assert (first["client"], first["user"], first["level"], first["floor"]) == ("dev", None, "plain", "plain")
    assert (first["source"], first["source_kind"], first["registered"], first["mode"]) == (None, None, False, None)
    assert first["policy_version"] == node.node.audit.version
    context = Context.decode(first["context"])
    assert (context.subject.client, context.subject.address, context.key) == ("dev", "127.0.0.1", None)


async def test_what_a_message_says(tmp_path: Path) -> None:
    async with live(INGESTING + "levels: {implied: false}\n", data=tmp_path) as node:
        client = await node.connect("dev")
        said = wire.Properties(
            content_type="application/json", user_properties=(("a", "1"), ("a", "2"), ("floor", "trusted"))
        )
        await client.publish("raw/x", b"{}", qos=1, properties=said)
        await client.publish("raw/x", b"{}", qos=1)
    one, other = ingested(tmp_path)
    assert one["content_type"] == "application/json"
    assert one["properties"] == [{"name": "a", "value": "1"}, {"name": "a", "value": "2"}], "and not the node's own"
    assert (other["content_type"], other["properties"]) == (None, None)


async def test_a_will(tmp_path: Path) -> None:
    async with live(INGESTING, data=tmp_path) as node:
        dying = await node.connect("dev", will=wire.Will(topic="raw/will", payload=b"gone", qos=1, retain=True))
        watch = await node.connect("watch")
        await watch.subscribe("raw/will")
        dying.abort()
        await watch.message()
        rows = await after(node, tmp_path)
    assert [(row["topic"], row["payload"], row["client"]) for row in rows] == [("raw/will", b"gone", "dev")]


MONITORS = """
scopes: {main: {}}
monitors:
  - {id: names, scope: main, direction: im_pub, map: {"old/#": "raw/#"}}
  - {id: once, scope: main, direction: im_pub, dedupe: 1h, on: "raw/once"}
  - id: twice
    scope: main
    direction: im_pub
    automaton: {start: s, states: {s: [{on: raw/twice, emit: [same, {topic: raw/more, payload: "m"}]}]}}
  - {id: quiet, scope: main, direction: im_pub, silence: 100ms, on: "raw/beat", emit: {topic: raw/alarm, payload: "!"}}
"""


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_what_monitors_make_of_it(tmp_path: Path, qos: int) -> None:
    async with live(INGESTING + MONITORS, data=tmp_path) as node:
        client = await node.connect("dev")
        for topic in ("old/1", "raw/once", "raw/once", "raw/twice", "raw/beat"):
            await client.publish(topic, topic.encode(), qos=qos)
        await client.silent()
        await until(lambda: node.node.recorder is not None and node.node.recorder.rows == 6)
        rows = await after(node, tmp_path)
    assert [(row["topic"], row["payload"]) for row in rows] == [
        ("raw/1", b"old/1"),
        ("raw/once", b"raw/once"),
        ("raw/twice", b"raw/twice"),
        ("raw/more", b"m"),
        ("raw/beat", b"raw/beat"),
        ("raw/alarm", b"!"),
    ]
    ids = [row["id"] for row in rows]
    assert ids[0].endswith(".1")
    assert ids[3] == f"{ids[2]}.1"
    assert ids[5].startswith(f"{ids[4]}.")
    assert Context.decode(rows[0]["context"]).topic == "old/1", "what it was published under"
    assert {row["client"] for row in rows} == {"dev"}, "made of its messages"


TWO_SCOPES = """
listeners:
  - {url: "mqtt://127.0.0.1:PORT", scope: a, anonymous: true}
scopes: {a: {}, b: {}}
links:
  - from: a
    to: b
    share: [{topic: "raw/#", direction: out}, {topic: "sub/#", direction: out, remote_prefix: "raw/"}]
"""


async def test_once_in_the_scope_where_it_arrives(tmp_path: Path) -> None:
    """What it is called behind a link counts for nothing."""
    async with live(INGESTING + TWO_SCOPES, data=tmp_path) as node:
        client = await node.connect("dev")
        for qos in (0, 1, 2):
            await client.publish("raw/x", b"%d" % qos, qos=qos, retain=True)
            await client.publish("sub/x", b"not", qos=qos, retain=True)
        rows = await after(node, tmp_path)
        there = node.node.scopes["b"].retained
        assert there.get("raw/x") is not None
        assert there.get("raw/sub/x") is not None
    assert [(row["topic"], row["payload"]) for row in rows] == [("raw/x", b"0"), ("raw/x", b"1"), ("raw/x", b"2")]


async def test_what_is_denied_is_not_written(tmp_path: Path) -> None:
    policies = '[{id: p, subject: "*", topic: "raw/ok", action: write}]'
    async with live(INGESTING, data=tmp_path, policies=policies) as node:
        client = await node.connect("dev")
        for topic in ("raw/ok", "raw/no"):
            for qos in (0, 1):
                await client.publish(topic, topic.encode(), qos=qos)
        await client.send(wire.Publish(topic="raw/no", payload=b"2", qos=2, packet_id=9))
        assert (await client.expect(wire.Pubrec)).reason == wire.Reason.NOT_AUTHORIZED
    assert payloads(tmp_path) == [b"raw/ok"] * 2


async def test_other_topics_take_the_fast_lane(tmp_path: Path) -> None:
    async with live(INGESTING, data=tmp_path) as node:
        client, sub = await node.connect("dev"), await node.connect("sub")
        await sub.subscribe("#")
        for topic in ("raw/x", "other"):
            await client.publish(topic)
            await sub.message()
        plans: dict[str, Plan] = {plan.topic: plan for _, plan in node.node.scopes["main"].gate.cache.plans()}
    assert plans["raw/x"].fast is None
    assert plans["other"].fast is not None


async def test_registered_sources(tmp_path: Path) -> None:
    text = FILE + 'pipeline: {ingest: ["raw/#"]}\nsources: {topic: "raw/{type}/{source}"}\n'
    text = text.replace("policies:\n", 'policies:\n  - {id: raw, subject: "*", topic: "raw/#", action: write}\n')
    password = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash("secret")

    async def publish(client: str, payload: bytes, **fields: Any) -> None:
        source = await node.connect(client, **fields)
        await source.publish("raw/own", payload, qos=1)

    async with administered(tmp_path, text=text) as node:
        await register(node, "s1", password=password)
        await node.ask("data_put", user="s1", part=part({"n": 1}), **HERE)
        await publish("c1", b"2", username="s1", password=b"secret")
        await publish("s1", b"3")  # only called like it
        await publish("c2", b"4", username="keeper", password=b"kept")
        await register(node, "s1", password=password, type="camera")
        await publish("c1", b"5", username="s1", password=b"secret")
        rows = await after(node, tmp_path / "data")
    about = [(row["payload"], row["topic"], row["source"], row["source_kind"], row["mode"]) for row in rows]
    assert about == [
        (b'{"n":1}', "raw/sensor/s1", "s1", "sensor", "discrete"),  # once, though it was published as well
        (b"2", "raw/own", "s1", "sensor", "discrete"),
        (b"3", "raw/own", None, None, None),
        (b"4", "raw/own", None, None, None),
        (b"5", "raw/own", "s1", "camera", "discrete"),
    ]
    assert [row["registered"] for row in rows] == [True, True, False, False, True]
    assert [row["user"] for row in rows] == ["s1", "s1", None, "keeper", "s1"]


# -- safe, and then acknowledged -------------------------------------------------------------------------------------


async def nothing_yet(client: Client) -> None:
    """It has been sent nothing, however often the loop turned."""
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await client.reader.readexactly(1)


async def test_acknowledged_after_the_disk_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(monkeypatch)
    async with live(INGESTING, data=tmp_path) as node:
        one, two, other = [await node.connect(name) for name in ("one", "two", "other")]
        disk.slow.set()
        await one.send(wire.Publish(topic="raw/1", payload=b"1", qos=1, packet_id=1))
        await disk.trying()
        await two.send(wire.Publish(topic="raw/2", payload=b"2", qos=2, packet_id=2))
        await two.expect(wire.Pubrec)  # it is published, and written down, when it is released
        await two.send(wire.Pubrel(packet_id=2))
        await one.send(wire.Publish(topic="other", payload=b"3", qos=1, packet_id=3))
        await other.publish("other", b"4", qos=1)
        await nothing_yet(one)
        await nothing_yet(two)
        assert payloads(tmp_path) in ([], [b"1"])
        disk.mend()
        assert [(await one.expect(wire.Puback)).packet_id for _ in range(2)] == [1, 3], "in their order"
        assert (await two.expect(wire.Pubcomp)).packet_id == 2
        assert payloads(tmp_path) == [b"1", b"2"], "before it is complete"
    assert payloads(tmp_path) == [b"1", b"2"]


async def test_qos_2_sent_again_is_written_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(monkeypatch)
    async with live(INGESTING, data=tmp_path) as node:
        first = await node.connect("dev", properties=KEEP)
        disk.slow.set()
        packet = wire.Publish(topic="raw/2", payload=b"2", qos=2, packet_id=2)
        await first.send(packet)
        await first.expect(wire.Pubrec)
        await first.send(wire.Publish(topic="raw/2", payload=b"2", qos=2, packet_id=2, dup=True))
        await first.expect(wire.Pubrec)
        await first.send(wire.Pubrel(packet_id=2))
        await disk.trying()
        first.abort()
        again = await node.connect("dev", clean_start=False, properties=KEEP)
        await again.send(wire.Pubrel(packet_id=2))
        await nothing_yet(again)
        disk.mend()
        assert (await again.expect(wire.Pubcomp)).reason == 0
    assert payloads(tmp_path) == [b"2"]


async def test_qos_2_of_before_a_restart_is_written_when_it_is_released(tmp_path: Path) -> None:
    async with live(INGESTING + MONITORS, data=tmp_path) as node:
        client = await node.connect("dev", properties=KEEP)
        await client.send(wire.Publish(topic="raw/twice", payload=b"2", qos=2, packet_id=2))
        await client.expect(wire.Pubrec)
    assert ingested(tmp_path) == [], "it was not released"
    async with live(INGESTING + MONITORS, data=tmp_path) as node:
        client = await node.connect("dev", clean_start=False, properties=KEEP)
        await client.send(wire.Publish(topic="raw/twice", payload=b"2", qos=2, packet_id=2, dup=True))
        await client.expect(wire.Pubrec)
        await client.send(wire.Pubrel(packet_id=2))
        await client.expect(wire.Pubcomp)
    rows = ingested(tmp_path)
    assert [row["payload"] for row in rows] == [b"2", b"m"], "what the monitor lets pass, and what it adds"
    assert rows[1]["id"] == f"{rows[0]['id']}.1"


CRASHING = """
version: 1
node: {name: test, data: data}
listeners: [{url: "mqtt://127.0.0.1:PORT", anonymous: true}]
sys: {interval: 0s}
log: {format: json}
policies: open
pipeline: {ingest: ["raw/#"]}
"""


@pytest.mark.parametrize("qos", [1, 2])
async def test_whatever_was_acknowledged_survives_a_kill(tmp_path: Path, qos: int) -> None:
    running = Process(File(tmp_path, CRASHING))
    try:
        running.wait_until_it_accepts()
        reader, writer = await asyncio.open_connection("127.0.0.1", running.ports["PORT"])
        client = Client(reader, writer)
        await client.send(wire.Connect(version=wire.V5, client_id="dev", clean_start=True, keep_alive=0))
        await client.expect(wire.Connack)
        acked: set[bytes] = set()
        done = (wire.Type.PUBACK if qos == 1 else wire.Type.PUBCOMP) << 4

        async def publish() -> None:
            for pid in range(1, 901):  # within the receive maximum
                await client.send(wire.Publish(topic="raw/x", payload=b"%d" % pid, qos=qos, packet_id=pid))

        sending = asyncio.create_task(publish())
        while len(acked) < 300:
            if qos == 1:
                acked.add(b"%d" % (await client.expect(wire.Puback)).packet_id)
                continue
            answer = await client.receive()
            assert isinstance(answer, wire.Pubrec | wire.Pubcomp)
            if isinstance(answer, wire.Pubrec):
                await client.send(wire.Pubrel(packet_id=answer.packet_id))
            else:
                acked.add(b"%d" % answer.packet_id)
        running.kill()
        sending.cancel()
        rest = await client.closed()  # what was on its way was acknowledged, too
        acked |= {b"%d" % int.from_bytes(rest[at + 2 : at + 4], "big") for at in _frames(rest) if rest[at] == done}
        writer.close()
    finally:
        running.kill()
    rows = ingested(tmp_path / "data")
    assert acked <= {row["payload"] for row in rows}
    assert [row["offset"] for row in rows] == list(range(len(rows)))


def _frames(data: bytes) -> list[int]:
    """Where whole acknowledgements begin."""
    found, at = [], 0
    while at + 2 <= len(data) and at + 2 + data[at + 1] <= len(data):
        found.append(at)
        at += 2 + data[at + 1]
    return found


# -- trouble ---------------------------------------------------------------------------------------------------------


async def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(monkeypatch)
    async with live(INGESTING, data=tmp_path) as node:
        five, old, zero, other = [
            await node.connect(name, version=version)
            for name, version in (("five", wire.V5), ("old", wire.V311), ("zero", wire.V5), ("other", wire.V5))
        ]
        sub = await node.connect("sub")
        await sub.subscribe("#")
        await five.publish("raw/x", b"before", qos=1)
        await sub.message()
        disk.full.set()
        await zero.publish("raw/x", b"zero")
        assert (await sub.message()).payload == b"zero", "nobody waits for it to be safe"
        await disk.trying()
        journal = node.node.site.journal
        await until(lambda: journal.refusing)
        for qos in (1, 2):
            await five.send(wire.Publish(topic="raw/x", payload=b"no", qos=qos, packet_id=5))
            refused = await five.expect(wire.Puback if qos == 1 else wire.Pubrec)
            assert refused.reason == wire.Reason.QUOTA_EXCEEDED
        await old.send(wire.Publish(topic="raw/x", payload=b"no", qos=1, packet_id=5))
        assert await old.closed() == b"", "3.1.1 cannot be told; it keeps the message"
        answer = await other.publish("other", b"fine", qos=1)
        assert answer is not None
        assert answer.reason == 0, "nobody else is disturbed"
        assert (await sub.message()).payload == b"fine"
        await zero.publish("raw/x", b"one more")  # taken, and with that it has to wait
        await sub.message()
        await zero.publish("raw/x", b"later")
        await zero.send(wire.Pingreq())
        await sub.silent()
        await nothing_yet(zero)
        assert node.node.status()["ingest"]["trouble"]
        disk.mend()
        await zero.expect(wire.Pingresp)
        assert (await sub.message()).payload == b"later"
        await five.publish("raw/x", b"after", qos=1)
    assert payloads(tmp_path) == [b"before", b"zero", b"one more", b"later", b"after"]


async def test_who_waits_when_the_disk_fills_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was taken, so it is acknowledged as soon as it can be; in between its publisher hears nothing."""
    disk = Disk(monkeypatch)
    async with live(INGESTING, data=tmp_path) as node:
        client = await node.connect("dev")
        disk.full.set()
        await client.send(wire.Publish(topic="raw/x", payload=b"1", qos=1, packet_id=1))
        await disk.trying()
        await nothing_yet(client)
        disk.mend()
        assert (await client.expect(wire.Puback)).reason == wire.Reason.NO_MATCHING_SUBSCRIBERS
    assert payloads(tmp_path) == [b"1"]


@pytest.mark.parametrize("qos", [0, 1])
@on_uvloop
async def test_a_slow_disk_slows_publishers_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, qos: int) -> None:
    disk = Disk(monkeypatch)
    limit = 64 << 10
    async with live(INGESTING + "limits: {receive_maximum: 5000}\n", data=tmp_path) as node:
        writer = node.node.journals[INGEST]
        monkeypatch.setattr(writer, "_limit", limit)
        monkeypatch.setattr(writer, "_backlog", limit)
        flood, other = await node.connect("flood"), await node.connect("other")
        disk.slow.set()
        count = 2000
        frames = [
            wire.encode(wire.Publish(topic="raw/x", payload=b"%d" % n, qos=qos, packet_id=n if qos else 0), wire.V5)
            for n in range(1, count + 1)
        ]
        sending = asyncio.create_task(flood.raw(b"".join(frames)))  # in one go: more than there is room for
        await disk.trying()
        await until(lambda: node.node.site.journal.full)
        for _ in range(20):
            answer = await other.publish("other", qos=1)
            assert answer is not None
        assert writer._in - writer._out <= limit, "what cannot be kept is not read"
        disk.mend()
        await sending
        for n in range(1, count + 1) if qos else ():
            assert (await flood.expect(wire.Puback)).packet_id == n
        await flood.silent()
        rows = await after(node, tmp_path)
        assert node.node.recorder is not None
        assert node.node.recorder.lost == 0
    assert [int(row["payload"]) for row in rows] == list(range(1, count + 1))


async def test_no_room_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with live(INGESTING + MONITORS, data=tmp_path) as node:
        client, sub = await node.connect("dev"), await node.connect("sub")
        await sub.subscribe("raw/#")
        monkeypatch.setattr(node.node.journals[INGEST], "_limit", -1)
        monkeypatch.setattr("tidegate.store.journal.writer.Writer.full", False)
        for topic in ("raw/x", "raw/twice"):
            await client.send(wire.Publish(topic=topic, payload=b"0"))
            assert (await sub.message()).payload == b"0"
        await sub.message()  # what the monitor adds
        for topic in ("raw/x", "old/x"):
            await client.send(wire.Publish(topic=topic, payload=b"no", qos=1, packet_id=1))
            assert (await client.expect(wire.Puback)).reason == wire.Reason.QUOTA_EXCEEDED
        await sub.silent()
        assert node.node.recorder is not None
        assert node.node.recorder.lost == 5
        await client.send(wire.Publish(topic="raw/x", payload=b"later", qos=2, packet_id=2))
        await client.expect(wire.Pubrec)
        await client.send(wire.Pubrel(packet_id=2))
        await client.send(wire.Publish(topic="raw/x", payload=b"yes", qos=1, packet_id=1))
        await nothing_yet(client)  # "what has no room then waits, and PUBCOMP with it", and what comes behind it
        await sub.silent()
        monkeypatch.undo()
        assert {type(await client.receive()) for _ in range(2)} == {wire.Pubcomp, wire.Puback}
    assert payloads(tmp_path) == [b"later", b"yes"]


# -- changing --------------------------------------------------------------------------------------------------------


@on_uvloop
async def test_reload(tmp_path: Path) -> None:
    without = CRASHING.replace('pipeline: {ingest: ["raw/#"]}\n', "")
    other = CRASHING.replace("raw/#", "other/#")
    reader = readers_of(tmp_path / "data", INGEST) / "pipeline.json"
    async with from_file(tmp_path, without) as node:
        client = await node.connect("dev")
        sub = await node.connect("sub")
        await sub.subscribe("#")
        number = 0

        async def publish() -> None:
            nonlocal number
            number += 1
            for topic in ("raw/x", "other/x"):
                await client.publish(topic, b"%d" % number, qos=0)
                await client.publish(topic, b"%d" % number, qos=1)

        await publish()
        assert not reader.exists()
        assert node.node.status()["ingest"] is None
        for text in (CRASHING, other, without, CRASHING):
            await node.reload(text)
            await publish()
        rows = await after(node, tmp_path / "data")
        assert node.node.status()["ingest"]["rows"] == len(rows)
    assert [(row["topic"], row["payload"]) for row in rows] == [
        (topic, payload) for topic, payload in (("raw/x", b"2"), ("other/x", b"3"), ("raw/x", b"5")) for _ in range(2)
    ]
    assert reader.read_bytes() == b"{}"
