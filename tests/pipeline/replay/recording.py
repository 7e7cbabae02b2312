"""A journal `traffic` as a node would have written it, from events that a test makes up."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pipeline.replay import naive
from tidegate.config import Config, parse
from tidegate.pipeline.replay.partitions import LEAST, Partition, Work, partitions, replay, span
from tidegate.policy import Demand
from tidegate.policy.subject import attributes_of
from tidegate.session import Context, Subject
from tidegate.store.journal import TRAFFIC, Writer, traffic_row
from tidegate.store.journal.rows import Row

DIRECTORY = {
    "users": {name: {"password": "plain:x"} for name in ("alice", "bob", "carol")},
    "roles": {"r": {}},
}


def config(rules: naive.Rules, data: Path, **more: Any) -> Config:
    """A configuration with these rules; JSON is YAML."""
    document = {
        "version": 1,
        "node": {"name": "n", "data": str(data)},
        "listeners": [{"url": "mqtt://127.0.0.1:1883", "anonymous": True}],
        "directory": DIRECTORY,
        **rules.document(),
        **more,
    }
    return parse(json.dumps(document), "test.yaml")


def subject(person: naive.Person) -> Subject:
    return Subject(
        kind="client",
        client=person.client,
        user=person.user,
        scope="main",
        node="n",
        domain="n",
        level=person.level,
        address="127.0.0.1",
        listener="mqtt://127.0.0.1:1883",
        roles=person.roles,
    )


def rows(events: Iterable[naive.Event], rules: naive.Rules, node: str = "ab" * 8) -> list[Row]:
    """Rows as under `rules`, which say what a connection demands by itself."""
    made: list[Row] = []
    for number, event in enumerate(events, 1):
        person = event.who
        known: dict[str, Any] = {
            "source": f"client:{person.client}",
            "source_kind": "client",
            "client": person.client,
            "user": person.user,
            "level": person.level,
            "policy_version": "1-0",
        }
        match event.what:
            case "connect":
                said = json.dumps(attributes_of(subject(person), "n"), default=list)
                asks = None if person.demand is None else (("require", person.demand),)
                made.append(traffic_row(event.at, event="connect", attributes=said, properties=asks, **known))
            case "disconnect":
                made.append(traffic_row(event.at, event="disconnect", **known))
            case "end":
                made.append(traffic_row(event.at, event="unsubscribe", **known))
            case "subscribe":
                assert event.subscription is not None
                one = event.subscription
                pairs = [("require", one.demand)] * (one.demand is not None) + [("where", one.where)] * bool(one.where)
                options = one.qos | one.no_local << 2
                made.append(
                    traffic_row(
                        event.at,
                        event="subscribe",
                        filter=one.filter,
                        options=options,
                        properties=pairs or None,
                        **known,
                    )
                )
            case "unsubscribe":
                assert event.subscription is not None
                made.append(traffic_row(event.at, event="unsubscribe", filter=event.subscription.filter, **known))
            case "refused":
                made.append(traffic_row(event.at, topic=event.topic, floor=person.level, **known))
            case _:
                demand = naive.demanded(rules, person.level, event.demand, person.demand)
                context = Context(
                    subject=subject(person),
                    demand=None if demand is None else Demand.of(demand),
                    view=None if event.view is None else json.dumps(event.view),
                )
                made.append(
                    traffic_row(
                        event.at,
                        id=f"{node}-1-{number:x}",
                        topic=event.topic,
                        payload=event.payload if event.recorded else None,
                        qos=event.qos,
                        retain=False,
                        properties=event.properties or None,
                        context=context.encode(),
                        floor=person.level,
                        **known,
                    )
                )
    return made


def write(data: Path, found: Iterable[Row], **options: Any) -> None:
    """Writes them to the journal, and waits until they are there."""
    writer = Writer(data, TRAFFIC, call=lambda function: function(), sync=False, **options)
    writer.open()
    writer.start()
    for row in found:
        assert writer.append(row)
    writer.close()


def decided(before: Config, after: Config, *, tasks: int = 1, least: int = LEAST) -> list[dict[str, Any]]:
    """The sums that tasks make, without Spark."""
    data = before.node.data
    assert data is not None
    whole = span(data, 0.0, 1e11)
    work = Work(
        data=data,
        node="n",
        before=before.built.rules,
        after=after.built.rules,
        since=0.0,
        until=1e11,
        whole=whole,
    )
    made: list[Partition] = partitions(data, whole, tasks, least)
    return [row for part in made for batch in replay(work, part) for row in batch.to_pylist()]


def total(found: Iterable[dict[str, Any]], name: str) -> int:
    return sum(row["count"] for row in found if row["kind"] == "total" and row["name"] == name)
