"""Home Assistant from PyPI with its MQTT integration: discovery, states, commands, wills; at a node and at a guard.

The configurations are those of `docs/how-to/home-assistant.md`. `TIDEGATE_HOME_ASSISTANT` names the folder of a virtual
environment that has it; without it one is made, which takes some minutes: Home Assistant also installs what its
integrations need when it starts for the first time.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from applications import page_configuration, served
from foreign.test_node_red import heard
from harness import Client, free_port
from processes import missing, on_uvloop
from tidegate import wire

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]
PAGE = "home-assistant.md"
ENTRY = {
    "entry_id": "tidegate",
    "version": 1,
    "minor_version": 1,
    "domain": "mqtt",
    "title": "tidegate",
    "options": {},
    "pref_disable_new_entities": False,
    "pref_disable_polling": False,
    "source": "user",
    "unique_id": None,
    "disabled_by": None,
}
CONFIGURATION = """
homeassistant: {name: Home, latitude: 45.4, longitude: 9.2, elevation: 120, unit_system: metric, time_zone: Europe/Rome}
mqtt_statestream: {base_topic: states, publish_attributes: false}
logger: {default: info}
http: {server_host: 127.0.0.1, server_port: HTTP}
automation:
  - alias: warm
    trigger: {platform: numeric_state, entity_id: sensor.kitchen, above: 25}
    action: {service: switch.turn_on, target: {entity_id: switch.fan}}
"""
AVAILABLE = {"availability_topic": "devices/plug/status"}
SENSOR = {"name": "t", "unique_id": "t", "object_id": "kitchen", "state_topic": "devices/plug/temp/state", **AVAILABLE}
SWITCH = {
    "name": "r",
    "unique_id": "r",
    "object_id": "fan",
    "state_topic": "devices/plug/relay/state",
    "command_topic": "devices/plug/relay/set",
    **AVAILABLE,
}


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if there := os.environ.get("TIDEGATE_HOME_ASSISTANT"):
        return Path(there)
    if sys.version_info[:2] not in ((3, 11), (3, 12)):
        missing("Home Assistant 2024.3 needs Python 3.11 or 3.12")
    folder = tmp_path_factory.mktemp("home-assistant")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, timeout=300)
    wanted = ["homeassistant==2024.3.3", "paho-mqtt==1.6.1"]
    command = [str(folder / "bin/pip"), "install", "--quiet", *wanted]
    subprocess.run(command, check=True, capture_output=True, timeout=1200)
    return folder


@contextlib.contextmanager
def running(environment: Path, folder: Path, port: int) -> Iterator[Path]:
    """Home Assistant in a folder; its log."""
    (folder / ".storage").mkdir(parents=True, exist_ok=True)
    (folder / "configuration.yaml").write_text(CONFIGURATION.replace("HTTP", str(free_port())))
    data = {"broker": "127.0.0.1", "port": port, "username": "homeassistant", "password": "ha", "discovery": True}
    entries = {"version": 1, "minor_version": 1, "key": "core.config_entries"}
    entries["data"] = {"entries": [{**ENTRY, "data": data}]}  # type: ignore[assignment]
    (folder / ".storage" / "core.config_entries").write_text(json.dumps(entries))
    log = folder / "log"
    path = f"{environment}/bin:{os.environ['PATH']}"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [str(environment / "bin/hass"), "-c", str(folder)],
            stdout=stream,
            stderr=stream,
            env={**os.environ, "PATH": path},  # type: ignore[arg-type]
        )
        try:
            yield log
        finally:
            process.terminate()
            process.wait(60)


async def come(port: int, user: str, password: str, will: str | None = None) -> Client:
    client = Client(*await asyncio.open_connection("127.0.0.1", port))
    last = None if will is None else wire.Will(topic=will, payload=b"offline", qos=1, retain=True)
    await client.send(
        wire.Connect(
            version=wire.V5,
            client_id=f"{user}-x",
            clean_start=True,
            keep_alive=0,
            will=last,
            username=user,
            password=password.encode(),
        )
    )
    assert (await client.expect(wire.Connack)).reason == 0
    return client


@pytest.mark.parametrize("guarded", [False, True], ids=["embedded", "guarded"])
@on_uvloop
async def test_discovery_states_commands_and_wills(environment: Path, tmp_path: Path, guarded: bool) -> None:
    with served(tmp_path, page_configuration(PAGE, guarded=guarded), guarded=guarded) as (_, port):
        plug = await come(port, "plug", "p", will="devices/plug/status")
        watch = await come(port, "homeassistant", "ha")
        await watch.subscribe("states/#", qos=1)
        await plug.subscribe("devices/plug/+/set", "homeassistant/status", qos=1)
        with running(environment, tmp_path / "house", port) as log:
            async with asyncio.timeout(900):  # it installs what it needs
                while b"Starting Home Assistant" not in log.read_bytes():
                    await asyncio.sleep(0.2)
            assert (await heard(plug, "homeassistant/status"))[0] == b"online"
            for component, id, body in (("sensor", "temp", SENSOR), ("switch", "relay", SWITCH)):
                topic = f"homeassistant/{component}/plug/{id}/config"
                await plug.publish(topic, json.dumps(body).encode(), qos=1, retain=True)
            assert (await heard(watch, "states/switch/fan/state"))[0] == b"unavailable"
            await plug.publish("devices/plug/status", b"online", qos=1, retain=True)
            await plug.publish("devices/plug/relay/state", b"OFF", qos=1, retain=True)
            await until_state(watch, "states/switch/fan/state", b"off")
            await plug.publish("devices/plug/temp/state", b"21.5", qos=1, retain=True)
            await until_state(watch, "states/sensor/kitchen/state", b"21.5")
            await plug.publish("devices/plug/temp/state", b"30", qos=1, retain=True)
            assert (await heard(plug, "devices/plug/relay/set"))[0] == b"ON"  # the automation
            lamp = await come(port, "lamp", "l")
            evil = {**SWITCH, "unique_id": "evil", "object_id": "evil"}
            refused = await lamp.publish("homeassistant/switch/plug/evil/config", json.dumps(evil).encode(), qos=1)
            assert isinstance(refused, wire.Puback)
            assert refused.reason == wire.Reason.NOT_AUTHORIZED
            plug.abort()
            await until_state(watch, "states/switch/fan/state", b"unavailable")
            assert b"evil" not in log.read_bytes()
        for client in (watch, lamp):
            client.writer.close()


async def until_state(client: Client, topic: str, state: bytes) -> None:
    while (await heard(client, topic))[0] != state:
        pass
