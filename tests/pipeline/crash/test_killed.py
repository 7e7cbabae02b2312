"""Whatever is killed, and whenever: what was acknowledged is in the lake once, and what was published arrives once."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from pipeline.crash import run
from pipeline.crash.run import Loss, Report, Victim

REPORT = Path(__file__).parents[3] / "docs" / "reliability" / "pipeline.md"
ROUNDS = int(os.environ.get("TIDEGATE_ROUNDS", "20"))
FEW = ((Victim.BOTH, Loss.CHECKPOINT), (Victim.NODE, Loss.NOTHING))
"""Each start of a driver takes some ten seconds. `test_dying` has the drivers that die while the node stays."""


def _seed() -> int:
    seed = int(os.environ.get("TIDEGATE_SEED", time.time_ns() % 2**32))
    print(f"TIDEGATE_SEED={seed}")
    return seed


def _check(report: Report) -> None:
    assert not report.timeout, (report.seed, str(report.books), report.timeout)
    assert report.books.clean, (report.seed, str(report.books))
    assert not report.orphans, (report.seed, report.orphans)
    assert report.exit == 0, report.seed
    assert all(report.acknowledged.values())
    # otherwise nothing was put to the test
    losses = sum(loss is not Loss.NOTHING for _, loss in report.rounds)
    assert report.worked >= losses > 0, (report.seed, report.worked, losses)
    assert report.batches > 0, report.seed


@pytest.mark.timeout(900)
async def test_killed_a_few_times(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    report = await run.run(tmp_path, lambda: request.getfixturevalue("spark"), plan=FEW, seed=_seed())
    _check(report)
    assert report.reconnections > 0


@pytest.mark.soak
async def test_killed_twenty_times(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """The report is written whether it is clean or not."""
    seed = _seed()
    began = time.monotonic()
    plan = run.rounds(ROUNDS, seed)
    report = await run.run(tmp_path, lambda: request.getfixturevalue("spark"), plan=plan, seed=seed)
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(_text(report, time.monotonic() - began))
    _check(report)
    assert len(report.rounds) == ROUNDS
    assert report.within > 0, report.seed


def _text(report: Report, seconds: float) -> str:
    killed = "\n".join(f"| killed: {victim.value} | {count} |" for victim, count in report.killed.most_common())
    lost = "\n".join(
        f"| deleted meanwhile: {loss.value} | {count} |"
        for loss, count in report.lost.most_common()
        if loss is not Loss.NOTHING
    )
    books = report.books
    return f"""# The pipeline, killed under load

Written by `make soak` (`tests/pipeline/crash/`). A node and its pipeline (`tidegate run`, `tidegate pipeline run`;
Spark in local mode) are killed with `kill -9` at random moments while a sensor (MQTT, QoS 1) and a source (`POST
/data`) send and two readers with the SDK and persistent sessions read; in some rounds what the pipeline remembers is
deleted before it is started again. Each message makes two records, one of them sealed; every tenth fits no rule. In
the end everything is worked off, and accounted for.

| | |
|---|---:|
| seed | {report.seed} |
| minutes | {seconds / 60:.1f} |
| rounds | {len(report.rounds)} |
{killed}
{lost}
| the driver had done batches by then | {report.worked} |
| it had not | {report.early} |
| a batch was certainly interrupted | {report.within} |
| batches done by drivers that were killed | {report.batches} |
| started again, because Spark found the machine too slow | {report.slow} |
| reconnections of readers | {report.reconnections} |
| acknowledged over MQTT (PUBACK) | {report.acknowledged.get("sensor", 0)} |
| acknowledged over HTTP (202) | {report.acknowledged.get("source", 0)} |
| sent again, because they were not acknowledged | {report.again} |
| messages in the journal, and in the lake | {report.messages} |
| records published | {report.records} |
| deliveries to a reader that does not deduplicate | {report.deliveries} |
| **acknowledged and not in the lake** | **{len(books.lost)}** |
| **in the lake twice** | **{len(books.doubled)}** |
| **published and not delivered** | **{len(books.missing)}** |
| **delivered twice by the SDK** | **{len(books.repeated)}** |
| **not opened, or never sent** | **{len(books.strange)}** |
| **processes left behind** | **{len(report.orphans)}** |
{_trouble(report)}"""


def _trouble(report: Report) -> str:
    if report.books.clean and not report.timeout:
        return ""
    return f"\nNot clean: {report.books}\n" + ("It was not worked off in time.\n" if report.timeout else "")
