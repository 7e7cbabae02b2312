"""A link between two nodes loses nothing that was acknowledged and doubles nothing, however often it breaks."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from reliability import links, namespaces

REPORT = Path(__file__).parents[2] / "docs" / "reliability" / "links.md"


def _seed() -> int:
    seed = int(os.environ.get("TIDEGATE_SEED", time.time_ns() % 2**32))
    print(f"TIDEGATE_SEED={seed}")
    return seed


@pytest.mark.timeout(240)
async def test_cut_stalled_and_flapping(tmp_path: Path) -> None:
    report = await links.run(tmp_path, rounds=3, seed=_seed(), ways=links.CUTS)
    report.check()
    assert report.connections > 1


@pytest.mark.timeout(240)
async def test_killed(tmp_path: Path) -> None:
    report = await links.run(tmp_path, rounds=2, seed=_seed(), ways=links.KILLS[:2])
    report.check()


@pytest.mark.timeout(300)
async def test_in_network_namespaces(tmp_path: Path) -> None:
    """A cable that is pulled, half-open connections, a full disk, a clock that jumps; the long form has more."""
    namespaces.needed()
    ways = ("cable out", "full far", "half open", "clock")
    report = await links.run(tmp_path, rounds=len(ways), seed=_seed(), ways=ways, made=namespaces.Apart)
    report.check()


@pytest.mark.soak
async def test_disturbed_fifty_times(tmp_path: Path) -> None:
    """The report is written whether it is clean or not."""
    namespaces.needed()
    rounds = int(os.environ.get("TIDEGATE_ROUNDS", "50"))
    report = await links.run(tmp_path, rounds=rounds, seed=_seed(), ways=namespaces.WAYS, made=namespaces.Apart)
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(
        f"""# A link that breaks under load

Written by `make soak` (`tests/reliability/links.py`, `namespaces.py`). Two nodes run in network namespaces of their
own, joined by a cable that is pulled for up to four seconds, or flaps. In other rounds a node is killed with `kill -9`
and started again, once the other has heard of it and once not (half open); the disk of a node is full for a while; the
wall clocks of both nodes jump by up to an hour (libfaketime). Meanwhile four publishers (QoS 1 and 2, at both nodes,
windows of 20) publish what four subscribers with persistent sessions (QoS 1 and 2) receive at the other node. What a
node with a full disk refuses they publish again. Then every message is accounted for.

| | |
|---|---:|
| seed | {report.seed} |
| rounds | {", ".join(f"{way} {times}" for way, times in sorted(report.rounds.items()))} |
| connections of the link | {report.connections} |
| messages published | {report.published} |
| refused once, because the disk was full | {report.refused} |
| acknowledged to their publisher (PUBACK, PUBCOMP) | {report.acknowledged} |
| deliveries to subscribers | {report.deliveries} |
| **acknowledged and lost** | **{len(report.lost)}** |
| **QoS 2 delivered twice** | **{len(report.duplicated_qos2)}** |
| **out of the order of their publisher and topic** | **{len(report.out_of_order)}** |
| **retained messages that differ at the end** | **{report.retained or "none"}** |
| QoS 1 delivered anew by or through a node that was killed (allowed) | {len(report.crossed_twice)} |
| QoS 1 delivered again (allowed) | {report.repeated_qos1} |
"""
    )
    report.check()
