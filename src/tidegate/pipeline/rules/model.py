"""What the rules say: how payloads become records, how records are scored, and where they go. Values only."""

from __future__ import annotations

from collections.abc import Mapping as Entries
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from tidegate.policy.pointers import Pointer


class Kind(StrEnum):
    """What a value is in JSON. Nothing is taken for something else: `"21.5"` is a text."""

    NUMBER = "number"
    TEXT = "text"
    BOOLEAN = "boolean"


class Form(StrEnum):
    """How a time is written: as ISO 8601, or as a number since 1970 of seconds, milli- or microseconds."""

    ISO = "iso"
    S = "s"
    MS = "ms"
    US = "us"


@dataclass(frozen=True, slots=True, kw_only=True)
class Time:
    """Where in an element the time stands, and how."""

    at: Pointer
    form: Form = Form.ISO


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """What makes a record of each element."""

    name: str
    at: Pointer
    kind: Kind = Kind.NUMBER
    unit: str | None = None
    """As it is sent."""
    to: str | None = None
    """As it is recorded, if that is another unit of the same quantity."""
    required: bool = True
    """An element without it is faulty; otherwise it only has no such record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapping:
    """How the payloads of some messages become records."""

    id: str
    types: tuple[str, ...] = ()
    """Types of registered sources; none: of any, registered or not."""
    topic: str | None = None
    """A topic filter; None: any topic, or none."""
    schema: str
    becomes: str | None = None
    """The type of the records (`as`); None: that of the source, or else the id."""
    records: Pointer = ()
    """Leads to the element, or to an array of them."""
    source: Pointer | None = None
    time: Time | None = None
    values: tuple[Value, ...]
    keep: tuple[Pointer, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """A check that counts in a dimension."""

    id: str
    dimension: str
    weight: float = 1.0
    filter: str | None = None
    """A condition on records; None: all."""
    check: str
    args: Entries[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Under which topic records are published."""

    id: str
    types: tuple[str, ...] = ()
    """Types of records; none: any."""
    filter: str | None = None
    """A condition on records; None: all."""
    topic: str
    """With `{type}`, `{source}`, `{name}`, `{mode}`, `{schema}` in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """All rules that are in force together. In each list the order counts: the first that fits."""

    version_text: str
    """12 hexadecimal digits; the same for the same rules, however they are written."""
    sources: tuple[Mapping, ...] = ()
    scores: tuple[Score, ...] = ()
    topics: tuple[Target, ...] = ()
