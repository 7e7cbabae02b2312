"""Questions about a configuration: who is meant, what is overrides, what cannot be asked."""

from __future__ import annotations

import time
from dataclasses import fields
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from tidegate.authentication.authentication import Authentication
from tidegate.config import Config, Operation, parse
from tidegate.errors import ConfigError
from tidegate.explain.explanation import Explanation
from tidegate.explain.question import Question
from tidegate.explain.what_if import WhatIf
from tidegate.policy import attributes_of
from tidegate.scope import Identity, Scope
from tidegate.session import Limits, Origin, Site, Subject, Volatile

FILE = """\
version: 1
node: {name: n, domain: gym, timezone: Europe/Rome}
listeners:
  - {url: "mqtt://127.0.0.1:1883", anonymous: true}
  - {url: "ws://127.0.0.1:8083/mqtt", environment: {location: rome}}
environment: {location: milan, place: {floor: 1, room: a}}
levels: {order: [plain, lan, tls, mtls, trusted], define: {lan: "cidr(s.address, '10.0.0.0/8')"}}
directory:
  users:
    mary: {password: "plain:x", roles: [frequenter, owner], groups: [team], attributes: {age: 30}}
    bob: {password: "plain:x", roles: [coach]}
  clients:
    tr1: {user: mary, roles: [machine], attributes: {machine: treadmill}}
    door: {attributes: {machine: door}}
  roles: {coach: {attributes: {clearance: 2}}}
  groups: {team: {attributes: {colour: red}}}
policies:
  - {id: all, subject: "*", topic: "a/#", action: [read, write]}
  - {id: people, subject: ["role:frequenter", "role:coach"], topic: "b/#", action: [read, write]}
  - {id: where, subject: "*", topic: "c/#", action: [read, write], when: "e.location == 'rome'"}
  - {id: from, subject: "*", topic: "d/#", action: read, when: "p.e.location == 'rome'"}
  - {id: sent, subject: "*", topic: "d/#", action: write}
  - {id: fresh, subject: "*", topic: "f/#", action: read, when: "age(p.time) < duration('1h')"}
  - {id: old, subject: "*", topic: "f/#", action: write}
  - {id: kind, subject: "*", topic: "g/#", action: write, when: "o.category == 'generic'"}
  - {id: room, subject: "*", topic: "h/#", action: write, when: "e.place.room == 'b' && e.place.floor == 1"}
"""


@pytest.fixture(scope="module")
def config() -> Config:
    return parse(FILE, "f.yaml")


def ask(config: Config, subject: str, action: str = "write", topic: str = "a/b", **more: Any) -> Explanation:
    return WhatIf(config).explain(Question(subject=subject, action=Operation(action), topic=topic, **more))


def assuming(config: Config, subject: str, **overrides: Any) -> Subject:
    return ask(config, subject, overrides={f"s.{name}": value for name, value in overrides.items()}).subject


# -- who -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("user:mary", {"user": "mary", "role": "frequenter", "client": "unknown", "age": 30, "colour": "red"}),
        ("user:mary/client:tr1", {"user": "mary", "client": "tr1", "machine": "treadmill"}),
        ("user:mary/client:other", {"user": "mary", "client": "other"}),
        ("client:tr1", {"user": "mary", "role": "frequenter", "machine": "treadmill"}),
        ("client:door", {"client": "door", "machine": "door"}),
        ("user:alice@remotegym", {"user": "alice@remotegym", "domain": "remotegym", "roles": ()}),
        ("user:bob@gym", {"user": "bob", "domain": "gym", "clearance": 2}),
        ("service:pipeline", {"kind": "service", "client": "pipeline", "level": "trusted", "listener": ""}),
    ],
)
def test_who_is_meant(config: Config, text: str, expected: dict[str, Any]) -> None:
    s = attributes_of(ask(config, text).subject, "gym")
    assert {name: s.get(name) for name in expected} == expected
    assert s["scope"] == "main"
    assert s["node"] == "n"


@pytest.mark.parametrize(
    ("text", "principal", "user", "client"),
    [
        ("user:mary/client:tr1", "user:mary", "mary", "tr1"),
        ("user:mary/client:phone", "user:mary", "mary", "phone"),
        ("user:bob/client:tr1", "user:bob", "bob", "tr1"),
        ("client:tr1", "certificate:tr1", None, "tr1"),
        ("client:door", "certificate:door", None, "door"),
        ("client:visitor", "anonymous", None, "visitor"),
    ],
)
def test_they_are_as_if_they_had_connected(
    config: Config, text: str, principal: str, user: str | None, client: str
) -> None:
    authentication = Authentication(config, SimpleNamespace())  # type: ignore[arg-type]
    site = Site(
        store=Volatile(), origin=Origin("0" * 16, 1), limits=Limits(), on_open=lambda: None, random_id=lambda: ""
    )
    scope = Scope(name="main", node="n", site=site, authenticator=authentication, rules=config.built.rules)
    listener = SimpleNamespace(name="mqtt://127.0.0.1:1883", anonymous=True)
    connection = SimpleNamespace(listener=listener, address="127.0.0.1", certificate=None)
    subject = Subject(kind="client", client=client, user=user, scope="main", node="n")
    session = SimpleNamespace(
        principal=principal, connection=connection, subject=subject, client=client, authenticated=0, home="main"
    )
    identity = authentication.reauthorize(session)  # type: ignore[arg-type]
    assert isinstance(identity, Identity)
    real = scope.subjects.subject(identity, client=client, address="127.0.0.1", listener="mqtt://127.0.0.1:1883")
    found = ask(config, text).subject
    assert [getattr(found, one.name) for one in fields(found)] == [getattr(real, one.name) for one in fields(real)]


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("client:visitor", "`client:visitor` is not in the directory: an anonymous client"),
        (
            "user:bob/client:tr1",
            "what the directory says of `client:tr1` does not apply, nor any rule about it: it is not of `bob`",
        ),
    ],
)
def test_what_is_said_about_them(config: Config, text: str, note: str) -> None:
    assert ask(config, text).notes == (note,)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("user:marry", "`user:marry` names the unknown user `marry`; did you mean `mary`?"),
        ("user:xyz", "`user:xyz` names the unknown user `xyz`; add it under `directory.users`"),
        ("mary", "`mary` is nobody who acts: write for example"),
    ],
)
def test_nobody(config: Config, text: str, error: str) -> None:
    with pytest.raises(ConfigError) as found:
        ask(config, text)
    assert str(found.value).startswith(error)


def test_a_method_may_know_others() -> None:
    methods = "authentication: {methods: {m: 'conformance.methods:Echo'}}\n"
    found = ask(parse(FILE + methods, "f"), "user:xyz")
    assert found.subject.user == "xyz"
    assert found.notes == ("`user:xyz` is not in the directory: only an authentication method knows more",)


# -- what is overrides -------------------------------------------------------------------------------------------------


def test_built_in_attributes_and_others_are_assumed(config: Config) -> None:
    found = assuming(config, "user:mary", level="tls", age=31, client=5, groups="staff", more=[1])
    assert (found.level, found.client, found.groups) == ("tls", "5", ("staff",))
    assert found.attributes == {"age": 31, "colour": "red", "more": [1]}
    assert assuming(config, "user:mary", role="owner").roles == ("owner", "frequenter")
    assert assuming(config, "user:mary", role="guest").roles == ("guest", "frequenter", "owner")
    assert assuming(config, "user:mary", role="b", roles=["a", "b"]).roles == ("b", "a")
    assert assuming(config, "user:bob", kind="monitor").kind == "monitor"


def test_the_level_follows_from_what_is_assumed_of_the_connection(config: Config) -> None:
    assert assuming(config, "user:mary").level == "plain"
    assert assuming(config, "user:mary", address="10.1.2.3").level == "lan"
    found = ask(config, "user:mary", overrides={"s.tls.version": "TLSv1.2"}).subject
    assert (found.level, found.tls) == ("tls", {"version": "TLSv1.2"})


def test_a_listener_brings_its_environment(config: Config) -> None:
    assert ask(config, "user:mary", topic="c/x").headline == "DENY by default (write, policies)"
    overrides = {"s.listener": "ws://127.0.0.1:8083/mqtt"}
    assert ask(config, "user:mary", topic="c/x", overrides=overrides).allowed


def test_the_environment(config: Config) -> None:
    assert ask(config, "user:mary", topic="c/x", overrides={"e.location": "rome"}).allowed
    assert not ask(config, "user:mary", topic="h/x").allowed
    assert ask(config, "user:mary", topic="h/x", overrides={"e.place.room": "b"}).allowed


def test_the_environment_of_the_publisher_is_another(config: Config) -> None:
    def reading(**overrides: Any) -> bool:
        return ask(config, "user:bob", "read", "d/x", publisher="user:mary", overrides=overrides).allowed

    assert not reading()
    assert not reading(**{"e.location": "rome"})
    assert reading(**{"p.e.location": "rome"})
    assert reading(**{"p.listener": "ws://127.0.0.1:8083/mqtt"})


def test_an_old_message(config: Config) -> None:
    at = datetime(2026, 3, 2, 9, 30, tzinfo=UTC).timestamp()

    def reading(**overrides: Any) -> bool:
        return ask(config, "user:bob", "read", "f/x", publisher="user:mary", at=at, overrides=overrides).allowed

    assert reading()
    assert reading(**{"p.time": "2026-03-02T09:00:00Z"})
    assert not reading(**{"p.time": "2026-03-02T08:00:00Z"})


def test_a_category(config: Config) -> None:
    assert not ask(config, "user:mary", topic="g/x").allowed
    assert ask(config, "user:mary", topic="g/x", overrides={"o.category": "generic"}).allowed


def test_the_publisher_is_assumed_too(config: Config) -> None:
    found = ask(config, "user:bob", "read", publisher="client:tr1", overrides={"p.level": "mtls"})
    assert found.publisher is not None
    assert (found.publisher.level, found.subject.level) == ("mtls", "plain")


@pytest.mark.parametrize(
    ("action", "path", "value", "error"),
    [
        ("write", "level", "tls", "`level` is no attribute; write for example `s.level` or `e.location`"),
        ("write", "x.level", "tls", "`x.level` cannot be overridden; write for example"),
        ("write", "s.level", "tsl", "`tsl` is no level here; write one of plain, lan, tls, mtls, trusted"),
        ("write", "s.user", True, "`s.user` is a text; put it in quotes"),
        ("write", "s.roles", [1], '`s.roles` is a list of texts; write for example `["coach"]`'),
        ("write", "s.kind", "robot", "`s.kind` is one of client, link, monitor, scope, service"),
        ("write", "s.tls", "1.3", "`s.tls` has `version` and `cipher`; set `s.tls.version`"),
        ("write", "s.listener", "mqtt://h", "`s.listener` is none of the file's: write one of mqtt://127.0.0.1:1883"),
        ("write", "e.hour", 3, "`e.hour` is the clock's; say when with `at`"),
        ("read", "p.e.hour", 3, "`p.e.hour` is the clock's; set `p.time`"),
        ("read", "p.time", "yesterday", "`p.time` is a time with its zone"),
        ("read", "p.time", "2026-03-02T09:30:00", "`p.time` is a time with its zone"),
        ("read", "p.floor", "tls", "`p.floor` comes from the message and from `p.level`; set those"),
        ("write", "p.level", "tls", "`p.level`: nobody else has published anything here"),
        ("write", "o.qos", 1, "`o.qos` comes from the message; give the message otherwise"),
        ("subscribe", "o.category", "x", "`o.category` cannot be overridden"),
    ],
)
def test_what_cannot_be_assumed(config: Config, action: str, path: str, value: Any, error: str) -> None:
    with pytest.raises(ConfigError) as found:
        ask(config, "user:mary", action, publisher="user:mary", overrides={path: value})
    assert str(found.value).startswith(error)


# -- what is asked ---------------------------------------------------------------------------------------------------


def test_now_is_now(config: Config) -> None:
    before = time.time()
    assert before <= ask(config, "user:mary").at <= time.time()
    assert ask(config, "user:mary", at=5.0).at == 5.0


def test_terms_of_a_subscription(config: Config) -> None:
    def reading(*terms: tuple[str, str]) -> str:
        return ask(config, "user:bob", "read", publisher="user:mary", payload=b'{"n":2}', terms=terms).headline

    assert reading() == "ALLOW by all (read, policies)"
    assert reading(("where", "o.payload.n > 3")) == "DENY by where (where)"
    assert reading(("require", "tls")) == "DENY by subscriber's demand (levels)"


@pytest.mark.parametrize(
    ("action", "topic", "terms", "error"),
    [
        ("read", "a/#", (), "`a/#` is no topic, and `read` is of one; write it without `+` and `#`"),
        ("subscribe", "a#", (), "`a#` is no topic filter; `+` is a whole level, `#` the whole last one"),
        ("read", "a/b", (("where", "s.user == 'x'"),), "`where` is no condition: 1:1: "),
        ("subscribe", "a/b", (("where", "o.qos =="),), "`where` is no condition: 1:9: "),
        ("read", "a/b", (("where", "true"), ("where", "true")), "a subscription has one `where`"),
        ("read", "a/b", (("where", "true || " * 300 + "true"),), "`where` is no condition: 1:1: longer than 512 bytes"),
    ],
)
def test_what_cannot_be_asked(config: Config, action: str, topic: str, terms: Any, error: str) -> None:
    with pytest.raises(ConfigError) as found:
        ask(config, "user:mary", action, topic, publisher="user:bob" if action == "read" else None, terms=terms)
    assert str(found.value).startswith(error)


def test_without_a_publisher(config: Config) -> None:
    found = ask(config, "user:bob", "read", "a/b")
    assert found.allowed
    assert found.notes == ()
    assert found.publisher is not None
    assert found.publisher.name == "client:unknown"


@pytest.mark.parametrize(
    ("more", "topic", "why"),
    [
        ("", "b/x", "an unknown client may not publish it (DENY by default (write, policies))"),
        ("preferences: [{id: u, user: mary, topic: a/#}]\n", "a/b", "there are preferences for this topic"),
        ("brokering: {allow: [[x, y]], default: {in: x, out: y}}\n", "a/b", "brokering asks over which link it came"),
        ("", "d/x", "policies read `p`"),
    ],
)
def test_where_the_publisher_matters(more: str, topic: str, why: str) -> None:
    with pytest.raises(ConfigError) as found:
        ask(parse(FILE + more, "f"), "user:bob", "read", topic)
    assert str(found.value) == f"it matters who published the message: {why}; say who with `from`"


def test_where_levels_are_implied_the_publisher_matters() -> None:
    config = parse(FILE.replace("levels: {", "levels: {implied: true, "), "f")
    with pytest.raises(ConfigError, match="levels are implied"):
        ask(config, "user:bob", "read", "a/b")


def test_the_first_listener_may_want_certificates() -> None:
    listener = '{url: "mqtts://0.0.0.0:8883", cert: a.pem, client_ca: ca.pem, client_cert: required}'
    text = FILE.replace('  - {url: "mqtt://127.0.0.1:1883", anonymous: true}', f"  - {listener}")
    found = ask(parse(text, "f"), "user:mary").subject
    assert (found.level, found.listener) == ("mtls", "mqtts://0.0.0.0:8883")
    assert found.tls["version"] == "TLSv1.3"
