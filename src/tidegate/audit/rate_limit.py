"""Counts what happens again and again: the first time in full, then a number at each flush.

Invariants
- The counts of all rows that were written and of those still to be written add up to what has happened, whatever was
  forgotten, left out or evicted meanwhile.
- What is known costs one lookup and one increment, and no write before the next flush.
- Rows in full are limited for each rule by a token bucket. What exceeds it is not remembered, only counted: one row
  per rule and flush says how many were left out.
- The table is bounded in entries and in bytes; the least recently seen go, after their counts were written.

It knows no clock, no loop and no disk: times come in, rows go out.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterator

from tidegate.audit.query import LEFT_OUT
from tidegate.bounded import Newest
from tidegate.session.token_bucket import Bucket
from tidegate.store.journal.rows import AuditRow

KEYS = 20_000
BYTES = 16 << 20  # of texts that the keys hold on to; clients choose how long topics and names are
BURST = 5.0  # seconds of the rate that may come at once
SLICE = 250  # rows written before somebody else's turn: well below a millisecond


LeftOut = tuple[str, str | None, str | None, str | None, str | None]  # kind, action, stage, rule, version


class Entry:
    """Something that happens again and again."""

    __slots__ = ("count", "row", "weight")

    def __init__(self, row: AuditRow, weight: int) -> None:
        self.row = row  # as it was the first time
        self.count = 0  # since it was last written
        self.weight = weight


class RateLimit:
    """Rows go to `write`. `rate` full rows a second for each rule; None: no limit."""

    __slots__ = ("_buckets", "_bytes", "_dirty", "_left_out", "_most", "_rate", "_weight", "_write", "node", "table")

    def __init__(
        self,
        write: Callable[[AuditRow], None],
        *,
        node: str = "",
        rate: float | None = None,
        most: int = KEYS,
        bytes: int = BYTES,
    ) -> None:
        self.node = node
        self.table: OrderedDict[Hashable, Entry] = OrderedDict()  # the least recently seen come first
        self._write = write
        self._rate = rate
        self._most = most
        self._bytes = bytes
        self._weight = 0
        self._dirty: list[Entry] = []  # those that were counted since the last flush
        self._buckets: Newest[tuple[str, str | None], Bucket] = Newest(KEYS)  # by kind and rule; clients name some
        self._left_out: Counter[LeftOut] = Counter()

    def limit(self, rate: float | None) -> None:
        """Another rate from now on."""
        self._rate = rate
        if rate is not None:
            for bucket in self._buckets.values():
                bucket.rate = rate
                bucket.burst = max(rate * BURST, 1.0)

    def again(self, key: Hashable, times: int = 1) -> bool:
        """Counts it, if it is known."""
        # hot: one lookup, one increment
        entry = self.table.get(key)
        if entry is None:
            return False
        self.table.move_to_end(key)
        if not entry.count:
            self._dirty.append(entry)
        entry.count += times
        return True

    def admits(
        self,
        now: float,
        kind: str,
        rule: str | None,
        action: str | None,
        stage: str | None,
        version: str | None,
        times: int = 1,
    ) -> bool:
        """Whether there is room for a row in full; if not, it is left out and counted. `now` is monotonic."""
        if self._rate is None:
            return True
        bucket = self._buckets.get((kind, rule))
        if bucket is None:
            bucket = self._buckets[kind, rule] = Bucket(self._rate, self._rate * BURST, now)
        if bucket.afford(now):
            return True
        self._left_out[kind, action, stage, rule, version] += times
        return False

    def first(self, key: Hashable, row: AuditRow, *, weight: int = 0) -> None:
        """Something that was not known and has been admitted: written in full, counted from now on."""
        self._write(row)
        self._remember(key, row, weight)

    def quietly(self, key: Hashable, row: AuditRow, *, weight: int = 0) -> None:
        """Something that was not known, and whose first time is as uninteresting as all others."""
        entry = self._remember(key, row, weight)
        entry.count = row.count
        self._dirty.append(entry)

    def once(self, row: AuditRow, now: float) -> None:
        """Something that is not counted: written within the limits."""
        if self.admits(now, row.kind, row.rule, row.action, row.stage, row.policy_version, row.count):
            self._write(row)

    def flush(self, at: Callable[[], float]) -> Iterator[None]:
        """Writes all counts, in pieces. `at` is the time of a row: the wall clock of its piece."""
        dirty, self._dirty = self._dirty, []
        left_out, self._left_out = self._left_out, Counter()
        written = 0
        for entry in dirty:
            if entry.count:  # else it was evicted since
                self._settle(entry, at())
                written += 1
                if written % SLICE == 0:
                    yield
        for (kind, *where), count in left_out.items():
            named = dict(zip(("action", "stage", "rule", "policy_version"), where, strict=True))
            self._write(AuditRow(at(), self.node, kind, **named, count=count, detail=LEFT_OUT))
            written += 1
            if written % SLICE == 0:
                yield

    def _settle(self, entry: Entry, at: float) -> None:
        count, entry.count = entry.count, 0
        self._write(entry.row._replace(at=at, count=count))

    def _remember(self, key: Hashable, row: AuditRow, weight: int) -> Entry:
        table = self.table
        entry = table[key] = Entry(row, weight)
        self._weight += weight
        while len(table) > 1 and (len(table) > self._most or self._weight > self._bytes):
            _, old = table.popitem(last=False)
            self._weight -= old.weight
            if old.count:
                self._settle(old, row.at)
        return entry
