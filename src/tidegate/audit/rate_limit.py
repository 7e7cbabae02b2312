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

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator

from tidegate.audit.rows import LEFT_OUT, AuditRow
from tidegate.session.token_bucket import Bucket

KEYS = 20_000
BYTES = 16 << 20  # of texts that the keys hold on to; clients choose how long topics and names are
BURST = 5.0  # seconds of the rate that may come at once
SLICE = 250  # rows written before somebody else's turn: well below a millisecond


class Entry:
    """Something that happens again and again."""

    __slots__ = ("count", "row", "weight")

    def __init__(self, row: AuditRow, weight: int) -> None:
        self.row = row  # as it was the first time
        self.count = 0  # since it was last written
        self.weight = weight


class _Rule:
    """What may be written of one rule, and what was left out: by action, stage and version."""

    __slots__ = ("bucket", "left")

    def __init__(self, bucket: Bucket) -> None:
        self.bucket = bucket
        self.left: dict[tuple[str | None, str | None, str | None], int] = {}


class RateLimit:
    """Rows go to `write`. `rate` full rows a second for each rule; None: no limit."""

    __slots__ = ("_bytes", "_dirty", "_most", "_rate", "_rules", "_weight", "_write", "node", "table")

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
        self._rules: dict[tuple[str, str | None], _Rule] = {}

    def limit(self, rate: float | None) -> None:
        """Another rate from now on."""
        self._rate = rate
        for known in self._rules.values():
            if rate is not None:
                known.bucket.rate = rate
                known.bucket.burst = max(rate * BURST, 1.0)

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
        kind: str,
        rule: str | None,
        now: float,
        *,
        action: str | None = None,
        stage: str | None = None,
        version: str | None = None,
        times: int = 1,
    ) -> bool:
        """Whether there is room for a row in full; if not, it is left out and counted. `now` is monotonic."""
        if self._rate is None:
            return True
        known = self._rules.get((kind, rule))
        if known is None:
            known = self._rules[kind, rule] = _Rule(Bucket(self._rate, self._rate * BURST, now))
        if known.bucket.afford(now):
            return True
        what = (action, stage, version)
        known.left[what] = known.left.get(what, 0) + times
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
        if self.admits(
            row.kind, row.rule, now, action=row.action, stage=row.stage, version=row.policy_version, times=row.count
        ):
            self._write(row)

    def flush(self, at: Callable[[], float]) -> Iterator[None]:
        """Writes all counts, in pieces. `at` is the time of a row: the wall clock of its piece."""
        dirty, self._dirty = self._dirty, []
        written = 0
        for entry in dirty:
            if entry.count:  # else it was evicted since
                self._settle(entry, at())
                written += 1
                if written % SLICE == 0:
                    yield
        for (kind, rule), known in list(self._rules.items()):
            left, known.left = known.left, {}
            for (action, stage, version), count in left.items():
                self._write(
                    AuditRow(
                        at(),
                        node=self.node,
                        kind=kind,
                        action=action,
                        stage=stage,
                        rule=rule,
                        policy_version=version,
                        count=count,
                        detail=LEFT_OUT,
                    )
                )
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
