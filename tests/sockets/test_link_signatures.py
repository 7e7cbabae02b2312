"""Signed messages over three nodes and real TLS: the last one believes the one in the middle nothing of the first."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from harness import free_port
from processes import Served, from_file, on_uvloop, until
from sockets.test_audit_publishers import rows
from tidegate.cli import certificates
from tidegate.cli.commands import app
from tidegate.node.flow_commands import FlowCommands
from tidegate.wire import Properties

NODE = """
version: 1
node: {name: NAME, data: data, cert: ../NAME.pem, key: ../NAME.key, ca: ../ca.pem}
listeners:
  - {url: "mqtt://127.0.0.1:PORT", scope: s-NAME, anonymous: true}
  - {url: "mqtts://127.0.0.1:OWN", scope: s-NAME, cert: ../NAME.pem, key: ../NAME.key, client_ca: ../ca.pem,
     client_cert: required}
scopes: {s-NAME: {}}
trust: {domains: {DOMAINS}}
directory: {users: {mary: {password: "plain:mary"}}}
links:
LINKS
policies: open
sys: {interval: 0s}
audit: {}
"""
KEPT = Properties(session_expiry_interval=600)
DOMAINS = {
    "a": "b: {nodes: [b]}",
    "b": "a: {nodes: [a]}, c: {nodes: [c]}",
    "c": "a: {nodes: [a]}, b: {nodes: [b]}",
}


class Line:
    """Three nodes, a - b - c."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = {name: str(free_port()) for name in "abc"}

    @contextlib.asynccontextmanager
    async def node(self, name: str, sign: str = "true") -> AsyncIterator[Served]:
        links = [near + far for near, far in ("ab", "bc") if name in (near, far)]
        entries = []
        for near, far in links:
            other = far if name == near else near
            via = f'via: ["mqtts://127.0.0.1:{self.ports[far]}"], ' if name == near else ""
            entries.append(f"  - {{from: s-{name}, to: s-{other}, {via}peer: CN={other}, sign: {sign}}}")
        text = NODE.replace("LINKS", "\n".join(entries)).replace("DOMAINS", DOMAINS[name])
        place = self.folder / name
        place.mkdir(exist_ok=True)
        async with from_file(place, text.replace("NAME", name).replace("OWN", self.ports[name])) as served:
            yield served


async def joined(*nodes: Served) -> None:
    await until(lambda: all(row["state"] == "connected" for node in nodes for row in node.node.links.rows()))


@pytest.fixture
def line(tmp_path: Path) -> Line:
    certificates.make_ca(tmp_path, "Test CA", days=2)
    for name in "abc":
        certificates.issue(tmp_path, name, ["127.0.0.1"], client=True, days=2)
    return Line(tmp_path)


@on_uvloop
async def test_signatures_hold_over_two_hops_and_a_restart(line: Line) -> None:
    async with line.node("b") as b, line.node("a") as a:
        publisher = await a.connect("tr1", username="mary", password=b"mary")
        async with line.node("c") as c:
            await joined(a, b, c)
            reader = await c.connect("reader")
            await reader.subscribe("#", qos=2)
            waiting = await c.connect("waiting", clean_start=False, properties=KEPT)
            await waiting.subscribe("later", qos=1)
            for qos in range(3):
                await publisher.publish("t", b"%d" % qos, qos=qos)
                message = await reader.message()
                assert (message.payload, message.qos) == (b"%d" % qos, qos)
                assert not dict(message.properties.user_properties)
        await publisher.publish("later", b"meanwhile", qos=1)
        async with line.node("c") as c:  # it has kept the certificate of the first node
            waiting = await c.connect("waiting", clean_start=False, properties=KEPT)
            assert (await waiting.message()).payload == b"meanwhile"
            assert not await rows(c, "deny")


@on_uvloop
async def test_what_is_not_signed_is_refused_and_audited(line: Line) -> None:
    async with line.node("c") as c, line.node("b", "false") as b, line.node("a", "false") as a:
        await joined(a, b, c)
        reader = await c.connect("reader")
        await reader.subscribe("#", qos=1)
        strange = await a.connect("tr1", username="mary", password=b"mary")
        await strange.publish("t", b"of the first", qos=1)
        near = await b.connect("tr2", username="mary", password=b"mary")
        await near.publish("t", b"of the second", qos=1)

        found: list[str | None] = []
        while len(found) < 2:
            found = [each.detail for each in await rows(c, "deny") if each.rule == "envelope"]
        assert any("it is not signed" in str(each) for each in found)
        assert any("of the domain 'a'" in str(each) for each in found)
        await reader.silent()


@on_uvloop
async def test_the_flows_of_a_node_go_on_beyond_its_neighbour(line: Line) -> None:
    """`tidegate flow --live` uses what the nodes of a group tell of themselves."""
    async with line.node("c") as c, line.node("b") as b, line.node("a") as a:
        await joined(a, b, c)
        await until(lambda: len(a.node.realm.node_links.neighbourhood.states) == 3)
        place = str(a.file.path)
        command = ["flow", place, "--live", "--from", "s-a", "--to", "s-c@c", "--format", "json"]
        done = await asyncio.to_thread(CliRunner().invoke, app, command)
        assert done.exit_code == 0, done.output
        document = json.loads(done.stdout)
        assert [each["route"] for each in document["flows"]] == [["scope:s-a", "scope:s-b", "scope:s-c@c"]]
        answer = await FlowCommands(a.node).flows("s-a", "s-c@c", live=True)  # as GET /flows
        assert answer["flows"] == document["flows"]
        picture = await FlowCommands(a.node).drawing(live=True)
        assert "s-c@c" in picture["svg"]
