"""A scenario: who is connected where and subscribes to what, what is published, and what is expected of that.

As a file says it:

    clients:
      MD: {scope: H4}
      DB: {scope: H2, subscribes: [MD_motion, MD_no_motion]}
      SP: {scope: I, subscribes: AccessRequest, no_local: true, user: alice}
      SC: [{scope: H1}, {scope: H2}]        # connected twice
    order: any                              # or `written`
    steps:
      - {client: DB, publish: AccessRequest}
      - settle                              # until everything so far has arrived
      - {client: SP, publish: AccessGranted, payload: {by: alice}}
      - {client: DB, subscribe: "x/#"}      # also settles; so does `unsubscribe`
      - {client: SC, publish: DL_unlock, scope: H1}
    expect:
      - {client: DL, hears: DL_unlock, times: 1}
      - {client: SP, never: "MD/#"}

Publications are rounds of queues. What stands in one queue is published in that order; queues of a round interleave in
every way; a round begins when the work list is empty. With `order: any` each client is a queue, with `written` there is
one queue for all. Even then events may overtake each other on their way.

Entities are `client:NAME` and `scope:NAME`, as everywhere. Events are `monitor.Event`.

What it will not do: know which scopes exist. Whoever joins it with a configuration finds that out.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from typing import Final, TypeAlias

from tidegate import topics
from tidegate.config.document import DocumentValue, document_tree, read_source
from tidegate.config.problems import ConfigErrors
from tidegate.config.tree import MAX_DEPTH, Node
from tidegate.errors import ConfigError
from tidegate.monitor import Event
from tidegate.simulate.schema import Entity, Link, Symbol

SETTLE: Final = "settle"
ORDERS: Final = ("any", "written")
ACTIONS: Final = ("publish", "subscribe", "unsubscribe")
_NO_CLIENT: Final = "is `{}`, which is no client of the scenario; add it to `clients`, or mend its name"


@dataclass(frozen=True, slots=True)
class Publication:
    """x publishes a in y: one application of T-Publish."""

    x: Entity
    y: Entity
    a: Symbol
    number: int = field(default=0, compare=False)
    """Which one it is: of a scenario in the order of the file, of a run in the order of its queues."""


@dataclass(frozen=True, slots=True)
class Filters:
    """The set of events that topic filters describe."""

    filters: tuple[str, ...]

    def __contains__(self, event: object) -> bool:
        return isinstance(event, Event) and any(topics.matches(each, event.topic) for each in self.filters)


@dataclass(frozen=True, slots=True)
class Change:
    """sub(link) is another set from now on."""

    link: Link
    to: Filters


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """How often a client hears what matches a filter, in one outcome."""

    client: Entity
    filter: str
    times: int | None = None
    """None: at least once."""

    def met(self, heard: Iterable[Symbol]) -> bool:
        times = sum(isinstance(symbol, Event) and topics.matches(self.filter, symbol.topic) for symbol in heard)
        return times > 0 if self.times is None else times == self.times

    def __str__(self) -> str:
        match self.times:
            case None:
                often = ""
            case 0:
                return f"{self.client} never hears {self.filter}"
            case 1:
                often = " once"
            case times:
                often = f" {times} times"
        return f"{self.client} hears {self.filter}{often}"


Queue: TypeAlias = tuple[Publication, ...]
Round: TypeAlias = tuple[Queue, ...]
Rounds: TypeAlias = tuple[Round | Change, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What `Schema` needs of it: `devices`, `links`, `sub` and `echo`. What exploring needs: `rounds`."""

    sub: Mapping[Link, Filters]
    """For every connection, from the scope to the client."""
    echo: frozenset[Link]
    """Those without No Local."""
    rounds: Rounds
    users: Mapping[Link, str] = field(default_factory=dict)
    """As whom clients are connected; those that are absent as themselves."""
    expects: tuple[Expectation, ...] = ()

    @property
    def devices(self) -> frozenset[Entity]:
        return frozenset(device for _, device in self.sub)

    def written(self) -> Iterator[Publication | Change]:
        """Everything that clients do, in the order of the file."""
        for each in self.rounds:
            if isinstance(each, Change):
                yield each
            else:
                yield from sorted((publication for queue in each for publication in queue), key=attrgetter("number"))

    @property
    def links(self) -> frozenset[Link]:
        """Of the clients, in both directions."""
        return frozenset(link for scope, device in self.sub for link in ((scope, device), (device, scope)))

    def placed(self, where: Mapping[Link, tuple[Entity, Entity]]) -> Scenario:
        """With connections that are to two scopes, one to publish and one to hear, in place of the one they name."""

        def hears(link: Link) -> Link:
            return (where[link][1], link[1]) if link in where else link

        def speaks(one: Publication) -> Publication:
            return replace(one, y=where[one.y, one.x][0]) if (one.y, one.x) in where else one

        rounds = tuple(
            Change(hears(each.link), each.to)
            if isinstance(each, Change)
            else tuple(tuple(map(speaks, queue)) for queue in each)
            for each in self.rounds
        )
        silent = {(pub, link[1]): Filters(()) for link, (pub, _) in where.items()}
        return replace(
            self,
            sub={**silent, **{hears(link): filters for link, filters in self.sub.items()}},
            echo=frozenset(map(hears, self.echo)) | silent.keys(),  # nothing comes over those
            rounds=rounds,
            users={hears(link): user for link, user in self.users.items()},
        )


def parse(document: object) -> Scenario:
    """The scenario of plain data. Raises `ConfigErrors`."""
    tree = document_tree(document)
    if tree is None:
        raise ConfigErrors([ConfigError(f"the scenario is nested deeper than {MAX_DEPTH} levels; flatten it")])
    return _scenario(tree, "", ())


def read_scenario(path: Path) -> Scenario:
    """The scenario in a file. Raises `ConfigErrors`, each with file and line."""
    source = read_source(path, {}, first="clients:")
    return _scenario(source.tree, source.file, source.problems)


def _scenario(tree: Node, file: str, known: Sequence[ConfigError]) -> Scenario:
    problems = list(known)
    scenario = _Reader().scenario(DocumentValue.top(tree, file, problems))
    if problems:
        raise ConfigErrors(problems)
    return scenario


class _Reader:
    """What has been read so far: the clients, and what each is subscribed to."""

    def __init__(self) -> None:
        self.sub: dict[Link, Filters] = {}
        self.echo: set[Link] = set()
        self.users: dict[Link, str] = {}

    def scenario(self, top: DocumentValue) -> Scenario:
        sections = top.entries(("clients", "order", "steps", "expect"), needed=("clients", "steps")) or {}
        if "clients" in sections:
            for name, value in (sections["clients"].mapping("NAME: {scope: …}") or {}).items():
                for each in value.items() if isinstance(value.node.value, list) else [value]:
                    self._client(name, each)
        order = sections["order"].word(ORDERS) if "order" in sections else "any"
        steps = sections["steps"].items() if "steps" in sections else []
        subscribed = dict(self.sub)
        rounds = self._rounds(steps, written=order == "written")
        devices = {device for _, device in subscribed}
        expected = sections["expect"].items() if "expect" in sections else []
        return Scenario(
            sub=subscribed,
            echo=frozenset(self.echo),
            rounds=rounds,
            users=self.users,
            expects=tuple(found for each in expected if (found := _expectation(each, devices)) is not None),
        )

    def _client(self, name: str, value: DocumentValue) -> None:
        entries = value.entries(("scope", "subscribes", "no_local", "user"), needed=("scope",)) or {}
        scope = entries["scope"].text() if "scope" in entries else None
        if scope is None:
            return
        link = (f"scope:{scope}", f"client:{name}")
        if link in self.sub:
            value.wrong(f"connects `{name}` to `{scope}` again; remove one of the two")
        self.sub[link] = Filters(_filters(entries["subscribes"]) if "subscribes" in entries else ())
        if "no_local" not in entries or not entries["no_local"].switch():
            self.echo.add(link)
        if "user" in entries and (user := entries["user"].long_text(topics.MAX)) is not None:
            self.users[link] = user

    def _rounds(self, steps: Sequence[DocumentValue], *, written: bool) -> Rounds:
        rounds: list[Round | Change] = []
        now: list[Publication] = []

        def settle() -> None:
            if now:
                rounds.append(_round(now, written))
                now.clear()

        for number, value in enumerate(steps, start=1):
            if value.node.value == SETTLE:
                settle()
                continue
            match self._action(value):
                case Publication() as publication:
                    now.append(replace(publication, number=number))
                case Change() as change:
                    settle()
                    rounds.append(change)
                    self.sub[change.link] = change.to
                case None:
                    pass
        settle()
        return tuple(rounds)

    def _action(self, value: DocumentValue) -> Publication | Change | None:
        entries = value.entries(("client", *ACTIONS, "payload", "scope"), needed=("client",))
        link = self._connection(entries, value) if entries and "client" in entries else None
        if entries is None or link is None:
            return None
        named = [action for action in ACTIONS if action in entries]
        if len(named) != 1:
            value.wrong(f"does {len(named)} things; write one of {', '.join(ACTIONS)}")
            return None
        (action,) = named
        if action == "publish":
            topic = _topic(entries[action])
            # `payload: null` is the JSON null
            written = value.node.value.get("payload") if isinstance(value.node.value, dict) else None
            payload = b"" if written is None else _payload(written.data())
            return None if topic is None else Publication(link[1], link[0], Event(topic, payload))
        if "payload" in entries:
            entries["payload"].wrong("has no effect; only `publish` has one, so remove it")
        before, filters = self.sub[link].filters, _filters(entries[action])
        if action == "subscribe":
            return Change(link, Filters(tuple(dict.fromkeys((*before, *filters)))))
        for each in filters:
            if each not in before:
                those = ", ".join(before) or "nothing"
                entries[action].wrong(f"names `{each}`, which it is not subscribed to; write one of {those}")
        return Change(link, Filters(tuple(each for each in before if each not in filters)))

    def _connection(self, entries: Mapping[str, DocumentValue], value: DocumentValue) -> Link | None:
        name = entries["client"].node.data()
        scopes = [scope.removeprefix("scope:") for scope, device in self.sub if device == f"client:{name}"]
        if not scopes:
            entries["client"].wrong(_NO_CLIENT.format(name))
            return None
        if "scope" not in entries and len(scopes) > 1:
            value.wrong(f"does not say where; `{name}` is connected to {', '.join(scopes)}: add `scope`")
            return None
        scope = str(entries["scope"].node.data()) if "scope" in entries else scopes[0]
        if scope not in scopes:
            entries["scope"].wrong(
                f"is `{scope}`, and `{name}` is connected to {', '.join(scopes)}; write one of these"
            )
            return None
        return f"scope:{scope}", f"client:{name}"


def _round(publications: Sequence[Publication], written: bool) -> Round:
    if written:
        return (tuple(publications),)
    names = dict.fromkeys(each.x for each in publications)
    return tuple(tuple(each for each in publications if each.x == name) for name in names)


def _topic(value: DocumentValue) -> str | None:
    topic = value.node.value
    if not isinstance(topic, str) or not topics.valid_topic(topic):
        value.wrong("must be a topic; write one without `+` and `#`")
        return None
    if topic.startswith("$"):
        value.wrong("begins with `$`, and such topics are reserved; choose another one")
        return None
    return topic


def _payload(written: object) -> bytes:
    """A text as it is, everything else as JSON."""
    return written.encode() if isinstance(written, str) else json.dumps(written, default=str).encode()


def _filters(value: DocumentValue) -> tuple[str, ...]:
    values = value.items() if not isinstance(value.node.value, str) else [value]
    filters = [each for each in map(_topic_filter, values) if each is not None]
    for each in filters:
        if topics.share(each)[0] is not None:
            value.wrong(f"has `{each}`, and the model does not know shared subscriptions; leave out `$share`")
    return tuple(dict.fromkeys(filters))


def _expectation(value: DocumentValue, clients: Container[Entity]) -> Expectation | None:
    """`{client: DL, hears: FILTER, times: 1}` or `{client: DL, never: FILTER}`; None if it has problems."""
    entries = value.entries(("client", "hears", "times", "never"), needed=("client",))
    if entries is None or "client" not in entries:
        return None
    name = entries["client"].node.data()
    client = f"client:{name}"
    if client not in clients:
        entries["client"].wrong(_NO_CLIENT.format(name))
    if ("hears" in entries) is ("never" in entries):
        value.wrong("must have `hears` or `never`; write one of the two")
        return None
    filter = _topic_filter(entries["never" if "never" in entries else "hears"])
    times: int | None = 0 if "never" in entries else None
    if "times" in entries:
        written = entries["times"].node.value
        if "never" in entries:
            entries["times"].wrong("has no effect beside `never`; remove it")
        elif isinstance(written, bool) or not isinstance(written, int) or written < 1:
            entries["times"].wrong("must be at least 1; for 0 write `never`")
        else:
            times = written
    return None if filter is None else Expectation(client=client, filter=filter, times=times)


def _topic_filter(value: DocumentValue) -> str | None:
    filter = value.node.value
    if not isinstance(filter, str) or not topics.valid_filter(filter):
        value.wrong("must be a topic filter; write `+` and `#` for whole levels, and `#` only last")
        return None
    return filter
