"""The smart home with the internet on a node of its own: the link is cut, and the door goes on working.

    python examples/house-outside/run.py

Starts both nodes, ends the one outside, starts it again, and shows who got what. Exit code 0: all as it should be.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
sys.dont_write_bytecode = True  # what is made stays in var/

from playing import Play, Player, Received, node, node_certificates, perform, players, until_linked  # noqa: E402

HOUSE, OUTSIDE = HERE / "house.yaml", HERE / "outside.yaml"
PORTS = {"I": 1883, "H2": 1884, "H3": 1885, "H4": 1886}
PLACES = {"MD": "H4", "DB": "H2", "hub": "H2", "panel": "H2", "DL": "H3", "SP": "I", "cloud": "I"}
FILTERS = {
    "DB": ["MD_motion"],
    "panel": ["AccessRequest"],
    "DL": ["DL_unlock"],
    "SP": ["AccessRequest"],
    "cloud": ["+"],
}
HEARD = {"MD_motion": "motion", "AccessRequest": "ring", "AccessGranted": "grant", "DL_unlock": "unlock"}


def main() -> int:
    shutil.rmtree(HERE / "var", ignore_errors=True)  # the state of the last time
    node_certificates(HERE / "var/certs", "house", "outside")
    play = Play()
    with node(HOUSE):
        home = {name: come(name) for name in ("MD", "DB", "hub", "panel", "DL")}
        with players(*home.values()):
            with node(OUTSIDE):
                until_linked(HOUSE, "H1->I")
                phone, cloud = come("SP"), come("cloud")
                with players(phone, cloud):
                    connected(play, home, phone, cloud)
            cut(play, home)
            with node(OUTSIDE):
                until_linked(HOUSE, "H1->I")
                phone, cloud = come("SP"), come("cloud")
                with players(phone, cloud):
                    play.heading("The internet is back, and what waited comes")
                    play.expect("SP", said(phone.next()), "ring")
                    play.expect("cloud", ", ".join(said(cloud.next()) for _ in range(4)), "unlock, ring, grant, unlock")
    return play.over()


def come(name: str) -> Player:
    """What comes for those outside while they are away waits for them."""
    player = Player(name, port=PORTS[PLACES[name]], password=name, keep=PLACES[name] == "I")
    for filter in FILTERS.get(name, ()):
        player.subscribe(filter)
    return player


def connected(play: Play, home: dict[str, Player], phone: Player, cloud: Player) -> None:
    play.heading("With the internet")
    home["MD"].publish("MD_motion", b"")
    play.expect("MD says MD_motion: DB gets", said(home["DB"].next()), "motion")
    home["DB"].publish("AccessRequest", b"")
    play.expect("DB says AccessRequest: SP gets", said(phone.next()), "ring")
    cloud.publish("AccessGranted", b"")
    cloud.publish("DL_unlock", b"")
    phone.publish("DL_unlock", b"")  # not granted yet
    phone.publish("AccessGranted", b"")
    phone.publish("DL_unlock", b"by the owner")
    play.expect("the cloud grants and unlocks, then SP does: DL gets", said(home["DL"].next()), "unlock by the owner")
    came = [said(cloud.next()) for _ in range(6)]
    play.expect("cloud got of all that", ", ".join(came), "ring, grant, unlock, unlock, grant, unlock by the owner")


def cut(play: Play, home: dict[str, Player]) -> None:
    home["panel"].received()  # the ring of before
    scene = play.scene("The internet is cut", *(home[name] for name in ("DB", "panel", "DL")), describe=told)
    scene.publishes(home["MD"], "MD_motion", "", {"DB": "motion"})
    scene.publishes(home["hub"], "DL_unlock", "", {})
    scene.publishes(home["DB"], "AccessRequest", "", {"panel": "ring"})
    scene.publishes(home["panel"], "AccessGranted", "", {})
    scene.publishes(home["panel"], "DL_unlock", "", {"DL": "unlock"})
    scene.show()


def said(message: Received) -> str:
    return " ".join(filter(None, (HEARD[message.topic], message.payload.decode())))


def told(message: Received, _sent: bytes) -> str:
    return said(message)


if __name__ == "__main__":
    perform(main)
