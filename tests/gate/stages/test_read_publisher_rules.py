"""Publisher rules against an independent reading of semantics.md, over random policies, rules and histories.

*Administrators' policies are combined first and their deny is final; then rules can allow or deny.* *An unknown
attribute, a type error or an exception: in an applicable policy denies, whatever the combining algorithm; in a
publisher rule counts as false.* The oracle reads the texts of policies and rules anew for every delivery; the node
under test compiles plans, keeps decisions, and is told of changes while it runs.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gate import oracle
from gate.oracle import Connection, Message, Step, decide_policies, selects, true
from policy.written import policy_of
from pure import End, World
from session.test_safe import Disk
from tidegate import wire
from tidegate.gate import RuleSet
from tidegate.policy import Combining, Policies
from tidegate.policy.publisher_rules import CONTROL
from tidegate.topics import covers, matches, overlaps

KEEP: Final = wire.Properties(session_expiry_interval=100_000)
CEILING: Final = ("a/#", "b")
TOPICS: Final = ("a/x", "a/y", "b", "c")
FILTERS: Final = ("#", "a/#", "a/x", "+/x", "b", "c")
PUBLISHERS: Final = ("mary", "bob")
READERS: Final = ("alice", "carol")
SUBJECTS: Final[tuple[Any, ...]] = ("*", "user:alice", "user:carol", "client:alice", ["user:alice", "user:bob"])
WHENS: Final = (
    *(None, None, None, "true", "false", "o.payload.level > 2", "o.payload.level <= 2", "o.qos == 1", "!o.retain"),
    *("s.user == 'alice'", "has(p.user) && p.user == 'mary'", "p.size > 12", "e.minute < 20", "e.minute >= 20"),
    *("s.nothing == 1", "o.payload.name == 'x'", "has(o.payload.name) || s.user == 'alice'"),
)
PAYLOADS: Final = (b'{"level":3}', b'{"level":1,"name":"x"}', b"no JSON")
MARK: Final = {"id": "mark", "subject": "*", "topic": "mark", "action": "read"}
WRITE: Final = {"id": "write", "subject": "*", "topic": "#", "action": "write"}

POLICY: Final = st.fixed_dictionaries(
    {
        "subject": st.sampled_from(SUBJECTS),
        "topic": st.sampled_from(FILTERS),
        "action": st.just("read"),
        "effect": st.sampled_from(["allow", "deny"]),
        "when": st.sampled_from(WHENS),
    }
)
POLICIES: Final = st.lists(POLICY, max_size=4).map(
    lambda found: [
        WRITE,
        MARK,
        *({"id": f"p{n}", **{k: v for k, v in each.items() if v}} for n, each in enumerate(found)),
    ]
)
RULE: Final = st.fixed_dictionaries(
    {
        "id": st.sampled_from(["r1", "r2", "r3"]),
        "topic": st.sampled_from(("a/#", "a/#", "a/#", "a/x", "b", "+/x")),
        "subject": st.sampled_from(("*", "*", *SUBJECTS)),
        "effect": st.sampled_from(["allow", "deny"]),
        "when": st.sampled_from((None, None, None, None, None, *WHENS)),
        "expires": st.sampled_from([None, None, 600]),
    }
).map(lambda each: {k: v for k, v in each.items() if v})
REMOVAL: Final = st.sampled_from(["r1", "r2", "r3"]).map(lambda id: {"id": id, "remove": True})
PUBLISH: Final = st.tuples(
    st.just("publish"),
    st.sampled_from(("mary", "mary", "bob")),
    st.sampled_from(("a/x", *TOPICS)),
    st.sampled_from(PAYLOADS),
    st.sampled_from([0, 1]),
    st.booleans(),
)
RULES: Final = st.tuples(
    st.just("rule"),
    st.sampled_from(("mary", "mary", "bob")),
    st.lists(st.one_of(RULE, RULE, REMOVAL), min_size=1, max_size=3, unique_by=lambda each: str(each["id"])),
)
ACT: Final = st.one_of(
    PUBLISH,
    PUBLISH,
    RULES,
    st.tuples(st.just("wait"), st.sampled_from([60, 700])),
    st.tuples(st.just("leave")),
    st.tuples(st.just("come")),
    st.tuples(st.just("newcomer")),
)
SEEN: Counter[str] = Counter()


class Book:
    """What the oracle knows of publishers' rules: the texts, as they stand in force."""

    def __init__(self) -> None:
        self.rules: dict[str, dict[str, dict[str, Any]]] = {name: {} for name in PUBLISHERS}

    def take(self, publisher: str, lines: list[dict[str, Any]], now: float) -> bool:
        if any("topic" in each and not any(covers(c, each["topic"]) for c in CEILING) for each in lines):
            return False  # "within what the administrator lets publishers grant", whole or not at all
        for each in lines:
            if "remove" in each:
                self.rules[publisher].pop(each["id"], None)
            else:
                until = now + each["expires"] if "expires" in each else float("inf")
                self.rules[publisher][each["id"]] = {**each, "until": until}
        return True

    def speaking(self, publisher: str, s: Mapping[str, Any], topic: str, now: float) -> list[dict[str, Any]]:
        return [
            each
            for each in self.rules[publisher].values()
            if now < each["until"] and matches(each["topic"], topic) and selects(each["subject"], s)
        ]


def decide(
    config: dict[str, Any], book: Book, message: Message, context: oracle.Context, reader: str, now: float
) -> bool:
    """Step 8 for one message and one reader."""
    s = oracle.subject_attributes(config, Connection(client=reader, user=reader))
    roots = {
        "s": s,
        "o": oracle.object_attributes(config, message),
        "e": oracle.environment_attributes(config, now),
        "p": context.p,
    }
    said = decide_policies(config, Step.READ, "read", message.topic, roots)
    if not said.allowed and said.rule is not None:
        SEEN["a policy denies"] += 1
        return False
    assert context.owner is not None
    effects = {
        each.get("effect", "allow")
        for each in book.speaking(context.owner, s, message.topic, now)
        if true(each.get("when", "true"), **roots)
    }
    SEEN[f"policies {said.allowed}, rules {'deny' if 'deny' in effects else 'allow' if effects else 'nothing'}"] += 1
    if "deny" in effects:
        return False
    return "allow" in effects or said.allowed


class Trial:
    """A node, the oracle beside it, and what every reader should have received."""

    def __init__(self, policies: list[dict[str, Any]] | str, combining: str) -> None:
        self.config: dict[str, Any] = {"node": {"name": "n"}, "policies": policies, "combining": combining}
        self.config["directory"] = {"users": {name: {} for name in (*PUBLISHERS, *READERS)}}
        made = None
        if not isinstance(policies, str):
            made = Policies([policy_of(**each) for each in policies], Combining(combining))
        self.disk = Disk()
        self.world = World(rules=RuleSet(policies=made, ceiling=CEILING), store=self.disk)
        self.book = Book()
        self.publishers = {name: self.world.peer(name, username=name) for name in PUBLISHERS}
        self.readers = {name: self.come(name) for name in READERS}
        for end in self.readers.values():
            end.subscribe("#", 1)
        self.settle()
        for end in (*self.publishers.values(), *self.readers.values()):
            end.take()
        self.waiting: list[tuple[Message, oracle.Context]] = []
        self.retained: dict[str, tuple[Message, oracle.Context]] = {}
        self.expected: dict[str, list[bytes]] = {name: [] for name in READERS}
        self.away = False
        self.pid = 0
        self.number = 0

    def come(self, name: str) -> End:
        return self.world.peer(name, username=name, clean_start=False, properties=KEEP)

    def settle(self) -> None:
        self.world.turn()
        self.disk.commit()
        self.world.turn()

    def act(self, act: tuple[Any, ...]) -> None:
        match act:
            case ("publish", name, topic, payload, qos, retain):
                for each in (topic, "a/x"):
                    self.publish(name, each, payload, qos, retain)
            case ("rule", name, lines):
                self.pid += 1
                self.world.turn(5)  # so that nobody is slowed down
                self.publishers[name].send(
                    wire.Publish(topic=CONTROL, payload=json.dumps(lines).encode(), qos=1, packet_id=self.pid)
                )
                taken = self.book.take(name, lines, self.world.wall)
                [answer] = self.answered(name)
                assert answer.reason == (0 if taken else 0x87), answer
                SEEN[f"taken {taken}"] += 1
            case ("wait", seconds):
                self.world.turn(seconds)
            case ("leave",) if not self.away:
                self.readers["alice"].lose()
                self.away = True
            case ("come",) if self.away:
                self.readers["alice"] = self.come("alice")
                self.away = False
                for message, context in self.waiting:
                    if decide(self.config, self.book, message, context, "alice", self.world.wall):
                        self.expected["alice"].append(message.payload)
                self.waiting = []
            case ("newcomer",):
                self.newcomer()
        self.check()

    def answered(self, name: str) -> list[wire.Puback]:
        self.settle()
        return [packet for packet in self.publishers[name].take() if isinstance(packet, wire.Puback)]

    def publish(self, name: str, topic: str, payload: bytes, qos: int, retain: bool) -> None:
        self.number += 1
        payload = payload + b" " * self.number  # so that each is another one
        message = Message(topic=topic, payload=payload, qos=qos, retain=retain)
        sender = Connection(client=name, user=name)
        context = oracle.context_of(self.config, sender, message, self.world.wall)
        self.pid += 1
        self.publishers[name].send(
            wire.Publish(topic=topic, payload=payload, qos=qos, retain=retain, packet_id=self.pid if qos else 0)
        )
        self.answered(name)
        if retain:
            self.retained[topic] = (message, context)
        for reader in READERS:
            if reader == "alice" and self.away:
                if qos and self.queued(message):
                    self.waiting.append((message, context))
                elif qos:
                    assert not decide(self.config, self.book, message, context, reader, self.world.wall)
            elif decide(self.config, self.book, message, context, reader, self.world.wall):
                self.expected[reader].append(payload)

    def queued(self, message: Message) -> bool:
        """Whether it is kept for who is away: it must be if it may be sent, and may be if it could be sent later."""
        session = self.world.scope.sessions["alice", "alice"]
        return any(one.message.payload == message.payload for one in session._queue or ())

    def newcomer(self) -> None:
        """Somebody new, who is sent what is retained."""
        self.number += 1
        name = "carol"
        end = self.world.peer(f"new{self.number}", username=name)
        end.take()
        end.subscribe("#", 0)
        self.settle()
        client = Connection(client=f"new{self.number}", user=name)
        got = sorted(packet.payload for packet in end.messages())
        expected = [
            message.payload for message, context in self.retained.values() if self.decided_for(client, message, context)
        ]
        assert got == sorted(expected)
        end.send(wire.Disconnect())

    def decided_for(self, client: Connection, message: Message, context: oracle.Context) -> bool:
        assert client.user is not None
        # no condition and no subject here speaks of any client but that of alice
        return decide(self.config, self.book, message, context, client.user, self.world.wall)

    def check(self) -> None:
        self.settle()
        for name, end in self.readers.items():
            if name == "alice" and self.away:
                continue
            got = []
            while found := end.messages():
                for packet in found:
                    got.append(packet.payload)
                    if packet.qos:
                        end.send(wire.Puback(packet_id=packet.packet_id))
                self.settle()
            assert got == self.expected[name], (name, got)
            self.expected[name] = []
        assert not self.world.bugs
        gate = self.world.scope.gate
        while gate.cache.tidy():
            pass
        assert gate.cache.cost == sum(plan.cost for _, plan in gate.cache.plans())


@pytest.mark.parametrize("combining", [each.value for each in Combining])
@given(policies=POLICIES | st.just("open"), first=RULES, acts=st.lists(ACT, min_size=6, max_size=20))
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_the_node_decides_as_the_definition_reads(
    combining: str, policies: list[dict[str, Any]] | str, first: tuple[Any, ...], acts: list[tuple[Any, ...]]
) -> None:
    trial = Trial(policies, combining)
    for act in (first, *acts):
        trial.act(act)


def test_the_histories_reach_every_case() -> None:
    """Runs after the ones above, in the same process."""
    if not SEEN:
        pytest.fail("run the whole file")
    expected = {f"policies {a}, rules {r}" for a in (True, False) for r in ("deny", "allow", "nothing")}
    assert expected | {"a policy denies", "taken True", "taken False"} <= set(SEEN), SEEN


# -- subscribing -------------------------------------------------------------------------------------------------------


@given(
    rules=st.lists(RULE.filter(lambda each: any(covers(c, each["topic"]) for c in CEILING)), max_size=3),
    filter=st.sampled_from(FILTERS),
    reader=st.sampled_from(READERS),
)
@settings(max_examples=150, deadline=None)
def test_a_subscribe_is_granted_if_a_rule_that_allows_overlaps(
    rules: list[dict[str, Any]], filter: str, reader: str
) -> None:
    lines = {each["id"]: each for each in rules}
    world = World(rules=RuleSet(policies=Policies([]), ceiling=CEILING))
    mary = world.peer("mary", username="mary")
    mary.send(wire.Publish(topic=CONTROL, payload=json.dumps(list(lines.values())).encode(), qos=1, packet_id=1))
    assert [packet.reason for packet in mary.take() if isinstance(packet, wire.Puback)] == [0]
    config = {"node": {"name": "n"}, "policies": ()}
    s = oracle.subject_attributes(config, Connection(client=reader, user=reader))
    clock = dict.fromkeys(("now", "hour", "minute", "weekday", "date"), oracle.UNKNOWN)
    may = any(
        each["effect"] == "allow"
        and selects(each["subject"], s)
        and overlaps(each["topic"], filter)
        and oracle._may_hold(each.get("when", "true"), s, clock)
        for each in lines.values()
    )
    end = world.peer(reader, username=reader)
    end.subscribe(filter)
    assert [packet.reasons for packet in end.take() if isinstance(packet, wire.Suback)] == [(0 if may else 0x87,)]


# -- safe before it is acknowledged ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("qos", "kind"), [(1, wire.Puback), (2, wire.Pubrec)])
def test_rules_are_in_the_store_before_they_are_acknowledged(qos: int, kind: type[wire.Packet]) -> None:
    disk = Disk()
    world = World(rules=RuleSet(ceiling=CEILING), store=disk)
    mary = world.peer("mary", username="mary")
    mary.take()
    body = json.dumps([{"id": "r", "topic": "a/x", "subject": "*"}]).encode()
    mary.send(wire.Publish(topic=CONTROL, payload=body, qos=qos, packet_id=1))
    assert mary.take() == []
    assert ("rules", "user:mary") in disk._batch.records
    disk.commit()
    [answer] = mary.take()
    assert isinstance(answer, kind)
    disk.refusing = True
    mary.send(wire.Publish(topic=CONTROL, payload=body, qos=1, packet_id=2))
    [refused] = mary.take()
    assert isinstance(refused, wire.Puback)
    assert refused.reason == 0x97
