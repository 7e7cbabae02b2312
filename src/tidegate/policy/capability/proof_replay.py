"""Which proofs of one capability have been used, so that none counts twice.

- The last `RECENT` counters that were used are known. One of them is a replay, unless the message says that it is a
  repetition (DUP) of just the same statement.
- All at or below the lowest of those that were forgotten are replays, whether or not they were seen.
- Between the two, a counter that was not seen is used once where it may come `late`: below the highest, because its
  message was signed before a connection broke and reached the node over the next.
- What may not come late has to be above all before it.

The highest counter survives a restart, nothing else does: then all at or below it are replays.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

Pairs: TypeAlias = tuple[tuple[str, str], ...]

RECENT: Final = 128  # counters that are known: some 20 KiB for each capability that proves its messages


@dataclass(frozen=True, slots=True)
class Shown:
    """What a message brings as proof."""

    texts: tuple[str, ...] = ()
    repeated: bool = False  # it says that it was sent before
    before: bool = False  # it was proven when it came: a will that is published now
    asked: Pairs = ()  # user properties of the packet that the proof covers
    expiry: int | None = None  # of the message


NOTHING: Final = Shown()
BEFORE: Final = Shown(before=True)


class Use:
    """What a counter was used for. A repetition brings the same one again."""

    __slots__ = ("digest", "handled")

    def __init__(self, digest: bytes) -> None:
        self.digest = digest
        self.handled = False  # it took effect, and must not once more: set by whoever cannot do it twice


class Ledger:
    """The counters of one capability, over all its connections. `note` is told the highest, to be kept."""

    __slots__ = ("__weakref__", "_forgotten", "_recent", "highest", "note", "shown", "used", "verified")

    def __init__(self, highest: int = 0, note: Callable[[int], None] | None = None) -> None:
        self.highest = highest
        self.note = note
        self.shown = NOTHING  # by the message that is being admitted
        self.used: Use | None = None  # what that uses, once it is proven
        self.verified = 0  # signatures, ever: each takes some 100 µs
        self._recent: dict[int, Use] = {}
        self._forgotten = highest  # the highest that is not known any more

    def take(self, counter: int, digest: bytes, *, repeated: bool = False, late: bool = False) -> Use | None:
        """Uses a counter for the statement with this digest; None if it is a replay."""
        recent = self._recent
        known = recent.get(counter)
        if known is not None:
            return known if repeated and known.digest == digest else None
        if counter <= (self._forgotten if late else self.highest):
            return None
        use = recent[counter] = Use(digest)
        if len(recent) > RECENT:
            self._forgotten = min(recent)
            del recent[self._forgotten]
        if counter > self.highest:
            self.highest = counter
            if self.note is not None:
                self.note(counter)
        return use
