"""A trace from a file, fed to a monitor without a node.

One JSON object on each line: `topic`, `payload` (text as it is, anything else as JSON), `qos`, `retain`, and when it
comes: `at` is seconds from the beginning, or `+3s` after the line before. `s` and `p` say what conditions read of
whom; `e` adds to the environment of the configuration. A line without `topic` only lets time go by. The timers of
the monitor are due as they would be.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import orjson
from pydantic_core import PydanticCustomError

from tidegate import topics
from tidegate.config.monitors import content
from tidegate.config.units import duration
from tidegate.errors import ConfigError
from tidegate.gate.rule_set import RuleSet
from tidegate.monitor import Event, Machine, MonitorFailed, State

MOST: Final = 100_000
"""Ticks between two lines: a timer that winds itself up again may be due for ever."""

LATEST: Final = 1e12
"""Seconds from the beginning: beyond, a float has no room for short timers."""

_KEYS: Final = ("topic", "payload", "qos", "retain", "at", "s", "e", "p")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    number: int
    at: float
    event: Event | None
    """None: only time goes by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    at: float
    event: Event
    state: State
    outputs: tuple[Event, ...]
    failure: str | None = None


def read(lines: Iterable[str], rules: RuleSet, *, file: str, wall: float) -> Iterator[Line]:
    """The lines of a trace that begins at a time of the wall clock. Raises `ConfigError` with the place."""
    at, number = 0.0, 0
    try:
        for number, text in enumerate(lines, 1):
            if text.strip():
                line = _line(text, number, at, rules, wall)
                at = line.at
                yield line
    except UnicodeDecodeError as wrong:
        raise ConfigError(f"this is no text ({wrong.reason}); write JSON lines in UTF-8", file=file) from None
    except ConfigError as wrong:
        raise ConfigError(str(wrong.args[0]), file=file, line=number) from None


def play(machine: Machine, lines: Iterable[Line]) -> Iterator[Row]:
    """What the monitor does with each event, and with each tick that is due before it."""
    state = machine.start()
    for line in lines:
        ticks = 0
        while (due := machine.due(state)) is not None and due <= line.at:
            ticks += 1
            if ticks > MOST:
                raise ConfigError(f"more than {MOST} timers are due before line {line.number}; write a smaller `at`")
            row = _row(machine, state, Event.tick(due))
            state = row.state
            yield row
        if line.event is not None:
            row = _row(machine, state, line.event)
            state = row.state
            yield row


def _row(machine: Machine, state: State, event: Event) -> Row:
    try:
        new, outputs = machine.step(state, event)
    except MonitorFailed as failed:
        return Row(at=event.time, event=event, state=state, outputs=(), failure=str(failed))
    return Row(at=event.time, event=event, state=new, outputs=tuple(outputs))


def _line(text: str, number: int, before: float, rules: RuleSet, wall: float) -> Line:
    try:
        said = orjson.loads(text)
    except orjson.JSONDecodeError as wrong:
        raise ConfigError(f"this is no JSON ({wrong}); write one object on each line") from None
    if not isinstance(said, dict):
        raise ConfigError('this is no event; write for example {"topic": "a/b", "payload": "on"}')
    for key in said:
        if key not in _KEYS:
            raise ConfigError(f"`{key}` is unknown; there are {', '.join(_KEYS)}")
    at = _time(said.get("at", before), before)
    if "topic" not in said:
        return Line(number=number, at=at, event=None)
    topic, qos, retain = said["topic"], said.get("qos", 0), said.get("retain", False)
    if not isinstance(topic, str) or not topics.valid_topic(topic):
        raise ConfigError("`topic` is no topic; write it without `+` and `#`")
    if type(qos) is not int or qos not in (0, 1, 2):
        raise ConfigError("`qos` must be 0, 1 or 2")
    if not isinstance(retain, bool):
        raise ConfigError("`retain` must be true or false")
    try:
        payload = content(said.get("payload", ""))
    except (ValueError, RecursionError) as wrong:
        raise ConfigError(f"`payload` cannot be written as JSON ({wrong}); write less of it") from None
    event = Event(topic, payload, qos, retain, at)
    event.scene = _scene(event, said, rules, wall + at)
    return Line(number=number, at=at, event=event)


def _time(written: object, before: float) -> float:
    if isinstance(written, str) and written.startswith("+"):
        try:
            at = before + duration(written[1:])
        except PydanticCustomError as wrong:
            raise ConfigError(f"`at` {wrong.message()}") from None
    elif isinstance(written, int | float) and not isinstance(written, bool):
        at = float(written)
    else:
        raise ConfigError("`at` must be seconds from the beginning, or a time after the line before such as `+3s`")
    if not at < LATEST:
        raise ConfigError(f"`at` is too far away; write less than {LATEST:g} seconds")
    if at < before:
        raise ConfigError(f"`at` is before the line above ({before:g}); a trace goes forward")
    return at


def _scene(event: Event, said: dict[str, Any], rules: RuleSet, wall: float) -> dict[str, Any]:
    o: dict[str, Any] = {
        "topic": event.topic,
        "levels": event.topic.split("/"),
        "qos": event.qos,
        "retain": event.retain,
        "size": len(event.payload),
        "properties": {},
    }
    category = rules.classification.category(event.topic)
    if category is not None:
        o["category"] = category
    try:
        o["payload"] = orjson.loads(event.payload)
    except orjson.JSONDecodeError:
        pass  # then there is none, as on a link
    e = rules.environment.at(wall)
    for root in ("s", "e", "p"):
        if not isinstance(said.get(root, {}), dict):
            raise ConfigError(f"`{root}` must be an object of attributes")
    e.update(said.get("e", {}))
    return {"s": said.get("s", {}), "o": o, "e": e, "p": said.get("p", {})}
