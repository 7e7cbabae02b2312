"""The door lock: automaton A1 on the link to a lock, in every state, and over a restart of the node.

    python examples/doorlock/run.py

Starts the node, plays "scopes", section 3.5, and shows which door opens. Exit code 0: all as it should be.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
sys.dont_write_bytecode = True  # what is made stays in var/

from playing import Play, Player, Received, Scene, monitor_state, node, perform, players  # noqa: E402

PORT = 1883
CONFIG = HERE / "tidegate.yaml"
BOTH = {"lock": "opens", "garden": "opens"}


def main() -> int:
    shutil.rmtree(HERE / "var", ignore_errors=True)  # the states of the last time
    play = Play()
    with node(CONFIG):
        bell, phone, hub, lock, garden = everybody = house()
        with players(*everybody):
            play.heading("The locks subscribe to nothing but their commands")
            for door in (lock, garden):
                play.subscribes(door, "DL_unlock")
                play.subscribes(door, "DL_lock")

            scene = play.scene("Automaton A1, in every state", lock, garden, describe=done)
            step(scene, hub, "DL_unlock", {}, "q0")
            step(scene, bell, "AccessRequest", {}, "q0")
            step(scene, hub, "DL_unlock", {}, "q1")
            step(scene, phone, "AccessDenied", {}, "q1")
            step(scene, phone, "AccessGranted", {}, "q0")  # nobody asked
            step(scene, phone, "DL_unlock", {}, "q0")
            step(scene, bell, "AccessRequest", {}, "q0")
            step(scene, phone, "AccessGranted", {}, "q1")
            step(scene, phone, "DL_unlock", BOTH, "q2")
            step(scene, hub, "DL_unlock", {}, "q0")
            step(scene, hub, "DL_lock", {"lock": "closes", "garden": "closes"}, "q0")
            scene.show()

            scene = play.scene("Where the two differ: granted, and then denied", lock, garden, describe=done)
            step(scene, bell, "AccessRequest", {}, "q0")
            step(scene, phone, "AccessGranted", {}, "q1")
            step(scene, phone, "AccessDenied", {}, "q2")
            step(scene, phone, "DL_unlock", {"lock": "opens"}, "q2")
            step(scene, bell, "AccessRequest", {}, "q0")
            step(scene, phone, "AccessGranted", {}, "q1")
            scene.show()

    with node(CONFIG):
        bell, phone, hub, lock, garden = everybody = house()
        with players(*everybody):
            for door in (lock, garden):
                door.subscribe("DL_unlock")
            scene = play.scene("After a restart of the node", lock, garden, describe=done)
            step(scene, phone, "DL_unlock", BOTH, "q2")
            step(scene, hub, "DL_unlock", {}, "q0")
            scene.show()
    return play.over()


def house() -> list[Player]:
    return [Player(name, port=PORT, password=name) for name in ("bell", "phone", "hub", "lock", "garden")]


def step(scene: Scene, who: Player, event: str, gets: dict[str, str], state: str) -> None:
    """One event. `state` is the one in which A1 should be when it comes."""
    found = monitor_state(CONFIG, "a1")
    right = found == state
    scene.play.wrong += not right
    said = f"{found}: {event}" if right else f"{found}: {event}   WRONG: expected {state}"
    scene.publishes(who, event, "", gets, called=said)


def done(message: Received, _sent: bytes) -> str:
    """What a lock does."""
    return {"DL_unlock": "opens", "DL_lock": "closes"}[message.topic]


if __name__ == "__main__":
    perform(main)
