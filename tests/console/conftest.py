"""A node with traffic, its console, and a real Chromium that looks at it."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import paho.mqtt.client as mqtt
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from processes import Process, needs, process
from tidegate.authentication.passwords import hash_password

HOSTILE = "<img src=x onerror=window.hit=1>\"'{s.user}{{7*7}}"
"""A name that would run, or mean something, wherever it is not taken as text."""
FILE = """
version: 1
node: {name: gym, data: data}
listeners: [{url: "mqtt://127.0.0.1:PORT", anonymous: true, scope: main}]
http: {url: "http://127.0.0.1:HTTP_PORT", address_rate: 1000, rate: 1000,
       roles: {admin: ["user:grace"], operator: ["user:otto"], auditor: ["user:olga"]}}
explain: true
record: traffic
directory:
  users:
    mary: {password: "HASH", roles: [frequenter]}
    carl: {password: "HASH", roles: [frequenter]}
    alice: {password: "HASH", roles: [coach]}
    bob: {password: "HASH", roles: [coach]}
    grace: {password: "HASH"}
    otto: {password: "HASH"}
    olga: {password: "HASH"}
  clients: {strap-3: {user: mary}, bike-2: {user: mary}}
policies:
  - {id: devices, subject: "role:frequenter", topic: "gym/{s.client}/#", action: write}
  - {id: coaches, subject: "role:coach", topic: "gym/#", action: read}
  - {id: watched, subject: "user:olga", topic: gym/+/heartbeats, action: read}
monitors:
  - {id: calm, scope: main, direction: im_pub, each: client, rate: 1000/s}
  - {id: start, scope: main, direction: im_pub, each: client, only: gym/+/start, after: [gym/+/ready], reset: gym/+/off}
scopes: {main: {}, brand: {}, remote: {}}
links: [{from: main, to: brand}, {from: brand, to: remote}]
flows: {forbid: ["client:strap-3 -> client:nobody"]}
"""
PASSWORD = "correct horse"
PATIENCE = 60.0  # seconds: a browser beside Spark on two cores is slow


class Device:
    """A client of somebody, with what it has received."""

    def __init__(self, port: int, client: str, user: str | None) -> None:
        self.received: list[tuple[str, bytes]] = []
        self.reasons: list[int] = []
        """What its publishes were answered with."""
        self._more = threading.Condition()
        self._up = threading.Event()
        self._subscribed = threading.Event()
        self.client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id=client, protocol=mqtt.MQTTv5)
        if user is not None:
            self.client.username_pw_set(user, PASSWORD)
        self.client.on_connect = lambda *_: self._up.set()
        self.client.on_subscribe = lambda *_: self._subscribed.set()
        self.client.on_publish = lambda _, __, ___, reason, ____: self.reasons.append(reason.value)
        self.client.on_message = self._took
        self.client.connect("127.0.0.1", port)
        self.client.loop_start()
        assert self._up.wait(PATIENCE)

    def _took(self, _: Any, __: Any, message: mqtt.MQTTMessage) -> None:
        with self._more:
            self.received.append((message.topic, message.payload))
            self._more.notify_all()

    def subscribe(self, filter: str) -> None:
        self._subscribed.clear()
        self.client.subscribe(filter, qos=1)
        assert self._subscribed.wait(PATIENCE)

    def publish(self, topic: str, payload: str, **options: Any) -> None:
        """Until it is acknowledged: it has been decided then."""
        self.client.publish(topic, payload, qos=1, **options).wait_for_publish(PATIENCE)

    def has(self, payload: str) -> bool:
        return any(each == payload.encode() for _, each in self.received)

    def wait_for(self, payload: str) -> None:
        with self._more:
            assert self._more.wait_for(lambda: self.has(payload), PATIENCE), self.received

    def end(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


class Gym:
    """The node, its clients, and where its console is."""

    def __init__(self, node: Process, hostile: bool = True) -> None:
        self.node = node
        self.port = node.ports["PORT"]
        self.url = f"http://127.0.0.1:{node.ports['HTTP_PORT']}"
        self.strap = Device(self.port, "strap-3", "mary")
        self.coaches = {name: Device(self.port, f"{name}-phone", name) for name in ("alice", "bob")}
        for each in self.coaches.values():
            each.subscribe("gym/#")
        self.hostile = Device(self.port, HOSTILE if hostile else "locker-3", None)
        if hostile:
            self.hostile.publish(f"evil/{HOSTILE}".replace("+", "").replace("#", ""), "<script>window.hit=1</script>")
            self.hostile.publish("gym/bike-2/power", "spoofed")
        self.strap.publish("gym/strap-3/heartbeats", json.dumps({"value": 71}), retain=True)
        self.coaches["alice"].wait_for(json.dumps({"value": 71}))

    @contextlib.contextmanager
    def signed_in(self, user: str) -> Iterator[httpx.Client]:
        """A browser without a screen."""
        with httpx.Client(base_url=self.url, timeout=PATIENCE, headers={"Origin": self.url}) as client:
            answer = client.post("/ui/login", data={"user": user, "password": PASSWORD})
            assert answer.status_code == 303, answer.text
            yield client

    def end(self) -> None:
        for each in (self.strap, self.hostile, *self.coaches.values()):
            each.end()


@pytest.fixture(scope="module")
def gym(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gym]:
    folder = tmp_path_factory.mktemp("console")
    with process(folder, FILE.replace("HASH", hash_password(PASSWORD.encode()))) as node:
        made = Gym(node)
        try:
            yield made
        finally:
            made.end()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    needs("chromium")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        yield running
        running.close()


class Looking:
    """A window of somebody who has signed in; at its end nothing may have gone wrong in it."""

    def __init__(self, gym: Gym, page: Page) -> None:
        self.gym = gym
        self.page = page
        self.wrong: list[str] = []
        page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        page.on("console", lambda said: self.wrong.append(said.text) if said.type == "error" else None)
        page.on("dialog", lambda dialog: dialog.accept())

    def sign_in(self, user: str) -> None:
        self.page.goto(f"{self.gym.url}/ui/")
        self.page.get_by_label("Name").fill(user)
        self.page.get_by_label("Password").fill(PASSWORD)
        self.page.get_by_role("button", name="Sign in").click()
        self.page.wait_for_url("**/ui/*")

    def go(self, path: str) -> None:
        answer = self.page.goto(f"{self.gym.url}{path}")
        assert answer is not None
        assert answer.status == 200, f"{path}: {answer.status}"


@contextlib.contextmanager
def looking(gym: Gym, browser: Browser, user: str, **options: Any) -> Iterator[Looking]:
    context: BrowserContext = browser.new_context(**options)
    context.set_default_timeout(PATIENCE * 1000)
    try:
        window = Looking(gym, context.new_page())
        window.sign_in(user)
        yield window
        assert window.wrong == []
    finally:
        context.close()
