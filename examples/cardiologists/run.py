"""The patient who lets all cardiologists in: a rule of the publisher opens his messages, and nobody else's.

    python examples/cardiologists/run.py

Starts the node, plays SEC-REDS' appendix B, and shows who received what. Exit code 0: all as it should be.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
sys.dont_write_bytecode = True  # what is made stays in var/

from playing import ALL, PATIENCE, Play, Player, Trouble, node, parts, perform, players  # noqa: E402

PORT = 1883
TOPIC, RULES = "angina/pectoris", "$tidegate/rules"

REPORT = {
    "person": {"name": "John", "surname": "Patient", "born": "4/2/1948", "country": "Italy"},
    "illness": "steady angina",
    "therapy": {"pills a day": "if needed", "pill": "Carvasin 10mg"},
}
CONDITIONS = "illness, therapy"
# John's table of visibility: cardiologists see his conditions, his physician sees who he is as well
TABLE = {"view": json.dumps({"group:cardiologists": ["/illness", "/therapy"], "user:andrew": "all"})}

OPEN = {"id": "AllowAllCardiologists", "topic": TOPIC, "subject": "group:cardiologists"}
SHUT = {"id": "AllowAllCardiologists", "remove": True}
NOT_MARK = {"id": "NotMark", "topic": TOPIC, "subject": "user:mark", "effect": "deny"}
NURSES = {"id": "AllowNurses", "topic": TOPIC, "subject": "group:nurses"}


def main() -> int:
    with node(HERE / "tidegate.yaml"):
        john, jane, andrew, mark, eve, nina = everybody = [
            Player(name, port=PORT, password=name) for name in ("john", "jane", "andrew", "mark", "eve", "nina")
        ]
        with players(*everybody):
            readers = (andrew, mark, eve, nina)
            play = Play()
            play.heading("Everybody subscribes")
            for reader in readers:
                subscribes(play, reader, held=reader is not andrew)

            scene = play.scene("No rule yet: only his physician", *readers)
            payload = json.dumps(REPORT).encode()
            john.publish(TOPIC, payload, TABLE, retain=True)
            play.expect("andrew gets John's report", parts(andrew.next(), payload), ALL)
            scene.publishes(john, TOPIC, REPORT, {"andrew": ALL}, says=TABLE, called="another report")
            scene.show()

            play.heading("John lets all cardiologists in")
            sends(play, john, OPEN)
            # what was held comes alive with the retained report
            play.expect("mark gets the report that was waiting", parts(mark.next(), payload), CONDITIONS)
            play.expect("eve, who is suspended, gets", len(eve.received()), 0)

            opened = {"andrew": ALL, "mark": CONDITIONS}
            scene = play.scene("His messages, and nobody else's", *readers)
            scene.publishes(john, TOPIC, REPORT, opened, says=TABLE, called="his report")
            scene.publishes(jane, TOPIC, REPORT, {}, called="Jane's report")
            scene.show()

            play.heading("What he cannot open, and what Jane cannot")
            sends(play, john, {**OPEN, "id": "Everything", "topic": "#"}, refused=True)
            sends(play, jane, NURSES)
            scene = play.scene("Jane's rule is about Jane's messages", *readers)
            scene.publishes(john, TOPIC, REPORT, opened, says=TABLE, called="his report")
            scene.publishes(jane, TOPIC, REPORT, {"nina": ALL}, called="Jane's report")
            scene.show()

            play.heading("All cardiologists but one")
            sends(play, john, NOT_MARK)
            scene = play.scene("A rule that denies comes before one that allows", *readers)
            scene.publishes(john, TOPIC, REPORT, {"andrew": ALL}, says=TABLE, called="his report")
            scene.show()

            play.heading("Taken back")
            sends(play, john, SHUT, {"id": "NotMark", "remove": True})
            scene = play.scene("As before", *readers)
            scene.publishes(john, TOPIC, REPORT, {"andrew": ALL}, says=TABLE, called="his report")
            scene.show()

            play.heading("For a second")
            sends(play, john, {**OPEN, "expires": "1s"})
            play.expect("mark gets the retained report", parts(mark.next(), payload), CONDITIONS)
            over(john, mark)
            andrew.received()
            scene = play.scene("A second later", *readers)
            scene.publishes(john, TOPIC, REPORT, {"andrew": ALL}, says=TABLE, called="his report")
            scene.show()
            return play.over()


def subscribes(play: Play, who: Player, *, held: bool) -> None:
    who.subscribe(TOPIC)
    words = {True: "granted, and held", False: "granted"}
    play.expect(f"{who.name} subscribes to {TOPIC}", words[who.held], words[held])


def sends(play: Play, who: Player, *rules: dict[str, Any], refused: bool = False) -> None:
    """A publication of rules."""
    code = who.publish(RULES, json.dumps(rules).encode())
    words = {True: "refused (0x87)", False: "taken"}
    came = words[False] if code < 0x80 else f"refused (0x{code:02X})"
    for rule in rules:
        play.expect(f"{who.name} sends {json.dumps(rule)}", came, words[refused])


def over(john: Player, mark: Player) -> None:
    """Until the rule has expired: then Mark gets no more."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        john.publish(TOPIC, b'{"illness": "steady angina"}', TABLE)
        if not mark.received():
            return
        time.sleep(0.02)
    raise Trouble("the rule does not expire")


if __name__ == "__main__":
    perform(main)
