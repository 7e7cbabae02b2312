"""The format `tidegate`: journals as batches and streams of Spark."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from pipeline.journals import write
from store.journal.trial import NOON, Trial, audits, segments
from tidegate.pipeline import columns
from tidegate.pipeline.source import register
from tidegate.store.journal import AUDIT, INGEST, known_journal

PATIENCE = 100
SLOW = 240  # seconds: Spark is started by the test


@pytest.fixture
def registered(spark: SparkSession) -> SparkSession:
    register(spark)
    return spark


class Job:
    """A query into Parquet that can be run again; what it has read is counted with its repetitions."""

    def __init__(self, spark: SparkSession, data: Path, folder: Path, **options: object) -> None:
        self.spark = spark
        self.data = data
        self.out = folder / "out"
        self.checkpoint = folder / "checkpoint"
        self.options = {name: str(value) for name, value in options.items()}

    def run(self) -> StreamingQuery:
        """Reads what is there, and ends."""
        frame = self.spark.readStream.format("tidegate").options(**self.options).load(str(self.data))
        query = (
            frame.writeStream.format("parquet")
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start(str(self.out))
        )
        assert query.awaitTermination(PATIENCE)
        return query

    def offsets(self) -> list[int]:
        return sorted(row["offset"] for row in self.spark.read.parquet(str(self.out)).select("offset").collect())


def sizes(query: StreamingQuery) -> list[int]:
    return [each["numInputRows"] for each in query.recentProgress if each["numInputRows"]]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write(tmp_path / "node", range(100))
    return tmp_path / "node"


def batch(spark: SparkSession, data: Path, **options: str) -> DataFrame:
    return spark.read.format("tidegate").options(**options).load(str(data))


# batches


def test_a_batch_has_every_row_and_column(registered: SparkSession, data: Path) -> None:
    frame = batch(registered, data)
    assert [(field.name, field.dataType.simpleString()) for field in frame.schema] == list(columns.INGEST)
    rows = frame.orderBy("offset").collect()
    assert [row["id"] for row in rows] == [str(number) for number in range(100)]
    found = rows[42].asDict(recursive=True)
    assert found["payload"] == b"42"
    assert found["properties"] == [{"name": "a", "value": "b"}]
    assert found["shard"] == 0
    assert found["client"] is None
    seconds = frame.selectExpr("unix_micros(received_at) AS at").where("offset = 42").first()
    assert seconds is not None
    assert seconds["at"] == int((NOON + 42) * 1_000_000)


def test_only_some_columns(registered: SparkSession, data: Path) -> None:
    wanted = "payload binary, properties array<struct<name:string,value:string>>, offset bigint"
    frame = registered.read.format("tidegate").schema(wanted).load(str(data))
    assert frame.columns == ["payload", "properties", "offset"]
    found = frame.where("offset = 7").first()
    assert found is not None
    assert found["payload"] == b"7"
    assert found["properties"][0]["value"] == "b"


@pytest.mark.parametrize(
    ("schema", "said"), [("colour string", "no column 'colour'"), ("payload string", "'payload' is binary, not string")]
)
def test_columns_that_are_not_there(registered: SparkSession, data: Path, schema: str, said: str) -> None:
    with pytest.raises(PySparkException, match=said):
        registered.read.format("tidegate").schema(schema).load(str(data)).count()


def test_a_batch_of_a_time(registered: SparkSession, data: Path) -> None:
    since = datetime.fromtimestamp(NOON + 10, UTC)
    until = datetime.fromtimestamp(NOON + 30, UTC).replace(tzinfo=None)  # no zone is UTC
    assert batch(registered, data, since=since.isoformat(), until=until.isoformat()).count() == 20
    assert batch(registered, data, since="1h").count() == 0


def test_an_empty_journal(registered: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()
    assert batch(registered, tmp_path).count() == 0


def test_other_streams(registered: SparkSession, tmp_path: Path) -> None:
    trial = Trial(tmp_path, AUDIT)
    trial.write(*audits(range(5)))
    trial.close()
    assert sorted(row["detail"] for row in batch(registered, tmp_path, stream="audit").collect()) == list("01234")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"stream": "ingst"}, "one of audit, traffic, ingest"),
        ({"since": "yesterday"}, "or how long ago"),
        ({"failOnDataLoss": "perhaps"}, "write true or false"),
        ({"maxRowPerBatch": "5"}, "there is no option 'maxrowperbatch'; there are path, failOnDataLoss"),
    ],
)
def test_options_that_mean_nothing(registered: SparkSession, data: Path, options: dict[str, str], said: str) -> None:
    with pytest.raises(PySparkException, match=said):
        batch(registered, data, **options).count()


def test_no_journal(registered: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match=r"there is no journal in .*node\.data"):
        batch(registered, tmp_path).count()
    with pytest.raises(PySparkException, match="the option 'path' is missing"):
        registered.read.format("tidegate").load().count()


# streams


def test_a_stream_goes_on_from_its_checkpoint(registered: SparkSession, data: Path, tmp_path: Path) -> None:
    job = Job(registered, data, tmp_path)
    job.run()
    assert job.offsets() == list(range(100))
    write(data, range(100, 130))
    write(data, range(7), shard=1)
    job.run()
    assert job.offsets() == sorted([*range(130), *range(7)])
    assert sizes(job.run()) == [], "nothing is new"
    assert job.offsets() == sorted([*range(130), *range(7)])


def test_a_batch_has_no_more_rows_than_asked_for(registered: SparkSession, data: Path, tmp_path: Path) -> None:
    job = Job(registered, data, tmp_path, maxRowsPerBatch=40)
    assert sizes(job.run()) == [40, 40, 20]
    assert job.offsets() == list(range(100))


def test_where_to_begin(registered: SparkSession, data: Path, tmp_path: Path) -> None:
    middle = Job(registered, data, tmp_path / "a", startingOffsets='{"0": 60}')
    middle.run()
    assert middle.offsets() == list(range(60, 100))
    latest = Job(registered, data, tmp_path / "b", startingOffsets="latest")
    assert sizes(latest.run()) == []
    unknown = Job(registered, data, tmp_path / "c", startingOffsets="newest")
    with pytest.raises(PySparkException, match="write earliest, latest, or an offset for each shard"):
        unknown.run()


def test_latest_stays_where_it_was_when_the_query_began(registered: SparkSession, data: Path, tmp_path: Path) -> None:
    seen: list[int] = []
    frame = registered.readStream.format("tidegate").option("startingOffsets", "latest").load(str(data))

    def note(rows: DataFrame, number: int) -> None:
        seen.extend(row["offset"] for row in rows.select("offset").collect())

    query = frame.writeStream.foreachBatch(note).option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        wait(query, lambda: query.lastProgress is not None)  # it has looked once
        write(data, range(100, 110))
        wait(query, lambda: len(seen) >= 10)
    finally:
        query.stop()
    assert sorted(seen) == list(range(100, 110))


def wait(query: StreamingQuery, happened: Any) -> None:
    for _ in range(PATIENCE * 20):
        if happened():
            return
        assert not query.awaitTermination(0.05), "it ended"
    raise AssertionError("it did not happen")


def test_the_reader_is_known_to_retention(registered: SparkSession, data: Path, tmp_path: Path) -> None:
    file = data / "journal/ingest/readers/mine.json"
    job = Job(registered, data, tmp_path, name="mine", maxRowsPerBatch=60)
    job.run()
    # Spark says that it is done with a batch when the next one begins.
    assert json.loads(file.read_text()) == {"0": 60}
    write(data, range(100, 110))
    job.run()
    assert json.loads(file.read_text()) == {"0": 100}


def test_a_deleted_checkpoint_begins_with_the_oldest(registered: SparkSession, tmp_path: Path) -> None:
    data = tmp_path / "node"
    write(data, range(100), segment_size=2000)
    first = Job(registered, data, tmp_path / "a", name="mine")
    first.run()
    gone, *_ = segments(data, INGEST)
    gone.unlink()
    again = Job(registered, data, tmp_path / "b", name="mine")
    again.run()
    oldest = again.offsets()[0]
    assert oldest > 0
    assert again.offsets() == list(range(oldest, 100))


def test_lost_rows_are_an_error_unless_one_says_otherwise(registered: SparkSession, tmp_path: Path) -> None:
    data = tmp_path / "node"
    write(data, range(20))
    job = Job(registered, data, tmp_path)
    job.run()
    write(data, range(20, 100), segment_size=1500)
    for path in segments(data, INGEST)[:3]:
        path.unlink()
    with pytest.raises(PySparkException, match=r"rows from offset 20 .* are gone: .*failOnDataLoss=false"):
        job.run()
    job.options["failOnDataLoss"] = "false"
    job.run()
    offsets = job.offsets()
    assert offsets[:20] == list(range(20))
    assert offsets[20] > 20
    assert offsets[20:] == list(range(offsets[20], 100))


def rebuild(data: Path, numbers: range) -> None:
    """Another journal in the same folder."""
    shutil.rmtree(data / "journal")
    write(data, numbers)


@pytest.mark.parametrize("rows", [5, 100, 200], ids=["shorter", "as long", "longer"])
def test_another_journal_is_an_error(registered: SparkSession, data: Path, tmp_path: Path, rows: int) -> None:
    job = Job(registered, data, tmp_path)
    job.run()
    before = known_journal(data)
    rebuild(data, range(1000, 1000 + rows))
    another = rf"is the journal {known_journal(data)}, .* goes on in the journal {before}: .* delete the checkpoint"
    with pytest.raises(PySparkException, match=another):
        job.run()
    job.options["failOnDataLoss"] = "false"
    with pytest.raises(PySparkException, match=another):
        job.run()
    assert job.offsets() == list(range(100))
    begun = Job(registered, data, tmp_path / "anew")  # the remedy
    begun.run()
    assert begun.offsets() == list(range(rows))


def test_a_checkpoint_without_the_id_of_the_journal(registered: SparkSession, data: Path, tmp_path: Path) -> None:
    job = Job(registered, data, tmp_path)
    job.run()
    ends = tmp_path / "checkpoint/offsets"
    (kept,) = (path for path in ends.iterdir() if path.name == "0")
    *lines, offset = kept.read_text().splitlines()
    assert json.loads(offset) == {"journal": known_journal(data), "0": 100}
    kept.write_text("\n".join([*lines, '{"0": 100}']))  # as versions before journals had ids
    (ends / ".0.crc").unlink()
    write(tmp_path / "other", range(5))
    with pytest.raises(PySparkException, match=r"ends at offset 5, .* goes on at 100: .* delete the checkpoint"):
        Job(registered, tmp_path / "other", tmp_path).run()
    assert sizes(job.run()) == [], "it counts as an offset of the journal that is there"
    assert not (ends / "1").exists(), "no batch without rows"
    write(data, range(100, 130))
    job.run()
    assert job.offsets() == list(range(130))
    rebuild(data, range(300))
    with pytest.raises(PySparkException, match="it is not the journal that was read before"):
        job.run()


def test_starting_offsets_of_another_journal(registered: SparkSession, data: Path, tmp_path: Path) -> None:
    for name, journal in (("own", known_journal(data)), ("other", "0" * 32)):
        given = json.dumps({"journal": journal, "0": 60})
        job = Job(registered, data, tmp_path / name, startingOffsets=given)
        if name == "own":
            job.run()
            assert job.offsets() == list(range(60, 100))
        else:
            with pytest.raises(PySparkException, match="it is not the journal that was read before"):
                job.run()


# whoever is killed

SCRIPT = """
import os, signal, sys, warnings
warnings.simplefilter("ignore")
from tidegate.pipeline.source import register
from tidegate.pipeline.spark import session

data, folder = sys.argv[1:]
spark = session("killed", master="local[1]")
register(spark)

def keep(rows, number):
    rows.select("offset").write.mode("overwrite").parquet(f"{folder}/out/{number}")
    if number == 1:
        os.kill(spark.sparkContext._gateway.proc.pid, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

frame = spark.readStream.format("tidegate").option("maxRowsPerBatch", 30).option("name", "mine").load(data)
query = frame.writeStream.foreachBatch(keep).option("checkpointLocation", f"{folder}/checkpoint")
query.trigger(availableNow=True).start().awaitTermination()
"""


@pytest.mark.timeout(SLOW)
def test_a_driver_that_is_killed_loses_and_repeats_nothing(
    registered: SparkSession, data: Path, tmp_path: Path
) -> None:
    with (tmp_path / "said").open("wb") as said:  # no pipe: workers of who was killed may hold it for a while
        command = [sys.executable, "-c", SCRIPT, str(data), str(tmp_path)]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, timeout=SLOW)
    assert done.returncode == -signal.SIGKILL, (tmp_path / "said").read_text()
    assert json.loads((data / "journal/ingest/readers/mine.json").read_text()) == {"0": 30}

    def keep(rows: DataFrame, number: int) -> None:
        rows.select("offset").write.mode("overwrite").parquet(f"{tmp_path}/out/{number}")

    frame = registered.readStream.format("tidegate").option("name", "mine").load(str(data))
    query = frame.writeStream.foreachBatch(keep).option("checkpointLocation", f"{tmp_path}/checkpoint")
    assert query.trigger(availableNow=True).start().awaitTermination(PATIENCE)
    found = [
        [row["offset"] for row in registered.read.parquet(str(each)).collect()] for each in (tmp_path / "out").iterdir()
    ]
    assert sorted(offset for each in found for offset in each) == list(range(100))
    assert len(found) == 3, "the second batch was made once more, the third is new"
