"""Attributes to assume instead of those that are known: `s.level=tls`, `e.location=rome`, by the path of the attribute.

Built-in attributes keep their types, and what comes from the message or the clock is refused: those are given as what
they are. Overrides of a subject replace what the directory says of it, and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from tidegate.config import Operation
from tidegate.errors import ConfigError
from tidegate.gate import RuleSet
from tidegate.policy.environment import CLOCK
from tidegate.policy.subject import KINDS, LISTS, TEXTS
from tidegate.session import Subject

TLS: Final = {"version": "TLSv1.3", "cipher": "TLS_AES_256_GCM_SHA384"}
"""Of a connection to a listener with TLS."""
_OF_THE_MESSAGE: Final = ("topic", "levels", "qos", "retain", "size", "payload", "properties", "scores")


class Overrides:
    """Attributes to assume, sorted by what they are of."""

    def __init__(self, written: Mapping[str, Any], action: Operation) -> None:
        self.s: dict[str, Any] = {}
        self.p: dict[str, Any] = {}
        self.e: dict[str, Any] = {}
        self.around: dict[str, Any] = {}  # of the publisher
        self.time: float | None = None
        self.category: str | None = None
        for path, value in written.items():
            self._take(path, value, action)

    def _take(self, path: str, value: Any, action: Operation) -> None:
        root, *names = path.split(".")
        if not names or not all(name.isidentifier() for name in names):
            raise ConfigError(f"`{path}` is no attribute; write for example `s.level` or `e.location`")
        if root == "p" and action is not Operation.READ:
            raise ConfigError(f"`{path}`: nobody else has published anything here; set an attribute of `s`")
        match root, names:
            case "s", _:
                _put(self.s, names, value)
            case "e", [name, *_]:
                _put(self.e, _not_clock(path, name, names), value)
            case "p", ["e", name, *_]:
                _put(self.around, _not_clock(path, name, names[1:]), value)
            case "p", ["time"]:
                self.time = _seconds(path, value)
            case "p", ["floor" | "topic" | "qos" | "size"]:
                raise ConfigError(f"`{path}` comes from the message and from `p.level`; set those")
            case "p", _:
                _put(self.p, names, value)
            case "o", ["category"] if isinstance(value, str) and action is not Operation.SUBSCRIBE:
                self.category = value
            case "o", [name, *_] if name in _OF_THE_MESSAGE:
                raise ConfigError(f"`{path}` comes from the message; give the message otherwise")
            case _:
                raise ConfigError(f"`{path}` cannot be overridden; write for example `s.level` or `e.location`")


def _not_clock(path: str, name: str, names: list[str]) -> list[str]:
    if name in CLOCK:
        remedy = "set `p.time`" if path.startswith("p") else "say when with `at`"
        raise ConfigError(f"`{path}` is the clock's; {remedy}")
    return names


def _seconds(path: str, value: Any) -> float:
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        moment = None
    if moment is None or moment.tzinfo is None:
        raise ConfigError(f"`{path}` is a time with its zone; write for example `2026-03-02T09:30:00Z`")
    return moment.timestamp()


def _put(into: dict[str, Any], names: list[str], value: Any) -> None:
    *above, last = names
    for name in above:
        below = into.get(name)
        if not isinstance(below, dict):
            below = into[name] = {}
        into = below
    into[last] = value


def merged(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """What is new, and below it what stays of the old."""
    return {
        name: {**old[name], **merged(old[name], value)}
        if isinstance(value, dict) and isinstance(old.get(name), Mapping)
        else value
        for name, value in new.items()
    }


def tls_of(overrides: Mapping[str, Any], root: str) -> dict[str, str]:
    tls = overrides.get("tls", {})
    if not isinstance(tls, Mapping) or not tls.keys() <= TLS.keys():
        raise ConfigError(f"`{root}.tls` has `version` and `cipher`; set `{root}.tls.version`")
    return {name: _text(f"{root}.tls.{name}", value) for name, value in tls.items()}


def apply_overrides(subject: Subject, overrides: Mapping[str, Any], rules: RuleSet, root: str) -> Subject:
    """The subject with other attributes; built-in ones have their types."""
    fields: dict[str, Any] = {}
    attributes: dict[str, Any] = {}
    for name, value in overrides.items():
        path = f"{root}.{name}"
        if name in TEXTS:
            fields[name] = _text(path, value)
        elif name in LISTS:
            fields[name] = _texts(path, value)
        elif name == "tls":
            fields["tls"] = {**subject.tls, **tls_of(overrides, root)}
        elif name != "role":
            attributes[name] = value
    if "role" in overrides:
        first = _text(f"{root}.role", overrides["role"])
        fields["roles"] = (first, *(role for role in fields.get("roles", subject.roles) if role != first))
    if fields.get("kind", subject.kind) not in KINDS:
        raise ConfigError(f"`{root}.kind` is one of {', '.join(sorted(KINDS))}")
    level = fields.get("level", subject.level)
    if rules.levels.rank(level) is None:
        raise ConfigError(f"`{level}` is no level here; write one of {', '.join(rules.levels.order)}")
    if attributes:
        fields["attributes"] = {**subject.attributes, **merged(subject.attributes, attributes)}
    return replace(subject, **fields)


def _text(path: str, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ConfigError(f"`{path}` is a text; put it in quotes")
    return str(value)


def _texts(path: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
        raise ConfigError(f'`{path}` is a list of texts; write for example `["coach"]`')
    return tuple(value)
