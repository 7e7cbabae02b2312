"""The first time in full, then counts; and whatever happens, the counts add up."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.audit.query import LEFT_OUT
from tidegate.audit.rate_limit import BURST, SLICE, RateLimit
from tidegate.store.journal import AUDIT
from tidegate.store.journal.rows import AuditRow


@dataclass
class Trial:
    """A rate_limit, what it wrote, and the time."""

    rate: float | None = 100.0
    most: int = 1000
    bytes: int = 1 << 20
    now: float = 0.0
    rows: list[AuditRow] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rate_limit = RateLimit(self.rows.append, node="n", rate=self.rate, most=self.most, bytes=self.bytes)

    def deny(self, topic: str, rule: str = "p1", times: int = 1, *, weight: int = 0, version: str = "1-a") -> None:
        key = (topic, rule, version)
        if not self.rate_limit.again(key, times):
            row = AuditRow(self.now, topic=topic, rule=rule, count=times, stage="read", policy_version=version)
            if self.rate_limit.admits(self.now, row.kind, rule, None, "read", version, times):
                self.rate_limit.first(key, row, weight=weight)

    def flush(self) -> int:
        """How many pieces it took."""
        return sum(1 for _ in self.rate_limit.flush(lambda: self.now)) + 1

    def taken(self) -> list[tuple[str | None, int, str | None]]:
        found = [(row.topic, row.count, row.detail) for row in self.rows]
        self.rows.clear()
        return found


def test_rows_have_the_columns_of_the_journal() -> None:
    assert AuditRow._fields == AUDIT.columns


def test_the_first_time_is_written_at_once_and_the_others_with_the_next_flush() -> None:
    trial = Trial()
    for _ in range(5):
        trial.deny("a")
    trial.deny("b", times=3)
    assert trial.taken() == [("a", 1, None), ("b", 3, None)]
    trial.now = 10.0
    trial.flush()
    assert [row.at for row in trial.rows] == [10.0]
    assert trial.taken() == [("a", 4, None)]
    trial.flush()
    assert trial.taken() == []  # nothing has happened since
    trial.deny("a")
    assert trial.taken() == []  # it is still known
    trial.flush()
    assert trial.taken() == [("a", 1, None)]


def test_a_flood_of_different_denials_is_limited_for_each_rule() -> None:
    trial = Trial(rate=2.0)
    for number in range(1000):
        trial.deny(f"a/{number}", "p1")
    trial.deny("b", "p2")
    burst = int(2.0 * BURST)
    assert trial.taken() == [(f"a/{number}", 1, None) for number in range(burst)] + [("b", 1, None)]
    trial.flush()
    row = trial.rows[0]
    assert (row.rule, row.stage, row.policy_version, row.node, row.link) == ("p1", "read", "1-a", "n", None)
    assert trial.taken() == [(None, 1000 - burst, LEFT_OUT)]
    trial.flush()
    assert trial.taken() == []
    trial.now += 1.0  # two more
    for number in range(burst, 1000):
        trial.deny(f"a/{number}", "p1")
    assert trial.taken() == [(f"a/{number}", 1, None) for number in (burst, burst + 1)]


def test_what_was_left_out_once_is_written_in_full_when_there_is_room() -> None:
    trial = Trial(rate=0.2)
    trial.deny("a")
    trial.deny("b")
    trial.now += 5.0
    trial.deny("b")
    assert trial.taken() == [("a", 1, None), ("b", 1, None)]
    trial.flush()
    assert trial.taken() == [(None, 1, LEFT_OUT)]


def test_another_rate_counts_at_once() -> None:
    trial = Trial(rate=1.0)
    for number in range(10):
        trial.deny(f"a/{number}")
    assert len(trial.taken()) == 5
    trial.rate_limit.limit(100.0)
    trial.now += 1.0
    for number in range(10, 200):
        trial.deny(f"a/{number}")
    assert len(trial.taken()) == 100


def test_the_least_recently_seen_go_after_their_counts_were_written() -> None:
    trial = Trial(most=2)
    trial.deny("a")
    trial.deny("b")
    trial.deny("b")
    trial.deny("a")  # now b is the one that was not seen for longest
    trial.now = 7.0
    trial.deny("c")
    assert trial.taken() == [("a", 1, None), ("b", 1, None), ("c", 1, None), ("b", 1, None)]
    trial.deny("b")
    assert trial.taken() == [("b", 1, None), ("a", 1, None)]  # as if for the first time; a had to go
    trial.flush()
    assert trial.taken() == []


def test_long_texts_count() -> None:
    """Clients choose how long topics are: 20,000 of 64 KiB would be a gigabyte."""
    trial = Trial(bytes=1000)
    trial.deny("a", weight=400)
    trial.deny("b", weight=400)
    assert len(trial.rate_limit.table) == 2
    trial.deny("c", weight=5000)
    assert [key[0] for key in trial.rate_limit.table] == ["c"]  # type: ignore[index]
    trial.deny("d", weight=10)
    assert [key[0] for key in trial.rate_limit.table] == ["d"]  # type: ignore[index]


def test_a_flush_of_many_comes_in_pieces_and_misses_nothing_that_happens_meanwhile() -> None:
    trial = Trial(rate=None, most=10_000)
    total = 4 * SLICE
    for _ in range(2):
        for number in range(total):
            trial.deny(f"a/{number}")
    flush = trial.rate_limit.flush(lambda: trial.now)
    trial.rows.clear()
    next(flush)
    assert len(trial.rows) == SLICE
    trial.deny("a/0")  # was written before
    trial.deny(f"a/{total - 1}")  # will be
    assert sum(1 for _ in flush) == 3
    assert sum(row.count for row in trial.rows) == total + 1
    trial.rows.clear()
    trial.flush()
    assert trial.taken() == [("a/0", 1, None)]


def test_what_is_only_counted_has_no_first_row() -> None:
    trial = Trial(rate=None)
    for times in (2, 3):
        if not trial.rate_limit.again("k", times):
            trial.rate_limit.quietly("k", AuditRow(0.0, topic="a", count=times))
    assert trial.taken() == []
    trial.flush()
    assert trial.taken() == [("a", 5, None)]


EVENTS = st.one_of(
    st.tuples(st.just("deny"), st.integers(0, 9), st.integers(0, 2), st.integers(1, 1000), st.sampled_from("ab")),
    st.tuples(st.just("pass"), st.floats(0, 2)),
    st.tuples(st.just("flush")),
    st.tuples(st.just("piece")),
)


@settings(deadline=None)
@given(
    events=st.lists(EVENTS, max_size=200),
    most=st.integers(1, 12),
    weight=st.sampled_from([0, 300, 2000]),
    rate=st.sampled_from([0.2, 1.0, 50.0, None]),
)
def test_the_counts_add_up(events: list[tuple], most: int, weight: int, rate: float | None) -> None:
    trial = Trial(rate=rate, most=most, bytes=1000)
    happened: Counter[tuple[str, str]] = Counter()
    pieces = []
    for event in events:
        match event:
            case "deny", topic, rule, times, version:
                trial.deny(f"t/{topic}", f"p{rule}", times, weight=weight, version=version)
                happened[f"p{rule}", version] += times
            case "pass", seconds:
                trial.now += seconds
            case ("flush",):
                pieces.append(trial.rate_limit.flush(lambda: trial.now))
            case ("piece",) if pieces:
                next(pieces[-1], None)
    assert len(trial.rate_limit.table) <= most
    for each in pieces:
        for _ in each:
            pass
    trial.flush()
    written: Counter[tuple[str, str]] = Counter()
    for row in trial.rows:
        assert row.count > 0
        written[row.rule or "", row.policy_version or ""] += row.count
    assert written == happened


@pytest.mark.parametrize("rate", [0.5, 20.0])
def test_a_flood_is_no_flood_of_writes(rate: float) -> None:
    """10,000 denials a second of ever new topics for a minute."""
    trial = Trial(rate=rate, most=20_000)
    for second in range(60):
        for number in range(0, 10_000, 10):
            trial.deny(f"t/{second}/{number}", times=10)
        trial.now += 1.0
        if second % 10 == 9:
            trial.flush()
    assert sum(row.count for row in trial.rows) == 600_000
    assert len(trial.rows) <= rate * (BURST + 60) + 6 + 1
