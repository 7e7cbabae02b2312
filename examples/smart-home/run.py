"""The smart home: motion stays at home, the door opens when A1 says so, and what a hijacked device can still do.

    python examples/smart-home/run.py

Starts the node, plays "scopes", section 3.5, and shows who got what. Exit code 0: all as it should be.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
sys.dont_write_bytecode = True  # what is made stays in var/

from playing import Play, Player, Received, Scene, TurnedAway, monitor_state, node, perform, players  # noqa: E402

PORTS = {"I": 1883, "H2": 1884, "H3": 1885, "H4": 1886}
PLACES = {"MD": "H4", "SC": "H4", "DB": "H2", "DL": "H3", "SP": "I", "hub": "H2", "cloud": "I"}
CONFIG = HERE / "tidegate.yaml"
HEARD = {
    "DL_unlock": "unlock",
    "DL_lock": "lock",
    "MD_motion": "motion",
    "MD_no_motion": "no motion",
    "AccessRequest": "ring",
    "AccessGranted": "grant",
    "AccessDenied": "denial",
}


def main() -> int:
    shutil.rmtree(HERE / "var", ignore_errors=True)  # the state of the last time
    play = Play()
    with node(CONFIG):
        at = {name: Player(name, port=PORTS[scope], password=name) for name, scope in PLACES.items()}
        with players(*at.values()):
            prepare(play, at)
            daily_life(play, at)
            hijacked_hub(play, at)
            hijacked_bell(play, at)
            wrong_places(play)
    return play.over()


def prepare(play: Play, at: dict[str, Player]) -> None:
    """Everybody subscribes to what they consume; the cloud to all there is."""
    play.heading("Everybody subscribes, each in its scope")
    for name, filters in {
        "DB": ("MD_motion", "MD_no_motion"),
        "SP": ("AccessRequest",),
        "DL": ("DL_unlock", "DL_lock"),
        "cloud": ("+",),
    }.items():
        for filter in filters:
            play.subscribes(at[name], filter)


def daily_life(play: Play, at: dict[str, Player]) -> None:
    scene = stage(play, at, "Nobody is at home, and somebody rings")
    step(scene, at["MD"], "MD_no_motion", {"DB": "no motion"}, "q0")
    step(scene, at["DB"], "AccessRequest", {"SP": "ring", "cloud": "ring"}, "q0")
    step(scene, at["SP"], "AccessGranted", {"cloud": "grant"}, "q1")
    step(scene, at["SP"], "DL_unlock", {"DL": "unlock", "cloud": "unlock"}, "q2")
    step(scene, at["hub"], "DL_lock", {"DL": "lock", "cloud": "lock"}, "q0")
    step(scene, at["MD"], "MD_motion", {"DB": "motion"}, "q0")
    scene.show()


def hijacked_hub(play: Play, at: dict[str, Player]) -> None:
    scene = stage(play, at, "The hub is hijacked")
    hub = at["hub"]
    step(scene, hub, "DL_unlock", {"cloud": "unlock"}, "q0")
    step(scene, hub, "AccessRequest", {"SP": "ring", "cloud": "ring"}, "q0")
    step(scene, hub, "DL_unlock", {"cloud": "unlock"}, "q1")
    step(scene, hub, "AccessGranted", {}, "q1", refused=True)
    step(scene, hub, "DL_unlock", {"cloud": "unlock"}, "q1")
    step(scene, at["SP"], "AccessDenied", {"cloud": "denial"}, "q1")
    step(scene, hub, "MD_motion", {"DB": "motion"}, "q0")
    scene.show()


def hijacked_bell(play: Play, at: dict[str, Player]) -> None:
    scene = stage(play, at, "The bell is hijacked, and makes use of the one thing that it may say")
    told = "ring: at home!"
    step(scene, at["MD"], "MD_motion", {"DB": "motion"}, "q0")
    step(scene, at["DB"], "AccessRequest", {"SP": told, "cloud": told}, "q0", content="at home!")
    scene.show()


def wrong_places(play: Play) -> None:
    play.heading("Devices stay where they belong")
    for name, scope in (("MD", "H2"), ("hub", "I"), ("SP", "H3"), ("DB", "H2")):
        try:
            Player(name, port=PORTS[scope], password=name).leave()
            came = "let in"
        except TurnedAway as refused:
            came = f"turned away (0x{refused.code:02X})"
        play.expect(f"{name} comes to {scope}", came, "let in" if PLACES[name] == scope else "turned away (0x87)")


def stage(play: Play, at: dict[str, Player], title: str) -> Scene:
    return play.scene(title, at["DB"], at["DL"], at["SP"], at["cloud"], describe=heard)


def step(
    scene: Scene,
    who: Player,
    event: str,
    gets: dict[str, str],
    state: str,
    *,
    content: str = "",
    refused: bool = False,
) -> None:
    """One event. `state` is the one in which A1 should be when it comes."""
    found = monitor_state(CONFIG, "a1")
    right = found == state
    scene.play.wrong += not right
    called = f"{found}: {event}" if right else f"{found}: {event}   WRONG: expected {state}"
    scene.publishes(who, event, content, gets, called=called, refused=refused)


def heard(message: Received, _sent: bytes) -> str:
    word = HEARD[message.topic]
    return f"{word}: {message.payload.decode()}" if message.payload else word


if __name__ == "__main__":
    perform(main)
