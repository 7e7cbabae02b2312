"""Four labels: who hears what, in three scopes, and who is not let in.

    python examples/labels/run.py

Starts the node, lets everybody say something, and shows who heard it. Exit code 0: all as it should be.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
sys.dont_write_bytecode = True  # what is made stays in var/

from playing import Play, Player, Received, TurnedAway, node, perform, players  # noqa: E402

PORTS = {"field": 1883, "office": 1884, "vault": 1885}
PLACES = {
    "sensor": "field",
    "scout": "field",
    "clerk": "office",
    "officer": "office",
    "archive": "vault",
    "clock": "vault",
}
SAYS = {
    "sensor": "unclassified",
    "scout": "confidential",
    "clerk": "confidential",
    "officer": "secret",
    "archive": "top-secret",
    "clock": "unclassified",
}
HEARD_BY = {
    "sensor": "sensor scout clerk officer archive",
    "scout": "clerk officer archive",
    "clerk": "clerk officer archive",
    "officer": "officer archive",
    "archive": "archive",
    "clock": "sensor scout clerk officer archive clock",
}


def main() -> int:
    play = Play()
    with node(HERE / "tidegate.yaml"):
        everybody = {name: Player(name, port=PORTS[scope], password=name) for name, scope in PLACES.items()}
        with players(*everybody.values()):
            for one in everybody.values():
                one.subscribe("#")
            scene = play.scene("Who hears what", *everybody.values(), describe=heard)
            for name, one in everybody.items():
                gets = dict.fromkeys(HEARD_BY[name].split(), "heard")
                scene.publishes(one, "report", name, gets, called=f"{SAYS[name]}, in {PLACES[name]}")
            scene.show()

            play.heading("Nobody is let in without a label")
            for scope, port in PORTS.items():
                try:
                    Player("visitor", port=port, password="visitor").leave()
                    came = "let in"
                except TurnedAway as refused:
                    came = f"turned away (0x{refused.code:02X})"
                play.expect(f"visitor comes to {scope}", came, "turned away (0x87)")
    return play.over()


def heard(_message: Received, _sent: bytes) -> str:
    return "heard"


if __name__ == "__main__":
    perform(main)
