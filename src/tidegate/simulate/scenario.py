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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, Final, TypeAlias

from tidegate import topics
from tidegate.errors import ConfigError
from tidegate.monitor import Event
from tidegate.simulate.expectation import Expectation, expectation
from tidegate.simulate.reading import a_filter, a_flag, a_list, a_mapping, a_text, fields_of
from tidegate.simulate.schema import Entity, Link, Symbol

SETTLE: Final = "settle"
ORDERS: Final = ("any", "written")
DEEDS: Final = ("publish", "subscribe", "unsubscribe")


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
                yield from sorted((one for queue in each for one in queue), key=attrgetter("number"))

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
    """The scenario of a document as YAML gives it. Raises `ConfigError`."""
    written = fields_of(document, "the scenario", needs=("clients", "steps"), may=("order", "expect"))
    sub: dict[Link, Filters] = {}
    echo: set[Link] = set()
    users: dict[Link, str] = {}
    for name, entry in a_mapping(written["clients"], "clients").items():
        several = isinstance(entry, list)
        for at, each in enumerate(entry if several else [entry], start=1):
            place = f"clients, {name}, entry {at}" if several else f"clients, {name}"
            fields = fields_of(each, place, needs=("scope",), may=("subscribes", "no_local", "user"))
            link = (f"scope:{a_text(fields['scope'], f'{place}, scope')}", f"client:{name}")
            if link in sub:
                raise ConfigError(f"{place}: `{name}` is connected to `{fields['scope']}` twice: remove one")
            sub[link] = Filters(_filters(fields.get("subscribes"), f"{place}, subscribes"))
            if not a_flag(fields.get("no_local", False), f"{place}, no_local"):
                echo.add(link)
            if "user" in fields:
                users[link] = a_text(fields["user"], f"{place}, user")
    order = written.get("order", "any")
    if order not in ORDERS:
        raise ConfigError(f"order: `{order}` is none: write {' or '.join(ORDERS)}")
    expected = a_list(written.get("expect", []), "expect")
    return Scenario(
        sub=sub,
        echo=frozenset(echo),
        rounds=_rounds(a_list(written["steps"], "steps"), sub, written=order == "written"),
        users=users,
        expects=tuple(
            expectation(each, f"expect, entry {at}", {device for _, device in sub})
            for at, each in enumerate(expected, start=1)
        ),
    )


def _rounds(steps: Sequence[object], sub: Mapping[Link, Filters], *, written: bool) -> Rounds:
    rounds: list[Round | Change] = []
    now: list[Publication] = []
    standing = dict(sub)

    def settle() -> None:
        if now:
            rounds.append(_round(now, written))
            now.clear()

    for at, entry in enumerate(steps, start=1):
        if entry == SETTLE:
            settle()
            continue
        done = _deed(entry, f"steps, entry {at}", standing)
        if isinstance(done, Publication):
            now.append(replace(done, number=at))
        else:
            settle()
            rounds.append(done)
            standing[done.link] = done.to
    settle()
    return tuple(rounds)


def _round(publications: Sequence[Publication], written: bool) -> Round:
    if written:
        return (tuple(publications),)
    names = dict.fromkeys(each.x for each in publications)
    return tuple(tuple(each for each in publications if each.x == name) for name in names)


def _deed(entry: object, place: str, sub: Mapping[Link, Filters]) -> Publication | Change:
    """What one client does."""
    fields = fields_of(entry, place, needs=("client",), may=(*DEEDS, "payload", "scope"))
    found = [deed for deed in DEEDS if deed in fields]
    if len(found) != 1:
        raise ConfigError(f"{place}: it does {len(found)} things: write one of {', '.join(DEEDS)}")
    scope, client = link = _connection(fields, place, sub)
    if found == ["publish"]:
        topic = fields["publish"]
        if not isinstance(topic, str) or not topics.valid_topic(topic):
            raise ConfigError(f"{place}: `{topic}` is no topic: write one without `+` and `#`")
        if topic.startswith("$"):
            raise ConfigError(f"{place}: `{topic}` is reserved, because it begins with `$`: choose another topic")
        return Publication(client, scope, Event(topic, _payload(fields.get("payload", ""))))
    if "payload" in fields:
        raise ConfigError(f"{place}: only what is published has a `payload`: remove it")
    had, named = sub[link].filters, _filters(fields[found[0]], f"{place}, {found[0]}")
    if found == ["subscribe"]:
        return Change(link, Filters(tuple(dict.fromkeys((*had, *named)))))
    for each in named:
        if each not in had:
            raise ConfigError(f"{place}: it is not subscribed to `{each}`: write one of {', '.join(had) or 'nothing'}")
    return Change(link, Filters(tuple(each for each in had if each not in named)))


def _connection(fields: Mapping[str, Any], place: str, sub: Mapping[Link, Filters]) -> Link:
    name = fields["client"]
    scopes = [scope.removeprefix("scope:") for scope, device in sub if device == f"client:{name}"]
    if not scopes:
        raise ConfigError(f"{place}: there is no client `{name}`: add it to `clients`, or mend its name")
    if "scope" not in fields and len(scopes) > 1:
        raise ConfigError(f"{place}: `{name}` is connected to {', '.join(scopes)}: say which with `scope`")
    scope = str(fields.get("scope", scopes[0]))
    if scope not in scopes:
        raise ConfigError(f"{place}: `{name}` is not connected to `{scope}`: it is to {', '.join(scopes)}")
    return f"scope:{scope}", f"client:{name}"


def _payload(written: object) -> bytes:
    """A text as it is, everything else as JSON."""
    return written.encode() if isinstance(written, str) else json.dumps(written, default=str).encode()


def _filters(written: object, place: str) -> tuple[str, ...]:
    if written is None:
        return ()
    found = [a_filter(each, place) for each in a_list([written] if isinstance(written, str) else written, place)]
    for each in found:
        if topics.share(each)[0] is not None:
            raise ConfigError(f"{place}: `{each}` is shared, which the model does not know: subscribe without `$share`")
    return tuple(dict.fromkeys(found))
