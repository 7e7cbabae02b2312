"""What rooms keep under keys of their own: the last value, until it is taken back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from store.trial import Trial, counts, tables
from tidegate.session.store import Volatile


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[Trial]:
    trial = Trial(tmp_path / "d" / "t.db", durability="async")
    yield trial
    trial.close()


def rows(trial: Trial) -> list[tuple[str, str, bytes]]:
    trial.commit()
    return tables(trial.image())["record"]


def test_the_last_value_counts(trial: Trial) -> None:
    assert trial.found.records == {}
    trial.store.keep("monitor", "a", b"1")
    trial.store.keep("monitor", "a", b"2")
    assert rows(trial) == [("monitor", "a", b"2")]
    trial.store.keep("monitor", "a", b"3")
    assert rows(trial) == [("monitor", "a", b"3")]
    trial.store.keep("monitor", "a", b"")
    assert rows(trial) == [("monitor", "a", b"")], "an empty value is a value"


def test_rooms_know_nothing_of_each_other(trial: Trial) -> None:
    for room, key in (("a", "b"), ("b", "a"), ("a", ""), ("", "a"), ("ab", ""), ("a", "c")):
        trial.store.keep(room, key, f"{room}/{key}".encode())
    trial.store.keep("a", "c", None)
    expected = [("", "a", b"/a"), ("a", "", b"a/"), ("a", "b", b"a/b"), ("ab", "", b"ab/"), ("b", "a", b"b/a")]
    assert rows(trial) == expected
    trial.store.keep("a", "b", None)
    assert rows(trial) == [row for row in expected if row[:2] != ("a", "b")]
    again = Trial(trial.image())
    assert again.found.records == {"": {"a": b"/a"}, "a": {"": b"a/"}, "ab": {"": b"ab/"}, "b": {"a": b"b/a"}}
    again.close()


def test_taken_back(trial: Trial) -> None:
    trial.store.keep("monitor", "a", b"1")
    trial.store.keep("monitor", "b", b"1")
    trial.commit()
    trial.store.keep("monitor", "a", None)
    assert rows(trial) == [("monitor", "b", b"1")]
    trial.store.keep("monitor", "a", None)
    trial.store.keep("monitor", "never", None)
    assert rows(trial) == [("monitor", "b", b"1")]


def test_taken_back_and_kept_again_in_one_batch(trial: Trial) -> None:
    trial.store.keep("monitor", "a", b"1")
    trial.store.keep("monitor", "b", b"1")
    trial.commit()
    trial.store.keep("monitor", "a", None)
    trial.store.keep("monitor", "a", b"2")
    trial.store.keep("monitor", "b", b"2")
    trial.store.keep("monitor", "b", None)
    trial.store.keep("monitor", "c", b"2")
    trial.store.keep("monitor", "c", None)
    trial.store.keep("monitor", "c", b"3")
    assert rows(trial) == [("monitor", "a", b"2"), ("monitor", "c", b"3")]


def test_taken_back_while_it_is_being_written(trial: Trial) -> None:
    trial.store.keep("monitor", "a", b"1")
    trial.loop.turn()  # handed over
    assert trial.store._writing is not None
    trial.store.keep("monitor", "a", None)
    assert rows(trial) == []


@pytest.mark.parametrize("value", [b"1", None])
def test_it_is_something_to_write(trial: Trial, value: bytes | None) -> None:
    """A batch that holds nothing else is not void: the callback waits for the commit."""
    trial.store.keep("monitor", "a", b"0")
    trial.commit()
    seen: list[list[tuple[str, str, bytes]]] = []
    trial.store.keep("monitor", "a", value)
    assert trial.store.noted
    assert not trial.store._batch.void
    trial.store.after(lambda: seen.append(tables(trial.image())["record"]))
    assert seen == []
    trial.loop.until(lambda: seen)
    assert seen == [[] if value is None else [("monitor", "a", b"1")]]
    assert trial.store._batch.void
    assert not trial.store.noted


def test_many(trial: Trial) -> None:
    """More than fit into one statement, some of them large."""
    kept = {f"k{n:04}": b"%d" % n for n in range(1999)} | {"large": bytes(1_000_000)}
    for key, value in kept.items():
        trial.store.keep("monitor", key, value)
    trial.commit()
    for n in range(0, 1999, 2):
        trial.store.keep("monitor", f"k{n:04}", None)
        del kept[f"k{n:04}"]
    for n in range(1, 1999, 4):
        kept[f"k{n:04}"] = b"again"
        trial.store.keep("monitor", f"k{n:04}", b"again")
    trial.commit()
    again = Trial(trial.image())
    assert again.found.records == {"monitor": kept}
    for key in kept:
        again.store.keep("monitor", key, None)
    again.close()
    assert counts(again.path) == {}


def test_over_several_starts(trial: Trial) -> None:
    trial.store.keep("monitor", "a", b"1")
    trial.store.keep("rules", "a", b"1")
    trial.store.remember("monitor", "a note is no record")
    trial.commit()
    path = trial.image()
    for n in range(2, 5):
        again = Trial(path)
        assert again.found.records == {"monitor": {"a": b"%d" % (n - 1)}, "rules": {"a": b"1"}}
        assert again.found.notes == {"monitor": "a note is no record"}
        again.store.keep("monitor", "a", b"%d" % n)
        again.close()
    last = Trial(path)
    last.store.keep("monitor", "a", None)
    last = last.again()
    assert last.found.records == {"rules": {"a": b"1"}}
    last.close()


def test_before_the_store_is_started(tmp_path: Path) -> None:
    """What a room clears away when it is given what was kept."""
    trial = Trial(tmp_path / "t.db", start=False)
    trial.store.keep("proofs", "a", b"1")
    trial.store.keep("proofs", "b", b"1")
    trial = trial.again(start=False)
    trial.store.keep("proofs", "a", None)
    trial.store.start()
    trial.commit()
    last = trial.again()
    assert last.found.records == {"proofs": {"b": b"1"}}
    last.close()


def test_nothing_is_kept_without_a_store() -> None:
    seen: list[int] = []
    store = Volatile()
    store.keep("monitor", "a", b"1")
    store.after(seen.append, 1)
    assert seen == [1]


TEXT = st.text(st.characters(codec="utf-8"), max_size=10)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(given=st.dictionaries(st.tuples(TEXT, TEXT), st.binary(max_size=20), min_size=1, max_size=8))
def test_any_key(tmp_path: Path, given: dict[tuple[str, str], bytes]) -> None:
    """NUL and all: rooms take keys from names that come from elsewhere."""
    trial = Trial(tmp_path / "d" / "t.db", durability="async")
    for (room, key), value in given.items():
        trial.store.keep(room, key, value)
    again = trial.again(durability="async")
    found = {(room, key): value for room, records in again.found.records.items() for key, value in records.items()}
    assert found == given
    (room, key), *others = given
    again.store.keep(room, key, None)
    again.commit()
    assert {row[:2] for row in tables(again.image())["record"]} == set(others)
    for room, key in others:
        again.store.keep(room, key, None)
    again.close()
    assert counts(again.path) == {}
