"""The proof before the 500 runs can fail, and a demand really adds seven bytes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.gate.levels import CONTROL, ENFORCED, WITH, WITHOUT, Nodes, Timed
from bench.harness import servers
from bench.harness.servers import BenchError, Peer, Setting, running

from bench.gate import levels

CORE = min(os.sched_getaffinity(0))


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """One node that enforces levels, in everybody's place."""
    folder: Path = servers.certificates(tmp_path_factory.mktemp("certificates"))
    with running(Peer.TIDEGATE, Setting(rules=ENFORCED, certificates=folder), core=CORE) as server:
        yield Nodes(dict.fromkeys((WITHOUT, WITH, CONTROL), server), folder)


def test_a_node_that_enforces_what_it_should_not_is_found_out(nodes: Nodes) -> None:
    with pytest.raises(BenchError, match="the node without enforcement keeps back what it should not"):
        levels.prove(nodes)


def test_bytes_of_both_forms(nodes: Nodes) -> None:
    found = {(one.packet, one.form): one.bytes for one in levels.added_bytes(nodes)}
    assert found == {
        (packet, form): size
        for packet in ("CONNECT", "PUBLISH", "SUBSCRIBE")
        for form, size in (("s", 7), ("require", 15))
    }


def test_all_cases_forward_and_connect(nodes: Nodes) -> None:
    for case in levels.CASES:
        seconds: dict[str, list[float]] = {}
        levels.forward(nodes, case, 3, seconds)
        assert {name: len(times) for name, times in seconds.items()} == {WITHOUT: 3, WITH: 3, CONTROL: 3}
        assert all(0 < one < 5 for times in seconds.values() for one in times)
    for tls in (False, True):
        seconds = {}
        levels.connect(nodes, tls, 2, seconds)
        assert all(len(times) == 2 for times in seconds.values())


def timed(without: float, enforced: list[float]) -> Timed:
    spread = [without + number * 1e-6 for number in range(100)]
    return Timed(name="x", title="x", seconds={WITHOUT: spread, WITH: enforced, CONTROL: spread})


def test_what_counts_as_reached() -> None:
    same = [1e-4 + number * 1e-6 for number in range(100)]
    assert timed(1e-4, same).reached == "yes"
    assert timed(1e-4, same).control.p == pytest.approx(1.0)
    assert timed(1e-4, [one + 5e-5 for one in same]).reached == "below 1 ms, but found"
    assert timed(1e-4, [one + 2e-3 for one in same]).reached == "no"
