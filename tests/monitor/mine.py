"""Monitors as an administrator writes them, good and bad."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tidegate.monitor import Event


class Counting:
    """Lets a number of events pass, and says when it stops. It changes the state it is given, which is its own."""

    def __init__(self, most: int = 3) -> None:
        self.most = most

    def start(self) -> dict[str, Any]:
        return {"seen": []}

    def step(self, state: dict[str, Any], event: Event) -> tuple[dict[str, Any], Sequence[Event]]:
        if event.is_tick or len(state["seen"]) > self.most:
            return state, []
        state["seen"].append(event.topic)
        if len(state["seen"]) > self.most:
            return state, [Event("full", b"", 1)]
        return state, [event]


class Scripted:
    """Returns, or raises, what a test wants; the state is how often it was asked."""

    def __init__(self, answer: Any = ()) -> None:
        self.answer = answer

    def start(self) -> int:
        return 0

    def step(self, state: int, event: Event) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer(state, event) if callable(self.answer) else (state + 1, self.answer)


class Remembering:
    """Remembers the content of the last event, whatever that is."""

    def start(self) -> Any:
        return None

    def step(self, state: Any, event: Event) -> tuple[Any, Sequence[Event]]:
        return json.loads(event.payload), [event]


class Complaining:
    """Fails, and says why in the words of the event, which may be no text."""

    def start(self) -> None:
        return None

    def step(self, state: None, event: Event) -> tuple[None, Sequence[Event]]:
        raise ValueError(event.payload.decode(errors="surrogateescape"))


class NoStep:
    def start(self) -> int:
        return 0


class BadStart:
    def start(self) -> Any:
        return {1: 2}

    def step(self, state: Any, event: Event) -> Any:
        return state, [event]


class BrokenStart(BadStart):
    def start(self) -> Any:
        raise OSError("no disk")


NOT_A_CLASS = 5
