"""Two gyms and an analyzer as "sharing" has them: Mosquitto in each, which bridge, with monitors that are guards.

    python examples/two-gyms-mosquitto/run.py

Starts three Mosquittos and the monitors, plays "sharing", examples 2 and 4 to 9, and shows who received what. Exit code
0: all as it should be.
"""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
sys.dont_write_bytecode = True  # what is made stays in var/

from playing import ALL, PATIENCE, Play, Player, Trouble, mosquitto, node, perform, players  # noqa: E402

PORTS = {"mygym": 1883, "remotegym": 1884, "analyzer": 1886}
TREADMILLS = "+/performance/ts1/+"  # what the treadmills subscribe to (example 1)
TABLETS = "+/performance/#"  # and the tablets of the coaches
PROBE = "tr0/performance/ts1/speed"


def main() -> int:
    shutil.rmtree(HERE / "var", ignore_errors=True)  # what waited the last time
    play = Play()
    with (
        mosquitto(HERE / "remotegym.conf"),
        mosquitto(HERE / "analyzer.conf"),
        node(HERE / "bridging.yaml"),
        mosquitto(HERE / "mygym.conf"),
        node(HERE / "remotegym.yaml"),
        node(HERE / "mygym.yaml"),
    ):
        until_bridged()
        across(play)
    return play.over()


def come(name: str, gym: str, *filters: str) -> Player:
    player = Player(name, port=PORTS[gym], password=name)
    for filter in filters:
        player.subscribe(filter)
    return player


def until_bridged() -> None:
    """Carla's and Rita's treadmills send until something comes to the other side."""
    john, server = come("john", "remotegym", TABLETS), come("server", "analyzer", "+/+/performance/#")
    carla, rita, bob = come("carla", "mygym"), come("rita", "remotegym"), come("bob", "mygym", "tr9/performance/ts1/+")
    with players(john, server, carla, rita, bob):
        waiting, deadline = {john, server, bob}, time.monotonic() + PATIENCE
        while waiting:
            if time.monotonic() > deadline:
                raise Trouble("nothing crosses the bridges")
            carla.publish(PROBE, b"0")
            rita.publish("tr9/performance/ts1/speed", b"0")
            time.sleep(0.1)
            waiting -= {player for player in waiting if player.received()}


def across(play: Play) -> None:
    mary, bob = come("mary", "mygym", TREADMILLS), come("bob", "mygym", TREADMILLS)
    alice, john = come("alice", "remotegym", TABLETS), come("john", "remotegym", TABLETS)
    carla, rita = come("carla", "mygym"), come("rita", "remotegym")
    luca = come("luca", "mygym")
    server = come("server", "analyzer", "+/+/performance/#")
    with players(mary, bob, carla, luca, alice, john, rita, server):
        coaches = {"alice": ALL, "john": ALL}
        everybody = {"mary": ALL, "bob": ALL, **coaches, "server": ALL}
        scene = play.scene("From MyGym to RemoteGym (Alice, John) and the analyzer", mary, bob, alice, john, server)
        scene.crosses(mary, "tr1/performance/ts1/speed", 11.2, {"alice": ALL})  # up1 and up2
        scene.crosses(bob, "tr2/performance/ts1/speed", 9.8, {"mary": ALL, "bob": ALL, "server": ALL})  # up3
        scene.crosses(carla, "tr3/performance/ts1/length", 3.1, {"mary": ALL, "bob": ALL, **coaches})  # br1: speed only
        scene.crosses(carla, "tr3/performance/ts1/speed", 10.4, everybody)  # she has no wishes
        scene.arrived()

        scene = play.scene("And back: br2", mary, bob)
        scene.crosses(rita, "tr9/performance/ts1/length", 4.2, {})
        scene.crosses(rita, "tr9/performance/ts1/speed", 10.9, {"mary": ALL, "bob": ALL})
        scene.arrived()

        play.heading("Who is not enrolled")
        play.expect("luca publishes", luca.publish("tr4/performance/ts1/speed", b"9"), 0x87)
        play.expect("luca subscribes", luca.subscribe("secrets/#"), 0x87)


if __name__ == "__main__":
    perform(main)
