"""Costs without sockets: every figure is there, and the clock is read as it should be."""

from __future__ import annotations

import time

import pytest
from bench.gate.steps import Cost, Pace

from bench.gate import steps


@pytest.fixture(scope="module")
def found() -> list[Cost]:
    told: list[str] = []
    made = steps.measure(Pace(seconds=0.002, policies=(60, 250), publishers=14), told.append)
    assert len(told) == len(steps.PARTS)
    return made


def test_every_figure_is_there_once(found: list[Cost]) -> None:
    names = [(one.group, one.name) for one in found]
    assert len(set(names)) == len(names)
    by_group = {group: {name for each, name in names if each == group} for group, _ in names}
    assert by_group["asked"] == {name for name, _, _ in steps.STEPS}
    assert by_group["content"] == by_group["content again"] == by_group["asked"] - {"levels"}
    assert by_group["clock"] == {"read"}
    assert {"fast lane, policies: open", "fast lane, everything", "hour", "moment", "views", "where"} <= by_group[
        "path"
    ]
    assert len(by_group["compile"]) == len(by_group["message"]) == 4
    assert len(by_group["stored"]) == 3
    assert len(by_group["change"]) == 2
    assert all(one.nanos.median > 0 for one in found)


def test_what_is_decided_beforehand_takes_the_fast_lane(found: list[Cost]) -> None:
    cost = {one.name: one.nanos.median for one in found if one.group == "path"}
    for name in ("fast lane, everything but monitors", "fast lane, everything", "calm", "hour", "within"):
        assert cost[name] < cost["moment"] / 2


def test_monitors_that_see_each_message_cost_more(found: list[Cost]) -> None:
    cost = {one.name: one.nanos.median for one in found if one.group == "path"}
    for name in ("rate", "monitor-payload", "rate-out"):
        assert cost[name] > 2 * cost["calm"]


def test_more_conditions_take_longer_to_compile(found: list[Cost]) -> None:
    cost = {one.name: one.nanos.median for one in found if one.group == "compile"}
    assert cost["250 policies, all of this topic"] > 2 * cost["60 policies, all of this topic"]


def test_however_many_policies_a_message_costs_the_same(found: list[Cost]) -> None:
    cost = [one.nanos.median for one in found if one.group == "message"]
    assert max(cost) < 3 * min(cost)


def test_time_is_that_of_one_call() -> None:
    def busy() -> None:
        until = time.thread_time_ns() + 1_000_000
        while time.thread_time_ns() < until:
            pass

    assert steps.timed(busy, 0.05).median == pytest.approx(1e6, rel=0.2)
    assert steps.timed(busy, 0.05, per=10).median == pytest.approx(1e5, rel=0.2)
    assert steps.timed(lambda: None, 0.01).median < 200
