"""Two gyms and the analyzer, three nodes: whose performance crosses to whom, and what each gym believes of the other.

    python examples/two-gyms/run.py

Starts the nodes, plays "sharing", examples 2 and 6 to 9, and shows who received what. Exit code 0: all as it should be.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
sys.dont_write_bytecode = True  # what is made stays in var/

from playing import ALL, Play, Player, change, copy, node, node_certificates, perform, players, until_linked  # noqa: E402

PORTS = {"mygym": 1883, "remotegym": 1884, "analyzer": 1885}
TREADMILLS = "+/performance/ts1/+"  # what the treadmills subscribe to (example 1)
TABLETS = "+/performance/#"  # and the tablets of the coaches
BOTH = "    gymbrand: { nodes: [mygym, remotegym] }"
SEEN = "    remotegym: { nodes: [remotegym] }"
BELIEVED = "    remotegym: { nodes: [remotegym], users: { alice: alice }, roles: { coach: coach } }"


def main() -> int:
    shutil.rmtree(HERE / "var", ignore_errors=True)  # what waited the last time
    node_certificates(HERE / "var/certs", *PORTS)
    play = Play()
    with node(HERE / "remotegym.yaml"), node(HERE / "analyzer.yaml"), node(HERE / "mygym.yaml"):
        until_linked(HERE / "mygym.yaml", "mygym->remotegym", "mygym->analyzer")
        one_brand(play)
    mygym, remotegym = strangers()
    with node(remotegym), node(mygym):
        until_linked(mygym, "mygym->remotegym")
        two_companies(play, mygym)
    return play.over()


def come(name: str, gym: str, *filters: str) -> Player:
    player = Player(name, port=PORTS[gym], password=name)
    for filter in filters:
        player.subscribe(filter)
    return player


def one_brand(play: Play) -> None:
    mary, bob = come("mary", "mygym", TREADMILLS), come("bob", "mygym", TREADMILLS)
    alice, john = come("alice", "remotegym", TABLETS), come("john", "remotegym", TABLETS)
    carla, rita = come("carla", "mygym"), come("rita", "remotegym")
    server = come("server", "analyzer", "+/+/performance/#")
    with players(mary, bob, carla, alice, john, rita, server):
        scene = play.scene(
            "One brand: from MyGym to RemoteGym (Alice, John) and the analyzer", mary, bob, alice, john, server
        )
        scene.crosses(mary, "tr1/performance/ts1/speed", 11.2, {"alice": ALL})  # up1 and up2
        scene.crosses(bob, "tr2/performance/ts1/speed", 9.8, {"mary": ALL, "bob": ALL, "server": ALL})  # up3
        coaches = {"alice": ALL, "john": ALL}
        scene.crosses(carla, "tr3/performance/ts1/length", 3.1, {"mary": ALL, "bob": ALL, **coaches})  # br1: speed only
        everybody = {"mary": ALL, "bob": ALL, **coaches, "server": ALL}
        scene.crosses(carla, "tr3/performance/ts1/speed", 10.4, everybody)  # she has no wishes
        scene.arrived()

        scene = play.scene("And back: br2", mary, bob)
        scene.crosses(rita, "tr9/performance/ts1/length", 4.2, {})
        scene.crosses(rita, "tr9/performance/ts1/speed", 10.9, {"mary": ALL, "bob": ALL})
        scene.arrived()


def strangers() -> tuple[Path, Path]:
    """The files of the gyms, if they were two companies."""
    made = []
    for name, domains in (("mygym", SEEN), ("remotegym", "    mygym: { nodes: [mygym] }")):
        config = copy(HERE / f"{name}.yaml")
        text = re.sub(r"  domain: gymbrand.*\n", "", config.read_text()).replace(BOTH, domains)
        config.write_text(text.replace("var/certs", "certs").replace(f"var/{name}", f"strangers/{name}"))
        made.append(config)
    return made[0], made[1]


def two_companies(play: Play, mygym: Path) -> None:
    mary, carla = come("mary", "mygym"), come("carla", "mygym")
    alice, john = come("alice", "remotegym", TABLETS), come("john", "remotegym", TABLETS)
    with players(mary, carla, alice, john):
        scene = play.scene("Two companies: Mary's Alice is not the one of RemoteGym", alice, john)
        scene.crosses(mary, "tr1/performance/ts1/speed", 11.3, {})
        scene.crosses(carla, "tr3/performance/ts1/speed", 10.5, {"alice": ALL, "john": ALL})
        scene.arrived()

        change(mygym, (SEEN, BELIEVED))
        scene = play.scene("MyGym believes that she is, and that its coaches are coaches", alice, john)
        scene.crosses(mary, "tr1/performance/ts1/speed", 11.4, {"alice": ALL})
        scene.crosses(carla, "tr3/performance/ts1/speed", 10.6, {"alice": ALL, "john": ALL})
        scene.arrived()


if __name__ == "__main__":
    perform(main)
