"""The rules that are measured, as text for the configuration: everything at once, and each mechanism alone.

The load is that of `bench broker`: publishers `p00000` and on, each of which writes one of the topics `bench/k00` to
`bench/k13`; subscribers `s00000` and on, one or two to a topic; and with everything, `b00000`, who subscribes to all
and may read nothing. Everybody is a user with a password of his own. Conditions differ from policy to policy, so that
nothing is gained by understanding one text only once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from bench.load.job import PAYLOAD

TOPICS = 14
SUBSCRIBERS = 14
HERE = 200  # of many policies, those that speak of the topics of the load; the rest is about other places
OPEN = "policies: open"
SCOPE = "main"
STATES = "bench/state"
"""Where devices say `stop` and `start`, which nobody does while it is measured."""
CONTENT: dict[str, object] = {
    "device": "pump-07",
    "heart": 72,
    "steps": 71,
    "place": {"lat": 45.46, "lon": 9.19},
    "note": "",
}
READING = 120
"""Bytes of content below which it has no more readings."""
PAYLOAD_CONDITION = "o.payload.heart > 60 && o.payload.heart < 200"
VIEWS = {"ward": ("device", "heart"), "office": ("device", "steps")}
"""What each of two groups sees of it: pointers to the top of the document."""


def content(size: int = PAYLOAD) -> str:
    """A JSON document of exactly so many bytes: those of any payload, or more, with readings that nobody asks for."""
    document = dict(CONTENT)
    readings: dict[str, object] = {}
    while len(_written({**document, "readings": readings})) < size - READING:
        number = len(readings)
        readings[f"channel{number:03d}"] = {"value": number * 1.5, "unit": "celsius", "valid": True}
    if readings:
        document["readings"] = readings
    return _written({**document, "note": "x" * (size - len(_written(document)))})


def _written(document: object) -> str:
    return json.dumps(document, separators=(",", ":"))


def seen() -> tuple[str, ...]:
    """What is left of it for each group."""
    return tuple(json.dumps({name: CONTENT[name] for name in names}, separators=(",", ":")) for names in VIEWS.values())


# -- who there is ----------------------------------------------------------------------------------------------------


def directory(publishers: int) -> str:
    """Everybody; passwords are plain, since connecting is not what is measured."""
    lines = ["directory:", "  users:"]
    for number in range(publishers):
        lines.append(_user(f"p{number:05d}", "device", f"line: k{number % TOPICS:02d}"))
    groups = tuple(VIEWS)
    for number in range(SUBSCRIBERS):
        lines.append(_user(f"s{number:05d}", "reader", "shift: early", groups[number % len(groups)]))
    lines.append(_user("b00000", "guest", "shift: late"))
    return "\n".join(lines)


def _user(name: str, role: str, attribute: str, group: str = "all") -> str:
    facts = f"{{{attribute}, site: north, clearance: 3}}"
    return f'    {name}: {{password: "plain:{name}", roles: [{role}], groups: [{group}], attributes: {facts}}}'


# -- everything at once ----------------------------------------------------------------------------------------------


def everything(
    publishers: int, policies: int = HERE, *, edition: int = 0, dense: bool = False, monitored: bool = True
) -> str:
    """So many policies with conditions, a preference of every publisher, levels, types of everybody's links, monitors
    on all of them, and an audit that counts what passes.

    Another `edition` decides alike and reads differently. `dense`: all policies speak of one topic, `bench/k00`, but
    for that of `STATES`.
    """
    lines = [directory(publishers), "policies:", *_policies(policies, edition, dense)]
    lines.append("preferences:")
    for number in range(publishers):
        when = f"s.role == 'reader' && s.user != 'p{number:05d}'"
        lines.append(f'  - {{id: u{number}, user: p{number:05d}, topic: "bench/#", when: "{when}"}}')
    lines += ["levels: {implied: true}", *brokering(), *(watched() if monitored else ()), "record: decisions"]
    return "\n".join(lines)


def brokering() -> list[str]:
    """Types of everybody's links by role; what devices measure goes to who looks at it."""
    return [
        "brokering:",
        "  allow: [[measured, shown], [command, acted]]",
        "  assign:",
        '    - {client: "role:device", in: measured, out: acted}',
        '    - {client: ["role:reader", "role:guest"], in: command, out: shown}',
    ]


def watched() -> list[str]:
    """A monitor on every link, in both directions, that listens to the topics of the load.

    A device that says `stop` is not listened to until it says `start`; whoever looks at it is shown nothing meanwhile.
    While nobody has said so nothing happens in any monitor, which is what most of them do most of the time.
    """
    lines = ["monitors:"]
    for id, direction in (("listen", "im_pub"), ("show", "im_sub")):
        lines += [
            f"  - id: {id}",
            f"    scope: {SCOPE}",
            f"    direction: {direction}",
            "    each: client",
            "    automaton:",
            "      start: running",
            "      states:",
            f"        running: [{{on: {STATES}/stop, go: stopped}}]",
            f'        stopped: [{{on: {STATES}/start, go: running}}, {{on: "bench/+", emit: []}}]',
        ]
    return lines


def _policies(count: int, edition: int, dense: bool) -> Iterator[str]:
    yield _policy("guest", "role:guest", "bench/#", "read", f"p.site == 'elsewhere{edition}'")
    who = '"role:device", "role:reader"'
    yield f'  - {{id: states, subject: [{who}], topic: "{STATES}/+", action: [read, write], when: "s.clearance > 2"}}'
    for number in range(2, count):
        line = f"k{number % TOPICS:02d}"
        topic = f"bench/{line}"
        if dense:
            topic = "bench/k00"
        elif number >= HERE:
            topic = f"plant/{number:05d}/+/{line}"
        match number // TOPICS % 4:
            case 0:
                when = f"s.line == '{line}' && s.clearance >= 1 && s.site != 'x{number}'"
                yield _policy(f"w{number}", "role:device", topic, "write", when)
            case 1:
                when = f"s.clearance >= 2 && p.site == s.site && o.levels.size() < {number + 2}"
                yield _policy(f"r{number}", "role:reader", topic, "read", when)
            case 2:
                when = f"s.clearance < 0 || s.site in ['closed', 'sold', 'x{number}']"
                yield _policy(f"n{number}", "role:device", topic, "write", when, deny=True)
            case _:
                when = f"p.clearance < 0 || s.shift == 'x{number}'"
                yield _policy(f"m{number}", "role:reader", topic, "read", when, deny=True)


def _policy(id: str, subject: str, topic: str, action: str, when: str = "", *, deny: bool = False) -> str:
    effect = ", effect: deny" if deny else ""
    condition = f', when: "{when}"' if when else ""
    return f'  - {{id: {id}, subject: "{subject}", topic: "{topic}", action: {action}{effect}{condition}}}'


# -- each mechanism alone --------------------------------------------------------------------------------------------


def alone(publishers: int, *, write: str = "", read: str = "", more: Sequence[str] = ()) -> str:
    """One policy for those who write and one for those who read, with these conditions, and whatever else there is."""
    return "\n".join(
        [
            directory(publishers),
            "policies:",
            _policy("write", "role:device", "bench/#", "write", write),
            _policy("read", "role:reader", "bench/#", "read", read),
            *more,
        ]
    )


def unrestricted(publishers: int) -> str:
    """The same people, and `policies: open`."""
    return f"{directory(publishers)}\n{OPEN}"


def views() -> list[str]:
    """The administrator's table for two groups."""
    lines = ["views:"]
    for group, names in VIEWS.items():
        keep = ", ".join(f"/{name}" for name in names)
        lines.append(f'  - {{id: {group}, topic: "bench/#", for: "group:{group}", keep: [{keep}]}}')
    return lines


def preferences(publishers: int, when: str, keep: Sequence[str] = ()) -> list[str]:
    """One of every publisher."""
    kept = f", keep: [{', '.join(keep)}]" if keep else ""
    return [
        "preferences:",
        *(
            f'  - {{id: u{number}, user: p{number:05d}, topic: "bench/#", when: "{when}"{kept}}}'
            for number in range(publishers)
        ),
    ]


def monitor(direction: str, does: str) -> list[str]:
    """One for each client, which does this with the topics of the load."""
    return ["monitors:", f"  - {{id: watch, scope: {SCOPE}, direction: {direction}, each: client, {does}}}"]


RATE = 'on: "bench/+", rate: 1000000/s'
"""Nobody is that fast, so everything passes; and each message changes the state."""
MONITORS: dict[str, tuple[str, list[str]]] = {
    "calm": ("automata on every link, in a state where nothing happens", watched()),
    "monitor-payload": (
        "a monitor with a condition on the content: `o.payload`",
        monitor("im_pub", f'only: "bench/+", payload: "{PAYLOAD_CONDITION}"'),
    ),
    "rate": ("a monitor that counts what each client publishes: `rate`", monitor("im_pub", RATE)),
    "acting": (
        "an automaton that goes to another state with each message that a client publishes",
        [
            "monitors:",
            f"  - id: turn\n    scope: {SCOPE}\n    direction: im_pub\n    each: client\n    automaton:",
            "      start: even",
            '      states: {even: [{on: "bench/+", go: odd}], odd: [{on: "bench/+", go: even}]}',
        ],
    ),
    "rate-out": ("a monitor that counts what each client may be sent: `rate`", monitor("im_sub", RATE)),
}
"""Monitors by name, from the cheapest: what they do, and how they are written."""
MECHANISMS: dict[str, tuple[str, dict[str, str]]] = {
    "hour": ("time of day in whole hours: `e.hour`", {"read": "e.hour >= 0 && e.hour < 24"}),
    "within": (
        "times of day: `within(e.now, …)`",
        {"read": "within(e.now, '06:00-18:00') || within(e.now, '18:00-06:00')"},
    ),
    "moment": (
        "another answer at any moment: `age(…)`",
        {"read": "age(timestamp('2026-01-01T00:00:00Z')) > duration('1h')"},
    ),
    "payload-write": ("content, when it is published: `o.payload`", {"write": PAYLOAD_CONDITION}),
    "payload-read": ("content, when it is delivered: `o.payload`", {"read": PAYLOAD_CONDITION}),
}
"""Conditions that cannot be decided once for all, by name: what they ask for, and of whom."""
