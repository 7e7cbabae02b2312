"""What other rules would change: recorded decisions, who can read whose data, and what can flow.

Nothing is changed. Takes long: belongs on a thread.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

from tidegate.config import Config
from tidegate.explain.comparison import compare
from tidegate.explain.reader_changes import Differences, Moment, ReaderChanges
from tidegate.flow.graph import ConnectionGraph
from tidegate.flow.network import Member, Network
from tidegate.flow.presence import Presence
from tidegate.flow.reach import Reach
from tidegate.session import Subject
from tidegate.store.journal.rows import AuditRow

LOOKING: Final = 1.0
"""Seconds in which people are looked at."""
NAMED: Final = 100
ENTITIES: Final = 500
"""Of a graph whose flows are compared one by one."""


def effects(before: Config, after: Config, rows: Sequence[AuditRow]) -> dict[str, Any]:
    """Everything that can be said beforehand of a change."""
    return {
        **compare(before, after, rows),
        "people": people(before, after),
        "flows": flows(before, after),
        "tests": len(after.tests),  # they hold, or it would have been refused
    }


# -- people ------------------------------------------------------------------------------------------------------------


def publisher(config: Config, user: str, identity: str = "", client: str | None = None) -> Subject:
    """Somebody of the directory, as one who publishes; from one of their clients, if it is given."""
    known = config.built.directory.known(user=user, client=client)
    return Subject(
        kind="client",
        client=client or "",
        user=user,
        scope=next(iter(config.scopes)),
        node=config.node.name,
        domain=config.built.rules.domain,
        roles=known.roles,
        groups=known.groups,
        attributes=known.attributes,
        identity=identity,
    )


def people(before: Config, after: Config) -> dict[str, Any]:
    """Who could read more of whose data, and who less."""
    now, until = time.time(), time.monotonic() + LOOKING
    old, new = Moment(config=before, at=now), Moment(config=after, at=now)
    ways = (("more", old, new), ("less", new, old))
    found: dict[str, list[dict[str, Any]]] = {"more": [], "less": []}
    complete = True
    if not Differences.between(before, after).entries:
        return {**found, "complete": True}
    for name, first, second in ways:
        changes = ReaderChanges(first, second, Differences.between(first.config, second.config))
        for user in second.config.directory.users:
            if user not in first.config.directory.users:
                continue  # what is not there cannot be read
            if time.monotonic() > until or len(found[name]) >= NAMED:
                complete = False
                break
            found[name] += _gains(changes, second.config, user)
    return {**{name: each[:NAMED] for name, each in found.items()}, "complete": complete}


def _gains(changes: ReaderChanges, config: Config, owner: str) -> Iterator[dict[str, Any]]:
    for gained in changes.gained(publisher(config, owner), (owner,)):
        for gain in gained.gains:
            kind, name = gain.reader
            yield {"owner": owner, "filter": gained.filter, "reader": kind, "name": name, "can": gain.now.can.value}


# -- flows -------------------------------------------------------------------------------------------------------------


def graph_of(config: Config, presences: Iterable[Presence] | None = None) -> ConnectionGraph:
    """The connection graph of a node; without `presences` with those of the directory."""
    rules = config.built.rules
    there = tuple(config.built.presences if presences is None else presences)
    member = Member(name=config.node.name, space=rules.space, brokering=rules.brokering, presences=there)
    return Network([member]).graph()


def flows(before: Config, after: Config) -> dict[str, Any] | None:
    """What would flow that does not now, and the other way round; None: the graph stays as it is."""
    if _flowing(before) == _flowing(after):
        return None
    old, new = graph_of(before), graph_of(after)
    if (old.links, list(old.pairs())) == (new.links, list(new.pairs())):
        return None
    drawn = {"before": _picture(before, old), "after": _picture(after, new)}
    if max(len(each.entities) for each in (old, new)) > ENTITIES:
        return {**drawn, "opened": [], "closed": [], "complete": False}
    was, would = (set(_pairs(Reach(each))) for each in (old, new))
    opened, closed = sorted(would - was), sorted(was - would)
    complete = max(len(opened), len(closed)) <= NAMED
    return {**drawn, "opened": opened[:NAMED], "closed": closed[:NAMED], "complete": complete}


def _flowing(config: Config) -> tuple[object, ...]:
    """What the graph is made of."""
    return config.scopes, config.links, config.brokering, config.built.presences


def _pairs(reach: Reach) -> Iterator[tuple[str, str]]:
    for source in reach.entities:
        for target in reach.reached(source):
            if source != target:
                yield source, target


def _picture(config: Config, graph: ConnectionGraph) -> str:
    from tidegate.flow.drawing.graph import svg

    parents = config.built.rules.space.parents
    return svg(
        config.node.name,
        graph,
        {f"scope:{child}": [f"scope:{each}" for each in names] for child, names in parents.items()},
    )


def automata(config: Config, ids: Iterable[str]) -> dict[str, str]:
    """Monitors of a configuration, drawn."""
    from tidegate.flow.drawing.automaton import svg

    wanted = set(islice(ids, NAMED))
    return {each.id: svg(each.id, each.monitor.graph()) for each in config.built.rules.monitors if each.id in wanted}
