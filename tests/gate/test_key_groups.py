"""Which messages share a key: those that the same readers may read, whichever of them is asked about.

Random policies, preferences, publishers' rules and demands; real clients that publish and receive; and for every key
that was used, who would be given it at that moment.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pure import Anybody, End, World
from tidegate import wire
from tidegate.config import Config, parse
from tidegate.config.keys import Keys
from tidegate.gate import Allow
from tidegate.gate.key_groups import of_each
from tidegate.keys import key_id, unseal
from tidegate.keyservice.topic_keys import TopicKeys
from tidegate.policy import Demand
from tidegate.policy.publisher_rules import CONTROL
from tidegate.scope import Identity, Refused
from tidegate.scope.authenticator import Answer
from tidegate.session import Connection, MessageOptions, Session
from tidegate.topics import matches

PEOPLE: Final = {
    "mary": {"roles": ["coach"], "attributes": {"clearance": 1, "home": "a"}},
    "alice": {"roles": ["runner"], "groups": ["team"], "attributes": {"clearance": 3, "home": "b"}},
    "bob": {"roles": ["coach", "runner"], "attributes": {"clearance": 1}},
    "carol": {"groups": ["team"], "attributes": {"clearance": 2, "home": "a"}},
}
LEVELS: Final = {"mary": "plain", "alice": "tls", "bob": "mtls", "carol": "plain"}
TOPICS: Final = ("a/x", "a/alice", "a/mary", "b/x", "b/y", "c")
FILTERS: Final = ("#", "a/#", "a/+", "a/x", "+/x", "b/#", "c", "a/{s.user}", "{s.home}/#", "{s.home}/{s.user}")
SUBJECTS: Final = ("*", "*", "user:alice", "role:coach", "group:team", "client:carol", ["user:mary", "role:runner"])
WHENS: Final = (
    *(None, None, None, "p.user == 'mary'", "'coach' in p.roles", "s.user == p.user", "s.clearance > p.clearance"),
    *("o.category == 'sensitive'", "has(o.category) && s.role == 'coach'", "o.levels[0] == s.home", "p.level == 'tls'"),
    *("o.topic == 'a/x'", "p.topic.startsWith('a/')", "s.level != 'plain'", "e.hour < 12", "s.nothing == 1"),
    *("p.e.location == 'rome'", "has(p.home) && p.home == s.home"),
)
PROTECTED: Final = (["#"], ["a/#", "b/#"], ["a/#"], ["a/x", "a/+", "#"])


def _row(**choices: Any) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({name: st.sampled_from(found) for name, found in choices.items()}).map(
        lambda row: {name: value for name, value in row.items() if value is not None}
    )


POLICY: Final = _row(subject=SUBJECTS, topic=FILTERS, effect=(None, None, None, "deny"), when=WHENS)
PREFERENCE: Final = _row(user=("mary", "mary", "alice"), topic=("#", "a/#", "a/x", "b/+"), when=WHENS)
RULE: Final = _row(subject=SUBJECTS[1:5], topic=("a/#", "a/x", "b/x"), effect=("allow", "deny"), when=WHENS[:8])


def _numbered(letter: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"id": f"{letter}{number}", **row} for number, row in enumerate(rows)]


CONFIGURATION: Final = st.fixed_dictionaries(
    {
        "policies": st.lists(POLICY, max_size=5).map(
            lambda rows: [
                {"id": "w", "subject": "*", "topic": "#", "action": "write"},
                *({**row, "action": "read"} for row in _numbered("p", rows)),
            ]
        ),
        "combining": st.sampled_from(["deny-overrides", "permit-overrides", "first-applicable"]),
        "preferences": st.lists(PREFERENCE, max_size=3).map(lambda rows: _numbered("u", rows)),
        "classify": st.sampled_from([[], [{"topic": "a/#", "category": "sensitive"}]]),
        "rules": st.sampled_from([{"allow": ["d"]}, {"allow": ["a/#", "b/x"]}]),
        "keys": st.sampled_from(PROTECTED).map(lambda filters: {"protect": filters}),
    }
)
DEMANDS: Final = (None, None, "tls", "mtls")


class Town(Anybody):
    """A node in memory whose people come over connections of different levels."""

    def __init__(self, said: dict[str, Any]) -> None:
        self.config = self.read(said)
        self.world = World(rules=self.config.built.rules, authenticator=self)
        self.world.wall = 1_772_442_000.0  # 09:00
        self.topic_keys = TopicKeys(self.world.site, Keys(), None, None)
        self.world.scope.path.protector.keyring = self.topic_keys
        self.inbox: dict[str, list[wire.Publish]] = {name: [] for name in PEOPLE}
        self.ends = {name: self.come(name) for name in PEOPLE}

    def read(self, said: dict[str, Any]) -> Config:
        whole = {
            "version": 1,
            "node": {"name": "here"},
            "listeners": [{"url": "mqtt://127.0.0.1:1883", "anonymous": True}],
            "directory": {"users": PEOPLE},
            "environment": {"location": "rome"},
            **said,
        }
        return parse(json.dumps(whole), "town.yaml", variables={})

    def come(self, name: str) -> End:
        end = self.world.peer(name, username=name)
        end.take()
        return end

    def listen(self) -> None:
        """Everybody subscribes to everything; who is refused could receive nothing."""
        for end in self.ends.values():
            end.subscribe("#", qos=1)
            end.take()

    def say(
        self, user: str, topic: str, payload: bytes = b"x", demand: str | None = None, says: tuple[Any, ...] = ()
    ) -> int:
        """Published with QoS 1; the reason code of the answer."""
        pairs = (*says, *(() if demand is None else (("require", demand),)))
        self.ends[user].send(
            wire.Publish(
                topic=topic, payload=payload, qos=1, packet_id=9, properties=wire.Properties(user_properties=pairs)
            )
        )
        (answer,) = [each for each in self._took(user) if isinstance(each, wire.Puback)]
        return answer.reason

    def got(self, user: str) -> list[wire.Publish]:
        """What came to somebody since the last time."""
        self._took(user)
        found, self.inbox[user] = self.inbox[user], []
        return found

    def _took(self, user: str) -> list[wire.Packet]:
        end = self.ends[user]
        packets = end.take()
        for packet in packets:
            if isinstance(packet, wire.Publish):
                self.inbox[user].append(packet)
                if packet.qos:
                    end.send(wire.Puback(packet_id=packet.packet_id))
        return packets

    def group(self, user: str, topic: str, demand: str | None = None) -> str | None:
        """The group of what somebody publishes; None if it is denied or not protected."""
        gate = self.world.scope.gate
        link = self.session(user).inward
        lane = gate.lane(link, wire.V5)
        if demand is not None:
            lane = gate.options_lane(lane, link, MessageOptions(Demand.of(demand), None))
        sealing = gate.compiler.compile(topic, lane).sealing
        return None if sealing is None else sealing.group.id

    def context(self, user: str, demand: str | None = None) -> bytes:
        """That of a message which somebody publishes now."""
        options = MessageOptions(None if demand is None else Demand.of(demand), None)
        return self.world.scope.gate.context(self.session(user).inward, options).encode()

    def session(self, user: str) -> Session:
        session = self.ends[user].connection.session
        assert self.world.scope.subjects.fresh(session)
        return session

    def may(self, user: str, topic: str, context: bytes) -> bool:
        """Whether somebody would be given the key of such a message now."""
        self.world.site.open()
        return isinstance(self.world.scope.gate.stored.readable(topic, context, self.session(user).outward), Allow)

    def authenticate(self, connection: Connection, packet: wire.Connect, answer: Answer) -> None:
        answer(self._identity(packet.username or ""))

    def reauthorize(self, session: Session) -> Identity | Refused:
        return self._identity(session.subject.user or "")

    def _identity(self, user: str) -> Identity:
        known = self.config.built.directory.known(user=user)
        return Identity(
            principal=f"user:{user}",
            user=user,
            roles=known.roles,
            groups=known.groups,
            attributes=known.attributes,
            level=LEVELS[user],
        )


# -- laws ----------------------------------------------------------------------------------------------------------

MESSAGES: Final = [(user, topic, demand) for user in PEOPLE for topic in TOPICS for demand in DEMANDS[1:]]
PUBLISHED: Final = st.lists(
    st.tuples(st.sampled_from(sorted(PEOPLE)), st.sampled_from(TOPICS), st.sampled_from(DEMANDS)),
    min_size=1,
    max_size=8,
)
RULES: Final = st.lists(st.tuples(st.sampled_from(["mary", "bob"]), st.lists(RULE, min_size=1, max_size=2)), max_size=2)
SETTINGS: Final = settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))


def ruled(town: Town, said: list[tuple[str, list[dict[str, Any]]]]) -> None:
    """Publishers' rules; those that they may not give are refused, which is no matter here."""
    for user, rows in said:
        town.say(user, CONTROL, json.dumps(_numbered("r", rows)).encode())


@SETTINGS
@given(CONFIGURATION, RULES)
def test_any_message_of_a_group_is_as_good_a_witness_as_any_other(said: dict[str, Any], rules: Any) -> None:
    town = Town(said)
    ruled(town, rules)
    answers: dict[str, tuple[tuple[bool, ...], Any]] = {}
    for user, topic, demand in MESSAGES:
        group = town.group(user, topic, demand)
        if group is None:
            continue
        context = town.context(user, demand)
        readers = tuple(town.may(reader, topic, context) for reader in PEOPLE)
        first = answers.setdefault(group, (readers, (user, topic, demand)))
        assert first[0] == readers, f"{first[1]} and {(user, topic, demand)} have one key"


@SETTINGS
@given(CONFIGURATION, RULES, PUBLISHED)
def test_who_is_delivered_a_message_is_given_its_key_and_nobody_else(
    said: dict[str, Any], rules: Any, published: list[tuple[str, str, str | None]]
) -> None:
    town = Town(said)
    ruled(town, rules)
    town.listen()
    protect = said["keys"]["protect"]
    for number, (user, topic, demand) in enumerate(published):
        payload = b"clear %d" % number
        town.say(user, topic, payload, demand)
        found = {reader: town.got(reader) for reader in PEOPLE}
        sealed = any(matches(filter, topic) for filter in protect)
        ids = {key_id(one.payload) for all in found.values() for one in all}
        if not sealed:
            assert all(one.payload == payload for all in found.values() for one in all)
            continue
        if not ids:
            context = town.context(user, demand)
            assert not any(town.may(reader, topic, context) for reader in PEOPLE)
            continue
        (id,) = ids
        assert id is not None
        key = town.topic_keys.ring.find(id, town.world.site.wall)
        assert key is not None
        for reader, messages in found.items():
            assert [unseal(key.secret, one.payload, topic=topic) for one in messages] == [payload] * len(messages)
            assert town.may(reader, key.group.topic, key.group.context) is (len(messages) == 1), reader


def test_rules_that_a_publisher_sends_later_do_not_decide_about_the_messages_of_another() -> None:
    town = plain(protect=("#",), rules={"allow": ["a/#", "b/x"]})
    assert key_of(town, "mary", "a/x") != key_of(town, "carol", "a/x")
    assert key_of(town, "mary", "c") == key_of(town, "carol", "c"), "no rules can be about it"
    allow = {"id": "r0", "topic": "a/#", "subject": "user:alice", "effect": "allow"}
    deny = {"id": "r1", "topic": "a/#", "subject": "user:bob", "effect": "deny"}
    for rules in ([allow], [allow, deny]):
        assert town.say("mary", CONTROL, json.dumps(rules).encode()) == 0
        for user, readers in (("carol", {"alice", "bob"}), ("mary", {"alice"} if deny in rules else {"alice", "bob"})):
            id = key_of(town, user, "a/x")
            assert id is not None
            key = town.topic_keys.ring.find(id, town.world.site.wall)
            assert key is not None
            may = {name for name in ("alice", "bob") if town.may(name, key.group.topic, key.group.context)}
            assert may == readers


@SETTINGS
@given(CONFIGURATION)
def test_what_is_decided_otherwise_has_another_key(said: dict[str, Any]) -> None:
    """Other policies or preferences that apply, another demand, another owner who prefers something."""
    town = Town(said)
    told: dict[str, set[Any]] = {}
    for user, topic, demand in MESSAGES:
        group = town.group(user, topic, demand)
        if group is None:
            continue
        policies = tuple(row["id"] for row in said["policies"][1:] if _could_match(row["topic"], topic))
        preferences = tuple(
            row["id"] for row in said["preferences"] if row["user"] == user and matches(row["topic"], topic)
        )
        protecting = next(filter for filter in said["keys"]["protect"] if matches(filter, topic))
        owner = user if preferences else None
        told.setdefault(group, set()).add((policies, preferences, owner, demand, protecting))
    assert all(len(each) == 1 for each in told.values()), told


def _could_match(filter: str, topic: str) -> bool:
    """For somebody."""
    return matches("/".join("+" if level.startswith("{") else level for level in filter.split("/")), topic)


# -- examples --------------------------------------------------------------------------------------------------------

ALL: Final = {"id": "all", "subject": "*", "topic": "#", "action": ["read", "write"]}


def plain(*policies: dict[str, Any], protect: tuple[str, ...] = ("a/#",), **said: Any) -> Town:
    town = Town({"keys": {"protect": list(protect)}, "policies": list(policies) or [ALL], **said})
    town.listen()
    return town


def key_of(town: Town, user: str, topic: str, reader: str = "alice", **fields: Any) -> str | None:
    """The key of what somebody publishes now, as a reader sees it."""
    town.got(reader)
    assert town.say(user, topic, b"clear", **fields) == 0
    (message,) = town.got(reader)
    return key_id(message.payload)


def test_owners_who_prefer_nothing_share_a_key_and_others_have_their_own() -> None:
    mine = [
        {"id": "u1", "user": "mary", "topic": "a/x"},
        {"id": "u2", "user": "bob", "topic": "a/x"},
    ]
    town = plain(preferences=mine)
    shared = key_of(town, "carol", "a/x")
    assert shared is not None
    assert key_of(town, "alice", "a/x") == key_of(town, "mary", "a/y") == key_of(town, "bob", "a/y") == shared
    assert len({key_of(town, "mary", "a/x"), key_of(town, "bob", "a/x"), shared}) == 3


def test_a_placeholder_gives_each_topic_its_own_key() -> None:
    own = {"id": "own", "subject": "*", "topic": "a/{s.user}", "action": "read"}
    town = plain(ALL, own)
    assert len({key_of(town, "mary", f"a/{name}") for name in PEOPLE}) == len(PEOPLE)


def test_what_conditions_read_of_message_and_publisher_tells_keys_apart() -> None:
    role = {
        "id": "r",
        "subject": "*",
        "topic": "a/#",
        "action": "read",
        "when": "'coach' in p.roles || s.level >= 'plain'",
    }
    town = plain(ALL, role)
    by = {name: key_of(town, name, "a/x") for name in PEOPLE}
    assert by["mary"] != by["alice"]
    assert by["mary"] != by["bob"], "they have other roles"
    assert by["alice"] != by["carol"]


STABLE: Final[dict[str, Any]] = {
    "keys": {"protect": ["a/#"]},
    "policies": [
        ALL,
        {
            "id": "p",
            "subject": ["role:coach", "user:alice", "group:team"],
            "topic": "a/#",
            "action": "read",
            "when": "p.clearance > 0 && sets.intersects(p.roles, s.roles)",
        },
    ],
    "preferences": [{"id": "u", "user": "mary", "topic": "#", "when": "s.role == 'coach'"}],
}


def test_the_same_group_in_another_process() -> None:
    """Nothing of it depends on the order of sets, or on hashes."""
    ask = "from gate.test_key_groups import *; print(Town(STABLE).group('mary', 'a/x'))"
    found = {
        subprocess.run(
            [sys.executable, "-c", ask],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert found == {Town(STABLE).group("mary", "a/x")}


def test_a_demand_has_its_own_key() -> None:
    town = plain()
    keys = {key_of(town, "mary", "a/x", demand=demand) for demand in (None, "tls")}
    assert len(keys) == 2
    assert key_of(town, "mary", "a/x", demand="none") in keys, "nothing is demanded"


def test_a_table_of_visibility_cannot_be_kept() -> None:
    town = plain()
    assert town.say("mary", "a/x", b"{}", says=(("view", '{"user:alice": ["/x"]}'),)) == 0x87
    assert town.say("mary", "b/x", b"{}", says=(("view", '{"user:alice": "all"}'),)) == 0
    assert [one.topic for one in town.got("alice")] == ["b/x"]


@pytest.mark.parametrize("when", ["o.payload.level > 2", "o.size < 3", "o.qos == 1", "p.size > 2", "p.time == e.now"])
def test_a_publishers_rule_cannot_read_what_differs_from_message_to_message(when: str) -> None:
    town = plain(rules={"allow": ["#"]})
    rule = {"id": "r", "topic": "a/x", "subject": "*", "effect": "deny", "when": when}
    assert town.say("mary", CONTROL, json.dumps([rule]).encode()) == 0
    assert town.say("mary", "a/x", b"{}") == 0x87
    assert town.say("mary", "a/y", b"{}") == 0, "it does not speak of that one"
    assert town.say("bob", "a/x", b"{}") == 0, "nor for him"


@pytest.mark.parametrize(
    ("reads", "found"),
    [
        ((), None),
        (("s.user", "e.now", "e.hour", "o.topic", "o.levels", "o.category", "p.user", "p.topic", "p.level"), None),
        (("p.e.location",), None),
        (("o.payload",), "o.payload"),
        (("o.payload.level",), "o.payload.level"),
        (("o",), "o"),
        (("p",), "p"),
        (("p.e",), "p.e"),
        (("p.e.now",), "p.e.now"),
        (("p.e.hour",), "p.e.hour"),
        (("p.time",), "p.time"),
        (("o.properties.k",), "o.properties.k"),
        (("o.scores.quality",), "o.scores.quality"),
    ],
)
def test_what_differs_from_message_to_message(reads: tuple[str, ...], found: str | None) -> None:
    assert of_each(reads) == found


def test_the_nodes_own_topics_are_not_protected() -> None:
    town = plain(protect=("#", "$other/#"))
    assert town.group("mary", "$other/x") is None
    assert town.group("mary", "a/x") is not None


# -- in the course of time -------------------------------------------------------------------------------------------


def test_other_rules_of_a_publisher_count_at_once() -> None:
    town = plain(rules={"allow": ["#"]})
    before = key_of(town, "mary", "a/x")
    assert before is not None
    key = town.topic_keys.ring.find(before, town.world.site.wall)
    assert key is not None
    assert town.may("carol", key.group.topic, key.group.context)
    rule = {"id": "r", "topic": "a/#", "subject": "user:carol", "effect": "deny"}
    assert town.say("mary", CONTROL, json.dumps([rule]).encode()) == 0
    assert not town.may("carol", key.group.topic, key.group.context)
    assert town.may("alice", key.group.topic, key.group.context)
    after = key_of(town, "mary", "a/x")
    assert after != before, "whoever lost a right reads nothing under the key they have"
    assert town.say("mary", CONTROL, json.dumps([{"id": "r", "remove": True}]).encode()) == 0
    assert key_of(town, "mary", "a/x") == before


def test_a_rule_that_ends_gives_another_key() -> None:
    read = {"id": "r", "subject": "user:alice", "topic": "#", "action": "read"}
    town = plain({**ALL, "action": "write"}, read, rules={"allow": ["#"]})
    rule = {"id": "r", "topic": "a/#", "subject": "user:carol", "effect": "allow", "expires": 60}
    assert town.say("mary", CONTROL, json.dumps([rule]).encode()) == 0
    town.listen()
    before = key_of(town, "mary", "a/x")
    assert before is not None
    key = town.topic_keys.ring.find(before, town.world.site.wall)
    assert key is not None
    assert town.may("carol", key.group.topic, key.group.context)
    town.world.turn(61)
    assert not town.may("carol", key.group.topic, key.group.context)
    assert key_of(town, "mary", "a/x") != before, "carol has the old one"


def test_the_clock_decides_when_a_key_is_asked_for() -> None:
    morning = {"id": "m", "subject": "*", "topic": "a/#", "action": "read", "when": "e.hour < 10"}
    town = plain({**ALL, "action": "write"}, morning)
    context = town.context("mary")
    assert town.may("alice", "a/x", context)
    town.world.turn(3600)
    assert not town.may("alice", "a/x", context)
    town.world.wall -= 3600
    town.world.turn()
    assert town.may("alice", "a/x", context), "it was put back"
