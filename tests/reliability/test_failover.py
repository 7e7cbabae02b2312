"""A link with two connections loses nothing and doubles nothing when the one that carries dies under load."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path

import pytest

from reliability import failover

REPORT = Path(__file__).parents[2] / "docs" / "reliability" / "failover.md"


def _seed() -> int:
    seed = int(os.environ.get("TIDEGATE_SEED", time.time_ns() % 2**32))
    print(f"TIDEGATE_SEED={seed}")
    return seed


@pytest.mark.timeout(240)
@pytest.mark.parametrize("mode", failover.MODES)
async def test_default_dies(tmp_path: Path, mode: str) -> None:
    report, times = await failover.run(tmp_path, mode=mode, rounds=3, seed=_seed())
    report.check()
    assert len(times.seconds) == 3 * 4


@pytest.mark.soak
async def test_default_dies_fifty_times(tmp_path: Path) -> None:
    """The report is written whether it is clean or not."""
    rounds = int(os.environ.get("TIDEGATE_ROUNDS", "50"))
    seed = _seed()
    found = {}
    for mode in failover.MODES:
        folder = tmp_path / mode
        folder.mkdir()
        found[mode] = await failover.run(folder, mode=mode, rounds=rounds, seed=seed)
    reports = {mode: report for mode, (report, _) in found.items()}
    rows = {
        "failovers": lambda mode: ", ".join(f"{way} {n}" for way, n in sorted(reports[mode].rounds.items())),
        "connections of the link": lambda mode: reports[mode].connections,
        "messages published": lambda mode: reports[mode].published,
        "acknowledged to their publisher (PUBACK, PUBCOMP)": lambda mode: reports[mode].acknowledged,
        "deliveries to subscribers": lambda mode: reports[mode].deliveries,
        "**acknowledged and lost**": lambda mode: f"**{len(reports[mode].lost)}**",
        "**QoS 2 delivered twice**": lambda mode: f"**{len(reports[mode].duplicated_qos2)}**",
        "**QoS 1 delivered anew**": lambda mode: f"**{len(reports[mode].crossed_twice)}**",
        "**out of the order of their publisher and topic**": lambda mode: f"**{len(reports[mode].out_of_order)}**",
        "**retained messages that differ at the end**": lambda mode: f"**{reports[mode].retained or 'none'}**",
        "time without delivery from detection, median": lambda mode: f"{found[mode][1].median * 1000:.0f} ms",
        "time without delivery from detection, longest": lambda mode: f"{found[mode][1].longest * 1000:.0f} ms",
        "allowed": lambda mode: f"{failover.ALLOWED[mode] * 1000:.0f} ms",
    }
    table = "\n".join(
        f"| {name} | {' | '.join(str(cell(mode)) for mode in failover.MODES)} |" for name, cell in rows.items()
    )
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(
        f"""# A default connection that dies under load

Written by `make soak` (`tests/reliability/failover.py`). Two nodes are linked over two connections, each through a
proxy. In each round the default is cut, or stalled without a word, and refuses new connections until a backup carries.
Meanwhile four publishers (QoS 1 and 2, at both nodes, windows of 20) publish what four subscribers with persistent
sessions (QoS 1 and 2) receive at the other node. Then every message is accounted for.

*Detection* is when the node logs that the default is lost: at once when it is cut, after three heartbeats (100 ms) when
it is silent. *Time without delivery* is, of each round and subscriber, the longest stretch after that in which no new
message came. With `on_demand` the default is tried {failover.ATTEMPTS} times, {failover.INTERVAL * 1000:g} ms apart.

Seed {seed}; {os.cpu_count()} cores, Python {platform.python_version()}.

| | active | on demand |
|---|---:|---:|
{table}
"""
    )
    for mode, (report, times) in found.items():
        report.check()
        assert times.longest < failover.ALLOWED[mode], (mode, times.longest)
