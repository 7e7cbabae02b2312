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
@pytest.mark.parametrize("victim", [guard.GUARD, guard.BROKER])
async def test_killed_a_few_times(tmp_path: Path, victim: str) -> None:
    report = await guard.run(tmp_path, kills=2, seed=_seed(), victim=victim)
    report.check()
    assert report.kills == {victim: 2}
    assert report.reconnections > 0


@pytest.mark.soak
async def test_killed_fifty_times(tmp_path: Path) -> None:
    """The report is written whether it is clean or not."""
    seed, reports = _seed(), []
    for victim in (guard.GUARD, guard.BROKER):
        reports.append(await guard.run(tmp_path / victim, kills=25, seed=seed, victim=victim))
    lines = {
        "seed": lambda one: one.seed,
        "kills": lambda one: one.kills.total(),
        "reconnections of clients": lambda one: one.reconnections,
        "messages published": lambda one: one.published,
        "acknowledged to their publisher (PUBACK, PUBCOMP)": lambda one: one.acknowledged,
        "deliveries to subscribers": lambda one: one.deliveries,
        "**acknowledged and lost**": lambda one: f"**{len(one.lost)}**",
        "**sessions lost**": lambda one: f"**{len(one.sessions_lost)}**",
        "QoS 2 delivered twice": lambda one: len(one.duplicated_qos2),
        "QoS 1 delivered again (allowed)": lambda one: one.repeated_qos1,
        "deliveries lost that the broker had acknowledged and not saved": lambda one: one.unsaved,
    }
    table = "".join(f"| {name} | {value(reports[0])} | {value(reports[1])} |\n" for name, value in lines.items())
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(
        f"""# A guard and its broker, killed under load

Written by `make soak` (`tests/reliability/guard.py`). A guard in front of Mosquitto 2.0.11 with persistence, and in
another run Mosquitto itself, are killed with `kill -9` at random moments, while four publishers (3.1.1 and 5.0, QoS 1
and QoS 2, windows of 20), two more in another scope of the node, and four subscribers (as the publishers) with
persistent sessions use them; all of them reconnect and go on. Then every message is accounted for.

Mosquitto acknowledges a message before it has saved it. Before it is killed everything is settled and saved; what it
acknowledged between that and its end is its own to lose, and the last line counts it. A Mosquitto that was killed sends
QoS 2 messages twice, to clients without a guard as well: that is counted, and judged only where the guard is killed.
What comes from another scope is acknowledged by the guard, and owed to the broker over a connection of its own. It is
judged like what clients publish.

| | guard killed | broker killed |
|---|---:|---:|
{table}"""
    )
    for report in reports:
        report.check()
