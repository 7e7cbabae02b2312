"""How the pipeline is doing, over HTTP: what its job says is told, and whether it still runs is looked up."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from prometheus_client.parser import text_string_to_metric_families

from api.pretending import Api, served
from tidegate.errors import StoreError
from tidegate.pipeline.lake import Place
from tidegate.pipeline.status import Status
from tidegate.store.journal import INGEST, Reader, Writer, ingest_row

TOTALS = {"batches": 7, "messages": 1100, "records": 1200, "quarantined": 3, "published": 900, "denied": 1}
RULES = {"in_force": "abc", "refused": {"version": "def", "why": "it fits nothing"}}


def said(data: Path, **job: Any) -> None:
    """As a job does."""
    Status(data / "pipeline" / "status.json").write(**{"state": "running", "totals": TOTALS, "rules": RULES, **job})


def reader(data: Path, name: str, content: str) -> None:
    path = data / "journal" / "ingest" / "readers" / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


def recorded(data: Path, rows: int) -> None:
    """A journal with so many rows."""
    journal = Writer(data, INGEST, call=lambda do: do())
    journal.open()
    journal.start()
    for number in range(rows):
        journal.append(ingest_row(id=f"m-{number}", received_at=1e9, topic="raw/t", payload=b"{}"))
    journal.close()


async def look(api: Api) -> dict[str, Any]:
    answer = await api.ask("GET", "/pipeline", "auditor")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_whether_it_runs_is_looked_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / "data"
    async with served(tmp_path, data=data, pipeline=True) as api:
        never = await look(api)
        assert (never["state"], never["job"], never["heard"]) == ("never", None, None)
        assert "tidegate pipeline run" in never["why"]
        assert (never["journal"], never["readers"], never["lag"]) == ({"first": 0, "next": 0}, {}, 0)

        said(data)
        running = await look(api)
        assert (running["state"], running["why"]) == ("running", None)
        assert (running["job"]["pid"], running["job"]["rules"]) == (os.getpid(), RULES)
        assert running["heard"] is not None

        monkeypatch.setattr("tidegate.pipeline.status.FRESH", -1.0)
        silent = await look(api)
        assert (silent["state"], silent["job"]["totals"]) == ("silent", TOTALS)
        assert "log" in silent["why"]

        with subprocess.Popen([sys.executable, "-c", ""]) as gone:
            gone.wait()
        for ended in ({"pid": gone.pid}, {"state": "stopped"}):
            said(data, **ended)
            stopped = await look(api)
            assert (stopped["state"], stopped["job"]["totals"]) == ("stopped", TOTALS), ended
            assert "tidegate pipeline run" in stopped["why"]


async def test_what_is_left_is_counted(tmp_path: Path) -> None:
    data = tmp_path / "data"
    recorded(data, 10)
    async with served(tmp_path, data=data, pipeline=True) as api:
        assert (await look(api))["lag"] == 10
        reader(data, "pipeline", '{"0": 4}')
        reader(data, "mine", "{}")
        reader(data, "broken", "{")
        found = await look(api)
        assert found["journal"] == {"first": 0, "next": 10}
        assert found["lag"] == 6
        assert found["readers"] == {
            "pipeline": {"next": 4, "lag": 6},
            "mine": {"next": 0, "lag": 10},
            "broken": {"next": 0, "lag": 10},
        }
        said(data, next={"0": 9})
        assert (await look(api))["lag"] == 1, "the job knows sooner than its reader"


async def test_a_journal_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Reader) -> tuple[int, int]:
        raise StoreError("the disk is gone")

    data = tmp_path / "data"
    said(data)
    monkeypatch.setattr(Reader, "bounds", broken)
    async with served(tmp_path, data=data, pipeline=True) as api:
        found = await look(api)
        assert (found["state"], found["journal"], found["lag"]) == ("running", None, None)
        assert "the disk is gone" in found["why"]
        metrics = (await api.ask("GET", "/metrics")).text
        assert "tidegate_pipeline_up 1.0" in metrics
        assert "tidegate_pipeline_lag_records" not in metrics


async def test_metrics(tmp_path: Path) -> None:
    data = tmp_path / "data"
    recorded(data, 3)
    said(data)

    async def samples(api: Api) -> dict[str, float]:
        text = (await api.ask("GET", "/metrics")).text
        families = text_string_to_metric_families(text)
        return {one.name: one.value for each in families for one in each.samples if "pipeline" in one.name}

    async with served(tmp_path, data=data, pipeline=True) as api:
        assert await samples(api) == {
            "tidegate_pipeline_up": 1,
            "tidegate_pipeline_lag_records": 3,
            **{f"tidegate_pipeline_{name}_total": value for name, value in TOTALS.items()},
        }
        said(data, state="stopped")
        assert (await samples(api))["tidegate_pipeline_up"] == 0
        assert (await api.ask("GET", "/health/ready", None)).status_code == 200, "messages pass without it"
    async with served(tmp_path, data=data) as api:
        assert await samples(api) == {}


def lake_of(data: Path) -> None:
    """A lake with a day of scores and of quarantine."""
    lake = Place.open(data / "lake", create=True)
    day = datetime.now(UTC).date()
    scored = {"source": "strap-3", "type": None, "name": "bpm", "owner": "mary", "category": None}
    figures = {"count": 10, "assessed": 8, "mean": 0.25, "min": 0.0, "p05": 0.1, "p50": 0.25}
    rows = [{**scored, "dimension": dimension, **figures} for dimension in ("timeliness", "accuracy")]
    faulty = [{"source": "strap-3", "fault": "no `value`"}] * 3 + [{"source": "door-6", "fault": None}]
    for table, batch, content in (("quality_daily", "daily", rows), ("quarantine", "b1", faulty)):
        folder = lake.home(table, day, batch)
        folder.mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(content), folder / "part-0.parquet")


async def test_how_good_the_data_were(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with served(tmp_path, data=data, pipeline=True) as api:
        empty = (await api.ask("GET", "/pipeline/quality", "auditor")).json()
        assert empty == {"trends": [], "quarantine": [], "complete": True}
        lake_of(data)
        found = (await api.ask("GET", "/pipeline/quality", "auditor")).json()
        assert [(row["dimension"], row["mean"]) for row in found["trends"]] == [
            ("accuracy", 0.25),
            ("timeliness", 0.25),
        ]
        assert [(row["source"], row["fault"], row["count"]) for row in found["quarantine"]] == [
            ("strap-3", "no `value`", 3),
            ("door-6", None, 1),
        ]
        one = (await api.ask("GET", "/pipeline/quality?dimension=accuracy&source=strap-3", "auditor")).json()
        assert len(one["trends"]) == len(one["quarantine"]) == 1
        for wrong in ("days=0", "dimension=beauty", "day=1"):
            assert (await api.ask("GET", f"/pipeline/quality?{wrong}", "auditor")).status_code == 422
        assert (await api.ask("GET", "/pipeline/quality", "user")).status_code == 403
        (data / "lake" / "_tidegate.json").write_text("{}")
        assert (await api.ask("GET", "/pipeline/quality", "auditor")).status_code == 503
    async with served(tmp_path, data=data) as api:
        assert (await api.ask("GET", "/pipeline/quality", "auditor")).status_code == 404
