"""Two guards in front of a cluster of three NATS servers, with HAProxy before both and PostgreSQL beside the guards.

    DATABASE=postgresql://USER:PASSWORD@HOST/DATABASE python examples/cluster/run.py [--kills 2] [--seed 1]

While two machines publish with QoS 1 and two screens listen, a guard is killed with `kill -9`, then a server, then the
other guard, and so on; each is started again. At the end every message that was acknowledged has to have come to both
screens. Exit code 0: it has. `--bare` leaves the guards out, for comparison: clients come to the servers, a client's
connections are cut where a guard would be killed. `PORTS` may give other ports, thirteen of them, and `FOLDER` another
place for what is written.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
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
from collections import Counter, deque
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
NAMES += ("HEALTH_1", "HEALTH_2", "HEALTH_3")
PORTS = dict(zip(NAMES, os.environ.get("PORTS", ",".join(str(18830 + n) for n in range(13))).split(","), strict=True))
BEGAN = time.monotonic()
BOUND = ("setpriv", "--pdeathsig", "KILL")  # whatever happens to this process, none of its children keeps a port
PATIENCE = 120.0  # seconds before it gives up; never a measure of anything
LAST = 60.0  # seconds for what is still to come; NATS sends again after two (`ack_wait`)
PACE = 0.005  # seconds between two messages of a machine
SILENCE = 5.0  # seconds without PUBACK after which a machine connects again: a server forgets some while it elects
UNDER_WAY = 20  # messages of a machine that are not acknowledged


class Stalled(Exception):
    """Something that should go on does not."""


class Part:
    """A process of the cluster."""

    def __init__(self, name: str, command: list[str], port: str, environment: Mapping[str, str]) -> None:
        self.name = name
        self.command = command
        self.port = int(port)
        self.health = environment.get("HEALTH_PORT")
        self.environment = {**os.environ, **PORTS, "FOLDER": str(FOLDER), **environment}
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with (FOLDER / f"{self.name}.log").open("ab") as log:
            self.process = subprocess.Popen([*BOUND, *self.command], env=self.environment, stdout=log, stderr=log)

    def wait(self) -> None:
        """Until it listens, and a server of NATS has caught up with the others and knows their leader."""
        deadline = time.monotonic() + PATIENCE
        while True:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE).close()
                if self.health is None or caught_up(self.name, self.health):
                    return
            assert self.process is not None
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise Stalled(f"{self.name} does not come back")
            time.sleep(0.05)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()


def caught_up(server: str, port: str) -> bool:
    """Whether a server of NATS knows who leads each stream, and those that it leads are whole at the others.

    `/healthz` alone is not it: NATS 2.9.10 goes on about consumers that are gone.
    """
    if asked(port, "/healthz?js-server-only=true") is None:
        return False
    accounts = (asked(port, "/jsz?accounts=1&streams=1") or {}).get("account_details", ())
    clusters = [stream["cluster"] for account in accounts for stream in account.get("stream_detail", ())]
    return all(
        cluster.get("leader")
        and (cluster["leader"] != server or all(one["current"] for one in cluster.get("replicas", ())))
        for cluster in clusters
    )


def asked(port: str, path: str) -> Any:
    """What a server's monitoring port answers; None: nothing, or that it is not well."""
    connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=PATIENCE)
    with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
        connection.request("GET", path)
        answer = connection.getresponse()
        if answer.status == http.HTTPStatus.OK:
            return json.loads(answer.read())
    return None


def taken() -> list[str]:
    """The ports that somebody else has."""
    busy = []
    for port in PORTS.values():
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", int(port)), timeout=PATIENCE).close()
            busy.append(port)
    return busy


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
                "HEALTH_PORT": PORTS[f"HEALTH_{number}"],
                "STORE": str(FOLDER / f"nats-{number}"),
            },
        )
    made["haproxy"] = Part("haproxy", [program("haproxy"), "-f", str(HERE / "haproxy.cfg")], PORTS["ENTRY"], {})
    secret = secrets.token_hex(32)
    for letter in "ab":
        port = PORTS[f"GUARD_{letter.upper()}"]
        words = [program("tidegate"), "run", "-c", str(HERE / "guard.yaml")]
        broker = os.environ.get("BEHIND", PORTS["BROKER"])  # somebody may look at what passes
        known = {"NAME": f"guard-{letter}", "PORT": port, "SECRET": secret, "BROKER": broker}
        made[f"guard-{letter}"] = Part(f"guard-{letter}", words, port, known)
    return made


class Client:
    """A client with a session that lasts, which reconnects by itself."""

    def __init__(self, name: str, user: str, version: int) -> None:
        self.name = name
        self.seen: Counter[str] = Counter()
        self.sessions_lost = 0
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
        self.paho.on_message = lambda client, data, message: self.seen.update((message.payload.decode(),))
        self.paho.on_subscribe = lambda *_: self.subscribed.set()
        self._terms: dict[str, Any] = {}
        if version == mqtt.MQTTv5:
            properties = Properties(PacketTypes.CONNECT)
            properties.SessionExpiryInterval = 3600
            self._terms = {"clean_start": False, "properties": properties}

    def start(self, port: str) -> None:
        self.paho.connect_async("127.0.0.1", int(port), keepalive=10, **self._terms)
        self.paho.loop_start()

    def _connected(self, client: mqtt.Client, data: Any, flags: Any, reason: Any, properties: Any) -> None:
        if not reason.is_failure:
            self.connections += 1
            self.sessions_lost += self.subscribed.is_set() and not flags.session_present
            if self.name.startswith("screen") and not self.subscribed.is_set():
                client.subscribe("machine/#", qos=1)

    def cut(self) -> None:
        """Ends the connection, if there is one; it comes again by itself."""
        if (connection := self.paho.socket()) is not None:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)  # type: ignore[union-attr]

    def stop(self) -> None:
        """Its threads end with the process: one may be waiting for a server that is no more."""
        self.paho.disconnect()


class Machine(Client):
    """Publishes until it is told to stop."""

    def __init__(self, name: str, version: int) -> None:
        super().__init__(name, name, version)
        self.acknowledged: set[str] = set()
        self.sent = 0
        self._open: dict[int, str] = {}
        self._answers: deque[tuple[int, bool]] = deque()
        self._going = threading.Event()
        self.paho.on_publish = self._published
        self._thread = threading.Thread(target=self._publish, daemon=True)

    def begin(self) -> None:
        self._going.set()
        self._thread.start()

    def _publish(self) -> None:
        known, since = -1, time.monotonic()
        while self._going.is_set() or not self.settled:
            self._settle()
            if len(self.acknowledged) != known:
                known, since = len(self.acknowledged), time.monotonic()
            elif time.monotonic() > since + SILENCE:
                self.cut()
                since = time.monotonic()
            if self._going.is_set() and len(self._open) < UNDER_WAY:
                payload = f"{self.name}/{self.sent}."
                self._open[self.paho.publish(f"machine/{self.name}/count", payload, qos=1).mid] = payload
                self.sent += 1
            time.sleep(PACE)

    def _published(self, client: mqtt.Client, data: Any, mid: int, reason: Any, properties: Any) -> None:
        """Only notes it: paho holds a lock here that `publish` takes, and the identifier may not be noted yet."""
        self._answers.append((mid, reason is None or not reason.is_failure))

    def _settle(self) -> None:
        while self._answers:
            mid, taken = self._answers.popleft()
            payload = self._open.pop(mid, None)
            if payload is not None and taken:
                self.acknowledged.add(payload)

    def end(self) -> None:
        self._going.clear()

    @property
    def settled(self) -> bool:
        return not self._open


def main() -> int:
    words = argparse.ArgumentParser()
    words.add_argument("--kills", type=int, default=2)
    words.add_argument("--messages", type=int, default=0, help="of each machine, at least")
    words.add_argument("--seed", type=int, default=1)
    words.add_argument("--report", type=Path)
    words.add_argument("--bare", action="store_true", help="without guards, for comparison")
    said = words.parse_args()
    if "DATABASE" not in os.environ and not said.bare:
        raise SystemExit(
            "DATABASE is missing: the address of a PostgreSQL database, postgresql://USER:PASSWORD@HOST/NAME"
        )
    if busy := taken():
        raise SystemExit(f"somebody listens on {', '.join(busy)}: give other PORTS")
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    key = FOLDER / "master.key"
    key.write_text(
        subprocess.run([program("tidegate"), "key", "master"], check=True, stdout=subprocess.PIPE, text=True).stdout
    )
    key.chmod(0o600)
    running = {name: part for name, part in parts().items() if not (said.bare and name.startswith("guard"))}
    newer = mqtt.MQTTv311 if said.bare else mqtt.MQTTv5  # NATS has no MQTT 5
    machines = [Machine("press", mqtt.MQTTv311), Machine("oven", newer)]
    screens = [Client("screen-1", "screen", mqtt.MQTTv311), Client("screen-2", "screen", newer)]
    victims: list[str] = []
    stalled: str | None = None
    try:
        for part in running.values():
            part.start()
        for part in running.values():
            part.wait()
        for client in (*screens, *machines):
            client.start(PORTS["BROKER" if said.bare else "ENTRY"])
        until(lambda: all(screen.subscribed.is_set() for screen in screens), "nobody could subscribe")
        print(f"{time.monotonic() - BEGAN:6.1f} s  everybody is there", flush=True)
        for machine in machines:
            machine.begin()
        try:
            play(running, machines, screens, random.Random(said.seed), said.kills, victims)
            until(lambda: all(len(machine.acknowledged) >= said.messages for machine in machines), "they do not get on")
            for machine in machines:
                machine.end()
            until(lambda: all(machine.settled for machine in machines), "not everything was acknowledged")
        except Stalled as error:  # what has been acknowledged is counted all the same
            stalled = str(error)
        acknowledged = set().union(*(machine.acknowledged for machine in machines))
        with contextlib.suppress(Stalled):
            until(lambda: all(acknowledged <= screen.seen.keys() for screen in screens), "", LAST)
            print(f"{time.monotonic() - BEGAN:6.1f} s  all of it has come", flush=True)
    finally:
        for part in running.values():
            part.kill()
        for client in (*screens, *machines):
            client.stop()
    lost = sorted(f"{payload} to {one.name}" for one in screens for payload in acknowledged - one.seen.keys())
    found = {
        "seed": said.seed,
        "killed": victims,
        "connections of clients": sum(client.connections for client in (*screens, *machines)),
        "published": sum(machine.sent for machine in machines),
        "acknowledged": len(acknowledged),
        "repeated": sum(one.seen.total() - len(one.seen) for one in screens),
        "sessions lost": sum(one.sessions_lost for one in screens),
        "stalled": stalled,
        "lost": lost,
    }
    if said.report is not None:
        said.report.write_text(json.dumps(found))
    print(f"killed: {', '.join(victims)}")
    print(f"{found['published']} published, {len(acknowledged)} acknowledged, {len(lost)} lost")
    print("✓ nothing that was acknowledged is lost" if not lost else f"✗ lost: {lost[:10]}")
    if stalled:
        print(f"✗ {stalled}")
    return bool(lost or stalled)


def play(
    running: dict[str, Part],
    machines: list[Machine],
    screens: list[Client],
    rng: random.Random,
    kills: int,
    victims: list[str],
) -> None:
    """Kills one after the other while the machines go on: a guard, a server, the other guard, …

    All servers know their leader and have caught up before the next one is killed: three carry the loss of one.
    """
    for number in range(kills):
        until(progress(machines), "the machines do not get on")
        time.sleep(rng.uniform(0.05, 0.5))  # the random moment, not a wait for anything
        name = f"guard-{'ab'[number // 2 % 2]}" if number % 2 == 0 else f"nats-{rng.randint(1, 3)}"
        victim = running.get(name)  # None: there are no guards, and half of the clients are cut off
        if victim is not None:
            victim.kill()
        else:
            for client in (machines[number // 2 % 2], screens[number // 2 % 2]):
                client.cut()
        victims.append(name)
        print(f"{time.monotonic() - BEGAN:6.1f} s  {name} is killed", flush=True)
        until(progress(machines), f"nothing goes on without {name}")
        print(f"{time.monotonic() - BEGAN:6.1f} s  all machines go on without it", flush=True)
        if victim is not None:
            victim.start()
        for part in running.values():
            part.wait()


def progress(machines: list[Machine]) -> Callable[[], bool]:
    """Whether something has been acknowledged to each of them since now."""
    before = [len(machine.acknowledged) for machine in machines]
    return lambda: all(len(one.acknowledged) > count for one, count in zip(machines, before, strict=True))


def until(condition: Callable[[], bool], why: str, patience: float = PATIENCE) -> None:
    deadline = time.monotonic() + patience
    while not condition():
        if time.monotonic() > deadline:
            raise Stalled(why)
        time.sleep(0.02)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was started is ended
    sys.exit(main())
