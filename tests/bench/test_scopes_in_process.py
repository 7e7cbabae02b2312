"""Chains without sockets: everything arrives, and two chains can be compared."""

from __future__ import annotations

import pytest
from bench.scopes import in_process
from bench.scopes.contest import CONTESTS, Contest
from bench.scopes.in_process import World


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("contest", CONTESTS, ids=lambda one: one.name)
def test_every_message_arrives(contest: Contest, qos: int) -> None:
    for chain in (contest.one, contest.several):
        world = World(chain, qos)
        world.warm()
        assert world.play(2) > 0


def test_comparing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_process, "CONTESTS", CONTESTS[:1])
    told: list[str] = []
    found = in_process.measure(told.append, rounds=2, seconds=0.001)
    assert told == ["without sockets: ORI, QoS 0", "without sockets: ORI, QoS 1"]
    assert [(one.qos, len(one.one), len(one.several)) for one in found] == [(0, 2, 2), (1, 2, 2)]
    assert all(one.ratio is not None and one.ratio.median > 0 for one in found)


def test_what_is_missing_is_noticed() -> None:
    world = World(CONTESTS[0].several, 0)
    world.warm()
    world._readers[0].connection.reader.receive(b"\xa2\x0d\x00\x07\x00\x09bench/k00")  # unsubscribes
    with pytest.raises(AssertionError, match="of 64 messages arrived"):
        world.play(1)
