"""Rows come in on the loop and are on the disk, in order, when `after` says so."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest

from store.journal.trial import NOON, Trial, audit, audits, details, one_line, segments
from tidegate.errors import StoreError
from tidegate.store.journal import AUDIT, INGEST, TRAFFIC, Reader, Writer, audit_row, ingest_row, traffic_row
from tidegate.store.journal import writer as module


def test_offsets_go_on_over_restarts(tmp_path: Path) -> None:
    trial = Trial(tmp_path)
    trial.write(*audits(range(5)))
    trial.write(*audits(range(5, 6)))
    assert trial.writer.next == 6
    trial = trial.again()
    assert trial.writer.next == 6
    trial.write(*audits(range(6, 9)))
    trial.close()
    assert details(tmp_path) == list(range(9))
    (path,) = segments(tmp_path)
    assert path == tmp_path / "journal" / "audit" / "0" / f"{0:020d}.arrow"
    assert one_line(path).column("offset").to_pylist() == list(range(9))
    assert [batch.num_rows for batch in pa.ipc.open_stream(path)] == [5, 1, 3]


def test_after_runs_in_order_on_the_loop_and_not_at_once(tmp_path: Path) -> None:
    trial = Trial(tmp_path)
    done: list[int] = []
    trial.writer.after(done.append, 0)
    assert done == []
    trial.loop.until(lambda: done)
    for n in range(1, 2000):
        trial.writer.append(audit(n))
        if n % 3 == 0:
            trial.writer.after(done.append, n)
    trial.writer.after(done.append, 2000)
    assert done == [0]
    trial.loop.until(lambda: done[-1] == 2000)
    assert done == [0, *range(3, 2000, 3), 2000]
    trial.close()


def test_what_after_promised_can_be_read(tmp_path: Path) -> None:
    trial = Trial(tmp_path)
    for n in range(30):
        trial.write(audit(n))
        assert details(tmp_path, settled=True)[-1] == n
    trial.close()


def test_a_turn_runs_so_many_callbacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TURN", 10)
    trial = Trial(tmp_path, start=False)
    done: list[int] = []
    for n in range(25):
        trial.writer.after(done.append, n)
    for expected in (10, 20, 25):
        trial.loop.turn()
        assert done == list(range(expected))
    assert trial.loop.queue.empty()
    trial.close()


def test_a_failing_callback_harms_nobody(tmp_path: Path) -> None:
    trial = Trial(tmp_path)
    trial.writer.append(audit(0))
    trial.writer.after(int, "no number")  # type: ignore[arg-type]
    trial.commit()
    trial.close()


def test_rows_without_anybody_waiting_are_written_within_the_interval(tmp_path: Path) -> None:
    trial = Trial(tmp_path, interval=0.02)
    reader = Reader(tmp_path, AUDIT)
    written = threading.Event()
    append = trial.writer._segment.append  # type: ignore[union-attr]

    def told(message: bytearray, place: object) -> None:
        append(message, place)  # type: ignore[arg-type]
        written.set()

    trial.writer._segment.append = told  # type: ignore[union-attr,method-assign]
    for n in range(100):
        trial.writer.append(audit(n))
    assert written.wait(20.0)
    (batch,) = reader.poll()
    assert batch.num_rows == 100
    assert trial.loop.queue.empty(), "nobody asked"
    reader.close()
    trial.close()


def test_enough_rows_for_a_batch_do_not_wait(tmp_path: Path) -> None:
    trial = Trial(tmp_path)
    for n in range(module.ROWS):
        trial.writer.append(audit(n))
    deadline = time.monotonic() + 20
    while trial.writer.backlog:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    assert details(tmp_path) == list(range(module.ROWS))
    trial.close()


def test_closing_writes_everything_and_runs_what_waits(tmp_path: Path) -> None:
    trial = Trial(tmp_path, interval=1000.0)
    done: list[int] = []
    for n in range(10000):
        trial.writer.append(audit(n))
    trial.writer.after(done.append, 1)
    trial.close()
    assert done == [1]
    assert details(tmp_path) == list(range(10000))
    assert not trial.writer.append(audit(1)), "closed"
    trial.close()


def test_a_batch_has_a_limit_in_rows_and_in_bytes(tmp_path: Path) -> None:
    trial = Trial(tmp_path, INGEST, start=False)
    for _ in range(9000):
        trial.writer.append(ingest_row(NOON))
    for _ in range(5):
        trial.writer.append(ingest_row(NOON, payload=bytes(3 << 20)))
    trial.writer.start()
    trial.close()
    (path,) = segments(tmp_path, INGEST)
    assert [batch.num_rows for batch in pa.ipc.open_stream(path)] == [4096, 4096, 811, 2]


def test_segments_roll_by_size_and_each_is_an_arrow_stream(tmp_path: Path) -> None:
    trial = Trial(tmp_path, segment_size=20_000)
    began: list[int] = []
    trial.writer._rolled = began.append
    for n in range(0, 200, 5):
        trial.write(*audits(range(n, n + 5)))
    trial.close()
    while not trial.loop.queue.empty():
        trial.loop.turn()
    paths = segments(tmp_path)
    assert len(paths) > 3
    assert began == [int(path.stem) for path in paths[1:]]
    tables = [one_line(path) for path in paths]
    assert pa.concat_tables(tables).column("offset").to_pylist() == list(range(200))
    for path, table in zip(paths, tables, strict=True):
        assert table.num_rows == 0 or table.column("offset")[0].as_py() == int(path.stem)
    for path in paths[:-1]:
        assert path.read_bytes().endswith(b"\xff\xff\xff\xff\x00\x00\x00\x00")
    assert details(tmp_path) == list(range(200))
    trial = Trial(tmp_path, segment_size=20_000)
    trial.write(audit(200))
    trial.close()
    assert details(tmp_path) == list(range(201))


def test_segments_roll_by_age(tmp_path: Path) -> None:
    trial = Trial(tmp_path, segment_age=0.0)
    for n in range(3):
        trial.write(audit(n))
    trial.close()
    assert [path.stem for path in segments(tmp_path)] == [f"{n:020d}" for n in range(4)]
    trial = Trial(tmp_path, segment_age=0.0)
    assert trial.writer.next == 3, "the empty last segment keeps the count"
    trial.close()
    assert len(segments(tmp_path)) == 4, "an empty segment does not roll"


def test_only_one_writer(tmp_path: Path) -> None:
    trial = Trial(tmp_path)
    with pytest.raises(StoreError, match=r"in use by process \d+"):
        Trial(tmp_path)
    other = Trial(tmp_path, shard=1)
    other.write(audit(7))
    other.close()
    trial.close()
    Trial(tmp_path).close()
    assert details(tmp_path, shard=1) == [7]


def test_wrong_uses_are_said(tmp_path: Path) -> None:
    writer = Writer(tmp_path, AUDIT, call=lambda f: f())
    with pytest.raises(StoreError, match="not open"):
        writer.start()
    assert not writer.append(audit(0))
    writer.close()
    writer.open()
    with pytest.raises(StoreError, match="before"):
        writer.open()
    assert writer.append(audit(1)), "it waits for the start"
    writer.close()
    with Reader(tmp_path, AUDIT) as reader:
        assert [(row["kind"], row["count"]) for row in reader.rows()] == [("error", 1), ("deny", 1)]


def test_too_much_audit_is_dropped_counted_and_said(tmp_path: Path) -> None:
    """Where rows are missing stands one that says how many, with the time of the first."""
    trial = Trial(tmp_path, start=False, backlog=100 * 600)
    accepted = [trial.writer.append(audit(n)) for n in range(300)]
    kept = accepted.count(True)
    assert accepted == [True] * kept + [False] * (300 - kept)
    assert 100 <= kept < 130
    assert trial.writer.dropped == 300 - kept
    assert trial.writer.full
    trial.writer.start()
    trial.loop.until(lambda: not trial.writer._lost)
    assert trial.writer.append(audit(300))
    trial.close()
    with Reader(tmp_path, AUDIT) as reader:
        rows = list(reader.rows())
    assert [row["offset"] for row in rows] == list(range(kept + 2))
    assert [row["detail"] for row in rows[:kept]] == [str(n) for n in range(kept)]
    lost = rows[kept]
    assert (lost["kind"], lost["count"], lost["action"]) == ("error", 300 - kept, "journal")
    assert lost["at"].timestamp() == NOON + kept
    assert rows[-1]["detail"] == "300"


def test_lost_rows_are_said_when_the_journal_is_closed(tmp_path: Path) -> None:
    trial = Trial(tmp_path, TRAFFIC, start=False, backlog=1000)
    for n in range(10):
        trial.writer.append(traffic_row(NOON + n, event="connect"))
    trial.writer.start()
    trial.close()
    with Reader(tmp_path, TRAFFIC) as reader:
        rows = list(reader.rows())
    assert [row["event"] for row in rows] == ["connect", "connect", "lost"]
    assert rows[-1]["attributes"] == '{"rows": 8}'


def test_ingest_is_refused_not_dropped(tmp_path: Path) -> None:
    trial = Trial(tmp_path, INGEST, start=False, backlog=100_000)
    assert not trial.writer.full
    assert trial.writer.append(ingest_row(NOON, payload=bytes(60_000)))
    assert trial.writer.full, "half is taken: time to stop reading"
    assert trial.writer.append(ingest_row(NOON, payload=bytes(600_000))), "any message fits when there is room"
    assert not trial.writer.append(ingest_row(NOON))
    assert trial.writer.dropped == 0
    resumed: list[bool] = []
    trial.writer.after(lambda: resumed.append(trial.writer.full))
    trial.writer.start()
    trial.loop.until(lambda: resumed)
    assert resumed == [False], "written, and there is room"
    assert trial.writer.append(ingest_row(NOON))
    trial.close()
    assert one_line(segments(tmp_path, INGEST)[0]).num_rows == 3


def test_a_row_that_does_not_fit_spoils_no_other(tmp_path: Path) -> None:
    trial = Trial(tmp_path, start=False)
    for n in range(100):
        trial.writer.append(audit_row("noon", count="x") if n in (0, 50, 51, 99) else audit(n))  # type: ignore[arg-type]
    trial.writer.start()
    trial.close()
    assert trial.writer.spoilt == 4
    assert details(tmp_path) == [n for n in range(100) if n not in (0, 50, 51, 99)]


def test_a_bug_in_the_writer_refuses_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: object) -> None:
        raise ZeroDivisionError

    trial = Trial(tmp_path, interval=0.0)
    monkeypatch.setattr(trial.writer, "_roll", broken)
    trial.writer.append(audit(0))
    trial.writer._thread.join()  # type: ignore[union-attr]
    assert not trial.writer.append(audit(1))
    assert trial.writer.dropped == 1
    assert trial.writer.trouble is not None
    assert "bug" in trial.writer.trouble
    with pytest.raises(StoreError, match="could not be written"):
        trial.close()


def test_a_closed_loop_does_not_stop_the_writer(tmp_path: Path) -> None:
    trial = Trial(tmp_path)

    def closed(_: object) -> None:
        raise RuntimeError("Event loop is closed")

    trial.writer._call = closed
    done: list[int] = []
    for n in range(5):
        trial.writer.append(audit(n))
        trial.writer._waiting.append((n + 1, done.append, (n,)))
    trial.close()
    assert done == list(range(5))
    assert details(tmp_path) == list(range(5))


def test_nothing_is_imported_before_it_is_needed() -> None:
    code = "import sys, tidegate.store.journal; sys.exit('pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_files_are_for_the_owner_only(tmp_path: Path) -> None:
    trial = Trial(tmp_path, segment_age=0.0)
    trial.write(audit(0))
    trial.close()
    files = [path for path in trial.folder.iterdir() if path.is_file()]
    assert len(files) == 5
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
