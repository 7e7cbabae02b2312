"""Sources over HTTP: through the real process and the real node, to the journal as any Arrow tool reads it."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import os
import time
from base64 import b64decode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import aiomqtt
import httpx
import orjson
import pyarrow as pa
import pytest

from api.pretending import served
from harness import PATIENCE
from processes import STARTING, File, Process, process
from tidegate.api.problems import Problem
from tidegate.api.records import JSON, NDJSON, records
from tidegate.api.sources import SEALED
from tidegate.keys.source import seal_body
from tidegate.store.journal import INGEST, Reader

CONFIGURATION = """
version: 1
node: {name: node-a, data: data}
listeners: [{url: "mqtt://127.0.0.1:PORT"}]
http: {url: "http://127.0.0.1:HTTP_PORT", max_body: 4MiB, rate: 10000, address_rate: 10000}
log: {format: json}
sys: {interval: 0s}
directory: {users: {mary: {password: "plain:secret"}}}
policies:
  - {id: raw, subject: "*", topic: "raw/#", action: write, when: "!has(o.payload.secret)"}
  - {id: own, subject: "*", topic: "own/{s.user}", action: write}
  - {id: reading, subject: "user:mary", topic: "#", action: read}
SOURCES
"""
PLAIN = CONFIGURATION.replace("SOURCES", "")
TOPIC = CONFIGURATION.replace("SOURCES", 'sources: {topic: "raw/{type}/{source}", unregistered: accept}')
SENSOR = {"NodeType": "sensor", "CommunicationMode": "discrete"}


class Node:
    """A node, asked over HTTP."""

    def __init__(self, running: Process, token: str) -> None:
        self.running = running
        self.folder = running.file.folder
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{running.ports['HTTP_PORT']}", timeout=STARTING)
        self.admin = {"Authorization": f"Bearer {token}"}

    def register(self, id: str, who: dict[str, str] | None = None, **more: Any) -> httpx.Response:
        headers = self.admin if who is None else who
        return self.http.post("/registration", json={"NodeId": id, **SENSOR, **more}, headers=headers)

    def source(self, id: str, **more: Any) -> Sender:
        answer = self.register(id, **more)
        assert answer.status_code == 201, answer.text
        return Sender(self, answer.json())

    def rows(self) -> list[dict[str, Any]]:
        """As plain pyarrow sees them."""
        found: list[dict[str, Any]] = []
        for path in sorted((self.folder / "data/journal/ingest/0").glob("*.arrow")):
            with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as stream:
                found += stream.read_all().to_pylist()
        return found

    def payloads(self) -> list[Any]:
        return [orjson.loads(row["payload"]) for row in self.rows()]


class Sender:
    """A registered source."""

    def __init__(self, node: Node, said: dict[str, Any]) -> None:
        self.node = node
        self.said = said
        self.id = said["NodeId"]
        self.headers = {"Authorization": f"Bearer {said['token']}"}

    def send(self, body: Any, content: str = JSON, **headers: str) -> httpx.Response:
        data = body if isinstance(body, bytes) else orjson.dumps(body)
        return self.node.http.post("/data", content=data, headers={**self.headers, "Content-Type": content, **headers})

    def sealed(self, body: Any, counter: int, **more: Any) -> bytes:
        said = {"source": self.id, "audience": self.said["audience"], "time": int(time.time() * 1000), **more}
        key = said.pop("key", None) or b64decode(self.said["key"])
        data = body if isinstance(body, bytes) else orjson.dumps(body)
        return seal_body(key, data, counter=counter, nonce=os.urandom(12), **said)

    def send_sealed(self, body: Any, counter: int, **more: Any) -> httpx.Response:
        return self.send(self.sealed(body, counter, **more), SEALED)


@contextlib.contextmanager
def node(folder: Path, text: str = PLAIN, **options: Any) -> Iterator[Node]:
    with process(folder, text, **options) as running:
        found = Node(running, running.admin_token())
        with found.http:
            yield found


def refused(answer: httpx.Response, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    said: dict[str, Any] = answer.json()
    return said


# -- registering -------------------------------------------------------------------------------------------------------


def test_registration(tmp_path: Path) -> None:
    with node(tmp_path) as there:
        made = there.register("s1")
        assert made.status_code == 201
        said = made.json()
        assert (said["NodeId"], said["username"], said["audience"], said["key"]) == ("s1", "s1", "node-a", None)
        me = there.http.get("/me", headers={"Authorization": f"Bearer {said['token']}"}).json()
        assert (me["role"], me["user"]) == ("source", "s1")

        # Its user is there with it, by one change.
        listed = there.http.get("/sources", headers=there.admin).json()["items"]
        user = there.http.get("/directory/users/s1", headers=there.admin).json()
        assert [(each["id"], each["value"]) for each in listed] == [("s1", {"type": "sensor", "mode": "discrete"})]
        assert user["value"]["attributes"] == {"source": True, "type": "sensor", "mode": "discrete"}
        assert user["version"] == listed[0]["version"]

        # Whoever renews it gets new credentials; those before do not count then.
        first = Sender(there, said)
        renewed = there.register("s1", first.headers, NodeType="camera")
        assert renewed.status_code == 201
        second = Sender(there, renewed.json())
        assert second.said["password"] != said["password"]
        assert second.send({"t": 1}).status_code == 202
        _until(lambda: first.send({"t": 2}).status_code == 401)
        assert there.register("s1").status_code == 201, "an administrator may as well"
        _until(lambda: second.send({"t": 3}).status_code == 401)
        assert there.rows()[0]["source_kind"] == "camera"

        # Names of others.
        other = there.source("s2")
        refused(there.register("s1", other.headers), 409)
        refused(there.register("mary"), 409)
        assert there.http.put("/directory/users/bob", json={}, headers=there.admin).status_code == 201
        refused(there.register("bob"), 409)

        # What only administrators may.
        refused(there.register("s3", other.headers), 403)
        refused(there.register("s3", {}), 401)
        refused(there.register("s3", {"Authorization": "Bearer wrong"}), 401)
        refused(there.http.delete("/sources/s2", headers=other.headers), 403)

        # What is wrong.
        for wrong in (
            {"NodeId": "a/b"},
            {"NodeId": ""},
            {"NodeId": "unregistered"},
            {"NodeType": "a#"},
            {"EncryptionScheme": "DES"},
            {"Unknown": 1},
            {"CommunicationMode": None},
        ):
            body = {"NodeId": "s4", **SENSOR, **wrong}
            refused(there.http.post("/registration", json=body, headers=there.admin), 422)
        refused(there.http.post("/registration", json={"NodeId": "s4"}, headers=there.admin), 422)

        # Removed whole.
        assert there.http.delete("/sources/s2", headers=there.admin).status_code == 200
        refused(there.http.delete("/sources/s2", headers=there.admin), 404)
        refused(there.http.get("/directory/users/s2", headers=there.admin), 404)
        _until(lambda: other.send({"t": 1}).status_code == 401)
        assert [each["id"] for each in there.http.get("/sources", headers=there.admin).json()["items"]] == ["s1"]


def test_only_tried(tmp_path: Path) -> None:
    text = CONFIGURATION.replace("SOURCES", "sources: {registration: open}")
    with node(tmp_path, text) as there:
        only = {"dry_run": "true"}

        def tried(id: str, headers: dict[str, str], **more: Any) -> httpx.Response:
            return there.http.post("/registration", json={"NodeId": id, **SENSOR, **more}, headers=headers, params=only)

        for more in ({}, {"EncryptionScheme": "AES-256-GCM"}):
            answer = tried("s1", there.admin, **more)
            assert answer.status_code == 200, answer.text
            said = answer.json()
            assert (said["id"], said["dry_run"], said["version"]) == ("s1", True, None)
            assert "different" in said["effect"]
        anybody = tried("s1", {})
        assert (anybody.status_code, anybody.json()["effect"]) == (200, None), "what is decided about others"
        refused(tried("mary", there.admin), 409)
        refused(tried("not/allowed", there.admin), 422)
        assert there.http.get("/sources", headers=there.admin).json()["items"] == []
        assert not (there.folder / "data/master.key").exists(), "nor a master key"

        body = {"NodeId": "s1", **SENSOR, "EncryptionScheme": "AES-256-GCM"}
        made = there.http.post("/registration", json=body, headers=there.admin, params={"why": "new roof"})
        source = Sender(there, made.json())
        assert there.http.get("/sources", headers=there.admin).json()["items"][0]["why"] == "new roof"
        assert tried("s1", source.headers).json()["effect"] is None
        refused(tried("s1", {}), 409)
        gone = there.http.delete("/sources/s1", headers=there.admin, params=only).json()
        assert (gone["dry_run"], gone["version"]) == (True, None)
        assert "different" in gone["effect"]
        refused(there.http.delete("/sources/s2", headers=there.admin, params=only), 404)
        assert source.send_sealed({"t": 1}, 1).status_code == 202, "it is still there, with its token and key"


def test_open_registration_is_slow_for_one_address(tmp_path: Path) -> None:
    with node(tmp_path, CONFIGURATION.replace("SOURCES", "sources: {registration: open}")) as there:
        mine = Sender(there, there.register("s0", {}).json())
        assert mine.send({"t": 1}).status_code == 202
        refused(there.register("s0", {}), 409)
        codes = [there.register(f"s{number}", {}).status_code for number in range(1, 15)]
        assert codes[0] == 201
        assert codes[-1] == 429
        refused(there.http.post("/data", json={"t": 1}), 401)


def test_strangers_do_not_use_up_what_administrators_need(tmp_path: Path) -> None:
    text = CONFIGURATION.replace("SOURCES", "sources: {registration: open, most: 3}\ntokens: {most: 4}")
    with node(tmp_path, text) as there:
        made = [there.register(f"s{number}", {}) for number in range(5)]
        assert [each.status_code for each in made] == [201, 201, 201, 507, 507]
        assert made[3].json()["type"] == "urn:tidegate:problem:full"
        assert "sources.most" in made[3].json()["detail"]
        listed = there.http.get("/sources", headers=there.admin).json()["items"]
        assert {each["id"] for each in listed} == {"s0", "s1", "s2"}, "nobody else was registered"
        mine = Sender(there, made[0].json())
        for _ in range(4):  # who is registered renews its token as often as it likes
            mine = Sender(there, there.register("s0", mine.headers).json())
            assert mine.send({"t": 1}).status_code == 202
        assert there.register("s3").status_code == 201, "an administrator does not count as a stranger"
        full = there.register("s4")
        assert (full.status_code, "tokens.most" in full.json()["detail"]) == (507, True)
        assert len(there.http.get("/sources", headers=there.admin).json()["items"]) == 4
        for _ in range(2):
            answer = there.http.post("/tokens", json={"role": "admin"}, headers=there.admin)
            assert answer.status_code == 201, answer.text
        assert there.running.admin_token()
        refused(there.http.post("/tokens", json={"role": "admin"}, headers=there.admin), 507)


def _until(condition: Any) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


# -- sending -----------------------------------------------------------------------------------------------------------


def test_bodies(tmp_path: Path) -> None:
    with node(tmp_path) as there:
        one, two = there.source("s1"), there.source("s2", NodeType="camera", CommunicationMode="streaming")
        sent = b'{"b": 1,  "a": [1.50, "\\u00e9"]}'
        answer = one.send(b" " + sent + b"\n")
        assert answer.status_code == 202
        said = answer.json()
        assert said["accepted"] == 1
        assert said["ids"]["first"] == said["ids"]["last"]
        assert two.send(b'[{"n": 1} , {"n":2}]').json()["accepted"] == 2
        assert one.send(b'{"n": 3}\n\n{"n": 4}\r\n', NDJSON).json()["accepted"] == 2
        zipped = {"Content-Encoding": "gzip"}
        assert one.send(gzip.compress(b'[{"n": 5}]'), **zipped).json()["accepted"] == 1
        assert one.send(gzip.compress(b'{"n": 6}\n{"n": 7}'), NDJSON, **zipped).json()["accepted"] == 2

        rows = there.rows()
        assert rows[0]["payload"] == sent, "as it was sent"
        assert [row["payload"] for row in rows[1:]] == [
            b'{"n": 1}',
            b'{"n":2}',
            *(b'{"n": %d}' % number for number in range(3, 8)),
        ]
        assert [row["offset"] for row in rows] == list(range(8))
        assert rows[0]["id"] == said["ids"]["first"]
        assert len({row["id"] for row in rows}) == 8
        first, second = rows[0], rows[1]
        assert (first["source"], first["source_kind"], first["mode"]) == ("s1", "sensor", "discrete")
        assert (second["source"], second["source_kind"], second["mode"]) == ("s2", "camera", "streaming")
        assert (first["registered"], first["user"], first["client"]) == (True, "s1", "s1")
        assert (first["level"], first["floor"], first["topic"], first["content_type"]) == ("plain", "plain", None, JSON)
        assert first["context"]
        assert first["policy_version"]
        with Reader(tmp_path / "data", INGEST) as reader:
            assert sum(batch.num_rows for batch in reader.poll()) == 8


def test_what_is_wrong_leaves_nothing(tmp_path: Path) -> None:
    with node(tmp_path) as there:
        one = there.source("s1")
        good = b'{"n": 1}'
        for body, content, index in (
            (b"", JSON, "0"),
            (b"{", JSON, "0"),
            (b"7", JSON, "0"),
            (b'[{"n": 1}, 7]', JSON, "1"),
            (b'[{"n": 1}, {"n": NaN}]', JSON, "1"),
            (b'[{"n": 1}, {"n": 2}, {', JSON, "2"),
            (b'[{"n": "\xff"}]', JSON, None),
            (good + b"\n[]", NDJSON, "1"),
            (good + b"\n" + good + b"\nx", NDJSON, "2"),
        ):
            said = refused(one.send(body, content), 400)
            assert index is None or said["errors"][0]["at"] == index, (body, said)
        refused(one.send(b"[]"), 400)
        refused(one.send(b"\n\n", NDJSON), 400)
        refused(one.send(b"[" * 2000 + b"]" * 2000), 400)
        refused(one.send(b'[{"a":' + b"[" * 1010 + b"]" * 1010 + b"}]"), 400)
        refused(one.send(good, "text/plain"), 415)
        refused(one.send(good, **{"Content-Encoding": "br"}), 415)
        zipped = {"Content-Encoding": "gzip"}
        refused(one.send(good, **zipped), 400)
        refused(one.send(gzip.compress(good)[:-4], **zipped), 400)
        refused(one.send(gzip.compress(good) + b"more", **zipped), 400)
        bomb = gzip.compress(b'{"n": "' + b"0" * (100 << 20) + b'"}')
        assert len(bomb) < 1 << 20
        refused(one.send(bomb, **zipped), 413)
        refused(one.send([{"n": number} for number in range(10_001)]), 413)
        refused(one.send(b"x" * (5 << 20)), 413)
        refused(there.http.post("/data", json={"n": 1}, headers=there.admin), 403)
        refused(there.http.post("/data", json={"n": 1}), 401)
        refused(there.http.post("/data", json={"n": 1}, headers={"Authorization": "Bearer wrong"}), 401)
        assert there.rows() == []
        assert one.send(good).status_code == 202


def test_many_records_at_once(tmp_path: Path) -> None:
    with node(tmp_path) as there:
        one = there.source("s1")
        answer = one.send([{"n": number, "text": "x" * 100} for number in range(10_000)])
        assert answer.status_code == 202, answer.text
        assert answer.json()["accepted"] == 10_000
        assert [each["n"] for each in there.payloads()] == list(range(10_000))
        large = {"n": "y" * (3 << 20)}
        assert one.send(large).status_code == 202, "one record, in several pieces"
        assert there.payloads()[-1] == large


def test_many_at_once(tmp_path: Path) -> None:
    with node(tmp_path) as there, ThreadPoolExecutor(12) as pool:
        senders = [there.source(f"s{number}") for number in range(4)]
        work = [(senders[number % 4], number) for number in range(120)]
        answers = list(pool.map(lambda each: each[0].send([{"n": each[1]}, {"n": each[1]}]), work))
        assert {answer.status_code for answer in answers} == {202}
        rows = there.rows()
        assert sorted(orjson.loads(row["payload"])["n"] for row in rows) == sorted([*range(120), *range(120)])
        assert len({row["id"] for row in rows}) == 240
        assert {row["source"] for row in rows} == {"s0", "s1", "s2", "s3"}
        for first, second in zip(rows[::2], rows[1::2], strict=True):
            assert first["payload"] == second["payload"], "what came together stays together"


def test_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    running = Process(File(tmp_path, PLAIN))
    acknowledged: list[int] = []
    try:
        running.wait_until_it_accepts()
        there = Node(running, running.admin_token())
        with there.http:
            one = there.source("s1", EncryptionScheme="AES-256-GCM")
            for number in range(50):
                assert one.send_sealed({"n": number}, number).status_code == 202
                acknowledged.append(number)
            replayed = one.sealed({"n": 49}, 49)
    finally:
        running.kill()
    assert [each["n"] for each in there.payloads()] == acknowledged
    with process(tmp_path, PLAIN) as running:
        again = Node(running, "")
        with again.http:
            one.node = again
            refused(one.send(replayed, SEALED), 409)
            assert one.send_sealed({"n": 50}, 50).status_code == 202
            assert [each["n"] for each in again.payloads()] == [*acknowledged, 50]
            assert [row["offset"] for row in again.rows()] == list(range(51))


# -- sealed ------------------------------------------------------------------------------------------------------------


def test_sealed_bodies(tmp_path: Path) -> None:
    with node(tmp_path) as there:
        one = there.source("s1", EncryptionScheme="AES-256-GCM")
        two = there.source("s2", EncryptionScheme="AES-256-GCM")
        clear = there.source("s3")
        assert len(b64decode(one.said["key"])) == 32
        assert one.said["key"] not in there.http.get("/sources", headers=there.admin).text

        assert one.send_sealed([{"n": 1}, {"n": 2}], 1).json()["accepted"] == 2
        assert one.send_sealed(b'{"n": 3}\n{"n": 4}', 2, content=NDJSON).json()["accepted"] == 2
        zipped = gzip.compress(b'{"n": 5}')
        assert one.send_sealed(zipped, 10, encoding="gzip").json()["accepted"] == 1
        assert two.send_sealed({"n": 6}, 1).status_code == 202, "each has counters of its own"

        body = one.sealed({"n": 7}, 11)
        assert one.send(body, SEALED).status_code == 202
        refused(one.send(body, SEALED), 409)
        refused(one.send_sealed({"n": 8}, 11), 409)
        refused(one.send_sealed({"n": 8}, 5), 409)

        now = int(time.time() * 1000)
        refused(one.send_sealed({"n": 8}, 12, time=now - 301_000), 403)
        refused(one.send_sealed({"n": 8}, 12, time=now + 310_000), 403)
        refused(one.send_sealed({"n": 8}, 12, audience="node-b"), 403)
        refused(one.send_sealed({"n": 8}, 12, key=os.urandom(32)), 403)
        refused(one.send(two.sealed({"n": 8}, 12), SEALED), 403)
        refused(one.send(two.sealed({"n": 8}, 12, source="s1"), SEALED), 403)
        refused(one.send({"n": 8}), 403)
        refused(clear.send_sealed({"n": 8}, 1, key=os.urandom(32)), 422)
        refused(one.send(b"{}", SEALED), 400)
        refused(one.send_sealed(b"[7]", 12), 400)
        refused(one.send_sealed(gzip.compress(b" " * (100 << 20)), 12, encoding="gzip"), 413)
        refused(one.send_sealed(b"x", 12, content="text/plain"), 415)
        refused(one.send(one.sealed({"n": 8}, 12), SEALED, **{"Content-Encoding": "gzip"}), 415)
        assert one.send_sealed({"n": 9}, 12).status_code == 202, "what was refused has not used its counter up"

        # Renewed: another key, from the first counter on.
        old = one.sealed({"n": 10}, 13)
        renewed = Sender(there, there.register("s1", one.headers, EncryptionScheme="AES-256-GCM").json())
        refused(renewed.send(old, SEALED), 403)
        assert renewed.send_sealed({"n": 11}, 1).status_code == 202
        assert [each["n"] for each in there.payloads()] == [1, 2, 3, 4, 5, 6, 7, 9, 11]


def test_one_of_many_with_the_same_counter(tmp_path: Path) -> None:
    with node(tmp_path) as there, ThreadPoolExecutor(8) as pool:
        one = there.source("s1", EncryptionScheme="AES-256-GCM")
        body = one.sealed({"n": 1}, 1)
        codes = sorted(answer.status_code for answer in pool.map(lambda _: one.send(body, SEALED), range(16)))
        assert codes == [202, *[409] * 15]
        assert there.payloads() == [{"n": 1}]


# -- published ---------------------------------------------------------------------------------------------------------


def test_published_if_the_policies_allow_it(tmp_path: Path) -> None:
    with node(tmp_path, TOPIC) as there:
        one = there.source("s1")
        port = there.running.ports["PORT"]

        async def received(count: int, *sends: Any) -> list[tuple[str, bytes, int]]:
            async with aiomqtt.Client("127.0.0.1", port, username="mary", password="secret") as client:
                await client.subscribe("#", qos=1)
                loop = asyncio.get_running_loop()
                for send in sends:
                    assert (await loop.run_in_executor(None, send)).status_code == 202
                found: list[tuple[str, bytes, int]] = []
                async with asyncio.timeout(PATIENCE):
                    async for message in client.messages:
                        assert isinstance(message.payload, bytes)
                        found.append((str(message.topic), message.payload, message.qos))
                        if len(found) == count:
                            break
                return found

        found = asyncio.run(
            received(3, lambda: one.send(b'[{"n": 1}, {"n":  2}]'), lambda: there.http.post("/data", json={"n": 3}))
        )
        assert found == [
            ("raw/sensor/s1", b'{"n": 1}', 1),
            ("raw/sensor/s1", b'{"n":  2}', 1),
            ("raw/unknown/unregistered", b'{"n":3}', 1),
        ]
        rows = there.rows()
        assert [(row["topic"], row["qos"], row["registered"]) for row in rows] == [
            ("raw/sensor/s1", 1, True),
            ("raw/sensor/s1", 1, True),
            ("raw/unknown/unregistered", 1, False),
        ]
        assert (rows[2]["source"], rows[2]["user"], rows[2]["client"]) == (None, None, "http")

        # One that may not be written refuses all of them, and names the rule.
        said = refused(one.send([{"n": 4}, {"n": 5, "secret": 1}]), 403)
        assert "record 1" in said["detail"]
        assert "rule" in said
        assert len(there.rows()) == 3

        # By the rules of now.
        deny = {"subject": "user:s1", "topic": "raw/#", "action": "write", "effect": "deny"}
        assert there.http.put("/policies/no", json=deny, headers=there.admin).status_code == 201
        assert refused(one.send({"n": 6}), 403)["rule"] == "no"
        assert there.source("s2").send({"n": 7}).status_code == 202
        rows = there.http.get("/audit", params={"rule": "no", "kind": "deny"}, headers=there.admin).json()["items"]
        assert [(row["user"], row["topic"]) for row in rows] == [("s1", "raw/sensor/s1")]


def test_a_source_is_an_equal_citizen_over_mqtt(tmp_path: Path) -> None:
    with node(tmp_path) as there:
        one = there.source("s1")
        port = there.running.ports["PORT"]

        async def publish(password: str) -> None:
            async with aiomqtt.Client("127.0.0.1", port, username="s1", password=password) as client:
                await client.publish("own/s1", b"{}", qos=1)

        asyncio.run(publish(one.said["password"]))
        with pytest.raises(aiomqtt.MqttError):
            asyncio.run(publish("wrong"))


# -- taken apart -------------------------------------------------------------------------------------------------------


def test_records_are_as_they_were_sent() -> None:
    def taken(body: bytes) -> list[bytes]:
        return records(body, content=JSON, encoding="", most=10, largest=10_000)

    assert taken(b'\n[ {"a": "],[{" } ,\t{"b":{"c":[]}}\r\n]') == [b'{"a": "],[{" }', b'{"b":{"c":[]}}']
    assert taken(b'[{"n": 1%s}]' % (b"0" * 300)) == [b'{"n": 1%s}' % (b"0" * 300)]
    assert taken(b'[{"n": 0.%s}]' % (b"1" * 5000)) == [b'{"n": 0.%s}' % (b"1" * 5000)]
    assert taken('[{"ü": "😀"}]'.encode()) == ['{"ü": "😀"}'.encode()]
    assert taken(b'[{"a": "\\u001e"}]') == [b'{"a": "\\u001e"}']
    with pytest.raises(Problem):
        taken(b'{"a": "\x1e"}')


async def test_nothing_is_asked_of_the_node_for_what_is_wrong(tmp_path: Path) -> None:
    async with served(tmp_path) as api:
        api.node.tokens["s1"] = {"id": "id-s1", "role": "source", "user": "s1", "expires": 4e9}
        answer = await api.ask("POST", "/data", "s1", content=b"[7]", headers={"Content-Type": JSON})
        assert answer.status_code == 400
        api.node.tokens["nobodys"] = {"id": "id-nobody", "role": "source", "user": None, "expires": 4e9}
        answer = await api.ask("POST", "/data", "nobodys", content=b"{}", headers={"Content-Type": JSON})
        assert answer.status_code == 403, "a token of the role that acts for nobody"
        assert set(api.node.asked) == {"token_check"}


def test_what_a_source_rules_over_mqtt_holds_for_what_it_sends_over_http(tmp_path: Path) -> None:
    with node(tmp_path, TOPIC + "rules: {allow: [raw/#]}\n") as there:
        one, two = there.source("s1"), there.source("s2")
        port = there.running.ports["PORT"]
        rules = [{"id": "r", "topic": "raw/#", "subject": "user:mary", "effect": "deny"}]

        async def seen() -> bytes:
            async with (
                aiomqtt.Client("127.0.0.1", port, username="s1", password=one.said["password"]) as source,
                aiomqtt.Client("127.0.0.1", port, username="mary", password="secret") as mary,
            ):
                await mary.subscribe("raw/#", qos=1)
                await source.publish("$tidegate/rules", orjson.dumps(rules), qos=1)
                for sender in (one, two):
                    answer = await asyncio.get_running_loop().run_in_executor(None, sender.send, {"by": sender.id})
                    assert answer.status_code == 202, answer.text
                async with asyncio.timeout(PATIENCE):
                    message = await anext(mary.messages)
            assert isinstance(message.payload, bytes)
            return message.payload

        assert asyncio.run(seen()) == b'{"by":"s2"}'
