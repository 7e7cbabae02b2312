"""Plays a scenario: a node as a process of its own, clients over real sockets, and a table of who received what.

The `run.py` of an example says who does what, and what should come of it. Nothing here waits for luck: a publish is
over when the node has answered it, and a client that has had an answer since then has received all that was meant for
it. What is made stays in the example's `var/`.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, Queue
from typing import Any

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from tidegate.config import load_or_minimal
from tidegate.net import control_socket as control

HOST = "127.0.0.1"
ALL, NOTHING = "all", "·"
PATIENCE = 60.0  # seconds before a player gives up; never a measure of anything
REFUSED = 0x87
_TIDEGATE = str(Path(sys.executable).with_name("tidegate"))


class Trouble(Exception):
    """The scenario cannot go on."""


class TurnedAway(Trouble):
    """Somebody may not connect."""

    def __init__(self, name: str, code: int) -> None:
        super().__init__(f"{name} may not connect: 0x{code:02X}")
        self.code = code


# -- the node ------------------------------------------------------------------------------------------------------


def tidegate(*words: str, **surroundings: str) -> str:
    """One command, to its end; what it prints."""
    environment = {**os.environ, **surroundings}
    done = subprocess.run([_TIDEGATE, *words], check=False, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise Trouble(f"tidegate {' '.join(words)}: {done.stderr or done.stdout}")
    return done.stdout


def certificates(folder: Path, *people: str) -> None:
    """An authority, a certificate for the node, and one for each of these people."""
    tidegate("cert", "ca", "--force", "-f", str(folder))
    tidegate("cert", "issue", "broker", "--host", "localhost", "--host", HOST, "--force", "-f", str(folder))
    for name in people:
        tidegate("cert", "issue", name, "--client", "--force", "-f", str(folder))


def node_certificates(folder: Path, *nodes: str) -> None:
    """An authority, and a certificate for each of these nodes, with which it connects and is connected to."""
    tidegate("cert", "ca", "--force", "-f", str(folder))
    for name in nodes:
        tidegate("cert", "issue", name, "--host", HOST, "--client", "--force", "-f", str(folder))


@contextlib.contextmanager
def node(config: Path) -> Iterator[None]:
    """`tidegate run -c FILE`, from when it accepts connections to the end of the block."""
    log = _var(config) / f"{config.stem}.log"
    with log.open("wb") as stream:
        running = subprocess.Popen(
            [_TIDEGATE, "run", "-c", str(config)], stdout=stream, stderr=stream, env={**os.environ, **_runtime(config)}
        )
    try:
        deadline = time.monotonic() + PATIENCE
        while '"event": "ready"' not in log.read_text():
            if running.poll() is not None or time.monotonic() > deadline:
                raise Trouble(f"the node did not start:\n{log.read_text()}")
            time.sleep(0.02)
        yield
    finally:
        running.terminate()
        try:
            code = running.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            running.kill()
            code = running.wait()
    if code:
        raise Trouble(f"the node ended with exit code {code}:\n{log.read_text()}")


@contextlib.contextmanager
def mosquitto(config: Path) -> Iterator[None]:
    """Debian's Mosquitto with this configuration, from when it listens to the end of the block."""
    program = shutil.which("mosquitto", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        raise Trouble("mosquitto is not installed")
    port = next(int(line.split()[1]) for line in config.read_text().splitlines() if line.startswith("listener "))
    log = _var(config) / f"{config.stem}-mosquitto.log"
    with log.open("wb") as stream:
        running = subprocess.Popen([program, "-c", str(config)], stdout=stream, stderr=stream)
    try:
        deadline = time.monotonic() + PATIENCE
        while True:
            if running.poll() is not None or time.monotonic() > deadline:
                raise Trouble(f"Mosquitto did not start:\n{log.read_text()}")
            with contextlib.suppress(OSError):
                socket.create_connection((HOST, port), timeout=PATIENCE).close()
                break
            time.sleep(0.02)
        yield
    finally:
        running.terminate()
        running.wait(PATIENCE)


def copy(config: Path) -> Path:
    """A copy in `var/`, to be changed while the node runs; without its tests, which are about the file as it is.

    Only for files that name no other files.
    """
    made = _var(config) / config.name
    made.write_text(config.read_text().partition("\ntests:")[0])
    return made


def change(config: Path, *changes: tuple[str, str]) -> None:
    """Edits the file and makes the running node read it again."""
    text = config.read_text()
    for old, new in changes:
        if old not in text:
            raise Trouble(f"{config}: there is no {old!r} to change")
        text = text.replace(old, new)
    config.write_text(text)
    tidegate("reload", "-c", str(config), **_runtime(config))


def reset(config: Path, id: str) -> None:
    """Puts a monitor of the running node back to its start."""
    tidegate("monitor", "reset", id, "-c", str(config), **_runtime(config))


def monitor_state(config: Path, id: str) -> Any:
    """What `tidegate monitor state` shows, without starting a program each time; of a monitor that has one state."""
    path = load_or_minimal(config).control_socket
    (state,) = control.ask(path, "monitor_state", id=id)["states"]
    return state["state"]


def ask(config: Path, what: str) -> Any:
    """What a running node answers on its control socket."""
    return control.ask(load_or_minimal(config).control_socket, what)


def until_linked(config: Path, *links: str) -> None:
    """Waits until these links of a node to others are up, and nothing waits for them any more."""
    path, deadline = load_or_minimal(config).control_socket, time.monotonic() + PATIENCE
    for link in links:
        while (shown := control.ask(path, "link_show", link=link))["state"] != "connected" or shown["queue"]:
            if time.monotonic() > deadline:
                raise Trouble(f"{link}: {shown['error'] or shown}")
            time.sleep(0.02)


def link(config: Path, name: str) -> dict[str, Any]:
    """What `tidegate link show` says, without starting a program each time."""
    shown: dict[str, Any] = control.ask(load_or_minimal(config).control_socket, "link_show", link=name)
    return shown


def set_default(config: Path, name: str, address: str) -> None:
    """Another default connection of a link."""
    tidegate("link", "set-default", name, address, "-c", str(config), **_runtime(config))


def denials(config: Path) -> list[dict[str, Any]]:
    """What the audit of the running node says was denied, in order."""
    printed = tidegate("audit", "--kind", "deny", "--json", "-c", str(config), **_runtime(config))
    return [json.loads(line) for line in printed.splitlines()]


def _var(config: Path) -> Path:
    folder = config.parent if config.parent.name == "var" else config.parent / "var"
    folder.mkdir(exist_ok=True)
    return folder


def _runtime(config: Path) -> dict[str, str]:
    """Where a node without a data folder has its control socket."""
    return {"XDG_RUNTIME_DIR": str(_var(config).resolve())}


# -- the players -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """A message as it came."""

    topic: str
    payload: bytes
    properties: tuple[tuple[str, str], ...] = ()
    """Its user properties; MQTT 3.1.1 has none."""


class Player:
    """A client. `says` are user properties of its CONNECT; only MQTT 5 has those."""

    def __init__(
        self,
        name: str,
        *,
        port: int,
        password: str | None = None,
        client: str | None = None,
        certs: Path | None = None,
        certificate: str | None = None,
        v5: bool = True,
        says: Mapping[str, str] | None = None,
        keep: bool = False,
    ) -> None:
        """`keep`: what comes while it is away waits for it."""
        self.name = name
        self._v5 = v5
        self._answers: Queue[int] = Queue()
        self._inbox: Queue[Received] = Queue()
        self.held = False  # whether the node said so of its last subscription
        self._mqtt = mqtt.Client(
            CallbackAPIVersion.VERSION2,
            client_id=client or name,
            protocol=mqtt.MQTTv5 if v5 else mqtt.MQTTv311,
            reconnect_on_failure=False,
        )
        if password is not None:
            self._mqtt.username_pw_set(name, password)
        if certs is not None:
            context = ssl.create_default_context(cafile=certs / "ca.pem")
            if certificate is not None:
                context.load_cert_chain(certs / f"{certificate}.pem", certs / f"{certificate}.key")
            self._mqtt.tls_set_context(context)
        self._mqtt.on_connect = lambda _c, _u, _f, reason, _p: self._answers.put(reason.value)
        self._mqtt.on_subscribe = self._subscribed
        self._mqtt.on_unsubscribe = lambda _c, _u, _m, _r, _p: self._answers.put(0)
        self._mqtt.on_publish = lambda _c, _u, _m, reason, _p: self._answers.put(reason.value)
        self._mqtt.on_message = self._take
        about = self._properties(PacketTypes.CONNECT, says)
        if keep:
            about = about or Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
            about.SessionExpiryInterval = 3600
        fresh = False if keep else mqtt.MQTT_CLEAN_START_FIRST_ONLY
        self._mqtt.connect(HOST, port, clean_start=fresh, properties=about)
        self._mqtt.loop_start()
        if code := self._answer("the connection"):
            self._mqtt.loop_stop()
            raise TurnedAway(name, code)

    def subscribe(self, filter: str, says: Mapping[str, str] | None = None) -> int:
        """The reason code of the answer; 0x80 and more refuse."""
        self._mqtt.subscribe(filter, qos=1, properties=self._properties(PacketTypes.SUBSCRIBE, says))
        return self._answer(f"the subscription to {filter}")

    def publish(
        self, topic: str, payload: bytes, says: Mapping[str, str] | None = None, *, retain: bool = False
    ) -> int:
        """The reason code of the answer; MQTT 3.1.1 cannot refuse."""
        about = self._properties(PacketTypes.PUBLISH, says)
        self._mqtt.publish(topic, payload, qos=1, retain=retain, properties=about)
        return self._answer(f"the publish to {topic}")

    def next(self) -> Received:
        """The next message, as soon as it comes."""
        try:
            return self._inbox.get(timeout=PATIENCE)
        except Empty:
            raise Trouble(f"{self.name}: no message came") from None

    def received(self) -> list[Received]:
        """What came since the last time. The answer to an empty request is behind it on the wire."""
        self._mqtt.unsubscribe("nothing/of/the/kind")
        self._answer("a round trip")
        found: list[Received] = []
        with contextlib.suppress(Empty):
            while True:
                found.append(self._inbox.get_nowait())
        return found

    def leave(self) -> None:
        self._mqtt.disconnect()
        self._mqtt.loop_stop()

    def _subscribed(
        self, _client: object, _userdata: object, _id: int, reasons: Sequence[ReasonCode], about: Properties | None
    ) -> None:
        self.held = any(name == "held" for name, _ in getattr(about, "UserProperty", ()))
        self._answers.put(reasons[0].value)

    def _take(self, _client: object, _userdata: object, message: mqtt.MQTTMessage) -> None:
        pairs = getattr(message.properties, "UserProperty", ()) if message.properties is not None else ()
        self._inbox.put(Received(topic=message.topic, payload=bytes(message.payload), properties=tuple(pairs)))

    def _properties(self, packet: int, says: Mapping[str, str] | None) -> Properties | None:
        if not says:
            return None
        assert self._v5, "MQTT 3.1.1 has no user properties"
        made = Properties(packet)  # type: ignore[no-untyped-call]
        for pair in says.items():
            made.UserProperty = pair
        return made

    def _answer(self, what: str) -> int:
        try:
            return self._answers.get(timeout=PATIENCE)
        except Empty:
            raise Trouble(f"{self.name}: no answer to {what}") from None


@contextlib.contextmanager
def players(*made: Player) -> Iterator[None]:
    """Everybody leaves at the end of the block."""
    try:
        yield
    finally:
        for one in made:
            one.leave()


# -- the table -------------------------------------------------------------------------------------------------------


def parts(message: Received, sent: bytes) -> str:
    """What of the content came: all of it, or the names of its parts."""
    if message.payload == sent:
        return ALL
    whole: dict[str, Any] = json.loads(sent)
    came: dict[str, Any] = json.loads(message.payload)
    changed = [name for name, value in came.items() if whole.get(name) != value]
    return "changed!" if changed else ALL if came == whole else ", ".join(came)


@dataclass(slots=True)
class Play:
    """What happened and whether it should have."""

    wrong: int = 0
    begun: bool = False

    def heading(self, text: str) -> None:
        print(f"\n{text}" if self.begun else text)
        self.begun = True

    def expect(self, what: str, came: object, expected: object) -> None:
        """A line of its own, for what does not fit into a table."""
        right = came == expected
        self.wrong += not right
        print(f"  {what}: {came}" + ("" if right else f"   WRONG: expected {expected}"))

    def subscribes(
        self, who: Player, filter: str, says: Mapping[str, str] | None = None, *, granted: bool = True
    ) -> None:
        code = who.subscribe(filter, says)
        about = "".join(f" {name}={value}" for name, value in (says or {}).items())
        words = {True: "granted", False: f"refused (0x{REFUSED:02X})"}
        came = words[True] if code < 0x80 else f"refused (0x{code:02X})"
        self.expect(f"{who.name} subscribes to {filter}{about}", came, words[granted])

    def scene(self, title: str, *receivers: Player, describe: Callable[[Received, bytes], str] = parts) -> Scene:
        self.heading(title)
        return Scene(self, receivers, describe)

    def over(self) -> int:
        """The exit code."""
        self.heading(f"{self.wrong} came out WRONG." if self.wrong else "Everything came out as it should.")
        return 1 if self.wrong else 0


@dataclass(slots=True)
class Scene:
    """Some messages, and what each receiver gets of them."""

    play: Play
    receivers: Sequence[Player]
    describe: Callable[[Received, bytes], str]
    rows: list[tuple[str, ...]] = field(default_factory=list)
    crossing: list[tuple[str, str, str, bytes, Mapping[str, str]]] = field(default_factory=list)

    def publishes(
        self,
        who: Player,
        topic: str,
        content: object,
        gets: Mapping[str, str],
        *,
        says: Mapping[str, str] | None = None,
        called: str | None = None,
        refused: bool = False,
    ) -> None:
        """One row. `gets` is what each receiver should get; whoever is not in it should get nothing."""
        assert gets.keys() <= {one.name for one in self.receivers}, gets
        payload = content.encode() if isinstance(content, str) else json.dumps(content).encode()
        code = who.publish(topic, payload, says)
        came = [
            " and ".join(self.describe(message, payload) for message in one.received()) or NOTHING
            for one in self.receivers
        ]
        should = [gets.get(one.name, NOTHING) for one in self.receivers]
        answer = f"0x{code:02X}" if code >= 0x80 else "ok"
        right = came == should and answer == (f"0x{REFUSED:02X}" if refused else "ok")
        self.play.wrong += not right
        mark = "✓" if right else f"WRONG: expected {' | '.join(should)}"
        self.rows.append((who.name, called or topic, answer, *came, mark))

    def crosses(self, who: Player, topic: str, content: object, gets: Mapping[str, str]) -> None:
        """One row of a scene over several nodes, each with a content of its own; see `arrived`."""
        payload = json.dumps(content).encode()
        code = who.publish(topic, payload)
        self.crossing.append((who.name, topic, f"0x{code:02X}" if code >= 0x80 else "ok", payload, gets))

    def arrived(self) -> None:
        """The end of it. Every receiver gets the last message, which nothing that was published before comes after."""
        last = self.crossing[-1][3]
        came: list[dict[bytes, str]] = []
        for one in self.receivers:
            came.append({})
            while last not in came[-1]:
                message = one.next()
                came[-1][message.payload] = self.describe(message, message.payload)
        for name, topic, answer, payload, gets in self.crossing:
            cells = [each.get(payload, NOTHING) for each in came]
            should = [gets.get(one.name, NOTHING) for one in self.receivers]
            self.play.wrong += cells != should
            mark = "✓" if cells == should else f"WRONG: expected {' | '.join(should)}"
            self.rows.append((name, topic, answer, *cells, mark))
        self.crossing.clear()
        self.show()

    def show(self) -> None:
        head = ("published by", "what", "answer", *(one.name for one in self.receivers), "")
        table = [head, *self.rows]
        widths = [max(len(row[column]) for row in table) for column in range(len(head))]
        for row in table:
            print("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        self.rows.clear()


def perform(play: Callable[[], int]) -> None:
    """Runs it; trouble is told without a traceback. Asked to end (SIGTERM), it first ends what it has started."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))
    try:
        sys.exit(play())
    except (Trouble, OSError) as trouble:
        sys.exit(f"{trouble}")
