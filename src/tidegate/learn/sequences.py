"""Sequences that always held: a topic that came only after others, in this order, each time anew.

What is proposed is a monitor of the sequence language, `only T after [A, B] reset R`, that would have suppressed
nothing of what was seen. The evidence is the number of times that T came, with no counter-example; the first time
counts, too.

- A sequence must have been there `cases` times, and be no accident: had one of its steps come at random as often as it
  did, it would have been in its place each time with a chance of at most `chance`.
- The longest chain of at most `LONGEST` steps is proposed. `reset` is a topic that came while the chain was under way,
  twice at least, and after which T never came without the whole chain anew.
- Of a scope as many topics are looked at as `ALPHABET`, those that came most often but for the most frequent ones that
  are no steps of anything.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

LONGEST: Final = 3
ALPHABET: Final = 64
RESETS: Final = 2
_TRIED: Final = 1000
_MOST: Final = 20
"""Sequences that are proposed for one scope."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSequence:
    only: str
    after: tuple[str, ...]
    reset: str | None
    cases: int
    resets: int
    """How often what resets came while the chain was under way."""


def find_sequences(topics: Sequence[str], *, cases: int = 5, chance: float = 0.15) -> list[FoundSequence]:
    """Of the events of one scope, in their order."""
    counts = Counter(topics)
    alphabet = [topic for topic, count in counts.most_common() if count >= 2][:ALPHABET]
    wanted = [topic for topic in alphabet if counts[topic] >= cases]
    known = set(alphabet)
    events = [topic for topic in topics if topic in known]
    before = _always_before(events, wanted)
    found: list[FoundSequence] = []
    for only in wanted:
        times = counts[only]
        steps = sorted(before[only])
        last = [step for step in steps if _by_accident(counts[step] / times, times) <= chance]
        ahead = [step for step in steps if _ahead_by_accident(counts[step] / times, times) <= chance]
        chain = _longest(events, only, last, ahead)
        if chain:
            reset, interrupted = _reset(events, only, chain, alphabet)
            found.append(FoundSequence(only=only, after=chain, reset=reset, cases=times, resets=interrupted))
    return sorted(found, key=lambda each: (-len(each.after), -each.cases, each.only))[:_MOST]


def _by_accident(ratio: float, cases: int) -> float:
    """The chance that something so much more frequent came at least once between all of them, had it come at random."""
    return float((1.0 - math.exp(-ratio)) ** cases)


def _ahead_by_accident(ratio: float, cases: int) -> float:
    """The chance that it came so each time before another thing that came in between, at random, too."""
    return float((1.0 - (1.0 - math.exp(-ratio)) / ratio) ** cases)


def _always_before(events: Sequence[str], wanted: Iterable[str]) -> dict[str, set[str]]:
    """For each topic what has come each time since the last time."""
    latest: dict[str, int] = {}
    mine: dict[str, int] = dict.fromkeys(wanted, -1)
    common: dict[str, set[str] | None] = dict.fromkeys(mine)
    for at, topic in enumerate(events):
        if topic in mine:
            since = mine[topic]
            known = common[topic]
            if known is None:
                common[topic] = {each for each, when in latest.items() if when > since and each != topic}
            elif known:
                common[topic] = {each for each in known if latest[each] > since}
            mine[topic] = at
        latest[topic] = at
    return {topic: each or set() for topic, each in common.items()}


def _longest(events: Sequence[str], only: str, last: Iterable[str], ahead: Sequence[str]) -> tuple[str, ...]:
    """The longest chain that held each time, which ends in one of `last`; of several the first by name."""
    chains: list[tuple[str, ...]] = [(step,) for step in sorted(last)]
    chains = [chain for chain in chains if _holds(events, only, chain)]
    best = chains[0] if chains else ()
    while chains and len(chains[0]) < LONGEST:
        longer = [(step, *chain) for chain in chains for step in ahead if step not in chain]
        chains = [chain for chain in longer[:_TRIED] if _holds(events, only, chain)]
        best = chains[0] if chains else best
    return best


def _holds(events: Sequence[str], only: str, chain: tuple[str, ...], reset: str | None = None) -> bool:
    state = 0
    for topic in events:
        if topic == only:
            if state < len(chain):
                return False
            state = 0
        elif topic == reset:
            state = 0
        elif state < len(chain) and topic == chain[state]:
            state += 1
    return True


def _reset(events: Sequence[str], only: str, chain: tuple[str, ...], alphabet: Iterable[str]) -> tuple[str | None, int]:
    """What makes the chain begin anew: of those that are possible, that which came most often in its midst."""
    best: tuple[int, str | None] = (RESETS - 1, None)
    for reset in alphabet:
        if reset == only or reset in chain:
            continue
        times = _interrupts(events, only, chain, reset)
        if times > best[0] and _holds(events, only, chain, reset):
            best = times, reset
    return best[1], best[0] if best[1] is not None else 0


def _interrupts(events: Sequence[str], only: str, chain: tuple[str, ...], reset: str) -> int:
    state = times = 0
    for topic in events:
        if topic == only:
            state = 0
        elif topic == reset:
            times += state > 0
            state = 0
        elif state < len(chain) and topic == chain[state]:
            state += 1
    return times
