"""Somebody has everything erased that is theirs: by password or fresh sign-in, granted or at once, with a receipt."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from api.browsers import ShownSession
from api.real import Administrator, administering
from harness import Client
from pipeline.lake.rows import found, lay
from processes import until
from tidegate import wire
from tidegate.admin.control_commands import MakeToken
from tidegate.admin.me import commands as me
from tidegate.errors import Problem
from tidegate.monitor import Event
from tidegate.store.journal import TRAFFIC, Reader

LONG = 100.0  # seconds: the process that erases gives way to everybody else on the machine
FILE = """
version: 1
node: {name: test, data: data}
listeners: [{url: "mqtt://127.0.0.1:PORT"}]
store: sqlite
sys: {interval: 0s}
record: traffic
traffic: {payloads: true}
me: {erase: RULE}
pipeline: {ingest: ["gym/#"]}
directory:
  users:
    mary: {password: "plain:m"}
    bob: {password: "plain:b"}
    alice: {password: "plain:a"}
    scale: {password: "plain:s", owner: mary}
policies: [{id: p1, subject: "*", topic: "gym/#", action: [read, write]}]
"""
PLAIN = FILE.replace("record: traffic\ntraffic: {payloads: true}\n", "").replace('pipeline: {ingest: ["gym/#"]}\n', "")
"""Without journals and lake."""
REMEMBERING = (
    PLAIN
    + """
monitors:
  - {id: last, scope: main, direction: im_pub, each: client, python: "api.test_erasures:Last"}
"""
)


class Last:
    """A monitor that remembers content."""

    def start(self) -> str | None:
        return None

    def step(self, state: str | None, event: Event) -> tuple[str | None, list[Event]]:
        return (event.payload.decode() if event.topic == "gym/later" else state), [event]


class Gym:
    def __init__(self, admin: Administrator, token: str) -> None:
        self.admin = admin
        self.node = admin.served.node
        self.mary = token

    async def erase(self, status: int = 202, token: str = "", **body: Any) -> dict[str, Any]:
        answer = await self.admin.ask("POST", "/me/erase", token or self.mary, json=body)
        assert answer.status_code == status, answer.text
        asked: dict[str, Any] = answer.json()
        return asked

    async def receipts(self) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = (await self.admin.ask("GET", "/me/erase", self.mary)).json()["items"]
        return items

    async def done(self) -> dict[str, Any]:
        async with asyncio.timeout(LONG):
            await asyncio.gather(*self.node.own_data.erasures._tasks)
        [receipt] = [each for each in await self.receipts() if each["state"] == "done"]
        return receipt

    async def connect(self, user: str, *, clean_start: bool = True, will: wire.Will | None = None) -> Client:
        client = await self.admin.served.socket()
        stays = wire.Properties(session_expiry_interval=1000)
        packet = wire.Connect(
            version=wire.V5,
            client_id=user,
            clean_start=clean_start,
            keep_alive=0,
            username=user,
            password=user[:1].encode(),
            will=will,
            properties=stays,
        )
        await client.send(packet)
        assert (await client.expect(wire.Connack)).reason == 0
        return client

    def payloads(self) -> list[tuple[str, bytes | None]]:
        """Of the journal."""
        data = self.node.config.node.data
        assert data is not None
        with Reader(data, TRAFFIC) as reader:
            return [(row["user"], row["payload"]) for row in reader.rows() if row["event"] == "message"]


@pytest.fixture
async def gym(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Gym]:
    text, rule = getattr(request, "param", (PLAIN, '"yes"'))
    async with administering(tmp_path, text.replace("RULE", rule)) as admin:
        assert admin.served.node.administration is not None
        made = await admin.served.node.administration.tokens.make(MakeToken(role="user", user="mary", by="test"))
        yield Gym(admin, made["token"])


@pytest.mark.parametrize("gym", [(FILE, '"yes"')], indirect=True)
async def test_all_of_it_and_nothing_of_others(gym: Gym, monkeypatch: pytest.MonkeyPatch) -> None:
    """Retained, queued, in the journal and in the lake; also what a device of hers has sent."""
    bob = await gym.connect("bob")
    await bob.subscribe("gym/#", qos=1)
    await bob.disconnect()
    await until(lambda: gym.node.scopes["main"].connected == 0)
    for user in ("mary", "alice", "scale"):
        client = await gym.connect(user)
        await client.publish(f"gym/{user}", user.encode(), qos=1, retain=True)
        await client.disconnect()
    today = datetime.now(UTC).date()
    lake = Path(gym.node.config.node.data or "") / "lake"
    before = pa.array(
        [datetime(2000, 1, 1, tzinfo=UTC), datetime.now(UTC), datetime.now(UTC)], pa.timestamp("us", "UTC")
    )
    lay(lake, [1, 2, 3], day=today, batch="0-1", owner=["mary", "mary", "bob"], received_at=before)
    lay(lake, [4, 5], table="quarantine", day=today, batch="0-1", owner=["scale", "bob"], received_at=before[1:])

    monkeypatch.setattr(me, "READING", LONG)
    since = {"mary": time.time() - 3600, "scale": 0.0}
    exported = await gym.node.own_data.erasures.read_lake(gym.node.config, since, 5000, 1 << 20)
    offsets = {table: [row["offset"] for row in rows] for table, rows in exported["rows"].items()}
    assert (offsets, exported["complete"]) == ({"normalised": [2], "quarantine": [4]}, True)

    assert (await gym.erase(password="m"))["state"] == "running"
    receipt = await gym.done()
    assert receipt["erased"] == {
        "wills": 0,
        "unreleased": 0,
        "monitors": 0,
        "retained": 2,
        "queued": 2,
        "journals": 4,
        "lake raw": 0,
        "lake normalised": 1,
        "lake quarantine": 1,
        "lake quality_daily": 0,
    }
    assert (receipt["by"], receipt["trouble"]) == ("user:mary", None)
    assert any("preferences" in each for each in receipt["left"])
    assert sorted(found(lake, "normalised")) == [1, 3], "who had the name before keeps theirs"
    assert found(lake, "quarantine") == [5]
    assert sorted(gym.payloads(), key=str) == [("alice", b"alice"), ("mary", None), ("scale", None)]

    bob = await gym.connect("bob", clean_start=False)
    assert (await bob.message()).payload == b"alice"
    await bob.silent()
    alice = await gym.connect("alice")
    await alice.subscribe("gym/#", qos=1)
    assert (await alice.message()).payload == b"alice"
    await alice.silent()
    await gym.node.audit.written()
    rows = [row for row in gym.node.audit.sink.recent() if row.rule == "erase"]
    assert [(row.user, "asked" in (row.detail or "") or "done" in (row.detail or "")) for row in rows] == [
        ("user:mary", True)
    ] * 2


@pytest.mark.parametrize("gym", [(REMEMBERING, '"yes"')], indirect=True)
async def test_what_is_not_published_yet(gym: Gym) -> None:
    """Wills, messages that are not released, and what monitors in Python remember: of her and her devices alone."""
    bob = await gym.connect("bob")
    await bob.subscribe("gym/#", qos=2)
    scope = gym.node.scopes["main"]
    clients = {}
    for user in ("mary", "alice", "scale"):
        client = clients[user] = await gym.connect(
            user, will=wire.Will(topic=f"gym/will/{user}", payload=b"lost", qos=0, retain=False)
        )
        await client.publish("gym/later", f"secret of {user}".encode(), qos=1)
        assert (await bob.message()).topic == "gym/later"
        await client.send(wire.Publish(topic=f"gym/{user}", payload=b"two", qos=2, packet_id=7))
        assert (await client.expect(wire.Pubrec)).packet_id == 7

    await gym.erase(password="m")
    receipt = await gym.done()
    erased = {"wills": 2, "unreleased": 2, "monitors": 2, "retained": 0, "queued": 0, "journals": 0}
    assert receipt["erased"] == erased
    states = scope.path.monitoring.states.instances.values()
    assert {each.state for each in states if each.state is not None} == {"secret of alice"}

    for client in clients.values():
        await client.send(wire.Pubrel(packet_id=7))
        assert (await client.expect(wire.Pubcomp)).reason == 0
    assert (await bob.message()).topic == "gym/alice"
    for client in clients.values():
        client.abort()
    assert (await bob.message()).topic == "gym/will/alice"
    await bob.silent()


async def test_what_was_not_released_stays_gone_after_a_crash(tmp_path: Path) -> None:
    text = PLAIN.replace("RULE", '"yes"')
    async with administering(tmp_path, text) as admin:
        assert admin.served.node.administration is not None
        made = await admin.served.node.administration.tokens.make(MakeToken(role="user", user="mary", by="test"))
        gym = Gym(admin, made["token"])
        will = wire.Will(
            topic="gym/will", payload=b"lost", qos=0, retain=False, properties=wire.Properties(will_delay_interval=900)
        )
        mary = await gym.connect("mary", will=will)
        await mary.send(wire.Publish(topic="gym/mary", payload=b"two", qos=2, packet_id=7))
        await mary.expect(wire.Pubrec)
        mary.abort()
        await gym.erase(password="m")
        erased = {"wills": 1, "unreleased": 1, "monitors": 0, "retained": 0, "queued": 0, "journals": 0}
        assert (await gym.done())["erased"] == erased
    async with administering(tmp_path, text) as admin:
        gym = Gym(admin, "")
        [session] = gym.node.scopes["main"].sessions.values()
        assert session.will is None
        bob = await gym.connect("bob")
        await bob.subscribe("gym/#", qos=2)
        mary = await gym.connect("mary", clean_start=False)
        await mary.send(wire.Pubrel(packet_id=7))
        assert (await mary.expect(wire.Pubcomp)).reason == 0
        await bob.silent()


async def test_only_who_shows_that_it_is_them(gym: Gym) -> None:
    await gym.erase(403)
    await gym.erase(403, password="wrong")
    signed = await gym.admin.post("/login", json={"token": gym.mary})
    assert signed.status_code == 200
    answer = await gym.admin.post("/me/erase", json={}, auth=ShownSession())
    assert answer.status_code == 403, "a token is no password"
    signed = await gym.admin.post("/login", json={"user": "mary", "password": "m"})
    assert (await gym.admin.post("/me/erase", json={}, auth=ShownSession())).status_code == 202
    await gym.done()
    ask = gym.node.own_data.erasures.ask
    long_ago = time.time() - 400
    with pytest.raises(Problem, match="sign in again"):
        await ask(me.EraseOwn(user="mary", identity="", signed_in=long_ago))


@pytest.mark.parametrize("gym", [(PLAIN, "ask")], indirect=True)
async def test_an_administrator_grants_or_refuses_it(gym: Gym) -> None:
    mary = await gym.connect("mary")
    await mary.publish("gym/mary", b"kept", qos=1, retain=True)
    first = await gym.erase(password="m", why="I leave")
    assert (first["state"], first["by"]) == ("asked", None)
    await gym.erase(409, password="m")
    assert gym.node.administration is not None
    bob = (await gym.node.administration.tokens.make(MakeToken(role="user", user="bob", by="test")))["token"]
    assert (await gym.admin.ask("GET", "/me/erase", bob)).json()["items"] == []
    assert (await gym.admin.ask("POST", f"/erasures/{first['id']}/grant", bob)).status_code == 403
    tried = await gym.admin.ask("POST", f"/erasures/{first['id']}/grant", params={"dry_run": "true"})
    assert tried.json()["state"] == "asked"
    no = await gym.admin.ask("POST", f"/erasures/{first['id']}/refuse", params={"why": "the law"})
    assert (no.json()["state"], no.json()["why"]) == ("refused", "the law")
    again = await gym.admin.ask("POST", f"/erasures/{first['id']}/grant")
    assert again.status_code == 409
    assert gym.node.scopes["main"].retained.get("gym/mary") is not None

    second = await gym.erase(password="m")
    assert [each["state"] for each in (await gym.admin.ask("GET", "/erasures")).json()["items"]] == ["asked", "refused"]
    granted = await gym.admin.ask("POST", f"/erasures/{second['id']}/grant")
    assert granted.json()["state"] == "running"
    assert (await gym.done())["erased"]["retained"] == 1
    assert gym.node.scopes["main"].retained.get("gym/mary") is None
    assert (await gym.admin.ask("POST", "/erasures/nothing/grant")).status_code == 404


@pytest.mark.parametrize("gym", [(PLAIN, '"no"')], indirect=True)
async def test_where_nothing_is_erased(gym: Gym) -> None:
    await gym.erase(403, password="m")
    assert await gym.receipts() == []


async def test_a_crash_in_between_is_made_good(tmp_path: Path) -> None:
    """What was begun is done at the next start."""
    text = PLAIN.replace("RULE", '"yes"')
    async with administering(tmp_path, text) as admin:
        node = admin.served.node
        mary = await Gym(admin, "").connect("mary")
        await mary.publish("gym/mary", b"kept", qos=1, retain=True)
        erasures = node.own_data.erasures
        erasures._begin = lambda erasure: None  # type: ignore[method-assign]
        identity = node.identities.owner("mary")
        await erasures.ask(me.EraseOwn(user="mary", identity=identity, password="m"))
    async with administering(tmp_path, text) as admin:
        async with asyncio.timeout(LONG):
            await asyncio.gather(*admin.served.node.own_data.erasures._tasks)
        [receipt] = (await admin.ask("GET", "/erasures")).json()["items"]
        assert (receipt["state"], receipt["erased"]["retained"]) == ("done", 1)
