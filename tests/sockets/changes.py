"""Changes of the rules that withdraw what alice may read of the topic `t`, each a configuration before and after."""

from __future__ import annotations

from typing import Any

from sockets.acts import ALL, PEOPLE, Section, policy, setting, user

WRITERS = policy("w", "#", "write")
NO_ALICE = policy("no-alice", "t", "read", subject="user:alice", effect="deny")


def _reading(**more: Any) -> list[Section]:
    return [WRITERS, policy("r", "t", "read", **more)]


def _level(address: str) -> Section:
    levels = {"order": ["plain", "good"], "define": {"good": f"s.address == '{address}'"}}
    return {"levels": levels, "policies": _reading(when="s.level == 'good'")}


def _people(alice: Section, bob: Section) -> Section:
    return {"users": {**PEOPLE, "alice": alice, "bob": bob}}


CHANGES: dict[str, tuple[Section, Section]] = {
    "policy removed": ({}, {"policies": [WRITERS, policy("other", "other")]}),
    "policy denies": ({}, {"policies": [ALL, NO_ALICE]}),
    "policy in error": ({}, {"policies": [ALL, policy("bad", "t", "read", when="s.nothing == 1")]}),
    "combining": (
        {"policies": [ALL, NO_ALICE], "combining": "permit-overrides"},
        {"policies": [ALL, NO_ALICE], "combining": "deny-overrides"},
    ),
    "preference": ({}, {"preferences": [{"id": "up", "user": "mary", "topic": "t", "when": "s.user == 'bob'"}]}),
    "preference on content": (
        {"preferences": [{"id": "up", "user": "mary", "topic": "t", "when": "o.payload.a == 1"}]},
        {"preferences": [{"id": "up", "user": "mary", "topic": "t", "when": "o.payload.a == 2"}]},
    ),
    "view": ({}, {"views": [{"id": "v", "topic": "t", "for": "user:bob", "keep": "all"}]}),
    "role": (
        {"policies": _reading(subject="role:reader")},
        {"policies": _reading(subject="role:reader"), "directory": _people(user("guest"), user("reader"))},
    ),
    "group": (
        {"policies": _reading(subject="group:ward")},
        {"policies": _reading(subject="group:ward"), "directory": _people(user(), user(groups=["ward"]))},
    ),
    "attribute": (
        {"policies": _reading(when="s.ward == 1")},
        {"policies": _reading(when="s.ward == 1"), "directory": _people(user(ward=2), user(ward=1))},
    ),
    "attribute of a role": (
        {"policies": _reading(when="s.cleared")},
        {
            "policies": _reading(when="s.cleared"),
            "directory": {
                **_people(user("reader"), user("other")),
                "roles": {"reader": {"attributes": {"cleared": False}}},
            },
        },
    ),
    "level": (_level("127.0.0.1"), _level("127.0.0.2")),
    "category": (
        {"policies": _reading(when="o.category == 'open'"), "classify": [{"topic": "t", "category": "open"}]},
        {"policies": _reading(when="o.category == 'open'"), "classify": [{"topic": "t", "category": "closed"}]},
    ),
    "environment": (
        {"policies": _reading(when="e.ward == 1"), "environment": {"ward": 1}},
        {"policies": _reading(when="e.ward == 1"), "environment": {"ward": 2}},
    ),
    "function": (
        {"policies": _reading(when="even(o.payload.a - 1)")},
        {"policies": _reading(when="even(o.payload.a)")},
    ),
}
"""What is said by default: `all`, everybody may read and write everything."""

SPARES_BOB = ("policy denies", "combining", "preference", "view", "role", "group", "attribute")
"""Changes after which bob may still read it."""

READER = user("reader", groups=["ward"], ward=1)


def changed(name: str, **more: Any) -> tuple[str, str]:
    """The configurations before and after; the topic `mark` is open to everybody in both."""
    roles = {"reader": {"attributes": {"cleared": True}}}
    common: Section = {"functions": ["sockets.wild:even"], "directory": {**_people(READER, READER), "roles": roles}}
    made = []
    for sections in CHANGES[name]:
        policies = [policy("mark", "mark"), *sections.get("policies", [ALL])]
        made.append(setting(**{**common, **sections, **more, "policies": policies}))
    return made[0], made[1]
