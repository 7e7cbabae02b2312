"""Trying the rules of a configuration with several scopes: where somebody is, what crosses links, and who they are."""

from __future__ import annotations

from typing import Any

import pytest

from tidegate.config import Config, Operation, parse
from tidegate.errors import ConfigError
from tidegate.explain.explanation import Explanation
from tidegate.explain.file_tests import command, question_of, run_tests
from tidegate.explain.question import Question
from tidegate.explain.what_if import WhatIf

HOUSE = """\
version: 1
node: {name: house}
scopes:
  I: {}
  H1: {parents: [I]}
  H2: {parents: [I]}
listeners:
  - {url: "mqtt://127.0.0.1:1883", scope: I, anonymous: true}
  - {url: "mqtt://127.0.0.1:1884", scope: H1, anonymous: true, environment: {floor: 1}}
  - {url: "mqtt://127.0.0.1:1885", scope: H2, anonymous: true}
directory:
  users: {mary: {password: "plain:x"}}
  clients:
    lock: {scopes: [H1], user: mary}
    motion: {scopes: [H2, H1]}
    phone: {}
brokering:
  preset: component
  interface: {scope: H1, parent: I, export: ["lock/#"], import: ["unlock", "lock/#"]}
policies:
  - {id: all, subject: "*", topic: "#", action: [read, write]}
  - {id: private, subject: "link:H2->I", topic: "motion/#", action: write, effect: deny}
  - {id: quiet, subject: "scope:H1", topic: "lock/battery", action: write, effect: deny, when: "p.user == 'mary'"}
preferences:
  - {id: mine, user: mary, topic: lock/open, to: I, when: "false"}
"""

ROLES = """\
version: 1
node: {name: plant}
listeners: [{url: "mqtt://127.0.0.1:1883"}]
directory:
  users:
    olga: {password: "plain:x", roles: [operator]}
    mia: {password: "plain:x", roles: [viewer]}
    none: {password: "plain:x"}
brokering:
  preset: rbac
  bus: bus
  roles:
    operator: {pub: ["command/#"], sub: ["state/#"]}
    viewer: {pub: ["state/#"], sub: ["command/#"]}
policies: open
"""

GYM = """\
version: 1
node: {name: gym}
scopes: {gym: {}, brand: {}, apart: {}}
listeners:
  - {url: "mqtt://127.0.0.1:1883", scope: gym, anonymous: true}
  - {url: "mqtt://127.0.0.1:1884", scope: brand, anonymous: true}
  - {url: "mqtt://127.0.0.1:1885", scope: apart, anonymous: true}
links:
  - {from: gym, to: brand, share: [{topic: "+/speed", remote_prefix: "MyGym/"}]}
policies:
  - {id: all, subject: "*", topic: "#", action: [read, write]}
"""


@pytest.fixture(scope="module")
def house() -> Config:
    return parse(HOUSE, "house.yaml")


@pytest.fixture(scope="module")
def plant() -> Config:
    return parse(ROLES, "plant.yaml")


def ask(config: Config, subject: str, action: str = "write", topic: str = "a/b", **more: Any) -> Explanation:
    return WhatIf(config).explain(Question(subject=subject, action=Operation(action), topic=topic, **more))


def reads(config: Config, reader: str, publisher: str, topic: str, **overrides: str) -> str:
    set = {name.replace("_", "."): value for name, value in overrides.items()}
    return ask(config, reader, "read", topic, publisher=publisher, overrides=set).headline


# -- where -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("subject", "overrides", "scope", "listener"),
    [
        ("client:phone", {}, "I", 1883),
        ("client:lock", {}, "H1", 1884),
        ("user:mary/client:lock", {}, "H1", 1884),
        ("client:motion", {}, "H2", 1885),
        ("client:motion", {"s.scope": "H1"}, "H1", 1884),
        ("client:motion", {"s.listener": "mqtt://127.0.0.1:1884"}, "H1", 1884),
        ("client:phone", {"s.scope": "H2"}, "H2", 1885),
        ("client:phone", {"s.listener": "mqtt://127.0.0.1:1884"}, "H1", 1884),
        ("user:mary", {}, "I", 1883),
        ("service:pipeline", {"s.scope": "H2"}, "H2", 0),
    ],
)
def test_where_somebody_is(house: Config, subject: str, overrides: dict[str, str], scope: str, listener: int) -> None:
    found = ask(house, subject, overrides=overrides)
    assert (found.subject.scope, found.entered) == (scope, scope)
    assert found.subject.listener == (f"mqtt://127.0.0.1:{listener}" if listener else "")
    assert found.allowed


def test_a_client_may_not_connect_elsewhere(house: Config) -> None:
    found = ask(house, "client:lock", overrides={"s.scope": "H2"})
    assert found.headline == "DENY by connect (connect)"
    assert found.lines[0].notes == ("client:lock is not let in: you may not connect to the scope H2",)
    assert reads(house, "client:phone", "client:lock", "x", p_scope="I") == "DENY by connect (connect)"
    assert reads(house, "client:lock", "client:phone", "x", s_scope="I") == "DENY by connect (connect)"


@pytest.mark.parametrize("path", ["s.scope", "p.scope"])
def test_an_unknown_scope(house: Config, path: str) -> None:
    with pytest.raises(ConfigError) as wrong:
        ask(house, "client:phone", "read", publisher="client:phone", overrides={path: "H11"})
    assert str(wrong.value) == f"`{path}` names the unknown scope `H11`; did you mean `H1`?"


# -- over links ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reader", "publisher", "topic", "headline"),
    [
        ("client:phone", "client:lock", "lock/state", "ALLOW by all (read, policies)"),
        ("client:phone", "client:lock", "other", "DENY by interface[0].export (link H1->I, monitor in)"),
        ("client:phone", "client:lock", "lock/battery", "DENY by quiet (link H1->I, write, policies)"),
        ("client:phone", "client:lock", "lock/open", "DENY by mine (link H1->I, read, preferences)"),
        ("client:lock", "client:lock", "lock/open", "ALLOW by all (read, policies)"),
        ("client:phone", "client:motion", "motion/1", "DENY by private (link H2->I, write, policies)"),
        ("client:lock", "client:motion", "unlock", "ALLOW by all (read, policies)"),
        ("client:lock", "client:motion", "other", "DENY by interface[0].import (link I->H1, monitor in)"),
        ("client:motion", "client:phone", "motion/1", "ALLOW by all (read, policies)"),
    ],
)
def test_links_are_asked(house: Config, reader: str, publisher: str, topic: str, headline: str) -> None:
    assert reads(house, reader, publisher, topic) == headline


def test_topics_are_renamed() -> None:
    gym = parse(GYM, "gym.yaml")
    found = ask(
        gym, "client:x", "read", "t1/speed", publisher="client:t1", overrides={"s.scope": "brand", "p.scope": "gym"}
    )
    assert found.allowed
    assert found.shown is not None
    assert found.shown.topic == "MyGym/t1/speed"
    assert reads(gym, "client:x", "client:t1", "t1/heart", s_scope="brand") == "DENY by not shared (link gym->brand)"
    assert reads(gym, "client:x", "client:t1", "t1/speed", s_scope="apart") == "DENY by no link (link)"


def test_it_matters_where_a_message_was_published() -> None:
    gym = parse(GYM, "gym.yaml")
    with pytest.raises(ConfigError) as wrong:
        ask(gym, "client:x", "read", "t1/speed")
    assert "there are several scopes, and it was published in one of them; say who with `from`" in str(wrong.value)
    assert ask(gym, "client:x", "read", "t1/speed", overrides={"p.scope": "gym", "s.scope": "brand"}).allowed


def test_what_is_assumed_of_the_surroundings_is_also_the_nodes() -> None:
    policy = (
        '  - {id: away, subject: "link:gym->brand", topic: "#", action: write, effect: deny, when: "e.mode == 1"}\n'
    )
    mode = "environment: {mode: 0}\n"
    gym = parse(GYM + policy + mode, "gym.yaml")
    where = {"s.scope": "brand"}
    assert ask(gym, "client:x", "read", "t/speed", publisher="client:y", overrides=where).allowed
    found = ask(gym, "client:x", "read", "t/speed", publisher="client:y", overrides={**where, "e.mode": 1})
    assert found.headline == "DENY by away (link gym->brand, write, policies)"


# -- roles -----------------------------------------------------------------------------------------------------------


def test_members_publish_into_one_scope_and_receive_from_another(plant: Config) -> None:
    found = ask(plant, "user:olga", topic="command/1")
    assert (found.entered, found.subject.scope) == ("operator.pub", "operator.sub")
    found = ask(plant, "user:mia", "read", "command/1", publisher="user:olga")
    assert [line.link for line in found.lines if line.link] == ["operator.pub->bus", "bus->viewer.sub"]
    assert found.headline == "ALLOW"


@pytest.mark.parametrize(
    ("reader", "publisher", "topic", "headline"),
    [
        ("user:olga", "user:mia", "state/1", "ALLOW"),
        ("user:mia", "user:olga", "state/1", "DENY by rbac.operator.pub (link operator.pub->bus, monitor in)"),
        ("user:olga", "user:olga", "command/1", "DENY by rbac.operator.sub (link bus->operator.sub, monitor in)"),
        ("user:none", "user:olga", "command/1", "DENY by connect (connect)"),
        ("user:mia", "user:none", "command/1", "DENY by connect (connect)"),
    ],
)
def test_roles(plant: Config, reader: str, publisher: str, topic: str, headline: str) -> None:
    assert reads(plant, reader, publisher, topic) == headline


def test_a_role_may_be_assumed(plant: Config) -> None:
    assert not ask(plant, "user:none", topic="command/1").allowed
    assert ask(plant, "user:none", topic="command/1", overrides={"s.role": "operator"}).entered == "operator.pub"
    several = ask(plant, "user:olga", topic="command/1", overrides={"s.roles": ["operator", "viewer"]})
    assert several.headline == "DENY by connect (connect)"
    assert "you have several roles" in several.lines[0].notes[0]


# -- links and scopes themselves -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("subject", "action", "topic", "publisher", "headline"),
    [
        ("link:H2->I", "write", "motion/1", None, "DENY by private (write, policies)"),
        ("link:H2 -> I", "write", "motion/1", None, "DENY by private (write, policies)"),
        ("link:H2->I", "write", "other", None, "ALLOW by all (write, policies)"),
        ("link:H2->I", "read", "motion/1", "client:phone", "ALLOW by all (read, policies)"),
        ("scope:H2", "write", "motion/1", None, "ALLOW by all (write, policies)"),
        ("link:H1->I", "read", "lock/open", "client:lock", "DENY by mine (read, preferences)"),
        ("scope:I", "read", "lock/open", "client:lock", "DENY by mine (read, preferences)"),
        ("scope:I", "read", "lock/open", "client:phone", "ALLOW by all (read, policies)"),
    ],
)
def test_links_act(house: Config, subject: str, action: str, topic: str, publisher: str | None, headline: str) -> None:
    assert ask(house, subject, action, topic, publisher=publisher).headline == headline


def test_at_which_end_a_link_acts(house: Config) -> None:
    assert ask(house, "link:H2->I", "write").subject.scope == "H2"
    found = ask(house, "link:H2->I", "read", publisher="client:phone")
    assert (found.subject.scope, found.subject.kind, found.subject.client) == ("I", "link", "H2->I")
    assert found.publisher is not None
    assert found.publisher.client == "phone"


@pytest.mark.parametrize(
    ("subject", "action", "more", "error"),
    [
        ("link:H2->J", "write", {}, "`link:H2->J` names the unknown link `H2->J`; did you mean `H2->I`?"),
        ("scope:H4", "write", {}, "`scope:H4` names the unknown scope `H4`; "),
        ("link:H2", "write", {}, "`link:H2` is no subject: write `link:A->B`"),
        ("link:H2->I", "subscribe", {}, "`link:H2->I` does not subscribe; ask whether it may `read` or `write`"),
        ("scope:I", "read", {"terms": (("where", "true"),)}, "`scope:I` has no subscription; leave `where`"),
        (
            "scope:I",
            "write",
            {"overrides": {"s.level": "tls"}},
            "nothing can be overridden for `scope:I`; leave `s.level` out",
        ),
        (
            "scope:H1",
            "write",
            {"topic": "lock/battery"},
            "it matters who published the message: policies read `p`; ask",
        ),
        ("scope:I", "read", {"topic": "lock/open"}, "it matters who published the message: there are preferences"),
        ("client:phone", "read", {"publisher": "scope:I"}, "`scope:I` forwards messages and publishes none; say"),
    ],
)
def test_what_cannot_be_asked(house: Config, subject: str, action: str, more: dict[str, Any], error: str) -> None:
    with pytest.raises(ConfigError) as wrong:
        ask(house, subject, action, **more)
    assert str(wrong.value).startswith(error)


# -- tests of a configuration ----------------------------------------------------------------------------------------


def test_tests_go_over_links() -> None:
    rows = """\
tests:
  - {as: "client:phone", action: read, topic: lock/state, from: "client:lock", expect: allow, by: all}
  - {as: "client:phone", action: read, topic: motion/1, from: "client:motion", expect: deny, by: private}
  - {as: "client:phone", action: read, topic: other, from: "client:lock", expect: deny, by: "interface[0].export"}
  - {as: "client:phone", action: read, topic: lock/open, from: "client:lock", expect: deny, by: mine}
  - {as: "link:H2->I", action: write, topic: motion/1, expect: deny, by: private}
  - {as: "client:phone", action: write, topic: x, set: {s.scope: H2}, expect: allow}
  - {as: "client:lock", action: write, topic: x, set: {s.scope: H2}, expect: deny, by: connect}
"""
    tested = run_tests(parse(HOUSE + rows, "house.yaml"))
    assert (tested.problems, tested.passed) == ((), 7)
    wrong = 'tests:\n  - {as: "link:H2->I", action: write, topic: motion/1, expect: allow, by: mone}\n'
    config = parse(HOUSE + wrong, "house.yaml")
    [problem] = run_tests(config, file="house.yaml").problems
    assert "expected ALLOW by mone (no rule is called so; did you mean `mine`?), got DENY by private" in str(problem)
    assert "--as 'link:H2->I'" in command(question_of(config.tests[0], config), "house.yaml")


def test_links_to_other_nodes_are_asked_of_running_nodes() -> None:
    far = 'links: [{from: I, to: far, via: ["mqtts://127.0.0.1:1890"], peer: CN=far}]\n'
    house = HOUSE.replace("name: house", "name: house, cert: n.pem, ca: ca.pem")
    typed = 'component\n  assign: [{link: "I->far", type: up}, {link: "far->I", type: down}]\n'
    config = parse(house.replace("component\n", typed) + far, "f.yaml", variables={})
    for link in ("I->far", "far->I"):
        with pytest.raises(
            ConfigError, match=f"`link:{link}` leads to another node; ask a running node, with `through`"
        ):
            ask(config, f"link:{link}", "write", "x", publisher="user:mary")
