"""What is wrong with an automaton, or doubtful, before it runs.

Each finding is (path below the automaton, text), where the text completes the sentence "`path` ...". Faults make it
unusable: a state that does not exist, one that cannot be reached, a transition that can never be taken. Doubts are
about order: it decides only where filters overlap and neither covers the other. Totality needs no check of its own:
what no transition matches passes.

Where filters are compared, one by one, a few transitions that can never be taken are not found. Those that are found
never can. Only so many filters of one monitor are compared (`COMPARISONS`), and so many doubts told (`TOLD`): whoever
writes a thousand transitions waits a second, not for minutes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, product
from typing import Final

from tidegate import topics
from tidegate.monitor.automaton import Timer, Transition
from tidegate.monitor.sequence import Step

COMPARISONS: Final = 500_000
TOLD: Final = 10

Finding = tuple[tuple[str | int, ...], str]


class _Effort:
    """How many comparisons are left."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = COMPARISONS

    def spend(self, first: Sequence[str], second: Sequence[str]) -> bool:
        """Whether these filters may be compared, each with each."""
        self.left -= len(first) * len(second)
        return self.left >= 0


def automaton_problems(start: str, states: Mapping[str, Sequence[Transition | Timer]]) -> Iterator[Finding]:
    """What makes states and transitions unusable, in the order of the file."""
    if start not in states:
        yield ("start",), f"names the unknown state `{start}`; {_known(states)}"
    missing = False
    effort = _Effort()
    for name, transitions in states.items():
        for index, each in enumerate(transitions):
            if each.go is not None and each.go not in states:
                missing = True
                yield ("states", name, index, "go"), f"names the unknown state `{each.go}`; {_known(states)}"
        yield from _timers(name, transitions)
        yield from _never(name, transitions, effort)
    if start in states and not missing:
        reached = _reached(start, states)
        for name in (each for each in states if each not in reached):
            yield ("states", name), f"cannot be reached from `{start}`; let a transition go there, or remove it"


def automaton_warnings(states: Mapping[str, Sequence[Transition | Timer]]) -> Iterator[Finding]:
    """Pairs of transitions of which the order decides."""
    told = 0
    for name, first, earlier, index, later in _pairs(states, _Effort()):
        if (earlier.go or name, earlier.emit) == (later.go or name, later.emit):
            continue
        pair = _crossing(earlier.on, later.on)
        if pair is None:
            continue
        if told == TOLD:
            yield ("states", name, index), "and others overlap in the same way; make those above narrower first"
            return
        told += 1
        yield (
            ("states", name, index),
            f"and `states.{name}[{first}]` both match some topics (`{pair[1]}` and `{pair[0]}` overlap), "
            "and the first of the two wins; make one narrower, or order them on purpose",
        )


def sequence_problems(only: Step | None, after: Sequence[Step], reset: Step | None) -> Iterator[Finding]:
    """Steps that can never be seen, because `reset` or `only` takes their events."""
    effort = _Effort()
    for index, step in enumerate(after):
        for name, taker in (("reset", reset), ("only", only)):
            if taker is None or taker.when or not effort.spend(step.on, taker.on):
                continue
            if _covered(step.on, taker.on):
                at = ("after", index) if len(after) > 1 else ("after",)
                yield at, f"can never be seen, because `{name}` takes all its events; make one of the two narrower"
                break


def sequence_warnings(only: Step | None, after: Sequence[Step], reset: Step | None) -> Iterator[Finding]:
    """Events that are two things at once."""
    effort = _Effort()
    parts = [("reset", reset), ("only", only), *(("after", step) for step in after)]
    for at, (loser, later) in enumerate(parts):
        for winner, earlier in parts[:at]:
            if winner == loser or earlier is None or later is None or not effort.spend(earlier.on, later.on):
                continue
            pair = next(((f, g) for f, g in product(earlier.on, later.on) if topics.overlaps(f, g)), None)
            if pair is not None:
                yield (
                    (loser,),
                    f"and `{winner}` both match some topics (`{pair[1]}` and `{pair[0]}` overlap), and `{winner}` "
                    "wins; make one of the two narrower",
                )
                break


def _known(states: Mapping[str, object]) -> str:
    more = ", …" if len(states) > TOLD else ""
    return f"there are {', '.join(f'`{name}`' for name in islice(states, TOLD))}{more}"


def _timers(name: str, transitions: Sequence[Transition | Timer]) -> Iterator[Finding]:
    timers = [index for index, each in enumerate(transitions) if isinstance(each, Timer)]
    for index in timers[1:]:
        yield ("states", name, index), f"is a second timer of `{name}`; a state has one, so remove one of the two"


def _never(name: str, transitions: Sequence[Transition | Timer], effort: _Effort) -> Iterator[Finding]:
    reported = -1
    for _, first, earlier, index, each in _pairs({name: transitions}, effort):
        if index == reported or not {when.text for when in earlier.when} <= {when.text for when in each.when}:
            continue
        if _covered(each.on, earlier.on):
            reported = index
            yield (
                ("states", name, index),
                f"can never be taken, because `states.{name}[{first}]` takes all its events; put it first, "
                "or remove it",
            )


def _pairs(
    states: Mapping[str, Sequence[Transition | Timer]], effort: _Effort
) -> Iterator[tuple[str, int, Transition, int, Transition]]:
    """Transitions of the same state with their positions, for each the earlier ones, as far as they are compared."""
    for name, transitions in states.items():
        arrows = [(index, each) for index, each in enumerate(transitions) if isinstance(each, Transition)]
        for at, (index, later) in enumerate(arrows):
            for first, earlier in arrows[:at]:
                if not effort.spend(earlier.on, later.on):
                    return
                yield name, first, earlier, index, later


def _covered(inner: Sequence[str], outer: Sequence[str]) -> bool:
    return all(any(topics.covers(wide, each) for wide in outer) for each in inner)


def _crossing(first: Sequence[str], second: Sequence[str]) -> tuple[str, str] | None:
    """Two filters that overlap, and neither covers the other."""
    overlapping = ((f, g) for f, g in product(first, second) if topics.overlaps(f, g))
    return next(((f, g) for f, g in overlapping if not topics.covers(f, g) and not topics.covers(g, f)), None)


def _reached(start: str, states: Mapping[str, Sequence[Transition | Timer]]) -> set[str]:
    reached, waiting = {start}, [start]
    while waiting:
        for each in states[waiting.pop()]:
            if each.go is not None and each.go not in reached:
                reached.add(each.go)
                waiting.append(each.go)
    return reached
