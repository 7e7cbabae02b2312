"""MyGym: policies p1 and p2, Mary's preference up1, and the parts of her ride that she hides from other gyms.

    python examples/mygym/run.py

Starts the node, plays "sharing", examples 1 and 3 to 5, and shows who received what. Exit code 0: all as it should be.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
sys.dont_write_bytecode = True  # what is made stays in var/

from playing import ALL, NOTHING, Play, Player, change, copy, node, perform, players  # noqa: E402

PORT = 1883
TREADMILLS = "+/performance/ts1/+"  # what the treadmills subscribe to (example 1)
TABLETS = "+/performance/#"  # and the tablets of the coaches


def main() -> int:
    config = copy(HERE / "tidegate.yaml")
    with node(config):
        mary, bob, luca, rita, alice, john = everybody = [
            Player(name, port=PORT, password=name) for name in ("mary", "bob", "luca", "rita", "alice", "john")
        ]
        with players(*everybody):
            play = Play()
            training(play, mary, bob, luca, rita, alice, john)
            race(play, mary, bob, luca, rita)
            afterwards(play, mary, bob, rita, alice, john)
            return play.over()


def training(play: Play, mary: Player, bob: Player, luca: Player, rita: Player, alice: Player, john: Player) -> None:
    play.heading("Who may subscribe")
    for runner in (mary, bob, rita):
        play.subscribes(runner, TREADMILLS)
    play.subscribes(luca, TREADMILLS, granted=False)  # p1: he is not enrolled
    for coach in (alice, john):
        play.subscribes(coach, TABLETS)

    scene = play.scene("The training session (examples 1, 3, 4 and 5)", mary, bob, rita, alice, john)
    for what, value in {"speed": 11.2, "avgspeed": 10.4, "length": 3.1, "duration": 18, "heartbeats": 128}.items():
        # up1: of Mary's performance nobody but Alice sees anything, not even Mary's own display
        scene.publishes(mary, f"tr1/performance/ts1/{what}", {"runner": "mary", what: value}, {"alice": ALL})
    # p1 and p2 allow Bob's to everybody, but he does not want John to see it; Rita has no such wishes
    everybody = {"mary": ALL, "bob": ALL, "rita": ALL, "alice": ALL, "john": ALL}
    scene.publishes(bob, "tr2/performance/ts1/speed", {"runner": "bob", "speed": 9.8}, everybody | {"john": NOTHING})
    scene.publishes(rita, "tr4/performance/ts1/speed", {"runner": "rita", "speed": 10.9}, everybody)
    # p1: Luca is not enrolled; p2: coaches read, and do not write
    scene.publishes(luca, "tr3/performance/ts1/speed", {"runner": "luca", "speed": 12.0}, {}, refused=True)
    scene.publishes(alice, "tr1/performance/ts1/speed", {"runner": "mary", "speed": 99}, {}, refused=True)
    scene.show()


def race(play: Play, mary: Player, bob: Player, luca: Player, rita: Player) -> None:
    play.heading("Who may subscribe to the race")
    for rider in (mary, bob, rita):
        play.subscribes(rider, "+/race/r1/+")
    play.subscribes(luca, "+/race/r1/+", granted=False)

    scene = play.scene("The race (introduction: identifying parts are not for other gyms)", mary, bob, rita)
    ride = {"rider": "mary", "bike": "bike1", "speed": 31.5, "distance": 12.4}
    scene.publishes(mary, "bike1/race/r1/ride", ride, {"mary": ALL, "bob": ALL, "rita": "speed, distance"})
    ride = {"rider": "rita", "bike": "bike2", "speed": 33.0, "distance": 12.9}
    scene.publishes(rita, "bike2/race/r1/ride", ride, {"mary": ALL, "bob": ALL, "rita": ALL})
    scene.show()


def afterwards(play: Play, mary: Player, bob: Player, rita: Player, alice: Player, john: Player) -> None:
    now = datetime.now(UTC)
    config = HERE / "var/tidegate.yaml"
    # far enough from now in any time zone
    over = f"{now + timedelta(hours=4):%H:%M}-{now + timedelta(hours=5):%H:%M}"
    change(config, ("00:00-24:00", over), ("2099-12-31T18:00:00Z", f"{now - timedelta(minutes=1):%Y-%m-%dT%H:%M:%SZ}"))
    scene = play.scene("Later: the shifts of the coaches and the race are over", mary, bob, rita, alice, john)
    scene.publishes(mary, "tr1/performance/ts1/speed", {"runner": "mary", "speed": 11.2}, {})
    gets = {"mary": ALL, "bob": ALL, "rita": ALL}
    scene.publishes(rita, "tr4/performance/ts1/speed", {"runner": "rita", "speed": 10.9}, gets)
    scene.publishes(mary, "bike1/race/r1/ride", {"rider": "mary", "speed": 31.5}, {}, refused=True)
    scene.show()


if __name__ == "__main__":
    perform(main)
