"""Two brokers that are linked over the Internet, and over a satellite when that is lost.

    python examples/satellite/run.py

Starts the nodes and the two networks, cuts one of them, plays SEC-REDS, figures 1.6 and 3.1 to 3.9, and shows which
connection carried what. Exit code 0: all as it should be.
"""

from __future__ import annotations

import shutil
import socket
import sys
import threading
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
sys.dont_write_bytecode = True  # what is made stays in var/

from playing import (  # noqa: E402
    PATIENCE,
    Play,
    Player,
    Trouble,
    change,
    copy,
    link,
    node,
    node_certificates,
    perform,
    players,
    set_default,
)

LINK = "b1->b2"
NAMES = ("Internet", "satellite")
ADDRESSES = ("mqtts://127.0.0.1:8885", "mqtts://127.0.0.1:8443")


class Network:
    """Carries connections to a port, until it is cut."""

    def __init__(self, port: int, to: int) -> None:
        self.opened = 0
        self._to = to
        self._working = True
        self._sockets: list[socket.socket] = []
        self._server = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self._serve, daemon=True).start()

    def cut(self) -> None:
        self._working = False
        for each in self._sockets:
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it has ended
        self._sockets.clear()

    def mend(self) -> None:
        self._working = True

    def _serve(self) -> None:
        while True:
            near, _ = self._server.accept()
            if not self._working:
                near.close()
                continue
            self.opened += 1
            far = socket.create_connection(("127.0.0.1", self._to))
            self._sockets += [near, far]
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=_carry, args=(one, other), daemon=True).start()


def _carry(one: socket.socket, other: socket.socket) -> None:
    try:
        while data := one.recv(65536):
            other.sendall(data)
    except OSError:
        pass  # it was cut
    for each in (one, other):
        try:
            each.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


def carrier(config: Path) -> str:
    """Which network carries the link."""
    shown = link(config, LINK)
    return NAMES[ADDRESSES.index(shown["address"])] if shown["state"] == "connected" else "nothing"


def until(config: Path, name: str, states: list[str] | None = None) -> str:
    deadline = time.monotonic() + PATIENCE
    while carrier(config) != name or (states is not None and connections(config) != states):
        if time.monotonic() > deadline:
            raise Trouble(f"the {name} does not carry the link: {link(config, LINK)}")
        time.sleep(0.02)
    return name


def connections(config: Path) -> list[str]:
    return [each["state"] for each in link(config, LINK)["failover"]["connections"]]


def main() -> int:
    shutil.rmtree(HERE / "var", ignore_errors=True)  # what waited the last time
    node_certificates(HERE / "var/certs", "master", "slave")
    internet, satellite = Network(port=8885, to=8883), Network(port=8443, to=8884)
    play = Play()
    with node(HERE / "slave.yaml"):
        master = copy(HERE / "master.yaml")
        master.write_text(master.read_text().replace("var/", ""))
        with node(master):
            sensor, station = Player("sensor", port=1883), Player("station", port=1884)
            with players(sensor, station):
                station.subscribe("glacier/#")
                on_demand(play, master, internet, satellite, sensor, station)
                active(play, master, internet, sensor, station)
    return play.over()


def measured(play: Play, sensor: Player, station: Player, *values: str) -> None:
    """What the sensor publishes arrives, once and in order."""
    for value in values:
        sensor.publish("glacier/temperature", value.encode())
    came = [station.next().payload.decode() for _ in values]
    play.expect(f"published {', '.join(values)}; arrived", ", ".join(came), ", ".join(values))


def on_demand(play: Play, master: Path, internet: Network, satellite: Network, sensor: Player, station: Player) -> None:
    play.heading("Figure 3.1: the Internet carries, and there is a satellite")
    play.expect("carries", until(master, "Internet"), "Internet")
    play.expect("connections", connections(master), ["carries", "closed"])
    measured(play, sensor, station, "-4", "-5")

    play.heading("Figures 3.2 and 3.8: the Internet is lost; four tentatives, then the satellite")
    internet.cut()
    for value in ("-6", "-7"):
        sensor.publish("glacier/temperature", value.encode())
    sensor.publish("glacier/photo", b"large", {"require": "terrestrial"})
    play.expect("carries", until(master, "satellite"), "satellite")
    play.expect("arrived", [station.next().payload.decode() for _ in range(2)], ["-6", "-7"])
    play.expect("connections", connections(master), ["closed", "carries"])
    play.expect("waits for the Internet", link(master, LINK)["queue"], 1)

    play.heading("Figure 1.6: what must not go over the satellite has waited for the Internet")
    internet.mend()
    play.expect("carries", until(master, "Internet", ["carries", "closed"]), "Internet")
    play.expect("arrived", station.next().payload.decode(), "large")
    play.expect("connections over the satellite so far", satellite.opened, 1)

    play.heading("Figure 3.9: another default, on demand")
    set_default(master, LINK, ADDRESSES[1])
    play.expect("carries", until(master, "satellite", ["closed", "carries"]), "satellite")
    measured(play, sensor, station, "-8")


def active(play: Play, master: Path, internet: Network, sensor: Player, station: Player) -> None:
    play.heading("Figures 3.4 to 3.7: both connections are open, and the slave confirms another default")
    change(master, ("mode: on_demand", "mode: active"), ("restore: 1s", "restore: null"))
    play.expect("carries", until(master, "Internet", ["carries", "standby"]), "Internet")
    set_default(master, LINK, ADDRESSES[1])
    play.expect("carries", until(master, "satellite", ["standby", "carries"]), "satellite")
    sensor.publish("glacier/photo", b"over the Internet", {"require": "terrestrial"})
    came = station.next()
    floor = dict(came.properties)["floor"]
    play.expect("a photo takes the Internet meanwhile", floor.endswith("terrestrial"), True)
    measured(play, sensor, station, "-9")

    play.heading("Figure 3.5: the one that carries is lost, and the other takes over at once")
    set_default(master, LINK, ADDRESSES[0])
    until(master, "Internet", ["carries", "standby"])
    internet.cut()
    play.expect("carries", until(master, "satellite"), "satellite")
    measured(play, sensor, station, "-10")
    internet.mend()
    play.expect("the old default is a backup now", until(master, "satellite", ["standby", "carries"]), "satellite")


if __name__ == "__main__":
    perform(main)
