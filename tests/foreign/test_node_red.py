"""Node-RED from npm, without its editor: a flow with `mqtt in` and `mqtt out`, at a node and at a guard.

The configurations are those of `docs/how-to/node-red.md`. `TIDEGATE_NODE_RED` names an installation; without it npm
installs one, which takes half a minute.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from applications import page_configuration, served
from harness import Client, free_port
from processes import needs, on_uvloop
from tidegate import wire

pytestmark = pytest.mark.soak
PAGE = "node-red.md"


@pytest.fixture(scope="module")
def node_red(tmp_path_factory: pytest.TempPathFactory) -> Path:
    needs("node", "npm")
    if there := os.environ.get("TIDEGATE_NODE_RED"):
        return Path(there)
    folder = tmp_path_factory.mktemp("node-red")
    (folder / "package.json").write_text('{"private": true}')
    npm = shutil.which("npm")
    assert npm is not None
    command = [npm, "install", "--no-audit", "--no-fund", "node-red@4"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=600)
    return folder


def flow(port: int) -> list[dict[str, Any]]:
    """Degrees Celsius become Fahrenheit; and it also tries what it may not."""
    code = (
        "msg.topic = msg.topic.replace('sensors/', 'rooms/').replace('celsius', 'fahrenheit');"
        "msg.payload = msg.payload * 9 / 5 + 32; return [[msg, {topic: 'secrets/x', payload: 1}]];"
    )
    status = {
        f"{kind}{key}": value
        for kind, payload in (("birth", "online"), ("close", "offline"), ("will", "lost"))
        for key, value in (("Topic", "nodered/status"), ("Qos", "1"), ("Retain", "true"), ("Payload", payload))
    }
    broker = {
        "type": "mqtt-broker",
        "broker": "127.0.0.1",
        "port": str(port),
        "protocolVersion": "5",
        "keepalive": "60",
    }
    return [
        {"id": "f", "type": "tab", "label": "rooms"},
        {"id": "b", **broker, "autoConnect": True, "cleansession": True, **status},
        {"id": "i", "type": "mqtt in", "z": "f", "topic": "sensors/+/celsius", "qos": "1", "datatype": "json"}
        | {"broker": "b", "wires": [["c"]]},
        {"id": "c", "type": "function", "z": "f", "func": code, "outputs": 1, "wires": [["o"]]},
        {
            "id": "o",
            "type": "mqtt out",
            "z": "f",
            "topic": "",
            "qos": "1",
            "retain": "true",
            "broker": "b",
            "wires": [],
        },
    ]


@contextlib.contextmanager
def running(node_red: Path, folder: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    folder.mkdir()
    (folder / "flows.json").write_text(json.dumps(flow(port)))
    (folder / "flows_cred.json").write_text('{"b": {"user": "nodered", "password": "red"}}')
    settings = {"flowFile": "flows.json", "credentialSecret": False, "httpAdminRoot": False, "httpNodeRoot": False}
    settings |= {"uiHost": "127.0.0.1", "uiPort": free_port()}
    (folder / "settings.js").write_text(f"module.exports = {json.dumps(settings)};")
    script = node_red / "node_modules" / "node-red" / "red.js"
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            ["node", str(script), "-u", str(folder), "-s", str(folder / "settings.js")], stdout=log, stderr=log
        )
        try:
            yield process
        finally:
            process.terminate()
            process.wait(20)


@pytest.mark.parametrize("guarded", [False, True], ids=["embedded", "guarded"])
@on_uvloop
async def test_a_flow(node_red: Path, tmp_path: Path, guarded: bool) -> None:
    with served(tmp_path, page_configuration(PAGE, guarded=guarded), guarded=guarded) as (_, port):
        display = await come(port, "display", "dis")
        await display.subscribe("#", qos=1)
        sensor = await come(port, "sensor", "sen")
        with running(node_red, tmp_path / "flows", port):
            online = await heard(display, "nodered/status")
            assert online == (b"online", False)
            await sensor.publish(
                "sensors/kitchen/celsius", b"21.5", qos=1, retain=True
            )  # it may not have subscribed yet
            assert (await heard(display, "rooms/kitchen/fahrenheit"))[0] == b"70.7"
            async with asyncio.timeout(20):
                while b"Not authorized" not in (tmp_path / "flows" / "log").read_bytes():
                    await asyncio.sleep(0.05)
        assert (await heard(display, "nodered/status"))[0] in (b"offline", b"lost")
        late = await come(port, "display", "dis", "late")
        await late.subscribe("rooms/#")
        assert await heard(late, "rooms/kitchen/fahrenheit") == (b"70.7", True)
        for client in (display, sensor, late):
            client.writer.close()


async def come(port: int, user: str, password: str, name: str = "") -> Client:
    client = Client(*await asyncio.open_connection("127.0.0.1", port))
    fields = {"username": user, "password": password.encode()}
    await client.send(wire.Connect(version=wire.V5, client_id=name or user, clean_start=True, keep_alive=0, **fields))
    assert (await client.expect(wire.Connack)).reason == 0
    return client


async def heard(client: Client, topic: str) -> tuple[bytes, bool]:
    """The next message of a topic: its content, and whether it was retained."""
    async with asyncio.timeout(60):
        while True:
            try:
                packet = await client.receive()
            except TimeoutError:  # the harness has no patience with programs that take their time
                continue
            assert isinstance(packet, wire.Publish), packet
            if packet.qos:
                await client.send(wire.Puback(packet_id=packet.packet_id))
            assert packet.topic != "secrets/x"
            if packet.topic == topic:
                return packet.payload, packet.retain
