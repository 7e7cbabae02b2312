"""Entries are found, and wrong ones do no harm."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.store.journal.frame import Place
from tidegate.store.journal.index import SIZE, Index, entry_after, read_last, to_bytes, write_new


def places(count: int) -> list[Place]:
    """Batches of 8 bytes and 3 rows each; times go up and down."""
    return [Place(100 + n * 8, 8, n * 3, 3, 1000 + n % 4, 2000 + n % 4) for n in range(count)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "0.index"


@pytest.mark.parametrize("count", [0, 1, 2, 7, 100])
def test_entries_come_back(path: Path, count: int) -> None:
    known = places(count)
    last = write_new(path, known)
    index = Index(path)
    assert len(index) == count
    assert list(index.from_position(0)) == known
    assert index.last() == last == read_last(path)
    if last is not None:
        assert (last.low, last.high) == (1000, 2000 + min(count - 1, 3))
    for number, place in enumerate(known):
        for offset in range(place.first, place.next):
            assert index.at_offset(offset) == place
        assert list(index.from_position(place.position)) == known[number:]
        assert list(index.from_position(place.position + 1)) == known[number + 1 :]
    assert index.at_offset(10**9) == (known[-1] if known else None)
    index.close()
    assert path.stat().st_mode & 0o777 == 0o600


def test_there_is_none(path: Path) -> None:
    assert read_last(path) is None
    with Index(path) as index:
        assert len(index) == 0
        assert index.at_offset(0) is None
        assert list(index.from_position(0)) == []


@given(data=st.data())
def test_what_is_wrong_is_not_believed(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.mktemp("index") / "0.index"
    known = places(12)
    write_new(path, known)
    content = bytearray(path.read_bytes())
    for position in data.draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=4)):
        content[position] ^= 0xFF
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    index = Index(path)
    found = list(index.from_position(0))
    assert [place for place in known if place in found] == found, "some are missing, none is invented"
    for offset in range(36):
        place = index.at_offset(offset)
        assert place is None or (place in known and place.first <= offset)
    last = index.last()
    assert (last.place if last else None) == (found[-1] if found else None)
    index.close()


def test_zeros_at_the_end_are_no_entries(path: Path) -> None:
    write_new(path, places(3))
    with path.open("ab") as file:
        file.write(bytes(5 * SIZE + 7))
    last = read_last(path)
    assert last is not None
    assert last.place == places(3)[-1]


def test_times_so_far() -> None:
    entry = None
    for low, high, expected in ((5, 6, (5, 6)), (9, 9, (5, 9)), (1, 2, (1, 9))):
        entry = entry_after(entry, Place(0, 8, 0, 1, low, high))
        assert (entry.low, entry.high) == expected
        assert len(to_bytes(entry)) == SIZE
