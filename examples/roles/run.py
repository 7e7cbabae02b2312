"""The bus: what passes from role to role, and who is not let in.

    python examples/roles/run.py

Starts the node, lets everybody publish, and shows who received it. Exit code 0: all as it should be.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
sys.dont_write_bytecode = True  # what is made stays in var/

from playing import ALL, Play, Player, TurnedAway, node, perform, players  # noqa: E402

PORT = 1883


def main() -> int:
    play = Play()
    with node(HERE / "tidegate.yaml"):
        press, oven, olga, vera = everybody = [member(name) for name in ("press", "oven", "olga", "vera")]
        with players(*everybody):
            for one in everybody:
                one.subscribe("#")
            scene = play.scene("Two machines, the operator olga and the visitor vera", *everybody)
            scene.publishes(press, "press/temperature", "80", {"olga": ALL, "vera": ALL})
            scene.publishes(press, "press/alarm", "too hot", {"olga": ALL})
            scene.publishes(press, "press/pressure", "3", {})
            scene.publishes(olga, "oven/speed", "2", {"press": ALL, "oven": ALL})
            scene.publishes(oven, "press/speed", "9", {})
            scene.publishes(olga, "oven/alarm", "wake up", {})
            scene.publishes(vera, "oven/speed", "9", {})
            scene.show()

            play.heading("Nobody is let in without a role")
            try:
                member("nobody").leave()
                came = "let in"
            except TurnedAway as refused:
                came = f"turned away (0x{refused.code:02X})"
            play.expect("nobody comes", came, "turned away (0x87)")
    return play.over()


def member(name: str) -> Player:
    return Player(name, port=PORT, password=name)


if __name__ == "__main__":
    perform(main)
