"""What the pipeline publishes through a real node: who decides, who receives it, and when it is safe."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiomqtt
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from harness import PATIENCE, Client
from node.piping import BODY, Piped, b64, piped, record, rows, text, told
from processes import File, Process, on_uvloop
from tidegate import wire
from tidegate.net.control_socket import ask
from tidegate.pipeline.node_client import NodeClient, Outgoing
from tidegate.session import Context
from tidegate.store.journal import AUDIT, Reader

KEEP = wire.Properties(session_expiry_interval=1000)


async def reading(node: Piped, *filters: str, name: str = "mary", where: str | None = None, **fields: Any) -> Any:
    end = await node.connect(name, username=name, password=name.encode(), **fields)
    about = wire.NONE if where is None else wire.Properties(user_properties=(("where", where),))
    await end.subscribe(*filters, qos=1, properties=about)
    return end


@on_uvloop
async def test_what_it_publishes_arrives_with_id_and_scores(tmp_path: Path) -> None:
    async with piped(tmp_path) as node:
        mary = await reading(node, "weather/#")
        row = await node.row()
        scores = {"timeliness": 0.75, "accuracy": None, "integrity": 1}
        answer = await node.publish(record(row, "weather/1", scores=scores), record(row, "weather/2", part=4), row=row)
        assert answer == {"taken": 2, "published": 2, "denied": [], "lost": {}}
        first, second = await mary.message(), await mary.message()
        assert (first.topic, first.payload, first.qos, first.retain) == ("weather/1", BODY, 1, False)
        pairs = told(first.properties.user_properties)
        assert pairs == {"id": f"{row['id']}.1", "scores": '{"timeliness":0.75,"integrity":1}'}
        assert told(second.properties.user_properties)["id"] == f"{row['id']}.5"


@on_uvloop
async def test_a_subscriber_chooses_by_score_with_a_common_client(tmp_path: Path) -> None:
    """With paho-mqtt under aiomqtt, as anybody has it."""
    async with piped(tmp_path) as node:
        row = await node.row()
        about = Properties(PacketTypes.SUBSCRIBE)  # type: ignore[no-untyped-call]
        about.UserProperty = ("where", "o.scores.timeliness >= 0.8")
        async with aiomqtt.Client(
            "127.0.0.1", node.port, username="mary", password="mary", protocol=aiomqtt.ProtocolVersion.V5
        ) as client:
            await client.subscribe("weather/#", options=SubscribeOptions(qos=1), properties=about)
            all_scores: list[Any] = [
                {"timeliness": 0.79},
                {"timeliness": 0.8},
                {"accuracy": 1.0},
                None,
                {"timeliness": 1},
            ]
            records = [record(row, "weather/1", part=at, scores=each) for at, each in enumerate(all_scores)]
            assert (await node.publish(*records, row=row))["published"] == 5
            async with asyncio.timeout(PATIENCE):
                found = [await anext(client.messages) for _ in range(2)]
            assert [dict(each.properties.UserProperty)["id"] for each in found] == [f"{row['id']}.2", f"{row['id']}.5"]


@on_uvloop
async def test_each_record_is_decided_and_denials_are_audited(tmp_path: Path) -> None:
    async with piped(tmp_path) as node:
        mary = await reading(node, "#")
        row = await node.row()
        await mary.message()
        answer = await node.publish(
            record(row, "warm/1", b'{"value":19}'),
            record(row, "warm/1", b'{"value":21}', part=1),
            record(row, "elsewhere", part=2),
            record(row, "$SYS/x", part=3),
            record(row, "weather/1", part=4),
            record(row, "weather/2", part=5000),
            row=row,
        )
        assert answer["published"] == 2
        rules = [(each["index"], each["rule"]) for each in answer["denied"]]
        assert rules[2:] == [(3, "reserved"), (5, "id")]
        assert [index for index, _ in rules[:2]] == [0, 2]
        assert [(await mary.message()).topic for _ in range(2)] == ["warm/1", "weather/1"]
        await node.ask("audit_written")
        found = await asyncio.to_thread(lambda: audited(node))
        assert {(each["topic"], each["rule"], each["stage"]) for each in found} == {
            ("warm/1", rules[0][1], "write"),
            ("elsewhere", rules[1][1], "write"),
            ("$SYS/x", "reserved", "write"),
            ("weather/2", "id", "write"),
        }
        assert {each["link"] for each in found} == {"service:pipeline->scope:main"}


def audited(node: Piped) -> list[dict[str, Any]]:
    with Reader(node.file.folder / "data", AUDIT) as reader:
        every = [row for batch in reader.poll() for row in batch.to_pylist()]
    return [row for row in every if row["kind"] == "deny" and row["client"] == "pipeline"]


@on_uvloop
async def test_the_owner_the_demand_and_the_view_bind_what_was_made(tmp_path: Path) -> None:
    more = """preferences: [{id: raw, user: nos, topic: "raw/private", when: "s.user == 'bob'"}]\n"""
    async with piped(tmp_path, text(more=more)) as node:
        mary, bob = await reading(node, "weather/#"), await reading(node, "weather/#", name="bob")
        private = await node.row("raw/private")
        demanding = await node.row(properties=wire.Properties(user_properties=(("require", "tls"),)))
        viewed = await node.row(
            properties=wire.Properties(
                user_properties=(("view", json.dumps({"user:mary": "all", "user:bob": ["/value"]})),)
            )
        )
        for at, row in enumerate((private, demanding, viewed)):
            assert (await node.publish(record(row, f"weather/{at}"), row=row))["published"] == 1
        assert (await mary.message()).topic == "weather/2"
        assert (await bob.message()).topic == "weather/0"
        await mary.silent()
        await bob.silent()


@on_uvloop
async def test_it_does_not_go_round(tmp_path: Path) -> None:
    """What it publishes under `pipeline.ingest` is not ingested, nor what monitors make of it."""
    monitors = """
scopes: {main: {}, far: {}}
links: [{from: main, to: far}]
monitors: [{id: names, link: "main->far", map: {"weather/#": "raw/#"}}]
"""
    policies = '\n  - {id: all, subject: "*", topic: "#", action: [read, write]}\n'
    whole = text(ingest='["#"]', policies=policies, more=monitors, keys="").replace('PORT"}', 'PORT", scope: main}')
    async with piped(tmp_path, whole) as node:
        row = await node.row()
        for at, topic in enumerate(("raw/1", "weather/1", "raw/2")):
            assert (await node.publish(record(row, topic, part=at), row=row))["published"] == 1
        last = await node.row("raw/last")
        assert [each["topic"] for each in rows(tmp_path)] == ["raw/1", "raw/last"]
        assert last["topic"] == "raw/last"


@on_uvloop
async def test_what_cannot_be_understood_changes_nothing(tmp_path: Path) -> None:
    async with piped(tmp_path) as node:
        mary = await reading(node, "weather/#")
        row = await node.row()
        good = record(row, "weather/1")
        wrong: list[dict[str, Any]] = [
            {"id": "7"},
            {"id": row["id"]},
            {"id": f"{row['id']}.0"},
            {"id": f"{row['id']}.x"},
            {"id": f"zz{row['id'][2:]}.1"},
            {"id": None},
            {"payload": "*"},
            {"payload": None},
            {"topic": 7},
            {"from": 7},
            {"context": 1},
            {"context": -1},
            {"context": "0"},
            {"scores": 7},
            {"scores": {"timeliness": 1.1}},
            {"scores": {"timeliness": "good"}},
            {"at": "yesterday"},
            {"at": 1e12},
            {"at": -1},
        ]
        for each in wrong:
            problem = await node.problem(
                "pipeline_publish", contexts=[b64(row["context"])], records=[good, {**good, **each}]
            )
            assert problem.problem == "invalid", each
            assert "number 1" in str(problem), each
        for records in ([good, 7], 7, None):
            problem = await node.problem("pipeline_publish", contexts=[b64(row["context"])], records=records)
            assert problem.problem == "invalid"
        for context in (b64(b"\x01\xff"), b64(b"\x01\x07"), "*", 7):
            problem = await node.problem("pipeline_publish", contexts=[context], records=[good])
            assert problem.problem == "invalid"
            assert "context 0" in str(problem)
        await mary.silent()
        assert (await node.publish(good, row=row))["published"] == 1
        assert (await mary.message()).topic == "weather/1"


@on_uvloop
async def test_a_context_of_nobody_or_of_a_scope_that_is_gone(tmp_path: Path) -> None:
    async with piped(tmp_path) as node:
        row = await node.row()
        for context in (b"\x00", b"", _moved(row["context"])):
            answer = await node.publish(record(row, "weather/1"), row={**row, "context": context})
            assert [each["rule"] for each in answer["denied"]] == ["scope"]
            assert (await node.key("weather/1", {**row, "context": context}))["denied"] == "scope"


def _moved(data: bytes) -> bytes:
    context = Context.decode(data)
    return replace(context, subject=replace(context.subject, scope="gone")).encode()


@on_uvloop
async def test_rules_that_change_bind_the_next_record(tmp_path: Path) -> None:
    async with piped(tmp_path) as node:
        row = await node.row()
        assert (await node.publish(record(row, "weather/1"), row=row))["published"] == 1
        await node.reload(text().replace('topic: "weather/#"', 'topic: "climate/#"'))
        assert (await node.publish(record(row, "weather/1"), row=row))["published"] == 0
        assert (await node.publish(record(row, "climate/1"), row=row))["published"] == 1


@on_uvloop
async def test_a_full_store_takes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.node.pipeline.PATIENCE", 0.5)
    async with piped(tmp_path) as node:
        row = await node.row()
        away = await reading(node, "weather/#", properties=KEEP)
        away.abort()
        store = node.node.store
        assert store is not None
        connection: sqlite3.Connection = store._connection
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages}").fetchone()
        large = BODY[:-1] + b',"extra":"' + b"x" * 100_000 + b'"}'
        problem = await node.problem(
            "pipeline_publish", contexts=[b64(row["context"])], records=[record(row, "weather/1", large)]
        )
        assert problem.problem == "unavailable"
        async with asyncio.timeout(PATIENCE):
            while not store.refusing:
                await asyncio.sleep(0.01)
        again = await node.problem(
            "pipeline_publish", contexts=[b64(row["context"])], records=[record(row, "weather/1", part=1)]
        )
        assert (again.problem, "full" in str(again)) == ("unavailable", True)
        connection.execute("PRAGMA max_page_count = 1000000").fetchone()
        async with asyncio.timeout(PATIENCE):
            while store.refusing:
                await asyncio.sleep(0.01)
        assert (await node.publish(record(row, "weather/1", part=1), row=row))["published"] == 1
        back = await node.connect("mary", username="mary", password=b"mary", clean_start=False, properties=KEEP)
        found = [told((await back.message()).properties.user_properties)["id"] for _ in range(2)]
        assert found == [f"{row['id']}.1", f"{row['id']}.2"]


SMALL = "limits: {inflight: 5, queue: {messages: 10}}\n"


def patient(patience: str) -> str:
    return text(more=SMALL).replace("pipeline: {", f"pipeline: {{patience: {patience}, ")


def outgoing(row: dict[str, Any], count: int) -> list[Outgoing]:
    return [
        Outgoing(
            place=(0, 0, part),
            id=f"{row['id']}.{part + 1}",
            topic=f"weather/{part % 3}",
            payload=BODY,
            context=row["context"],
            origin=row["topic"],
            at=1000.0,
            scores={},
        )
        for part in range(count)
    ]


@on_uvloop
async def test_nothing_is_lost_to_a_subscriber_who_reads_slowly(tmp_path: Path) -> None:
    """Many more records than its window and its queue take; the pipeline says for whom it waits."""
    async with piped(tmp_path, patient("1h")) as node:
        row = await node.row()
        mary = await reading(node, "weather/#")
        bob = await reading(node, "weather/#", name="bob")
        waits: asyncio.Queue[str | None] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        client = NodeClient(
            node.node.config.control_socket, waiting=lambda why: loop.call_soon_threadsafe(waits.put_nowait, why)
        )
        publishing = asyncio.create_task(asyncio.to_thread(lambda: list(client.publish(outgoing(row, 200)))))
        async with asyncio.timeout(PATIENCE):
            why = await waits.get()
        assert why is not None
        assert "is full" in why
        everything = [f"{row['id']}.{part + 1}" for part in range(200)]

        async def read(end: Any) -> list[str]:
            return [told((await end.message()).properties.user_properties)["id"] for _ in everything]

        assert await asyncio.gather(read(mary), read(bob)) == [everything, everything]
        pieces = await publishing
        assert [record.id for piece, _ in pieces for record in piece] == everything
        assert sum(outcome.published for _, outcome in pieces) == 200
        assert (client.lost, node.node.realm.site.counters.dropped) == ({}, 0)
        await mary.silent()


@on_uvloop
async def test_a_subscriber_who_does_not_read_at_all_stops_nobody(tmp_path: Path) -> None:
    async with piped(tmp_path, patient("100ms")) as node:
        row = await node.row()
        await reading(node, "weather/#")  # and takes nothing
        bob = await reading(node, "weather/#", name="bob")
        client = NodeClient(node.node.config.control_socket)
        publishing = asyncio.create_task(asyncio.to_thread(lambda: list(client.publish(outgoing(row, 60)))))
        found = [told((await bob.message()).properties.user_properties)["id"] for _ in range(60)]
        await publishing
        assert found == [f"{row['id']}.{part + 1}" for part in range(60)]
        assert client.lost == {"mary": 45}  # 5 are on their way, 10 wait
        assert node.node.realm.site.counters.dropped == 45


@on_uvloop
async def test_what_is_not_taken_is_told_before_anything_happens(tmp_path: Path) -> None:
    async with piped(tmp_path, patient("1h")) as node:
        row = await node.row()
        away = await reading(node, "weather/#", properties=KEEP)
        away.abort()
        some = [record(row, "weather/1", part=part) for part in range(12)]
        some.insert(1, record(row, "elsewhere", part=20))
        answer = await node.publish(*some, row=row)
        assert (answer["published"], answer["taken"], answer["awaited"]) == (
            answer["taken"] - 1,
            answer["taken"],
            "mary",
        )
        rest = some[answer["taken"] :]
        assert rest
        again = await node.publish(*rest, row=row)
        assert (again["published"], again["taken"], again["awaited"], again["lost"]) == (0, 0, "mary", {})
        assert (await node.publish(record(row, "elsewhere", part=21), row=row))["taken"] == 1  # it reaches nobody
        back = await node.connect("mary", username="mary", password=b"mary", clean_start=False, properties=KEEP)
        for _ in range(answer["published"]):
            await back.message()
        await back.silent()
        assert (await node.publish(*rest, row=row))["published"] == len(rest)


def test_what_was_answered_outlives_the_node(tmp_path: Path) -> None:
    """Killed right after the answer: whoever was away receives all of it, with its scores."""
    first = Process(File(tmp_path, text(keys="")))
    try:
        first.wait_until_it_accepts()

        async def before() -> tuple[str, int]:
            async with asyncio.timeout(30):
                reader = await _connect(first, "mary", clean_start=True)
                await reader.subscribe(
                    "weather/#",
                    qos=1,
                    properties=wire.Properties(user_properties=(("where", "o.scores.timeliness >= 0.8"),)),
                )
                await _close(reader)
                nos = await _connect(first, "nos", clean_start=True)
                await nos.publish("raw/1", b"{}", qos=1)
                await _close(nos)
                row = rows(tmp_path)[-1]
                records = [
                    record(row, f"weather/{at}", part=at, scores={"timeliness": 0.9 if at % 2 else 0.1})
                    for at in range(200)
                ]
                answer = await asyncio.to_thread(
                    ask, first.control, "pipeline_publish", contexts=[b64(row["context"])], records=records
                )
                first.kill()
                return row["id"], answer["published"]

        id, published = asyncio.run(before())
        assert published == 200
    finally:
        first.kill()
    second = Process(first.file)
    try:
        second.wait_until_it_accepts()

        async def after() -> list[str]:
            async with asyncio.timeout(30):
                reader = await _connect(second, "mary", clean_start=False)
                found = [told((await reader.message()).properties.user_properties)["id"] for _ in range(100)]
                await _close(reader)
                return found

        assert asyncio.run(after()) == [f"{id}.{at + 1}" for at in range(200) if at % 2]
        assert second.stop() == 0
        second.check()
    finally:
        second.kill()


async def _close(client: Any) -> None:
    client.writer.close()
    await client.writer.wait_closed()


async def _connect(process: Process, name: str, *, clean_start: bool) -> Any:
    client = Client(*await asyncio.open_connection("127.0.0.1", process.ports["PORT"]))
    await client.send(
        wire.Connect(
            version=wire.V5,
            client_id=name,
            username=name,
            password=name.encode(),
            clean_start=clean_start,
            keep_alive=0,
            properties=KEEP,
        )
    )
    connack = await client.expect(wire.Connack)
    assert connack.reason == 0
    return client


@on_uvloop
async def test_documents(tmp_path: Path) -> None:
    async with piped(tmp_path) as node:
        assert await node.ask("pipeline_documents") == {"documents": [], "version": 0}
    more = "store: sqlite\n"
    async with piped(tmp_path, text(more=more)) as node:
        body = {"topic": {"type": "temperature", "topic": "weather/{source}"}}
        change = {"kind": "pipeline", "id": "w", "body": body, "expected": None}
        await node.ask("admin_apply", changes=[change], by="token:test")
        found = await node.ask("pipeline_documents")
        assert found["documents"] == [{"id": "w", "body": body}]
        assert found["version"] > 0


@on_uvloop
async def test_many_records_hold_nobody_up(tmp_path: Path) -> None:
    async with piped(tmp_path) as node:
        row = await node.row()
        mary = await reading(node, "weather/#")
        records = [record(row, f"weather/{at % 50}", part=at) for at in range(2000)]
        turns, longest = 0, 0.0

        async def watch() -> None:
            nonlocal turns, longest
            loop = asyncio.get_running_loop()
            while True:
                begun = loop.time()
                await asyncio.sleep(0)
                longest = max(longest, loop.time() - begun)
                turns += 1

        watching = asyncio.create_task(watch())
        answer = await node.publish(*records, row=row)
        watching.cancel()
        assert answer["published"] == 2000
        assert turns > 20, "others had their turns"
        assert [told((await mary.message()).properties.user_properties)["id"] for _ in range(2000)] == [
            f"{row['id']}.{at + 1}" for at in range(2000)
        ]
