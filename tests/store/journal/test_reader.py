"""What is asked for, no more and no less, also while it is being written."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.journal.trial import NOON, Trial, audit, audits, details, segments
from tidegate.errors import StoreError
from tidegate.store.journal import AUDIT, INGEST, Kind, Reader, Selection
from tidegate.store.journal import reader as module
from tidegate.store.journal.frame import encode
from tidegate.store.journal.segment import index_of


def filled(data: Path, count: int = 100, *, batch: int = 7, **options: Any) -> Trial:
    """Rows 0 to `count`, several batches and segments."""
    trial = Trial(data, segment_size=6_000, **options)
    for start in range(0, count, batch):
        users = [f"u{n % 5}" if n % 4 else None for n in range(start, min(start + batch, count))]
        trial.write(*(audit(start + i, user=user, count=i) for i, user in enumerate(users)))
    return trial


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = tmp_path_factory.mktemp("journal")
    filled(data).close()
    assert len(segments(data)) > 3
    return data


def test_from_every_offset(full: Path) -> None:
    for start in range(103):
        assert details(full, start=start) == list(range(start, 100))


@pytest.mark.parametrize(("start", "stop"), [(0, 0), (0, 1), (5, 9), (6, 8), (13, 13), (20, 90), (99, 200), (50, 20)])
def test_up_to_an_offset(full: Path, start: int, stop: int) -> None:
    assert details(full, start=start, stop=stop) == list(range(start, min(stop, 100)))


@given(since=st.none() | st.integers(-5, 105), until=st.none() | st.integers(-5, 105), start=st.integers(0, 100))
def test_by_time(full: Path, since: int | None, until: int | None, start: int) -> None:
    select = Selection(since=None if since is None else NOON + since, until=None if until is None else NOON + until)
    expected = [n for n in range(start, 100) if (since is None or n >= since) and (until is None or n < until)]
    with Reader(full, AUDIT, start=start, select=select) as reader:
        assert [int(row["detail"]) for row in reader.rows()] == expected
        assert reader.missed == 0
        assert reader.next == 100


def test_time_is_found_without_reading_all(full: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    real = pa.ipc.read_record_batch

    def counted(*args: Any) -> Any:
        seen.append(1)
        return real(*args)

    monkeypatch.setattr(pa.ipc, "read_record_batch", counted)
    with Reader(full, AUDIT, select=Selection(since=NOON + 95)) as reader:
        assert [int(row["detail"]) for row in reader.rows()] == [95, 96, 97, 98, 99]
    assert len(seen) == 2


def test_a_clock_that_jumps_hides_nothing(tmp_path: Path) -> None:
    trial = Trial(tmp_path, segment_size=6_000)
    times = [100, 200, 50, 5_000, 60, 70, 4_000, 80, 90, 100] * 3
    for n, at in enumerate(times):
        trial.write(audit(n, at=float(at)))
    trial.close()
    for since, until in ((0, 75), (75, 150), (4_000, 6_000), (60, 61)):
        expected = [n for n, at in enumerate(times) if since <= at < until]
        with Reader(tmp_path, AUDIT, select=Selection(since=since, until=until)) as reader:
            assert [int(row["detail"]) for row in reader.rows()] == expected


@pytest.mark.parametrize(
    ("where", "wanted"),
    [
        ({"user": "u1"}, lambda n: n % 4 and n % 5 == 1),
        ({"user": None}, lambda n: n % 4 == 0),
        ({"user": ["u1", "u2"]}, lambda n: n % 4 and n % 5 in (1, 2)),
        ({"user": {"u1", None}}, lambda n: n % 4 == 0 or n % 5 == 1),
        ({"user": "u1", "count": 3}, lambda n: n % 4 and n % 5 == 1 and n % 7 == 3),
        ({"kind": Kind.DENY, "detail": "55"}, lambda n: n == 55),
        ({"kind": Kind.ERROR}, lambda n: False),
        ({"offset": [7, 8]}, lambda n: n in (7, 8)),
        ({}, lambda n: True),
    ],
)
def test_by_value(full: Path, where: dict[str, object], wanted: Any) -> None:
    with Reader(full, AUDIT, select=Selection(where=where)) as reader:
        assert [int(row["detail"]) for row in reader.rows()] == [n for n in range(100) if wanted(n)]


def test_by_anything(full: Path) -> None:
    select = Selection(accept=lambda row: row["detail"].endswith("7"), until=NOON + 50)
    with Reader(full, AUDIT, select=select) as reader:
        assert [int(row["detail"]) for row in reader.rows()] == [7, 17, 27, 37, 47]


@pytest.mark.parametrize(
    ("stream", "where", "message"),
    [
        (AUDIT, {"usr": "x"}, "no column 'usr'. Remedy: one of shard, offset, at"),
        (AUDIT, {"count": "x"}, "'count' is never 'x'"),
        (INGEST, {"properties": "x"}, "cannot be compared"),
    ],
)
def test_wrong_selections_are_said(tmp_path: Path, stream: Any, where: dict[str, object], message: str) -> None:
    with pytest.raises(StoreError, match=message):
        Reader(tmp_path, stream, select=Selection(where=where))


@pytest.mark.parametrize("count", [0, 1, 3, 7, 8, 50, 100, 1000])
def test_tail(full: Path, count: int) -> None:
    with Reader(full, AUDIT) as reader:
        found = [int(row["detail"]) for batch in reader.tail(count) for row in batch.to_pylist()]
        assert found == list(range(100))[max(0, 100 - count) :]
        assert reader.poll() == []


def test_tail_of_what_is_wanted(full: Path) -> None:
    with Reader(full, AUDIT, select=Selection(where={"user": "u1"}, until=NOON + 90)) as reader:
        found = [int(row["detail"]) for batch in reader.tail(3) for row in batch.to_pylist()]
    assert found == [71, 81, 86]


def test_tail_from_an_offset_on(full: Path) -> None:
    with Reader(full, AUDIT, start=97) as reader:
        assert [row["detail"] for batch in reader.tail(50) for row in batch.to_pylist()] == ["97", "98", "99"]


@pytest.mark.parametrize("index", ["there", "gone", "holes"])
def test_an_index_is_a_help_not_a_need(tmp_path: Path, index: str) -> None:
    filled(tmp_path).close()
    for path in map(index_of, segments(tmp_path)):
        if index == "gone":
            path.unlink()
        elif index == "holes":
            content = bytearray(path.read_bytes())
            content[64:128] = bytes(len(content[64:128]))
            path.write_bytes(content)
    for start in (0, 50, 99):
        assert details(tmp_path, start=start) == list(range(start, 100))
    with Reader(tmp_path, AUDIT) as reader:
        assert [int(row["detail"]) for batch in reader.tail(95) for row in batch.to_pylist()] == list(range(5, 100))
        assert reader.bounds() == (0, 100)
    with Reader(tmp_path, AUDIT, select=Selection(since=NOON + 60)) as reader:
        assert len(list(reader.rows())) == 40


def test_following(tmp_path: Path) -> None:
    """Nothing there, then rows, over segments and restarts; from the beginning, from the end, and only some."""
    every, some = Reader(tmp_path, AUDIT), Reader(tmp_path, AUDIT, select=Selection(where={"user": "u"}))
    assert every.poll() == []
    assert every.tail(5) == []
    trial = Trial(tmp_path, segment_size=9_000)
    late: Reader | None = None
    seen: dict[str, list[int]] = {"every": [], "some": [], "late": []}
    for n in range(60):
        assert every.poll() == [], "nothing new"
        trial.write(audit(n, user="u" if n % 3 == 0 else "v"))
        if n == 20:
            late = Reader(tmp_path, AUDIT)
            assert [row["detail"] for batch in late.tail(1) for row in batch.to_pylist()] == ["20"]
        if n % 25 == 24:
            trial = trial.again(segment_size=9_000)
        for name, reader in (("every", every), ("some", some), ("late", late)):
            if reader is not None:
                seen[name] += [int(row["detail"]) for batch in reader.poll() for row in batch.to_pylist()]
    trial.close()
    assert len(segments(tmp_path)) > 3
    assert seen == {"every": list(range(60)), "some": list(range(0, 60, 3)), "late": list(range(21, 60))}
    for reader in (every, some, late):
        assert reader is not None
        assert reader.missed == 0
        assert reader.next == 60
        reader.close()


def test_a_batch_is_seen_when_it_is_whole_and_not_before(tmp_path: Path) -> None:
    trial = Trial(tmp_path)
    trial.write(audit(0))
    (path,) = segments(tmp_path)
    message, _ = encode(AUDIT, 0, 1, audits(range(1, 4)), compress=False)
    reader = Reader(tmp_path, AUDIT)
    settled = Reader(tmp_path, AUDIT, settled=True)
    assert len(reader.poll()) == 1
    with path.open("ab", buffering=0) as file:
        for byte in range(len(message)):
            file.write(message[byte : byte + 1])
            if byte + 1 < len(message) and byte % 11 == 0:
                assert reader.poll() == []
    assert [row["detail"] for row in reader.rows()] == ["1", "2", "3"]
    assert [row["detail"] for row in settled.rows()] == ["0"], "nobody has said that the rest is on the disk"
    assert settled.bounds() == (0, 1)
    assert reader.bounds() == (0, 4)
    trial.close()
    trial = Trial(tmp_path)
    assert [row["detail"] for row in settled.rows()] == ["1", "2", "3"], "opening has made sure of it"
    trial.close()
    reader.close()
    settled.close()


def test_an_end_that_is_cut_off_and_written_anew(tmp_path: Path) -> None:
    """A write that failed after a reader had seen it."""
    trial = Trial(tmp_path)
    trial.write(audit(0))
    (path,) = segments(tmp_path)
    size = path.stat().st_size
    ghost, _ = encode(AUDIT, 0, 1, audits(range(1, 20)), compress=False)
    with path.open("ab") as file:
        file.write(ghost)
    reader = Reader(tmp_path, AUDIT)
    assert len(list(reader.rows())) == 20
    os.truncate(path, size)
    assert reader.poll() == []
    trial.write(*audits(range(1, 30)))
    assert [int(row["detail"]) for row in reader.rows()] == list(range(20, 30)), "on from where it was"
    trial.close()
    reader.close()


def test_garbage_that_is_overwritten(tmp_path: Path) -> None:
    """A torn end that was looked at, then cut off and written anew, no longer than it was."""
    trial = Trial(tmp_path)
    trial.write(audit(0))
    trial.close()
    (path,) = segments(tmp_path)
    with path.open("ab") as file:
        file.write(b"\xff\xff\xff\xff\x40" + bytes(50_000))
    reader = Reader(tmp_path, AUDIT)
    assert len(list(reader.rows())) == 1
    trial = Trial(tmp_path)
    trial.write(audit(1))
    assert [row["detail"] for row in reader.rows()] == ["1"]
    trial.close()
    reader.close()


def test_a_segment_is_left_only_when_it_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its last batch and its follower come at the very moment in which a reader has found nothing more."""
    trial = Trial(tmp_path, segment_size=4_000)
    trial.write(audit(0))
    reader = Reader(tmp_path, AUDIT)
    assert len(reader.poll()) == 1
    real = module.first_offsets
    numbers = iter(range(1, 7))

    def late(folder: Path) -> list[int]:
        number = next(numbers, None)
        if number is not None:
            trial.write(audit(number))
        return real(folder)

    monkeypatch.setattr(module, "first_offsets", late)
    assert [int(row["detail"]) for row in reader.rows()] == [1, 2, 3, 4, 5, 6]
    assert reader.missed == 0
    assert len(segments(tmp_path)) > 2
    reader.close()
    trial.close()


def test_reading_while_writing(tmp_path: Path) -> None:
    """A reader in another thread sees every row once, in order, however they interleave."""
    trial = Trial(tmp_path, segment_size=30_000, sync=False)
    stop = threading.Event()
    found: dict[str, list[int]] = {"plain": [], "settled": []}
    failures: list[Exception] = []

    def follow(name: str) -> None:
        try:
            with Reader(tmp_path, AUDIT, settled=name == "settled") as reader:
                while True:
                    last = stop.is_set()
                    for batch in reader.poll():
                        found[name] += batch.column("offset").to_pylist()
                    if last:
                        break
                assert reader.missed == 0
        except Exception as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=follow, args=(name,)) for name in found]
    for thread in threads:
        thread.start()
    for n in range(0, 3000, 10):
        trial.write(*audits(range(n, n + 10)))
    trial.close()
    stop.set()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(segments(tmp_path)) > 5
    assert found == {"plain": list(range(3000)), "settled": list(range(3000))}


def test_large_rows(tmp_path: Path) -> None:
    trial = Trial(tmp_path, INGEST, segment_size=5 << 20)
    for n in range(6):
        trial.write(INGEST.row(NOON + n, payload=os.urandom(1 << 20) + b"%d" % n, topic=str(n)))
    trial.close()
    with Reader(tmp_path, INGEST) as reader:
        assert len(reader.poll()) < 6, "a few megabytes at a time"
    with Reader(tmp_path, INGEST) as reader:
        rows = list(reader.rows())
    assert [row["topic"] for row in rows] == [row["payload"][1 << 20 :].decode() for row in rows] == list("012345")
    assert len(segments(tmp_path, INGEST)) == 2


def test_nothing_there(tmp_path: Path) -> None:
    with Reader(tmp_path / "nowhere", AUDIT, start=5) as reader:
        assert list(reader.rows()) == []
        assert reader.bounds() == (0, 0)
        assert reader.tail(3) == []
    assert not (tmp_path / "nowhere").exists()
