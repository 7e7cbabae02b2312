"""Rules that are allowed but probably not meant."""

from __future__ import annotations

import pytest

from tidegate.config import parse

HEAD = """\
version: 1
node: {name: n, domain: d}
listeners: [{url: "mqtt://127.0.0.1", anonymous: true}]
directory:
  users: {mary: {password: "$argon2id$v=19$m=19456,t=2,p=1$c2FsdHNhbHQ$aGFzaGhhc2g", roles: [coach], groups: [staff]}}
  roles: {guest: {}}
"""
FINE = 'policies: [{id: p, subject: "*", topic: t, action: read}]\n'


def told(more: str) -> list[tuple[int, str]]:
    return parse(HEAD + more, "f.yaml", variables={}).warnings()


def policies(*entries: str) -> str:
    return "policies:\n" + "".join(f"  - {{{entry}}}\n" for entry in entries)


@pytest.mark.parametrize(
    "more",
    [
        FINE,
        policies("id: a, subject: [user:mary, role:guest, group:staff, client:x, service:y], topic: t, action: write"),
        policies("id: a, subject: 'user:mary@d', topic: t, action: read"),
        policies("id: a, subject: 'user:bob@elsewhere', topic: t, action: read"),
        FINE + "preferences: [{id: u, user: mary, topic: t}]\n",
        FINE + "views: [{id: v, topic: t, for: 'role:coach', keep: all}]\nview_default: all\n",
        FINE + "record: traffic\ntraffic: {payloads: true}\n",
        FINE + "subscribe: hold\nlimits: {held: 5}\n",
    ],
)
def test_nothing(more: str) -> None:
    assert told(more) == []


@pytest.mark.parametrize(
    ("more", "line", "said"),
    [
        (
            "policies: []\n",
            7,
            "`policies` is empty: the default is to deny, so nothing will pass; add one, or write `policies: open`",
        ),
        (
            policies("subject: '*', topic: t, action: read"),
            8,
            "`policies[0]` has no `id`, and is called `policies[0]` until its position changes; add an `id`",
        ),
        (
            policies(*["id: a, subject: '*', topic: t, action: read"], *["subject: '*', topic: u, action: read"] * 3),
            9,
            "`policies[1]` has no `id`, like 2 more of them, and is called `policies[1]` until its position changes; "
            "add an `id`",
        ),
        (
            policies("id: a, subject: 'role:coch', topic: t, action: read"),
            8,
            "`policies[0].subject` names the unknown role `coch`; did you mean `coach`?",
        ),
        (
            policies("id: a, subject: ['*', 'user:bob'], topic: t, action: read"),
            8,
            "`policies[0].subject[1]` names the unknown user `bob`; add it under `directory.users`, or remove it",
        ),
        (
            policies("id: a, subject: 'user:marie@d', topic: t, action: read"),
            8,
            "`policies[0].subject` names the unknown user `marie`; did you mean `mary`?",
        ),
        (
            FINE + "views: [{id: v, topic: t, for: 'group:stuff', keep: all}]\n",
            8,
            "`views[0].for` names the unknown group `stuff`; did you mean `staff`?",
        ),
        (
            FINE + "preferences:\n  - id: u\n    user: bob\n    topic: t\n",
            10,
            "`preferences[0].user` names the unknown user `bob`; add it under `directory.users`",
        ),
        (
            policies("id: a, subject: 'scope:main', topic: t, action: read"),
            8,
            "`policies[0].subject` speaks of `scope:main`, which has no links; nobody is meant",
        ),
        (
            FINE + "views: [{id: v, topic: t, for: 'scope:main', keep: all}]\n",
            8,
            "`views[0].for` speaks of `scope:main`, and is about clients only; nobody is meant",
        ),
        (
            policies("id: a, subject: '*', topic: t, action: read, when: 1 > 2"),
            8,
            "`policies[0]` never decides: its condition is always false; change it, or remove it",
        ),
        (
            policies(
                "id: a, subject: '*', topic: 'x/#', action: [read, write], effect: deny",
                "id: b, subject: 'role:coach', topic: x/y, action: read",
            ),
            9,
            "`policies[1]` never decides: always decided by a; change it, or remove it",
        ),
        (
            "policies: open\ncombining: first-applicable\n",
            8,
            "`combining` has no effect with `policies: open`; list policies, or remove it",
        ),
        (
            "policies: open\nsubscribe: hold\n",
            8,
            "`subscribe` has no effect with `policies: open`; list policies, or remove it",
        ),
        (
            FINE + "limits: {held: 5}\n",
            8,
            "`limits.held` has no effect without `subscribe: hold`; add that, or remove it",
        ),
        (FINE + "view_default: all\n", 8, "`view_default` has no effect without `views`; add some, or remove it"),
        (FINE + "traffic: {}\n", 8, "`traffic` has no effect without `record: traffic`; add that, or remove it"),
        (
            FINE + "trust: {accept: ['CN=x']}\n",
            8,
            "`trust` has no effect: no listener uses TLS; add one with mqtts:// or wss://",
        ),
    ],
)
def test_one_warning(more: str, line: int, said: str) -> None:
    assert told(more) == [(line, said)]


def test_an_empty_trust_list() -> None:
    text = HEAD.replace('{url: "mqtt://127.0.0.1"', '{url: "mqtts://127.0.0.1", cert: c.pem')
    [(line, said)] = parse(text + FINE + "trust:\n  accept: []\n", "f.yaml").warnings()
    assert (line, said) == (9, "`trust.accept` is empty, so no client is trusted; list those that are")


def test_where_others_may_come_names_are_not_doubted() -> None:
    more = policies("id: a, subject: ['role:x', 'user:y'], topic: t, action: read")
    more += "preferences: [{id: u, user: z, topic: t}]\nviews: [{id: v, topic: t, for: 'group:g', keep: all}]\n"
    assert len(told(more)) == 4
    assert told(more + "authentication: {methods: {X: 'a.b:c'}}\n") == []


def test_a_policy_of_the_administrator_behind_that_of_the_node() -> None:
    more = "combining: permit-overrides\n"
    more += policies("id: a, subject: 'service:sys', topic: '$SYS/x', action: write, effect: deny")
    assert told(more) == [(9, "`policies[0]` never decides: always decided by builtin:sys; change it, or remove it")]
