"""The teacher and the students: a table of visibility in the message itself.

    python examples/classroom/run.py

Starts the node, plays SEC-REDS' figures 2.14 to 2.16, and shows who received what. Exit code 0: all as it should be.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
sys.dont_write_bytecode = True  # what is made stays in var/

from playing import ALL, Play, Player, Received, node, parts, perform, players  # noqa: E402

PORT = 1883
TOPIC = "philosophy"
LESSON = {
    "Socrates": "I know that I know nothing.",
    "Kant": "Dare to know.",
    "Wittgenstein": "What can be said at all can be said clearly.",
}
TABLE = {
    "view": json.dumps({"group:first": ["/Socrates"], "group:second": ["/Socrates", "/Kant"], "group:third": "all"})
}
MORE = {"view": json.dumps({"role:student": ["/Socrates"], "group:second": ["/Kant"]})}
KANT = {"where": "has(o.payload.Kant)"}


def what(message: Received, sent: bytes) -> str:
    """The parts that came. The table itself is for the broker: nobody else is told who sees what."""
    return "the table!" if any(name == "view" for name, _ in message.properties) else parts(message, sent)


def main() -> int:
    with node(HERE / "tidegate.yaml"):
        teacher, sara, theo, tina, ugo, eve = everybody = [
            Player(name, port=PORT, password=name) for name in ("teacher", "sara", "theo", "tina", "ugo", "eve")
        ]
        students = (sara, theo, tina, ugo)
        with players(*everybody):
            play = Play()
            play.heading("Who may subscribe")
            for student in students:
                play.subscribes(student, TOPIC)
            play.subscribes(eve, TOPIC, granted=False)

            scene = play.scene("The lesson (figures 2.14 to 2.16)", *students, describe=what)
            gets = {"sara": "Socrates", "theo": "Socrates, Kant", "tina": ALL}
            scene.publishes(teacher, TOPIC, LESSON, gets, says=TABLE, called="a lesson")
            unite = dict.fromkeys(("sara", "tina", "ugo"), "Socrates") | {"theo": "Socrates, Kant"}
            scene.publishes(teacher, TOPIC, LESSON, unite, says=MORE, called="another table")
            scene.publishes(tina, TOPIC, LESSON, {}, refused=True, called="a student's own lesson")
            scene.show()

            play.heading("Only lessons about Kant, please")
            for student in students:
                play.subscribes(student, TOPIC, KANT)
            scene = play.scene("A condition sees no more than the student (it cannot probe)", *students, describe=what)
            scene.publishes(
                teacher, TOPIC, LESSON, {"theo": "Socrates, Kant", "tina": ALL}, says=TABLE, called="a lesson"
            )
            scene.publishes(teacher, TOPIC, {"Socrates": "Know thyself."}, {}, says=TABLE, called="one without Kant")
            scene.show()
            return play.over()


if __name__ == "__main__":
    perform(main)
