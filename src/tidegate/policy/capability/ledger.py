"""Which proofs of one capability have been used, so that none counts twice.

Counters increase. A counter at or below the highest that was used is a replay, unless the message says that it is a
repetition (DUP) and one of the last `RECENT` statements had just this counter. The highest counter survives a restart,
the recent statements do not: a repetition of what was handed on before the restart is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

RECENT: Final = 128  # statements whose repetition is known as one


@dataclass(frozen=True, slots=True)
class Shown:
    """What a message brings as proof."""

    texts: tuple[str, ...] = ()
    repeated: bool = False  # it says that it was sent before
    before: bool = False  # it was proven when it came: a will that is published now


NOTHING: Final = Shown()
BEFORE: Final = Shown(before=True)


class Ledger:
    """The counters of one capability, over all its connections. `note` is told the highest, to be kept."""

    __slots__ = ("__weakref__", "_recent", "highest", "note", "shown", "verified")

    def __init__(self, highest: int = 0, note: Callable[[int], None] | None = None) -> None:
        self.highest = highest
        self.note = note
        self.shown = NOTHING  # by the message that is being admitted
        self.verified = 0  # signatures, ever: each takes some 100 µs
        self._recent: dict[int, bytes] = {}

    def take(self, counter: int, digest: bytes, *, repeated: bool = False) -> bool:
        """Uses a counter for the statement with this digest; False if it is a replay."""
        if counter <= self.highest:
            return repeated and self._recent.get(counter) == digest
        self.highest = counter
        recent = self._recent
        recent[counter] = digest
        if len(recent) > RECENT:
            del recent[next(iter(recent))]  # the oldest: counters only grow
        if self.note is not None:
            self.note(counter)
        return True
