"""AUPS, section 4: the PUB and REC transactions (figures 4 and 5), through real MQTT clients and real HTTP.

Users register over HTTP and say their public key, which stands for the key that AUPS agrees with them then. Sources and
users are aiomqtt and paho; nothing of the node's own client is used.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import queue
import secrets
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiomqtt
import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from api.real import Administrator, administering
from harness import PATIENCE
from keys.making import entropy
from processes import until
from tidegate.errors import KeysError
from tidegate.keys import Kem, Keychain, PrivateKey, ReadKey, key_id, open_message, read_key
from tidegate.keyservice.control_commands import ListKeys

TEMPERATURE, HUMIDITY = "campodenno/sensor1/temperature", "campodenno/sensor2/humidity"
DATA = b'{"value": 21.5, "unit": "C"}'
FILE = """
version: 1
node: {name: test, data: data}
listeners: [{url: "mqtt://127.0.0.1:PORT"}]
store: sqlite
sys: {interval: 0s}
explain: true
keys: {protect: ["campodenno/#"], ROTATION}
directory: {users: {nos: {password: "plain:nos", roles: [middleware]}}}
policies:
  - {id: station, subject: "role:middleware", topic: "campodenno/#", action: write}
  - {id: temperature, subject: "group:climate", topic: "campodenno/+/temperature", action: read}
  - {id: humidity, subject: ["group:climate", "group:rain"], topic: "campodenno/+/humidity", action: read}
"""


class Person:
    """A registered user or application, with a device that keeps its keys."""

    def __init__(self, station: Station, name: str, made: dict[str, Any], private: PrivateKey) -> None:
        self.station = station
        self.name = name
        self.password: str = made["password"]
        self.token: str = made["token"]
        self.private = private
        self.keys = Keychain()
        self.asked = 0

    async def over_http(self, id: str) -> ReadKey:
        """REC 1(b), asked over HTTP; KeysError with the rule if it is denied."""
        self.asked += 1
        request = secrets.token_urlsafe(16)
        answer = await self.station.admin.ask("GET", f"/keys/{id}", self.token, params={"request": request})
        if answer.status_code != 200:
            raise KeysError(f"{answer.status_code} {answer.json().get('rule')}")
        return self.taken(answer.content, request)

    async def over_mqtt(self, client: aiomqtt.Client, id: str) -> ReadKey:
        """The same over MQTT; the answers are subscribed to."""
        self.asked += 1
        request = secrets.token_urlsafe(16)
        await client.publish("$tidegate/keys/get", json.dumps({"keyId": id, "request": request}), qos=1)
        async with asyncio.timeout(PATIENCE):
            async for message in client.messages:
                if message.topic.value == "$tidegate/keys/answer":
                    payload = message.payload
                    assert isinstance(payload, bytes)
                    said = json.loads(payload)
                    if "error" in said:
                        raise KeysError(f"{said['problem']} {said['rule']}")
                    return self.taken(payload, request)
        raise AssertionError("no answer")

    def taken(self, answer: bytes, request: str) -> ReadKey:
        key = read_key(answer, self.private.text(), reader=f"user:{self.name}", request=request)
        self.keys.put(key, now=time.monotonic())
        return key

    def opened(self, payload: bytes, topic: str) -> bytes | None:
        """REC 2, with the keys that the device has; None if it has none for it."""
        try:
            return open_message(payload, topic, self.keys, now=time.monotonic())
        except KeysError:
            return None

    def client(self) -> aiomqtt.Client:
        return self.station.client(self.name, self.password)


class Station:
    """The middleware and those who use it."""

    def __init__(self, admin: Administrator) -> None:
        self.admin = admin

    def client(self, user: str, password: str) -> aiomqtt.Client:
        return aiomqtt.Client(
            "127.0.0.1",
            self.admin.served.port,
            username=user,
            password=password,
            identifier=f"{user}-device",
            protocol=aiomqtt.ProtocolVersion.V5,
            timeout=PATIENCE,
        )

    async def register(self, name: str, *groups: str, kem: Kem = Kem.X25519) -> Person:
        private = PrivateKey.generate(entropy(name), kem)
        body = {"name": name, "groups": list(groups), "public_key": str(private.public)}
        return Person(self, name, await self.admin.make("/users", body), private)

    async def publish(self, topic: str = TEMPERATURE, data: bytes = DATA) -> None:
        """PUB 1 to 7."""
        async with self.client("nos", "nos") as nos:
            await nos.publish(topic, data, qos=1)


async def received(client: aiomqtt.Client) -> bytes:
    """The next message that is no answer."""
    async with asyncio.timeout(PATIENCE):
        async for message in client.messages:
            if message.topic.value != "$tidegate/keys/answer":
                assert isinstance(message.payload, bytes)
                return message.payload
    raise AssertionError("no message")


@contextlib.asynccontextmanager
async def station(folder: Path, rotation: str = "rotate: 5m") -> AsyncIterator[Station]:
    async with administering(folder, FILE.replace("ROTATION", rotation)) as admin:
        yield Station(admin)


@contextlib.asynccontextmanager
async def listening(person: Person, *filters: str) -> AsyncIterator[aiomqtt.Client]:
    async with person.client() as client:
        for filter in ("$tidegate/keys/answer", *(filters or ("campodenno/#",))):
            await client.subscribe(filter, qos=1)
        yield client


# -- figures 4 and 5 ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kem", list(Kem))
@pytest.mark.parametrize("way", ["http", "mqtt"])
async def test_aups_figures_4_and_5(tmp_path: Path, kem: Kem, way: str) -> None:
    async with station(tmp_path) as here:
        former = await here.register("former", "climate", kem=kem)
        async with listening(former) as device:
            await here.publish()
            payload = await received(device)
            # (2): the message has just this form
            assert list(json.loads(payload)) == ["keyId", "data"]
            assert b"21.5" not in payload
            # REC 1(b): it owns no valid key yet
            assert former.opened(payload, TEMPERATURE) is None
            id = key_id(payload)
            assert id is not None
            key = await (former.over_http(id) if way == "http" else former.over_mqtt(device, id))
            assert key.id == id
            assert key.seconds > 3600
            assert former.opened(payload, TEMPERATURE) == DATA
            # REC 1(a): with a valid key it asks nobody
            for number in range(5):
                await here.publish(data=b"%d" % number)
                assert former.opened(await received(device), TEMPERATURE) == b"%d" % number
            assert former.asked == 1


async def test_aups_figure_5_the_negative_answer_names_the_rule(tmp_path: Path) -> None:
    """REC 1(b)(iii)(B): the latter may read humidity only, and has come by a message about temperature."""
    async with station(tmp_path) as here:
        former, latter = await here.register("former", "climate"), await here.register("latter", "rain")
        async with listening(former) as device, listening(latter, "campodenno/#") as other:
            await here.publish(TEMPERATURE)
            stolen = await received(device)
            id = key_id(stolen)
            assert id is not None
            with pytest.raises(KeysError, match="403 default"):
                await latter.over_http(id)
            with pytest.raises(KeysError, match="denied default"):
                await latter.over_mqtt(other, id)
            await here.publish(HUMIDITY)
            allowed = await received(other)
            assert key_id(allowed) != id, "other attributes, another key"
            await latter.over_http(key_id(allowed) or "")
            assert latter.opened(allowed, HUMIDITY) == DATA
            assert latter.opened(stolen, TEMPERATURE) is None


async def test_aups_figure_4_step_4_the_same_attributes_have_one_key(tmp_path: Path) -> None:
    async with station(tmp_path) as here:
        former = await here.register("former", "climate")
        async with listening(former) as device:
            topics = (TEMPERATURE, HUMIDITY, "campodenno/sensor9/temperature", HUMIDITY)
            ids = []
            for topic in topics:
                await here.publish(topic)
                ids.append(key_id(await received(device)))
            assert ids[0] == ids[2] != ids[1] == ids[3]


def test_aups_with_paho(tmp_path: Path) -> None:
    """A plain paho user needs two functions."""

    async def run() -> None:
        async with station(tmp_path) as here:
            former = await here.register("former", "climate")
            device, messages, connected = _paho(here, former)
            try:
                await until(connected.is_set)
                await here.publish()
                loop = asyncio.get_running_loop()
                message = await loop.run_in_executor(None, lambda: messages.get(timeout=PATIENCE))
                request = secrets.token_urlsafe(16)
                device.publish(
                    "$tidegate/keys/get", json.dumps({"keyId": key_id(message.payload), "request": request}), qos=1
                )
                answer = await loop.run_in_executor(None, lambda: messages.get(timeout=PATIENCE))
                former.taken(answer.payload, request)
                assert former.opened(message.payload, message.topic) == DATA
            finally:
                device.disconnect()
                device.loop_stop()

    asyncio.run(run())


def _paho(here: Station, person: Person) -> tuple[paho.Client, queue.SimpleQueue[paho.MQTTMessage], asyncio.Event]:
    messages: queue.SimpleQueue[paho.MQTTMessage] = queue.SimpleQueue()
    subscribed = asyncio.Event()
    loop = asyncio.get_running_loop()
    device = paho.Client(CallbackAPIVersion.VERSION2, client_id="paho", protocol=paho.MQTTv311)
    device.username_pw_set(person.name, person.password)
    device.on_message = lambda client, data, message: messages.put(message)
    device.on_connect = lambda client, *rest: client.subscribe([("$tidegate/keys/answer", 1), ("campodenno/#", 1)])
    device.on_subscribe = lambda *rest: loop.call_soon_threadsafe(subscribed.set)
    device.connect_async("127.0.0.1", here.admin.served.port)
    device.loop_start()
    return device, messages, subscribed


# -- section 4.1: robustness -----------------------------------------------------------------------------------------


async def test_aups_section_4_1_a_key_expires(tmp_path: Path) -> None:
    async with station(tmp_path, "rotate: 1s, overlap: 1s") as here:
        former = await here.register("former", "climate")
        async with listening(former) as device:
            await here.publish()
            first = await received(device)
            key = await former.over_http(key_id(first) or "")
            assert key.seconds <= 2
            keys = here.admin.served.node.keys
            await until(lambda: all(each["id"] != key.id for each in keys.list_all(ListKeys())["keys"]))
            with pytest.raises(KeysError, match="404"):
                await former.over_http(key.id)
            await here.publish()
            second = await received(device)
            assert key_id(second) != key.id
            assert former.opened(second, TEMPERATURE) is None, "the old key opens nothing new"
            await former.over_mqtt(device, key_id(second) or "")
            assert former.opened(second, TEMPERATURE) == DATA


@pytest.mark.parametrize("how", ["user", "groups"])
async def test_aups_section_4_1_a_user_is_revoked_over_http(tmp_path: Path, how: str) -> None:
    async with station(tmp_path) as here:
        former, thief = await here.register("former", "climate"), await here.register("thief", "climate")
        async with listening(former) as device:
            await here.publish()
            before = await received(device)
            id = key_id(before) or ""
            await thief.over_http(id)
            assert thief.opened(before, TEMPERATURE) == DATA
            seen = {"If-Match": "*"}
            if how == "user":
                gone = await here.admin.ask("DELETE", "/directory/users/thief", headers=seen)
            else:
                body = {"groups": ["rain"], "public_key": str(thief.private.public)}
                gone = await here.admin.ask("PUT", "/directory/users/thief", json=body, headers=seen)
            assert gone.status_code in (200, 204), gone.text
            with pytest.raises(KeysError, match=r"40[134]"):
                await thief.over_http(id)
            await here.publish()
            after = await received(device)
            assert key_id(after) != id
            assert thief.opened(after, TEMPERATURE) is None
            await former.over_http(key_id(after) or "")
            assert former.opened(after, TEMPERATURE) == DATA
            await former.over_http(id)
            assert former.opened(before, TEMPERATURE) == DATA


async def test_aups_section_4_1_a_stolen_key_is_worth_nothing_after_the_next_rotation(tmp_path: Path) -> None:
    async with station(tmp_path) as here:
        former = await here.register("former", "climate")
        async with listening(former) as device:
            await here.publish()
            first = await received(device)
            stolen = await former.over_http(key_id(first) or "")
            rotated = await here.admin.ask("POST", "/keys/rotate", json={})
            assert rotated.json()["groups"] == 1
            await here.publish()
            second = await received(device)
            assert key_id(second) != stolen.id
            assert former.opened(second, TEMPERATURE) is None
            revoked = await here.admin.ask("DELETE", f"/keys/{stolen.id}?why=stolen")
            assert revoked.status_code == 200
            with pytest.raises(KeysError, match="404"):
                await former.over_http(stolen.id)


async def test_aups_section_4_1_an_answer_that_is_replayed_counts_for_nothing(tmp_path: Path) -> None:
    async with station(tmp_path) as here:
        former, latter = await here.register("former", "climate"), await here.register("latter", "climate")
        async with listening(former) as device:
            await here.publish()
            id = key_id(await received(device)) or ""
            request = secrets.token_urlsafe(16)
            answer = await here.admin.ask("GET", f"/keys/{id}", former.token, params={"request": request})
            assert former.taken(answer.content, request).id == id
            with pytest.raises(KeysError):
                former.taken(answer.content, secrets.token_urlsafe(16))
            with pytest.raises(KeysError):
                latter.taken(answer.content, request)
            tampered = json.dumps({**answer.json(), "validMs": 10**9}).encode()
            with pytest.raises(KeysError):
                former.taken(tampered, request)


async def test_aups_section_4_a_user_who_registered_no_key(tmp_path: Path) -> None:
    async with station(tmp_path) as here:
        made = await here.admin.make("/users", {"name": "keyless", "groups": ["climate"]})
        keyless = Person(here, "keyless", made, PrivateKey.generate(entropy("keyless")))
        async with listening(keyless) as device:
            await here.publish()
            id = key_id(await received(device)) or ""
            with pytest.raises(KeysError, match="409"):
                await keyless.over_http(id)
            said = {"public_key": str(keyless.private.public)}
            assert (await here.admin.ask("PUT", "/users/keyless/key", json=said)).status_code == 200
            assert (await keyless.over_http(id)).id == id
