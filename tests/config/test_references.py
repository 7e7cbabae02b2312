"""Scopes and links where others speak of them."""

from __future__ import annotations

import pytest

from tidegate.config import Config, ConfigErrors, parse
from tidegate.monitor import Direction

HEAD = """\
version: 1
node: {name: n, domain: d}
listeners: [{url: "mqtt://127.0.0.1", anonymous: true, scope: gym}]
scopes: {gym: {parents: [brand]}, brand: {}, lab: {}}
links: [{from: brand, to: lab, direction: out}]
directory:
  users: {mary: {password: "$argon2id$v=19$m=19456,t=2,p=1$c2FsdHNhbHQ$aGFzaGhhc2g"}}
"""
OPEN = "policies: open\n"
RBAC = """\
version: 1
node: {name: n}
listeners: [{url: "mqtt://127.0.0.1", anonymous: true}]
brokering: {preset: rbac, bus: plant, roles: {op: {pub: [a]}}}
policies: open
"""


def read(more: str, head: str = HEAD) -> Config:
    return parse(head + more, "f.yaml", variables={})


def problems(more: str, head: str = HEAD) -> list[str]:
    with pytest.raises(ConfigErrors) as wrong:
        read(more, head)
    return str(wrong.value).splitlines()


def clients(scopes: str) -> str:
    return f"  clients:\n    t1: {{user: mary, scopes: {scopes}}}\n"


def monitor(text: str) -> str:
    return f"{OPEN}monitors:\n  - {{id: m, filter: [x], {text}}}\n"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (
            f"{OPEN}preferences:\n  - {{id: p, user: mary, topic: x, to: brant}}\n",
            "f.yaml:10: `preferences[0].to` names the unknown scope `brant`; did you mean `brand`?",
        ),
        (clients("[gim]") + OPEN, "f.yaml:9: `directory.clients.t1.scopes[0]` names the unknown scope `gim`; did you "),
        (clients("[]") + OPEN, "f.yaml:9: `directory.clients.t1.scopes` must not be empty; add at least one entry"),
        (
            "policies:\n  - {id: p, subject: 'scope:gm', topic: x, action: read}\n",
            "f.yaml:9: `policies[0].subject` names the unknown scope `gm`; did you mean `gym`?",
        ),
        (
            "policies:\n  - {id: p, subject: ['*', 'link:gym->brnd'], topic: x, action: read}\n",
            "f.yaml:9: `policies[0].subject[1]` names the unknown link `gym->brnd`; did you mean `gym->brand`?",
        ),
        (
            "policies:\n  - {id: p, subject: 'link: x->y', topic: x, action: read}\n",
            "f.yaml:9: `policies[0].subject` is wrong: `link: x->y` is no subject; ",
        ),
        (
            "policies:\n  - {id: p, subject: 'link:x->y', topic: x, action: read}\n",
            "f.yaml:9: `policies[0].subject` names the unknown link `x->y`; "
            "add it under `links`, or as one of a scope's `parents`",
        ),
        (
            f"{OPEN}flows:\n  forbid:\n    - client:t1 -> scope:lap\n",
            "f.yaml:11: `flows.forbid[0]` names the unknown scope `lap`; did you mean `lab`?",
        ),
        (
            f"{OPEN}flows:\n  require: ['scope:x -> scope:x']\n",
            "f.yaml:10: `flows.require[0]` names the unknown scope `x`; add it under `scopes`",
        ),
        (
            monitor("scope: lap, direction: im_pub"),
            "f.yaml:10: `monitors[0].scope` names the unknown scope `lap`; did you mean `lab`?",
        ),
        (
            monitor("link: 'gym->brands'"),
            "f.yaml:10: `monitors[0].link` names the unknown scope `brands`; did you mean `brand`? A client is ",
        ),
        (
            monitor("link: lab->brand"),
            "f.yaml:10: `monitors[0].link` names the unknown link `lab->brand`; did you mean `brand->lab`?",
        ),
        (
            monitor("link: 'scope:gym -> scope:lab'"),
            "f.yaml:10: `monitors[0].link` names the unknown link `gym->lab`; did you mean ",
        ),
        *(
            (
                monitor(f"each: client, {place}"),
                "f.yaml:10: `monitors[0].each` is `client`, and between scopes there is none; write `link` or `scope`",
            )
            for place in ("link: gym->brand", "scope: gym, direction: ex_pub", "scope: gym, direction: ex_sub")
        ),
    ],
)
def test_what_there_is_not(more: str, said: str) -> None:
    [told] = problems(more)
    assert told.startswith(said)


def test_what_there_is() -> None:
    config = read(
        clients("[gym, lab]")
        + """\
policies:
  - {id: p1, subject: ["scope:gym", "scope:brand"], topic: "#", action: [read, write]}
  - {id: p2, subject: ["link:gym->brand", "link:brand -> lab"], topic: x, action: write, effect: deny}
preferences:
  - {id: q1, user: mary, topic: "#", to: lab, when: "false"}
  - {id: q2, user: mary, topic: "#", to: "*"}
  - {id: q3, user: mary, topic: "#"}
monitors:
  - {id: m1, link: brand->lab, filter: [x]}
  - {id: m2, scope: gym, direction: ex_pub, filter: [x]}
  - {id: m3, scope: gym, direction: ex_sub, each: scope, filter: [x]}
  - {id: m4, scope: brand, direction: ex_pub, filter: [x]}
  - {id: m5, scope: lab, direction: ex_sub, filter: [x]}
  - {id: m6, scope: brand, direction: im_pub, filter: [x]}
"""
    )
    rules = config.built.rules
    assert [each.to for each in rules.preferences.preferences] == ["lab", "*", None]
    assert config.built.directory.clients["t1"].scopes == ("gym", "lab")
    monitors = rules.monitors
    assert monitors.by_id["m1"].link == ("scope:brand", "scope:lab")
    entering = monitors.over("scope:brand", "scope:lab", kind=Direction.EX_SUB, scope="lab")
    assert [each.id for each in entering] == ["m1", "m5"]
    leaving = monitors.over("scope:brand", "scope:lab", kind=Direction.EX_PUB, scope="brand")
    assert [each.id for each in leaving] == ["m4"]
    assert [text for _, text in config.warnings()] == [
        "`directory.clients.t1.scopes[1]` is `lab`, which has no listener, so it cannot connect there; add one, "
        "or remove it"
    ]


def test_monitors_that_act_on_nothing_are_doubted() -> None:
    nothing = "`monitors[0].direction` acts on nothing, because `{}` has neither parents nor such links; change it"
    for scope, direction in (("lab", "ex_pub"), ("brand", "ex_sub")):
        config = read(monitor(f"scope: {scope}, direction: {direction}"))
        assert [text for _, text in config.warnings()] == [nothing.format(scope)]


def test_flows_of_clients_that_nobody_knows_are_doubted() -> None:
    config = read(clients("[gym]") + OPEN + "flows:\n  forbid: ['client:t -> scope:gym', 'client:t1 -> client:x']\n")
    assert config.warnings() == [
        (12, "`flows.forbid[0]` names the unknown client `t`; did you mean `t1`?"),
        (12, "`flows.forbid[1]` names the unknown client `x`; add it under `directory.clients`"),
    ]


def test_scopes_of_roles_can_be_spoken_of() -> None:
    config = read(
        "monitors: [{id: m, link: 'op.pub->plant', filter: [a]}, {id: c, link: 'client:x->op.pub', filter: [a]},"
        " {id: o, scope: op.sub, direction: ex_sub, filter: [a]}]\n"
        "preferences: [{id: q, user: mary, topic: a, to: op.sub}]\n"
        "flows: {forbid: ['scope:op.sub -> scope:plant']}\n",
        RBAC,
    )
    assert list(config.built.rules.monitors.by_id) == ["m", "c", "o", "rbac.op.pub", "rbac.op.sub"]
    [told] = problems("directory: {clients: {x: {scopes: [op.pub]}}}\n", RBAC)
    assert told.startswith("f.yaml:6: `directory.clients.x.scopes[0]` names the unknown scope `op.pub`")
    [told] = problems("monitors: [{id: m, link: 'op.pub->op.sub', filter: [a]}]\n", RBAC)
    assert told.startswith("f.yaml:6: `monitors[0].link` names the unknown link `op.pub->op.sub`")
