"""What conditions see: the roots `s`, `o`, `e` and `p`, of a message that is here and of one that is yet to come.

For a message to come, what is not known is UNKNOWN, so that a condition which does not depend on it is decided once.
For a message that is here, nothing is computed that no condition reads: a payload is parsed when first asked for, and
once for all who ask.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, Protocol

import orjson

from tidegate.bounded import Weighed
from tidegate.gate.payload_fields import SHORT, Decode
from tidegate.gate.rule_set import RuleSet
from tidegate.gate.verdict import Known
from tidegate.policy import Environment, Moment, Paths, Undecided, attributes_of, facets, terms_of
from tidegate.policy.environment import CLOCK
from tidegate.policy.levels import SIGNED
from tidegate.policy.views import MAX_CONTENT
from tidegate.predicate import UNKNOWN
from tidegate.session import Context, Link, Message, SourceContext, Subject
from tidegate.session.carried_proof import shown_pairs

CONTEXTS: Final = 10_000  # decoded ones that are kept
CONTEXT_BYTES: Final = 8 * 2**20  # and what they have together
PEOPLE: Final = 20_000
SCORES: Final = "scores"
"""The user property that tells subscribers the scores. Only the pipeline adds it: one of a publisher is removed."""
FLOOR: Final = "floor"
"""The user property that tells subscribers the floor; the node adds it as the last one."""
NO_TIME: Final = float("-inf")
"""When a message was published of which that is not known: a condition that reads it fails."""
READ: Final = 64  # messages with what conditions have read of them
READ_BYTES: Final = 1 << 20  # of their content
CONNECTION: Final = ("level", "facts", "address", "listener", "tls")  # of `s`: not known while nobody is connected

_OF_THE_MESSAGE: Final = frozenset(("topic", "time", "qos", "size", "e"))  # of `p`
_COMING: Final = dict.fromkeys(("qos", "retain", "size", "payload", "properties", "scores"), UNKNOWN)
_PUBLISHED: Final = dict.fromkeys(("time", "qos", "size"), UNKNOWN)
_CLOCK: Final = dict.fromkeys(CLOCK, UNKNOWN)

CLOCK_PATHS: Final = frozenset(f"e.{name}" for name in CLOCK)


def later(reads: Iterable[str], volatile: bool) -> bool:
    """Whether a condition cannot be asked before somebody is connected: it is decided when the message is sent."""
    return volatile or any(path.partition(".")[0] in ("s", "e") for path in reads)


class Clock(Protocol):
    """The time of this turn."""

    @property
    def wall(self) -> float: ...
    @property
    def steady(self) -> float:
        """What the wall clock would show had it never been set."""
        ...


class MessageAttributes(dict[str, Any]):
    """The root `o` of one message."""

    __slots__ = ("attributes", "decode", "message")

    def __init__(self, attributes: Attributes, message: Message, decode: Decode = orjson.loads) -> None:
        self.attributes = attributes
        self.message = message
        self.decode = decode  # the content, as far as conditions read it

    def __missing__(self, name: str) -> object:
        value = self[name] = self._found(name)
        return value

    def _found(self, name: str) -> object:
        message = self.message
        match name:  # hot: what most conditions read comes first
            case "payload" if len(message.payload) <= MAX_CONTENT and not self.attributes.context(message).sealed:
                try:
                    return self.decode(message.payload)
                except orjson.JSONDecodeError:
                    raise KeyError(name) from None
            case "topic":
                return message.topic
            case "levels":
                return tuple(message.topic.split("/"))
            case "qos":
                return message.qos
            case "retain":
                return message.retain
            case "category":
                category = self.attributes.rules.classification.category(message.topic)
                if category is None:
                    raise KeyError(name)
                return category
            case "size":
                return len(message.payload)
            case "properties":
                pairs = message.properties.user_properties
                if self.attributes.rules.announces_floor and pairs and pairs[-1][0] == FLOOR:
                    pairs = pairs[:-1]  # that is the node's own
                return _by_name(shown_pairs(pairs))
            case "scores" if self.attributes.context(message).scored:
                # only the pipeline scores: a device cannot vouch for itself
                try:
                    scores = orjson.loads(dict(message.properties.user_properties)[SCORES])
                except (KeyError, orjson.JSONDecodeError):
                    raise KeyError(name) from None
                if isinstance(scores, dict):
                    return scores
                raise KeyError(name)
            case _:
                raise KeyError(name)

    def look(self, payload: bytes) -> None:
        """It has this content now, which conditions read; before, it knows of none."""
        self.clear()
        if (length := len(payload)) <= MAX_CONTENT:
            try:
                self["payload"] = orjson.loads(payload) if length < SHORT else self.decode(payload)
            except orjson.JSONDecodeError:
                pass  # whoever reads it finds that out


def _by_name(pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """User properties by name; one that is given several times is the list of its values."""
    values: dict[str, Any] = {}
    for name, value in pairs:
        if name not in values:
            values[name] = value
        elif isinstance(values[name], list):
            values[name].append(value)
        else:
            values[name] = [values[name], value]
    return values


class SubjectAttributes:
    """What conditions and selectors see of one subject."""

    __slots__ = ("p", "s", "terms")

    def __init__(self, subject: Subject, rules: RuleSet) -> None:
        self.s = attributes_of(subject, rules.domain, rules.domains)
        self.terms = terms_of(subject, rules.domain, rules.domains)
        self.p: dict[str, Any] | None = None  # as a publisher; most only receive


class Attributes:
    """The attributes that conditions read, under one version of the rules."""

    def __init__(self, rules: RuleSet, clock: Clock) -> None:
        self.rules = rules
        self.clock = clock
        self._contexts: Weighed[bytes, tuple[Context, dict[str, Any]]] = Weighed(CONTEXTS, CONTEXT_BYTES, len)
        self._moments: dict[Environment, Moment] = {}
        self._people: Weighed[Subject, SubjectAttributes] = Weighed(PEOPLE, CONTEXT_BYTES, _weight)
        self._read: deque[tuple[Message, int]] = deque()
        self._read_bytes = 0
        self._added = {name for one in (rules.environment, *rules.environments.values()) for name in one.added}

    # -- before the message comes --------------------------------------------------------------------------------

    def person(self, subject: Subject) -> SubjectAttributes:
        """What conditions and selectors see of somebody."""
        person = self._people.get(subject)
        if person is None:
            person = self._people[subject] = SubjectAttributes(subject, self.rules)
        return person

    def subject(self, subject: Subject, away: bool = False) -> dict[str, Any]:
        """The root `s`."""
        s = self.person(subject).s
        return {**s, **dict.fromkeys(CONNECTION, UNKNOWN)} if away else s

    def coming(self, known: Known) -> dict[str, Any]:
        """The root `o` of a message to come."""
        o: dict[str, Any] | None = known.scene.get("o")
        if o is None:
            category = self.rules.classification.category(known.topic)
            o = known.scene["o"] = {"topic": known.topic, "levels": tuple(known.topic.split("/")), **_COMING}
            if category is not None:
                o["category"] = category
        return o

    def publisher(self, subject: Subject) -> dict[str, Any]:
        """What the root `p` says of who publishes, whatever the message."""
        person = self.person(subject)
        if person.p is None:
            # no attribute of the publisher stands in for one of the message
            person.p = {name: value for name, value in person.s.items() if name not in _OF_THE_MESSAGE}
            person.p["floor"] = self.rules.levels.floor(subject.level)
            person.p["facts"] = self.rules.levels.floor_facts(subject.facts)
        return person.p

    def _published_by(self, context: Context) -> dict[str, Any]:
        """The same with what the context says of all messages that have it."""
        p = self.publisher(context.subject)
        if context.floor is not None:
            levels = self.rules.levels
            p = {**p, "floor": levels.floor(context.floor), "facts": levels.floor_facts(context.held)}
        return {**p, "facts": (*p["facts"], SIGNED)} if context.signed else p

    def publication(self, known: Known) -> dict[str, Any]:
        """The root `p` of a message to come."""
        p: dict[str, Any] | None = known.scene.get("p")
        if p is None:
            p = known.scene["p"] = {
                **self._published_by(known.context),
                "topic": known.published,
                "e": {**known.context.surroundings, **_CLOCK},
                **_PUBLISHED,
            }
        return p

    def publication_in(self, domain: str, known: Known) -> dict[str, Any]:
        """The root `p` of a message to come, as another domain names its publisher."""
        return {**self.publication(known), **self._named(known.context.subject, domain)}

    def _named(self, subject: Subject, domain: str) -> dict[str, Any]:
        """What `p` says of a publisher as another domain names people."""
        named = attributes_of(subject, domain)
        return {name: value for name, value in named.items() if name not in _OF_THE_MESSAGE}

    def environment(self, actor: Subject) -> Environment:
        return self.rules.surroundings(actor.listener)

    def around(self, actor: Subject, away: bool = False) -> dict[str, Any]:
        """The root `e` of a moment to come; who is away may come back over another listener."""
        if away and self.rules.environments:
            return dict.fromkeys((*CLOCK, *self._added), UNKNOWN)
        return self.environment(actor).known

    def at_once(
        self, known: Known, left: Undecided[object], env: dict[str, Any], actor: Subject
    ) -> dict[str, Any] | None:
        """The roots at this moment, if what is left depends on the clock alone and its answer stands for a while."""
        if left.volatile or not left.reads <= CLOCK_PATHS:
            return None
        env = {**env, "e": self.environment(actor).at(known.now)}
        return env if known.stands_until(left.until(env)) else None

    def cache_key(self, source: Link, paths: Paths) -> Hashable:
        """Publishers with equal values cannot be told apart by conditions that read these of `p`."""
        if not paths:
            return None
        return facets({**self.publisher(source.subject), "e": self.environment(source.subject).added}, paths)

    # -- when it is here -----------------------------------------------------------------------------------------

    def facts(self, message: Message) -> MessageAttributes:
        """The root `o`."""
        facts = message.facts
        if facts is None or facts.attributes is not self:
            facts = message.facts = MessageAttributes(self, message)
            self._remember(message)
        return facts  # type: ignore[no-any-return]

    def read(self, message: Message, decode: Decode) -> MessageAttributes:
        """The same for a message that is not kept, and whose content changes: whoever has it clears it then."""
        return MessageAttributes(self, message, decode)

    def _remember(self, message: Message) -> None:
        """What conditions have read of the newest messages is kept with them. Of older ones it is let go: content that
        is taken apart is many times larger, and it refers to its message, which would wait for the garbage collector.
        """
        # hot: once per message that a condition reads
        read, size = self._read, len(message.payload)
        read.append((message, size))
        self._read_bytes += size
        while len(read) > READ or (self._read_bytes > READ_BYTES and len(read) > 1):
            older, size = read.popleft()
            self._read_bytes -= size
            older.facts = None

    def context(self, message: Message) -> Context:
        return self._decoded(message.context)[0]

    def decoded(self, data: bytes) -> Context:
        """A context by its bytes."""
        return self._decoded(data)[0]

    def _decoded(self, data: bytes) -> tuple[Context, dict[str, Any]]:
        decoded = self._contexts.get(data)
        if decoded is None:
            context = Context.decode(data)
            if context.subject.domain in self.rules.formerly:
                context = replace(context, subject=replace(context.subject, domain=self.rules.domain))
            if self.rules.formerly and context.others:
                context = replace(context, others=tuple(map(self._renamed, context.others)))
            decoded = self._contexts[data] = (context, self._published_by(context))
        return decoded

    def _renamed(self, source: SourceContext) -> SourceContext:
        """The same, under the name that its domain has now."""
        return replace(source, data=self.decoded(source.data).encode())

    def published(self, message: Message) -> Mapping[str, Any]:
        """The root `p`."""
        context, base = self._decoded(message.context)
        return PublishAttributes(self, base, message, context)

    def published_in(self, domain: str, message: Message) -> Mapping[str, Any]:
        """The same as another domain names its publisher."""
        context, base = self._decoded(message.context)
        return PublishAttributes(self, {**base, **self._named(context.subject, domain)}, message, context)

    def dismantled(self) -> tuple[dict[Any, Any], ...]:
        """What it remembers, for whoever lets go of it piece by piece; it is not used any more."""
        for message, _ in self._read:
            message.facts = None
        self._read.clear()
        return self._people, self._contexts

    def now(self, environment: Environment) -> Moment:
        """The root `e` at this moment."""
        moment = self._moments.get(environment)
        at = self.clock.wall
        if moment is None or moment.at != at:
            moment = self._moments[environment] = environment.at(at)
        return moment


def _weight(subject: Subject) -> int:
    """Of the names of somebody: other nodes choose how many there are, and how long."""
    names = sum(map(len, (subject.client, subject.user or "", subject.identity, subject.level, subject.scope)))
    return names + sum(map(len, subject.roles)) + sum(map(len, subject.groups))


class PublishAttributes(dict[str, Any]):
    """The root `p` of one message."""

    __slots__ = ("attributes", "context", "message")

    def __init__(self, attributes: Attributes, base: dict[str, Any], message: Message, context: Context) -> None:
        super().__init__(base)
        self.attributes = attributes
        self.message = message
        self.context = context

    def __missing__(self, name: str) -> object:
        message = self.message
        match name:
            case "topic":
                return self.context.topic or message.topic
            case "time" | "e" if message.published == NO_TIME:
                raise KeyError(name)
            case "time":
                return datetime.fromtimestamp(message.published, self.attributes.rules.environment.zone)
            case "qos":
                return message.qos if self.context.qos is None else self.context.qos
            case "size":
                return len(message.payload)
            case "e":
                return Moment(self.context.surroundings, message.published, self.attributes.rules.environment.zone)
            case _:
                raise KeyError(name)
