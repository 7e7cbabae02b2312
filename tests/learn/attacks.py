"""Attacks on rights: what somebody of an example tries who has no right to it.

Each is denied by the policies that were written by hand. `who`, `action`, `topic`, and whose message it is.
"""

from __future__ import annotations

from typing import NamedTuple


class Attack(NamedTuple):
    who: str
    action: str
    topic: str
    publisher: str | None = None


def user(name: str, client: str | None = None) -> str:
    return f"user:{name}/client:{client or name}"


def writes(who: str, *topics: str) -> tuple[Attack, ...]:
    return tuple(Attack(user(who), "write", topic) for topic in topics)


def reads(who: str, topic: str, publisher: str) -> Attack:
    return Attack(user(who), "read", topic, user(publisher))


ATTACKS: dict[str, tuple[Attack, ...]] = {
    "mygym": (
        *writes("luca", "tr3/performance/ts1/speed", "bike1/race/r1/ride"),  # the role, but not enrolled
        *writes("alice", "tr1/performance/ts1/speed", "bike1/race/r1/ride"),  # a reader writes
        *writes("mary", "tr1/performance/ts2/speed", "bike1/race/r2/ride", "gym/settings", "tr1/performance/ts1"),
        reads("luca", "tr2/performance/ts1/speed", "bob"),
        reads("luca", "bike1/race/r1/ride", "mary"),
        reads("alice", "bike1/race/r1/ride", "rita"),  # of another role
        reads("rita", "tr2/performance/ts2/speed", "bob"),
        Attack(user("luca"), "subscribe", "+/performance/ts1/+"),
        Attack(user("luca"), "subscribe", "#"),
    ),
    "aups": (
        *writes("ada", "campodenno/sensor1/temperature", "campodenno/sensor9/air"),
        *writes("ugo", "campodenno/sensor2/humidity"),
        *writes("nos", "campodenno/sensor1", "other/sensor1/temperature", "campodenno/sensor1/temperature/raw"),
        reads("ugo", "campodenno/sensor1/temperature", "nos"),
        reads("ugo", "campodenno/sensor4/energy", "nos"),
        reads("ada", "campodenno/sensor3/wind", "nos"),
        reads("ada", "campodenno/sensor4/energy", "nos"),
        reads("nos", "campodenno/sensor1/temperature", "nos"),
        Attack(user("nos"), "subscribe", "#"),
    ),
    "bogus-subscriber": (
        *writes("B", "news/p"),
        *writes("A", "news/p"),
        *writes("P", "weather/p"),
        reads("B", "news/p", "P"),
        reads("P", "news/p", "P"),
        Attack(user("B"), "subscribe", "#"),
        Attack(user("B", "A"), "subscribe", "news/#"),
    ),
    "cardiologists": (
        *writes("andrew", "angina/pectoris"),
        *writes("eve", "angina/pectoris"),
        *writes("john", "angina/other", "records/john"),
        reads("eve", "angina/pectoris", "john"),
        reads("mark", "angina/pectoris", "jane"),
        reads("nina", "angina/pectoris", "john"),
        reads("jane", "angina/pectoris", "john"),
        reads("andrew", "angina/pectoris", "jane"),  # not his patient, whose own rules opened it to him for a while
    ),
    "classroom": (
        *writes("sara", "philosophy"),
        *writes("eve", "philosophy"),
        *writes("teacher", "mathematics", "philosophy/exam"),
        reads("eve", "philosophy", "teacher"),
        reads("teacher", "philosophy", "teacher"),
        reads("sara", "mathematics", "teacher"),
        Attack(user("eve"), "subscribe", "#"),
    ),
    "doorlock": (
        *writes("bell", "DL_unlock", "AccessGranted", "DL_lock"),
        *writes("hub", "AccessGranted", "AccessRequest", "lights"),
        *writes("lock", "DL_unlock"),
        *writes("garden", "DL_lock"),
        *writes("phone", "AccessRequest"),
        reads("bell", "DL_unlock", "phone"),
        reads("phone", "AccessRequest", "bell"),
        Attack(user("hub", "lock"), "read", "DL_unlock", user("phone")),  # under the name of another device
        Attack(user("hub"), "subscribe", "#"),
    ),
    "flood": (
        *writes("sensor-1", "sensors/sensor-2/bar", "alarm/sensor-1", "sensors", "sensors/sensor-1x/bar"),
        *writes("sensor-2", "sensors/sensor-1/bar"),
        *writes("display", "sensors/sensor-1/bar", "alarm/sensor-1"),
        reads("sensor-1", "sensors/sensor-2/bar", "sensor-2"),
        Attack(user("sensor-1"), "subscribe", "sensors/#"),
        Attack(user("sensor-1"), "subscribe", "#"),
    ),
    "patient": (
        *writes("mark", "angina/reports"),
        *writes("nina", "angina/register"),
        *writes("john", "records/john", "angina/reports/old"),
        reads("john", "angina/reports", "john"),
        reads("mark", "angina/reports/old", "john"),
        Attack(user("john"), "subscribe", "#"),
    ),
    "smart-home": (
        *writes("MD", "AccessRequest", "DL_unlock"),
        *writes("DB", "DL_unlock", "AccessGranted", "MD_motion"),
        *writes("hub", "AccessGranted"),
        *writes("cloud", "DL_unlock"),
        *writes("SC", "MD_motion"),
        *writes("DL", "DL_unlock"),
        reads("SP", "MD_motion", "MD"),
        reads("DL", "AccessRequest", "DB"),
        reads("SC", "MD_motion", "MD"),
        Attack(user("hub", "MD"), "write", "MD_motion"),
        Attack(user("SC"), "subscribe", "#"),
    ),
    "thermostat": (
        *writes("hall", "furnace/cellar/set", "alarm/cellar", "furnace/set"),
        *writes("cellar", "furnace/hall/set"),
        *writes("furnace", "furnace/hall/set"),
        *writes("panel", "alarm/cellar"),
        reads("hall", "furnace/cellar/set", "cellar"),
        reads("panel", "furnace/hall/set", "hall"),
        Attack(user("cellar", "hall"), "write", "furnace/hall/set"),  # under the name of another device
        Attack(user("hall"), "subscribe", "#"),
    ),
}
