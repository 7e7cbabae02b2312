"""The keys of all groups: which one seals now, which ones may still be handed out, and when they end.

A key seals for `rotate` seconds or `uses` messages, whichever ends first, and is readable for `overlap` longer, so that
messages that come late can be read.

Invariants
- Keys end by a clock that never goes back (`Steady`): setting the clock back lengthens no key's life, and a jump
  forward ends keys early. One that ended while the clock was behind is not taken again from a store, where its times
  still look good.
- Nonces are random and owe nothing to the clock or to a counter: neither setting the clock nor an old copy of the state
  repeats one. With `uses` at 2^20, the chance that two of one key's nonces are equal is below 2^-56. Several nodes that
  seal with the same key multiply its uses: stay below 2^32 altogether (NIST SP 800-38D, 8.3).
- A ring seals only with keys that it made itself. Those from a store or another ring can be read with and no more, so
  that no count of uses has to survive.
- A revoked key is not handed out again, whoever brings it back. The store has to let go of it too: what the ring does
  not know when something is revoked (because it was pushed out, or never came), it cannot refuse later.
- What is kept is bounded: beyond `groups` the group that was not used for the longest time is forgotten with its keys,
  and of one group as many keys are kept as rotate during `overlap`, at least `EACH`. `forgotten` counts those that
  could still have been read.

It does not decide who may have a key.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Callable, Collection
from heapq import heapify, heappop, heappush
from typing import Final

from tidegate.errors import ConfigError, KeysError
from tidegate.keys.group import Group
from tidegate.keys.key import SECRET, TopicKey

ROTATE: Final = 300.0
OVERLAP: Final = 30.0
USES: Final = 1 << 20
MOST_USES: Final = 1 << 32
GROUPS: Final = 1 << 14
EACH: Final = 256
MOST_EACH: Final = 4096
REMEMBERED: Final = 3600.0
"""Seconds for which it is known that a key must not come back, after the wall clock would have ended it."""

_ID_BYTES: Final = 12
_SPARE: Final = 8
_SLACK: Final = 64
_SHORTEST: Final = 0.001
_LONGEST: Final = 366 * 86400.0


class Steady:
    """A clock that never goes back, made from one that may: call it with the time to get the steady time.

    It goes forward with the clock it is shown and stands still when that is set back. So what lasts for a time ends
    when the clock has gone forward for that time, however often it was set back in between; a clock that jumps forward
    ends it early. Unless it has been set back, it shows the same time.

    Show it times of one clock, in the order in which they were read: an older one looks like a clock that was set back,
    and with each of them it runs further ahead.
    """

    __slots__ = ("_ahead", "_last")

    def __init__(self) -> None:
        self._last = float("-inf")
        self._ahead = 0.0

    def __call__(self, now: float) -> float:
        last = self._last
        if now != last:
            if now < last:
                self._ahead += last - now
            self._last = now
        return now + self._ahead


class _Kept:
    """A key, when it ends by the ring's own clock, and how often it has sealed."""

    __slots__ = ("barred", "key", "readable_until", "used", "valid_until")

    def __init__(self, key: TopicKey, valid_until: float, readable_until: float) -> None:
        self.key = key
        self.valid_until = valid_until
        self.readable_until = readable_until
        self.used = 0
        self.barred = False  # nobody may seal with it any more, before its time


class _Place:
    """One group: its keys in the order in which they came, and the one that seals."""

    __slots__ = ("keys", "sealing")

    def __init__(self) -> None:
        self.keys: deque[_Kept] = deque()
        self.sealing: _Kept | None = None


class Ring:
    """`entropy(n)` gives n bytes that nobody can guess. Not for several threads."""

    def __init__(
        self,
        *,
        entropy: Callable[[int], bytes],
        rotate: float = ROTATE,
        overlap: float = OVERLAP,
        uses: int = USES,
        groups: int = GROUPS,
    ) -> None:
        self.forgotten = 0
        self.rotate = self.overlap = 0.0
        self.uses = 0
        self._entropy = entropy
        self._limit = groups
        self._clock = Steady()
        self._places: OrderedDict[str, _Place] = OrderedDict()  # by the id of the group, last used last
        self._keys: dict[str, _Kept] = {}
        self._gone: dict[str, float] = {}  # ids that must not come back, and until when that is remembered
        self._ends: list[tuple[float, str]] = []  # a heap; entries of what is gone already do no harm
        if groups < 1:
            raise ConfigError("a ring has at least one group")
        self.change(rotate=rotate, overlap=overlap, uses=uses)

    def __len__(self) -> int:
        return len(self._keys)

    def change(self, *, rotate: float, overlap: float, uses: int) -> None:
        """Other settings: they bind from the next message on. What was told of older keys stays true."""
        if (rotate, overlap, uses) == (self.rotate, self.overlap, self.uses):
            return
        if not _SHORTEST <= rotate <= _LONGEST or not 0 <= overlap <= _LONGEST:
            raise ConfigError("`rotate` is a millisecond to a year, `overlap` nothing to a year")
        if not 1 <= uses <= MOST_USES:
            raise ConfigError(f"a key can be used 1 to {MOST_USES} times")
        self.rotate, self.overlap, self.uses = rotate, overlap, uses
        self._each = min(MOST_EACH, max(EACH, int(overlap / rotate) + _SPARE))
        for place in self._places.values():
            place.sealing = None

    # -- sealing -------------------------------------------------------------------------------------------------

    def current(self, group: Group, now: float) -> TopicKey:
        """The key that seals the next message of the group, and only that: each call counts as a use."""
        key = self.held(group, now)
        if key is None:
            made = self._make(group, now)
            made.used = 1
            key = made.key
        return key

    def held(self, group: Group, now: float) -> TopicKey | None:
        """The same, for those who have others make keys: None if one has to be made."""
        # hot: a dictionary access, no allocation
        time = self._clock(now)
        place = self._places.get(group.id)
        if place is None:
            return None
        self._places.move_to_end(group.id)
        kept = place.sealing
        if kept is None or time >= kept.valid_until or kept.used >= self.uses:
            return None
        kept.used += 1
        return kept.key

    def use(self, id: str, times: int) -> None:
        """Somebody who was given a key seals so many messages with it."""
        kept = self._keys.get(id)
        if kept is not None:
            kept.used += times

    def _make(self, group: Group, now: float) -> _Kept:
        id = self._entropy(_ID_BYTES).hex()
        if id in self._keys or id in self._gone:
            raise KeysError("the source of randomness repeats itself: nothing can be protected with it")
        key = TopicKey(
            id=id,
            group=group,
            secret=self._entropy(SECRET),
            made=now,
            valid_until=now + self.rotate,
            readable_until=now + self.rotate + self.overlap,
        )
        time = self._clock(now)
        kept = _Kept(key, time + self.rotate, time + self.rotate + self.overlap)
        self._put(kept, now)
        self._places[group.id].sealing = kept
        return kept

    # -- handing out ---------------------------------------------------------------------------------------------

    def find(self, id: str, now: float) -> TopicKey | None:
        """The key, if it may be handed out: None if it is unknown here, has ended or was revoked."""
        self.forget(now)
        kept = self._keys.get(id)
        return None if kept is None else kept.key

    def left(self, id: str, now: float) -> float:
        """Seconds for which a key can still be read with."""
        kept = self._keys.get(id)
        return 0.0 if kept is None else max(0.0, kept.readable_until - self._clock(now))

    def lasts(self, id: str, now: float) -> float:
        """Seconds for which a key may still seal, if it is the one of its group that does."""
        kept = self._keys.get(id)
        if kept is None or self._places[kept.key.group.id].sealing is not kept:
            return 0.0
        return max(0.0, kept.valid_until - self._clock(now))

    def seals(self, id: str, now: float, *, late: float = 0.0) -> bool:
        """Whether somebody who was given the key may seal with it; for so many seconds longer, what is on its way."""
        kept = self._keys.get(id)
        return kept is not None and not kept.barred and self._clock(now) < kept.valid_until + late

    def revoked(self, id: str) -> bool:
        """Whether it is remembered that a key must not come back."""
        return id in self._gone

    def used(self, id: str) -> int:
        kept = self._keys.get(id)
        return 0 if kept is None else kept.used

    def groups(self) -> list[Group]:
        """Those that have keys, each by its first message that is known."""
        return [place.keys[0].key.group for place in self._places.values()]

    def listed(self, now: float) -> list[tuple[TopicKey, int]]:
        """Every key that can be read with, and how often it has sealed."""
        self.forget(now)
        return [(kept.key, kept.used) for kept in self._keys.values()]

    # -- ending --------------------------------------------------------------------------------------------------

    def rotate_now(self, groups: Collection[str] | None = None) -> int:
        """From the next message on other keys seal, for these groups or for all; how many had one that did.

        The old ones can be read with until they end: what was sealed before is not lost to those who may read it.
        """
        count = 0
        for id, place in self._places.items():
            if groups is not None and id not in groups:
                continue
            for kept in place.keys:
                kept.barred = True
            if place.sealing is not None:
                place.sealing = None
                count += 1
        return count

    def revoke(self, id: str, now: float) -> bool:
        """Ends a key at once, and does not take it back; False if it is not here."""
        self.forget(now)
        kept = self._keys.get(id)
        if kept is None:
            return False
        self._drop(kept)
        self._ban(kept.key, now)
        return True

    def forbid(self, id: str, until: float, now: float) -> None:
        """Ends a key if it is here, and takes none of that id before the wall clock shows `until`."""
        if until > now:
            if id in self._keys:
                self._drop(self._keys[id])
            self._remember(id, until + self._clock(now) - now)

    def forget(self, now: float) -> None:
        """Lets go of keys that have ended; call it now and then if nothing else happens."""
        time = self._clock(now)
        ends = self._ends
        while ends and ends[0][0] <= time:
            _, id = heappop(ends)
            if self._gone.get(id, math.inf) <= time:
                del self._gone[id]
            kept = self._keys.get(id)
            if kept is not None and kept.readable_until <= time:
                self._drop(kept)
                if kept.key.readable_until > now:
                    self._ban(kept.key, now)  # the wall clock was set back: a store would bring it back as a good one

    def _drop(self, kept: _Kept) -> None:
        group = kept.key.group.id
        del self._keys[kept.key.id]
        place = self._places[group]
        place.keys.remove(kept)
        if place.sealing is kept:
            place.sealing = None
        if not place.keys:
            del self._places[group]

    def _ban(self, key: TopicKey, now: float) -> None:
        self._remember(key.id, self._clock(now) + max(0.0, key.readable_until - now) + REMEMBERED)

    def _remember(self, id: str, until: float) -> None:
        self._gone[id] = max(until, self._gone.get(id, until))
        heappush(self._ends, (self._gone[id], id))

    # -- what others made ----------------------------------------------------------------------------------------

    def adopt(self, key: TopicKey, now: float) -> bool:
        """Takes a key that somebody else made, or that a store kept; False if it has ended or was revoked here.

        A key from the future was made by a clock that is ahead, and counts as made now; none is taken for longer than
        it would last here.
        """
        self.forget(now)
        if key.id in self._gone:
            return False
        if key.id not in self._keys:
            time = self._clock(now)
            begun = min(key.made, now)
            valid = min(key.valid_until - key.made + begun - now, self.rotate)
            readable = min(key.readable_until - key.made + begun - now, self.rotate + self.overlap)
            if readable <= 0:
                return False
            self._put(_Kept(key, time + valid, time + readable), now)
        return True

    # -- keeping -------------------------------------------------------------------------------------------------

    def _put(self, kept: _Kept, now: float) -> None:
        self.forget(now)
        key = kept.key
        place = self._places.get(key.group.id)
        if place is None:
            while len(self._places) >= self._limit:
                self._push_out()
            place = self._places[key.group.id] = _Place()
        elif len(place.keys) >= self._each:
            self._drop(place.keys[0])
            self.forgotten += 1
        place.keys.append(kept)
        self._keys[key.id] = kept
        heappush(self._ends, (kept.readable_until, key.id))
        if len(self._ends) > 2 * (len(self._keys) + len(self._gone)) + _SLACK:
            self._ends = [(each.readable_until, id) for id, each in self._keys.items()]
            self._ends += [(until, id) for id, until in self._gone.items()]
            heapify(self._ends)

    def _push_out(self) -> None:
        _, place = self._places.popitem(last=False)
        for kept in place.keys:
            del self._keys[kept.key.id]
        self.forgotten += len(place.keys)
