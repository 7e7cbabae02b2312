"""What monitors are learned from: the order of events, how many came how fast, and numbers in payloads; all bounded.

It is fed one message after the other, in the order of the record, and holds at most so many events, clients and fields.
What does not fit is counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

EVENTS: Final = 100_000
"""Events of a scope whose order is known: the first ones."""
CLIENTS: Final = 20_000
FIELDS: Final = 50_000
_LARGEST: Final = 1e15
WHOLE: Final = ""
"""The name of a field that is the whole payload."""
PACES: Final = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)
"""Events a second of which it is known how many come at once beyond them."""


@dataclass(slots=True)
class Pace:
    """How fast one client publishes: for each of `PACES` how full a bucket became that drains so fast."""

    count: int = 0
    at: float = 0.0
    levels: list[float] = field(default_factory=lambda: [0.0] * len(PACES))
    peaks: list[float] = field(default_factory=lambda: [0.0] * len(PACES))

    def add(self, at: float) -> None:
        passed = max(0.0, at - self.at) if self.count else 0.0
        self.at = max(self.at, at)
        self.count += 1
        for number, pace in enumerate(PACES):
            level = max(0.0, self.levels[number] - pace * passed) + 1.0
            self.levels[number] = level
            self.peaks[number] = max(self.peaks[number], level)


@dataclass(slots=True)
class Numbers:
    """One field of the payloads of one topic."""

    count: int = 0
    low: float = 0.0
    high: float = 0.0
    whole: bool = True
    """Whether all are integers."""
    others: int = 0
    """How often it was no number."""

    def add(self, value: object) -> None:
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= _LARGEST:
            self.others += 1
            return
        self.low = min(self.low, value) if self.count else value
        self.high = max(self.high, value) if self.count else value
        self.count += 1
        self.whole = self.whole and isinstance(value, int)


@dataclass(slots=True)
class Scene:
    """One scope."""

    order: list[str] = field(default_factory=list)
    cut: int = 0
    """Events whose order was not kept."""
    paces: dict[tuple[str | None, str], Pace] = field(default_factory=dict)
    fields: dict[tuple[str, str], Numbers] = field(default_factory=dict)
    messages: dict[str, int] = field(default_factory=dict)
    """Messages by topic whose payload was known."""
    left_out: int = 0


@dataclass(slots=True)
class Observed:
    scopes: dict[str, Scene] = field(default_factory=dict)

    def add(self, scope: str, who: tuple[str | None, str], topic: str, at: float, payload: Any, known: bool) -> None:
        """`payload` is what the JSON of it says, if it was recorded and is JSON (`known`)."""
        scene = self.scopes.setdefault(scope, Scene())
        if len(scene.order) < EVENTS:
            scene.order.append(topic)
        else:
            scene.cut += 1
        pace = scene.paces.get(who)
        if pace is None:
            if len(scene.paces) >= CLIENTS:
                scene.left_out += 1
                return
            pace = scene.paces[who] = Pace()
        pace.add(at)
        if not known:
            return
        if topic not in scene.messages and len(scene.messages) >= FIELDS:
            scene.left_out += 1
            return
        scene.messages[topic] = scene.messages.get(topic, 0) + 1
        values: Mapping[str, Any] = payload if isinstance(payload, dict) else {WHOLE: payload}
        for name, value in list(values.items())[:50]:
            numbers = scene.fields.get((topic, name))
            if numbers is None:
                if len(scene.fields) >= FIELDS:
                    scene.left_out += 1
                    continue
                numbers = scene.fields[topic, name] = Numbers()
            numbers.add(value)
