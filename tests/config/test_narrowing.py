"""What operators may change: the same cases as texts, and two of them over HTTP (tests/api/test_operators.py)."""

from __future__ import annotations

import pytest

from tidegate.config import Config, parse
from tidegate.config.narrowing import widening

HEAD = """
version: 1
node: {name: n}
listeners: [{url: "mqtt://127.0.0.1", anonymous: true}]
"""
HERE = "scope: main, direction: im_pub"
AUTOMATON = "automaton: {{start: a, states: {{a: [{}], b: []}}}}"
SUPPRESSING = AUTOMATON.format("{on: x, go: b, emit: []}, {on: y, emit: same}, {silent: 3s, go: b}")


def config(views: str = "", monitors: str = "", more: str = "") -> Config:
    return parse(f"{HEAD}policies: open\nviews: [{views}]\nmonitors: [{monitors}]\n{more}", "f.yaml", variables={})


def view(id: str, topic: str = "a/#", subject: str = "role:r", keep: str = "[/x, /y]") -> str:
    return f'{{id: {id}, topic: "{topic}", for: {subject}, keep: {keep}}}'


def monitor(id: str, how: str, where: str = HERE) -> str:
    return f"{{id: {id}, {where}, {how}}}"


@pytest.mark.parametrize(
    ("before", "after", "narrows"),
    [
        ("", view("v"), True),  # what was seen whole is seen in part
        (view("v"), "", False),
        (view("v"), view("v", keep="[/x]"), True),
        (view("v"), view("v", keep="[/x/deeper]"), True),
        (view("v"), view("v", keep="[]"), True),
        (view("v"), view("v", keep="[/x, /y, /z]"), False),
        (view("v"), view("v", keep="all"), False),
        (view("v", keep="all"), view("v"), True),
        (view("v", keep="[/x/deeper]"), view("v", keep="[/x]"), False),
        (view("v", subject='["role:r", "role:q"]'), view("v"), True),
        (view("v"), view("v", subject='["role:r", "role:q"]'), False),
        (view("v"), view("v", subject='"*"'), False),
        (view("v", subject='"*"'), view("v"), True),
        (view("v"), view("v", topic="a/+"), False),  # a/b/c would be seen whole
        (view("v"), view("v", topic="b/#"), False),
        (view("v", topic="a/b"), view("v", topic="a/+"), False),  # a/b gains nothing, but that needs a closer look
        (view("v"), f"{view('v')}, {view('w')}", True),  # the same once more
        (view("v"), f"{view('v')}, {view('w', keep='[/z]')}", False),  # rows unite
        (view("v"), f"{view('v')}, {view('w', subject='role:q', keep='[]')}", False),
        (view("v"), f"{view('v')}, {view('w', topic='b')}", True),
        (f"{view('v')}, {view('w', keep='[/z]')}", view("v"), True),
        (f"{view('v')}, {view('w', topic='#')}", view("w", topic="#"), True),
        (f"{view('v')}, {view('w', topic='#')}", view("v"), False),
    ],
)
def test_views(before: str, after: str, narrows: bool) -> None:
    assert (widening(config(before), config(after)) is None) is narrows
    assert widening(config(before), config(before)) is None


@pytest.mark.parametrize(
    ("before", "after", "narrows"),
    [
        (view("v", subject='["role:r", "role:q"]'), view("v"), False),  # q would see everything
        (f"{view('v')}, {view('w', keep='[/z]')}", view("v"), True),
        (f"{view('v')}, {view('w', subject='role:q')}", view("v"), False),
        (f"{view('v')}, {view('w', subject='role:q', keep='all')}", view("v"), True),
        (view("v"), view("v", keep="[/x]"), True),
    ],
)
def test_views_where_others_see_everything(before: str, after: str, narrows: bool) -> None:
    default = "view_default: all\n"
    assert (widening(config(before, more=default), config(after, more=default)) is None) is narrows


@pytest.mark.parametrize(
    ("how", "suppresses"),
    [
        ("filter: [a]", True),
        ("rate: 5/s", True),
        ("dedupe: 3s", True),
        ("only: a, after: [b]", True),
        ('payload: "o.size < 3"', True),
        ('payload: "o.payload.hiv == true"', False),  # what is suppressed is in the audit
        ('payload: "has(o.payload)"', False),
        ("use: hsup_em", True),
        (SUPPRESSING, True),
        ("use: multi_em", False),
        ("use: simple_em, map: {a: b}", False),
        ("use: complex_em, map: {a: b}", False),
        ("map: {a: b}", False),
        ("silence: 3s, emit: {topic: a, payload: x}", False),
        (AUTOMATON.format("{on: x, go: b, emit: {topic: y}}"), False),
        (AUTOMATON.format("{on: x, go: b, emit: [same, same]}"), False),
        (AUTOMATON.format("{on: x, go: b, emit: {payload: y}}"), False),
        (AUTOMATON.format("{silent: 3s, go: b, emit: {topic: y, payload: z}}"), False),
    ],
)
def test_new_monitors(how: str, suppresses: bool) -> None:
    assert (widening(config(), config(monitors=monitor("m", how))) is None) is suppresses
    assert widening(config(monitors=monitor("m", how)), config()) is not None, "none may go"


@pytest.mark.parametrize(
    ("before", "after", "narrows"),
    [
        ('filter: ["a/#"]', "filter: [a/b, a/c]", True),
        ("filter: [a/b]", 'filter: ["a/#"]', False),
        ("filter: [a, b]", "filter: [a]", True),
        ("filter: [a]", "filter: [a, b]", False),
        ("rate: 5/s", "rate: 4/s", True),
        ("rate: 5/s", "rate: 6/s", False),
        ("rate: 5/s", "rate: 4/s, burst: 9", False),
        ("rate: 5/s, burst: 9", "rate: 5/s, burst: 8", True),
        ("rate: 5/s, on: a", "rate: 5/s, on: b", False),
        ("dedupe: 3s", "dedupe: 4s", True),
        ("dedupe: 3s", "dedupe: 2s", False),
        ("dedupe: 3s, rate: 5/s", "rate: 5/s", False),
        ("only: a, after: [b]", "only: a, after: [c]", False),
        ("filter: [a]", "rate: 5/s", False),
        ("map: {a: b}", "filter: [a]", False),
        ("map: {a: b}", "map: {a: c}", False),
        ("filter: [a]", "filter: [a], default: true", False),
    ],
)
def test_changed_monitors(before: str, after: str, narrows: bool) -> None:
    change = config(monitors=monitor("m", before)), config(monitors=monitor("m", after))
    assert (widening(*change) is None) is narrows


def test_a_monitor_that_moves_does_not_narrow() -> None:
    before = config(monitors=monitor("m", "filter: [a]"))
    assert widening(before, config(monitors=monitor("m", "filter: [a]", "scope: main, direction: im_sub"))) is not None


def test_a_monitor_that_takes_the_place_of_a_default_one() -> None:
    default = monitor("d", "filter: [a], default: true")
    before = config(monitors=default)
    assert widening(before, config(monitors=f"{default}, {monitor('m', 'filter: [b]')}")) is not None
    assert widening(before, config(monitors=f"{default}, {monitor('m', 'filter: [b], default: true')}")) is None


@pytest.mark.parametrize("how", ["rate: 5/s", "only: door, after: [key], reset: lock", "use: hsup_em", "dedupe: 3s"])
def test_beside_a_monitor_that_remembers_nothing_narrows(how: str) -> None:
    """It may let more pass if it sees less: a door stays open if the lock is suppressed before it."""
    there = monitor("door", how, "scope: main, direction: im_sub")
    for new in ("filter: [key, door]", "rate: 5/s", SUPPRESSING):
        assert "door" in (widening(config(monitors=there), config(monitors=f"{there}, {monitor('m', new)}")) or "")
    before, after = (f"{there}, {monitor('m', each)}" for each in ("filter: [a, b]", "filter: [a]"))
    assert widening(config(monitors=before), config(monitors=after)) is not None
    plain = monitor("plain", 'filter: ["a/#"]')
    assert widening(config(monitors=plain), config(monitors=f"{plain}, {monitor('m', 'filter: [a/b]')}")) is None


@pytest.mark.parametrize(
    ("before", "after", "narrows"),
    [
        ("", "{from: a, to: b}", False),
        ("{from: a, to: b}", "", True),
        ("{from: a, to: b}", "{from: a, to: b, direction: out}", False),
        ("{from: a, to: b}", "{from: a, to: b, share: [{topic: t, remote_prefix: x/}]}", False),
        ("{from: a, to: b}, {from: b, to: c}", "{from: b, to: c}", True),
        ("{from: a, to: b}", "{from: b, to: c}", False),
    ],
)
def test_links(before: str, after: str, narrows: bool) -> None:
    old, new = map(linked, (before, after))
    assert (widening(old, new) is None) is narrows
    assert widening(old, old) is None


def linked(links: str) -> Config:
    head = HEAD.replace("anonymous: true", "anonymous: true, scope: a")
    text = f"{head}policies: open\nscopes: {{a: {{}}, b: {{}}, c: {{}}}}\nlinks: [{links}]\n"
    return parse(text, "f.yaml", variables={})
