"""`kill -9` at any moment loses no acknowledged QoS 1 or 2 message and duplicates no QoS 2 message."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from reliability import crash

REPORT = Path(__file__).parents[2] / "docs" / "reliability" / "crash.md"


def _seed() -> int:
    seed = int(os.environ.get("TIDEGATE_SEED", time.time_ns() % 2**32))
    print(f"TIDEGATE_SEED={seed}")
    return seed


def _check(report: crash.Report) -> None:
    assert not report.lost, (report.seed, report.lost[:10])
    assert not report.duplicated_qos2, (report.seed, report.duplicated_qos2[:10])
    assert not report.sessions_lost, (report.seed, report.sessions_lost)
    assert report.acknowledged == report.published


@pytest.mark.timeout(240)
async def test_killed_a_few_times(tmp_path: Path) -> None:
    report = await crash.run(tmp_path, kills=4, count=1500, seed=_seed())
    _check(report)
    assert report.reconnections > 0


@pytest.mark.soak
async def test_killed_fifty_times(tmp_path: Path) -> None:
    """The report is written whether it is clean or not."""
    report = await crash.run(tmp_path, kills=50, count=40_000, seed=_seed())
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(
        f"""# Killed under load

Written by `make soak` (`tests/reliability/crash.py`). A node with `durability: sync` is killed with `kill -9` at random
moments while four publishers (3.1.1 and 5.0, QoS 1 and QoS 2, windows of 20) and four subscribers (the same) with
persistent sessions use it; all of them reconnect and go on. Then every message is accounted for.

| | |
|---|---:|
| seed | {report.seed} |
| kills | {report.kills} |
| reconnections of clients | {report.reconnections} |
| messages published | {report.published} |
| acknowledged to their publisher (PUBACK, PUBCOMP) | {report.acknowledged} |
| deliveries to subscribers | {report.deliveries} |
| **acknowledged and lost** | **{len(report.lost)}** |
| **QoS 2 delivered twice** | **{len(report.duplicated_qos2)}** |
| **sessions lost** | **{len(report.sessions_lost)}** |
| QoS 1 delivered again (allowed) | {report.repeated_qos1} |
"""
    )
    _check(report)
