"""What is said before anything runs, and what would happen then."""

from __future__ import annotations

from pathlib import Path

from tidegate.config import Config, Operation, parse
from tidegate.explain.question import Question
from tidegate.explain.what_if import WhatIf
from tidegate.simulate.engine import EngineRun
from tidegate.simulate.explore import find_run
from tidegate.simulate.scenario import parse as scenario

HEAD = "version: 1\nnode: {name: n}\npolicies: open\n"


def _config(text: str) -> Config:
    return parse(HEAD + text, Path("x.yaml"))


def test_the_model_knows_that_a_topic_may_become_too_long() -> None:
    config = _config(
        'listeners: [{url: "mqtt://127.0.0.1:21883", scope: A, anonymous: true}]\nscopes: {A: {}, B: {}}\n'
        'links: [{from: A, to: B, share: [{topic: "#", remote_prefix: "prefix/"}]}]\n'
    )
    steps = [{"client": "a", "publish": "x" * 65533}]
    made = EngineRun.of(
        config, scenario({"clients": {"a": {"scope": "A"}, "b": {"scope": "B", "subscribes": "#"}}, "steps": steps})
    )
    assert find_run(made.schema, made.scenario.rounds, made.run()) is not None


def test_monitors_where_members_of_a_role_publish_can_be_simulated() -> None:
    config = _config(
        'listeners: [{url: "mqtt://127.0.0.1:21883", scope: bus}]\nscopes: {bus: {}}\n'
        "directory: {clients: {c: {roles: [op]}}}\n"
        'brokering: {preset: rbac, bus: bus, roles: {op: {pub: ["a/#"], sub: ["b/#"]}}}\n'
        'monitors: [{id: m, scope: op.pub, direction: im_sub, filter: ["#"]}]\n'
    )
    EngineRun.of(config, scenario({"clients": {"c": {"scope": "bus"}}, "steps": [{"client": "c", "publish": "a/1"}]}))


def test_who_has_no_label_is_not_let_in() -> None:
    config = _config(
        'listeners: [{url: "mqtt://127.0.0.1:21883", anonymous: true}]\nscopes: {A: {}}\n'
        "brokering: {preset: blp, labels: [lo, hi], assign: [{client: 'role:x', in: lo, out: lo}]}\n"
    )
    assert not WhatIf(config).explain(Question(subject="client:visitor", action=Operation.WRITE, topic="x")).allowed


def test_what_a_filter_on_a_clients_link_stops_is_denied() -> None:
    config = _config(
        'listeners: [{url: "mqtt://127.0.0.1:21883", anonymous: true}]\nscopes: {A: {}}\n'
        "monitors: [{id: f, scope: A, direction: im_sub, filter: [a]}]\n"
    )
    asked = Question(subject="client:r", action=Operation.READ, topic="b", publisher="client:p")
    assert not WhatIf(config).explain(asked).allowed
