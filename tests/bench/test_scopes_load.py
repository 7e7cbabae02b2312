"""Load on real nodes with several scopes: few messages, but all of them proved and counted."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from bench.job import LoadError
from bench.rounds import Plan
from bench.scopes import load, node
from bench.scopes.chain import CEM, HSUP, MULTI, NEW, SEM, Chain, Configuration
from bench.scopes.load import Task
from bench.scopes.node import Node
from bench.servers import BenchError

from bench import crowd, frames

CORES = sorted(os.sched_getaffinity(0))
PLAN = Plan(rounds=1, duration=0.2, warmup=0.05, server_core=CORES[0], load_core=CORES[-1])
TASK = Task(publishers=14, rates=(500, 1000))


@pytest.fixture(scope="module")
def plain() -> Iterator[Node]:
    with node.running(Chain(configuration=NEW, scopes=3), core=CORES[0]) as started:
        yield started


@pytest.mark.parametrize("configuration", [SEM, CEM, HSUP, MULTI], ids=lambda one: one.name)
def test_rates_with_monitors(configuration: Configuration) -> None:
    with node.running(Chain(configuration=configuration, scopes=3), core=CORES[0]) as started:
        outcomes = node.apply(started, TASK, PLAN)
    assert [one.lost for one in outcomes] == [0, 0]
    assert all(one.messages > 0 and one.server_cpu >= 0 for one in outcomes)


def test_rates_without_monitors(plain: Node) -> None:
    slow, fast = node.apply(plain, TASK, PLAN)
    assert slow.lost == fast.lost == 0
    assert 0 < slow.messages < fast.messages


@pytest.mark.parametrize("qos", [0, 1])
def test_as_many_as_it_takes(plain: Node, qos: int) -> None:
    (outcome,) = node.apply(plain, Task(publishers=14, window=50, qos=qos), PLAN)
    assert outcome.messages > 100
    assert outcome.lost == 0
    assert 0 < outcome.outstanding <= 50


def test_what_does_not_arrive_as_promised_is_told(plain: Node) -> None:
    """The node passes everything once; asked for something else it is found out before any load."""
    for configuration, words in ((MULTI, "of 1 messages 1 arrived instead of 8"), (SEM, "0 arrived instead of 1")):
        other = Node(chain=Chain(configuration=configuration, scopes=3), server=plain.server)
        with pytest.raises(BenchError, match=words):
            node.apply(other, TASK, PLAN)


def test_payloads_are_compared() -> None:
    chain = Chain(configuration=CEM, scopes=1)
    packet = frames.publish("step1/k00", crowd.BODY, qos=0, packet_id=0, version=load.VERSION)
    with pytest.raises(LoadError, match="a subscriber received"):
        load._compare(packet, chain, "bench/k00", 0)
    load._compare(packet[:-1] + b"~", chain, "bench/k00", 0)
    with pytest.raises(LoadError, match="a subscriber received"):
        load._compare(packet[:-1] + b"\x07", chain, "bench/k00", 0)


def test_a_window_needs_one_delivery_for_each_message() -> None:
    plan = crowd.Schedule(fds=[], frames=[], write_length=1, per_write=1, frame_length=1, id_offset=0, publishers=0)
    with pytest.raises(LoadError, match="one delivery for each message"):
        load._saturated(Task(configuration="MULTI", window=50), plan, [])


def test_a_task_survives_the_border() -> None:
    task = Task(near=1, far=2, server=3, configuration="SEM", scopes=5, rates=(5, 6))
    assert Task.from_json(task.to_json()) == task
    assert task.chain == Chain(configuration=SEM, scopes=5)


def test_a_node_that_does_not_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node, "configuration", lambda *_: "version: 1\n")
    with pytest.raises(BenchError, match="ended with code"), node.running(Chain(configuration=NEW, scopes=1), core=0):
        pass
