"""Latency while others look at the node: both sides are measured, and whoever looks is answered."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from bench.harness.rounds import Plan
from bench.live import listing, report


@pytest.mark.soak
@pytest.mark.parametrize("visitors", listing.Visitors)
def test_a_round_with_visitors_and_one_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, visitors: listing.Visitors
) -> None:
    monkeypatch.setattr(listing, "CLIENTS", 20)
    mine = sorted(os.sched_getaffinity(0))
    plan = Plan(rounds=1, duration=0.2, warmup=0.1, server_core=mine[0], load_core=mine[-1])
    told: list[str] = []
    found = listing.measure(plan, told.append, rate=200, visitors=visitors)
    assert not found.failures
    assert told == [f"round 1 of 1: {count} {visitors.name.lower()}" for count in (0, 10)]
    [(alone, there)] = found.rounds
    assert (alone.pages, alone.outcome.p99 > 0, there.outcome.p99 > 0) == (0, True, True)
    assert there.pages >= listing.CALLERS, "each was given a page before the load began"
    text = "\n".join(report.report(found, {}).tables[0].markdown())
    assert "200 a second, 20 clients" in text
