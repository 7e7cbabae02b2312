"""What an administrator forbids or requires: `client:MD -> scope:internet` (semantics, *Flows*).

An assertion speaks of routes unless it says `paths`. A forbidden flow that is possible is shown with its route. A
required one that is not possible is named, with those ends that are not in the graph: nobody reaches a client that is
not connected, and whoever asks decides whether that is a fault.

Where an end is a scope the flow is to or from that scope, whoever is connected to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final, assert_never

from tidegate.errors import ConfigError
from tidegate.flow.graph import KINDS, ConnectionGraph, entity
from tidegate.flow.route import Route, shortest

# names of clients may hold arrows: one counts only where the name of an entity follows
_ARROW: Final = re.compile(rf"\s*->\s*(?={'|'.join(KINDS)})")


class Expect(Enum):
    FORBID = "forbid"
    REQUIRE = "require"


@dataclass(frozen=True, slots=True, kw_only=True)
class Assertion:
    """A flow that must not be, or must be."""

    source: str
    target: str
    expect: Expect
    paths: bool = False
    """Whether devices on the way count, which tell what they have read."""

    @classmethod
    def parse(cls, text: str, expect: Expect, *, paths: bool = False) -> Assertion:
        """From `client:MD -> scope:internet`."""
        match _ARROW.split(text.strip()):
            case [source, target]:
                return cls(source=entity(source), target=entity(target), expect=expect, paths=paths)
            case [_]:
                raise ConfigError(f"`{text}` is no flow: write it as in `client:MD -> scope:internet`")
            case _:
                raise ConfigError(f"`{text}` has more than two ends: write one flow for each two of them")

    def absent(self, graph: ConnectionGraph) -> tuple[str, ...]:
        """Its ends that are not in the graph."""
        return tuple(name for name in dict.fromkeys((self.source, self.target)) if name not in graph)

    def violation(self, graph: ConnectionGraph) -> Violation | None:
        """How a graph is against it; None if it is not."""
        route = shortest(graph, self.source, self.target, paths=self.paths)
        match self.expect:
            case Expect.FORBID:
                return None if route is None else Violation(self, route)
            case Expect.REQUIRE:
                return None if route is not None else Violation(self, absent=self.absent(graph))
            case _:
                assert_never(self.expect)

    def __str__(self) -> str:
        return f"{self.source} -> {self.target}"


@dataclass(frozen=True, slots=True)
class Violation:
    """An assertion that does not hold."""

    assertion: Assertion
    route: Route | None = None
    """Of a forbidden flow: a shortest one by which it is possible."""
    absent: tuple[str, ...] = ()
    """Of a required flow: its ends that are not there."""

    def __str__(self) -> str:
        by = "path" if self.assertion.paths else "route"
        if self.route is not None:
            return f"`{self.assertion}` is forbidden, and there is the {by} {self.route}"
        why = f": {' and '.join(f'`{name}`' for name in self.absent)} not in the graph" if self.absent else ""
        return f"`{self.assertion}` is required, and there is no {by}{why}"


def violations(assertions: Iterable[Assertion], graph: ConnectionGraph) -> list[Violation]:
    return [found for each in assertions if (found := each.violation(graph)) is not None]
