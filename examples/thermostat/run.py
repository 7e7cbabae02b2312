"""The thermostat: commands outside the range of the furnace do not reach it, and a hijacked one is stopped.

    python examples/thermostat/run.py

Starts the node and shows what reaches the furnace. Exit code 0: all as it should be.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
sys.dont_write_bytecode = True  # what is made stays in var/

from playing import Play, Player, Received, Scene, node, perform, players, reset  # noqa: E402

PORT = 1883
CONFIG = HERE / "tidegate.yaml"


def main() -> int:
    with node(CONFIG):
        hall, cellar, furnace, panel = everybody = [
            Player(name, port=PORT, password=name) for name in ("hall", "cellar", "furnace", "panel")
        ]
        with players(*everybody):
            play = Play()
            play.heading("Who may subscribe")
            play.subscribes(furnace, "furnace/+/set")
            play.subscribes(panel, "alarm/#")

            scene = play.scene("The hall: within the range, or not at all", furnace, panel, describe=what)
            command(scene, hall, 21, furnace="21 °C")
            command(scene, hall, 90)
            command(scene, hall, -20)
            scene.publishes(hall, "furnace/hall/set", "full power", {}, called="full power", refused=True)
            command(scene, hall, 19, furnace="19 °C")
            scene.show()

            scene = play.scene("The cellar is hijacked: one wrong command stops it", furnace, panel, describe=what)
            command(scene, cellar, 16, furnace="16 °C")
            command(scene, cellar, 90, panel="stopped")
            command(scene, cellar, 16)
            scene.show()

            reset(CONFIG, "trip")
            scene = play.scene("Somebody has looked at it: tidegate monitor reset trip", furnace, panel, describe=what)
            command(scene, cellar, 15, furnace="15 °C")
            scene.show()

            scene = play.scene("Not too often", furnace, panel, describe=what)
            command(scene, hall, 18, furnace="18 °C")  # the third that passes
            command(scene, hall, 22)
            command(scene, hall, 18)
            command(scene, cellar, 17, furnace="17 °C")  # each has a pace of its own
            scene.show()
            return play.over()


def command(scene: Scene, who: Player, celsius: int, **gets: str) -> None:
    topic = f"furnace/{who.name}/set"
    scene.publishes(who, topic, {"celsius": celsius}, gets, called=f"{celsius} °C", refused=not gets)


def what(message: Received, _sent: bytes) -> str:
    """What came, in words."""
    if message.topic.startswith("alarm/"):
        return message.payload.decode()
    return f"{json.loads(message.payload)['celsius']} °C"


if __name__ == "__main__":
    perform(main)
