"""The ready ones: filter, map, and the four of the measurements."""

from __future__ import annotations

import pytest

from monitor.traces import event, made, names
from tidegate.monitor import MonitorFailed


def test_filter() -> None:
    machine = made(filter=["+/performance/#", "status/+"])
    assert names(machine, "a/performance", "a/performance/x/y", "status/1", "status/1/2", "other", "$SYS/x") == [
        "a/performance",
        "a/performance/x/y",
        "status/1",
    ]
    assert [machine.hears("status/1"), machine.hears("other")] == [False, True]
    assert made(filter=["#"]).hears("$SYS/x")


@pytest.mark.parametrize(
    ("old", "new", "topic", "renamed"),
    [
        ("old/#", "new/#", "old/a/b", "new/a/b"),
        ("old/#", "new/#", "old", "new"),
        ("old/#", "new/#", "older", "older"),
        ("#", "x/#", "a", "x/a"),
        ("x/#", "#", "x/a/b", "a/b"),
        ("+/a/+", "+/+/z", "1/a/2", "1/2/z"),
        ("a/+/b/#", "+/#", "a/1/b/2/3", "1/2/3"),
        ("a", "b/c", "a", "b/c"),
        ("a//b", "c", "a//b", "c"),
        ("+/+", "x/+/+", "/", "x//"),
        ("$SYS/#", "sys/#", "$SYS/load", "sys/load"),
        ("a/+", "a/+", "a/1", "a/1"),
    ],
)
def test_map(old: str, new: str, topic: str, renamed: str) -> None:
    came = event(topic, b"x", qos=1, retain=True)
    [output] = made(map={old: new}).step("q0", came)[1]
    assert output == came.changed(topic=renamed)
    assert (output is came) == (topic == renamed)


def test_the_first_entry_that_matches_renames() -> None:
    machine = made(map={"a/b": "first", "a/+": "second/+"})
    assert names(machine, "a/b", "a/c", "b") == ["first", "second/c", "b"]
    assert [machine.hears("a/b"), machine.hears("b")] == [True, False]


@pytest.mark.parametrize(
    ("old", "new", "topic"),
    [("x/#", "#", "x"), ("a/+", "+", "a/$SYS"), ("a/+", "+", "a/"), ("+", "x" * 40000 + "/+", "y" * 40000)],
)
def test_what_cannot_be_renamed_is_suppressed(old: str, new: str, topic: str) -> None:
    with pytest.raises(MonitorFailed, match="would be renamed to"):
        made(map={old: new}).step("q0", event(topic))


def test_simple_em_maps() -> None:
    assert names(made(use="simple_em", map={"a": "b"}), "a", "c") == ["b", "c"]
    assert names(made(use="simple_em"), "a") == ["a"]


def test_complex_em_replaces_payloads() -> None:
    machine = made(use="complex_em", map={"a": "b"})
    state = machine.start()
    found = []
    for _ in range(2):
        state, [output] = machine.step(state, event("a", bytes(1000), qos=2))
        assert (output.topic, output.qos, len(output.payload)) == ("b", 2, 1000)
        assert all(0x20 <= byte <= 0x7E for byte in output.payload)
        found.append(output.payload)
    assert found[0] != found[1]
    assert {*found[0], *found[1]} == set(range(0x20, 0x7F))
    assert machine.step(0, event("a"))[1][0].payload == b""


def test_hsup_em_suppresses_every_other_event() -> None:
    assert names(made(use="hsup_em"), "a", "b", "$c", "d", "e") == ["a", "$c", "e"]


def test_multi_em_doubles() -> None:
    came = event("a", b"x", qos=1)
    state, outputs = made(use="multi_em").step("q0", came)
    assert (state, list(outputs)) == ("q0", [came, came])
    assert [each is came for each in outputs] == [True, False]
