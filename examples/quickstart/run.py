"""The quick start: a node, a few simulated devices, and somebody who watches them.

Run by `make run`. The devices, the coach and the visitor are ordinary MQTT clients. One of the devices is confused and
tries to speak for another one; the visitor wants everything and does not get the heartbeats. Ctrl-C stops all of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import signal
import sys
from datetime import datetime
from pathlib import Path

import aiomqtt
from aiomqtt import ProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from rich.console import Console

HERE = Path(__file__).parent
CONFIG = HERE / "tidegate.yaml"
HOST, PORT = "127.0.0.1", 1883
DEVICES = {
    "treadmill-1": ("gym/treadmill-1/speed", "km/h", 10.5, 2.0),
    "bike-2": ("gym/bike-2/power", "W", 180.0, 40.0),
    "strap-3": ("gym/strap-3/heartbeats", "bpm", 128.0, 15.0),
}

console = Console(highlight=False)


async def device(name: str, topic: str, unit: str, middle: float, swing: float) -> None:
    """Measures something every second or so, as a user with a password."""
    will = aiomqtt.Will(f"gym/{name}/state", "lost", qos=1, retain=True)
    async with aiomqtt.Client(
        HOST, PORT, identifier=name, username="mary", password="mary", protocol=ProtocolVersion.V5, will=will
    ) as client:
        await client.publish(f"gym/{name}/state", "here", qos=1, retain=True)
        step = random.random() * 10
        while True:
            value = middle + swing * math.sin(step) + random.gauss(0, swing / 20)
            await client.publish(topic, f"{value:.2f} {unit}", qos=1)
            step += 0.3
            await asyncio.sleep(random.uniform(0.8, 1.6))


async def confused() -> None:
    """Speaks for another device now and then, and is told no."""
    async with aiomqtt.Client(
        HOST, PORT, identifier="locker-4", username="mary", password="mary", protocol=ProtocolVersion.V5
    ) as client:
        loop = asyncio.get_running_loop()

        def answered(_client: object, _userdata: object, _mid: int, reason: object, properties: object) -> None:
            if getattr(reason, "value", 0) >= 0x80:
                why = getattr(properties, "ReasonString", "")
                loop.call_soon_threadsafe(
                    lambda: show(
                        "locker-4", "gym/bike-2/power", f"[red]denied[/]: {reason} (0x{reason.value:02X}) {why}"
                    )
                )

        client._client.on_publish = answered
        while True:
            client._client.publish("gym/bike-2/power", "9999 W", qos=1)
            await asyncio.sleep(7)


async def visitor() -> None:
    """Somebody without a name, who may see the gym but nobody's heart."""
    async with aiomqtt.Client(HOST, PORT, identifier="visitor", protocol=ProtocolVersion.V5) as client:
        await client.subscribe("gym/#")
        async for message in client.messages:
            payload = message.payload.decode() if isinstance(message.payload, bytes) else str(message.payload)
            show("visitor got", str(message.topic), f"[dim]{payload}[/]")


async def watcher() -> None:
    """A coach who wants everything of the gym, and to miss nothing while she is away."""
    keep = Properties(PacketTypes.CONNECT)
    keep.SessionExpiryInterval = 3600
    async with aiomqtt.Client(
        HOST,
        PORT,
        identifier="watcher",
        username="alice",
        password="alice",
        protocol=ProtocolVersion.V5,
        clean_start=False,
        properties=keep,
    ) as client:
        await client.subscribe("gym/#", qos=1)
        async for message in client.messages:
            payload = message.payload.decode() if isinstance(message.payload, bytes) else str(message.payload)
            show("alice got", str(message.topic), payload + (" [dim](retained)[/]" if message.retain else ""))


def show(who: str, topic: str, what: str) -> None:
    console.print(f"[dim]{datetime.now():%H:%M:%S}[/]  {who:<12}  [cyan]{topic:<28}[/]  {what}", soft_wrap=True)


async def ready(node: asyncio.subprocess.Process) -> bool:
    """True as soon as the node accepts connections, False if it stops before."""
    while node.returncode is None:
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection(HOST, PORT)
            writer.close()
            return True
        await asyncio.sleep(0.1)
    return False


async def main() -> int:
    tidegate = Path(sys.executable).with_name("tidegate")
    node = await asyncio.create_subprocess_exec(str(tidegate), "run", "-c", str(CONFIG), start_new_session=True)
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    tasks: list[asyncio.Task[object]] = [asyncio.create_task(node.wait()), asyncio.create_task(stopping.wait())]
    if await ready(node):
        console.print(
            "\n  [bold]MQTT[/]       mqtt://127.0.0.1:1883      users: mary/mary, alice/alice"
            "\n  [bold]WebSocket[/]  ws://127.0.0.1:8083/mqtt"
            "\n  [bold]HTTP[/]       http://127.0.0.1:8080/docs"
            "\n  [bold]Denials[/]    .venv/bin/tidegate audit -c examples/quickstart/tidegate.yaml"
            "\n  [bold]Try next[/]   .venv/bin/tidegate sub -v -u alice -P alice -t 'gym/+/speed'"
            "\n  Ctrl-C stops everything.\n"
        )
        tasks += [asyncio.create_task(device(name, *what)) for name, what in DEVICES.items()]
        tasks += [asyncio.create_task(one()) for one in (watcher, visitor, confused)]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    failed = [task for task in tasks[2:] if task.done() and not task.cancelled() and task.exception()]
    for task in tasks[2:]:
        task.cancel()
    await asyncio.gather(*tasks[2:], return_exceptions=True)
    for task in failed:
        console.print(f"[red]stopped:[/] {task.exception()}")
    if node.returncode is None:
        node.terminate()
    code = await node.wait()
    tasks[1].cancel()
    return 1 if failed else code


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
