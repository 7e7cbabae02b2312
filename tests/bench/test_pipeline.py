"""`bench pipeline`: what it sends, what it makes of what it saw, and all of its parts in small."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from bench.cli import app
from bench.harness.report import Table
from bench.pipeline import deployment, growth, report, stages, weather, works
from bench.pipeline.job import Mark, Worked
from bench.pipeline.sections import Section, figure, kept
from bench.pipeline.stages import Stage
from typer.testing import CliRunner

from tidegate.config import parse
from tidegate.pipeline.columns import DIMENSIONS
from tidegate.pipeline.rules import parse as rules_of
from tidegate.store.journal import INGEST
from tidegate.topics import matches

PATIENCE = 380.0

# -- what is sent ------------------------------------------------------------------------------------------------------


def test_half_of_the_topics_are_protected(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(weather.RULES)
    config = parse(weather.configuration(tmp_path, 1883, 500, "1g"), "bench.yaml")
    targets = [sensor.target for sensor in weather.sensors()]
    protected = [target for target in targets if any(matches(filter, target) for filter in config.keys.protect)]
    assert len(protected) * 2 == len(targets) == len(set(targets)) == weather.STATIONS * weather.SENSORS
    assert config.pipeline is not None
    assert config.pipeline.batch == 500


def test_the_rules_score_every_dimension_and_fit_every_sensor() -> None:
    rules = rules_of(weather.RULES, "rules.yaml")
    assert {score.dimension for score in rules.scores} == set(DIMENSIONS)
    assert len(rules.scores) >= 12
    assert {"deviates_from_history", "deviates_from_neighbours"} <= {score.check for score in rules.scores}
    assert len(rules_of(weather.few(), "rules.yaml").scores) == len(weather.CHEAP)
    assert {source.id for source in rules.sources} == set(weather.KINDS) == {one.kind for one in weather.sensors()}


def test_payloads_are_json_and_name_their_sensor() -> None:
    for sensor in weather.sensors():
        assert json.loads(sensor.payload(1_760_000_000.0, 0.5))["sensor"] == sensor.name


def test_rows_are_like_those_that_the_node_wrote() -> None:
    patterns: dict[str, Mapping[str, Any]] = {
        sensor.topic: {
            **dict.fromkeys(INGEST.columns),
            "topic": sensor.topic,
            "id": "abc-7-1f",
            "context": sensor.station.encode(),
        }
        for sensor in weather.sensors()
    }
    rows = [dict(zip(INGEST.columns, row, strict=True)) for row in deployment.messages(patterns, 2000)]
    assert len({row["id"] for row in rows}) == 2000
    assert rows[31]["id"] == "abc-7-1f"
    assert all(patterns[row["topic"]]["context"] == row["context"] for row in rows)
    assert rows[0]["received_at"] < rows[-1]["received_at"]
    whole = [row for row in rows if row["payload"].endswith(b"}")]
    assert len(rows) - len(whole) == 2000 // weather.BROKEN


# -- what is made of what was seen -------------------------------------------------------------------------------------


def marks(*seconds: float, batch: int = 100) -> tuple[Mark, ...]:
    return tuple(
        Mark(messages=batch * number, seconds=at, own=2.0 * at, node=0.1 * at, machine=2.5 * at)
        for number, at in enumerate(seconds, 1)
    )


def test_the_first_batch_does_not_count() -> None:
    found = Worked(records=399, quarantined=1, published=0, batches=2.0, marks=marks(10.0, 11.0, 12.0, 14.0))
    assert (found.messages, found.counted, found.seconds, found.first) == (400, 300, 4.0, 10.0)
    assert (found.rate, found.in_batches) == (75.0, 150.0)
    assert found.micros == pytest.approx(8.0 / 300 * 1e6)
    assert found.foreign == pytest.approx(0.4)


def test_time_between_two_batches_is_divided_evenly() -> None:
    seen = marks(5.0, 6.0, 8.0)
    assert [growth.after(seen, count) for count in (100, 150, 200, 250, 300)] == [0.0, 0.5, 1.0, 2.0, 3.0]


@pytest.mark.parametrize(("power", "reached"), [(1.0, "yes"), (1.5, "no")])
def test_growth_is_told_from_a_straight_line(power: float, reached: str) -> None:
    seen = marks(*(3.0 + (number / 10) ** power for number in range(100)), batch=100_000)
    found = Worked(records=1, quarantined=0, published=0, batches=1.0, marks=seen)
    section = growth.section(growth.Extent(), found, 1 << 20, ())
    assert section.goals[0][-1] == reached
    assert [line[0] for line in section.tables[0].lines] == ["1,000,000", "2,000,000", "5,000,000", "10,000,000"]
    assert growth.straightness(marks(1.0, 2.0, 3.0, 4.0)) == pytest.approx(1.0)


def test_too_few_batches_are_a_failure() -> None:
    found = Worked(records=1, quarantined=0, published=0, batches=1.0, marks=marks(1.0, 2.0))
    assert growth.section(growth.Extent(), found, 0, ()).failures == ["growth: too few batches to tell anything"]


def test_a_stage_costs_what_it_adds() -> None:
    seen = [Stage(name="a", seconds=(1.0, 3.0, 2.0)), Stage(name="b", seconds=(5.0,)), Stage(name="c", seconds=(4.0,))]
    assert stages.cost(seen, 1_000_000) == {"a": 2.0, "b": 3.0, "c": 0.0}


def section(name: str, value: float, reached: str = "yes") -> Section:
    return Section(
        name=name,
        words=f"{name} was measured.",
        goals=[(f"speed of {name}", "≥ 1", f"{value:g}", reached)],
        tables=[Table(title=f"Table of {name}", columns=("a", "b"), lines=[("1", f"{value:g}")])],
        figures=[figure(name, "speed", value)],
        machine={"cores": 2},
    )


def test_a_part_replaces_its_last_results_and_no_others(tmp_path: Path) -> None:
    report.merged([section("journal", 1.0), section("growth", 2.0)], tmp_path, "pipeline")
    found = report.merged([section("growth", 3.0, "no"), section("throughput", 4.0)], tmp_path, "pipeline")
    assert [one.name for one in found] == ["journal", "throughput", "growth"]
    assert [one.missed for one in found] == [[], [], ["speed of growth"]]
    files = report.report(found, found).write(tmp_path, "pipeline")
    text = files[0].read_text()
    assert "Goals reached: 2 of 3." in text
    assert "| speed of journal | ≥ 1 | 1 | yes |" in text
    assert "| 1 | 3 |" in text
    with files[1].open() as source:
        lines = list(csv.DictReader(source))
    assert [(line["part"], line["median"]) for line in lines] == [
        ("journal", "1.0"),
        ("throughput", "4.0"),
        ("growth", "3.0"),
    ]
    assert report.report([], list(kept(files[2]).values())).markdown() == text


# -- the command -------------------------------------------------------------------------------------------------------


def test_an_unknown_work_is_refused_with_the_names() -> None:
    result = CliRunner().invoke(app, ["pipeline", "--work", "speed"], catch_exceptions=False)
    assert result.exit_code == 1
    assert f"there is no work named speed; there are {', '.join(works.PARTS)}" in result.output


def measured(folder: Path, *parts: str) -> dict[tuple[str, str, str], float]:
    """In a process of its own: it makes a session of Spark and ends it."""
    command = [sys.executable, "-m", "bench.cli", "pipeline", "--quick", "--json", "--out", str(folder)]
    command += [word for part in parts for word in ("--work", part)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {file.name for file in folder.glob("*.png")} == {f"pipeline-quick-{part}.png" for part in parts}
    found = {(one["part"], one["what"], one["figure"]): one["median"] for one in json.loads(done.stdout)}
    assert {part for part, _, _ in found} == set(parts)
    return found


def test_the_journal_and_the_way_of_a_record_in_small(tmp_path: Path) -> None:
    found = measured(tmp_path, "journal", "latency")
    assert found["journal", "Writer", "rows a second"] > 0
    assert found["journal", "recorded, 200/s", "PUBACK p50, s"] > 0
    assert found["latency", "50 records a second, 3 rules", "arrival p95, s"] > 0


def test_records_a_second_in_small(tmp_path: Path) -> None:
    found = measured(tmp_path, "throughput", "growth")
    assert all(
        found["throughput", name, "records a second"] > 0 for name in ("3 rules, without publishing", "with publishing")
    )
    assert {what for part, what, _ in found if part == "throughput"} >= set(stages.STAGES)
    assert found["growth", "2000 records", "seconds"] > found["growth", "1000 records", "seconds"]
    (first, last) = kept(tmp_path / "pipeline-quick.json")["throughput"].tables[0].lines
    assert first[1:5] == ["1,000", "999", "1", "0"]
    assert last[1:5] == ["1,000", "999", "1", "999"]
