"""Latency while clients are listed: both sides are measured, and the callers are answered."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from bench.harness.rounds import Plan
from bench.live import listing, report


@pytest.mark.soak
def test_a_round_with_callers_and_one_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "CLIENTS", 20)
    mine = sorted(os.sched_getaffinity(0))
    plan = Plan(rounds=1, duration=0.2, warmup=0.1, server_core=mine[0], load_core=mine[-1])
    told: list[str] = []
    found = listing.measure(plan, told.append, rate=200)
    assert not found.failures
    assert told == ["round 1 of 1: 0 callers", "round 1 of 1: 10 callers"]
    [(alone, there)] = found.rounds
    assert (alone.pages, alone.outcome.p99 > 0, there.outcome.p99 > 0) == (0, True, True)
    assert there.pages >= listing.CALLERS, "each was given a page before the load began"
    text = "\n".join(report.report(found, {}).tables[0].markdown())
    assert "200 a second, 20 clients" in text
