"""Regulating data sharing across MQTT environments ("sharing"): its examples, as far as they concern one environment.

Example 2, the brokers' policies of example 6, the forwarding preferences of example 7 and what crosses a bridge in
examples 8 and 9 are about several nodes: `tests/examples/test_two_gyms.py`. Table 1, the control packets, is what
`tests/wire` and `tests/conformance` are about. Table 2 and figures 4 to 7 are measurements.
"""

from __future__ import annotations

from typing import Any

import pytest

from pure import End
from seeds.town import DENIED, GRANTED, NOBODY, OK, Town
from tidegate import wire
from tidegate.predicate import PredicateFailed, compile

WHAT = ("speed", "avgspeed", "length", "duration", "heartbeats")

PEOPLE = """
directory:
  users:
    mary: {roles: [frequenter], attributes: {enrolled: [ts], machine: treadmill}}
    bob: {roles: [frequenter], attributes: {enrolled: [ts], machine: treadmill}}
    luca: {roles: [frequenter], attributes: {enrolled: [], machine: rower}}
    alice: {roles: [coach], attributes: {shift: "08:00-14:00"}}
    john: {roles: [coach], attributes: {shift: "08:00-14:00"}}
"""
POLICIES = """
policies:
  - {id: p1, subject: "role:frequenter", topic: +/performance/ts/+, action: [read, write], when: "'ts' in s.enrolled"}
  - {id: p2, subject: "role:coach", topic: +/performance/#, action: read, when: "within(e.now, s.shift)"}
"""
UP1 = "preferences: [{id: up1, user: mary, topic: +/performance/ts/+, when: s.role == 'coach' && s.user == 'alice'}]\n"


def preference(owner: str, when: str, topic: str = "+/performance/#", keep: str = "all") -> str:
    return f'preferences: [{{id: up, user: {owner}, topic: {topic}, when: "{when}", keep: {keep}}}]\n'


# -- section 1 -------------------------------------------------------------------------------------------------------

RACE = """
directory:
  users:
    mary: {roles: [rider], attributes: {races: [r1], gym: MyGym}}
    bob: {roles: [rider], attributes: {races: [r1], gym: MyGym}}
    rita: {roles: [rider], attributes: {races: [r1], gym: RemoteGym}}
    luca: {roles: [rider], attributes: {races: [], gym: MyGym}}
policies:
  - id: race
    subject: role:rider
    topic: +/race/r1
    action: [read, write]
    when: "'r1' in s.races && within(e.now, '09:00-11:00')"
"""
RIDE = {"rider": "mary", "bike": 7, "speed": 31.5, "distance": 12.4}


def test_sharing_introduction_rides_are_shared_while_the_race_lasts_and_with_registered_users() -> None:
    town = Town(RACE)
    mary, bob, luca = (town.come(name) for name in ("mary", "bob", "luca"))
    assert bob.subscribe("+/race/r1") == GRANTED
    assert luca.subscribe("+/race/r1") == DENIED
    town.at("10:59")
    assert mary.publish("bike7/race/r1", RIDE) == OK
    assert bob.contents() == [RIDE]
    assert luca.publish("bike8/race/r1", RIDE) == DENIED
    town.at("11:00")
    assert mary.publish("bike7/race/r1", RIDE) == DENIED
    assert bob.contents() == []


def test_sharing_introduction_what_identifies_mary_is_not_for_riders_of_other_gyms() -> None:
    town = Town(
        RACE
        + """
preferences:
  - {id: home, user: mary, topic: +/race/+, when: s.gym == 'MyGym'}
  - {id: away, user: mary, topic: +/race/+, when: s.gym != 'MyGym', keep: [/speed, /distance]}
"""
    )
    mary, bob, rita = (town.come(name) for name in ("mary", "bob", "rita"))
    for rider in (bob, rita):
        rider.subscribe("+/race/r1")
    mary.publish("bike7/race/r1", RIDE)
    assert bob.contents() == [RIDE]
    assert rita.contents() == [{"speed": 31.5, "distance": 12.4}]
    rita.publish("bike9/race/r1", RIDE)  # her own data: Mary's wishes are not about them
    assert bob.contents() == [RIDE]


def test_sharing_introduction_bob_leaves_his_performance_to_coaches_of_any_gym() -> None:
    town = Town(PEOPLE + POLICIES + preference("bob", "s.role == 'coach'"))
    mary, bob, alice, john = (town.come(name) for name in ("mary", "bob", "alice", "john"))
    for one in (mary, alice, john):
        one.subscribe("+/performance/ts/+")
    bob.publish("tr1/performance/ts/speed")
    assert [len(one.got()) for one in (mary, alice, john)] == [0, 1, 1]


# -- section 2.1 -----------------------------------------------------------------------------------------------------


def test_sharing_example_1_topics_and_filters_of_treadmills_and_tablets() -> None:
    town = Town("policies: open\n")
    treadmill, tablet, other = (town.come(client=name) for name in ("tr1", "tablet", "tr2"))
    treadmill.subscribe("+/performance/ts/+")
    tablet.subscribe("+/performance/#")
    here = [f"tr2/performance/ts/{what}" for what in WHAT]
    elsewhere = [f"tr2/performance/other/{what}" for what in WHAT]
    for topic in (*here, *elsewhere, "tr2/state"):
        other.publish(topic)
    assert treadmill.topics() == here
    assert tablet.topics() == here + elsewhere


# -- section 2.2 -----------------------------------------------------------------------------------------------------

EXAMPLE_3 = """
policies:
  - {id: publish, subject: "role:frequenter", topic: +/performance/ts/+, action: write}
  - {id: coaches, subject: "role:coach", topic: +/performance/#, action: read}
  - {id: speed, subject: "role:frequenter", topic: +/performance/ts/avgspeed, action: read, when: "'ts' in s.enrolled"}
  - {id: length, subject: "role:frequenter", topic: +/performance/ts/length, action: read, when: "'ts' in s.enrolled"}
  - {id: time, subject: "role:frequenter", topic: +/performance/ts/duration, action: read, when: "'ts' in s.enrolled"}
"""


def test_sharing_example_3_policies_say_which_data_are_for_coaches_and_which_for_runners() -> None:
    town = Town(PEOPLE + EXAMPLE_3)
    mary, bob, luca, alice = (town.come(name) for name in ("mary", "bob", "luca", "alice"))
    assert [one.subscribe("+/performance/ts/+") for one in (bob, luca, alice)] == [GRANTED, DENIED, GRANTED]
    for what in WHAT:
        mary.publish(f"tr1/performance/ts/{what}")
    assert alice.topics() == [f"tr1/performance/ts/{what}" for what in WHAT]
    assert bob.topics() == [f"tr1/performance/ts/{what}" for what in ("avgspeed", "length", "duration")]


def test_sharing_example_3_a_user_restricts_which_data_are_shared() -> None:
    town = Town(PEOPLE + EXAMPLE_3 + preference("mary", "o.levels[3] in ['speed', 'avgspeed']"))
    mary, bob, alice = (town.come(name) for name in ("mary", "bob", "alice"))
    for one in (bob, alice):
        one.subscribe("+/performance/ts/+")
    for what in WHAT:
        mary.publish(f"tr1/performance/ts/{what}")
    assert alice.topics() == ["tr1/performance/ts/speed", "tr1/performance/ts/avgspeed"]
    assert bob.topics() == ["tr1/performance/ts/avgspeed"]  # a preference grants nothing that policies do not


def test_sharing_example_3_bob_forbids_john_to_see_his_data() -> None:
    town = Town(PEOPLE + EXAMPLE_3 + preference("bob", "s.user != 'john'"))
    bob, alice, john = (town.come(name) for name in ("bob", "alice", "john"))
    for coach in (alice, john):
        coach.subscribe("+/performance/#")
    bob.publish("tr2/performance/ts/speed")
    assert alice.topics() == ["tr2/performance/ts/speed"]
    assert john.topics() == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3 > 2 && 2 < 3 && 1 == 1 && 1 + 2 - 3 * 4 / 2 % 5 == 2", True),
        ("true && !false || false", True),
        ("s.role in ['coach', 'frequenter']", True),
        ("sets.contains(s.groups, ['ts'])", True),
        ("sets.contains(s.groups, ['ts']) && !sets.contains(['ts'], s.groups)", True),
        ("sets.equivalent(intersection(s.groups, ['ts', 'x']), ['ts'])", True),
        ("sets.equivalent(union(s.groups, ['x']), ['ts', 'evening', 'x'])", True),
        ("sets.equivalent(difference(s.groups, ['evening']), ['ts'])", True),
        ("s.groups.all(group, size(group) > 1)", True),
        ("s.groups.exists(group, group == 'evening')", True),
        ("matchesFilter(o.topic, '+/performance/#')", True),
        ("s.groups.all(group, group == 'evening')", False),
    ],
)
def test_sharing_definition_1_parametric_predicates(text: str, expected: bool) -> None:
    """Arithmetic, logic, sets (in, proper subset, subset, intersection, union, difference), quantifiers, functions."""
    known: dict[str, Any] = {
        "s": {"role": "coach", "groups": ["ts", "evening"]},
        "o": {"topic": "tr1/performance/ts/speed"},
    }
    assert compile(text)(known) is expected


def test_sharing_definition_1_attributes_that_are_not_there_are_errors() -> None:
    with pytest.raises(PredicateFailed):
        compile("s.rid == 'coach'")({"s": {}})


@pytest.mark.parametrize("subject", ["user:mary", "client:tr1", "role:frequenter"])
@pytest.mark.parametrize(("action", "writes", "reads"), [("write", True, False), ("read", False, True)])
def test_sharing_definition_2_subjects_and_privileges(subject: str, action: str, writes: bool, reads: bool) -> None:
    """A policy is of a client, a user or a role, and grants to read, to write, or both; `true` restricts nothing."""
    policy = f'{{id: p, subject: "{subject}", topic: a/+, action: {action}, when: "true"}}'
    town = Town(PEOPLE + "  clients: {tr1: {user: mary}}\n" + f"policies: [{policy}]\n")
    mary, alice = town.come("mary", "tr1"), town.come("alice", "tr2")
    assert mary.publish("a/b") == (NOBODY if writes else DENIED)
    assert mary.subscribe("a/b") == (GRANTED if reads else DENIED)
    assert (alice.publish("a/b"), alice.subscribe("a/b")) == (DENIED, DENIED)


def test_sharing_section_2_2_1_categories_of_data() -> None:
    """A message may be sensitive, personal or generic."""
    town = Town(
        PEOPLE
        + """
classify:
  - {topic: +/performance/+/heartbeats, category: sensitive}
  - {topic: +/performance/#, category: personal}
  - {topic: "#", category: generic}
policies:
  - {id: w, subject: "*", topic: "#", action: write}
  - {id: r, subject: "role:frequenter", topic: "#", action: read, when: "o.category == 'generic'"}
  - {id: c, subject: "role:coach", topic: "#", action: read, when: "o.category != 'sensitive'"}
"""
    )
    mary, bob, alice = (town.come(name) for name in ("mary", "bob", "alice"))
    for one in (bob, alice):
        one.subscribe("#")
    for topic in ("tr1/performance/ts/heartbeats", "tr1/performance/ts/speed", "news"):
        mary.publish(topic)
    assert bob.topics() == ["news"]
    assert alice.topics() == ["tr1/performance/ts/speed", "news"]


def test_sharing_section_2_2_1_the_context_may_hold_time_location_and_purpose() -> None:
    policies = """
policies:
  - {id: w, subject: "*", topic: a, action: write}
  - id: r
    subject: "*"
    topic: a
    action: read
    when: e.location == 'milan' && e.purpose == 'training' && e.weekday == 0 && e.hour < 12
"""
    town = Town("environment: {location: milan, purpose: training}" + policies)
    one, other = town.come(client="one"), town.come(client="other")
    other.subscribe("a")
    for time, day, count in (("11:59", 0, 1), ("12:00", 0, 0), ("11:59", 1, 0), ("11:59", 7, 1)):
        town.at(time, day)
        one.publish("a")
        assert len(other.got()) == count
    town.change("environment: {location: milan, purpose: advertising}" + policies)
    one.publish("a")
    assert other.got() == []


@pytest.mark.parametrize(
    "policies",
    [
        POLICIES,
        """
functions: ["seeds.gym:is_enrolled", "seeds.gym:is_working_time"]
policies:
  - {id: p1, subject: "role:frequenter", topic: +/performance/ts/+, action: [read, write], when: is_enrolled(s.user)}
  - {id: p2, subject: "role:coach", topic: +/performance/#, action: read, when: "is_working_time(e.now, s.user)"}
""",
    ],
    ids=["attributes", "functions"],
)
def test_sharing_example_4_p1_and_p2(policies: str) -> None:
    """Once with attributes of the directory, once with functions as in the seed."""
    town = Town(PEOPLE + policies)
    mary, bob, luca, alice = (town.come(name) for name in ("mary", "bob", "luca", "alice"))
    assert [one.subscribe("+/performance/ts/+") for one in (bob, luca)] == [GRANTED, DENIED]
    assert alice.subscribe("+/performance/#") == GRANTED
    town.at("08:00")
    assert mary.publish("tr1/performance/ts/speed") == OK
    assert luca.publish("tr1/performance/ts/speed") == DENIED  # p1: he is not enrolled
    assert alice.publish("tr1/performance/ts/speed") == DENIED  # p2 grants reading only
    assert mary.publish("tr1/performance/other/speed") == DENIED  # p1 is about the session ts
    assert (len(bob.got()), len(alice.got())) == (1, 1)
    for time, count in (("07:59", 0), ("08:00", 1), ("13:59", 1), ("14:00", 0)):
        town.at(time)
        mary.publish("tr1/performance/ts/speed")
        assert (len(bob.got()), len(alice.got())) == (1, count), time


def test_sharing_example_5_up1_marys_performance_is_for_alice() -> None:
    town = Town(PEOPLE + POLICIES + UP1)
    mary, bob, alice, john = everybody = [town.come(name) for name in ("mary", "bob", "alice", "john")]
    for one in everybody:
        one.subscribe("+/performance/ts/+")
    mary.publish("tr1/performance/ts/speed")
    assert [len(one.got()) for one in (mary, bob, alice, john)] == [0, 0, 1, 0]


def test_sharing_example_5_both_a_policy_and_the_preference_have_to_grant_it() -> None:
    """Alice, whom up1 names, reads Mary's data only while p2 grants it."""
    town = Town(PEOPLE + POLICIES + UP1)
    mary, alice = town.come("mary"), town.come("alice")
    alice.subscribe("+/performance/#")
    town.at("15:00")
    mary.publish("tr1/performance/ts/speed")
    assert alice.got() == []


@pytest.mark.parametrize(
    ("of_mary", "receives"),
    [
        ([], True),
        (["false"], False),
        (["true"], True),
        (["false", "true"], True),
        (["false", "false"], False),
        (["s.nothing == 1"], False),
        (["s.nothing == 1", "true"], True),
    ],
)
def test_sharing_section_3_some_preference_grants_it_or_none_is_about_the_topic(
    of_mary: list[str], receives: bool
) -> None:
    preferences = "".join(
        f'  - {{id: u{number}, user: mary, topic: +/performance/ts/+, when: "{when}"}}\n'
        for number, when in enumerate(of_mary)
    )
    others = "  - {id: b, user: bob, topic: '#', when: 'false'}\n  - {id: m, user: mary, topic: other, when: 'false'}\n"
    town = Town(PEOPLE + POLICIES + "preferences:\n" + preferences + others)
    mary, alice = town.come("mary"), town.come("alice")
    alice.subscribe("+/performance/#")
    mary.publish("tr1/performance/ts/speed")
    assert bool(alice.got()) is receives


# -- section 3, inside one environment -------------------------------------------------------------------------------


def test_sharing_example_8_mary_sees_bobs_performance_and_bob_does_not_see_marys() -> None:
    town = Town(PEOPLE + POLICIES + UP1)
    mary, bob = town.come("mary", "tr1"), town.come("bob", "tr2")
    for one in (mary, bob):
        assert one.subscribe("+/performance/ts/+") == GRANTED
    assert mary.publish("tr1/performance/ts/speed", "11.2") == NOBODY
    assert bob.publish("tr2/performance/ts/speed", "9.8") == OK
    assert mary.topics() == bob.topics() == ["tr2/performance/ts/speed"]


def test_sharing_example_9_alice_receives_marys_performance_in_her_shift_and_nobody_else_ever_does() -> None:
    town = Town(PEOPLE + POLICIES + UP1)
    mary, bob, alice, john = everybody = [town.come(name) for name in ("mary", "bob", "alice", "john")]
    for one in everybody:
        one.subscribe("+/performance/ts/+")
    for time, count in (("07:30", 0), ("13:30", 1), ("14:30", 0)):
        town.at(time)
        mary.publish("tr1/performance/ts/speed")
        assert [len(one.got()) for one in (mary, bob, alice, john)] == [0, 0, count, 0]


# -- section 5.1 -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "away", "sent"), [(1, 0.5, [b"late"]), (1, 1.5, []), (2, 1.5, [b"late"]), (2, 2.5, [])]
)
def test_sharing_sections_1_and_5_1_data_that_may_be_read_for_some_seconds(
    seconds: int, away: float, sent: list[bytes]
) -> None:
    """A message that waits for its reader for longer than the owner wants is not sent any more."""
    town = Town(PEOPLE + POLICIES + preference("mary", f"age(p.time) <= duration('{seconds}s')"))
    mary = town.come("mary")
    tablet = _tablet(town)
    tablet.subscribe("+/performance/#", qos=1)
    mary.publish("tr1/performance/ts/speed", "live")
    assert [message.payload for message in tablet.messages()] == [b"live"]
    tablet.lose()
    mary.publish("tr1/performance/ts/speed", "late")
    town.pass_time(away)
    found = [message for message in _tablet(town).messages() if not message.dup]
    assert [message.payload for message in found] == sent


def _tablet(town: Town) -> End:
    """Alice's, whose session is kept."""
    keep = wire.Properties(session_expiry_interval=60)
    return town.world.peer("tablet", username="alice", clean_start=False, properties=keep)


def test_sharing_section_5_1_only_for_those_who_use_the_same_machine() -> None:
    town = Town(PEOPLE + POLICIES.replace("'ts' in s.enrolled", "true") + preference("mary", "s.machine == p.machine"))
    mary, bob, luca = (town.come(name) for name in ("mary", "bob", "luca"))
    for one in (bob, luca):
        one.subscribe("+/performance/ts/+")
    mary.publish("tr1/performance/ts/speed")
    assert (len(bob.got()), len(luca.got())) == (1, 0)


def test_sharing_section_5_1_a_preference_may_speak_of_the_topic_which_denotes_the_sensor() -> None:
    town = Town(PEOPLE + POLICIES + preference("mary", "!p.topic.endsWith('/heartbeats')"))
    mary, alice = town.come("mary"), town.come("alice")
    alice.subscribe("+/performance/#")
    for what in ("speed", "heartbeats"):
        mary.publish(f"tr1/performance/ts/{what}")
    assert alice.topics() == ["tr1/performance/ts/speed"]
