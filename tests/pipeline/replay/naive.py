"""What semantics.md says, read aloud: who may publish and receive what, without any of the gate's code.

Slow and plain: everything is decided anew for each message. Conditions are pairs of a text for the file and a function
that says the same.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

LEVELS = ("plain", "tls", "mtls", "trusted")
ABSENT = object()


class Wrong(Exception):
    """A condition has no answer."""


@dataclass(frozen=True)
class Person:
    client: str
    user: str | None
    roles: tuple[str, ...] = ()
    level: str = "plain"
    demand: str | None = None
    """With CONNECT: a level, `none`, or nothing."""


@dataclass(frozen=True)
class RecordedSubscription:
    filter: str
    qos: int = 0
    no_local: bool = False
    where: str | None = None
    demand: str | None = None


@dataclass(frozen=True)
class Event:
    """Something that happened. `what`: connect, disconnect, subscribe, unsubscribe, end, publish, refused."""

    what: str
    at: float
    who: Person
    subscription: RecordedSubscription | None = None
    topic: str = ""
    payload: bytes = b""
    recorded: bool = True
    """Whether the payload was."""
    qos: int = 0
    properties: tuple[tuple[str, str], ...] = ()
    demand: str | None = None
    view: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Policy:
    id: str
    subject: str
    topic: str
    actions: tuple[str, ...]
    effect: str
    when: str | None


@dataclass(frozen=True)
class Preference:
    id: str
    user: str
    topic: str
    when: str | None
    keep: tuple[str, ...] | None


@dataclass(frozen=True)
class View:
    id: str
    topic: str
    subject: str
    keep: tuple[str, ...] | None


@dataclass(frozen=True)
class Rules:
    policies: tuple[Policy, ...] | None = ()
    """None: open."""
    combining: str = "deny-overrides"
    preferences: tuple[Preference, ...] = ()
    views: tuple[View, ...] = ()
    implied: bool = False

    def document(self) -> dict[str, Any]:
        """As keys of a file."""
        policies: Any = "open"
        if self.policies is not None:
            policies = [
                {"id": p.id, "subject": p.subject, "topic": p.topic, "action": list(p.actions), "effect": p.effect}
                | ({} if p.when is None else {"when": p.when})
                for p in self.policies
            ]
        preferences = [
            {"id": p.id, "user": p.user, "topic": p.topic}
            | ({} if p.when is None else {"when": p.when})
            | ({} if p.keep is None else {"keep": list(p.keep)})
            for p in self.preferences
        ]
        views = [
            {"id": v.id, "topic": v.topic, "for": v.subject, "keep": "all" if v.keep is None else list(v.keep)}
            for v in self.views
        ]
        return {
            "policies": policies,
            "combining": self.combining,
            "preferences": preferences,
            "views": views,
            "levels": {"implied": self.implied},
        }


@dataclass
class RecordedSession:
    person: Person
    connected: bool = True
    subscriptions: dict[str, RecordedSubscription] = field(default_factory=dict)


# -- words -----------------------------------------------------------------------------------------------------------


def covers(filter: str, topic: str) -> bool:
    wanted, levels = filter.split("/"), topic.split("/")
    if topic.startswith("$") and wanted[0] in ("+", "#"):
        return False
    for at, level in enumerate(wanted):
        if level == "#":
            return True
        if at >= len(levels) or level not in ("+", levels[at]):
            return False
    return len(wanted) == len(levels)


def is_(person: Person, selector: str) -> bool:
    sort, _, name = selector.partition(":")
    match sort:
        case "*":
            return True
        case "user":
            return person.user == name
        case "role":
            return name in person.roles
        case _:
            return person.client == name


def parsed(payload: bytes) -> Any:
    try:
        return json.loads(payload)
    except ValueError:
        return ABSENT


@dataclass(frozen=True)
class Scene:
    """What a condition sees."""

    event: Event
    content: bytes
    properties: tuple[tuple[str, str], ...]
    s: Person | None
    p: Person | None

    def payload(self, name: str) -> Any:
        found = parsed(self.content)
        if not isinstance(found, dict) or name not in found:
            raise Wrong
        return found[name]


def _more(value: Any, than: int) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Wrong
    return value > than


def _sender(scene: Scene) -> str:
    if scene.p is None or scene.p.user is None:
        raise Wrong
    return scene.p.user


def _user(scene: Scene) -> str:
    if scene.s is None or scene.s.user is None:
        raise Wrong
    return scene.s.user


def _has(scene: Scene, name: str) -> bool:
    found = parsed(scene.content)
    if found is ABSENT or not isinstance(found, dict):
        raise Wrong
    return name in found


CONDITIONS: dict[str, Callable[[Scene], bool]] = {
    "o.payload.a > 3": lambda scene: _more(scene.payload("a"), 3),
    "o.payload.a > 0": lambda scene: _more(scene.payload("a"), 0),
    "has(o.payload.a)": lambda scene: _has(scene, "a"),
    "has(o.payload.b)": lambda scene: _has(scene, "b"),
    "o.qos > 0": lambda scene: scene.event.qos > 0,
    "o.size > 4": lambda scene: len(scene.content) > 4,
    'p.user == "alice"': lambda scene: _sender(scene) == "alice",
    's.user != "bob"': lambda scene: _user(scene) != "bob",
    '"k" in o.properties': lambda scene: "k" in dict(scene.properties),
    "e.hour < 12": lambda scene: datetime.fromtimestamp(scene.event.at, UTC).hour < 12,
    's.level == "tls"': lambda scene: scene.s is not None and scene.s.level == "tls",
    "p.e.hour < 6": lambda scene: _hour(scene) < 6,
}
LATER = ("e.hour < 12", 's.level == "tls"')
"""What is not asked of somebody who is away: it is about the connection, or the clock when it is sent."""
WHERES = ("o.payload.a > 3", "o.qos > 0", "has(o.payload.b)", "e.hour < 12")


def _hour(scene: Scene) -> int:
    if scene.p is None:
        raise Wrong
    return datetime.fromtimestamp(scene.event.at, UTC).hour


def met(when: str | None, scene: Scene) -> bool:
    return True if when is None else CONDITIONS[when](scene)


# -- decisions -------------------------------------------------------------------------------------------------------


def permitted(rules: Rules, action: str, actor: Person, scene: Scene) -> bool:
    """Access policies."""
    if rules.policies is None:
        return True
    speaking = []
    for policy in rules.policies:
        if action in policy.actions and is_(actor, policy.subject) and covers(policy.topic, scene.event.topic):
            try:
                if met(policy.when, scene):
                    speaking.append(policy.effect)
            except Wrong:
                return False  # whatever the combining algorithm
    if not speaking:
        return False
    match rules.combining:
        case "deny-overrides":
            return "deny" not in speaking
        case "permit-overrides":
            return "allow" in speaking
        case _:
            return speaking[0] == "allow"


def may_write(rules: Rules, event: Event) -> bool:
    scene = Scene(event, event.payload, event.properties, event.who, None)
    return permitted(rules, "write", event.who, scene)


def at_least(level: str, demand: str | None) -> bool:
    return demand is None or LEVELS.index(level) >= LEVELS.index(demand)


def demanded(rules: Rules, own: str, *said: str | None) -> str | None:
    for each in said:
        if each is not None:
            return None if each == "none" else each
    return own if rules.implied else None


def seen(rules: Rules, event: Event, recorded: RecordedSession, subscription: RecordedSubscription) -> Any:
    """What somebody receives by one subscription: None for nothing, else content and user properties."""
    reader, writer = recorded.person, event.who
    if recorded.connected:
        if not at_least(reader.level, demanded(rules, writer.level, event.demand, writer.demand)):
            return None
        wants = demanded(rules, reader.level, subscription.demand, reader.demand)
    else:
        wants = None if subscription.demand in (None, "none") else subscription.demand
    if not at_least(writer.level, wants):
        return None
    scene = Scene(event, event.payload, event.properties, reader, writer)
    if not permitted(rules, "read", reader, scene):
        return None
    tables: list[set[str] | None] = []  # of JSON pointers; None: all
    mine = [each for each in rules.preferences if each.user == writer.user and covers(each.topic, event.topic)]
    if mine:
        agreed = []
        for each in mine:
            try:
                if met(each.when, scene):
                    agreed.append(each.keep)
            except Wrong:
                continue  # counts as false
        if not agreed:
            return None
        tables.append(united(agreed))
    rows = [each for each in rules.views if covers(each.topic, event.topic)]
    if rows:
        tables.append(united([each.keep for each in rows if is_(reader, each.subject)]))
    if event.view is not None:
        keeps = [None if keep == "all" else keep for who, keep in event.view.items() if is_(reader, who)]
        tables.append(united(keeps))
    shown: Any = (event.payload, event.properties)
    for table in tables:
        if table is not None:
            shown = part(event.payload, set.intersection(*(each for each in tables if each is not None)))
            break
    if shown is None:
        return None
    content, properties = shown
    if subscription.where is not None:
        try:
            if not met(subscription.where, Scene(event, content, properties, None, None)):
                return None
        except Wrong:
            return None
    found = parsed(content)
    return (content if found is ABSENT else json.dumps(found, sort_keys=True)), properties


def united(keeps: Sequence[Sequence[str] | None]) -> set[str] | None:
    return None if any(keep is None for keep in keeps) else {pointer for keep in keeps for pointer in keep or ()}


def part(payload: bytes, keep: set[str]) -> tuple[bytes, tuple[tuple[str, str], ...]] | None:
    found = parsed(payload)
    if not isinstance(found, dict):
        return None
    left = {name: value for name, value in found.items() if f"/{name}" in keep}
    return (json.dumps(left).encode(), ()) if left else None


# -- the whole record ------------------------------------------------------------------------------------------------

Change = tuple[str, str, str, str, bool, bool]
"""Who, action, topic, publisher, allowed before, allowed after."""


def name_of(person: Person) -> str:
    return f"client:{person.client}" if person.user is None else f"user:{person.user}/client:{person.client}"


def changes(events: Sequence[Event], before: Rules, after: Rules) -> tuple[Counter[Change], int]:
    """What is decided differently, and how many deliveries were decided."""
    found: Counter[Change] = Counter()
    deliveries = 0
    by_key: dict[tuple[str | None, str], RecordedSession] = {}
    for event in events:
        key = (event.who.user, event.who.client)
        match event.what:
            case "connect":
                recorded = by_key.setdefault(key, RecordedSession(event.who))
                recorded.person, recorded.connected = event.who, True
            case "disconnect":
                by_key[key].connected = False
            case "end":
                del by_key[key]
            case "subscribe":
                assert event.subscription is not None
                by_key[key].subscriptions[event.subscription.filter] = event.subscription
            case "unsubscribe":
                assert event.subscription is not None
                by_key[key].subscriptions.pop(event.subscription.filter, None)
            case _:
                was, would = may_write(before, event), may_write(after, event)
                writer = name_of(event.who)
                if was != would:
                    found[writer, "write", event.topic, "", was, would] += 1
                if not was and not would:
                    continue
                for recorded in by_key.values():
                    for subscriptions in offered(recorded, event):
                        deliveries += 1
                        got = [
                            allowed and best([seen(rules, event, recorded, each) for each in subscriptions])
                            for rules, allowed in ((before, was), (after, would))
                        ]
                        had, has = (one or None for one in got)
                        if had != has:
                            reader = name_of(recorded.person)
                            found[reader, "read", event.topic, writer, had is not None, has is not None] += 1
    return found, deliveries


def best(found: Sequence[Any]) -> Any:
    return next((each for each in found if each is not None), None)


def offered(recorded: RecordedSession, event: Event) -> list[list[RecordedSubscription]]:
    """The subscriptions by which a message may come: the plain ones together, each shared one by itself."""
    plain: list[RecordedSubscription] = []
    shared: list[list[RecordedSubscription]] = []
    own = (event.who.user, event.who.client) == (recorded.person.user, recorded.person.client)
    for each in recorded.subscriptions.values():
        if not recorded.connected and not (event.qos and each.qos):
            continue  # QoS 0 does not wait
        if each.filter.startswith("$share/"):
            if covers(each.filter.split("/", 2)[2], event.topic):
                shared.append([each])
        elif covers(each.filter, event.topic) and not (own and each.no_local):
            plain.append(each)
    return ([plain] if plain else []) + shared
