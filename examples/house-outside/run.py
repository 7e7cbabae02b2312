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

from playing import Play, Player, Received, Scene, node, node_certificates, perform, players, until_linked  # noqa: E402

HOUSE, OUTSIDE = HERE / "house.yaml", HERE / "outside.yaml"
PORTS = {"I": 1883, "H2": 1884, "H3": 1885, "H4": 1886}
PLACES = {"MD": "H4", "DB": "H2", "hub": "H2", "panel": "H2", "DL": "H3", "SP": "I", "cloud": "I"}
FILTERS = {"DB": ["MD_motion"], "panel": ["AccessRequest"], "DL": ["DL_unlock"], "SP": ["AccessRequest"], "cloud": ["+"]}


def main() -> int:
    shutil.rmtree(HERE / "var", ignore_errors=True)  # the state of the last time
    node_certificates(HERE / "var/certs", "house", "outside")
    play = Play()
    with node(HOUSE):
        inside = {name: come(name) for name in ("MD", "DB", "hub", "panel", "DL")}
        with players(*inside.values()):
            with node(OUTSIDE):
                until_linked(HOUSE, "H1->I")
                phone, cloud = come("SP"), come("cloud")
                with players(phone, cloud):
                    connected(play, inside, phone, cloud)
            cut(play, inside)
            with node(OUTSIDE):
                until_linked(HOUSE, "H1->I")
                phone, cloud = come("SP"), come("cloud")
                with players(phone, cloud):
                    play.heading("It is back: what waited for the internet")
                    for name, one, count in (("SP", phone, 2), ("cloud", cloud, 4)):
                        came = ", ".join(heard(one.next(), b"") for _ in range(count))
                        waited = "ring, back" if name == "SP" else "ring, grant, unlock, back"
                        if count == 2:
                            inside["DB"].publish("AccessRequest", b"back")
                        play.expect(f"{name} gets", came, waited)
    return play.over()


def come(name: str) -> Player:
    player = Player(name, port=PORTS[PLACES[name]], password=name, keep=PLACES[name] == "I")
    for filter in FILTERS.get(name, ()):
        player.subscribe(filter)
    return player


def connected(play: Play, inside: dict[str, Player], phone: Player, cloud: Player) -> None:
    ...


if __name__ == "__main__":
    perform(main)
