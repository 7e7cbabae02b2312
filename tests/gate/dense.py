"""Worlds in which much happens: long histories from a seed, in which most messages pass some rules.

Hypothesis draws short histories, which shrink well but seldom bring a queue, a view and a change of policy together.
These have some sixty operations each, and rules that let about half of the messages through.
"""

from __future__ import annotations

from random import Random
from typing import Any

from gate import worlds
from gate.oracle import Connection, Message, Subscription
from gate.worlds import Configuration

CLIENTS = (("c1", "mary"), ("c2", "alice"), ("c3", "bob"), ("c4", None))
MILD = tuple(text for text in (*worlds.ABOUT_MESSAGE, *worlds.ABOUT_CLOCK) if text != "false")
PERSONAL = (*worlds.ABOUT_SUBJECT, *worlds.ABOUT_PUBLISHER)


def world(seed: int) -> worlds.World:
    rng = Random(seed)
    first = configuration(rng)
    operations: list[worlds.Operation] = []
    for client, user in CLIENTS:
        operations.append(connect(rng, client, user))
        operations += (subscribe(rng, client) for _ in range(rng.randrange(1, 4)))
    current = first
    for _ in range(50):
        client, user = rng.choice(CLIENTS)
        luck = rng.random()
        if luck < 0.60:
            operations.append(worlds.Publish(client=client, message=message(rng)))
        elif luck < 0.70:
            operations.append(worlds.Drop(client=client))
        elif luck < 0.82:
            operations.append(connect(rng, client, user if rng.random() < 0.9 else "carol"))
        elif luck < 0.88:
            operations.append(subscribe(rng, client))
        elif luck < 0.90:
            operations.append(worlds.Unsubscribe(client=client, filter=rng.choice(worlds.FILTERS)))
        elif luck < 0.95:
            operations.append(worlds.Advance(seconds=rng.choice((1, 60, 1800, 3600, 6 * 3600))))
        else:
            other = configuration(rng)
            sections = rng.sample(sorted(worlds.SECTIONS), rng.randrange(1, 3))
            current = whole({**current, **{name: other[name] for name in sections}})
            operations.append(worlds.Reconfigure(configuration=current))
    return worlds.World(configuration=first, operations=tuple(operations))


def whole(drawn: Configuration) -> Configuration:
    users = drawn["directory"]["users"]
    return {**drawn, "preferences": [row for row in drawn["preferences"] if row["user"] in users]}


def configuration(rng: Random) -> Configuration:
    policies: list[dict[str, Any]] = [{"subject": "*", "topic": "#", "action": ["read", "write"]}]
    for _ in range(rng.randrange(4)):
        row: dict[str, Any] = {
            "subject": rng.choice(worlds.SELECTORS),
            "topic": rng.choice(worlds.TEMPLATES),
            "action": rng.choice(("read", "read", "write", ["read", "write"])),
            "effect": rng.choice(("allow", "deny")),
        }
        if rng.random() < 0.7:
            row["when"] = rng.choice(MILD if "write" in row["action"] else (*MILD, *PERSONAL))
        policies.insert(rng.randrange(len(policies) + 1), row)
    preferences = []
    for _ in range(rng.randrange(4)):
        preference: dict[str, Any] = {"user": rng.choice(worlds.USERS), "topic": rng.choice(worlds.FILTERS)}
        if rng.random() < 0.7:
            preference["when"] = rng.choice((*MILD, *PERSONAL))
        if rng.random() < 0.4:
            preference["keep"] = rng.choice(worlds.SEVERAL)
        preferences.append(preference)
    views = [
        {"topic": rng.choice(worlds.FILTERS), "for": rng.choice(("*", *worlds.SELECTORS)), "keep": keep}
        for keep in rng.sample(worlds.KEEPS, rng.choice((0, 0, 1, 2)))
    ]
    users = {
        name: {
            "password": f"plain:{name}",
            "roles": rng.choice(worlds.ROLES),
            "groups": rng.choice(worlds.GROUPS),
            "attributes": dict(rng.choice(worlds.ATTRIBUTES)),
        }
        for name in worlds.USERS
        if rng.random() < 0.95
    }
    return whole(
        {
            "version": 1,
            "node": {"name": "here", "domain": "world", "timezone": rng.choice(("UTC", "Europe/Rome"))},
            "scopes": {"main": {}},
            "listeners": [{"url": "mqtt://127.0.0.1:1883", "scope": "main", "anonymous": True}],
            "directory": {"users": users},
            "policies": [{"id": f"p{at}", **row} for at, row in enumerate(policies)],
            "combining": rng.choice(("deny-overrides", "permit-overrides", "first-applicable")),
            "preferences": [{"id": f"u{at}", **row} for at, row in enumerate(preferences)],
            "views": [{"id": f"v{at}", **row} for at, row in enumerate(views)],
            "brokering": rng.choice(worlds.BROKERING),
            "levels": {
                "implied": rng.random() < 0.2,
                "facts": {name: "true" for name in ("lab", "inside") if rng.random() < 0.8},
            },
            "classify": [{"topic": "a/#", "category": "sensitive"}] if rng.random() < 0.7 else [],
            "environment": {"location": "milan"} if rng.random() < 0.8 else {},
        }
    )


def connect(rng: Random, client: str, user: str | None) -> worlds.Connect:
    connection = Connection(
        client=client,
        user=user,
        level=rng.choice(worlds.LEVELS),
        facts=rng.choice(worlds.FACTS),
        properties=rng.choice(worlds.DEMANDS) if rng.random() < 0.3 else (),
    )
    return worlds.Connect(
        connection=connection,
        clean=rng.random() < 0.1,
        persistent=rng.random() < 0.9,
        will=message(rng) if rng.random() < 0.2 else None,
    )


def subscribe(rng: Random, client: str) -> worlds.Subscribe:
    properties: tuple[tuple[str, str], ...] = rng.choice(worlds.DEMANDS) if rng.random() < 0.2 else ()
    if rng.random() < 0.25:
        properties += (("where", rng.choice(MILD)),)
    prefix = "$share/g/" if rng.random() < 0.15 else ""
    filter = prefix + rng.choice(("#", "#", *worlds.FILTERS))
    subscription = Subscription(filter=filter, qos=rng.choice((0, 1, 1)), properties=properties)
    return worlds.Subscribe(client=client, subscription=subscription)


def message(rng: Random) -> Message:
    properties = rng.choice(worlds.CONTENT)
    if rng.random() < 0.2:
        properties += rng.choice(worlds.DEMANDS)
    if rng.random() < 0.15:
        properties += (("view", rng.choice(worlds.VIEWS)),)
    return Message(
        topic=rng.choice(worlds.TOPICS),
        payload=rng.choice((*worlds.PAYLOADS, *worlds.PAYLOADS[:4] * 3)),
        qos=rng.choice((0, 1, 1)),
        retain=rng.random() < 0.3,
        properties=properties,
    )
