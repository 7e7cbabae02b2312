"""The devices of the quick start: some over MQTT, some over HTTP, and not all of them do what they should.

Each is an endless task, and none is special: MQTT clients of Mary, and `POST /data` with and without a token.

| device | over | what is wrong with it |
|---|---|---|
| treadmill-1 | MQTT | nothing |
| bike-2 | MQTT | late: now and then it has no network, and sends what it has measured afterwards |
| strap-3 | MQTT | nothing; but it is about somebody's heart |
| air-4 | HTTP, registered | incomplete: now and then without humidity, or without the state of its battery |
| thermo-5 | HTTP, registered | wrong: far too hot, or no number at all |
| door-6 | HTTP | nobody knows it: it has not registered |
| locker-7 | MQTT | speaks for another device, and is told no |
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import count
from typing import Any

import aiomqtt
import httpx
from aiomqtt import ProtocolVersion

PACE = (1.5, 2.5)  # seconds between two readings
LATE, HELD = 20, 5  # of so many readings the bike sends so many late, because it had no network

Told = Callable[[str, str, str], None]
"""Who, topic, and what about it."""


def mqtt(port: int, name: str) -> aiomqtt.Client:
    """A device of Mary."""
    return aiomqtt.Client(
        "127.0.0.1", port, identifier=name, username="mary", password="mary", protocol=ProtocolVersion.V5
    )


def wave(middle: float, swing: float) -> Iterator[float]:
    """Values that go up and down, and are a little different each time."""
    step = random.random() * 10
    while True:
        yield round(middle + swing * math.sin(step) + random.gauss(0, swing / 20), 2)
        step += 0.3


async def pause() -> None:
    await asyncio.sleep(random.uniform(*PACE))


# -- over MQTT ---------------------------------------------------------------------------------------------------------


async def machine(port: int, name: str, what: str, values: Iterator[float], late: bool = False) -> None:
    """Publishes what it measures."""
    async with mqtt(port, name) as client:
        held: list[bytes] = []
        for number, value in enumerate(values, 1):
            held.append(json.dumps({"value": value, "at": int(time.time() * 1000)}).encode())
            if not late or number % LATE < LATE - HELD:
                for reading in held:
                    await client.publish(f"gym/{name}/{what}", reading, qos=1, retain=True)
                held.clear()
            await pause()


async def confused(port: int, told: Told) -> None:
    """Speaks for another device now and then."""
    topic = "gym/bike-2/power"
    loop = asyncio.get_running_loop()

    def answered(_client: object, _userdata: object, _id: int, reason: Any, properties: Any) -> None:
        if reason.value >= 0x80:
            why = f"[red]denied[/]: {reason} (0x{reason.value:02X}) {getattr(properties, 'ReasonString', '')}"
            loop.call_soon_threadsafe(told, "locker-7", topic, why)

    async with mqtt(port, "locker-7") as client:
        client._client.on_publish = answered  # aiomqtt itself does not tell what a publish was answered with
        while True:
            client._client.publish(topic, '{"value": 9999}', qos=1)
            await asyncio.sleep(15)


# -- over HTTP ---------------------------------------------------------------------------------------------------------


async def post(web: httpx.AsyncClient, path: str, body: object, token: str | None = None) -> Any:
    """The answer, if it is a good one."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    answer = await web.post(path, json=body, headers=headers, timeout=30)
    answer.raise_for_status()
    return answer.json()


async def room(web: httpx.AsyncClient, name: str, admin: str, reading: Callable[[int], dict[str, Any]]) -> None:
    """Registers, and posts with the token that it is given."""
    said = {"NodeId": name, "NodeType": "climate", "CommunicationMode": "discrete"}
    given = await post(web, "/registration", said, admin)
    for number in count(1):
        measured = {"time": datetime.now(UTC).isoformat(), "firmware": "2.1"} | reading(number)
        await post(web, "/data", measured, given["token"])
        await pause()


def incomplete(number: int) -> dict[str, Any]:
    reading = {
        "fahrenheit": round(random.gauss(71, 0.3), 1),
        "humidity": round(random.gauss(44, 0.5), 1),
        "battery": 0.93,
    }
    if number % 4 == 0:
        del reading["battery"]
    if number % 6 == 0:
        del reading["humidity"]
    return reading


def wrong(number: int) -> dict[str, Any]:
    fahrenheit: float | str = round(random.gauss(68, 0.3), 1)
    if number % 5 == 0:
        fahrenheit = 185.0
    if number % 7 == 0:
        fahrenheit = "n/a"
    return {"fahrenheit": fahrenheit, "battery": 0.71}


async def stranger(web: httpx.AsyncClient) -> None:
    """Posts without a token; who it is it only says."""
    for value in wave(19.0, 1.0):
        await post(web, "/data", {"sensor": "door-6", "celsius": value})
        await pause()
