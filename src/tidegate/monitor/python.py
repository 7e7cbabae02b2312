"""Monitors that administrators write in Python, run so that they cannot break anything else.

The class has `start` and `step` as `Monitor` says. Here it gets a state and an event that are its own copies, whatever
it raises becomes `MonitorFailed`, and what it returns is checked: a state that JSON keeps as it is, and events that
may be published. It must be pure, quick and must not block; nothing here can enforce that. How long it takes is
measured by whoever runs it, because there is no clock here.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from operator import attrgetter
from typing import Any, Final

from tidegate.errors import ConfigError
from tidegate.monitor.event import Event, State
from tidegate.monitor.machine import ONLY, Edge, Graph, Machine, Monitor, MonitorFailed, checked

MAX_STATE: Final = 64 << 10
"""Characters of JSON that a state may have."""

MAX_NESTING: Final = 100
"""Lists and objects within each other that a state may have: the store reads back no more than some hundred."""


class PythonMonitor(Machine):
    """A monitor of an administrator as a machine."""

    __slots__ = ("_monitor", "_start", "name")

    overhears = True

    def __init__(self, monitor: Monitor, name: str) -> None:
        self._monitor = monitor
        self.name = name
        self._start = _text(monitor.start())

    def start(self) -> State:
        return json.loads(self._start)

    def step(self, state: State, event: Event) -> tuple[State, tuple[Event, ...]]:
        given = json.loads(json.dumps(state)) if isinstance(state, list | dict) else state
        copy = event.changed()
        try:
            new, put_out = self._monitor.step(given, copy)
            same = copy == event
            outputs = checked(event, (event if each is copy and same else each for each in put_out))
            text = _text(new)
        except (Exception, SystemExit) as error:
            raise MonitorFailed(self._why(error)) from error
        return json.loads(text), outputs

    def accepts(self, _state: State) -> bool:
        return True

    def graph(self) -> Graph:
        return Graph(start=ONLY, states=(ONLY,), edges=(Edge(source=ONLY, target=ONLY, label=self.name),))

    def _why(self, error: BaseException) -> str:
        """What is said of a failure; the audit takes only what can be written as UTF-8."""
        try:
            text = str(error)
        except Exception:  # noqa: BLE001  it is an administrator's, too
            text = "it cannot say why"
        if not isinstance(error, MonitorFailed):
            text = f"{self.name}: {type(error).__name__}: {text}"
        return text.encode(errors="backslashreplace").decode()


def load_monitor(reference: str, arguments: Mapping[str, Any]) -> PythonMonitor:
    """The monitor that `package.module:Class` makes. Raises `ConfigError`."""
    module, _, name = reference.partition(":")
    try:
        maker = attrgetter(name)(importlib.import_module(module))
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        raise ConfigError(f"it cannot be imported ({why}): check its name, and that Python finds it") from error
    if not callable(maker):
        raise ConfigError(f"`{name}` is no class: name one that has `start` and `step`")
    try:
        monitor = maker(**arguments)
    except Exception as error:
        raise ConfigError(f"it cannot be made ({type(error).__name__}: {error}): check `with`") from error
    if not all(callable(getattr(monitor, each, None)) for each in ("start", "step")):
        raise ConfigError(f"`{name}` has no `start` and `step`: write both")
    try:
        return PythonMonitor(monitor, reference)
    except MonitorFailed as failed:
        raise ConfigError(f"its first state cannot be kept ({failed}): return something that JSON can hold") from failed
    except Exception as error:
        raise ConfigError(f"its `start` fails ({type(error).__name__}: {error}): mend it") from error


def _text(state: State) -> str:
    """The state as JSON. Raises `MonitorFailed` if something would be lost."""
    try:
        text = json.dumps(state, allow_nan=False, ensure_ascii=False)
        text.encode()  # a lone surrogate is no text, and the store would not take it
        same = bool(json.loads(text) == state)
    except (TypeError, ValueError, RecursionError) as error:
        raise MonitorFailed(f"the state is no JSON ({error})") from error
    if not same:
        raise MonitorFailed("the state is no JSON: it has keys that are no text, or tuples")
    if len(text) > MAX_STATE:
        raise MonitorFailed(f"the state has more than {MAX_STATE} characters")
    if text.count("[") + text.count("{") > MAX_NESTING and _deeper(state, MAX_NESTING):
        raise MonitorFailed(f"the state is nested more than {MAX_NESTING} deep")
    return text


def _deeper(state: State, most: int) -> bool:
    if not isinstance(state, list | dict):
        return False
    parts = state.values() if isinstance(state, dict) else state
    return most == 0 or any(_deeper(each, most - 1) for each in parts)
