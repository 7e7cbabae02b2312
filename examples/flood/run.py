"""The flood: a sensor that sends far too much is calmed, and nobody else is disturbed; when it stops there is an alarm.

    python examples/flood/run.py

Starts the node and shows what reaches the display. Exit code 0: all as it should be.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
sys.dont_write_bytecode = True  # what is made stays in var/

from playing import PATIENCE, Play, Player, Received, Trouble, node, perform, players  # noqa: E402

PORT = 1883
CONFIG = HERE / "tidegate.yaml"
FLOOD = 500
ALARM = "alarm/sensor-1"


def main() -> int:
    with node(CONFIG):
        one, two, display = [sensor("sensor-1"), sensor("sensor-2"), sensor("display")]
        with players(two, display):
            play = Play()
            play.heading("Who may subscribe")
            play.subscribes(display, "sensors/#")

            scene = play.scene("Values that repeat themselves (dedupe)", display, describe=value)
            for bar, comes in (("4.1", True), ("4.1", False), ("4.1", False), ("4.2", True)):
                gets = {"display": bar} if comes else {}
                scene.publishes(two, "sensors/sensor-2/bar", bar, gets, called=f"sensors/sensor-2/bar {bar}")
            scene.show()

            play.heading(f"A flood of {FLOOD} values (rate)")
            play.expect("display gets", flood(one, display, 0), 10)
            scene = play.scene("The other sensor has a rate of its own", display, describe=value)
            scene.publishes(two, "sensors/sensor-2/bar", "4.3", {"display": "4.3"}, called="sensors/sensor-2/bar 4.3")
            scene.show()

            play.heading("The sensor comes back and floods again: that does not fill its bucket")
            one.leave()
            one = sensor("sensor-1")
            play.expect("display gets", flood(one, display, FLOOD), 0)

            play.heading("The sensor is gone (silence)")
            display.subscribe("alarm/#")
            one.publish("sensors/sensor-1/bar", b"the last one")
            one.leave()
            play.expect(f"display gets {ALARM}", alarm(display), "silent")
            return play.over()


def sensor(name: str) -> Player:
    return Player(name, port=PORT, password=name)


def flood(sensor: Player, display: Player, first: int) -> int:
    """How many of many different values reach the display."""
    for number in range(first, first + FLOOD):
        sensor.publish("sensors/sensor-1/bar", str(number).encode())
    return len(display.received())


def alarm(display: Player) -> str:
    """The first alarm."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        for message in display.received():
            if message.topic == ALARM:
                return message.payload.decode()
        time.sleep(0.02)
    raise Trouble("there was no alarm")


def value(message: Received, _sent: bytes) -> str:
    return message.payload.decode()


if __name__ == "__main__":
    perform(main)
