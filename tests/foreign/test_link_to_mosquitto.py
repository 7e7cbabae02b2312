"""A link to a foreign broker: Debian's Mosquitto, as an ordinary bridge that this node makes.

The broker is a reader of the full content: what owners, publishers or levels keep from it does not leave. What is to
come last is published last, so that nothing is waited for that does not come.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from cli.driving import mosquitto_program, running
from harness import Client, free_port
from processes import Served, from_file, on_uvloop, until
from sockets.acts import come, policy, setting
from tidegate import wire
from tidegate.cli import certificates
from tidegate.scope import bridge
from tidegate.wire.envelope import Static, bundle, encode_static, seal

VERSIONS = pytest.mark.parametrize("version", ["5", "3.1.1"])
OUT, IN = "link:main->hq", "link:hq->main"
POLICIES = [policy("people", subject=["user:mary", "user:alice", "user:bob"]), policy("link", subject=[OUT, IN])]
OPEN = "allow_anonymous true"
SHARES = [
    {"topic": "up/#", "qos": 2, "remote_prefix": "plant/"},
    {"topic": "down/#", "direction": "in", "qos": 2, "remote_prefix": "plant/", "local_prefix": "hq/"},
    {"topic": "both/#", "direction": "both", "qos": 1},
]


@pytest.fixture(autouse=True, scope="module")
def _installed() -> None:
    mosquitto_program()


class Mosquitto:
    """A Mosquitto that can go and come back."""

    def __init__(self, folder: Path, *lines: str) -> None:
        self.folder = folder
        self.port = free_port()
        place = folder / "mosquitto"
        place.mkdir()
        self._file = place / "mosquitto.conf"
        # root, because it would give that up and not find its files; no window, because it forgets what is behind one
        kept = f"user root\nmax_inflight_messages 0\npersistence true\npersistence_location {place}/\n"
        listener = next((line for line in lines if line.startswith("listener ")), f"listener {self.port} 127.0.0.1")
        rest = [line for line in lines if not line.startswith("listener ")]
        self._file.write_text("\n".join((listener.replace("PORT", str(self.port)), kept, *rest, "")))

    @contextlib.contextmanager
    def runs(self) -> Iterator[None]:
        command = [mosquitto_program(), "-v", "-c", str(self._file)]
        with running(command, self.port, self.folder / "mosquitto.log"):
            yield

    async def stays(self, *filters: str) -> Client:
        """A client whose session the broker keeps; QoS 1, so that it is seen what comes twice."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        client = Client(reader, writer)
        client.version = wire.V311
        await client.send(wire.Connect(version=wire.V311, client_id="stays", clean_start=False, keep_alive=0))
        assert (await client.expect(wire.Connack)).reason == 0
        if filters:
            await client.subscribe(*filters, qos=1)
        return client

    async def come(self, node: Served, name: str, *filters: str, qos: int = 2) -> Client:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        client = Client(reader, writer)
        node.clients.append(client)
        await client.send(wire.Connect(version=wire.V5, client_id=name, clean_start=True, keep_alive=0))
        assert (await client.expect(wire.Connack)).reason == 0
        if filters:
            await client.subscribe(*filters, qos=qos, retain_as_published=True, no_local=True)
        return client


def link(port: int, version: str, **fields: Any) -> dict[str, Any]:
    access = {"version": version, "client": "edge", **fields.pop("broker", {})}
    via = [f"mqtt://127.0.0.1:{port}"]
    return {"from": "main", "to": "hq", "via": via, "broker": access, "share": SHARES, **fields}


def file(broker: Mosquitto, version: str = "5", *policies: Any, data: bool = True, **sections: Any) -> str:
    links = sections.pop("links", [link(broker.port, version, **sections.pop("link", {}))])
    return setting(*(policies or POLICIES), data=data, links=links, scopes={"main": {}}, **sections)


async def connected(node: Served) -> None:
    await until(lambda: node.node.links.rows()[0]["state"] == "connected")


@asynccontextmanager
async def bridged(
    folder: Path,
    version: str = "5",
    *policies: Any,
    lines: tuple[str, ...] = (OPEN,),
    **sections: Any,
) -> AsyncIterator[tuple[Served, Mosquitto]]:
    broker = Mosquitto(folder, *lines)
    with broker.runs():
        async with from_file(folder, file(broker, version, *policies, **sections)) as node:
            await connected(node)
            yield node, broker


def found(message: wire.Publish) -> tuple[str, bytes, int]:
    return message.topic, message.payload, message.qos


@VERSIONS
@on_uvloop
async def test_messages_cross_both_ways_under_the_names_of_the_shares(tmp_path: Path, version: str) -> None:
    async with bridged(tmp_path, version) as (node, broker):
        mary = await come(node, "mary")
        await mary.subscribe("hq/#", "both/#", qos=2, no_local=True)
        there = await broker.come(node, "there", "plant/#", "both/#")
        for qos in range(3):
            await mary.publish("up/1", b"%d" % qos, qos=qos)
            assert found(await there.message()) == ("plant/up/1", b"%d" % qos, qos)
            await there.publish("plant/down/1", b"%d" % qos, qos=qos)
            assert found(await mary.message()) == ("hq/down/1", b"%d" % qos, qos)
        await mary.publish("elsewhere", qos=1)
        await mary.publish("both/x", b"ours", qos=1)  # and it does not come back
        assert found(await there.message()) == ("both/x", b"ours", 1)
        await there.publish("both/x", b"theirs", qos=1)
        assert found(await mary.message()) == ("both/x", b"theirs", 1)
        await mary.publish("up/last", qos=1)
        assert (await there.message()).topic == "plant/up/last"
        (row,) = node.node.links.rows()
        assert (row["kind"], row["level"], row["queue"]) == ("broker", "plain", 0)


@on_uvloop
async def test_properties_and_answers_find_their_way(tmp_path: Path) -> None:
    async with bridged(tmp_path) as (node, broker):
        mary, there = await come(node, "mary"), await broker.come(node, "there", "plant/#", "both/#")
        await mary.subscribe("hq/#", "both/#", qos=1)
        asked = wire.Properties(
            response_topic="both/answer", correlation_data=b"7", user_properties=(("a", "b"),), content_type="text"
        )
        await mary.publish("up/ask", b"?", qos=1, properties=asked)
        properties = (await there.message()).properties
        assert (properties.response_topic, properties.correlation_data) == ("both/answer", b"7")
        assert (properties.user_properties, properties.content_type) == ((("a", "b"),), "text")
        nowhere = wire.Properties(response_topic="nowhere/answer", message_expiry_interval=100)
        await mary.publish("up/ask", b"?", qos=1, properties=nowhere)
        properties = (await there.message()).properties
        assert (properties.response_topic, properties.message_expiry_interval) == (None, 100)
        back = wire.Properties(response_topic="plant/up/answer", user_properties=(("floor", "trusted"),))
        await there.publish("plant/down/ask", b"?", qos=1, properties=back)
        properties = (await mary.message()).properties
        assert properties.response_topic == "up/answer"
        assert properties.user_properties == ()  # nobody is told what the broker claims


@VERSIONS
@on_uvloop
async def test_what_is_owed_waits_for_the_broker_in_order_and_once(tmp_path: Path, version: str) -> None:
    broker = Mosquitto(tmp_path, OPEN)
    text = file(broker, version)
    with broker.runs():
        (await broker.stays("plant/up/#")).writer.close()  # it is kept for this one, too
    async with from_file(tmp_path, text) as node:
        mary = await come(node, "mary")
        for number in range(20):
            await mary.publish("up/1", b"%d" % number, qos=2)
    async with from_file(tmp_path, text) as node:  # it survives a restart of the node
        mary = await come(node, "mary")
        await mary.subscribe("hq/#", qos=2)
        for number in range(20, 40):
            await mary.publish("up/1", b"%d" % number, qos=2)
        with broker.runs():
            there = await broker.stays()
            assert [(await there.message()).payload for _ in range(40)] == [b"%d" % number for number in range(40)]
            await until(lambda: node.node.links.rows()[0]["queue"] == 0)
            await there.silent()  # the broker has its PUBACKs
            there.writer.close()
        await until(lambda: node.node.links.rows()[0]["state"] != "connected")
        await mary.publish("up/1", b"away", qos=2)
        with broker.runs():
            there = await broker.stays()
            assert (await there.message()).payload == b"away"
            await connected(node)
            await there.publish("plant/down/1", b"back", qos=2)
            assert found(await mary.message()) == ("hq/down/1", b"back", 2)
            there.writer.close()


@VERSIONS
@on_uvloop
async def test_the_broker_keeps_for_us_what_comes_while_we_are_away(tmp_path: Path, version: str) -> None:
    broker = Mosquitto(tmp_path, OPEN)
    text = file(broker, version)
    with broker.runs():
        async with from_file(tmp_path, text) as node:
            await connected(node)
            mary = await come(node, "mary", stays=True, clean_start=False)
            await mary.subscribe("hq/#", qos=1)
            there = await broker.come(node, "there")
            await there.publish("plant/down/1", b"0", qos=2)
            assert (await mary.message()).payload == b"0"
            await mary.silent()  # the node has her PUBACK
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
        there = Client(reader, writer)
        await there.send(wire.Connect(version=wire.V5, client_id="again", clean_start=True, keep_alive=0))
        await there.expect(wire.Connack)
        for number in range(1, 5):
            await there.publish("plant/down/1", b"%d" % number, qos=2)
        async with from_file(tmp_path, text) as node:
            mary = await come(node, "mary", stays=True, clean_start=False)
            assert [(await mary.message()).payload for _ in range(4)] == [b"1", b"2", b"3", b"4"]
            await mary.silent()
        writer.close()


@VERSIONS
@on_uvloop
async def test_retained_messages_cross_when_the_link_opens(tmp_path: Path, version: str) -> None:
    broker = Mosquitto(tmp_path, OPEN)
    async with from_file(tmp_path, file(broker, version)) as node:
        mary = await come(node, "mary")
        await mary.publish("up/state", b"on", qos=1, retain=True)
        with broker.runs():
            early = await broker.come(node, "early")
            await early.publish("plant/down/state", b"off", qos=1, retain=True)
            await connected(node)
            there = await broker.come(node, "there", "plant/up/#")
            assert found(await there.message())[:2] == ("plant/up/state", b"on")
            retained = node.node.scopes["main"].retained
            await until(lambda: retained.get("hq/down/state") is not None)
            await mary.subscribe("hq/#", qos=1)
            message = await mary.message()
            assert (message.topic, message.payload, message.retain) == ("hq/down/state", b"off", True)


# -- what leaves ---------------------------------------------------------------------------------------------------

VIEWS = [
    {"topic": "up/views/#", "for": OUT, "keep": ["/a"]},
    {"topic": "up/views/#", "for": "user:mary", "keep": "all"},
]
WISHES = [
    {"id": "not-for-the-link", "user": "alice", "topic": "up/#", "when": "s.kind != 'link'"},
    {"id": "not-there", "user": "bob", "topic": "up/#", "to": "hq", "when": "false"},
    {"id": "a-part", "user": "mary", "topic": "up/part/#", "keep": ["/a"], "when": "true"},
]


@on_uvloop
async def test_the_broker_is_a_reader_of_the_full_content(tmp_path: Path) -> None:
    """Preferences of receivers and of forwarding, views of administrators and publishers, demands, and policies."""
    rules = [*POLICIES, policy("no", "up/secret/#", "write", subject=OUT, effect="deny")]
    async with bridged(tmp_path, "5", *rules, views=VIEWS, preferences=WISHES) as (node, broker):
        there = await broker.come(node, "there", "plant/#")
        mary, alice, bob = [await come(node, name) for name in ("mary", "alice", "bob")]
        content = b'{"a": 1, "b": 2}'
        await alice.publish("up/1", content, qos=1)  # her preference forbids this reader
        await bob.publish("up/1", content, qos=1)  # his forbids this scope
        await mary.publish("up/part/1", content, qos=1)  # a part is not all
        await mary.publish("up/views/1", content, qos=1)
        await mary.publish("up/secret/1", content, qos=1)
        table = wire.Properties(user_properties=(("view", json.dumps({"user:alice": "all"})),))
        await mary.publish("up/2", content, qos=1, properties=table)
        demand = wire.Properties(user_properties=(("require", "tls"),))
        await mary.publish("up/3", content, properties=demand)
        everybody = wire.Properties(user_properties=(("view", json.dumps({"*": "all"})),))
        await mary.publish("up/4", content, qos=1, properties=everybody)
        assert (await there.message()).topic == "plant/up/4"


@on_uvloop
async def test_who_publishes_there_is_the_link_here(tmp_path: Path) -> None:
    rules = [
        POLICIES[0],
        policy("out", subject=OUT, action="write"),
        policy("in", "plant/down/#", subject=IN, action="read", when="o.topic == 'plant/down/1'"),
    ]
    async with bridged(tmp_path, "5", *rules) as (node, broker):
        mary, there = await come(node, "mary"), await broker.come(node, "there")
        await mary.subscribe("hq/#", "both/#", qos=1, properties=wire.NONE)
        for topic in ("plant/down/2", "both/x", "plant/elsewhere", "plant/down/1"):
            await there.publish(topic, qos=1)
        assert (await mary.message()).topic == "hq/down/1"
        context = None
        for message in (await _kept(node, there),):
            context = node.node.scopes["main"].gate.attributes.context(message)
        assert context is not None
        subject = context.subject
        assert (subject.kind, subject.client, subject.user, context.level) == ("link", "hq->main", None, "plain")
        assert context.topic == "plant/down/1"


async def _kept(node: Served, there: Client) -> Any:
    await there.publish("plant/down/1", b"kept", qos=1, retain=True)
    retained = node.node.scopes["main"].retained
    await until(lambda: retained.get("hq/down/1") is not None)
    return retained.get("hq/down/1")


@on_uvloop
async def test_a_payload_like_an_envelope_is_a_payload(tmp_path: Path) -> None:
    static = encode_static(
        Static(
            origin="ab" * 8, publisher={"kind": "client", "client": "x", "domain": "test"}, topic="up/1", floor="tls"
        )
    )
    payload = seal(static, bytes(14), 1, 0, 1.0, None, 0, False, b"inside", None)
    bundled = bundle(bytes(14), 1, 1.0, [b"a", b"b"])
    async with bridged(tmp_path) as (node, broker):
        mary, there = await come(node, "mary"), await broker.come(node, "there")
        await mary.subscribe("hq/#", qos=1)
        for content in (payload, static + bundled):
            for qos in (0, 1, 0):
                await there.publish("plant/down/1", content, qos=qos)
                assert (await mary.message()).payload == content


# -- how it connects -----------------------------------------------------------------------------------------------


@VERSIONS
@on_uvloop
async def test_over_tls_with_a_password(tmp_path: Path, version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    certificates.make_ca(tmp_path, "Test CA", days=2)
    certificates.issue(tmp_path, "hq", ["127.0.0.1"], client=False, days=2)
    salt = b"twelve bytes"  # Mosquitto's own format: PBKDF2 with SHA-512
    digest = hashlib.pbkdf2_hmac("sha512", b"secret", salt, 101)
    (tmp_path / "passwords").write_text(f"edge:$7$101${b64encode(salt).decode()}${b64encode(digest).decode()}\n")
    plain = free_port()
    broker = Mosquitto(
        tmp_path,
        "allow_anonymous false",
        f"password_file {tmp_path}/passwords",
        "listener PORT 127.0.0.1",
        f"cafile {tmp_path}/ca.pem\ncertfile {tmp_path}/hq.pem\nkeyfile {tmp_path}/hq.key\nlistener {plain} 127.0.0.1",
    )
    monkeypatch.setenv("HQ_PASSWORD", "secret")
    access = {"user": "edge", "password": "${HQ_PASSWORD}", "ca": str(tmp_path / "ca.pem")}
    via = [f"mqtts://127.0.0.1:{broker.port}"]
    text = file(broker, version, link={"broker": access, "via": via, "peer": "CN=hq"})
    with broker.runs():
        async with from_file(tmp_path, text) as node:
            await connected(node)
            assert node.node.links.rows()[0]["level"] == "tls"
            for wrong, why in (
                (text.replace("CN=hq", "CN=other"), "not trusted"),
                (text.replace("${HQ_PASSWORD}", "other"), "user name or password|not authorized|password"),
            ):
                await node.reload(wrong)
                await until(lambda: node.node.links.rows()[0]["state"] != "connected")
                await until(lambda why=why: any(w in str(node.node.links.rows()[0]["error"]) for w in why.split("|")))
                await node.reload(text)
                await connected(node)


@on_uvloop
async def test_a_change_of_shares_asks_the_broker_anew(tmp_path: Path) -> None:
    async with bridged(tmp_path) as (node, broker):
        mary, there = await come(node, "mary"), await broker.come(node, "there")
        await mary.subscribe("hq/#", "new/#", qos=1)
        other = [*SHARES[:1], {"topic": "new/#", "direction": "in", "qos": 1}]
        before = node.node.links.rows()[0]["since"], node.node.site.counters.connections
        await node.reload(file(broker, link={"share": other}))
        await until(lambda: node.node.site.counters.connections > before[1])
        await connected(node)
        await there.publish("plant/down/1", qos=1)  # nobody asks for that any more
        async with asyncio.timeout(10):
            while True:  # until the broker has taken SUBSCRIBE
                await there.publish("new/1", qos=1)
                await mary.send(wire.Pingreq())
                if isinstance(packet := await mary.receive(), wire.Publish):
                    break
        assert packet.topic == "new/1"


@VERSIONS
@on_uvloop
async def test_what_the_broker_refuses_is_shown(tmp_path: Path, version: str) -> None:
    """Mosquitto grants every SUBSCRIBE; here the foreign broker is another node, as any client sees it."""
    (tmp_path / "there").mkdir()
    (tmp_path / "here").mkdir()
    async with from_file(tmp_path / "there", setting(policy("plant", "plant/#"))) as there:
        text = setting(*POLICIES, links=[link(there.port, version)], scopes={"main": {}})
        async with from_file(tmp_path / "here", text) as node:
            await until(lambda: node.node.links.rows()[0]["error"] is not None)
            assert node.node.links.rows()[0]["error"] == "the broker refuses to send both/#"
            mary, reader = await come(node, "mary"), await come(there, "alice")
            await reader.subscribe("plant/#", qos=2)
            await mary.publish("up/1", b"crosses", qos=2)
            assert found(await reader.message()) == ("plant/up/1", b"crosses", 2)


@VERSIONS
@on_uvloop
async def test_a_topic_that_the_broker_hangs_up_over_does_not_stop_the_link(tmp_path: Path, version: str) -> None:
    """Mosquitto ends the connection of whoever sends a topic of more than 200 levels."""
    deep = "/".join(["both", *"x" * 250])
    broker = Mosquitto(tmp_path, OPEN)
    with broker.runs():
        async with from_file(tmp_path, file(broker, version)) as node:
            there = await broker.come(node, "there", "both/#")
            mary = await come(node, "mary")
            for qos in (0, 1, 2):
                await mary.publish(deep, b"refused", qos=qos, retain=qos == 1)
                await mary.publish("both/a", b"%d" % qos, qos=1)
                assert (await there.message()).payload == b"%d" % qos


@on_uvloop
async def test_what_the_broker_hangs_up_over_each_time_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As before, if nobody knew of the bound."""
    monkeypatch.setattr(bridge, "DEEPEST", 100_000)
    deep = "/".join(["both", *"x" * 250])
    broker = Mosquitto(tmp_path, OPEN)
    with broker.runs():
        async with from_file(tmp_path, file(broker, "5")) as node:
            there = await broker.come(node, "there", "both/#")
            mary = await come(node, "mary")
            for number in range(6):
                await mary.publish(deep if number == 2 else "both/a", b"%d" % number, qos=1)
            got: list[bytes] = []
            while b"5" not in got:
                got.append((await there.message()).payload)
            assert list(dict.fromkeys(got)) == [b"0", b"1", b"3", b"4", b"5"]
