"""Random worlds for the gate: a configuration, and a history of what clients and the administrator do.

Configurations have the form of the YAML file. Names, topics and payloads come from small sets, so that rules and
messages meet; conditions come from a grammar over a list of snippets that read everything a condition can read, some
of which fail always or for some subjects and messages. Simple things stand first in each list: that is what a
counterexample shrinks to.

Every operation is possible in every state, so that any of them can be left out when a history shrinks: one of a
client that is not connected does nothing, and so does unsubscribing what is not subscribed. All clients speak MQTT 5.

Left out, because the specification does not say what they mean: `require` and `s` in one packet, two `view` or two
`where` properties, the JSON pointer of the whole document, a changed order of levels.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Final

from hypothesis import strategies as st

from gate.oracle import Connection, Message, Properties, Subscription

START: Final = 1_774_733_400
"""2026-03-28T21:30:00Z, a Saturday: half an hour before the window of the night, and a few hours before the clocks of
Rome go forward."""

CLIENTS: Final = ("c1", "c2", "c3", "c4")
USERS: Final = ("mary", "alice", "bob", "carol")
LEVELS: Final = ("plain", "tls", "mtls")
TOPICS: Final = ("a/b", "a/c", "a", "x/mary/t", "x/alice/t", "x/bob/t", "b/b", "$dev/b")
FILTERS: Final = ("#", "a/#", "a/b", "a/+", "+/b", "x/+/t", "+/#", "$dev/#", "$dev/b", "a/c")
TEMPLATES: Final = (*FILTERS, "x/{s.user}/t", "{s.home}/b", "{s.home}/#", "x/{s.user}/{s.nothing}")
SELECTORS: Final = (
    *("*", "role:coach", "role:runner", "group:team", "group:staff"),
    *("user:mary", "user:alice", "user:bob", "client:c1", "client:c2", "scope:main", "service:http"),
)
POINTERS: Final = ("/level", "/name", "/list", "/list/0", "/deep/part", "/deep", "/a~1b", "/nothing")

PAYLOADS: Final = (
    b'{"level":3}',
    b'{"level":1,"name":"Mary","list":[1,2],"deep":{"part":true,"rest":null}}',
    b'{"level":"high","a/b":0}',
    b'{"name":"\xc3\xa9t\xc3\xa9", "deep": {"part": {}}}',
    b"{}",
    b"[]",
    b"5",
    b"null",
    b"",
    b"not JSON",
    b'{"level":NaN}',
    b"\xff\xfe",
)
VIEWS: Final = (
    '{"*":"all"}',
    '{"user:alice":["/level"],"group:team":["/name","/deep/part"]}',
    '{"role:coach":"all","*":["/level"]}',
    '{"user:bob":["/list"],"client:c1":["/deep"]}',
    '{"*":[]}',
    "{}",
    '{"*":["level"]}',
    '{"nobody":["/level"]}',
    '{"*":"some"}',
    '["*"]',
    "{",
)

# --- conditions ---

ABOUT_MESSAGE: Final = (
    *("true", "false"),
    *("o.qos == 1", "o.retain", "!o.retain", "o.size < 20", "o.topic.startsWith('a')", "size(o.levels) == 2"),
    *("matchesFilter(o.topic, 'a/+')", "'k' in o.properties", "has(o.payload)", "has(o.category)"),
    # fail for some messages
    *("o.payload.level > 2", "has(o.payload.level) && o.payload.level > 2", "o.payload.name == 'Mary'"),
    *("o.payload.list.exists(x, x > 1)", "o.levels[1] == 'b'", "o.category == 'sensitive'", "o.properties.k == 'v'"),
)
ABOUT_CLOCK: Final = (
    *("e.hour >= 22 || e.hour < 6", "within(e.now, '22:00-06:00')", "e.minute < 30", "e.weekday < 5"),
    *("e.date == '2026-03-29'", "e.now < timestamp('2026-03-29T00:30:00Z')", "e.now.getHours('UTC') == 22"),
    "e.location == 'milan'",  # fails without that `environment`
)
ABOUT_SUBJECT: Final = (
    *("'coach' in s.roles", "'team' in s.groups", "has(s.user)", "has(s.user) && s.user != 'bob'"),
    *("s.level >= 'tls'", "s.level < 'trusted'", "'inside' in s.facts", "size(s.facts) == 1"),
    *("s.level != 'plain'", "s.level == 'mtls'", "s.client in ['c1', 'c2']", "s.kind == 'client'", "has(s.clearance)"),
    # fail for some subjects
    *(
        "s.role == 'coach'",
        "s.user == 'mary'",
        "s.clearance >= 2",
        "within(e.now, s.shift)",
        "s.machine == 'treadmill'",
    ),
)
ABOUT_PUBLISHER: Final = (  # all of these fail on the way in
    *(
        "p.level != 'plain'",
        "p.floor == 'tls'",
        "p.floor <= 'tls'",
        "p.level > 'tls'",
        "'inside' in p.facts",
        "p.topic == o.topic",
        "p.qos == 0",
        "p.size > 12",
        "'coach' in p.roles",
    ),
    *("has(p.user) && p.user == 'mary'", "p.e.hour == e.hour", "age(p.time) < duration('1h')", "has(p.clearance)"),
    *("p.user == s.user", "p.role != 'coach'", "p.e.location == 'milan'"),
)
FAILING: Final = ("s.nothing == 1", "e.nothing == 'x'", "o.payload.level.deeper > 1")
FAILING_WHERE: Final = ("e.nothing == 'x'", "o.payload.level.deeper > 1")


def conditions(*snippets: Sequence[str]) -> st.SearchStrategy[str]:
    """A snippet, mostly; or its negation, or two of them joined."""
    atoms = [text for some in snippets for text in some]
    joined = st.tuples(
        st.sampled_from([f"({text}) && " for text in atoms] + [f"({text}) || " for text in atoms]),
        st.sampled_from([f"({text})" for text in atoms]),
    ).map("".join)
    return st.sampled_from(atoms * 2 + [f"!({text})" for text in atoms]) | joined


WHEN: Final = conditions(ABOUT_MESSAGE, ABOUT_SUBJECT, ABOUT_SUBJECT, ABOUT_CLOCK, ABOUT_PUBLISHER, FAILING)
WHEN_WRITE: Final = conditions(ABOUT_MESSAGE, ABOUT_SUBJECT, ABOUT_SUBJECT, ABOUT_CLOCK, FAILING)
WHERE: Final = conditions(ABOUT_MESSAGE, ABOUT_MESSAGE, ABOUT_CLOCK, FAILING_WHERE)


# --- configurations ---
# Strategies are made once, and what belongs together is one choice: both make drawing and shrinking faster.

Configuration = dict[str, Any]


def _some(*choices: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(choices)


def _together(*choices: Iterable[Any]) -> st.SearchStrategy[Any]:
    return st.sampled_from(list(product(*choices)))


SOMETIMES: Final = _some(False, False, True)
SELDOM: Final = _some(False, False, False, False, True)
FILTER: Final = _some("#", "#", *FILTERS)
SELECTION: Final = ("*", "*", "*", *SELECTORS, ["role:coach", "user:bob"], ["group:team", "client:c2"])
SEVERAL: Final = (["/level", "/name"], ["/name", "/level", "/list"], ["/deep/part", "/list"], ["/level", "/deep"])
KEEPS: Final = ("all", *SEVERAL, *([pointer] for pointer in POINTERS))
ACTIONS: Final = (["read", "write"], ["read", "write"], "read", "write", ["read"])
EFFECTS: Final = (*[None] * 12, "deny", "deny", "allow")
BROAD: Final = list(product(("*", "*", "*", "*", "*", *SELECTORS[:5]), ("#", "#", "a/#")))
NARROW: Final = list(product(SELECTION, TEMPLATES))
CONCERN: Final = _some(*BROAD * 16, *NARROW)
PERMISSION: Final = _together(ACTIONS, EFFECTS)
OWNED: Final = _together(("mary", "mary", "alice", *USERS), ("#", "#", "#", *FILTERS))
LIMITS: Final = _together((None, None, None, None, "*"), [None] * len(KEEPS) * 2 + list(KEEPS))


@st.composite
def _policies(draw: st.DrawFn) -> dict[str, Any]:
    subject, topic = draw(CONCERN)
    action, effect = draw(PERMISSION)
    when = draw(WHEN_WRITE if "write" in action else WHEN) if draw(SOMETIMES) else None
    return _written(subject=subject, topic=topic, action=action, effect=effect, when=when)


@st.composite
def _preferences(draw: st.DrawFn) -> dict[str, Any]:
    user, topic = draw(OWNED)
    to, keep = draw(LIMITS)
    effect = "deny" if keep is None and draw(SOMETIMES) else None
    return _written(
        user=user, topic=topic, to=to, keep=keep, effect=effect, when=None if draw(SOMETIMES) else draw(WHEN)
    )


def _written(**row: Any) -> dict[str, Any]:
    return {name: value for name, value in row.items() if value is not None}


POLICY, PREFERENCE = _policies(), _preferences()
VIEW: Final = _together(("#", "#", *FILTERS), SELECTION, KEEPS).map(
    lambda row: {"topic": row[0], "for": row[1], "keep": row[2]}
)
CLASS: Final = _together(FILTERS, ("sensitive", "generic")).map(lambda row: {"topic": row[0], "category": row[1]})


def _numbered(prefix: str, rows: st.SearchStrategy[Any], most: int) -> st.SearchStrategy[list[dict[str, Any]]]:
    return st.lists(rows, max_size=most).map(
        lambda found: [{"id": f"{prefix}{at}", **row} for at, row in enumerate(found, 1)]
    )


BROKERING: Final[tuple[Mapping[str, Any], ...]] = (
    *({},) * 4,
    {
        "allow": [["warm", "warm"], ["warm", "cold"], ["cold", "cold"]],
        "assign": [{"client": "role:coach", "in": "warm", "out": "warm"}],
        "default": {"in": "cold", "out": "cold"},
    },
    {
        "allow": [["warm", "cold"], ["cold", "warm"], ["cold", "cold"]],
        "assign": [{"client": "group:team", "in": "warm"}, {"client": ["user:bob", "client:c1"], "out": "warm"}],
        "default": {"in": "cold", "out": "cold"},
    },
    {
        "allow": [["hot", "hot"], ["warm", "hot"]],
        "assign": [{"client": "user:mary", "in": "warm", "out": "hot"}, {"client": "*", "in": "hot"}],
        "default": {"out": "hot"},
    },
    {"allow": [["warm", "cold"]], "assign": [{"client": "role:runner", "in": "warm"}], "default": {"out": "cold"}},
)
ATTRIBUTES: Final[tuple[Mapping[str, Any], ...]] = (
    {},
    {"clearance": 1},
    {"clearance": 3, "home": "a"},
    {"shift": "08:00-14:00", "home": "b"},
    {"shift": "22:00-06:00"},
    {"clearance": "high"},
    *({"home": name} for name in ("+", "a/b", "#", "$dev")),
)
ROLES: Final[tuple[list[str], ...]] = ([], ["coach"], ["runner"], ["runner", "coach"], ["coach", "runner"])
GROUPS: Final[tuple[list[str], ...]] = ([], ["team"], ["staff"], ["team", "staff"])
KNOWN: Final = _together(ROLES, GROUPS, ATTRIBUTES)
INHERITED: Final = _together(ATTRIBUTES, ATTRIBUTES)
MACHINE: Final = _together(("mary", "alice", "bob"), ATTRIBUTES)
PRESENT: Final = _some(*[USERS] * 4, USERS[:3], USERS[:2], ("mary", "bob"), ("alice", "bob", "carol"))


def _user(name: str, known: tuple[Any, ...]) -> dict[str, Any]:
    return {"password": f"plain:{name}", "roles": known[0], "groups": known[1], "attributes": known[2]}


@st.composite
def _directories(draw: st.DrawFn) -> dict[str, Any]:
    users = {name: _user(name, draw(KNOWN)) for name in draw(PRESENT)}
    directory: dict[str, Any] = {"users": users}
    if draw(SOMETIMES):
        for kind, names in (("roles", ("coach", "runner")), ("groups", ("team", "staff"))):
            added = zip(names, draw(INHERITED), strict=True)
            directory[kind] = {name: {"attributes": attributes} for name, attributes in added}
    owner, attributes = draw(MACHINE)
    if owner in users:
        directory["clients"] = {"c1": {"user": owner, "attributes": {"machine": "treadmill", **attributes}}}
    return directory


LISTED: Final = _numbered("p", POLICY, 8)
SHOWN: Final = _numbered("v", VIEW, 3)
SECTIONS: Final[Mapping[str, st.SearchStrategy[Any]]] = {
    "directory": _directories(),
    "policies": SELDOM.flatmap(lambda is_open: st.just("open") if is_open else LISTED),
    "combining": _some("deny-overrides", "permit-overrides", "first-applicable"),
    "preferences": _numbered("u", PREFERENCE, 6),
    "views": SOMETIMES.flatmap(lambda some: SHOWN if some else st.just([])),
    "brokering": _some(*BROKERING),
    "levels": _some(
        {},
        {"implied": False},
        {"order": ["plain", "tls", "mtls", "trusted"]},
        {"implied": True},
        *[{"facts": {"inside": "true", "lab": "true"}}] * 4,
        {"facts": {"lab": "true"}, "implied": True},
    ),
    "classify": st.lists(CLASS, max_size=2),
    "environment": _some({}, {"location": "milan"}, {"location": "rome", "purpose": "training"}),
}
"""The parts of a configuration that decide; the rest is always the same."""

ALL_SECTIONS: Final = st.fixed_dictionaries({"zone": _some("UTC", "Europe/Rome", "America/New_York"), **SECTIONS})
SOME_SECTIONS: Final = (
    st.lists(st.sampled_from(list(SECTIONS)), min_size=1, max_size=2, unique=True)
    .map(lambda names: {name: SECTIONS[name] for name in names})
    .flatmap(st.fixed_dictionaries)
)


def _changed(base: Configuration, sections: Configuration) -> Configuration:
    """The base with other sections, but without preferences of nobody: a file that has them would be refused."""
    whole = {**base, **sections}
    known = whole["directory"]["users"]
    return {**whole, "preferences": [row for row in whole["preferences"] if row["user"] in known]}


def _whole(drawn: Configuration) -> Configuration:
    sections = dict(drawn)
    base = {
        "version": 1,
        "node": {"name": "here", "domain": "world", "timezone": sections.pop("zone")},
        "scopes": {"main": {}},
        "listeners": [{"url": "mqtt://127.0.0.1:1883", "scope": "main", "anonymous": True}],
    }
    return _changed(base, sections)


CONFIGURATIONS: Final = ALL_SECTIONS.map(_whole)


def configurations() -> st.SearchStrategy[Configuration]:
    """Whole configurations of a node with one scope."""
    return CONFIGURATIONS


# --- what clients send ---

DEMANDS: Final[tuple[Properties, ...]] = (
    *[()] * 24,
    *((("require", "tls"),), (("require", "none"),), (("require", "plain"),), (("require", "mtls"),)),
    *((("require", "inside"),), (("require", "tls, inside"),), (("require", "lab,none"),), (("require", "signed"),)),
    *((("s", "0"),), (("s", "1"),), (("s", "2"),), (("s", "9"),), (("require", "warp"),), (("s", "tls"),)),
)
CONTENT: Final[tuple[Properties, ...]] = (
    *((), (), (("k", "v"),), (("k", "v"), ("k", "w"))),
    *((("other", "x"), ("k", "w")), (("floor", "trusted"),)),
)


PUBLISHED: Final = _together(TOPICS, (*PAYLOADS[:4] * 2, *PAYLOADS))
FLAGS: Final = _together((0, 1), (False, False, True))
TABLES: Final = (None,) * 35 + VIEWS[:4] + VIEWS
SAID: Final = _together(CONTENT, DEMANDS)
TABLE: Final = _some(*TABLES)
DEMAND: Final = _some(*DEMANDS)
WANTED: Final = _together(("", "", "", "$share/g/"), ("#", "#", *FILTERS), (0, 1))


@st.composite
def _messages(draw: st.DrawFn) -> Message:
    topic, payload = draw(PUBLISHED)
    qos, retain = draw(FLAGS)
    content, demand = draw(SAID)
    table = draw(TABLE)
    properties: Properties = content + demand + ((("view", table),) if table is not None else ())
    return Message(topic=topic, payload=payload, qos=qos, retain=retain, properties=properties)


@st.composite
def _subscriptions(draw: st.DrawFn) -> Subscription:
    group, filter, qos = draw(WANTED)
    properties: Properties = draw(DEMAND)
    if draw(SOMETIMES):
        properties += (("where", draw(WHERE)),)
    return Subscription(filter=group + filter, qos=qos, properties=properties)


MESSAGES: Final = _messages()
"""A PUBLISH or a will: content, demand and table of visibility."""
SUBSCRIPTIONS: Final = _subscriptions()
"""A SUBSCRIBE of one filter, perhaps shared, with demand and condition."""

PEOPLE: Final = tuple(zip(CLIENTS, ("mary", "alice", "bob", None), strict=True))
"""Who mostly uses which client."""
INTRUDERS: Final = (("c1", "alice"), ("c2", "bob"), ("c3", None), ("c4", "carol"))

FACTS: Final[tuple[tuple[str, ...], ...]] = ((), ("inside",), ("inside", "lab"))

CONNECTIONS: Final = _together((*PEOPLE * 3, *INTRUDERS), LEVELS, DEMANDS, FACTS).map(
    lambda drawn: Connection(client=drawn[0][0], user=drawn[0][1], level=drawn[1], properties=drawn[2], facts=drawn[3])
)
"""A client's connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """One message for one subscription, published under one configuration and sent under another or the same."""

    configuration: Configuration
    then: Configuration
    """The configuration when the message was published."""
    publisher: Connection
    message: Message
    published: int
    """Seconds since 1970."""
    subscriber: Connection
    subscription: Subscription
    sent: int


DELAY: Final = _some(0, 1, 3600, 9 * 3600)
MOMENT: Final = _some(0, 1800, 3600, 5 * 3600, 26 * 3600).map(lambda seconds: START + seconds)
NO_CHANGE: Final[st.SearchStrategy[Configuration]] = st.just({})


@st.composite
def _situations(draw: st.DrawFn) -> Situation:
    then = draw(CONFIGURATIONS)
    published = draw(MOMENT)
    return Situation(
        configuration=_changed(then, draw(SOME_SECTIONS if draw(SOMETIMES) else NO_CHANGE)),
        then=then,
        publisher=draw(CONNECTIONS),
        message=draw(MESSAGES),
        published=published,
        subscriber=draw(CONNECTIONS),
        subscription=draw(SUBSCRIPTIONS),
        sent=published + draw(DELAY),
    )


SITUATIONS: Final = _situations()


def situations() -> st.SearchStrategy[Situation]:
    """Single decisions; the filter of the subscription need not match the topic."""
    return SITUATIONS


# --- histories ---


@dataclass(frozen=True, slots=True, kw_only=True)
class Connect:
    """CONNECT. Of a client that is connected already: its session is taken over, if the principal is the same."""

    connection: Connection
    clean: bool = True
    """Clean Start: whatever session there was is forgotten."""
    persistent: bool = False
    """Whether the session outlives the connection (for longer than any history)."""
    will: Message | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Disconnect:
    """DISCONNECT by the client: its will is not sent."""

    client: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """The connection breaks: the client's will is sent at once."""

    client: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscribe:
    """SUBSCRIBE to one filter; the same filter again replaces the subscription."""

    client: str
    subscription: Subscription


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsubscribe:
    """UNSUBSCRIBE from one filter, spelled as it was subscribed to."""

    client: str
    filter: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Publish:
    """PUBLISH; at QoS 1 the acknowledgement is awaited."""

    client: str
    message: Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Advance:
    """The clock goes on."""

    seconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconfigure:
    """The administrator puts another configuration in force; who is no user any more is disconnected."""

    configuration: Configuration = field(hash=False)


Operation = Connect | Disconnect | Drop | Subscribe | Unsubscribe | Publish | Advance | Reconfigure


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A configuration to start with, the time, and what happens."""

    configuration: Configuration = field(hash=False)
    start: int = START
    """Seconds since 1970."""
    operations: tuple[Operation, ...] = ()


LIFE: Final = _together((False, False, True), (True, True, False), (False, False, True))


@st.composite
def _connects(draw: st.DrawFn) -> Connect:
    clean, persistent, dies = draw(LIFE)
    will = draw(MESSAGES) if dies else None
    return Connect(connection=draw(CONNECTIONS), clean=clean, persistent=persistent, will=will)


def _arrival(connect: Connect, found: list[Subscription]) -> list[Operation]:
    client = connect.connection.client
    return [connect, *(Subscribe(client=client, subscription=one) for one in found)]


NAME: Final = _some(*CLIENTS)
CONNECT: Final = _connects()
ARRIVALS: Final = st.lists(
    st.builds(_arrival, CONNECT, st.lists(SUBSCRIPTIONS, min_size=1, max_size=2)), min_size=2, max_size=4
)
PUBLISH: Final = st.builds(Publish, client=NAME, message=MESSAGES)
OTHERS: Final[tuple[st.SearchStrategy[Any], ...]] = (
    st.builds(Advance, seconds=_some(1, 60, 1800, 3600, 6 * 3600, 24 * 3600)),
    CONNECT,
    st.builds(Drop, client=NAME),
    st.builds(Subscribe, client=NAME, subscription=SUBSCRIPTIONS),
    st.builds(Reconfigure, configuration=SOME_SECTIONS),  # completed in `_worlds`
    st.builds(Disconnect, client=NAME),
    st.builds(Unsubscribe, client=NAME, filter=_some(*FILTERS, *(f"$share/g/{one}" for one in FILTERS[:3]))),
)
STEPS: Final = st.lists(_some(*[PUBLISH] * 6, *OTHERS).flatmap(lambda chosen: chosen), max_size=10)


@st.composite
def _worlds(draw: st.DrawFn) -> World:
    configuration = draw(CONFIGURATIONS)
    arrivals = draw(ARRIVALS)
    # Several lists, because one is short on average however long it may be.
    later = [draw(STEPS), draw(STEPS), draw(STEPS)]
    operations = [
        Reconfigure(configuration=_changed(configuration, operation.configuration))
        if isinstance(operation, Reconfigure)
        else operation
        for group in (*arrivals, *later)
        for operation in group
    ]
    return World(configuration=configuration, operations=tuple(operations))


WORLDS: Final = _worlds()


def worlds() -> st.SearchStrategy[World]:
    """Worlds in which two to four clients arrive and subscribe, and then up to thirty things happen."""
    return WORLDS
