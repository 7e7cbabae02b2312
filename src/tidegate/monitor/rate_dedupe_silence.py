"""What counts and waits: no event twice (`dedupe`), not too many (`rate`), not too few (`silence`).

Each applies to the events that match its filters; others pass and change nothing.

- `Dedupe`: an event is suppressed if one with the same topic and payload passed less than so many seconds ago. It
  remembers the last `MEMORY` that passed; a repetition of an older one passes.
- `Rate`: a bucket holds up to `burst` tokens, is full at the start, and gains `rate` a second. An event takes a whole
  token and passes, or finds none and is suppressed.
- `Silence`: an event passes. If so many seconds go by without another one, the outputs are emitted, once; the next
  event winds it up again.

In a row each sees only what those before it let pass, and what passed one may still be suppressed by the next. Times
are steady. Should they go back over a restart, `Rate` counts on from there, and `Dedupe` forgets what lies further
ahead than its time.
"""

from __future__ import annotations

import hashlib
import math
from typing import Final

from tidegate.monitor.automaton import Emit, listed
from tidegate.monitor.event import Event, State
from tidegate.monitor.machine import ASK, Edge, Glance, Graph, Machine
from tidegate.monitor.matching import EVERYTHING, matcher

MEMORY: Final = 128
"""Events that `Dedupe` remembers."""

_DIGEST: Final = 12
_WHOLE: Final = 1.0 - 1e-9  # five a minute, added up from twelfths of a token, are five


class _Pacing(Machine):
    """What the three have in common: filters, no conditions, and states that are not finite.

    They remember no contexts: what they suppress tells only how much there was, or that it was there before, and what
    silence puts out has the context of the last event, which alone has set its state.
    """

    __slots__ = ("_matches", "_on", "heard")

    remembers = False

    def __init__(self, on: tuple[str, ...]) -> None:
        self._on = self.heard = on
        self._matches = matcher(on)

    def hears(self, topic: str) -> bool:
        return self._matches(topic)

    def _drawn(self, *arrows: tuple[str, str, str]) -> Graph:
        states = tuple(dict.fromkeys(name for source, target, _ in arrows for name in (source, target)))
        edges = tuple(Edge(source=source, target=target, label=label) for source, target, label in arrows)
        return Graph(start=states[0], states=states, edges=edges)


class Dedupe(_Pacing):
    """Suppresses repetitions. The state: when what passed, by digest."""

    __slots__ = ("_window",)

    def __init__(self, window: float, on: tuple[str, ...] = EVERYTHING) -> None:
        super().__init__(on)
        self._window = window

    def start(self) -> State:
        return {}

    def step(self, state: State, event: Event) -> tuple[State, tuple[Event, ...]]:
        if event.is_tick:
            return state, ()
        if not self._matches(event.topic):
            return state, (event,)
        now, window = event.time, self._window
        # what lies far ahead was noted by a clock that was put back
        kept = {digest: time for digest, time in state.items() if -window < now - time < window}
        digest = _digest(event)
        if digest in kept:
            return state, ()
        while len(kept) >= MEMORY:
            del kept[next(iter(kept))]
        kept[digest] = now
        return kept, (event,)

    def accepts(self, state: State) -> bool:
        return isinstance(state, dict) and len(state) <= MEMORY and all(map(_is_time, state.values()))

    def graph(self) -> Graph:
        on = ", ".join(self._on)
        return self._drawn(
            ("dedupe", "dedupe", f"{on} → same"),
            ("dedupe", "dedupe", f"{on}, as one within {self._window:g} s → nothing"),
        )


class Rate(_Pacing):
    """Suppresses what is too much. The state: None is a full bucket; else the tokens, and as of when."""

    __slots__ = ("_burst", "_rate")

    def __init__(self, rate: float, burst: int, on: tuple[str, ...] = EVERYTHING) -> None:
        super().__init__(on)
        self._rate = rate
        self._burst = float(burst)

    def start(self) -> State:
        return None

    def step(self, state: State, event: Event) -> tuple[State, tuple[Event, ...]]:
        if event.is_tick:
            return state, ()
        if not self._matches(event.topic):
            return state, (event,)
        after = self._taken(state, event.time)
        if after is not ASK:
            return after, (event,)
        if event.time < state[1]:
            state = [state[0], event.time]  # the clock was put back: count from here
        return state, ()

    def glance(self, topic: str) -> Glance | None:
        return self._taken if self._matches(topic) else None

    def _taken(self, state: State, now: float) -> State:
        """The state when an event has taken a token; ASK if there is none."""
        if state is None:
            return [self._burst - 1.0, now]
        tokens, last = state
        if now >= last:
            tokens = min(self._burst, tokens + (now - last) * self._rate)
        return [max(0.0, tokens - 1.0), now] if tokens >= _WHOLE else ASK

    def accepts(self, state: State) -> bool:
        if state is None:
            return True
        if not isinstance(state, list) or len(state) != 2 or not all(map(_is_time, state)):
            return False
        return bool(0.0 <= state[0] <= self._burst)

    def graph(self) -> Graph:
        on = ", ".join(self._on)
        return self._drawn(
            ("rate", "rate", f"{on}, up to {_per(self._rate)}, {self._burst:g} at once → same"),
            ("rate", "rate", f"{on}, above that → nothing"),
        )


class Silence(_Pacing):
    """Says so when nothing comes. The state: None, or when it is due."""

    __slots__ = ("_emit", "_silent")

    overhears = True

    def __init__(self, silent: float, emit: tuple[Emit, ...], on: tuple[str, ...] = EVERYTHING) -> None:
        super().__init__(on)
        self._silent = silent
        self._emit = emit

    def start(self) -> State:
        return None

    def step(self, state: State, event: Event) -> tuple[State, tuple[Event, ...]]:
        if event.is_tick:
            if state is None or event.time < state:
                return state, ()
            return None, tuple(each.of(event) for each in self._emit)
        if not self._matches(event.topic):
            return state, (event,)
        return event.time + self._silent, (event,)

    def due(self, state: State) -> float | None:
        return state  # type: ignore[no-any-return]

    def accepts(self, state: State) -> bool:
        return state is None or _is_time(state)

    def graph(self) -> Graph:
        on = ", ".join(self._on)
        return self._drawn(
            ("quiet", "heard", f"{on} → same"),
            ("heard", "heard", f"{on} → same"),
            ("heard", "quiet", f"{self._silent:g} s of silence → {listed(self._emit)}"),
        )


def _per(rate: float) -> str:
    """A rate as people write it."""
    for unit, seconds in (("s", 1), ("m", 60)):
        if rate * seconds >= 1:
            return f"{rate * seconds:g}/{unit}"
    return f"{rate * 3600:g}/h"


def _digest(event: Event) -> str:
    topic = event.topic.encode()
    digest = hashlib.blake2b(len(topic).to_bytes(4), digest_size=_DIGEST)
    digest.update(topic)
    digest.update(event.payload)
    return digest.hexdigest()


def _is_time(value: object) -> bool:
    return type(value) in (int, float) and math.isfinite(value)  # type: ignore[arg-type]
