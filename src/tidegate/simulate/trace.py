"""A run as rows to print: what each rule did. Everything is read off the two states of a step.

Between two steps subscriptions may have changed, which no rule does. They have rows of their own.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, assert_never

from tidegate.monitor import Event
from tidegate.simulate.automata import NamedState
from tidegate.simulate.schema import Annotated, Broker, Entity, Symbol, Transmit
from tidegate.simulate.steps import Rule, State, Step

SUBSCRIBES: Final = "subscribes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    time: int
    rule: str
    link: str
    """The link of the task: that over which the event came."""
    events: str
    """The event on the link, or the sequence that is brokered."""
    state: str = ""
    """Of the link's automaton if it changed: `q0 → q1`; with several monitors, of those that changed, by name."""
    next: tuple[str, ...] = ()
    """The tasks that it generated."""
    heard: tuple[str, ...] = ()
    """The events that a device got."""
    ends: bool = False
    """Whether nothing came of it: suppressed, not subscribed to, or with no link to leave by."""
    then: str = ""
    """What came of it, in a few words."""


def rows(trace: Iterable[Step]) -> list[Row]:
    """A row for each step, and for each change of subscriptions between two."""
    table: list[Row] = []
    was: State | None = None
    for step in trace:
        if was is not None:
            table += _changes(was, step.before)
        table.append(_row(step))
        was = step.after
    return table


def _changes(was: State, now: State) -> Iterator[Row]:
    if was.sub is now.sub:
        return
    for link, subscribed in now.sub.items():
        if was.sub[link] != subscribed:
            filters = ", ".join(getattr(subscribed, "filters", ())) or "nothing"
            yield Row(time=now.t, rule=SUBSCRIBES, link=joint(*link), events=filters)


def _row(step: Step) -> Row:
    before, after, task = step.before, step.after, step.task.task
    link = (task.x, task.y)
    was, now = before.st[link], after.st[link]
    new = sorted(after.wl - before.wl, key=str)
    heard = after.heard[task.y][len(before.heard[task.y]) :] if step.rule is Rule.NOTIFY else ()
    return Row(
        time=before.t,
        rule=step.rule.value,
        link=joint(*link),
        events=_sequence(task),
        state="" if was == now else _states(was, now),
        next=tuple(_task(each) for each in new),
        heard=tuple(written(symbol) for _, symbol in heard),
        ends=not new and not heard,
        then=_then(step, new, [written(symbol) for _, symbol in heard]),
    )


def _then(step: Step, new: Sequence[Annotated], heard: Sequence[str]) -> str:
    task = step.task.task
    match step.rule:
        case Rule.PUBLISH:
            return ""
        case Rule.NOTIFY:
            return f"heard: {', '.join(heard)}" if heard else "not heard"
        case Rule.DELIVER:
            assert isinstance(task, Transmit)
            passed = [each.task.w for each in new if isinstance(each.task, Broker)]
            if not passed:
                return "suppressed"
            return "passes" if passed == [(task.a,)] else f"becomes {', '.join(map(written, passed[0]))}"
        case Rule.BROKER:
            targets = sorted(each.task.y for each in new if isinstance(each.task, Transmit))
            return f"to {', '.join(map(short, targets))}" if targets else "to nobody"
        case _:
            assert_never(step.rule)


def written(symbol: Symbol) -> str:
    """An event as people write it: its topic, and its payload if there is one."""
    if isinstance(symbol, Event):
        return f"{symbol.topic} {symbol.payload.decode(errors='replace')}".rstrip()
    return str(symbol)


def _sequence(task: Transmit | Broker) -> str:
    return ", ".join(map(written, task.w)) if isinstance(task, Broker) else written(task.a)


def _task(one: Annotated) -> str:
    kind = "broker" if isinstance(one.task, Broker) else "transmit"
    return f"{kind}({short(one.task.x)}, {short(one.task.y)}, {_sequence(one.task)})"


def joint(x: Entity, y: Entity) -> str:
    return f"{short(x)} -> {short(y)}"


def short(name: Entity) -> str:
    """A scope by its bare name, as in a configuration."""
    return name.removeprefix("scope:")


def _states(was: Hashable, now: Hashable) -> str:
    if not isinstance(was, tuple) or not isinstance(now, tuple) or not all(isinstance(one, NamedState) for one in was):
        return f"{was} → {now}"
    pairs = zip(was, now, strict=True)
    return ", ".join(f"{one.id}: {_shown(one.state)} → {_shown(two.state)}" for one, two in pairs if one != two)


def _shown(state: str) -> str:
    """A state that is a text, without the quotes of JSON."""
    value = json.loads(state)
    return value if isinstance(value, str) else state
