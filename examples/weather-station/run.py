"""The weather station of AUPS: six sensors, two users, protected topics, and rules that change while it runs.

    python examples/weather-station/run.py [--rate 10] [--rate 20] [--seconds 3] [--pipeline]

Starts a new node, registers everybody, plays the scenario, and shows who could read what. With `--pipeline` everything
also goes through the pipeline on Spark, which needs Java. Exit code 0: all as it should be. What the node has kept
stays in `var/`, so that it can be looked at afterwards.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import shutil
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE)]
sys.dont_write_bytecode = True  # what is made stays in var/

from playing import NOTHING, Play, Player, Received, Trouble, TurnedAway, node, perform, players  # noqa: E402
from scoring import Display, faults, pipeline, scored  # noqa: E402
from station import OverHttp, OverMqtt, Reader, Sealed, Sensor, Web, admin_token, id_of  # noqa: E402

from tidegate.client import KeysError, PrivateKey  # noqa: E402
from tidegate.keys import unseal  # noqa: E402

PORT = 1883
WEB = "http://127.0.0.1:8080"
KINDS = {
    "sensor1": ("temperature", {"value": 21.4, "unit": "°C"}),
    "sensor2": ("humidity", {"value": 63, "unit": "%"}),
    "sensor3": ("wind", {"value": 2.1, "unit": "m/s"}),
    "sensor4": ("energy", {"value": 0.8, "unit": "kWh"}),
    "sensor5": ("air", {"value": 17, "unit": "µg/m³"}),
    "sensor6": ("air", {"value": 31, "unit": "ppb"}),
}
HUMIDITY, ENERGY, WIND = "campodenno/sensor2/humidity", "campodenno/sensor4/energy", "campodenno/sensor3/wind"
TEMPERATURE = "campodenno/sensor1/temperature"


def main() -> int:
    said = argparse.ArgumentParser(description="The weather station of AUPS.")
    said.add_argument("--rate", type=int, action="append", help="packets a second; default: 10 and then 20")
    said.add_argument("--seconds", type=float, default=3.0, help="for how long at each rate")
    said.add_argument("--pipeline", action="store_true", help="also through the pipeline; needs Java")
    chosen = said.parse_args()
    config, var = HERE / "tidegate.yaml", HERE / "var"
    shutil.rmtree(var, ignore_errors=True)
    with node(config), pipeline(config) if chosen.pipeline else nullcontext() as running:
        play = Play()
        token = admin_token(config)
        keep(var / "admin.token", token)
        admin = Web(WEB, token)
        sensors = registered_sensors(play, admin)
        ada, ugo, tokens = registered_users(play, admin, var)
        talking = [one.player for one in sensors if isinstance(one, OverMqtt)]
        screens = displays(var, ada, ugo) if running is not None else ()
        with players(ada, ugo, *talking, *(one.reader for one in screens)):
            subscribed(play, ada, ugo)
            two_users(play, sensors, ada, ugo)
            keys(play, ada, ugo, tokens)
            wire(play, sensors)
            if running is not None:
                running.caught_up()  # it runs: what comes now goes through it at once
            sent = len(sensors)
            for rate in chosen.rate or (10, 20):
                sent += paced(play, sensors, (ada, ugo), rate, chosen.seconds)
            if running is not None:
                scored(play, running, screens, sent)
            policy(play, admin, sensors, ada, ugo)
            if running is not None:
                running.caught_up()  # what Rosa wants holds for what comes after it
            preference(play, admin, sensors, ada, ugo)
            if running is not None:
                why = ", ".join(nameless(each) for each in faults(running))
                play.expect("in quarantine now", why, "sealed, and denied by own-… (own-…)")
            revoked(play, admin, sensors, ada, ugo, tokens)
            return play.over()


# -- registration ------------------------------------------------------------------------------------------------------


def registered_sensors(play: Play, admin: Web) -> list[Sensor]:
    """Three that speak MQTT, one of a household, one that posts, and one that posts what it has sealed."""
    play.heading("Sensors register (POST /registration)")
    made: list[Sensor] = []
    for name, (kind, _) in KINDS.items():
        if name == "sensor4":
            made.append(OverMqtt(name, kind, Player("rosa", port=PORT, password="rosa", client="meter")))
            continue
        wanted = {"NodeId": name, "NodeType": kind, "CommunicationMode": "discrete"}
        if name == "sensor6":
            wanted["EncryptionScheme"] = "AES-256-GCM"
        given = admin.made("/registration", wanted)
        match name:
            case "sensor5":
                made.append(OverHttp(name, kind, WEB, given))
            case "sensor6":
                made.append(Sealed(name, kind, WEB, given))
            case _:
                player = Player(name, port=PORT, password=given["password"])
                made.append(OverMqtt(name, kind, player))
    for one in made:
        print(f"  {one.name}  {one.over:<12}  {one.topic}")
    return made


def registered_users(play: Play, admin: Web, var: Path) -> tuple[Reader, Reader, dict[str, str]]:
    """Each makes a key pair, and registers the public key. The private one stays with the user."""
    play.heading("Users register (POST /users)")
    readers: list[Reader] = []
    tokens: dict[str, str] = {}
    for name, reads in (("ada", ["temperature", "humidity"]), ("ugo", ["humidity"])):
        private = PrivateKey.generate(os.urandom)
        keep(var / f"{name}.key", private.text())
        asked = {"name": name, "attributes": {"reads": reads}, "public_key": str(private.public)}
        given = admin.made("/users", asked)
        keep(var / f"{name}.password", given["password"])
        tokens[name] = given["token"]
        readers.append(Reader(name, port=PORT, password=given["password"], private=private))
        print(f"  {name} may read {' and '.join(reads)}")
    return readers[0], readers[1], tokens


def displays(var: Path, ada: Reader, ugo: Reader) -> Sequence[Display]:
    """For what the pipeline publishes: Ada's, Ugo's, and one of Ada's that chooses by score."""
    hers, his = ((var / f"{name}.password").read_text().strip() for name in ("ada", "ugo"))
    return (
        Display(ada, hers, port=PORT),
        Display(ugo, his, port=PORT),
        Display(ada, hers, port=PORT, where="o.scores.precision >= 0.5"),
    )


def keep(file: Path, text: str) -> None:
    """A secret, for trying things afterwards."""
    file.touch(0o600)
    file.write_text(f"{text}\n")


# -- the scenario ------------------------------------------------------------------------------------------------------


def subscribed(play: Play, ada: Reader, ugo: Reader) -> None:
    play.heading("Who may subscribe")
    for reader in (ada, ugo):
        play.subscribes(reader, TEMPERATURE, granted=reader is ada)
        play.subscribes(reader, ENERGY, granted=False)
        play.subscribes(reader, "campodenno/#")  # some of it is allowed; each message is decided by itself


def two_users(play: Play, sensors: Sequence[Sensor], ada: Reader, ugo: Reader) -> None:
    measured(play, "The two users", sensors, ada, ugo, {"ada": {TEMPERATURE, HUMIDITY}, "ugo": {HUMIDITY}})
    sealed = json.loads(ugo.taken[HUMIDITY])
    play.expect("what comes over the wire", ", ".join(sealed), "keyId, data")


def measured(
    play: Play, title: str, sensors: Sequence[Sensor], ada: Reader, ugo: Reader, reads: Mapping[str, set[str]]
) -> None:
    """Each sensor sends once; a row for each says who could read it."""
    scene = play.scene(title, ada, ugo)
    for sensor in sensors:
        record = reading(sensor)
        answer = sensor.send(record)
        came = [" and ".join(seen(each, record) for each in one.received()) or NOTHING for one in (ada, ugo)]
        should = [value(record) if sensor.topic in reads[one.name] else NOTHING for one in (ada, ugo)]
        right = came == should and answer in ("ok", "202")
        play.wrong += not right
        mark = "✓" if right else f"WRONG: expected {' | '.join(should)}"
        scene.rows.append((f"{sensor.name} ({sensor.over})", sensor.topic, answer, *came, mark))
    scene.show()


def reading(sensor: Sensor) -> dict[str, Any]:
    """What it measures now."""
    return {**KINDS[sensor.name][1], "at": int(time.time() * 1000)}


def value(record: Mapping[str, Any]) -> str:
    return f"{record['value']} {record['unit']}"


def seen(message: Received, record: Mapping[str, Any]) -> str:
    """What a reader has made of a message."""
    try:
        came = json.loads(message.payload)
    except ValueError:
        return message.payload.decode()
    return value(record) if came == record else "something else!"


def keys(play: Play, ada: Reader, ugo: Reader, tokens: Mapping[str, str]) -> None:
    """Who is given the key of a message that Ada has received."""
    play.heading("Keys")
    id = id_of(ada.taken[TEMPERATURE])
    play.expect("ugo asks for the key of the temperature over MQTT", ugo.asks(id), "denied by default")
    refused = ugo.asks_web(Web(WEB, tokens["ugo"]), id)
    play.expect("ugo asks for it over HTTP", refused, "403: denied by default")
    play.expect("ada asks for it over HTTP", ada.asks_web(Web(WEB, tokens["ada"]), id) or "given", "given")
    play.expect("ugo reads the answer that ada was given", stolen_answer(ada, ugo), "it is not for this private key")


def stolen_answer(ada: Reader, ugo: Reader) -> str:
    ugo.mark = ada.mark
    try:
        ugo.reads(ada.answer)
    except KeysError as refused:
        return str(refused).partition(",")[0]
    return "he can"


def wire(play: Play, sensors: Sequence[Sensor]) -> None:
    """Somebody between a sensor and the node."""
    play.heading("On the way from sensor6, which seals what it sends")
    (sensor,) = (one for one in sensors if isinstance(one, Sealed))
    play.expect("the same body again", sensor.again().partition(":")[0], "409")
    clear = json.dumps(KINDS["sensor6"][1]).encode()
    play.expect("its token and a body in clear", sensor.post(clear).partition(":")[0], "403")


def paced(play: Play, sensors: Sequence[Sensor], readers: Sequence[Reader], rate: int, seconds: float) -> int:
    """So many packets a second, from all sensors in turn; how many the node has taken."""
    play.heading(f"{rate} packets a second")
    ada, times = readers[0], list[float]()
    sent = wanted = read = 0
    begun = time.monotonic()
    for number, sensor in zip(range(round(rate * seconds)), itertools.cycle(sensors), strict=False):
        time.sleep(max(0.0, begun + number / rate - time.monotonic()))
        record = {**reading(sensor), "number": number}
        start = time.monotonic()
        sent += sensor.send(record) in ("ok", "202")
        if sensor.topic in (TEMPERATURE, HUMIDITY):
            wanted += 1
            read += json.loads(ada.opened(ada.next()).payload) == record
            times.append(time.monotonic() - start)
    play.expect("sent", sent, round(rate * seconds))
    play.expect("read by ada, of those that she may read", f"{read} of {wanted}", f"{wanted} of {wanted}")
    print(
        f"  from sensor to reader: median {statistics.median(times) * 1000:.1f} ms, at most {max(times) * 1000:.1f} ms"
    )
    for reader in readers:
        reader.received()
    return sent


def policy(play: Play, admin: Web, sensors: Sequence[Sensor], ada: Reader, ugo: Reader) -> None:
    play.heading("A policy: the neighbours may read what Rosa's meter says")
    new = {"id": "neighbours", "subject": ["user:ada", "user:ugo"], "topic": "campodenno/+/energy", "action": "read"}
    tried = admin.ask("POST", "/policies?dry_run=true", new)[1]
    would = [
        f"user:{name} {action} {ENERGY}: DENY by default -> ALLOW by neighbours"
        for name in ("ada", "ugo")
        for action in ("read", "subscribe")
    ]
    tries(play, tried, would)
    reads = {"ada": {TEMPERATURE, HUMIDITY}, "ugo": {HUMIDITY}}
    measured(play, "Nothing has changed", sensors[3:4], ada, ugo, reads)
    play.expect("then made", admin.ask("POST", "/policies?why=asked+for", new)[0], 201)
    reads = {name: topics | {ENERGY} for name, topics in reads.items()}
    measured(play, "From the next message on", sensors[3:4], ada, ugo, reads)


def preference(play: Play, admin: Web, sensors: Sequence[Sensor], ada: Reader, ugo: Reader) -> None:
    play.heading("A preference: Rosa wants only Ada to see it")
    rosa = Web(WEB, admin.made("/tokens", {"role": "user", "user": "rosa"})["token"])
    wish = {"topic": ENERGY, "when": "has(s.user) && s.user == 'ada'"}
    status, tried = rosa.ask("POST", "/me/preferences?dry_run=true", wish)
    play.expect("tried first", status, 200)
    play.expect("what she is told of others", tried["effect"] or "nothing", "nothing")
    play.expect("then made", rosa.ask("POST", "/me/preferences", wish)[0], 201)
    reads = {"ada": {TEMPERATURE, HUMIDITY, ENERGY}, "ugo": {HUMIDITY}}
    measured(play, "From the next message on", sensors[3:4], ada, ugo, reads)
    refused = nameless(ugo.asks(id_of(ada.taken[ENERGY])))
    play.expect("ugo asks for the key of that message", refused, "denied by own-…")
    play.expect("policies are not hers", rosa.ask("GET", "/policies")[0], 403)


def tries(play: Play, answer: Mapping[str, Any], would: Sequence[str]) -> None:
    """What a dry run says would be decided differently; nothing is."""
    found = sorted(
        f"{each['as'].partition('/')[0]} {each['action']} {each['topic']}: "
        f"{each['before'].partition(' (')[0]} -> {nameless(each['after'].partition(' (')[0])}"
        for each in answer["effect"]["changes"]
    )
    for came, should in itertools.zip_longest(found, would, fillvalue="nothing"):
        play.expect("tried first", came, should)


def nameless(text: str) -> str:
    """Preferences that users make have random names."""
    return re.sub(r"own-[0-9a-f-]+", "own-…", text)


def revoked(
    play: Play, admin: Web, sensors: Sequence[Sensor], ada: Reader, ugo: Reader, tokens: Mapping[str, str]
) -> None:
    play.heading("Ugo is removed")
    old = ugo.taken[HUMIDITY]
    secret = ugo.keys.get(id_of(old), now=time.monotonic())
    if secret is None:
        raise Trouble("ugo has lost his key")
    done = admin.ask("DELETE", "/directory/users/ugo?why=moved+away", **{"If-Match": "*"})[0]
    play.expect("DELETE /directory/users/ugo", done, 200)
    play.expect("he connects", connects("ugo"), "ugo may not connect: 0x86")
    asked = ugo.asks_web(Web(WEB, tokens["ugo"]), id_of(old))
    play.expect("he asks for a key", asked.partition(":")[0], "401")
    humidity = sensors[1]
    record = reading(humidity)
    humidity.send(record)
    (message,) = ada.received()
    play.expect("ada reads the next message", seen(message, record), "63 %")
    play.expect("the key that ugo had opens it", opens(secret, ada.taken[HUMIDITY]), "no")
    play.expect("and what he has received before", opens(secret, old), "yes")  # who has had a key has it


def opens(secret: bytes, message: bytes) -> str:
    try:
        unseal(secret, message, topic=HUMIDITY)
    except KeysError:
        return "no"
    return "yes"


def connects(name: str) -> str:
    try:
        Player(name, port=PORT, password=(HERE / f"var/{name}.password").read_text().strip()).leave()
    except TurnedAway as refused:
        return str(refused)
    return "may connect"


if __name__ == "__main__":
    perform(main)
