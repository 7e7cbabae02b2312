"""Names that nobody has: attributes, users, roles, groups, and topics of preferences that no policy is about."""

from __future__ import annotations

import pytest

from tidegate.config import parse

HASH = "$argon2id$v=19$m=19456,t=2,p=1$c2FsdHNhbHQ$aGFzaGhhc2g"
HEAD = f"""\
version: 1
node: {{name: n, domain: d}}
listeners: [{{url: "mqtt://127.0.0.1", anonymous: true, environment: {{gate: north}}}}]
environment: {{location: milan}}
directory:
  users: {{mary: {{password: "{HASH}", roles: [coach], groups: [staff], attributes: {{shift: day}}}}}}
  clients: {{watch: {{user: mary, attributes: {{model: x}}}}}}
  roles: {{guest: {{attributes: {{visits: 3}}}}}}
  groups: {{others: {{attributes: {{badge: red}}}}}}
"""


def told(more: str, head: str = HEAD) -> list[str]:
    return [text for _, text in parse(head + more, "f.yaml", variables={}).warnings()]


def policy(when: str = "true", topic: str = "a/#") -> str:
    return f'policies: [{{id: p, subject: "*", topic: "{topic}", action: [read, write], when: "{when}"}}]\n'


@pytest.mark.parametrize(
    "when",
    [
        "s.user == 'mary' && s.role == 'coach' && 'guest' in s.roles && 'staff' in s.groups",
        "s.shift == 'day' || s.model == 'x' || s.visits > 3 || s.badge == 'red'",
        "has(p.shift) && p.user in ['mary'] && p.e.hour > 3 && p.floor == 'tls' && p.topic == 'x'",
        "e.location == 'milan' && e.gate == 'north' && e.hour > 3 && within(e.now, '08:00-09:00')",
        "o.topic == 'x' && o.levels[0] == 'x' && o.payload.anything > 3 && o.scores.accuracy > 0.5",
        "s.user == 'alice@elsewhere' || s.client == 'whoever' || s.tls.version == 'TLSv1.3'",
    ],
)
def test_what_somebody_has(when: str) -> None:
    assert told(policy(when)) == []


@pytest.mark.parametrize(
    ("when", "text"),
    [
        ("s.usr == 'mary'", "reads `s.usr`, which nobody has; did you mean `s.user`?"),
        ("has(s.shfit)", "reads `s.shfit`, which nobody has; did you mean `s.shift`?"),
        ("s.wingspan > 3", "reads `s.wingspan`, which nobody has; give it to somebody under `directory`, or remove it"),
        ("p.usr == 'mary'", "reads `p.usr`, which nobody has; did you mean `p.user`?"),
        ("e.locaton == 'milan'", "reads `e.locaton`, which nobody has; did you mean `e.location`?"),
        ("o.paylod.x > 3", "reads `o.paylod`, which nobody has; did you mean `o.payload`?"),
        ("s.user == 'marry'", "names the unknown user `marry`; did you mean `mary`?"),
        ("'coch' in s.roles", "names the unknown role `coch`; did you mean `coach`?"),
        ("s.role in ['coach', 'zzz']", "names the unknown role `zzz`; add it under `directory`, or remove it"),
        ("p.role != 'gest'", "names the unknown role `gest`; did you mean `guest`?"),
        ("'stuff' in s.groups", "names the unknown group `stuff`; did you mean `staff`?"),
    ],
)
def test_what_nobody_has(when: str, text: str) -> None:
    assert told(policy(when)) == [f"`policies[0].when` {text}"]
    preference = f'preferences: [{{id: u, user: mary, topic: a/b, when: "{when}"}}]\n'
    assert told(policy() + preference) == [f"`preferences[0].when` {text}"]
    here = "scope: main, direction: im_pub"
    for way, place in (
        (f'payload: "{when}"', "payload"),
        (f'only: {{on: x, when: "{when}"}}, after: [y]', "only.when"),
        (f'only: x, after: [y, {{on: z, when: "{when}"}}]', "after[1].when"),
        (
            f'automaton: {{start: a, states: {{a: [{{on: x, when: "{when}", emit: []}}]}}}}',
            "automaton.states.a[0].when",
        ),
    ):
        assert told(policy() + f"monitors: [{{id: m, {here}, {way}}}]\n") == [f"`monitors[0].{place}` {text}"]


def test_placeholders() -> None:
    assert told(policy(topic="a/{s.user}/{s.shift}")) == []
    assert told(policy(topic="a/{s.usr}")) == [
        "`policies[0].topic` reads `s.usr`, which nobody has; did you mean `s.user`?"
    ]


def test_topics_of_preferences() -> None:
    def preferring(topic: str, policies: str = policy(topic="gym/{s.user}/+")) -> list[str]:
        return told(f'{policies}preferences: [{{id: u, user: mary, topic: "{topic}"}}]\n')

    for covered in ("gym/mary/speed", "gym/#", "gym/+/speed", "+/+/+", "#"):
        assert preferring(covered) == []
    assert preferring("gim/mary/+") == [
        "`preferences[0].topic` is `gim/mary/+`, and no policy allows anything there; "
        "add a policy for it, or remove the preference"
    ]
    assert preferring("gum/+/+")[0].endswith("; did you mean `gym/+/+`?")
    denying = policy().replace("when:", "effect: deny, when:")
    assert any("no policy allows anything there" in text for text in preferring("a/b", denying))
    assert preferring("whatever", "policies: open\n") == []


@pytest.mark.parametrize(
    "more",
    [
        "authentication: {methods: {X: 'json:loads'}}\n",
        "capabilities: {issuers: [{name: org, jwks: 'https://issuer.example/jwks.json'}]}\n",
    ],
)
def test_who_comes_from_elsewhere_may_have_anything(more: str) -> None:
    assert told(more + policy("s.anything == 'x' && s.user == 'somebody' && 'x' in s.roles")) == []
    assert told(more + policy("e.locaton == 'x'")) != []


def test_what_registers_over_http_has_more() -> None:
    head = HEAD.replace("node: {name: n, domain: d}", "node: {name: n, domain: d, data: x}")
    http = 'http: {url: "http://127.0.0.1:8080"}\n'
    assert told(http + policy("s.source && s.type == 'wind' && s.mode == 'x' && s.application == 'y'"), head) == []
    assert told(http + policy("s.wingspan > 3"), head) != []


def test_documents_are_told_of_their_own() -> None:
    config = parse(HEAD + policy("s.usr == 'x'"), "f.yaml", variables={})
    assert config.warnings_of({"policy/p"}) == []
