"""Small ready monitors: `filter` and `map`, and the four of the seed's measurements (scopes, 3.4.2 and 5.1).

- `Filter`: only what matches passes.
- `Mapper`: topics are renamed by the first pattern that matches; `+` and `#` are carried over by position.
- `Complex`: renamed, and the payload is replaced by printable characters of the same length.
- `Alternate`: every other event is suppressed, whatever its topic.
- `Twice`: every event is put out twice.

`simple_em` is `Mapper`, `complex_em` `Complex`, `hsup_em` `Alternate`, `multi_em` `Twice`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Mapping, Sequence
from typing import Final

from tidegate import topics
from tidegate.bounded import Bounded
from tidegate.monitor.event import Event, State
from tidegate.monitor.machine import NOT_FINITE, ONLY, Edge, Graph, Machine, MonitorFailed
from tidegate.monitor.matching import matcher

_ONE_STATE: Final[frozenset[Hashable]] = frozenset((ONLY,))
# 95 characters for 256 bytes: some come three times, some twice, as with any generator of bytes
_PRINTABLE: Final = bytes(0x20 + byte * 95 // 256 for byte in range(256))
_KNOWN: Final = 1000
"""Topics whose new names are remembered."""
_SEEDS: Final = 1 << 53
"""As many as JSON keeps exactly everywhere."""


class _Stateless(Machine):
    """What machines without a memory have in common."""

    __slots__ = ()

    remembers = False

    def start(self) -> State:
        return ONLY

    def accepts(self, state: State) -> bool:
        return isinstance(state, str) and state == ONLY

    def calm(self, topic: str) -> frozenset[Hashable]:
        return NOT_FINITE if self.hears(topic) else _ONE_STATE


class Filter(_Stateless):
    """Only what matches passes."""

    __slots__ = ("_filters", "_matches")

    def __init__(self, filters: Sequence[str]) -> None:
        self._filters = tuple(filters)
        self._matches = matcher(self._filters)

    def step(self, state: State, event: Event) -> tuple[State, tuple[Event, ...]]:
        return state, (event,) if not event.is_tick and self._matches(event.topic) else ()

    def hears(self, topic: str) -> bool:
        return not self._matches(topic)

    def graph(self) -> Graph:
        return _loops(*(f"{each} → same" for each in self._filters), "everything else → nothing")


class _Renaming:
    """One entry of a map."""

    __slots__ = ("_levels", "_wanted", "matches")

    def __init__(self, old: str, new: str) -> None:
        self.matches = matcher((old,))
        self._wanted = [at for at, level in enumerate(old.split("/")) if level in ("+", "#")]
        self._levels = new.split("/")

    def of(self, topic: str) -> str:
        levels = topic.split("/")
        at = iter(self._wanted)
        renamed: list[str] = []
        for level in self._levels:
            match level:
                case "+":
                    renamed.append(levels[next(at)])
                case "#":
                    renamed += levels[next(at) :]
                case _:
                    renamed.append(level)
        return "/".join(renamed)


class Names:
    """A map of topics: the first pattern that matches renames."""

    __slots__ = ("_known", "_renamings", "_written")

    def __init__(self, entries: Mapping[str, str]) -> None:
        self._written = dict(entries)
        self._known: Bounded[str, str] = Bounded(_KNOWN, self._rename)  # what was asked before
        self._renamings = tuple(_Renaming(old, new) for old, new in entries.items())

    @property
    def patterns(self) -> tuple[str, ...]:
        return tuple(self._written)

    def touches(self, topic: str) -> bool:
        """Whether a pattern matches."""
        return any(each.matches(topic) for each in self._renamings)

    def renamed(self, topic: str) -> str:
        """The new name. Raises `MonitorFailed` if that is none."""
        return self._known[topic]

    def _rename(self, topic: str) -> str:
        for each in self._renamings:
            if each.matches(topic):
                new = each.of(topic)
                if new != topic and (not topics.valid_topic(new) or new[0] == "$"):
                    raise MonitorFailed(f"`{topic[:100]}` would be renamed to `{new[:100]}`, which is no topic to use")
                return new
        return topic

    def labels(self) -> list[str]:
        """For a drawing."""
        return [f"{old} → {new}" for old, new in self._written.items()]


def unlike(old: str, new: str) -> str | None:
    """Why the wildcards of a pattern cannot be carried over to a new name, if they cannot."""
    for wildcard in "+#":
        if old.split("/").count(wildcard) != new.split("/").count(wildcard):
            return f"`{old}` and `{new}` do not have the same number of `{wildcard}`"
    return None


class Mapper(_Stateless):
    """Renames topics."""

    __slots__ = ("_names", "heard")

    overhears = True

    def __init__(self, names: Names) -> None:
        self._names = names
        self.heard = names.patterns

    def step(self, state: State, event: Event) -> tuple[State, tuple[Event, ...]]:
        if event.is_tick:
            return state, ()
        topic = self._names.renamed(event.topic)
        return state, (event if topic == event.topic else event.changed(topic=topic),)

    def hears(self, topic: str) -> bool:
        return self._names.touches(topic)

    def graph(self) -> Graph:
        return _loops(*self._names.labels())


class Complex(Machine):
    """Renames topics and replaces payloads. The state is the seed of the next one."""

    __slots__ = ("_names",)

    overhears = True
    remembers = False  # it tells no more than how many events there were

    def __init__(self, names: Names) -> None:
        self._names = names

    def start(self) -> State:
        return 0

    def step(self, state: State, event: Event) -> tuple[State, tuple[Event, ...]]:
        if event.is_tick:
            return state, ()
        drawn = hashlib.shake_128(state.to_bytes(8)).digest(len(event.payload)).translate(_PRINTABLE)
        return (state + 1) % _SEEDS, (event.changed(topic=self._names.renamed(event.topic), payload=drawn),)

    def accepts(self, state: State) -> bool:
        return type(state) is int and 0 <= state < _SEEDS

    def graph(self) -> Graph:
        return _loops(*self._names.labels(), "everything → same with a random payload")


class Alternate(Machine):
    """Suppresses every other event."""

    __slots__ = ()

    def start(self) -> State:
        return "allow"

    def step(self, state: State, event: Event) -> tuple[State, tuple[Event, ...]]:
        if event.is_tick:
            return state, ()
        return ("suppress", (event,)) if state == "allow" else ("allow", ())

    def accepts(self, state: State) -> bool:
        return isinstance(state, str) and state in ("allow", "suppress")

    def graph(self) -> Graph:
        edges = (
            Edge(source="allow", target="suppress", label="everything → same"),
            Edge(source="suppress", target="allow", label="everything → nothing"),
        )
        return Graph(start="allow", states=("allow", "suppress"), edges=edges)


class Twice(_Stateless):
    """Puts every event out twice; the second one is new."""

    __slots__ = ()

    def step(self, state: State, event: Event) -> tuple[State, tuple[Event, ...]]:
        return state, () if event.is_tick else (event, event.changed())

    def graph(self) -> Graph:
        return _loops("everything → same, same")


def _loops(*labels: str) -> Graph:
    return Graph(
        start=ONLY, states=(ONLY,), edges=tuple(Edge(source=ONLY, target=ONLY, label=label) for label in labels)
    )
