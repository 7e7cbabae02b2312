"""How long an answer holds when nothing moves but the clock.

An answer changes only when something does that the predicate reads. Of the clock that is known exactly for

- `e.hour`, `e.minute`, `e.weekday`, `e.date`, which are those of `e.now`: their next value;
- `within(e.now, <constant>)`, also with a constant zone: the next edge of a window;
- `e.now` in order or equality with a constant timestamp: that timestamp;
- `e.now.getHours()` and its like down to minutes, also with a constant zone: their next value.

The clocks of a zone may be put forward or back, which moves an edge, skips a window or repeats it; all of that is
seen by looking at the zone hour by hour (no zone changes its clocks twice within a day). Everything else that reads
the clock, or calls a function that may answer otherwise without being asked otherwise, holds for this instant only:
`age()`, arithmetic with `e.now`, windows not known yet. So does what reads `p.time` or `p.e`, which are the clock of
the moment of publishing and another with every message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cached_property
from typing import Any, Final

from tidegate.predicate import times
from tidegate.predicate.failure import CelError, PredicateFailed
from tidegate.predicate.functions import FUNCTIONS, OPERATORS
from tidegate.predicate.partial import fold
from tidegate.predicate.syntax import Attr, Call, Const, Has, Node, children
from tidegate.predicate.types import UNKNOWN, Kind, kind
from tidegate.predicate.values import instant
from tidegate.predicate.work import Work

MOVING: Final = {"e": frozenset(("now", "hour", "minute", "weekday", "date")), "p": frozenset(("time", "e"))}
"""What of each root moves with the clock."""

_TICK: Final = timedelta(microseconds=1)
_HOUR: Final = timedelta(hours=1)
_STEPS: Final = 64
"""Edges looked at for a change. One comes within three, but for months and years: there the last one is the answer."""

_MIDNIGHT: Final = (0,)
_HOURS: Final = range(0, 1440, 60)
_MINUTES: Final = range(1440)

Value = Callable[[datetime], object]
"""Something that the clock of a zone shows."""

_ATTRIBUTES: Final[Mapping[str, tuple[Sequence[int], Value]]] = {
    "hour": (_HOURS, lambda local: local.hour),
    "minute": (_MINUTES, lambda local: local.minute),
    "weekday": (_MIDNIGHT, lambda local: local.weekday()),
    "date": (_MIDNIGHT, lambda local: local.date()),
}
"""By attribute: the minutes of the day at which it may change, and what it is."""

_ACCESSORS: Final[Mapping[str, Sequence[int]]] = {
    "getFullYear": _MIDNIGHT,
    "getMonth": _MIDNIGHT,
    "getDate": _MIDNIGHT,
    "getDayOfMonth": _MIDNIGHT,
    "getDayOfWeek": _MIDNIGHT,
    "getDayOfYear": _MIDNIGHT,
    "getHours": _HOURS,
    "getMinutes": _MINUTES,
}

_MIRRORED: Final = {"_<_": "_>_", "_<=_": "_>=_", "_>_": "_<_", "_>=_": "_<=_", "_==_": "_==_", "_!=_": "_!=_"}


class _Stopped:
    """A root in which what moves with the clock is unknown."""

    def __init__(self, attributes: Any, moving: frozenset[str]) -> None:
        self.attributes = attributes
        self.moving = moving

    def __getitem__(self, name: str) -> object:
        value: object = self.attributes[name]
        return UNKNOWN if name in self.moving else value


def until(node: Node, env: Mapping[str, Any], work: Work) -> datetime | None:
    """The first instant after `e.now` at which the answer may be another, in UTC.

    None if there is none, `e.now` itself if nothing can be said about any later instant.
    """
    stopped = dict(env)
    for root, moving in MOVING.items():
        if stopped.get(root, UNKNOWN) is not UNKNOWN:
            stopped[root] = _Stopped(stopped[root], moving)
    clock = _Clock(env)
    first: datetime | None = None
    for change in clock.changes(fold(node, stopped, work)):
        if first is None or change < first:
            first = change
        if first == clock.now:
            break
    return first


class _Clock:
    """The clock at one instant, looking ahead."""

    def __init__(self, env: Mapping[str, Any]) -> None:
        self.env = env

    @cached_property
    def local(self) -> datetime:
        try:
            now: Any = self.env["e"]["now"]
        except Exception as error:
            raise PredicateFailed("how long an answer holds depends on e.now, which is not known") from error
        if kind(now) is not Kind.TIMESTAMP:
            raise PredicateFailed("how long an answer holds depends on e.now, which is no timestamp")
        return now  # type: ignore[no-any-return]

    @cached_property
    def now(self) -> datetime:
        return instant(self.local)

    def changes(self, node: Node) -> Iterator[datetime]:
        """For everything of the clock that a node reads, the next instant at which it may be another."""
        match node:
            case Attr(root="e" | "p"):
                yield from self.attribute(node)
            case Has(operand=Attr(root="e" | "p", path=())):
                pass  # the clock never goes away
            case Call() if node.function.volatile:
                yield self.now
            case Call() if self.known(node):
                try:
                    change = self.call(node)
                except CelError:
                    return  # it fails whatever the time
                except OverflowError:  # the end of the calendar
                    change = self.now
                if change is not None:
                    yield change
            case _:
                for part in children(node):
                    yield from self.changes(part)

    def attribute(self, node: Attr) -> Iterator[datetime]:
        if node.path and node.path[0] not in MOVING[node.root]:
            return
        changing = _ATTRIBUTES.get(node.path[0]) if node.root == "e" and node.path else None
        if changing is None:
            yield self.now
            return
        try:
            yield self.next(*changing, self.local.tzinfo)
        except OverflowError:
            yield self.now

    @staticmethod
    def known(node: Call) -> bool:
        """Whether a call is one of those that are understood: of `e.now` and constants."""
        function, arguments = node.function, node.arguments
        if OPERATORS.get(function.name) is function and function.name in _MIRRORED:
            return any(map(_is_now, arguments)) and any(isinstance(argument, Const) for argument in arguments)
        if FUNCTIONS.get(function.name) is not function or not _is_now(arguments[0]):
            return False
        if function.name != "within" and function.name not in _ACCESSORS:
            return False
        return all(isinstance(argument, Const) for argument in arguments[1:])

    def call(self, node: Call) -> datetime | None:
        name = node.function.name
        constants: list[Any] = [argument.value for argument in node.arguments if isinstance(argument, Const)]
        if name in _MIRRORED:
            return self.compared(name if _is_now(node.arguments[0]) else _MIRRORED[name], constants[0])
        if name == "within":
            return self.window(*constants)
        of_time, _ = times.ACCESSORS[name]
        return self.next(_ACCESSORS[name], of_time, _zone(*constants) or UTC)

    def compared(self, operator: str, constant: Any) -> datetime | None:
        """When `e.now` and a constant will compare otherwise."""
        if kind(constant) is not Kind.TIMESTAMP:
            return None  # never equal, and in no order
        other = instant(constant)
        match operator:
            case "_<_" | "_>=_":
                return other if self.now < other else None
            case "_<=_" | "_>_":
                return other + _TICK if self.now <= other else None
            case _:
                if self.now == other:
                    return other + _TICK
                return other if self.now < other else None

    def window(self, value: Any, where: Any = None) -> datetime | None:
        """When `e.now` will enter or leave."""
        open_at, zone = times.windows(value), _zone(where) or self.local.tzinfo
        if len({times.opens(minute, open_at) for minute in _MINUTES}) == 1:
            return None
        edges = sorted({minute % 1440 for begin_end in open_at for minute in begin_end})
        return self.next(edges, lambda local: times.opens(local.hour * 60 + local.minute, open_at), zone)

    def next(self, edges: Sequence[int], value: Value, zone: tzinfo | None) -> datetime:
        """When the clock of a zone will show another value, which can change at these minutes of the day."""
        at, begin = self.now, value(self.now.astimezone(zone))
        for _ in range(_STEPS):
            at = _edge(at, edges, zone)
            if value(at.astimezone(zone)) != begin:
                break
        return at


def _is_now(node: Node) -> bool:
    return isinstance(node, Attr) and node.root == "e" and node.path == ("now",)


def _zone(where: Any = None) -> tzinfo | None:
    if where is None:
        return None
    if not isinstance(where, str):
        raise CelError("no time zone")
    return times.zone(where)


def _edge(at: datetime, edges: Sequence[int], zone: tzinfo | None) -> datetime:
    """The next instant at which the clock of a zone shows one of these minutes, or is put forward or back."""
    local = at.astimezone(zone)
    minute = local.hour * 60 + local.minute
    ahead = next((edge for edge in edges if edge > minute), edges[0] + 1440) - minute
    end = at + timedelta(minutes=ahead, seconds=-local.second, microseconds=-local.microsecond)
    offset = local.utcoffset()
    while at < end:
        later = min(at + _HOUR, end)
        if later.astimezone(zone).utcoffset() != offset:
            return _put(at, later, zone)
        at = later
    return end


def _put(before: datetime, after: datetime, zone: tzinfo | None) -> datetime:
    """The first instant, after one and not after another, at which the clock of a zone has been put."""
    offset = before.astimezone(zone).utcoffset()
    while after - before > _TICK:
        middle = before + (after - before) // 2
        if middle.astimezone(zone).utcoffset() == offset:
            before = middle
        else:
            after = middle
    return after
