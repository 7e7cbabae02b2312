"""`kill -9` of a guard or of the broker behind it loses no acknowledged QoS 1 or 2 message, and no QoS 2 message comes
twice."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from reliability import guard

REPORT = Path(__file__).parents[2] / "docs" / "reliability" / "guard.md"


def _seed() -> int:
    seed = int(os.environ.get("TIDEGATE_SEED", time.time_ns() % 2**32))
    print(f"TIDEGATE_SEED={seed}")
    return seed


@pytest.mark.timeout(300)
async def test_killed_a_few_times(tmp_path: Path) -> None:
    report = await guard.run(tmp_path, kills=4, seed=_seed())
    report.check()
    assert report.kills == {guard.GUARD: 2, guard.BROKER: 2}
    assert report.reconnections > 0


@pytest.mark.soak
async def test_killed_fifty_times(tmp_path: Path) -> None:
    """The report is written whether it is clean or not."""
    report = await guard.run(tmp_path, kills=50, seed=_seed())
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(
        f"""# A guard and its broker, killed under load

Written by `make soak` (`tests/reliability/guard.py`). A guard in front of Mosquitto 2.0.11 with persistence, and then
Mosquitto itself, are killed with `kill -9` at random moments, while four publishers (3.1.1 and 5.0, QoS 1 and QoS 2,
windows of 20) and four subscribers (the same) with persistent sessions use them; all of them reconnect and go on. Then
every message is accounted for.

Mosquitto acknowledges a message before it has saved it. Before it is killed everything is settled and saved; what it
acknowledged between that and its end is its own to lose, and what was under way may come twice: the two lines in
brackets count it. Without a guard Mosquitto does the same.

| | |
|---|---:|
| seed | {report.seed} |
| kills of the guard | {report.kills[guard.GUARD]} |
| kills of the broker | {report.kills[guard.BROKER]} |
| reconnections of clients | {report.reconnections} |
| messages published | {report.published} |
| acknowledged to their publisher (PUBACK, PUBCOMP) | {report.acknowledged} |
| deliveries to subscribers | {report.deliveries} |
| **acknowledged and lost** | **{len(report.lost)}** |
| **QoS 2 delivered twice** | **{len(report.duplicated_qos2)}** |
| **sessions lost** | **{len(report.sessions_lost)}** |
| QoS 1 delivered again (allowed) | {report.repeated_qos1} |
| (deliveries lost that the broker acknowledged and had not saved) | {report.unsaved} |
| (QoS 2 delivered twice that was under way when the broker was killed) | {report.forgotten} |
"""
    )
    report.check()
