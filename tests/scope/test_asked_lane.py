"""QoS 0 messages with residuals take a lane of their own, and get what the general path gives them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pure import End, World
from tidegate import wire
from tidegate.config import parse
from tidegate.gate import Deny, Plan
from tidegate.scope.decision_reports import Silent
from tidegate.session import Link

TOPICS = ("a/b", "a/c")
PAYLOADS = (
    b'{"v":1,"w":{"x":"y"},"z":[1]}',
    b'{"v":70,"w":{"x":"n"},"z":[]}',
    b'{"v":"text"}',
    b'{"w":{"x":"y"}}',
    b'{"v":70,"note":"\\u00e9' + b"x" * 700 + b'"}',
    b'{"v":70,"w":{"x":"y","more":[{"a":1.50}]},"note":"' + b"x" * 700 + b'"}',
    b'{"v":1,"v":70,"note":"' + b"x" * 300 + b'"}',
    b'{"v":[70],"note":"' + b"x" * 300 + b'"}',
    '{{"v":70,"note":"é{}"}}'.format("x" * 300).replace("{{", "{").replace("}}", "}").encode(),
    b'{"v":70,"note":"\xff' + b"x" * 300 + b'"}',
    b'{"v":70,}',
    b"[1,2]",
    b"",
    b"not JSON",
)
CONDITIONS = (
    "o.payload.v > 60",
    "o.payload.v < 10 || o.payload.w.x == 'y'",
    "has(o.payload.w)",
    "size(o.payload) > 1",
    "o.payload.z.size() == 0",
    "o.size > 40",
    "o.qos == 0 && !o.retain",
    "p.user == 'p'",
    "age(p.time) < duration('1h')",
    "e.minute < 30 || o.payload.v > 60",
    "s.nothing == 1 || o.payload.v > 60",
)
MONITORS = (
    'rate: 3/s, on: "a/+"',
    "automaton: {start: q, states: {q: [{on: a/b, go: r}], r: [{on: a/b, go: q}, {on: a/c, emit: []}]}}",
    'automaton: {start: q, states: {q: [{on: a/b, go: r}], r: [{on: a/b, go: q, when: "o.payload.v > 60"}]}}',
    'only: "a/c", after: [a/b]',
)


HEAD = """
version: 1
node: {name: n}
scopes: {main: {}}
listeners: [{url: "mqtt://127.0.0.1:1883", scope: main, anonymous: true}]
"""


@dataclass
class Heard(Silent):
    """What the audit was told."""

    records: list[tuple[Any, ...]] = field(default_factory=list)

    def denied(
        self, action: str, link: Link, topic: str, why: Deny, publishers: str | None = None, message: Any = None
    ) -> None:
        said = None if message is None else (message.topic, message.payload, message.qos, message.properties)
        self.records.append((action, link.subject.client, topic, why, publishers, said))

    def failed(self, link: Link, topic: str, errors: Any) -> None:
        self.records.append((link.subject.client, topic, tuple(errors)))


@dataclass(frozen=True)
class Case:
    """Rules, and what is published under them."""

    rules: str
    where: str
    messages: tuple[tuple[str, bytes, float], ...]
    versions: tuple[int, int, int]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    condition = st.sampled_from(CONDITIONS)
    lines = ["policies:"]
    for number in range(draw(st.integers(1, 4))):
        action, effect = draw(st.sampled_from(["read", "write"])), draw(st.sampled_from(["allow", "allow", "deny"]))
        when = draw(st.one_of(st.just("true"), condition))
        lines.append(
            f'  - {{id: p{number}, subject: "*", topic: "a/#", action: {action}, effect: {effect}, when: "{when}"}}'
        )
    for action in ("read", "write"):
        if draw(st.booleans()):
            lines.append(f'  - {{id: {action}, subject: "*", topic: "a/#", action: {action}}}')
    if draw(st.booleans()):
        lines.append(f"combining: {draw(st.sampled_from(['permit-overrides', 'first-applicable']))}")
    if draw(st.booleans()):
        lines += ["preferences:", f'  - {{id: u, user: p, topic: "a/#", when: "{draw(condition)}"}}']
        if draw(st.booleans()):
            lines[-1] = lines[-1][:-1] + ", keep: [/v, /w/x]}"
    if draw(st.booleans()):
        lines += ["views:", '  - {id: v, topic: a/b, for: "user:r", keep: [/v, /w, /z/0]}']
        lines.append('  - {id: w, topic: a/b, for: "user:s", keep: all}')
    if draw(st.booleans()):
        monitor = draw(st.sampled_from(MONITORS))
        lines += ["monitors:", f"  - {{id: m, scope: main, direction: im_pub, each: client, {monitor}}}"]
    if draw(st.booleans()):
        lines.append("levels: {implied: false}")
    message = st.tuples(st.sampled_from(TOPICS), st.sampled_from(PAYLOADS), st.sampled_from([0.0, 0.1, 1.0]))
    version = st.sampled_from([wire.V311, wire.V5])
    return Case(
        rules="\n".join(lines),
        where=draw(st.sampled_from(["", *CONDITIONS[:7]])),
        messages=tuple(draw(st.lists(message, min_size=1, max_size=8))),
        versions=(draw(version), draw(version), draw(version)),
    )


def played(case: Case, *, asked: bool) -> tuple[list[Any], list[Any], int]:
    """What was received, what was audited, and how many messages took the lane."""
    with pytest.MonkeyPatch.context() as patch:
        if not asked:
            patch.setattr(Plan, "_only_asks", lambda _: False)
        world = World(rules=parse(HEAD + case.rules, "x.yaml").built.rules)
        heard = Heard()
        world.scope.audit = heard
        publisher = world.peer("p", version=case.versions[0], username="p")
        readers = [
            world.peer(name, version=version, username=name)
            for name, version in zip("rs", case.versions[1:], strict=True)
        ]
        for reader in readers:
            if case.where and reader.version == wire.V5:
                properties = wire.Properties(user_properties=(("where", case.where),))
                reader.send(
                    wire.Subscribe(
                        packet_id=1, subscriptions=(wire.Subscription(filter="a/#", qos=0),), properties=properties
                    )
                )
            else:
                reader.subscribe("a/#")
            reader.take()
        received: list[Any] = []
        lane = world.scope.path.asked
        taken = 0
        publish = lane.publish

        def counted(*arguments: Any) -> Any:
            nonlocal taken
            taken += 1
            return publish(*arguments)

        patch.setattr(type(lane), "publish", lambda _, *arguments: counted(*arguments))
        for topic, payload, seconds in case.messages:
            if publisher.closed:
                break
            publisher.send(wire.Publish(topic=topic, payload=payload))
            received.append([_parts(reader) for reader in readers])
            world.turn(seconds)
        states = {key: one.state for key, one in world.scope.path.monitoring.states.instances.items()}
        return received, [*heard.records, states, publisher.closed], taken


def _parts(reader: End) -> list[tuple[str, bytes, wire.Properties]]:
    return [(one.topic, one.payload, one.properties) for one in reader.messages()]


@settings(deadline=None, max_examples=60)
@given(cases())
def test_it_gives_what_the_general_path_gives(case: Case) -> None:
    received, told, _ = played(case, asked=True)
    expected, audited, none = played(case, asked=False)
    assert none == 0
    assert received == expected
    assert told == audited


@pytest.mark.parametrize(
    "monitors", ["", *(f"monitors: [{{id: m, scope: main, direction: im_pub, {one}}}]" for one in MONITORS[:2])]
)
def test_messages_take_it(monitors: str) -> None:
    rules = f"""
policies:
  - {{id: w, subject: "*", topic: "a/#", action: write}}
  - {{id: r, subject: "*", topic: "a/#", action: read, when: "o.payload.v > 60"}}
{monitors}
"""
    messages = (("a/b", PAYLOADS[0], 0.0), ("a/b", PAYLOADS[1], 0.0), ("a/b", PAYLOADS[11], 0.0))
    received, told, taken = played(Case(rules, "", messages, (4, 4, 5)), asked=True)
    assert taken == len(messages) - 1  # the first one has no plan yet
    assert [[len(each) for each in one] for one in received] == [[0, 0], [1, 1], [0, 0]]
    assert [one[3].rule for one in told[:4]] == ["default", "default", "r", "r"]


def test_what_depends_on_the_clock_alone_is_asked_anew_when_it_moves() -> None:
    when = "age(timestamp('2023-11-14T22:13:20Z')) < duration('1s')"
    rules = f"""
policies:
  - {{id: w, subject: "*", topic: "a/#", action: write}}
  - {{id: r, subject: "*", topic: "a/#", action: read, when: "{when}"}}
"""
    messages = (("a/b", b"1", 0.0), ("a/b", b"2", 0.0), ("a/b", b"3", 1.0), ("a/b", b"4", 0.0))
    received, _, taken = played(Case(rules, "", messages, (4, 4, 5)), asked=True)
    assert taken == len(messages) - 1
    assert [[one[1] for one in reader] for _, reader in received] == [[b"1"], [b"2"], [b"3"], []]
