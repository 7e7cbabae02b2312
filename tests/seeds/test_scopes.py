"""Scoping and Execution Monitoring for IoT Middleware ("scopes"): what one scope and its policies can say.

The thesis is about several scopes, brokering between them, and monitors on links: figures 3.1 to 3.3, 3.7 and 3.8,
policies 1 and 2 of the case study, appendix A and everything in chapter 4 are about those. Tables 2.1 and 2.2 and
figures 2.2 to 2.4 are MQTT itself (`tests/conformance`). Chapter 5 is measurements.
"""

from __future__ import annotations

import pytest

from seeds.town import DENIED, GRANTED, Town

# device: what it consumes, what it produces
TABLE_3_1 = {
    "MD": ((), ("MD_motion", "MD_no_motion")),
    "SC": ((), ()),
    "DL": (("DL_unlock", "DL_lock"), ()),
    "DB": (("MD_motion", "MD_no_motion"), ("AccessRequest",)),
    "SP": (("AccessRequest",), ("AccessGranted", "AccessDenied", "DL_unlock")),
}
TABLE_3_2 = ("MD_motion", "MD_no_motion", "DL_unlock", "DL_lock", "AccessRequest", "AccessGranted", "AccessDenied")


def home() -> str:
    """The table as access policies."""
    lines = []
    for device, (consumes, produces) in TABLE_3_1.items():
        lines += [
            f"  - {{id: {device}-r-{event}, subject: 'client:{device}', topic: {event}, action: read}}"
            for event in consumes
        ]
        lines += [
            f"  - {{id: {device}-w-{event}, subject: 'client:{device}', topic: {event}, action: write}}"
            for event in produces
        ]
    return "policies:\n" + "\n".join(lines) + "\n"


@pytest.mark.parametrize("device", TABLE_3_1)
@pytest.mark.parametrize("event", TABLE_3_2)
def test_scopes_tables_3_1_and_3_2_devices_produce_and_consume_what_they_should(device: str, event: str) -> None:
    town = Town(home())
    one = town.come(client=device)
    consumes, produces = TABLE_3_1[device]
    assert one.subscribe(event) == (GRANTED if event in consumes else DENIED)
    assert (one.publish(event) == DENIED) is (event not in produces)


def test_scopes_case_study_who_hears_of_whom() -> None:
    town = Town(home())
    devices = {device: town.come(client=device) for device in TABLE_3_1}
    for device, (consumes, _) in TABLE_3_1.items():
        for event in consumes:
            devices[device].subscribe(event)
    for _, produces in TABLE_3_1.values():
        for event in produces:
            publisher = next(name for name, (_, made) in TABLE_3_1.items() if event in made)
            devices[publisher].publish(event)
    assert {name: sorted(set(one.topics())) for name, one in devices.items()} == {
        "MD": [],
        "SC": [],
        "DL": ["DL_unlock"],
        "DB": ["MD_motion", "MD_no_motion"],
        "SP": ["AccessRequest"],
    }


def test_scopes_section_3_4_3_roles_publish_and_subscribe_to_their_events() -> None:
    """pub(r) and sub(r) of two roles, disjoint for each role, in one scope (figures 3.4 to 3.6 use five)."""
    town = Town(
        """
directory: {users: {d1: {roles: [r1]}, d2: {roles: [r2]}}}
policies:
  - {id: pub-r1, subject: "role:r1", topic: a, action: write}
  - {id: sub-r1, subject: "role:r1", topic: b, action: read}
  - {id: pub-r2, subject: "role:r2", topic: b, action: write}
  - {id: sub-r2, subject: "role:r2", topic: a, action: read}
"""
    )
    d1, d2 = town.come("d1"), town.come("d2")
    assert [d1.subscribe(topic) for topic in ("a", "b")] == [DENIED, GRANTED]
    assert [d2.subscribe(topic) for topic in ("a", "b")] == [GRANTED, DENIED]
    assert [one.publish(topic) == DENIED for one in (d1, d2) for topic in ("a", "b")] == [False, True, True, False]
    assert (d1.topics(), d2.topics()) == (["b"], ["a"])


def test_scopes_section_3_4_1_without_a_policy_every_event_reaches_every_subscriber() -> None:
    """The most liberal one, which is what a bridge of Mosquitto does."""
    town = Town("policies: open\n")
    one, other = town.come(client="one"), town.come(client="other")
    other.subscribe("#")
    one.publish("health/alert")
    assert other.topics() == ["health/alert"]
