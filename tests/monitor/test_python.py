"""Monitors in Python: whatever they do, they break nothing but their own event."""

from __future__ import annotations

import itertools
import math
import sys
from typing import Any

import pytest

from monitor.mine import Counting, Scripted
from monitor.traces import event, fed
from tidegate.errors import ConfigError
from tidegate.monitor import Event, MonitorFailed
from tidegate.monitor.python import PythonMonitor, load_monitor


def nested(depth: int) -> Any:
    """Lists and objects in turn, one within the other."""
    state: Any = []
    for level in range(depth - 1):
        state = [state] if level % 2 else {"a": state}
    return state


class Speechless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Unequal(dict[str, int]):
    def __eq__(self, other: object) -> bool:
        raise LookupError("not to be compared")

    __hash__ = None


def test_one_that_counts() -> None:
    machine = load_monitor("monitor.mine:Counting", {"most": 2})
    came = fed(machine, [event(topic) for topic in "abcd"])
    assert [[each.topic for each in one] for one in came] == [["a"], ["b"], ["full"], [], []]


def test_it_changes_only_its_own_copy_of_the_state() -> None:
    machine = PythonMonitor(Counting(), "x")
    state = machine.start()
    new, _ = machine.step(state, event("a"))
    assert (state, new) == ({"seen": []}, {"seen": ["a"]})
    assert machine.start() == {"seen": []}


def test_it_may_change_the_event_it_is_given() -> None:
    def renames(state: Any, event: Event) -> Any:
        event.topic = "b"
        return state, [event, event]

    came = event("a", b"x", qos=1, time=5.0)
    _, outputs = PythonMonitor(Scripted(renames), "x").step(0, came)
    assert came == Event("a", b"x", 1)
    assert [(each, each.time) for each in outputs] == [(Event("b", b"x", 1), 5.0)] * 2


def test_unchanged_is_the_event_itself_and_that_only_once() -> None:
    came = event("a", time=5.0)
    _, outputs = PythonMonitor(Scripted(lambda state, each: (state, [each, each, Event("b", b"")])), "x").step(0, came)
    assert [each is came for each in outputs] == [True, False, False]
    assert [each.time for each in outputs] == [5.0] * 3


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (ValueError("no"), "m: ValueError: no"),
        (lambda state, event: None, "m: TypeError: "),
        (lambda state, event: (state,), "m: ValueError: "),
        (lambda state, event: (state, 5), "m: TypeError: "),
        ([5], "puts out int, not an event"),
        ([Event("", b"")], "puts out ``, which is no topic"),
        ([Event("a/+", b"")], "puts out `a/+`, which is no topic"),
        ([Event("a\0", b"")], "which is no topic"),
        ([Event("x" * 65536, b"")], "which is no topic"),
        ([Event(5, b"")], "puts out `5`, which is no topic"),  # type: ignore[arg-type]
        ([Event("$SYS/x", b"")], "puts out `$SYS/x`, and topics with `$` are reserved"),
        ([Event("a", "text")], "not bytes"),  # type: ignore[arg-type]
        ([Event("a", b"", 3)], "puts out QoS 3; there are 0, 1 and 2"),
        ([Event("a", b"", True)], "puts out QoS True; there are 0, 1 and 2"),
        ([Event("a", b"", 0, 1)], "a retain flag that is neither"),  # type: ignore[arg-type]
        ([Event("a", b"")] * 101, "puts out more than 100 events at once"),
        (lambda state, event: (state, itertools.repeat(event)), "puts out more than 100 events at once"),
        (lambda state, event: ({1: 2}, []), "the state is no JSON: it has keys that are no text, or tuples"),
        (lambda state, event: ((1,), []), "the state is no JSON: it has keys that are no text, or tuples"),
        (lambda state, event: (math.nan, []), "the state is no JSON"),
        (lambda state, event: (object(), []), "the state is no JSON"),
        (lambda state, event: ("x" * 70000, []), "the state has more than 65536 characters"),
        (lambda state, event: (nested(101), []), "the state is nested more than 100 deep"),
        (lambda state, event: (nested(20_000), []), "the state is no JSON (maximum recursion depth"),
        (lambda state, event: ({"a": ["\ud800"]}, []), "the state is no JSON ('utf-8' codec"),
        (lambda state, event: ({"\udcff": 1}, []), "the state is no JSON ('utf-8' codec"),
        (lambda state, event: (Unequal(a=1), []), "m: LookupError: not to be compared"),
        ([Event("a/\ud800", b"")], "puts out `a/\\ud800`, which is no topic"),
        (ValueError("\udcff"), "m: ValueError: \\udcff"),
        (Speechless(), "m: Speechless: it cannot say why"),
        (lambda state, event: sys.exit(3), "m: SystemExit: 3"),
    ],
)
def test_what_goes_wrong_suppresses_and_says_why(answer: Any, said: str) -> None:
    with pytest.raises(MonitorFailed) as failed:
        PythonMonitor(Scripted(answer), "m").step(0, event("a"))
    assert said in str(failed.value)
    assert str(failed.value).encode()  # the audit keeps it


@pytest.mark.parametrize("state", [nested(100), [[]] * 1000, "[" * 1000, {"ü": "\U0001f600"}, ["\0"]])
def test_a_state_that_can_be_kept(state: Any) -> None:
    assert PythonMonitor(Scripted(lambda *_: (state, [])), "m").step(0, event("a"))[0] == state


def test_a_reserved_topic_may_pass_as_it_came() -> None:
    came = event("$SYS/x", b"1")
    _, outputs = PythonMonitor(Scripted(lambda state, each: (state, [each.changed(payload=b"2")])), "m").step(0, came)
    assert outputs == (Event("$SYS/x", b"2"),)


@pytest.mark.parametrize(
    ("reference", "arguments", "said"),
    [
        ("monitor.nothing:X", {}, "it cannot be imported (ModuleNotFoundError: "),
        ("monitor.mine:Quiet", {}, "it cannot be imported (AttributeError: "),
        ("monitor.mine:NOT_A_CLASS", {}, "`NOT_A_CLASS` is no class: name one that has `start` and `step`"),
        ("monitor.mine:Counting", {"least": 1}, "it cannot be made (TypeError: "),
        ("monitor.mine:NoStep", {}, "`NoStep` has no `start` and `step`: write both"),
        ("monitor.mine:BadStart", {}, "its first state cannot be kept (the state is no JSON"),
        ("monitor.mine:BrokenStart", {}, "its `start` fails (OSError: no disk): mend it"),
    ],
)
def test_what_cannot_be_loaded(reference: str, arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as wrong:
        load_monitor(reference, arguments)
    assert str(wrong.value).startswith(said)
