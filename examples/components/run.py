"""The component hierarchy: what each device publishes, and in which scopes it is seen.

    python examples/components/run.py

Starts the node, puts a watcher into each scope, and compares what they see with "scopes", section 3.4.1.2: visible if
and only if there is a common ancestor. Exit code 0: all as it should be.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
sys.dont_write_bytecode = True  # what is made stays in var/

from playing import Play, Player, Received, node, perform, players  # noqa: E402

PORTS = {"A": 1883, "B": 1884, "C": 1885, "D": 1886, "E": 1887, "F": 1888}
PARENTS = {"A": "", "B": "", "C": "A", "D": "A", "E": "B", "F": "BD"}
DEVICES = {"1": "E", "2": "E", "3": "F", "4": "C", "5": "D", "6": "A"}


def main() -> int:
    play = Play()
    with node(HERE / "tidegate.yaml"):
        watchers = {scope: Player(scope, port=port) for scope, port in PORTS.items()}
        devices = {name: Player(name, port=PORTS[scope], password=name) for name, scope in DEVICES.items()}
        with players(*watchers.values(), *devices.values()):
            for watcher in watchers.values():
                watcher.subscribe("#")
            scene = play.scene("Figure 3.1: in which scopes it is seen", *watchers.values(), describe=seen)
            for name, device in devices.items():
                home = DEVICES[name]
                common = {scope: "seen" for scope in PORTS if ancestors(home) & ancestors(scope)}
                scene.publishes(device, "event", name, common, called=f"event, in {home}")
            scene.show()
    return play.over()


def ancestors(scope: str) -> set[str]:
    """It counts as its own."""
    return {scope}.union(*(ancestors(parent) for parent in PARENTS[scope]))


def seen(_message: Received, _sent: bytes) -> str:
    return "seen"


if __name__ == "__main__":
    perform(main)
