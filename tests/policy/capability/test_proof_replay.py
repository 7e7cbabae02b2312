"""Which proofs count: each once, late if it may be, and nothing that is older than what is known."""

from __future__ import annotations

from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from tidegate.policy.capability import Ledger, proof_replay
from tidegate.policy.capability.proof_replay import RECENT

FEW = 4  # are known, so that a few tries go beyond them

counters = st.one_of(st.integers(1, 12), st.integers(1, 2**63 - 1))
tries = st.lists(st.tuples(counters, st.sampled_from([b"a", b"b"]), st.booleans(), st.booleans()), max_size=40)


@given(st.integers(0, 6), tries)
def test_what_is_used_and_what_is_a_replay(kept: int, tries: list[tuple[int, bytes, bool, bool]]) -> None:
    """Against all that ever passed: the last few are known, nothing passes at or below any other."""
    with patch.object(proof_replay, "RECENT", FEW):
        told: list[int] = []
        tested = Ledger(kept, told.append)
        passed: dict[int, bytes] = {}
        for counter, digest, repeated, late in tries:
            in_order = sorted(passed)
            known, forgotten = in_order[-FEW:], max(in_order[:-FEW], default=kept)
            highest = max(passed, default=kept)
            use = tested.take(counter, digest, repeated=repeated, late=late)
            if counter in known:
                assert (use is not None) is (repeated and passed[counter] == digest)
            elif counter <= forgotten:
                assert use is None
            else:
                assert (use is not None) is (late or counter > highest)
            if use is not None:
                assert use.digest == digest == passed.setdefault(counter, digest)
            assert tested.highest == max(passed, default=kept)
        assert told == sorted(set(told))
        assert told[-1:] == [tested.highest][: len(passed)]


@given(tries)
def test_no_counter_counts_twice(tries: list[tuple[int, bytes, bool, bool]]) -> None:
    """Whatever it is for; a repetition is told as what it repeats."""
    with patch.object(proof_replay, "RECENT", FEW):
        tested = Ledger()
        uses = {}
        for counter, digest, repeated, late in tries:
            if (use := tested.take(counter, digest, repeated=repeated, late=late)) is not None:
                assert uses.setdefault(counter, use) is use


@given(st.lists(counters, min_size=1, unique=True), st.data())
def test_whatever_comes_late_comes_once(numbers: list[int], data: st.DataObject) -> None:
    """In any order, as long as all of them are known."""
    tested = Ledger()
    for counter in numbers:
        assert tested.take(counter, b"%d" % counter, late=True) is not None
    for counter in data.draw(st.permutations(numbers)):
        assert tested.take(counter, b"%d" % counter, late=True) is None
        assert tested.take(counter, b"other", repeated=True, late=True) is None
        assert tested.take(counter, b"%d" % counter, repeated=True, late=True) is not None


@given(st.lists(counters, min_size=1), st.data())
def test_after_a_restart_all_up_to_the_highest_are_replays(numbers: list[int], data: st.DataObject) -> None:
    kept: list[int] = []
    before = Ledger(note=kept.append)
    for counter in numbers:
        before.take(counter, b"d", late=True)
    after = Ledger(kept[-1])
    old = data.draw(st.sampled_from(numbers) | st.integers(1, kept[-1]))
    assert after.take(old, b"d", repeated=True, late=True) is None
    assert after.take(kept[-1] + 1, b"d") is not None


def test_the_window_is_of_uses_and_not_of_numbers() -> None:
    """Counters may be times: a message that was signed seconds ago is far below, and not many uses ago."""
    tested = Ledger()
    second = 10**9
    assert tested.take(second, b"connect") is not None
    assert tested.take(90 * second, b"connect again") is not None
    assert tested.take(2 * second, b"signed between", late=True) is not None
    assert tested.take(3 * second, b"subscribe") is None  # it may not


def test_how_many_are_known() -> None:
    tested = Ledger()
    for counter in range(10, RECENT + 10):
        assert tested.take(counter, b"%d" % counter)
    assert tested.take(9, b"late", late=True) is not None  # the lowest of one more: it is forgotten at once
    assert tested.take(9, b"late", repeated=True, late=True) is None
    assert tested.take(10, b"10", repeated=True) is not None
    assert tested.take(RECENT + 10, b"new") is not None
    assert tested.take(10, b"10", repeated=True, late=True) is None
    assert tested.take(11, b"11", repeated=True) is not None
