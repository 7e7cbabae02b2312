"""Two guards in front of a cluster of three NATS servers, with HAProxy before both and PostgreSQL beside the guards.

    DATABASE=postgresql://USER:PASSWORD@HOST/DATABASE python examples/cluster/run.py [--kills 2] [--seed 1]

While two machines publish with QoS 1 and two screens listen, a guard is killed with `kill -9`, then a server, then the
other guard, and so on; each is started again. At the end every message that was acknowledged has to have come to both
screens. Exit code 0: it has. `PORTS` may give other ports, ten of them, and `FOLDER` another place for what is written.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

HERE = Path(__file__).parent
FOLDER = Path(os.environ.get("FOLDER", HERE / "var"))
NAMES = ("ENTRY", "BROKER", "GUARD_A", "GUARD_B", "NATS_1", "NATS_2", "NATS_3", "ROUTE_1", "ROUTE_2", "ROUTE_3")
PORTS = dict(zip(NAMES, os.environ.get("PORTS", ",".join(str(18830 + n) for n in range(10))).split(","), strict=True))
BEGAN = time.monotonic()
PATIENCE = 120.0  # seconds before it gives up; never a measure of anything
PACE = 0.005  # seconds between two messages of a machine
SILENCE = 5.0  # seconds without PUBACK after which a machine connects again: a server forgets some while it elects
UNDER_WAY = 20  # messages of a machine that are not acknowledged


class Part:
    """A process of the cluster."""

    def __init__(self, name: str, command: list[str], port: str, environment: Mapping[str, str]) -> None:
        self.name = name
        self.command = command
        self.port = int(port)
        self.environment = {**os.environ, **PORTS, "FOLDER": str(FOLDER), **environment}
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with (FOLDER / f"{self.name}.log").open("ab") as log:
            self.process = subprocess.Popen(self.command, env=self.environment, stdout=log, stderr=log)

    def wait(self) -> None:
        """Until it listens."""
        deadline = time.monotonic() + PATIENCE
        while True:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE).close()
                return
            assert self.process is not None
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"{self.name} did not start:\n{(FOLDER / f'{self.name}.log').read_text()}")
            time.sleep(0.05)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(10)
            self.kill()


def program(name: str) -> str:
    found = shutil.which(name, path=f"{Path(sys.executable).parent}:{os.environ['PATH']}:/usr/sbin")
    if found is None:
        raise SystemExit(f"{name} is not installed")
    return found


def parts() -> dict[str, Part]:
    """All of them, in the order in which they are started."""
    made = {}
    for number in (1, 2, 3):
        others = ",".join(f"nats://127.0.0.1:{PORTS[f'ROUTE_{other}']}" for other in (1, 2, 3) if other != number)
        words = [program("nats-server"), "-c", str(HERE / "nats.conf"), "--name", f"nats-{number}", "--routes", others]
        made[f"nats-{number}"] = Part(
            f"nats-{number}",
            words,
            PORTS[f"NATS_{number}"],
            {
                "CLIENT_PORT": "-1",  # whichever is free: nobody speaks NATS here
                "MQTT_PORT": PORTS[f"NATS_{number}"],
                "CLUSTER_PORT": PORTS[f"ROUTE_{number}"],
                "STORE": str(FOLDER / f"nats-{number}"),
            },
        )
    made["haproxy"] = Part("haproxy", [program("haproxy"), "-f", str(HERE / "haproxy.cfg")], PORTS["ENTRY"], {})
    secret = secrets.token_hex(32)
    for letter in "ab":
        port = PORTS[f"GUARD_{letter.upper()}"]
        words = [program("tidegate"), "run", "-c", str(HERE / "guard.yaml")]
        known = {"NAME": f"guard-{letter}", "PORT": port, "SECRET": secret}
        made[f"guard-{letter}"] = Part(f"guard-{letter}", words, port, known)
    return made


class Client:
    """A client with a session that lasts, which reconnects by itself."""

    def __init__(self, name: str, user: str, version: int) -> None:
        self.name = name
        self.seen: set[str] = set()
        self.subscribed = threading.Event()
        self.connections = 0
        lasting: dict[str, Any] = {"clean_session": False} if version == mqtt.MQTTv311 else {}
        self.paho = mqtt.Client(
            CallbackAPIVersion.VERSION2, name, protocol=version, reconnect_on_failure=True, **lasting
        )
        self.paho.username_pw_set(user, user)
        self.paho.max_inflight_messages_set(UNDER_WAY)
        self.paho.reconnect_delay_set(1, 1)
        self.paho.on_connect = self._connected
        self.paho.on_message = lambda client, data, message: self.seen.add(message.payload.decode())
        self.paho.on_subscribe = lambda *_: self.subscribed.set()
        self._terms: dict[str, Any] = {}
        if version == mqtt.MQTTv5:
            properties = Properties(PacketTypes.CONNECT)
            properties.SessionExpiryInterval = 3600
            self._terms = {"clean_start": False, "properties": properties}

    def start(self) -> None:
        self.paho.connect_async("127.0.0.1", int(PORTS["ENTRY"]), keepalive=10, **self._terms)
        self.paho.loop_start()

    def _connected(self, client: mqtt.Client, data: Any, flags: Any, reason: Any, properties: Any) -> None:
        if not reason.is_failure:
            self.connections += 1
            if self.name.startswith("screen") and not self.subscribed.is_set():
                client.subscribe("machine/#", qos=1)

    def stop(self) -> None:
        self.paho.disconnect()
        self.paho.loop_stop()


class Machine(Client):
    """Publishes until it is told to stop."""

    def __init__(self, name: str, version: int) -> None:
        super().__init__(name, name, version)
        self.acknowledged: set[str] = set()
        self.sent = 0
        self._open: dict[int, str] = {}
        self._lock = threading.Lock()
        self._going = threading.Event()
        self.paho.on_publish = self._published
        self._thread = threading.Thread(target=self._publish, daemon=True)

    def begin(self) -> None:
        self._going.set()
        self._thread.start()

    def _publish(self) -> None:
        known, since = -1, time.monotonic()
        while self._going.is_set() or not self.settled:
            if len(self.acknowledged) != known:
                known, since = len(self.acknowledged), time.monotonic()
            elif time.monotonic() > since + SILENCE and (connection := self.paho.socket()) is not None:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)  # type: ignore[union-attr]
                since = time.monotonic()
            if self._going.is_set() and len(self._open) < UNDER_WAY:
                with self._lock:  # PUBACK may be here before its identifier is noted
                    payload = f"{self.name}/{self.sent}"
                    self._open[self.paho.publish(f"machine/{self.name}/count", payload, qos=1).mid] = payload
                    self.sent += 1
            time.sleep(PACE)

    def _published(self, client: mqtt.Client, data: Any, mid: int, reason: Any, properties: Any) -> None:
        with self._lock:
            payload = self._open.pop(mid, None)
        if payload is not None and not (reason is not None and reason.is_failure):
            self.acknowledged.add(payload)

    def end(self) -> None:
        self._going.clear()

    @property
    def settled(self) -> bool:
        return not self._open


def main() -> int:
    words = argparse.ArgumentParser()
    words.add_argument("--kills", type=int, default=2)
    words.add_argument("--seed", type=int, default=1)
    words.add_argument("--report", type=Path)
    said = words.parse_args()
    if "DATABASE" not in os.environ:
        raise SystemExit(
            "DATABASE is missing: the address of a PostgreSQL database, postgresql://USER:PASSWORD@HOST/NAME"
        )
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    key = FOLDER / "master.key"
    key.write_text(
        subprocess.run([program("tidegate"), "key", "master"], check=True, stdout=subprocess.PIPE, text=True).stdout
    )
    key.chmod(0o600)
    running = parts()
    machines = [Machine("press", mqtt.MQTTv311), Machine("oven", mqtt.MQTTv5)]
    screens = [Client("screen-1", "screen", mqtt.MQTTv311), Client("screen-2", "screen", mqtt.MQTTv5)]
    try:
        for part in running.values():
            part.start()
        for part in running.values():
            part.wait()
        for client in (*screens, *machines):
            client.start()
        until(lambda: all(screen.subscribed.is_set() for screen in screens), "nobody could subscribe")
        print(f"{time.monotonic() - BEGAN:6.1f} s  everybody is there", flush=True)
        for machine in machines:
            machine.begin()
        victims = play(running, machines, random.Random(said.seed), said.kills)
        for machine in machines:
            machine.end()
        until(lambda: all(machine.settled for machine in machines), "not everything was acknowledged")
        acknowledged = set().union(*(machine.acknowledged for machine in machines))
        with contextlib.suppress(SystemExit):
            until(lambda: all(acknowledged <= screen.seen for screen in screens), "")
        print(f"{time.monotonic() - BEGAN:6.1f} s  all of it has come", flush=True)
    finally:
        for client in (*screens, *machines):
            client.stop()
        for part in reversed(running.values()):
            part.stop()
    lost = sorted(f"{payload} to {one.name}" for one in screens for payload in acknowledged - one.seen)
    found = {
        "seed": said.seed,
        "killed": victims,
        "connections of clients": sum(client.connections for client in (*screens, *machines)),
        "published": sum(machine.sent for machine in machines),
        "acknowledged": len(acknowledged),
        "lost": lost,
    }
    if said.report is not None:
        said.report.write_text(json.dumps(found))
    print(f"killed: {', '.join(victims)}")
    print(f"{found['published']} published, {len(acknowledged)} acknowledged, {len(lost)} lost")
    print("✓ nothing that was acknowledged is lost" if not lost else f"✗ lost: {lost[:10]}")
    return bool(lost)


def play(running: dict[str, Part], machines: list[Machine], rng: random.Random, kills: int) -> list[str]:
    """Kills one after the other while the machines go on: a guard, a server, the other guard, …"""
    victims = []
    for number in range(kills):
        until(progress(machines), "the machines do not get on")
        time.sleep(rng.uniform(0.05, 0.5))  # the random moment, not a wait for anything
        name = f"guard-{'ab'[number // 2 % 2]}" if number % 2 == 0 else f"nats-{rng.randint(1, 3)}"
        running[name].kill()
        victims.append(name)
        print(f"{time.monotonic() - BEGAN:6.1f} s  {name} is killed", flush=True)
        until(progress(machines), f"nothing goes on without {name}")
        print(f"{time.monotonic() - BEGAN:6.1f} s  all machines go on without it", flush=True)
        running[name].start()
        running[name].wait()
    return victims


def progress(machines: list[Machine]) -> Callable[[], bool]:
    """Whether something has been acknowledged to each of them since now."""
    before = [len(machine.acknowledged) for machine in machines]
    return lambda: all(len(one.acknowledged) > count for one, count in zip(machines, before, strict=True))


def until(condition: Callable[[], bool], why: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(why)
        time.sleep(0.02)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was started is ended
    sys.exit(main())
