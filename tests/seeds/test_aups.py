"""AUPS: its two users, the policies they are under, and how those change while the node runs.

Figures 1 to 5 (the middleware, its data format, keys, and the PUB and REC transactions) are of the pipeline and the
keys. Tables 1 to 3 (primitives, message format, QoS) are MQTT itself: `tests/conformance`. Figures 6 and 7 are
measurements.
"""

from __future__ import annotations

import pytest

from seeds.town import DENIED, GRANTED, OK, Town

TEMPERATURE, HUMIDITY = "campodenno/sensor1/temperature", "campodenno/sensor2/humidity"
KINDS = {
    "temperature": TEMPERATURE,
    "humidity": HUMIDITY,
    "wind": "campodenno/sensor3/wind",
    "energy": "campodenno/sensor4/energy",
    "air": "campodenno/sensor5/air",
    "rain": "campodenno/sensor6/rain",
}


def station(former: str, latter: str) -> str:
    """One policy for each of the six topics, and which of the data each user may have."""
    policies = "".join(
        f"  - {{id: {kind}, subject: '*', topic: {topic}, action: read, when: \"'{kind}' in s.may\"}}\n"
        for kind, topic in KINDS.items()
    )
    return f"""
directory:
  users:
    nos: {{roles: [middleware]}}
    former: {{attributes: {{may: [{former}]}}}}
    latter: {{attributes: {{may: [{latter}]}}}}
policies:
  - {{id: station, subject: "role:middleware", topic: "campodenno/#", action: write}}
{policies}"""


def test_aups_section_5_1_the_two_users() -> None:
    """The former has access to both topics, the latter only to the second."""
    town = Town(station("temperature, humidity", "humidity"))
    nos, former, latter = (town.come(name) for name in ("nos", "former", "latter"))
    assert [one.subscribe(TEMPERATURE) for one in (former, latter)] == [GRANTED, DENIED]
    assert [one.subscribe(HUMIDITY) for one in (former, latter)] == [GRANTED, GRANTED]
    for topic in (TEMPERATURE, HUMIDITY):
        assert nos.publish(topic, {"value": 21}) == OK
    assert former.topics() == [TEMPERATURE, HUMIDITY]
    assert latter.topics() == [HUMIDITY]


@pytest.mark.parametrize("filter", ["#", "campodenno/#", "campodenno/+/+", "+/+/temperature"])
def test_aups_section_5_1_asking_for_more_gives_no_more(filter: str) -> None:
    town = Town(station("temperature, humidity", "humidity"))
    nos, former, latter = (town.come(name) for name in ("nos", "former", "latter"))
    for user in (former, latter):
        user.subscribe(filter)
    for topic in KINDS.values():
        nos.publish(topic)
    asked = [TEMPERATURE] if filter.endswith("temperature") else [TEMPERATURE, HUMIDITY]
    assert former.topics() == asked
    assert latter.topics() == [topic for topic in asked if topic == HUMIDITY]


def test_aups_section_5_1_the_same_for_each_of_the_six_kinds_of_data() -> None:
    town = Town(station(", ".join(KINDS), "rain, wind"))
    nos, former, latter = (town.come(name) for name in ("nos", "former", "latter"))
    for user in (former, latter):
        user.subscribe("campodenno/#")
    for topic in KINDS.values():
        nos.publish(topic)
    assert former.topics() == list(KINDS.values())
    assert latter.topics() == [KINDS["wind"], KINDS["rain"]]


def test_aups_section_5_1_topics_can_be_grouped_under_one_attribute() -> None:
    """The administrator chooses: an attribute for each topic, or one for several."""
    town = Town(
        """
directory:
  users: {nos: {}, former: {groups: [comfort]}, latter: {groups: [energy]}}
policies:
  - {id: w, subject: "user:nos", topic: "campodenno/#", action: write}
  - {id: t, subject: "group:comfort", topic: campodenno/+/temperature, action: read}
  - {id: h, subject: "group:comfort", topic: campodenno/+/humidity, action: read}
  - {id: e, subject: "group:energy", topic: campodenno/+/energy, action: read}
"""
    )
    nos, former, latter = (town.come(name) for name in ("nos", "former", "latter"))
    for user in (former, latter):
        user.subscribe("campodenno/#")
    for topic in KINDS.values():
        nos.publish(topic)
    assert former.topics() == [TEMPERATURE, HUMIDITY]
    assert latter.topics() == [KINDS["energy"]]


def test_aups_section_3_3_policies_are_loaded_at_run_time() -> None:
    """New policies decide from the next message on, also for who has subscribed before."""
    town = Town(station("temperature, humidity", "humidity"))
    nos, former, latter = (town.come(name) for name in ("nos", "former", "latter"))
    for user in (former, latter):
        user.subscribe("campodenno/#")
    nos.publish(TEMPERATURE)
    assert (former.topics(), latter.topics()) == ([TEMPERATURE], [])
    town.change(station("humidity", "temperature"))
    nos.publish(TEMPERATURE)
    nos.publish(HUMIDITY)
    assert (former.topics(), latter.topics()) == ([HUMIDITY], [TEMPERATURE])


def test_aups_section_3_2_levels_and_wildcards_of_topics() -> None:
    town = Town("policies: open\n")
    sensor, exact, one_level, all_levels = (town.come(client=name) for name in ("s", "a", "b", "c"))
    exact.subscribe("sensor/17/temperature")
    one_level.subscribe("sensor/+/temperature")
    all_levels.subscribe("sensor/#")
    published = ["sensor/17/temperature", "sensor/18/temperature", "sensor/17/humidity", "sensor/17/temperature/max"]
    for topic in published:
        sensor.publish(topic)
    assert exact.topics() == published[:1]
    assert one_level.topics() == published[:2]
    assert all_levels.topics() == published


def test_aups_section_3_users_register_before_they_receive_anything() -> None:
    town = Town(station("temperature", "humidity"))
    stranger = town.come("stranger")
    assert stranger.connack.reason == DENIED
    nameless = town.come()
    assert nameless.subscribe("campodenno/#") == DENIED


def test_aups_section_4_1_policies_on_the_content_of_single_messages() -> None:
    """What AUPS leaves to others because of its cost, and decides per topic only."""
    town = Town(
        """
directory: {users: {nos: {}, reader: {}}}
policies:
  - {id: w, subject: "user:nos", topic: "campodenno/#", action: write}
  - {id: r, subject: "user:reader", topic: "campodenno/#", action: read, when: o.payload.quality >= 0.8}
"""
    )
    nos, reader = town.come("nos"), town.come("reader")
    reader.subscribe("campodenno/#")
    for content in ({"quality": 0.9}, {"quality": 0.7}, {}, "no JSON"):
        nos.publish(TEMPERATURE, content)
    assert reader.contents() == [{"quality": 0.9}]
