"""The four cases of forwarding and the four scenarios of "levels", over real plain and real TLS connections.

    python examples/levels/run.py

Plays them twice: with modified clients, which say in user properties what they demand (tidegate.yaml), and with
unmodified ones, MQTT 3.1.1 and 5, whose connection says it for them (unmodified.yaml). The tables show the floor that
each subscriber was told: the lowest level on the way of the message. Exit code 0: all as it should be.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
sys.dont_write_bytecode = True  # what is made stays in var/

from playing import NOTHING, Play, Player, Received, certificates, node, perform, players  # noqa: E402

PLAIN, TLS = 1883, 8883
CERTS = HERE / "var/certs"
TOPIC = "home/kitchen/temperature"
DEMAND, SHORT, RELAX = {"require": "tls"}, {"s": "1"}, {"require": "none"}


def floor(message: Received, _sent: bytes) -> str:
    """What a subscriber knows of the way; MQTT 3.1.1 cannot tell."""
    return dict(message.properties).get("floor", "got it")


def plain(name: str, *, v5: bool = True, says: dict[str, str] | None = None) -> Player:
    return Player(name, port=PLAIN, v5=v5, says=says)


def tls(name: str, *, v5: bool = True, says: dict[str, str] | None = None) -> Player:
    return Player(name, port=TLS, certs=CERTS, v5=v5, says=says)


def modified(play: Play) -> None:
    """Clients that say what they demand: when they connect, with a message, or with a subscription."""
    insecure, secure, strict = plain("plain pub"), tls("tls pub"), tls("strict pub", says=DEMAND)
    publishers = (insecure, secure, strict)
    readers = open_plain, open_tls, demands, per_filter, relaxed = (
        plain("plain sub"),
        tls("tls sub"),
        tls("strict sub", says=DEMAND),
        tls("strict filter"),
        tls("relaxed sub", says=DEMAND),
    )
    with players(*publishers, *readers):
        for reader in (open_plain, open_tls, demands):
            play.subscribes(reader, TOPIC)
        play.subscribes(per_filter, TOPIC, SHORT)
        play.subscribes(relaxed, TOPIC, RELAX)

        scene = play.scene(
            "Figure 1: four cases of forwarding, and nobody demands anything", open_plain, open_tls, describe=floor
        )
        scene.publishes(secure, TOPIC, "21", {"plain sub": "tls", "tls sub": "tls"}, called="cases 2 and 1")
        scene.publishes(insecure, TOPIC, "21", {"plain sub": "plain", "tls sub": "plain"}, called="cases 4 and 3")
        scene.show()
        for reader in (demands, per_filter, relaxed):
            reader.received()

        scene = play.scene("Scenarios 1 to 4: who receives what", *readers, describe=floor)
        everybody = {reader.name: "tls" for reader in readers}
        secured = everybody | {"plain sub": NOTHING}
        # scenario 1 (figure 2): the publisher extends its level to the subscribers
        scene.publishes(strict, TOPIC, "21", secured, called="1: demands tls since CONNECT")
        scene.publishes(secure, TOPIC, "21", secured, says=DEMAND, called="1: demands tls for this message")
        scene.publishes(secure, TOPIC, "21", secured, says=SHORT, called="1: the same in seven bytes")
        # scenario 2 (figure 3): two subscribers extend theirs to the publishers; scenario 4: one relaxes it
        gets = {"plain sub": "plain", "tls sub": "plain", "relaxed sub": "plain"}
        scene.publishes(insecure, TOPIC, "21", gets, called="2, 4: demands nothing")
        scene.publishes(secure, TOPIC, "21", everybody, called="2: demands nothing")
        # scenario 3: the publisher relaxes
        scene.publishes(strict, TOPIC, "21", everybody, says=RELAX, called="3: relaxes for this message")
        scene.show()


def unmodified(play: Play) -> None:
    """Clients as they are; the broker takes their connection for what they want (section V-A)."""
    publishers = old_plain, new_plain, old_tls, new_tls = (
        plain("plain 3.1.1", v5=False),
        plain("plain 5"),
        tls("tls 3.1.1", v5=False),
        tls("tls 5"),
    )
    relaxing = tls("relaxing 5")
    readers = (
        plain("p311", v5=False),
        plain("p5"),
        tls("t311", v5=False),
        tls("t5"),
        tls("relaxed", says=RELAX),
    )
    with players(*publishers, relaxing, *readers):
        for reader in readers:
            play.subscribes(reader, TOPIC)
        scene = play.scene("Unmodified clients: each connection demands its own level", *readers, describe=floor)
        for publisher in (old_plain, new_plain):
            scene.publishes(publisher, TOPIC, "21", {"p311": "got it", "p5": "plain", "relaxed": "plain"})
        for publisher in (old_tls, new_tls):
            scene.publishes(publisher, TOPIC, "21", {"t311": "got it", "t5": "tls", "relaxed": "tls"})
        gets = {"p311": "got it", "p5": "tls", "t311": "got it", "t5": "tls", "relaxed": "tls"}
        scene.publishes(relaxing, TOPIC, "21", gets, says=RELAX, called="relaxes for this message")
        scene.show()


def main() -> int:
    certificates(CERTS)
    play = Play()
    for file, acts in (("tidegate.yaml", modified), ("unmodified.yaml", unmodified)):
        play.heading(f"{acts.__name__.capitalize()} clients ({file})")
        with node(HERE / file):
            acts(play)
    return play.over()


if __name__ == "__main__":
    perform(main)
