"""Who gets what, through several scopes, said once more and plainly: with this the plans of the engine are compared.

A message is taken from scope to scope, link by link, the nearest scope first; links of one scope in the order of the
space. At every link and for every subscription everything is decided from the rows of the setting as they stand:
nothing is compiled, indexed or remembered. What is not about scopes (conditions, views, levels) is asked of the oracle
of the gate; machines of monitors, which have laws of their own, are asked for every event, whatever they listen to.

Invariants, from the semantics
- A message crosses each link at most once per id, and never enters a scope that it has been in.
- A session is served once per id. A copy that is refused does not shadow another one.
- A link forwards what its source end may write and its target end may read, under the name before the link, and what
  the owner lets be forwarded to the target. Then come monitors where it leaves, the share's name, and monitors where it
  enters. What those that leave make has to be shared and allowed like anything else; what those that enter make has to
  be writable by `monitor:ID`.

- An automaton remembers whose messages moved it since its start state. What it makes comes from all of them, and so
  does what it lets pass if another of its states would not have. Whoever gets that must be allowed each of them.

It leaves out what needs a clock (`e`, timers, expiry), capabilities, publisher rules, and monitors that wait for what a
client has not subscribed to.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gate.oracle import Connection as Level
from gate.oracle import (
    Message,
    View,
    Whole,
    administrator_view,
    content_for,
    demand_of,
    filled,
    holds,
    intersected,
    kept,
    meets,
    object_attributes,
    true,
    united,
)
from tidegate.monitor import Event
from tidegate.monitor.automaton import Automaton
from tidegate.monitor.library import Alternate
from tidegate.monitor.machine import Machine
from tidegate.predicate import PredicateFailed
from tidegate.topics import matches

Row = Mapping[str, Any]
Key = tuple[str, str]  # a scope and a client
CONFIG: dict[str, Any] = {"node": {"name": "n"}}  # of the oracle: nothing of its own decides
IN, OUT = "in", "out"


@dataclass(frozen=True, kw_only=True)
class Link:
    """A directed link between scopes. `way`: up, down or across."""

    source: str
    target: str
    type: str = IN
    way: str = "across"
    shares: tuple[tuple[str, str, str, int], ...] = (("#", "", "", 2),)
    """Filter, prefix here, prefix there, QoS."""

    @property
    def name(self) -> str:
        return f"{self.source}->{self.target}"

    def crossing(self, topic: str) -> tuple[str, int] | None:
        """What a topic is called behind it, and with which QoS at most."""
        for filter, here, there, qos in self.shares:
            if topic.startswith(here) and matches(filter, topic[len(here) :]):
                return there + topic[len(here) :], qos
        return None


@dataclass(frozen=True, kw_only=True)
class Watcher:
    """A monitor: on a link by full names, or by scope and direction."""

    id: str
    machine: Machine
    link: tuple[str, str] | None = None
    scope: str = ""
    direction: str = ""
    each: str = "link"
    default: bool = False


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Everything that decides, as rows."""

    scopes: tuple[str, ...]
    links: tuple[Link, ...] = ()
    allow: tuple[tuple[str, str], ...] | None = None
    types: Mapping[str | None, tuple[str, str]] = field(default_factory=dict)
    """Of the links of a user; those of everybody else are under None."""
    policies: tuple[Row, ...] | None = None
    combining: str = "deny-overrides"
    preferences: tuple[Row, ...] = ()
    views: tuple[Row, ...] = ()
    monitors: tuple[Watcher, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Subscription:
    filter: str
    qos: int = 0
    no_local: bool = False
    where: str = ""
    group: str = ""


@dataclass(frozen=True, kw_only=True)
class Owed:
    """What a session is owed, and waits."""

    copy: Copy
    qos: int
    retain: bool = False

    @property
    def stream(self) -> tuple[object, ...]:
        """ "of the same publisher and topic" """
        p = self.copy.p
        return p["client"], p["scope"], p.get("user"), self.copy.topic


@dataclass(kw_only=True)
class Session:
    """A client at a scope."""

    scope: str
    client: str
    user: str | None
    level: str
    persistent: bool = False
    there: bool = True
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    waiting: list[Owed] = field(default_factory=list)
    deferred: list[Owed] = field(default_factory=list)
    """What the connection is too weak for, and what waits behind that."""

    @property
    def key(self) -> Key:
        return self.scope, self.client

    @property
    def s(self) -> dict[str, Any]:
        found: dict[str, Any] = {"kind": "client", "client": self.client, "scope": self.scope, "level": self.level}
        found |= {"roles": [], "groups": [], "node": "n"}
        return found if self.user is None else {**found, "user": self.user}


@dataclass(frozen=True, kw_only=True)
class Context:
    """Whose a message is, and what was demanded for it. `link`: the type of the link it came over."""

    link: str
    owner: str | None
    p: tuple[tuple[str, Any], ...]
    demand: str | None

    @property
    def publisher(self) -> tuple[Any, ...]:
        return self.link, self.owner, [pair for pair in self.p if pair[0] != "topic"], self.demand


Memory = frozenset[Context]
MOST = 16  # publishers that an automaton remembers


@dataclass(frozen=True, kw_only=True)
class Copy:
    """A message where it is now. `link`: the type of the link it came over."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    id: int
    link: str
    owner: str | None
    p: Mapping[str, Any]
    demand: str | None
    also: frozenset[str] = frozenset()
    """Of a retained one: the types of the other links it came over. "may leave if one of them allows it"."""
    others: Memory = frozenset()
    """Those of the other messages that it comes from."""
    published: int = 0
    """The id of what was published."""

    @property
    def context(self) -> Context:
        p = tuple(sorted((name, _frozen(value)) for name, value in self.p.items()))
        return Context(link=self.link, owner=self.owner, p=p, demand=self.demand)

    def each(self) -> list[Copy]:
        """The same, as if it came from each of those alone that it comes from."""
        return [self, *(replace(self, link=o.link, owner=o.owner, p=dict(o.p), demand=o.demand) for o in self.others)]

    @property
    def o(self) -> dict[str, Any]:
        return object_attributes(
            CONFIG, Message(topic=self.topic, payload=self.payload, qos=self.qos, retain=self.retain)
        )


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


@dataclass(frozen=True, kw_only=True)
class Sent:
    """What somebody is sent."""

    topic: str
    payload: bytes
    qos: int
    retain: bool = False


@dataclass(frozen=True, kw_only=True)
class Turn:
    """For one member of a group: what each of those gets that may have it; None: its monitors would suppress it."""

    group: str
    members: Mapping[Key, Sent | None]


@dataclass(kw_only=True)
class Outcome:
    sent: dict[Key, list[Sent]] = field(default_factory=dict)
    turns: list[Turn] = field(default_factory=list)


class Walk:
    """The scopes of a node, who is there, and what monitors and scopes remember."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.sessions: dict[Key, Session] = {}
        self.retained: dict[Key, Copy] = {}  # by scope and topic
        self.states: dict[tuple[str, str, str], Any] = {}  # by scope, monitor, and whose
        self.memories: dict[tuple[str, str, str], Memory] = {}  # by the same: who moved it
        self._ids = 0

    # -- what happens ------------------------------------------------------------------------------------------

    def change(self, setting: Setting) -> list[Key]:
        """Another setting; who has to go. A state stays if the monitor that has its id now knows it."""
        self.setting = setting
        machines = {one.id: one.machine for one in setting.monitors}
        self.states = {
            where: state if machines[where[1]].accepts(state) else machines[where[1]].start()
            for where, state in self.states.items()
            if where[1] in machines
        }
        self.memories = {
            where: memory
            for where, memory in self.memories.items()
            if where in self.states and _states(machines[where[1]]) and self.states[where] != machines[where[1]].start()
        }
        gone = [one.key for one in self.sessions.values() if one.there and one.scope not in setting.scopes]
        for key in gone:
            self.lose(key)
        return gone

    def tried_again(self) -> dict[Key, list[Sent]]:
        """After a change: what waits for a better connection is decided again."""
        found: dict[Key, list[Sent]] = {}
        for session in self.sessions.values():
            if session.there and session.deferred:
                session.waiting, session.deferred = session.deferred, []
                found[session.key] = self._sent(session)
        return found

    def lose(self, key: Key) -> None:
        session = self.sessions[key]
        session.there = False
        session.waiting, session.deferred = [*session.deferred, *session.waiting], []
        if not session.persistent:
            del self.sessions[key]

    def back(self, key: Key) -> list[Sent]:
        """A persistent session is resumed: what waited is decided now."""
        session = self.sessions[key]
        session.there = True
        return self._sent(session)

    def _sent(self, session: Session) -> list[Sent]:
        """What of that which waited is sent now; the rest waits for a better connection."""
        waiting, session.waiting = session.waiting, []
        found: list[Sent] = []
        for owed in waiting:
            if self.weak(session, owed.copy):
                if self._possible(session, owed.copy):
                    session.deferred.append(owed)
            elif self.behind(session, owed):
                session.deferred.append(owed)
            else:
                found += self._resumed(session, owed)
        return found

    def weak(self, session: Session, copy: Copy) -> bool:
        """ "a QoS ≥ 1 message that the present connection of a session is too weak for" """
        return session.persistent and not all(meets(CONFIG, session.level, one.demand) for one in copy.each())

    def _possible(self, session: Session, copy: Copy) -> bool:
        """Whether it might be sent over a better connection."""
        return any(self._seen(session, copy, one, away=True) is not None for one in self._asking(session, copy))

    def _asking(self, session: Session, copy: Copy) -> Iterable[Subscription | None]:
        """The subscriptions that what waited may be sent for, if these want anything themselves."""
        asking = [one for one in session.subscriptions.values() if not one.group and matches(one.filter, copy.topic)]
        return asking if any(one.where for one in asking) else [None]

    def behind(self, session: Session, owed: Owed) -> bool:
        return any(before.stream == owed.stream for before in session.deferred)

    def _resumed(self, session: Session, owed: Owed) -> Iterator[Sent]:
        copy, qos = owed.copy, owed.qos
        for one in self._asking(session, copy):
            payload = self._seen(session, copy, one)
            if payload is not None:
                if not self._hushed(session, copy, payload):
                    yield Sent(topic=copy.topic, payload=payload, qos=qos, retain=owed.retain)
                return

    def subscribe(self, key: Key, subscription: Subscription, name: str) -> list[Sent]:
        """The retained messages that it brings."""
        session = self.sessions[key]
        session.subscriptions[name] = subscription
        found: list[Sent] = []
        for (scope, topic), copy in self.retained.items():
            if subscription.group or scope != key[0] or not matches(subscription.filter, topic):
                continue
            if subscription.no_local and (copy.p["client"], copy.p["scope"]) == (key[1], key[0]):
                continue
            owed = Owed(copy=copy, qos=min(copy.qos, subscription.qos), retain=True)
            if owed.qos and self.weak(session, copy):
                if self._seen(session, copy, subscription, away=True) is not None:
                    session.deferred.append(owed)
                continue
            payload = self._seen(session, copy, subscription)
            if payload is not None and owed.qos and self.behind(session, owed):
                session.deferred.append(owed)
            elif payload is not None and not self._hushed(session, copy, payload):
                found.append(Sent(topic=topic, payload=payload, qos=min(copy.qos, subscription.qos), retain=True))
        return found

    def publish(
        self, key: Key, topic: str, payload: bytes, qos: int, retain: bool, require: str | None = None
    ) -> Copy | None:
        """Step 1: what may be written; None if it may not."""
        session = self.sessions[key]
        self._ids += 1
        asked = () if require is None else (("require", require),)
        copy = Copy(
            topic=topic,
            payload=payload,
            qos=qos,
            retain=retain,
            id=self._ids,
            published=self._ids,
            link=self._types(session)[0],
            owner=session.user,
            p={**session.s, "topic": topic},
            demand=demand_of(CONFIG, asked, Level(client=session.client, level=session.level)),
        )
        return copy if self._policies("write", session.s, copy, None) else None

    def enter(self, key: Key, copy: Copy | None) -> list[Copy]:
        """Steps 1 to 3, by the setting of this moment: "policies decide at PUBLISH, and once more at PUBREL; monitors
        see it at PUBREL"."""
        session = self.sessions[key]
        if copy is None:
            return []
        copy = replace(copy, link=self._types(session)[0], p={**session.s, "topic": copy.topic})
        if not self._policies("write", session.s, copy, None):
            return []
        chain = self._over(f"client:{session.client}", f"scope:{session.scope}", "im_pub", session.scope)
        whose = f"{session.user} {session.client}->{session.scope}"
        return self._run(chain, session.scope, whose, session.client, [copy], entering=True)

    def release(self, key: Key, copies: Iterable[Copy]) -> Outcome:
        """Through the scopes, by the setting of this moment."""
        outcome = Outcome()
        for one in copies:
            Traversal(self, self.sessions[key], outcome).go(key[0], one)
        return outcome

    def opened(self, before: Setting) -> Outcome:
        """ "A link that opens carries the retained messages that may cross": the oldest first."""
        outcome = Outcome()
        known = {link.name: link for link in before.links}
        for link in self.setting.links:
            kept = [copy for (scope, _), copy in self.retained.items() if scope == link.source]
            for copy in sorted(kept, key=lambda copy: (copy.published, copy.id, copy.topic)):
                old, crossing = known.get(link.name), link.crossing(copy.topic)
                crossed = None if old is None or old.type != link.type else old.crossing(copy.topic)
                if crossing is not None and (crossed is None or crossed[0] != crossing[0]):
                    Traversal(self, None, outcome).carry(link, copy, crossing[0])
        return outcome

    def listened(self, link: Link, before: str, after: str) -> bool:
        """Whether a monitor of a link hears a topic, as it is called on either side."""
        ends, kinds = self._touching(link)
        leaving, entering = (
            self._over(*ends, kind, scope) for kind, scope in zip(kinds, (link.source, link.target), strict=True)
        )
        return any(one.machine.hears(before) for one in leaving) or any(one.machine.hears(after) for one in entering)

    def holds(self, scope: str, topic: str, copy: Copy) -> bool:
        kept = self.retained.get((scope, topic))
        return kept is not None and kept.id == copy.id

    def came_over(self, scope: str, copy: Copy) -> None:
        """What is kept there has come once more: over a link of another type, perhaps."""
        first = self.retained.get((scope, copy.topic))
        if first is not None and first.id == copy.id and _without_links(first) == _without_links(copy):
            self.retained[scope, copy.topic] = replace(first, also=first.also | {copy.link})

    # -- links between scopes ----------------------------------------------------------------------------------

    def allowed_over(self, link: Link, copy: Copy) -> tuple[Copy, str, int] | None:
        """What of a copy may cross a link, as what, and with which QoS at most."""
        crossing = link.crossing(copy.topic)
        ways = [(one.link, *copy.also) for one in copy.each()]
        if crossing is None or not all(any(self._brokered(came, link.type) for came in way) for way in ways):
            return None
        ends = [
            {"kind": "link", "client": link.name, "scope": scope, "level": "trusted"}
            for scope in (link.source, link.target)
        ]
        leaving, entering = ({**end, "roles": [], "groups": [], "node": "n"} for end in ends)
        for one in copy.each():
            if not self._policies("write", leaving, one, one.p) or not self._policies("read", entering, one, one.p):
                return None
        view = intersected([self._preferred(one, entering, link.target) for one in copy.each()])
        shown = self._content(copy, view)
        return None if shown is None else (replace(copy, payload=shown), *crossing)

    def over(self, link: Link, copy: Copy) -> Iterator[Copy] | None:
        """What comes out behind a link, in its order; None if the copy may not cross."""
        found = self.allowed_over(link, copy)
        return None if found is None else self._crossing(link, found)

    def _touching(self, link: Link) -> tuple[tuple[str, str], tuple[str, str]]:
        """Its ends, and the directions of monitors that are meant by it."""
        kinds = {"up": ("ex_pub", "im_pub"), "down": ("im_sub", "ex_sub"), "across": ("ex_pub", "ex_sub")}[link.way]
        return (f"scope:{link.source}", f"scope:{link.target}"), kinds

    def _crossing(self, link: Link, found: tuple[Copy, str, int]) -> Iterator[Copy]:
        first = found[0]
        ends, kinds = self._touching(link)
        leaving = self._over(*ends, kinds[0], link.source)
        for one in list(self._run(leaving, link.source, link.name, link.name, [first], entering=False)):
            way = found if one is first else self.allowed_over(link, one)
            if way is None:
                continue
            shown, topic, qos = way
            others = frozenset(replace(other, link=link.type) for other in shown.others)
            arrived = replace(shown, topic=topic, qos=min(shown.qos, qos), link=link.type, others=others)
            arrived = replace(arrived, also=frozenset())
            entering = self._over(*ends, kinds[1], link.target)
            yield from self._run(entering, link.target, link.name, link.name, [arrived], entering=True)

    # -- monitors ----------------------------------------------------------------------------------------------

    def _over(self, source: str, target: str, kind: str, scope: str) -> list[Watcher]:
        """The monitors of a link where it touches a scope: "a monitor given by `link: A->B` acts once, on entering B
        if B is a scope, else on leaving A"; "`default: true` applies where no other does"."""
        enters = kind in ("im_pub", "ex_sub")
        acting = [
            one
            for one in self.setting.monitors
            if ((one.scope, one.direction) == (scope, kind) and one.link is None)
            or (one.link == (source, target) and enters == target.startswith("scope:"))
        ]
        return [one for one in acting if not one.default] or acting

    def _run(
        self, chain: Sequence[Watcher], scope: str, link: str, client: str, copies: list[Copy], *, entering: bool
    ) -> list[Copy]:
        """What several monitors make, each of what the one before it has put out."""
        for one in chain:
            whose = {"link": link, "client": f"client {client}", "scope": "scope"}[one.each]
            where = (scope, one.id, whose)
            following: list[Copy] = []
            for copy in copies:
                event = Event(copy.topic, copy.payload, copy.qos, copy.retain)
                before = self.states.get(where, one.machine.start())
                state, outputs = one.machine.step(before, event)
                self.states[where] = state
                memory = self._remember(where, one.machine, before, copy)
                for output in outputs:
                    others = copy.others
                    if output is not event or _tells(one.machine, event):
                        others = (copy.others | memory) - {copy.context}
                    if _excessive(others) or (others and _excessive(memory)):
                        continue  # "beyond that its outputs are not published"
                    if output is event:
                        following.append(replace(copy, others=others) if others != copy.others else copy)
                        continue
                    self._ids += 1
                    made = replace(
                        copy,
                        others=others,
                        topic=output.topic,
                        payload=output.payload,
                        qos=output.qos,
                        retain=output.retain,
                        id=self._ids,
                    )
                    # "an event changed or added at ingress must be writable by `monitor:ID`"
                    writer = {"kind": "monitor", "client": one.id, "scope": scope, "roles": [], "groups": []}
                    if not entering or self._policies("write", writer, made, None):
                        following.append(made)
            copies = following
        return copies

    def _remember(self, where: tuple[str, str, str], machine: Machine, before: Any, copy: Copy) -> Memory:
        """ "the contexts whose events moved it since its start state … and forgets them when it is back there"; what it
        remembered before this one."""
        memory = self.memories.pop(where, frozenset())
        state = self.states[where]
        if _states(machine) and state != machine.start():
            more = copy.others | {copy.context} if state != before else frozenset()
            self.memories[where] = memory | more
        return memory

    def _hushed(self, session: Session, copy: Copy, payload: bytes) -> bool:
        """Whether the monitors of the link to a client suppress it; they are of those that do no more than that."""
        chain = self._over(f"scope:{session.scope}", f"client:{session.client}", "im_sub", session.scope)
        shown = replace(copy, payload=payload)
        link = f"{session.user} {session.scope}->{session.client}"
        return not self._run(chain, session.scope, link, session.client, [shown], entering=False)

    # -- decisions ---------------------------------------------------------------------------------------------

    def _types(self, session: Session) -> tuple[str, str]:
        if self.setting.allow is None:
            return IN, OUT
        types = self.setting.types
        return types[session.user if session.user in types else None]

    def _brokered(self, came: str, goes: str) -> bool:
        return self.setting.allow is None or (came, goes) in self.setting.allow

    def _policies(self, action: str, s: Mapping[str, Any], copy: Copy, p: Mapping[str, Any] | None) -> bool:
        """ "Errors deny. Then the combining algorithm; nothing matches → deny"."""
        if self.setting.policies is None:
            return True
        roots: dict[str, Any] = {"s": s, "o": copy.o}
        if p is not None:
            roots["p"] = p
        effects: list[str] = []
        for row in self.setting.policies:
            filter = filled(row["topic"], s)
            if action not in row["action"] or not selected(row["subject"], s):
                continue
            if s["kind"] == "monitor" and row["subject"] == "*" and row.get("effect", "allow") == "allow":
                continue  # "writable by `monitor:ID` by name (`*` does not count for monitors)"
            if filter is None or not matches(filter, copy.topic):
                continue
            try:
                if holds(row.get("when", "true"), **roots):
                    effects.append(row.get("effect", "allow"))
            except PredicateFailed:
                return False
        match self.setting.combining:
            case "deny-overrides":
                return "allow" in effects and "deny" not in effects
            case "permit-overrides":
                return "allow" in effects
        return effects[:1] == ["allow"]

    def _preferred(self, copy: Copy, s: Mapping[str, Any], to: str | None) -> View:
        """What the owner lets somebody have of it: a receiver, or, forwarded, a scope. "Preferences that name R replace
        `*` for R"; "against the original topic"."""
        own = [one for one in self.setting.preferences if one["user"] == copy.owner]
        table = [one for one in own if matches(one["topic"], copy.p["topic"])]
        if to is None:
            table = [one for one in table if "to" not in one]
        else:
            named = [one for one in table if one.get("to") == to]
            table = named or [one for one in table if one.get("to") == "*"]
        if not table:
            return Whole.WHOLE
        rows = [one for one in table if true(one.get("when", "true"), s=s, o=copy.o, p=copy.p)]
        return united(kept(one.get("keep", "all")) for one in rows)

    def _content(self, copy: Copy, view: View) -> bytes | None:
        content = content_for(Message(topic=copy.topic, payload=copy.payload), view)
        return None if content is None else content[0]

    def _seen(
        self, session: Session, copy: Copy, subscription: Subscription | None, *, away: bool = False
    ) -> bytes | None:
        """Steps 6 to 10: what of a copy is sent for a subscription."""
        s = session.s
        views = [administrator_view({"views": self.setting.views}, copy.topic, s)]
        for one in copy.each():
            if not any(self._brokered(link, self._types(session)[1]) for link in (one.link, *copy.also)):
                return None
            if not away and not meets(CONFIG, session.level, one.demand):
                return None
            if not self._policies("read", s, one, one.p):
                return None
            views.append(self._preferred(one, s, None))
        payload = self._content(copy, intersected(views))
        if payload is not None and subscription is not None and subscription.where:
            left = replace(copy, payload=payload).o
            if not true(subscription.where, o=left):
                return None
        return payload

    def received(
        self, session: Session, copy: Copy, subscriptions: Iterable[Subscription], own: bool, *, away: bool = False
    ) -> tuple[int, bytes, bool] | None:
        """QoS and content of what a session gets by those of its subscriptions that let it pass, and whether it wants
        it: not if it is its own."""
        passing: list[Subscription] = []
        shown = b""
        for one in subscriptions:
            payload = self._seen(session, copy, one, away=away or not session.there)
            if payload is not None:
                passing.append(one)
                shown = payload
        if not passing:
            return None
        wanted = [one for one in passing if not (own and one.no_local)]
        qos = max((one.qos for one in wanted), default=0)
        return min(copy.qos, qos), shown, bool(wanted)


class Traversal:
    """One message on its way."""

    def __init__(self, walk: Walk, source: Session | None, outcome: Outcome) -> None:
        self.walk = walk
        self.source = source
        self.outcome = outcome
        self.crossed: set[tuple[str, int]] = set()
        self.served: set[tuple[object, int]] = set()
        self.carried = False

    def go(self, scope: str, copy: Copy) -> None:
        self._go(deque([(scope, copy, frozenset((scope,)))]))

    def carry(self, link: Link, copy: Copy, topic: str) -> None:
        """What is retained, over a link that has opened; not to where it was published, and nowhere twice."""
        self.carried = True
        path = frozenset((copy.p["scope"], link.source))
        if link.target in path or self._shown_before(link, copy, topic):
            return
        behind = self.walk.over(link, copy)
        if behind is not None:
            self.crossed.add((link.name, copy.id))
            self._go(deque((link.target, each, path | {link.target}) for each in behind))

    def _go(self, waiting: deque[tuple[str, Copy, frozenset[str]]]) -> None:
        while waiting:
            here, one, path = waiting.popleft()
            if self.carried and self._known(here, one):
                continue
            self.arrive(here, one)
            for link in self.walk.setting.links:
                if link.source != here or link.target in path or (link.name, one.id) in self.crossed:
                    continue
                crossing = link.crossing(one.topic)
                if self.carried and crossing is not None and self._shown_before(link, one, crossing[0]):
                    continue
                behind = self.walk.over(link, one)
                if behind is not None:
                    self.crossed.add((link.name, one.id))
                    waiting.extend((link.target, each, path | {link.target}) for each in behind)

    def _shown_before(self, link: Link, copy: Copy, topic: str) -> bool:
        """ "one whose id the other side holds is neither sent nor shown to monitors again" """
        return self.walk.holds(link.target, topic, copy) and self.walk.listened(link, copy.topic, topic)

    def _known(self, scope: str, copy: Copy) -> bool:
        """Whether the scope holds it, or a newer one."""
        kept = self.walk.retained.get((scope, copy.topic))
        if kept is None or not copy.retain or ((scope, copy.topic), copy.id) in self.served:
            return False
        self.walk.came_over(scope, copy)
        return kept.id == copy.id or kept.published > copy.published

    def arrive(self, scope: str, copy: Copy) -> None:
        """Kept if it is retained, and sent to whoever may have it here."""
        walk = self.walk
        if copy.retain and ((scope, copy.topic), copy.id) not in self.served:
            self.served.add(((scope, copy.topic), copy.id))  # the first to come is kept
            walk.retained.pop((scope, copy.topic), None)
            if copy.payload:
                walk.retained[scope, copy.topic] = copy
        elif copy.retain:
            walk.came_over(scope, copy)
        groups: dict[str, list[tuple[Session, Subscription]]] = {}
        for session in walk.sessions.values():
            if session.scope != scope:
                continue
            matching = [one for one in session.subscriptions.values() if matches(one.filter, copy.topic)]
            for one in matching:
                if one.group:
                    groups.setdefault(f"{one.group}/{one.filter}", []).append((session, one))
            plain = [one for one in matching if not one.group]
            weak = session.there and copy.qos > 0 and walk.weak(session, copy)
            if weak:
                plain = [one for one in plain if one.qos]
            found = walk.received(session, copy, plain, session is self.source, away=weak)
            if found is None or (session.key, copy.id) in self.served:
                continue
            self.served.add((session.key, copy.id))
            qos, payload, wanted = found
            if not wanted:
                continue
            owed = Owed(copy=copy, qos=qos)
            if not session.there:
                if qos:
                    session.waiting.append(owed)
            elif weak or (qos and walk.behind(session, owed)):
                session.deferred.append(owed)
            elif not walk._hushed(session, copy, payload):
                sent = Sent(topic=copy.topic, payload=payload, qos=qos)
                self.outcome.sent.setdefault(session.key, []).append(sent)
        for name, members in groups.items():
            if (name + "@" + scope, copy.id) in self.served:
                continue
            found_for: dict[Key, Sent | None] = {}
            for session, one in members:
                answer = walk.received(session, copy, [one], own=False)
                if session.there and answer is not None:
                    quiet = walk._hushed(session, copy, answer[1])
                    made = Sent(topic=copy.topic, payload=answer[1], qos=answer[0])
                    found_for[session.key] = None if quiet else made
            if found_for:
                self.served.add((name + "@" + scope, copy.id))
                self.outcome.turns.append(Turn(group=name, members=found_for))


def _states(machine: Machine) -> Sequence[str]:
    """The states of one that remembers: "`rate`, `dedupe`, `filter` and `map` remember none"."""
    if isinstance(machine, Automaton):
        return tuple(machine.states)
    return ("allow", "suppress") if isinstance(machine, Alternate) else ()


def _tells(machine: Machine, event: Event) -> bool:
    """Whether it is "an event that another state would have suppressed or changed": one that is made anew is another,
    though it may look the same."""
    outputs = (machine.step(state, event)[1] for state in _states(machine))
    return any(len(each) != 1 or each[0] is not event for each in outputs)


def _excessive(memory: Memory) -> bool:
    return len({repr(one.publisher) for one in memory}) > MOST


def _without_links(copy: Copy) -> tuple[Any, ...]:
    """What a copy is, whatever way it has come."""
    contexts = [replace(one, link="") for one in (copy.context, *copy.others)]
    return copy.payload, contexts[0], frozenset(contexts[1:])


def selected(selector: str, s: Mapping[str, Any]) -> bool:
    """Whether a subject is meant. A link is `link:A->B`, and at each end the scope that it acts in."""
    kind, _, name = selector.partition(":")
    if selector == "*":
        return True
    if kind == "user":
        return bool(s.get("user") == name)
    if kind == "scope":
        return bool(s["kind"] == "link" and s["scope"] == name)
    return bool(s["kind"] == kind and s["client"] == name)
