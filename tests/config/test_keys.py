"""The section `keys`: its values, and what cannot hold together with a key."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.config import Config, ConfigErrors, load, parse
from tidegate.config.address import Address, Scheme, parse_tls
from tidegate.explain.file_tests import run_tests

HEAD = """version: 1
node: {name: n}
listeners: [{url: "mqtt://127.0.0.1:1883", anonymous: true}]
"""
PROTECT = 'keys: {protect: ["p/#", "q/x"], end_to_end: ["e/#"]}\n'
OPEN = "policies: open\n"
PEOPLE = """directory:
  users:
    mary: {password: "plain:m", roles: [coach]}
    bob: {password: "plain:b"}
"""


def made(text: str, *, head: str = HEAD) -> Config:
    return parse(head + text, "test.yaml")


def told(text: str) -> list[str]:
    """What is wrong with it."""
    with pytest.raises(ConfigErrors) as caught:
        assert made(text).built
    return [str(problem) for problem in caught.value.problems]


def test_defaults() -> None:
    said = made(OPEN).keys
    assert not said.any
    assert (said.protect, said.end_to_end, said.ktm) == ((), (), None)
    assert (said.rotate, said.overlap, said.uses, said.groups) == (300.0, 3600.0, 1 << 20, 1 << 14)
    assert made(OPEN + PROTECT).keys.any
    assert made(OPEN + "keys: {end_to_end: [x]}").keys.any


def test_values() -> None:
    said = made(OPEN + "keys: {rotate: 1s, overlap: 0s, uses: 7, groups: 1}").keys
    assert (said.rotate, said.overlap, said.uses, said.groups) == (1.0, 0.0, 7, 1)


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ("{protect: ['a/#/b']}", "keys.protect"),
        ("{protect: ['']}", "keys.protect"),
        ("{end_to_end: ['a+']}", "keys.end_to_end"),
        ("{rotate: 10ms}", "keys.rotate"),
        ("{rotate: 400d}", "keys.rotate"),
        ("{overlap: 400d}", "keys.overlap"),
        ("{uses: 0}", "keys.uses"),
        ("{uses: 4294967297}", "keys.uses"),
        ("{groups: 0}", "keys.groups"),
        ("{rotation: 1s}", "rotate"),
        ("{ktm: {url: 'tls://h'}}", "keys.ktm"),
    ],
)
def test_values_that_are_none(said: str, text: str) -> None:
    (problem,) = told(OPEN + f"keys: {said}")[:1]
    assert text in problem
    assert "test.yaml:5" in problem


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("tls://127.0.0.1:8450", Address(scheme=Scheme.TLS, host="127.0.0.1", port=8450)),
        ("tls://keys.example/", Address(scheme=Scheme.TLS, host="keys.example", port=8450)),
        ("tls://[::1]:99", Address(scheme=Scheme.TLS, host="::1", port=99)),
    ],
)
def test_addresses(url: str, found: Address) -> None:
    assert parse_tls(url) == found
    assert parse_tls(str(found)) == found
    assert parse_tls(found) is found


@pytest.mark.parametrize(
    "url", ["127.0.0.1:8450", "https://h:1", "tls://", "tls://h:x", "tls://u@h:1", "tls://h/path", "tls://h?q=1", 7]
)
def test_addresses_that_are_none(url: object) -> None:
    with pytest.raises(ValueError, match=r"tls://|URL|host|path|password"):
        parse_tls(url)


def test_files_of_the_key_service(tmp_path: Path) -> None:
    there = tmp_path / "there.pem"
    there.write_text("x")
    file = tmp_path / "tidegate.yaml"
    ktm = "{url: 'tls://h', cert: there.pem, key: nowhere.key, ca: gone.pem}"
    file.write_text(f"{HEAD}{OPEN}keys: {{protect: [p], ktm: {ktm}}}\n")
    with pytest.raises(ConfigErrors) as caught:
        load(file)
    key, ca = map(str, caught.value.problems)
    assert "keys.ktm.key" in key
    assert "nowhere.key" in key
    assert "gone.pem" in ca


# -- what cannot hold ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("topic", ["p/1", "#", "+/x", "q/x", "p/{s.user}", "{s.user}/x", "q/{s.user}", "e/1"])
@pytest.mark.parametrize(
    "when",
    ["o.payload.level > 2", "o.size < 10", "o.qos == 1", "o.retain", "p.time < e.now", "p.size > 3", "p.e.hour < 3"],
)
def test_policies_on_single_messages(topic: str, when: str) -> None:
    policy = f"policies: [{{id: one, subject: '*', topic: '{topic}', action: read, when: '{when}'}}]\n"
    (problem,) = told(PROTECT + policy)
    assert "policies[0].when" in problem
    assert "differs from message to message" in problem
    assert made(policy).built.rules.policies is not None, "nothing is protected"


def test_policies_that_may_be() -> None:
    config = made(
        PROTECT
        + PEOPLE
        + """classify: [{topic: "p/#", category: sensitive}]
policies:
  - {id: other, subject: "*", topic: "r/#", action: read, when: "o.payload.level > 2"}
  - {id: before, subject: "user:mary", topic: "p/#", action: write, when: "o.payload.level > 2 && o.size < 99"}
  - {id: who, subject: "*", topic: "p/#", action: read, when: "s.role == 'coach' && p.user == 'mary' && e.hour < 12"}
  - {id: what, subject: "*", topic: "p/#", action: read, when: "o.category == 'sensitive' && p.topic == o.topic"}
preferences:
  - {id: u1, user: mary, topic: "p/#", when: "s.role == 'coach'"}
  - {id: u2, user: mary, topic: "r/#", when: "o.payload.level > 2", keep: ["/level"]}
views: [{topic: "r/#", for: "*", keep: ["/level"]}]
monitors:
  - {id: m1, scope: a, direction: im_pub, automaton: {start: s, states: {s: [{on: "p/#", when: "o.payload.x == 1"}]}}}
  - {id: m2, scope: a, direction: im_sub, automaton: {start: s, states: {s: [{on: "r/#", when: "o.payload.x == 1"}]}}}
scopes: {a: {}}
"""
    )
    assert len(config.built.rules.monitors) == 2


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ("{id: u, user: mary, topic: 'p/x', keep: ['/level']}", "keep"),
        ("{id: u, user: mary, topic: '#', when: 'o.payload.level > 2'}", "when"),
        ("{id: u, user: mary, topic: '+/x', when: 'o.size > 2'}", "when"),
        ("{id: u, user: mary, topic: 'e/x', to: '*', when: 'o.payload.level > 2'}", "when"),
    ],
)
def test_preferences(row: str, text: str) -> None:
    (problem,) = told(PROTECT + PEOPLE + OPEN + f"preferences: [{row}]\n")
    assert f"preferences[0].{text}" in problem


@pytest.mark.parametrize("topic", ["p/x", "#", "e/+"])
def test_views(topic: str) -> None:
    (problem,) = told(PROTECT + OPEN + f"views: [{{topic: '{topic}', for: '*', keep: ['/a']}}]\n")
    assert "views[0].topic" in problem


@pytest.mark.parametrize("on", ["p/x", "#", "p/#", "p/other", "+/x", "e/1"])
@pytest.mark.parametrize("place", ["scope: main, direction: im_sub", "link: 'main->client:c'"])
def test_monitors_on_the_way_out(on: str, place: str) -> None:
    machine = f"automaton: {{start: s, states: {{s: [{{on: '{on}', when: 'o.payload.x == 1'}}]}}}}"
    text = PROTECT + OPEN + f"scopes: {{main: {{}}}}\nmonitors: [{{id: m, {place}, {machine}}}]\n"
    (problem,) = told(text)
    assert "monitors[0]" in problem


def test_links_between_scopes_that_ask_for_the_payload() -> None:
    text = """scopes: {main: {}, other: {}}
links: [{from: main, to: other}]
policies: [{id: l, subject: "link:main->other", topic: "#", action: write, when: "o.payload.level > 2"}]
"""
    head = HEAD.replace("anonymous: true", "anonymous: true, scope: main")
    with pytest.raises(ConfigErrors) as caught:
        assert made(PROTECT + text, head=head).built
    (problem,) = map(str, caught.value.problems)
    assert "policies[0].when" in problem


# -- tests in the file -------------------------------------------------------------------------------------------


def test_the_tests_of_a_file_with_keys() -> None:
    config = made(
        PROTECT
        + PEOPLE
        + """policies:
  - {id: w, subject: "user:mary", topic: "#", action: write, when: "o.payload.level > 2"}
  - {id: r, subject: "role:coach", topic: "#", action: read}
tests:
  - {as: "user:mary", action: write, topic: p/x, payload: {level: 3}, expect: allow, by: w}
  - {as: "user:mary", action: write, topic: p/x, payload: {level: 1}, expect: deny}
  - {as: "user:mary", action: read, topic: p/x, from: "user:mary", payload: {level: 3}, expect: allow, by: r}
  - {as: "user:bob", action: read, topic: p/x, from: "user:mary", payload: {level: 3}, expect: deny, by: default}
  - {as: "user:mary", action: subscribe, topic: "p/#", expect: allow, by: r}
"""
    )
    tested = run_tests(config, file="test.yaml")
    assert ([str(each) for each in tested.problems], tested.passed) == ([], 5)
