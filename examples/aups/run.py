"""The two users of AUPS: the former may read temperature and humidity, the latter only humidity.

    python examples/aups/run.py

Starts the node, publishes what six sensors measure, changes the policies while it runs, and shows who received what.
Exit code 0: all as it should be.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
sys.dont_write_bytecode = True  # what is made stays in var/

from playing import ALL, NOTHING, Play, Player, Scene, Trouble, change, copy, node, perform, players  # noqa: E402

PORT = 1883
SENSORS = {
    "sensor1/temperature": {"value": 21.4, "unit": "°C"},
    "sensor2/humidity": {"value": 63, "unit": "%"},
    "sensor3/wind": {"value": 2.1, "unit": "m/s"},
    "sensor4/energy": {"value": 0.8, "unit": "kWh"},
    "sensor5/air": {"value": 17, "unit": "µg/m³"},
    "sensor6/air": {"value": 31, "unit": "ppb"},
}


def publish_all(scene: Scene, nos: Player, ada: set[str], ugo: set[str]) -> None:
    """Each sensor once; `ada` and `ugo` are the sensors whose data should reach them."""
    for topic, value in SENSORS.items():
        sensor = topic.partition("/")[0]
        gets = {name: ALL if sensor in sensors else NOTHING for name, sensors in (("ada", ada), ("ugo", ugo))}
        scene.publishes(nos, f"campodenno/{topic}", value, gets)
    scene.show()


def main() -> int:
    config = copy(HERE / "tidegate.yaml")
    with node(config):
        nos, ada, ugo = everybody = [Player(name, port=PORT, password=name) for name in ("nos", "ada", "ugo")]
        with players(*everybody):
            play = Play()
            play.heading("Who may subscribe")
            for user in (ada, ugo):
                play.subscribes(user, "campodenno/sensor1/temperature", granted=user is ada)
                play.subscribes(user, "campodenno/sensor2/humidity")
            play.expect("somebody who is not registered", connects("zoe"), "zoe may not connect: 0x86")

            publish_all(play.scene("The two users", ada, ugo), nos, ada={"sensor1", "sensor2"}, ugo={"sensor2"})

            play.heading("They ask for everything")
            for user in (ada, ugo):
                play.subscribes(user, "campodenno/#")  # some of it is allowed; each message is decided by itself
            publish_all(
                play.scene("And get what is theirs", ada, ugo), nos, ada={"sensor1", "sensor2"}, ugo={"sensor2"}
            )

            change(
                config,
                ("reads: [humidity]", "reads: [humidity, wind]"),
                ("reads: [temperature, humidity]", "reads: [air]"),
            )
            publish_all(
                play.scene("After a change of their attributes, without a restart", ada, ugo),
                nos,
                ada={"sensor5", "sensor6"},
                ugo={"sensor2", "sensor3"},
            )

            scene = play.scene("Readers do not write", ada, ugo)
            scene.publishes(ugo, "campodenno/sensor2/humidity", {"value": 0}, {}, refused=True)
            scene.show()
            return play.over()


def connects(name: str) -> str:
    try:
        Player(name, port=PORT, password=name).leave()
    except Trouble as refused:
        return str(refused)
    return "may connect"


if __name__ == "__main__":
    perform(main)
