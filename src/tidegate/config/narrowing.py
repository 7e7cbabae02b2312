"""Whether a change of views, monitors and links only narrows: after it nobody is shown anything that was hidden before.

That is what operators may do. It is decided by what is in force and what would be, without a message:

Views. Rows of one topic that apply to somebody unite, and a topic without rows is seen whole. So
- a new row narrows where there was none for any of its topics, or where one row, for all of its topics and all of its
  subjects, kept as much before;
- a row that goes narrows if another one remains for all of its topics; where `view_default` is `all`, that one must
  also be for all of its subjects, or the row had kept everything.

Monitors. One that only suppresses puts out the event that came in, unchanged and once, or nothing. So
- a new one narrows if it only suppresses, does not read content (what is suppressed is in the audit, which operators
  read), and does not take the place of one with `default: true`;
- one that is changed narrows if nothing but its bounds is changed, and these only down: fewer topics in `filter`, a
  lower `rate` or `burst`, a longer `dedupe`;
- one that goes never does;
- beside another one that remembers what it has seen, neither does: a door that opens after a key and closes with a lock
  stays open if the lock is suppressed before it.

Links between scopes. What crosses one is read by others behind it, and where it is called otherwise no view may be for
that topic. So one that is new or changed never narrows; one that goes does.

It says no where it cannot tell.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from tidegate import policy, topics
from tidegate.config.monitors import Monitor, pace
from tidegate.config.policies import ViewDefault
from tidegate.config.section import as_tuple

if TYPE_CHECKING:
    from tidegate.config.model import Config

_BOUNDS: Final = ("filter", "rate", "burst", "dedupe")
_CONTENT: Final = (["o", "payload"], ["o", "properties"], ["o", "scores"])


def widening(before: Config, after: Config) -> str | None:
    """The first thing that a change of views, monitors or links shows somebody more by; None: it only narrows."""
    return _wider_views(before, after) or _wider_monitors(before, after) or _wider_links(before, after)


# -- views -------------------------------------------------------------------------------------------------------------


def _wider_views(before: Config, after: Config) -> str | None:
    old, new = (frozenset(config.built.rules.views.rows) for config in (before, after))
    for row in new:
        if row not in old and not _shown_before(row, old):
            return f"the view `{row.id}` shows what was hidden before"
    for row in old:
        if row not in new and not _hidden_after(row, new, open=after.view_default is ViewDefault.ALL):
            return f"without the view `{row.id}` as it is, what it hides is shown"
    return None


def _shown_before(row: policy.Row, old: Iterable[policy.Row]) -> bool:
    overlapping = [each for each in old if topics.overlaps(each.topic, row.topic)]
    return not overlapping or any(
        topics.covers(each.topic, row.topic) and each.subject.covers(row.subject) and row.view & each.view == row.view
        for each in overlapping
    )


def _hidden_after(row: policy.Row, new: Iterable[policy.Row], *, open: bool) -> bool:
    return any(
        topics.covers(each.topic, row.topic) and (not open or row.view.shows_all or each.subject.covers(row.subject))
        for each in new
    )


# -- monitors ----------------------------------------------------------------------------------------------------------


def _wider_monitors(before: Config, after: Config) -> str | None:
    old, new = ({each.id: each for each in config.monitors if each.id is not None} for config in (before, after))
    for id in old.keys() - new.keys():
        return f"without the monitor `{id}`, what it suppresses passes"
    for id, entry in new.items():
        if id not in old:
            if not suppresses(entry):
                return f"the monitor `{id}` does not only suppress: it emits or renames"
            reads = after.built.rules.monitors.by_id[id].monitor.reads
            if any(path == "o" or path.split(".")[:2] in _CONTENT for path in reads):
                return f"what the monitor `{id}` suppresses tells of the content of messages"
            if not entry.default and any(each.default for each in after.monitors):
                return f"where the monitor `{id}` acts, one with `default: true` would not act any more"
        elif entry != old[id] and not _narrower(old[id], entry):
            return f"the monitor `{id}` would not only suppress more than before"
        if entry != old.get(id) and (other := next((each.id for each in after.monitors if _other(each, id)), None)):
            return f"the monitor `{other}` remembers what it sees, and may let more pass if `{id}` lets it see less"
    return None


def _other(entry: Monitor, id: str) -> bool:
    """Whether another monitor has a state that events move."""
    return entry.id != id and entry.filter is None and entry.map is None


def suppresses(entry: Monitor) -> bool:
    """Whether it puts out nothing but the events that come in, unchanged and once."""
    states = {} if entry.automaton is None else entry.automaton.states
    return not entry.makes and all(
        len(as_tuple(each.emit or ())) <= 1 for transitions in states.values() for each in transitions
    )


def _narrower(old: Monitor, new: Monitor) -> bool:
    if not suppresses(old) or any(
        getattr(old, name) != getattr(new, name) for name in Monitor.model_fields if name not in _BOUNDS
    ):
        return False
    if any((getattr(old, name) is None) is not (getattr(new, name) is None) for name in _BOUNDS if name != "burst"):
        return False
    if old.filter is not None and new.filter is not None:
        return all(any(topics.covers(each, inner) for each in old.filter) for inner in new.filter)
    if old.dedupe is not None and new.dedupe is not None and new.dedupe < old.dedupe:
        return False
    return all(less <= more for less, more in zip(_pace(new), _pace(old), strict=True))


def _pace(entry: Monitor) -> tuple[float, int]:
    if entry.rate is None:
        return 0.0, 0
    rate, burst = pace(entry.rate)
    return rate, entry.burst or burst


# -- links -------------------------------------------------------------------------------------------------------------


def _wider_links(before: Config, after: Config) -> str | None:
    for each in after.links:
        if each not in before.links:
            return f"a new or changed link between `{each.source}` and `{each.target}` can show content to others"
    return None
