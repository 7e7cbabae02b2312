"""A batch is in the lake whole and once, however often it is written and whatever dies in between."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from pipeline.lake.rows import DAY, JOURNAL, NOON, OTHER, files, found, lay, left_over, messages, records
from tidegate.errors import PipelineError
from tidegate.pipeline.lake import Lake, erase, read, write
from tidegate.pipeline.lake.swap import Step, unwatched
from tidegate.store.journal import schema, stream_named

FIRST = "0-0000000000000000007"


class Killed(BaseException):
    """The process ends here."""


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Iterator[Lake]:
    made = Lake(tmp_path / "lake", journal=JOURNAL)
    yield made
    made.close()


def test_messages_as_they_came(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    rows = [
        {"offset": 7, "id": "a-1-7", "topic": "raw/t/1", "payload": b"{}", "user": "mary", "qos": 1,
         "properties": [{"name": "k", "value": "v"}], "context": b"\x01"},
        {"offset": 8, "id": "a-1-8", "topic": "heart", "payload": b"\xff", "received_at": NOON + DAY},
    ]  # fmt: skip
    written = lake.write_raw(messages(rows), FIRST, categories=[("raw/#", "generic"), ("#", "personal")])
    assert written == 2
    assert files(tmp_path / "lake", "raw") == [f"date=2026-03-01/batch={FIRST}", f"date=2026-03-02/batch={FIRST}"]
    first, second = sorted(read(spark, tmp_path / "lake", "raw").collect(), key=lambda row: row.offset)
    assert (first.owner, first.category, first.qos, first.payload) == ("mary", "generic", 1, b"{}")
    assert [tuple(pair) for pair in first.properties] == [("k", "v")]
    assert (first.date, first.batch, first.context) == (date(2026, 3, 1), FIRST, b"\x01")
    assert (second.owner, second.category, second.date) == (None, "personal", date(2026, 3, 2))
    assert not left_over(tmp_path / "lake")
    assert not list((tmp_path / "lake" / "raw").rglob("*.crc"))


@pytest.mark.parametrize("few", [False, True], ids=["many", "few"])
def test_records_go_where_they_belong(spark: SparkSession, lake: Lake, tmp_path: Path, few: bool) -> None:
    scores = (None, 1.0, None, None, 0.5, None, None, None)
    rows = [
        {"offset": 7, "value": 21.5, "extra": "{}", "owner": "mary", "category": "generic", "message": b'{"id":1}',
         "scores": scores, "rules_version": "r1", "target": "w/t", "context": b"\x01"},
        {"offset": 8, "value": 22.5, "text": "x", "extra": "{}", "owner": "bob", "message": b'{"keyId":"k"}',
         "key_id": "k", "target": "w/u"},
        {"offset": 9, "value": 23.5, "text": "x", "extra": "{}", "denied": "p1", "target": "w/v"},
        {"offset": 10, "payload": b"oops", "fault": "not JSON", "owner": "eve", "context": b"\x02"},
    ]  # fmt: skip
    frame = records(spark, rows)
    counts = lake.write_records(frame.toArrow() if few else frame, FIRST)
    assert (counts.records, counts.quarantined) == (3, 1)
    frame = read(spark, tmp_path / "lake", "normalised")
    assert not {"payload", "fault", "context"} & set(frame.columns)
    clear, sealed, denied = sorted(frame.collect(), key=lambda row: row.offset)
    assert (clear.value, clear.extra, clear.message, clear.scores.accuracy) == (21.5, "{}", None, 0.5)
    assert (clear.rules_version, clear.target, clear.owner, clear.category) == ("r1", "w/t", "mary", "generic")
    assert (sealed.value, sealed.text, sealed.extra) == (None, None, None)
    assert (sealed.message, sealed.key_id, sealed.owner) == (b'{"keyId":"k"}', "k", "bob")
    assert (denied.value, denied.text, denied.extra, denied.message, denied.denied) == (23.5, "x", "{}", None, "p1")
    (faulty,) = read(spark, tmp_path / "lake", "quarantine").collect()
    assert (faulty.offset, faulty.payload, faulty.fault, faulty.owner) == (10, b"oops", "not JSON", "eve")


def test_rows_of_the_audit(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    layout = schema(stream_named("audit"))
    rows = [{"shard": 0, "offset": offset, "at": NOON, "kind": "deny", "user": "mary"} for offset in (5, 6)]
    batch = pa.RecordBatch.from_pylist(rows, layout)
    assert lake.write_audit(lambda: [batch], FIRST) == 2
    assert lake.write_audit(lambda: [batch], FIRST) == 2
    assert files(tmp_path / "lake", "audit") == [f"date=2026-03-01/batch={FIRST}"]
    assert [row.owner for row in read(spark, tmp_path / "lake", "audit").collect()] == ["mary", "mary"]
    assert lake.write_audit(list, FIRST) == 0


def test_a_day_is_one_of_utc(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        late = datetime(2026, 3, 1, 23, 59, 59, 999_999, UTC)
        before_1970 = datetime(1969, 12, 31, 23, tzinfo=UTC)
        times = [late, late + timedelta(microseconds=1), before_1970, None]
        rows = [{"offset": offset, "received_at": time} for offset, time in enumerate(times)]
        lake.write_raw(messages(rows), FIRST)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    days = ("1969-12-31", "1970-01-01", "2026-03-01", "2026-03-02")
    assert files(tmp_path / "lake", "raw") == [f"date={day}/batch={FIRST}" for day in days]


def test_a_batch_that_is_written_again_replaces_itself(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    """Also on days on which it has no rows any more, and in a table that it does not need any more."""
    path = tmp_path / "lake"
    rows = [{"offset": 7}, {"offset": 8, "received_at": NOON + DAY}, {"offset": 9, "fault": "broken"}]
    lake.write_records(records(spark, rows), FIRST)
    lake.write_records(records(spark, [{"offset": 20}]), "0-0000000000000000020")
    assert (found(path), found(path, "quarantine")) == ([7, 8, 20], [9])
    lake.write_records(records(spark, [{"offset": 7}, {"offset": 9}]), FIRST)
    assert (found(path), found(path, "quarantine")) == ([7, 9, 20], [])
    assert not (path / "normalised" / "date=2026-03-02").exists()
    lake.write_records(records(spark, []), FIRST)
    assert found(path) == [20]


def test_few_records_make_one_file_others_one_for_each_core(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    frame = records(spark, [{"offset": offset} for offset in range(10)]).repartition(4)
    lake.write_records(frame.toArrow(), FIRST)
    assert len(files(tmp_path / "lake")) == 1
    lake.write_records(frame, FIRST)
    assert len(files(tmp_path / "lake")) == spark.sparkContext.defaultParallelism == 2
    assert found(tmp_path / "lake") == list(range(10))


@pytest.mark.parametrize("death", [1, 2, 5])
def test_killed_in_the_middle(spark: SparkSession, tmp_path: Path, death: int) -> None:
    """Before the swap is written down nothing has happened; after it everything has, once somebody looks.

    All steps are in the tests of swaps, which need no Spark.
    """
    path = tmp_path / "lake"
    seen: list[str] = []

    def step(name: str) -> None:
        seen.append(name)
        if len(seen) == death:
            raise Killed

    _written(spark, path, [{"offset": 7}, {"offset": 8, "fault": "broken"}], unwatched)
    new = [{"offset": 7}, {"offset": 8}, {"offset": 9, "fault": "broken"}]
    with pytest.raises(Killed):
        _written(spark, path, new, step)
    assert {7, 8} <= {*found(path), *found(path, "quarantine")}
    with_read = [(row.offset, row.part) for row in read(spark, path, "normalised").collect()]
    assert len(with_read) == len(set(with_read))
    Lake(path, journal=JOURNAL).recover()
    expected = ([7], [8]) if seen[-1] == "staged" else ([7, 8], [9])
    assert (found(path), found(path, "quarantine")) == expected
    assert not left_over(path)
    _written(spark, path, new, unwatched)
    assert (found(path), found(path, "quarantine")) == ([7, 8], [9])


def _written(spark: SparkSession, path: Path, rows: list[dict[str, object]], step: Step) -> None:
    lake = Lake(path, journal=JOURNAL, step=step)
    try:
        lake.write_records(records(spark, rows).toArrow(), FIRST)
    finally:
        lake.close()


def test_somebody_is_erased_while_a_batch_is_written(
    spark: SparkSession, lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lake"
    staged, original = [], write.stage

    def stage(*arguments: object) -> object:
        files = original(*arguments)  # type: ignore[arg-type]
        if not staged:
            assert erase(path, "mary").rows["raw"] == 0
        staged.append(arguments)
        return files

    monkeypatch.setattr(write, "stage", stage)
    rows = [{"offset": 7, "user": "mary"}, {"offset": 8, "user": "bob"}, {"offset": 9}]
    assert lake.write_raw(messages(rows), FIRST) == 2
    assert len(staged) == 2
    assert found(path, "raw") == [8, 9]


def test_two_jobs(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    lake.recover()
    other = Lake(tmp_path / "lake", journal=JOURNAL)
    with pytest.raises(
        PipelineError, match=r"another job of this journal writes to .* wait until it is done, or stop it"
    ):
        other.recover()
    lake.close()
    other.recover()
    other.close()


def test_jobs_of_several_journals(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    """They write at the same time; neither touches, nor counts as its own, what the other has written."""
    path = tmp_path / "lake"
    other = Lake(path, journal=OTHER)
    names = [f"{journal}-{FIRST}" for journal in (JOURNAL, OTHER)]
    for number, (each, name) in enumerate(zip((lake, other), names, strict=True)):
        rows = [{"offset": 7, "value": float(number)}, {"offset": 8, "fault": "broken"}]
        each.write_raw(messages([{"offset": offset} for offset in range(7, 9 + number)]), name)
        each.write_records(records(spark, rows).toArrow() if number else records(spark, rows), name)
    assert (lake.progress(), other.progress()) == ({0: 7}, {0: 7})
    found_rows = sorted((row.journal, row.offset, row.value) for row in read(spark, path, "normalised").collect())
    assert found_rows == [(JOURNAL, 7, 0.0), (OTHER, 7, 1.0)]
    assert [len(read(spark, path, name).collect()) for name in ("raw", "quarantine")] == [5, 2]
    lake.write_records(records(spark, []).toArrow(), names[0])
    assert [row.journal for row in read(spark, path, "normalised").collect()] == [OTHER]
    assert json.loads((path / "_tidegate.json").read_text())["journals"] == [JOURNAL, OTHER]
    other.close()
    new = Lake(path, journal="0" * 32)
    assert new.progress() == {}
    new.close()


def test_rows_of_version_1_are_of_the_journal_that_adopts_them(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "lake"
    lay(path, [0, 1], table="raw", batch="0-0000000000000000000", journal=None)
    lay(path, [2], table="raw", batch="0-0000000000000000002", journal=None)
    (path / "_tidegate.json").write_text('{"tidegate": 1, "kind": "lake"}')
    lake = Lake(path, journal=JOURNAL)
    lake.recover(adopt=True)
    assert lake.progress() == {0: 2}
    lake.write_raw(messages([{"offset": 2}, {"offset": 3}]), f"{JOURNAL}-0-0000000000000000002")
    lake.close()
    assert found(path, "raw") == [0, 1, 2, 3]  # what the attempt of version 1 has left is gone
    stranger = Lake(path, journal=OTHER)
    stranger.recover(adopt=True)
    assert stranger.progress() == {}
    stranger.write_raw(messages([{"offset": 0}]), f"{OTHER}-0-0000000000000000000")
    stranger.close()
    rows = sorted((row.journal, row.offset) for row in read(spark, path, "raw").collect())
    assert rows == [*((JOURNAL, offset) for offset in range(4)), (OTHER, 0)]


@pytest.mark.parametrize("name", ["", "a/b", "..//", "x" * 129, "compacted", "daily", "a b", "ü"])
def test_a_name_that_cannot_be(spark: SparkSession, lake: Lake, name: str) -> None:
    with pytest.raises(PipelineError, match="cannot name a batch"):
        lake.write_records(records(spark, []), name)


def test_where_a_lost_ledger_goes_on(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    assert lake.progress() == {}
    path = tmp_path / "lake"
    lay(path, [0, 1, 2], table="raw", batch="0-0")
    lay(path, [3, 4], table="raw", batch="0-3")
    lay(path, [5], table="raw", batch="0-3", day=date(2026, 3, 2))
    assert lake.progress() == {0: 3}
    lay(path, [6, 7], table="raw", batch="compacted")
    assert lake.progress() == {0: 8}


def test_what_is_written_is_compressed_and_plain(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    lake.write_raw(messages([{"offset": 1, "topic": "t"}]), FIRST)
    (file,) = (tmp_path / "lake" / "raw").rglob("part-*.parquet")
    described = pq.ParquetFile(file)
    assert described.metadata.row_group(0).column(0).compression == "ZSTD"
    assert str(described.schema_arrow.field("received_at").type) == "timestamp[us, tz=UTC]"
