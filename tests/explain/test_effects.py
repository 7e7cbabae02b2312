"""What a change would do, told beforehand: people and flows."""

from __future__ import annotations

from tidegate.config import Config, parse
from tidegate.explain.effects import effects

FILE = """
version: 1
node: {name: n, data: d}
listeners: [{url: "mqtt://127.0.0.1:1883", scope: a, anonymous: true}]
scopes: {a: {}, b: {}}
directory:
  users: {mary: {password: "plain:m"}, bob: {password: "plain:b"}}
  clients: {strap: {user: mary}}
policies:
  - {id: own, subject: "user:mary", topic: "gym/#", action: write}
  - {id: reads, subject: "user:bob", topic: "gym/x", action: read}
tests: [{as: "user:mary", action: write, topic: gym/x, expect: allow}]
"""


def config(old: str = "", new: str = "") -> Config:
    return parse(FILE.replace(old, new) if old else FILE, "f.yaml")


def test_who_could_read_more_and_who_less() -> None:
    wider = config('topic: "gym/x", action: read', 'topic: "gym/#", action: read')
    told = effects(config(), wider, ())["people"]
    assert {(each["owner"], each["name"]) for each in told["more"]} == {("mary", "bob")}
    assert (told["less"], told["complete"]) == ([], True)
    back = effects(wider, config(), ())["people"]
    assert [each["name"] for each in back["less"]] == ["bob"]
    assert back["more"] == []


def test_nothing_that_is_not_different() -> None:
    told = effects(config(), config(), ())
    assert (told["people"], told["flows"], told["tests"]) == ({"more": [], "less": [], "complete": True}, None, 1)


def test_what_would_flow() -> None:
    linked = config("directory:", "links: [{from: a, to: b}]\ndirectory:")
    told = effects(config(), linked, ())["flows"]
    assert ("client:strap", "scope:b") in told["opened"]
    assert told["closed"] == []
    assert "<svg" in told["before"]
    assert told["before"] != told["after"]
    assert ("client:strap", "scope:b") in effects(linked, config(), ())["flows"]["closed"]
