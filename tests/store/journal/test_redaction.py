"""Content of somebody's rows goes from a journal: theirs alone, within their time; offsets stay, also for readers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tidegate.store.journal import INGEST, Reader, Writer, ingest_row
from tidegate.store.journal.redaction import redact
from tidegate.store.journal.segment import first_offsets, folder_of, index_of, segment_of


def written(data: Path, *segments: list[tuple[str, float]]) -> None:
    """Segments with a row of each user at a time."""
    writer = Writer(data, INGEST, call=lambda function: function(), interval=0.001)
    writer.open()
    writer.start()
    for rows in segments:
        for user, at in rows:
            assert writer.append(
                ingest_row(
                    received_at=at,
                    id=f"{user}-{at:g}",
                    topic="t",
                    payload=b"x" * 40_000,
                    properties=[("a", "b")],
                    content_type="c",
                    user=user,
                )
            )
        assert writer.roll()
    writer.close()


def left(data: Path, start: int | None = None) -> list[tuple[int, str, bool, Any]]:
    with Reader(data, INGEST, start=start) as reader:
        return [(row["offset"], row["id"], row["payload"] is None, row["properties"]) for row in reader.rows()]


PAIRS = [{"name": "a", "value": "b"}]


def test_theirs_alone_within_their_time(tmp_path: Path) -> None:
    written(tmp_path, [("mary", 5.0), ("bob", 6.0), ("mary", 20.0)], [("bob", 21.0)], [("mary", 30.0), ("scale", 31.0)])
    folder = folder_of(tmp_path, INGEST, 0)
    untouched = segment_of(folder, 3).stat().st_mtime_ns
    done = redact(tmp_path, INGEST, {"mary": 10.0, "scale": 0.0}, 31.0)
    assert (done.rows, done.unread) == (2, 0)
    assert left(tmp_path) == [
        (0, "mary-5", False, PAIRS),
        (1, "bob-6", False, PAIRS),
        (2, "mary-20", True, None),
        (3, "bob-21", False, PAIRS),
        (4, "mary-30", True, None),
        (5, "scale-31", False, PAIRS),
    ]
    assert segment_of(folder, 3).stat().st_mtime_ns == untouched
    assert b"x" * 10 not in b"".join(path.read_bytes() for path in folder.glob("*.new"))
    assert redact(tmp_path, INGEST, {"mary": 10.0}, 31.0).rows == 0, "twice does no harm"
    assert [row[0] for row in left(tmp_path, start=4)] == [4, 5], "the new index agrees"
    written(tmp_path, [("mary", 40.0)])
    assert left(tmp_path)[-1][0] == 6, "the node opens it again"


def test_readers_in_between(tmp_path: Path) -> None:
    """One that has the old segment open, one that finds no index, and one with an index of the other segment."""
    written(tmp_path, [("bob", 1.0)] * 5 + [("mary", 2.0), ("bob", 3.0)], [("bob", 4.0)])
    before = Reader(tmp_path, INGEST)
    first = before._batch()  # it has the segment open now
    assert first is not None
    segment = segment_of(folder_of(tmp_path, INGEST, 0), 0)
    old = index_of(segment).read_bytes()
    redact(tmp_path, INGEST, {"mary": 0.0}, 9.0)
    assert first.num_rows + sum(batch.num_rows for batch in before.batches()) == 8
    before.close()
    for index in (None, old):
        index_of(segment).unlink(missing_ok=True)
        if index is not None:
            index_of(segment).write_bytes(index)
        assert [row[0] for row in left(tmp_path, start=6)] == [6, 7]
        assert len(left(tmp_path)) == 8


def test_the_segment_that_is_written_and_damaged_ones_are_left_alone(tmp_path: Path) -> None:
    written(tmp_path, [("mary", 1.0)], [("mary", 2.0)])
    folder = folder_of(tmp_path, INGEST, 0)
    first, *_, last = first_offsets(folder)
    path = segment_of(folder, first)
    path.write_bytes(path.read_bytes()[:-20])
    done = redact(tmp_path, INGEST, {"mary": 0.0}, 9.0)
    assert done.rows == 1
    assert segment_of(folder, last).exists()
