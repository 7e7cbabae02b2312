"""What is decided, said once more and plainly: the oracle with which the compiled gate is compared.

A transcription of the specification (semantics.md), one function per sentence, with the sentence cited. Every
decision starts from the configuration as it stands in the file: nothing is compiled, indexed or remembered (but for
the parsed text of predicates, which have an oracle of their own, as topic filters have).

Covered: the steps 1 (write), 3 (context), 6 (brokering, with own types), 7 (levels), 8 (read, preferences), 9 (view)
and 10 (where), and SUBSCRIBE, for clients of one scope of one node. Not covered: sessions, queues, QoS, which of
several subscriptions or members of a share is served, monitors, capabilities, publisher rules, keys, labels
(`preset: blp`), `subscribe: hold`.

How to ask it:

- a PUBLISH (or a will, when it fires): `decide_write`, and if that allows, `context_of`, to be kept with the message;
- a SUBSCRIBE: `decide_subscribe`;
- whenever a message is about to be sent, live, queued, retained or resumed: `decide_read` with the configuration, the
  clock and the subscriber's connection of that moment ("decided when it is sent").
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, StrEnum
from functools import lru_cache
from typing import Any, Final
from zoneinfo import ZoneInfo

from tidegate.predicate import UNKNOWN, Predicate, PredicateFailed
from tidegate.predicate import compile as compile_predicate
from tidegate.topics import matches, overlaps, share

Config = Mapping[str, Any]
"""The configuration as the YAML file has it: maps, lists and scalars."""

Properties = tuple[tuple[str, str], ...]
"""MQTT 5 user properties, in order; names may repeat."""

Attributes = Mapping[str, Any]

LEVELS: Final = ("plain", "tls", "mtls", "trusted")  # "Default order `plain < tls < mtls < trusted`"
INSTRUCTIONS: Final = frozenset({"require", "s", "view", "floor"})
"""User properties of a PUBLISH that instruct the gate: no content, never delivered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """A client's connection: who, where, how well protected, and the user properties of its CONNECT."""

    client: str
    user: str | None = None
    """The authenticated user; None: anonymous."""
    level: str = "plain"
    facts: tuple[str, ...] = ()
    """The facts whose condition it meets, where they are configured."""
    properties: Properties = ()
    address: str = "127.0.0.1"
    listener: str = "mqtt://127.0.0.1:1883"
    tls: tuple[str, str] | None = None
    """TLS version and cipher; None: no TLS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A PUBLISH, or a will, as the client sent it."""

    topic: str
    payload: bytes = b""
    qos: int = 0
    retain: bool = False
    properties: Properties = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """A subscription with the user properties of its SUBSCRIBE: `require` or `s`, and `where`."""

    filter: str
    qos: int = 0
    properties: Properties = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What step 3 attaches to a message. It stays as it was when the message was published."""

    owner: str | None
    p: Attributes
    demand: str | None
    floor: str
    facts: tuple[str, ...] = ()
    """Of the floor, of those that were configured then."""
    client: str = ""
    """Whose messages on one topic stay in order."""
    type: str | None = None
    """Of the link it came over."""


class Step(StrEnum):
    WRITE = "write"
    BROKERING = "brokering"
    LEVELS = "levels"
    READ = "read"
    VIEW = "view"
    WHERE = "where"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The verdict, the step that gave it (the first that denies, else the last), and the rule if one can be named.

    Of several rules that would do, the first in the order of the file is named.
    """

    allowed: bool
    step: Step
    rule: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """What the subscriber gets. If the content is not `whole`, `payload` is one of many ways to write the JSON."""

    payload: bytes
    whole: bool
    properties: Properties
    """The publisher's user properties, without instructions and without the `floor` that is told."""
    floor: str
    """As it is told: the level, then the facts."""


def subject_attributes(config: Config, connection: Connection) -> dict[str, Any]:
    """`s`, "the acting subject"; what is not known about it is absent."""
    node, directory = config["node"], config.get("directory") or {}
    user: Mapping[str, Any] = (directory.get("users") or {}).get(connection.user) or {}
    roles, groups = list(user.get("roles") or ()), list(user.get("groups") or ())
    added: dict[str, Any] = {}
    for role in reversed(roles):  # the main one, which stands first, has the last word
        added |= _attributes((directory.get("roles") or {}).get(role))
    for group in reversed(groups):
        added |= _attributes((directory.get("groups") or {}).get(group))
    added |= _attributes(user)
    entry = (directory.get("clients") or {}).get(connection.client) or {}
    # "An entry `directory.clients.X` applies only to a connection authenticated for X"
    known = connection.user is not None and entry.get("user") == connection.user
    if known:
        added |= _attributes(entry)
    s: dict[str, Any] = {
        "client": connection.client,
        "domain": node.get("domain") or node["name"],  # "default: the node's name"
        "roles": roles,
        "groups": groups,
        "scope": next(iter(config.get("scopes") or {"main": {}})),
        "node": node["name"],
        "kind": "client",
        "level": connection.level,
        "facts": facts_held(config, connection.facts),
        "address": connection.address,
        "listener": connection.listener,
    }
    if entry and not known:
        del s["client"]  # it is not the client that the directory means: nothing said of that one holds for it
    # "plus what the directory or a verified capability adds. Neither can set a built-in name", absent ones included
    s |= {name: value for name, value in added.items() if name not in {*s, "user", "role", "tls", "client"}}
    if connection.user is not None:
        s["user"] = connection.user
    if roles:
        s["role"] = roles[0]  # "`s.role` (first)"
    if connection.tls is not None:
        s["tls"] = {"version": connection.tls[0], "cipher": connection.tls[1]}
    return s


def _attributes(entry: Mapping[str, Any] | None) -> Mapping[str, Any]:
    return (entry or {}).get("attributes") or {}


def object_attributes(
    config: Config, message: Message, payload: bytes | None = None, properties: Properties | None = None
) -> dict[str, Any]:
    """`o`, "the message", with its own payload and user properties or with what a view has left of them."""
    payload = message.payload if payload is None else payload
    o: dict[str, Any] = {
        "topic": message.topic,
        "levels": message.topic.split("/"),
        "qos": message.qos,
        "retain": message.retain,
        "size": len(payload),
        "properties": _property_map(
            tuple(pair for pair in message.properties if pair[0] not in INSTRUCTIONS)
            if properties is None
            else properties
        ),
    }
    content = read_json(payload)
    if content is not Absent.ABSENT:
        o["payload"] = content  # "absent if not JSON"
    for row in config.get("classify") or ():
        if matches(row["topic"], message.topic):
            o["category"] = row["category"]
            break
    return o


def _property_map(properties: Properties) -> dict[str, Any]:
    """A name that occurs once has its value, one that repeats the list of its values."""
    found: dict[str, list[str]] = {}
    for name, value in properties:
        found.setdefault(name, []).append(value)
    return {name: values[0] if len(values) == 1 else values for name, values in found.items()}


def environment_attributes(config: Config, now: float) -> dict[str, Any]:
    """`e`: the clock "in the node's time zone" and what `environment` adds. `now`: seconds since 1970, UTC."""
    local = datetime.fromtimestamp(now, ZoneInfo(config["node"].get("timezone") or "UTC"))
    clock = {
        "now": local,
        "hour": local.hour,
        "minute": local.minute,
        "weekday": local.weekday(),  # "(0 = Monday)"
        "date": local.date().isoformat(),
    }
    return {**(config.get("environment") or {}), **clock}


def context_of(config: Config, publisher: Connection, message: Message, now: float) -> Context:
    """Step 3: "the publisher's context is attached"."""
    e = environment_attributes(config, now)
    p = {
        **subject_attributes(config, publisher),  # "the publisher's `s` attributes"
        "topic": message.topic,
        "time": e["now"],
        "qos": message.qos,
        "size": len(message.payload),
        "node": config["node"]["name"],
        "floor": publisher.level,
        "facts": facts_held(config, publisher.facts),
        "e": e,  # "(its environment then)"
    }
    return Context(
        owner=publisher.user,
        p=p,
        demand=demand_of(config, message.properties, publisher),
        facts=tuple(facts_held(config, publisher.facts)),
        client=publisher.client,
        floor=publisher.level,  # "floor = min over the links crossed so far, starting with the publisher's own"
        type=link_types(config, p)[0],  # "`p` and the source link's type are stored with the message"
    )


def selects(selector: str | Sequence[str], s: Attributes) -> bool:
    """Whether "`*`, `user:…`, `role:…`, `group:…`, `client:…`, `scope:…`, … or a list" names a client."""
    if not isinstance(selector, str):
        return any(selects(one, s) for one in selector)
    if selector == "*":
        return True
    kind, _, name = selector.partition(":")
    match kind:
        case "user":
            return bool(s.get("user") == name)
        case "role":
            return name in s["roles"]
        case "group":
            return name in s["groups"]
        case "client":
            return bool(s.get("client") == name)
        case "scope" | "link" | "service" | "monitor":
            return False
    raise ValueError(f"{selector!r} is no subject selector")


def filled(topic: str, s: Attributes) -> str | None:
    """The topic filter of a policy for a subject; None if it never matches.

    "may hold `{s.user}`-style placeholders; a value with `/`, `+` or `#` in it never matches"
    """
    parts = re.split(r"\{([^{}]*)\}", topic)
    for at in range(1, len(parts), 2):
        value = _looked_up(parts[at], s)
        if value is None or any(sign in value for sign in "/+#"):
            return None
        if at == 1 and not parts[0] and value.startswith("$"):
            return None  # nobody is given a topic of the node's own by what he is called
        parts[at] = value
    return "".join(parts)


def _looked_up(path: str, s: Attributes) -> str | None:
    value: Any = {"s": s}
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value if isinstance(value, str) else None


@lru_cache(maxsize=4096)
def _predicate(text: str) -> Predicate:
    return compile_predicate(re.sub(r"([sp]\.(?:level|floor)) (<=|>=|<|>) '(\w+)'", _by_name, text))


def _by_name(comparison: re.Match[str]) -> str:
    """ "levels compare by rank, in conditions too": one of the levels of which that is true."""
    attribute, operator, name = comparison.groups()
    rank = LEVELS.index(name)
    compares = {"<": int.__lt__, "<=": int.__le__, ">": int.__gt__, ">=": int.__ge__}[operator]
    return f"{attribute} in {[level for at, level in enumerate(LEVELS) if compares(at, rank)]}"


def holds(text: str, **roots: Attributes) -> bool:
    """The answer of a predicate that sees these roots and no others; raises PredicateFailed."""
    return bool(_predicate(text)(roots))


def true(text: str, **roots: Attributes) -> bool:
    """Errors: an exception "in a preference or publisher rule counts as false", and so in `where`."""
    try:
        return holds(text, **roots)
    except PredicateFailed:
        return False


def fails_or_holds(text: str, **roots: Attributes) -> bool:
    """Errors: "a denying preference that fails forbids"."""
    try:
        return holds(text, **roots)
    except PredicateFailed:
        return True


def decide_policies(config: Config, step: Step, action: str, topic: str, roots: Mapping[str, Attributes]) -> Decision:
    """The policies for one action on one topic, combined."""
    policies = config.get("policies") or ()
    if policies == "open":  # "`policies: open` must be written out to switch that off"
        return Decision(allowed=True, step=step)
    effects: list[tuple[str, str | None]] = []
    failed: list[str | None] = []
    for policy in policies:
        if not applicable(policy, action, topic, roots["s"]):
            continue
        try:
            if holds(policy.get("when", "true"), **roots):
                effects.append((policy.get("effect", "allow"), policy.get("id")))
        except PredicateFailed:
            failed.append(policy.get("id"))
    # "An unknown attribute, a type error or an exception: in an applicable policy denies, whatever the combining
    # algorithm"
    if failed:
        return Decision(allowed=False, step=step, rule=failed[0])
    return _combined(config.get("combining", "deny-overrides"), effects, step)


def applicable(policy: Mapping[str, Any], action: str, topic: str, s: Attributes) -> bool:
    """Whether a policy speaks of this subject, action and topic; its `when` is another matter."""
    filter = filled(policy["topic"], s)
    # "`#` and `+` never match a leading `$`": so `matches` has it.
    return _acts(policy, action) and selects(policy["subject"], s) and filter is not None and matches(filter, topic)


def _acts(policy: Mapping[str, Any], action: str) -> bool:
    """Policies: "`action`: `read` (receive), `write` (publish), or both"."""
    written = policy["action"]
    return action in ([written] if isinstance(written, str) else written)


def _combined(algorithm: str, effects: Sequence[tuple[str, str | None]], step: Step) -> Decision:
    """Policies: "combining: `deny-overrides` (default), ... for the whole set"; "nothing matches → deny"."""
    kinds = [effect for effect, _ in effects]
    match algorithm:
        case "deny-overrides":
            allowed = "allow" in kinds and "deny" not in kinds
        case "permit-overrides":
            allowed = "allow" in kinds
        case "first-applicable":
            allowed = kinds[:1] == ["allow"]
        case _:
            raise ValueError(f"{algorithm!r} is no combining algorithm")
    decisive = "allow" if allowed else "deny"
    return Decision(allowed=allowed, step=step, rule=next((rule for kind, rule in effects if kind == decisive), None))


def decide_write(config: Config, subject: Connection, message: Message, now: float) -> Decision:
    """Step 1: "may the subject write this topic"."""
    # "a demand that names nothing known is refused, not granted"
    if unknown_demand(config, demand_of(config, message.properties, subject)):
        return Decision(allowed=False, step=Step.LEVELS)
    if _revoked(config, subject):  # "a revoked or expired subject's will is dropped"
        return Decision(allowed=False, step=Step.WRITE)
    roots = {
        "s": subject_attributes(config, subject),
        "o": object_attributes(config, message),
        "e": environment_attributes(config, now),
    }  # `p` exists "in 6 to 11 and on links" only
    return decide_policies(config, Step.WRITE, "write", message.topic, roots)


def decide_subscribe(config: Config, subject: Connection, filter: str, properties: Properties = ()) -> bool:
    """Policies: "A SUBSCRIBE is granted when some allowing policy overlaps its filter (`subscribe: strict`...)"."""
    if refused(config, properties):
        return False
    if _revoked(config, subject):
        return False
    policies = config.get("policies") or ()
    if policies == "open":
        return True
    s = subject_attributes(config, subject)
    e = {**(config.get("environment") or {}), **dict.fromkeys(("now", "hour", "minute", "weekday", "date"), UNKNOWN)}
    _, plain = share(filter)  # "judged by the filter without `$share/group/`"
    for policy in policies:
        if policy.get("effect", "allow") != "allow" or not _acts(policy, "read") or not selects(policy["subject"], s):
            continue
        topic = filled(policy["topic"], s)
        if topic is not None and overlaps(topic, plain) and _may_hold(policy.get("when", "true"), s, e):
            return True
    return False


def _may_hold(text: str, s: Attributes, e: Attributes) -> bool:
    """Whether a condition may come true for this subject: it is not certainly false, nor certain to fail."""
    rest = _predicate(text).partial({"s": s, "e": e})
    return rest is True or isinstance(rest, Predicate)


def _revoked(config: Config, connection: Connection) -> bool:
    """Time: "Revoking a user or certificate also disconnects it": who is not in the directory is not there."""
    users = (config.get("directory") or {}).get("users") or {}
    return connection.user is not None and connection.user not in users


def demand_of(config: Config, properties: Properties, connection: Connection) -> str | None:
    """The level that a PUBLISH or SUBSCRIBE with these user properties demands; None: none.

    "`require` ... (short form `s` with the level's rank) on CONNECT = for everything after, on PUBLISH = for that
    message, on SUBSCRIBE = for that subscription; `none` relaxes. `levels.implied: true` makes each connection demand
    its own level unless relaxed"
    """
    order = _order(config)
    for said in (properties, connection.properties):
        demands = list(_demands(order, said))
        if demands:  # "a list of levels and facts, all of which must hold"
            return ",".join(demand for demand in demands if demand is not None) or None
    return connection.level if (config.get("levels") or {}).get("implied", False) else None


def _demands(order: Sequence[str], properties: Properties) -> Iterator[str | None]:
    for name, value in properties:
        if name == "require":
            for part in value.split(","):
                yield None if part.strip() == "none" else part.strip() or "?"
        elif name == "s":
            rank = int(value) if re.fullmatch("[0-9]{1,9}", value) else len(order)
            yield order[rank] if rank < len(order) else f"s {value}"  # such a level there is not


def _order(config: Config) -> Sequence[str]:
    return tuple((config.get("levels") or {}).get("order") or LEVELS)


def meets(config: Config, level: str, demand: str | None, facts: Sequence[str] = ()) -> bool:
    """Level ≥ demand, and every fact that is demanded holds; "a name unknown there denies"."""
    order = _order(config)
    rank = order.index(level) if level in order else 0  # "unknown levels count as lowest"
    return all(
        rank >= order.index(name) if name in order else name in facts_held(config, facts)
        for name in ([] if demand is None else demand.split(","))
    )


def facts_held(config: Config, facts: Sequence[str]) -> list[str]:
    """ "unknown facts [count] as not held" """
    return [name for name in _facts(config) if name in facts]


def _facts(config: Config) -> Sequence[str]:
    return tuple((config.get("levels") or {}).get("facts") or ())


def unknown_demand(config: Config, demand: str | None) -> bool:
    """Whether a demand names something that is neither a level nor a fact here."""
    known = {*_order(config), *_facts(config), "signed"}
    return demand is not None and not set(demand.split(",")) <= known


def refused(config: Config, properties: Properties) -> bool:
    """ "a demand that names nothing known is refused": what these properties of a packet say, and nothing else."""
    said = [demand for demand in _demands(_order(config), properties) if demand is not None]
    return unknown_demand(config, ",".join(said) or None)


def too_weak(config: Config, publisher: Context, subscriber: Connection) -> bool:
    """ "a QoS ≥ 1 message that the present connection of a session … is too weak for" """
    return not meets(config, subscriber.level, publisher.demand, subscriber.facts)


def link_types(config: Config, s: Attributes) -> tuple[str | None, str | None]:
    """Brokering: "Types of clients' links are assigned by subject selector (`in` …, `out` …)"; None: it has none."""
    said = config.get("brokering") or {}
    if "allow" not in said:
        return "in", "out"
    default = said.get("default") or {}
    row = next((row for row in said.get("assign") or () if selects(row["client"], s)), {})
    return row.get("in", default.get("in")), row.get("out", default.get("out"))


def brokered(config: Config, came: str | None, goes: str | None) -> bool:
    """Brokering: "may leave over `y->z` iff `(type(x->y), type(y->z))` is in `allow`"."""
    said = config.get("brokering") or {}
    return "allow" not in said or any(pair == [came, goes] for pair in said["allow"])


class Whole(Enum):
    WHOLE = "the view that shows everything: all JSON, content that is not JSON, user properties"


class Absent(Enum):
    ABSENT = "no JSON value"


Pointer = tuple[str, ...]
View = frozenset[Pointer] | Whole
"""Everything, or the parts below these JSON pointers."""
NOTHING: Final[View] = frozenset()


def kept(keep: object) -> View:
    """`keep` of a row, "[JSON pointers] | all"; raises ValueError if it is neither."""
    if keep == "all":
        return Whole.WHOLE
    if not isinstance(keep, list):
        raise ValueError(f"{keep!r} is neither a list of JSON pointers nor `all`")
    pointers = frozenset(_pointer(text) for text in keep)
    return Whole.WHOLE if () in pointers else pointers


def _pointer(text: object) -> Pointer:
    # RFC 6901: empty, or names each behind a slash, `~0` for `~` and `~1` for `/`.
    if not isinstance(text, str) or not re.fullmatch(r"(/([^~/]|~[01])*)*", text, re.DOTALL):
        raise ValueError(f"{text!r} is no JSON pointer")
    return tuple(name.replace("~1", "/").replace("~0", "~") for name in text.split("/")[1:])


def united(views: Iterable[View]) -> View:
    """Views: "Rows of one table that apply to a subject unite"; no row is nothing."""
    union: frozenset[Pointer] = frozenset()
    for view in views:
        if isinstance(view, Whole):
            return view
        union |= view
    return union


def intersected(views: Iterable[View]) -> View:
    """Views: "the tables intersect". Of two pointers, one within the other, the inner one is in both."""
    common: View = Whole.WHOLE
    for view in views:
        if isinstance(common, Whole):
            common = view
        elif not isinstance(view, Whole):
            common = frozenset(
                max(one, other, key=len)
                for one in common
                for other in view
                if one[: len(other)] == other or other[: len(one)] == one
            )
    return common


def administrator_view(config: Config, topic: str, s: Attributes) -> View:
    """Views: "`{topic, for: <subject selector>, keep: …}` from the administrator". No row matches: no restriction."""
    table = [row for row in config.get("views") or () if matches(row["topic"], topic)]
    if not table:
        return Whole.WHOLE
    return united(kept(row["keep"]) for row in table if selects(row["for"], s))


def publisher_view(message: Message, s: Attributes) -> View:
    """Views: "a table of visibility from the publisher in the user property `view`"."""
    return intersected(_table_view(text, s) for name, text in message.properties if name == "view")


def _table_view(text: str, s: Attributes) -> View:
    table = read_json(text.encode())
    if not isinstance(table, dict):
        return NOTHING
    try:
        rows = [(selects(selector, s), kept(keep)) for selector, keep in table.items()]
    except ValueError:
        return NOTHING
    return united(view for applies, view in rows if applies)  # "without an applicable row shows nothing"


def what_is_left(content: Any, view: View) -> Any:
    """The parts of a JSON value that a view shows, in their places; ABSENT if there are none."""
    if isinstance(view, Whole) or () in view:
        return content

    def below(name: str) -> View:
        return frozenset(pointer[1:] for pointer in view if pointer[0] == name)

    if isinstance(content, dict):
        members = {name: what_is_left(value, below(name)) for name, value in content.items()}
        found = {name: value for name, value in members.items() if value is not Absent.ABSENT}
        return found or Absent.ABSENT
    if isinstance(content, list):
        elements = [what_is_left(value, below(str(at))) for at, value in enumerate(content)]
        # "in their places": what is hidden before a part that is shown leaves null behind
        while elements and elements[-1] is Absent.ABSENT:
            elements.pop()
        return [None if value is Absent.ABSENT else value for value in elements] or Absent.ABSENT
    return Absent.ABSENT


def read_json(payload: bytes) -> Any:
    """The JSON value of a payload, or ABSENT."""

    def refuse(name: str) -> None:
        raise ValueError(f"{name} is no JSON")

    try:
        return json.loads(payload.decode(), parse_constant=refuse)
    except ValueError:
        return Absent.ABSENT


def content_for(message: Message, view: View) -> tuple[bytes, Properties] | None:
    """Payload and user properties as a view shows them; None if nothing is left."""
    if isinstance(view, Whole):
        return message.payload, tuple(pair for pair in message.properties if pair[0] not in INSTRUCTIONS)
    content = read_json(message.payload)
    if content is Absent.ABSENT:
        return None  # "Content that is not JSON is all or nothing."
    left = what_is_left(content, view)
    if left is Absent.ABSENT:
        return None
    # "user properties count as content": what a pointer does not name is not shown.
    return json.dumps(left, ensure_ascii=False, separators=(",", ":")).encode(), ()


def decide_read(
    config: Config, publisher: Context, message: Message, subscriber: Connection, subscription: Subscription, now: float
) -> tuple[Decision, Delivered | None]:
    """Steps 6 to 10 for one subscription whose filter matches; what is delivered, if it is allowed.

    `publisher` is the context that the message got when it was published; all else is of this moment.
    """
    if _revoked(config, subscriber):
        return Decision(allowed=False, step=Step.READ), None
    s = subject_attributes(config, subscriber)
    e = environment_attributes(config, now)
    p = {**publisher.p, "facts": facts_held(config, publisher.facts)}
    roots = {"s": s, "o": object_attributes(config, message), "e": e, "p": p}

    # 6: "`allow(type(x->y), type(y->z))`"
    if not brokered(config, publisher.type, link_types(config, s)[1]):
        return Decision(allowed=False, step=Step.BROKERING), None

    # 7: "the publisher's demand against the target's connection; the subscriber's demand against the floor"
    demanded = demand_of(config, subscription.properties, subscriber)
    if too_weak(config, publisher, subscriber) or not meets(config, publisher.floor, demanded, publisher.facts):
        return Decision(allowed=False, step=Step.LEVELS), None

    # 8: "policies; then the owner's preferences"
    read = decide_policies(config, Step.READ, "read", message.topic, roots)
    if not read.allowed:
        return read, None
    refused, owner_view = preferred(config, publisher, roots)
    if refused is not None:
        return refused, None

    # 9: "what of the content this subject may see"
    view = intersected([administrator_view(config, message.topic, s), publisher_view(message, s), owner_view])
    content = content_for(message, view)
    if content is None:
        return Decision(allowed=False, step=Step.VIEW), None
    payload, properties = content

    # 10: "the subscription's own condition, on what is left after the view (so it cannot probe hidden parts)"
    left = object_attributes(config, message, payload, properties)
    for name, text in subscription.properties:
        if name == "where" and not true(text, o=left, e=e):
            return Decision(allowed=False, step=Step.WHERE), None
    delivered = Delivered(
        payload=payload,
        whole=isinstance(view, Whole),
        properties=properties,
        floor=",".join((publisher.floor, *publisher.facts)),
    )
    return Decision(allowed=True, step=Step.WHERE, rule=read.rule), delivered


def preferred(config: Config, publisher: Context, roots: Mapping[str, Attributes]) -> tuple[Decision | None, View]:
    """The refusal of the owner's preferences, if they refuse, and otherwise what they let the receiver see.

    "A receiver may read a message of user u iff a policy allows it AND (some preference of u without `to` that
    matches the original topic is true for it, OR u has none that matches)."
    """
    own = [one for one in config.get("preferences") or () if one["user"] == publisher.owner and "to" not in one]
    table = [preference for preference in own if matches(preference["topic"], publisher.p["topic"])]
    # "`effect: deny` whose condition is true or fails forbids, whatever other preferences allow, except to the owner"
    denying = [preference for preference in table if preference.get("effect") == "deny"]
    if roots["s"].get("user") != publisher.owner or roots["s"].get("domain") != publisher.p.get("domain"):
        for preference in denying:
            if fails_or_holds(preference.get("when", "true"), **roots):
                return Decision(allowed=False, step=Step.READ, rule=preference.get("id")), NOTHING
    table = [preference for preference in table if preference not in denying]
    if not table:
        return None, Whole.WHOLE
    rows = [preference for preference in table if true(preference.get("when", "true"), **roots)]
    if not rows:
        return Decision(allowed=False, step=Step.READ, rule=table[0].get("id")), NOTHING
    # "with `keep` the receiver gets only those parts"; "Rows of one table ... unite"
    return None, united(kept(preference.get("keep", "all")) for preference in rows)
