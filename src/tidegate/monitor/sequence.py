"""The sequence language: `only`, `after`, `reset` and `payload`, and what is made of it.

What it means, event by event, for what has been *seen* since the start:
- An event that matches `reset` passes, and nothing is seen any more.
- Else an event that matches `only` is guarded. It passes if all steps of `after` have been seen and `payload` is true;
  then nothing is seen any more. Otherwise it is suppressed, and what is seen stays.
- Else an event that matches the next step of `after` passes, and that step is seen.
- Every other event passes and changes nothing.

So the steps must come in their order, whatever comes in between, after the last reset and after the last guarded event
that passed. `reset` acts in every state: access that was granted can be withdrawn. Without `only` everything is
guarded, as far as `#` goes. A condition that fails suppresses the event, and what is seen stays.

The automaton has a state for each number of steps that can have been seen, named by these steps. A stored state of
another `after` is therefore not taken for one of this. Where the steps would make a name that is too long, or could be
read as other steps, a digest of them stands in it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tidegate.monitor.automaton import Automaton, Transition
from tidegate.monitor.machine import ONLY
from tidegate.monitor.matching import EVERYTHING
from tidegate.predicate import Predicate

MAX_STEPS: Final = 100
NOTHING_SEEN: Final = "nothing seen"
LONGEST: Final = 200
"""Characters of a state's name that are taken from its steps. It is stored for every link."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Events that count as one thing: those that match a filter and the conditions."""

    on: tuple[str, ...] = EVERYTHING
    when: tuple[Predicate, ...] = ()

    def __str__(self) -> str:
        return " or ".join(self.on) + "".join(f" if {each.text}" for each in self.when)


def guard(
    *,
    only: Step | None = None,
    after: Sequence[Step] = (),
    reset: Step | None = None,
    payload: Predicate | None = None,
) -> Automaton:
    """The automaton of a sequence."""
    guarded = only or Step()
    names = [NOTHING_SEEN if after else ONLY, *_names(after)]
    states: dict[str, list[Transition]] = {}
    for seen, name in enumerate(names):
        here = states[name] = []
        if reset is not None:
            here.append(Transition(on=reset.on, when=reset.when, go=names[0]))
        if seen == len(after):
            condition = () if payload is None else (payload,)
            here.append(Transition(on=guarded.on, when=(*guarded.when, *condition), go=names[0]))
        if seen < len(after) or payload is not None:
            here.append(Transition(on=guarded.on, when=guarded.when, emit=()))
        if seen < len(after):
            here.append(Transition(on=after[seen].on, when=after[seen].when, go=names[seen + 1]))
    return Automaton(names[0], states)


def _names(after: Sequence[Step]) -> Iterator[str]:
    """The states in which the first step has been seen, the first two, and so on."""
    digest = hashlib.sha256()
    text, clear = "", True
    for number, step in enumerate(after, 1):
        digest.update(repr((step.on, [when.text for when in step.when])).encode())
        if len(text) <= LONGEST:
            text += f", {step}" if text else f"seen {step}"
        # a filter with blanks may read like two steps, and so may a condition that ends in a comment
        clear = clear and not any(" " in each for each in step.on) and not any("//" in each.text for each in step.when)
        if clear and len(text) <= LONGEST:
            yield text
        else:
            yield f"{text[:LONGEST]}… ({number}, {digest.hexdigest()[:16]})"
