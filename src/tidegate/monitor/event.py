"""What a monitor sees: one event, which is a message on its way over a link, or a tick of its timer.

Two events are equal if what would be sent is equal. Time and scene are circumstances and do not count.

What it will not do: check itself. An event is made for every monitored message; what a monitor puts out is checked
by `machine.checked`.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Final, TypeAlias

State: TypeAlias = Any
"""What a monitor remembers: anything that survives JSON unchanged. Of a finite automaton, a text."""

NO_SCENE: Final[Mapping[str, Any]] = MappingProxyType({})


class Event:
    """A message on its way over a link, or a tick."""

    __slots__ = ("is_tick", "overheard", "payload", "qos", "retain", "scene", "time", "topic")

    def __init__(
        self,
        topic: str,
        payload: bytes,
        qos: int = 0,
        retain: bool = False,
        time: float = 0.0,
        scene: Mapping[str, Any] = NO_SCENE,
        overheard: bool = False,
    ) -> None:
        self.topic = topic
        self.is_tick = not topic
        """Whether it is no message, but the timer."""
        self.payload = payload
        self.qos = qos
        self.retain = retain
        self.time = time
        """Seconds on a steady clock: it never jumps while the node runs, and goes on over a restart."""
        self.scene = scene
        """The roots `s`, `o`, `e` and `p` that conditions read. Not content."""
        self.overheard = overheard
        """Nobody behind the link has subscribed to it: it is not sent, whatever becomes of it."""

    @classmethod
    def tick(cls, time: float) -> Event:
        """The event that a machine gets when it is due. No message has an empty topic."""
        return cls("", b"", time=time)

    def changed(
        self,
        *,
        topic: str | None = None,
        payload: bytes | None = None,
        qos: int | None = None,
        retain: bool | None = None,
    ) -> Event:
        """Another event at the same time in the same scene; what is not given stays as it is."""
        return Event(
            self.topic if topic is None else topic,
            self.payload if payload is None else payload,
            self.qos if qos is None else qos,
            self.retain if retain is None else retain,
            self.time,
            self.scene,
            self.overheard,
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Event):
            return NotImplemented
        return _content(self) == _content(other)

    def __hash__(self) -> int:
        return hash(_content(self))

    def __repr__(self) -> str:
        if self.is_tick:
            return f"Event.tick({self.time!r})"
        return f"Event({self.topic!r}, {self.payload!r}, {self.qos}, {self.retain})"


_content = attrgetter("topic", "payload", "qos", "retain")
