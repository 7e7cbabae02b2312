"""The whole pipeline over a journal that is written by hand: what is in the lake afterwards."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession

from store.journal.trial import NOON, Trial
from tidegate.config import Config, parse
from tidegate.errors import PipelineError
from tidegate.pipeline import job, stages
from tidegate.pipeline.folders import Folders, alone
from tidegate.pipeline.job import Done, Job
from tidegate.pipeline.lake import Lake, erase, read
from tidegate.pipeline.node_client import NodeClient
from tidegate.pipeline.protect import Answer, Wanted
from tidegate.pipeline.status import overview
from tidegate.store.journal import AUDIT, INGEST, audit_row, ingest_row, journal_id

RULES = """\
version: 1
sources: [{id: thermo, type: temperature, time: {at: /ts, form: s}, values: [{name: temperature, at: /t, unit: C}]}]
scores:
  - {id: range, dimension: accuracy, check: in_range, args: {column: value, min: -40, max: 60, soft: 10}}
  - {id: fresh, dimension: timeliness, check: age_under, args: {good: 2s, bad: 60s}}
"""


class Plant:
    """A data folder with a journal, and jobs that work it off."""

    def __init__(self, folder: Path, spark: SparkSession, *, settings: str = "audit: false") -> None:
        """Without the audit a job starts one stream less, which takes Spark seconds."""
        self.folder = folder
        self.spark = spark
        self.rules = folder / "rules.yaml"
        self.rules.write_text(RULES)
        text = f"""\
version: 1
node: {{name: plant, data: {folder / "data"}}}
listeners: [{{url: "mqtt://127.0.0.1:18830", anonymous: true}}]
policies: open
classify: [{{topic: "raw/private/#", category: personal}}]
pipeline: {{ingest: ["raw/#"], rules: {self.rules}, batch: 40, {settings}}}
"""
        self.file = folder / "plant.yaml"
        self.file.write_text(text)
        self.config: Config = parse(text, "plant.yaml")
        self.folders = Folders.of(self.config)
        self.written = 0

    def write(self, payloads: Iterable[bytes], **said: Any) -> None:
        journal = Trial(self.folders.data, INGEST)
        rows = []
        for payload in payloads:
            usual: dict[str, Any] = {
                "id": f"plant-1-{self.written:x}",
                "topic": "raw/temperature/t1",
                "payload": payload,
                "qos": 1,
                "source": "t1",
                "source_kind": "temperature",
                "registered": True,
                "client": "t1",
                "user": "anna",
                "level": "tls",
                "floor": "tls",
                "context": b"\x01\xa0",
            }
            rows.append(ingest_row(NOON + self.written, **{**usual, **said}))
            self.written += 1
        journal.write(*rows)
        journal.close()

    def temperatures(self, count: int) -> None:
        self.write(json.dumps({"t": 20 + n % 5, "ts": NOON + self.written + n}).encode() for n in range(count))

    def once(self) -> list[Done]:
        done: list[Done] = []
        Job(self.spark, self.config, done.append).once()
        return done

    def rows(self, table: str) -> list[Any]:
        return list(read(self.spark, self.folders.lake, table).collect())

    def offsets(self, table: str) -> list[int]:
        """As a user would read it who knows nothing of us."""
        frame = self.spark.read.parquet(str(self.folders.lake / table))
        return sorted(row.offset for row in frame.select("offset").collect())


@pytest.fixture
def plant(tmp_path: Path, spark: SparkSession) -> Plant:
    return Plant(tmp_path, spark)


def test_messages_become_rows(plant: Plant) -> None:
    plant.temperatures(3)
    plant.write([b"{}", b"\xff nonsense"], topic="raw/private/x")
    (done,) = plant.once()
    assert (done.batch.messages, done.records, done.quarantined, done.published) == (5, 3, 2, 0)
    rows = sorted(plant.rows("normalised"), key=lambda row: row.offset)
    assert [(row.value, row.unit, row.owner, row.name) for row in rows] == [
        (20.0, "C", "anna", "temperature"),
        (21.0, "C", "anna", "temperature"),
        (22.0, "C", "anna", "temperature"),
    ]
    assert rows[0].scores.accuracy == 1.0
    assert rows[0].scores.timeliness == 1.0
    assert rows[0].scores.privacy is None
    assert rows[0].rules_version == done.batch.rules
    faulty = sorted(plant.rows("quarantine"), key=lambda row: row.offset)
    assert [(row.offset, bytes(row.payload), row.category) for row in faulty] == [
        (3, b"{}", "personal"),
        (4, b"\xff nonsense", "personal"),
    ]
    assert all(row.fault for row in faulty)
    assert plant.offsets("raw") == [0, 1, 2, 3, 4]


ASKING = (
    RULES
    + """\
  - {id: usual, dimension: accuracy, check: deviates_from_history, args: {good: 2, bad: 6, count: 3, floor: 0.5}}
  - {id: others, dimension: accuracy, check: deviates_from_neighbours, args: {good: 2, bad: 6, count: 2}}
  - {id: steady, dimension: completeness, check: no_gaps, args: {good: 2s, bad: 9s}}
"""
)


def test_small_and_large_batches_leave_the_same(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of few messages, those of many, and those of few messages that become much."""
    found = []
    for name, small, room in (("few", 20_000, 1 << 20), ("many", 0, 0), ("much", 20_000, 0)):
        monkeypatch.setattr(stages, "SMALL", small)
        monkeypatch.setattr(stages, "ROOM", room)
        (tmp_path / name).mkdir()
        plant = Plant(tmp_path / name, spark)
        plant.rules.write_text(ASKING)
        plant.temperatures(70)
        plant.write([b"{}", b"\xff nonsense", b'{"t": [1]}'], topic="raw/private/x")
        plant.temperatures(10)
        assert len(plant.once()) == 3
        rows = {table: plant.rows(table) for table in ("raw", "normalised", "quarantine")}
        found.append({table: sorted(map(_unnamed, each)) for table, each in rows.items()})
    assert found[0] == found[1] == found[2]
    assert {table: len(each) for table, each in found[0].items()} == {"raw": 83, "normalised": 80, "quarantine": 3}


def _unnamed(row: Any) -> str:
    """A row, but of which journal it is."""
    return repr({**row.asDict(), "journal": None, "batch": row.batch.removeprefix(row.journal)})


def test_a_batch_that_was_not_read_whole_is_not_done(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    write = Lake.write_raw

    def one_more(*given: Any, **said: Any) -> int:
        return write(*given, **said) + 1

    monkeypatch.setattr(Lake, "write_raw", one_more)
    plant.temperatures(3)
    with pytest.raises(PipelineError, match="of 4 messages 3 were read"):
        plant.once()
    monkeypatch.undo()
    assert [done.records for done in plant.once()] == [3]
    assert plant.offsets("raw") == [0, 1, 2], "what was written of it is written once"


def test_batches_go_on_where_the_last_ended(plant: Plant) -> None:
    plant.temperatures(100)
    assert [done.batch.messages for done in plant.once()] == [40, 40, 20]
    plant.temperatures(5)
    assert [done.batch.messages for done in plant.once()] == [5]
    assert plant.once() == []
    assert plant.offsets("raw") == plant.offsets("normalised") == list(range(105))
    found = overview(plant.config)
    assert (found["running"], found["lag"], found["totals"]["records"]) == (False, 0, 105)


@pytest.mark.parametrize("lost", ["checkpoint", "ledger", "everything"])
def test_what_is_lost_costs_no_row_and_doubles_none(plant: Plant, lost: str) -> None:
    plant.temperatures(60)
    plant.once()
    if lost in ("checkpoint", "everything"):
        shutil.rmtree(plant.folders.own / "checkpoint")
    if lost in ("ledger", "everything"):
        for file in plant.folders.own.glob("ledger.db*"):
            file.unlink()
    plant.temperatures(30)
    plant.once()
    assert plant.offsets("raw") == plant.offsets("normalised") == list(range(90))


def test_a_data_folder_that_was_made_anew_with_the_old_lake(tmp_path: Path, spark: SparkSession) -> None:
    """Its offsets begin at 0 again: old rows stay, new ones are worked on, and until then they are behind."""
    plant = Plant(tmp_path, spark, settings=f"audit: false, lake: {tmp_path / 'lake'}")
    plant.temperatures(5)
    plant.once()
    kept = plant.folders.own.rename(tmp_path / "kept")
    shutil.rmtree(plant.folders.data)
    plant.temperatures(3)
    for before in (None, kept):  # and if what the pipeline remembers is still there
        if before is not None:
            shutil.copytree(before, plant.folders.own, dirs_exist_ok=True)
        assert overview(plant.config)["lag"] == 3
        (done,) = plant.once()
        assert done.batch.messages == 3
        assert (overview(plant.config)["lag"], overview(plant.config)["totals"]["messages"]) == (
            0,
            3 if before is None else 8,
        )
        assert plant.offsets("raw") == plant.offsets("normalised") == [0, 0, 1, 1, 2, 2, 3, 4]
        assert sorted(row.id for row in plant.rows("raw")) == [f"plant-1-{number:x}" for number in range(8)]
        shutil.rmtree(plant.folders.own)


def test_two_nodes_fill_one_lake(tmp_path: Path, spark: SparkSession) -> None:
    plants = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        plant = Plant(tmp_path / name, spark, settings=f"audit: false, lake: {tmp_path / 'lake'}")
        plant.write([json.dumps({"t": 20, "ts": NOON}).encode(), b"nonsense"], source=name)
        plants.append(plant)
    for plant in plants:
        assert [(done.records, done.quarantined) for done in plant.once()] == [(1, 1)]
    for table in ("raw", "normalised", "quarantine"):
        found = plants[0].rows(table)
        assert sorted(row.source for row in found) == sorted(["a", "b"] * (2 if table == "raw" else 1)), table
        assert {row.journal for row in found} == {journal_id(plant.folders.data) for plant in plants}


def test_what_an_older_version_left_is_taken_over(plant: Plant) -> None:
    plant.temperatures(3)
    plant.once()
    journal = journal_id(plant.folders.data)
    checkpoints = plant.folders.own / "checkpoint"
    (checkpoints / journal / "ingest").rename(checkpoints / "ingest")
    plant.temperatures(2)
    assert [done.batch.messages for done in plant.once()] == [2]
    assert [path.name for path in checkpoints.iterdir()] == [journal]


def test_a_ledger_of_a_journal_that_was_longer_is_refused(plant: Plant) -> None:
    plant.temperatures(3)
    plant.once()
    shutil.rmtree(plant.folders.data / "journal" / "ingest")
    plant.temperatures(1)
    with pytest.raises(PipelineError, match=r"done up to offset 3, and it ends at 1: .* Remedy: put that one back"):
        plant.once()


def test_of_what_waits_from_somebody_who_was_erased_nothing_is_made(plant: Plant) -> None:
    usual = "  - {id: usual, dimension: accuracy, check: deviates_from_history, args: {good: 4, bad: 8}}\n"
    plant.rules.write_text(RULES + usual)
    plant.temperatures(2)
    plant.once()
    plant.write([b'{"t": 38.3, "ts": %d}' % NOON, b"nonsense"], user="mary", source="mary-dev", client="mary-dev")
    plant.temperatures(1)
    erase(plant.folders.lake, "mary")
    (done,) = plant.once()
    assert (done.batch.messages, done.records, done.quarantined) == (3, 1, 0)
    assert plant.offsets("raw") == plant.offsets("normalised") == [0, 1, 4]
    states = [
        parquet.read_table(file)
        for file in sorted(plant.folders.baselines(journal_id(plant.folders.data)).glob("*.parquet"))
    ]
    assert [set(state["source"].to_pylist()) for state in states] == [{"t1"}, {"t1"}]


def test_what_may_not_be_published_is_told(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    """The node is stood in for: it says no to everything. (Whom it does let is its own affair, see tests/node.)"""

    def refuse(self: NodeClient, wanted: Mapping[Wanted, int], again: object = ()) -> list[Answer]:
        return [Answer(wanted=one, denied="default") for one in wanted]

    told: list[dict[str, Any]] = []
    monkeypatch.setattr(job.log, "warning", lambda event, **said: told.append({"event": event, **said}), raising=False)
    monkeypatch.setattr(NodeClient, "keys", refuse)
    plant.rules.write_text(RULES + "topics: [{id: all, topic: 'weather/{source}'}]\n")
    plant.temperatures(3)
    plant.write([b"nonsense"])
    (done,) = plant.once()
    assert (done.records, done.quarantined, done.published, done.denied) == (3, 1, 0, {"default": 3})
    assert overview(plant.config)["totals"]["denied"] == 3
    assert [row.denied for row in plant.rows("normalised")] == ["default"] * 3
    plant.temperatures(1)
    plant.once()
    assert [(one["rule"], one["remedy"][:28]) for one in told] == [("default", "let `service:pipeline` write")] * 2


def test_rules_change_between_batches(plant: Plant) -> None:
    plant.temperatures(2)
    (first,) = plant.once()
    plant.rules.write_text(RULES.replace("max: 60", "max: 10"))
    plant.temperatures(2)
    (second,) = plant.once()
    assert first.batch.rules != second.batch.rules
    rows = sorted(plant.rows("normalised"), key=lambda row: row.offset)
    assert [row.rules_version for row in rows] == [first.batch.rules] * 2 + [second.batch.rules] * 2
    assert rows[0].scores.accuracy == 1.0
    assert rows[2].scores.accuracy == pytest.approx(0.0)


@pytest.mark.parametrize("broken", ["{", RULES.replace("/t,", "/elsewhere,")])
def test_rules_that_are_broken_or_pass_nothing_are_refused(plant: Plant, broken: str) -> None:
    plant.temperatures(2)
    (first,) = plant.once()
    plant.rules.write_text(broken)
    plant.temperatures(2)
    (second,) = plant.once()
    assert (second.batch.rules, second.quarantined) == (first.batch.rules, 0)
    assert overview(plant.config)["rules"]["refused"]["why"]


def test_rules_that_break_a_type_which_is_not_in_the_batch_are_refused(plant: Plant) -> None:
    pulse = "  {id: heart, type: heart, values: [{name: pulse, at: /p, unit: bpm}]},\n"
    plant.rules.write_text(RULES.replace("sources: [", f"sources: [\n{pulse}"))
    plant.temperatures(2)
    plant.write([b'{"p": 61}'], source_kind="heart", source="h1")
    (first,) = plant.once()
    assert (first.records, first.quarantined) == (3, 0)
    plant.rules.write_text(RULES.replace("sources: [", "sources: [\n" + pulse.replace("/p,", "/elsewhere,")))
    plant.temperatures(2)
    (second,) = plant.once()
    assert second.batch.rules == first.batch.rules
    refused = overview(plant.config)["rules"]["refused"]["why"]
    assert "heart (1)" in refused
    assert "temperature" not in refused
    plant.rules.write_text(RULES.replace("max: 60", "max: 50").replace("sources: [", f"sources: [\n{pulse}"))
    plant.temperatures(2)
    (third,) = plant.once()
    assert third.batch.rules != first.batch.rules


def test_the_audit_is_copied(tmp_path: Path, spark: SparkSession) -> None:
    plant = Plant(tmp_path, spark, settings="audit: true")
    journal = Trial(plant.folders.data, AUDIT)
    journal.write(*(audit_row(NOON + n, node="plant", user="anna", topic="t", rule="p1") for n in range(3)))
    journal.close()
    plant.temperatures(1)
    plant.once()
    assert [(row.user, row.rule) for row in plant.rows("audit")] == [("anna", "p1")] * 3
    plant.once()
    assert plant.offsets("audit") == [0, 1, 2]


def test_there_is_one_job_at_a_time(plant: Plant) -> None:
    plant.temperatures(1)
    with alone(plant.folders), pytest.raises(PipelineError, match="another pipeline"):
        plant.once()
