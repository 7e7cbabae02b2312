"""The patient and the cardiologists: everybody sees the parts that are for them, over connections that are trusted.

    python examples/patient/run.py

Makes certificates, starts the node, plays SEC-REDS' appendix B, and shows who received what. Exit code 0: all as it
should be.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
sys.dont_write_bytecode = True  # what is made stays in var/

from playing import ALL, Play, Player, certificates, node, perform, players  # noqa: E402

PORT = 8883
CERTS = HERE / "var/certs"
REPORTS, REGISTER = "angina/reports", "angina/register"
PEOPLE = ("john", "andrew", "mark", "eve", "nina")

REPORT = {
    "person": {"name": "John", "surname": "Patient", "born": "4/2/1948", "country": "Italy"},
    "illness": "steady angina",
    "therapy": {"pills a day": "if needed", "pill": "Carvasin 10mg"},
}
CONDITIONS = "illness, therapy"
# John's table of visibility: cardiologists see his conditions, his physician sees who he is as well
TABLE = {"view": json.dumps({"group:cardiologists": ["/illness", "/therapy"], "user:andrew": "all"})}
NARROW = {"view": json.dumps({"group:cardiologists": ["/illness", "/person/country"], "user:andrew": "all"})}


def main() -> int:
    certificates(CERTS, *PEOPLE)
    with node(HERE / "tidegate.yaml"):
        john, andrew, mark, eve, nina = everybody = [
            Player(name, port=PORT, certs=CERTS, certificate=name, password="eve" if name == "eve" else None)
            for name in PEOPLE
        ]
        with players(*everybody):
            readers = (andrew, mark, eve, nina)
            play = Play()
            play.heading("Who may subscribe")
            for reader in readers:
                play.subscribes(reader, "angina/+")
            play.subscribes(john, "angina/+", granted=False)  # he publishes; no policy lets him read

            scene = play.scene("John's own table of visibility (appendix B)", *readers)
            gets = {"andrew": ALL, "mark": CONDITIONS, "eve": CONDITIONS}
            scene.publishes(john, REPORTS, REPORT, gets, says=TABLE, called="his report")
            trusted = {"andrew": ALL, "mark": CONDITIONS}
            scene.publishes(
                john,
                REPORTS,
                REPORT,
                trusted,
                says=TABLE | {"require": "trusted"},
                called="the same, only over trusted connections",
            )
            scene.publishes(
                john, REPORTS, "steady angina", {"andrew": ALL}, says=TABLE, called="a text: all of it or nothing"
            )
            scene.publishes(john, REPORTS, REPORT, dict.fromkeys(gets, ALL) | {"nina": ALL}, called="without a table")
            scene.publishes(mark, REPORTS, {"illness": "none"}, {}, refused=True, called="a false report")
            scene.show()

            scene = play.scene("The administrator's table", *readers)
            scene.publishes(john, REGISTER, REPORT, gets, called="to the register")
            scene.show()

            scene = play.scene("Both tables: what both of them show", *readers)
            both = {"andrew": ALL, "mark": "illness", "eve": "illness"}
            scene.publishes(john, REGISTER, REPORT, both, says=NARROW, called="to the register, with a table")
            scene.show()
            return play.over()


if __name__ == "__main__":
    perform(main)
