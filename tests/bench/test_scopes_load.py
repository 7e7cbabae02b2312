"""Load on real nodes with several scopes: few messages, but all of them proved and counted."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from bench.harness.rounds import Plan, apply, loading
from bench.harness.servers import BenchError, Peer, Server, running
from bench.load import frames, generator, sessions
from bench.load.job import Job, LoadError, Outcome, Shape
from bench.load.meter import Meter
from bench.scopes import chain as chains
from bench.scopes.chain import CEM, HSUP, MULTI, NEW, SEM, Chain, Configuration

CORES = sorted(os.sched_getaffinity(0))
PLAN = Plan(rounds=1, duration=0.2, warmup=0.05, server_core=CORES[0], load_core=CORES[-1])


def rated(server: Server, chain: Chain) -> list[Outcome]:
    with loading(server, chain.job(publishers=14), PLAN) as load:
        return [load.measure(rate=rate) for rate in (500, 1000)]


@pytest.fixture(scope="module")
def plain() -> Iterator[Server]:
    with running(Peer.TIDEGATE, Chain(configuration=NEW, scopes=3).setting(), core=CORES[0]) as server:
        yield server


@pytest.mark.parametrize("configuration", [SEM, CEM, HSUP, MULTI], ids=lambda one: one.name)
def test_rates_with_monitors(configuration: Configuration) -> None:
    chain = Chain(configuration=configuration, scopes=3)
    with running(Peer.TIDEGATE, chain.setting(), core=CORES[0]) as server:
        outcomes = rated(server, chain)
    assert [one.lost for one in outcomes] == [0, 0]
    assert all(one.messages > 0 and one.server_cpu >= 0 for one in outcomes)


def test_rates_without_monitors(plain: Server) -> None:
    slow, fast = rated(plain, Chain(configuration=NEW, scopes=3))
    assert slow.lost == fast.lost == 0
    assert 0 < slow.messages < fast.messages


@pytest.mark.parametrize("qos", [0, 1])
def test_as_many_as_it_takes(plain: Server, qos: int) -> None:
    outcome = apply(plain, Chain(configuration=NEW, scopes=3).job(publishers=14, window=50, qos=qos), PLAN)
    assert outcome.messages > 100
    assert outcome.lost == 0
    assert 0 < outcome.outstanding <= 50


def test_what_does_not_arrive_as_promised_is_told(plain: Server) -> None:
    """The node passes everything once; asked for something else it is found out before any load."""
    for configuration, words in ((MULTI, "of 1 messages 1 arrived instead of 8"), (SEM, "0 arrived instead of 1")):
        with pytest.raises(BenchError, match=words):
            rated(plain, Chain(configuration=configuration, scopes=3))


def test_payloads_are_compared() -> None:
    job = Chain(configuration=CEM, scopes=1).job()
    topic = sessions.arriving(job, "bench/k00")
    assert topic == "step1/k00"
    packet = frames.publish(topic, sessions.BODY, qos=0, packet_id=0, version=4)
    with socket.socket() as sock:
        for rewritten, accepted in ((packet, False), (packet[:-1] + b"~", True), (packet[:-1] + b"\x07", False)):
            if accepted:
                sessions._compare(rewritten, sock, topic, sessions.BODY, job)
                continue
            with pytest.raises(LoadError, match="a subscriber received"):
                sessions._compare(rewritten, sock, topic, sessions.BODY, job)


def test_a_window_needs_one_delivery_for_each_message() -> None:
    meter = Meter(server=os.getpid(), warmup=0.0, duration=0.0, at_least=0)
    with ExitStack() as stack:
        load = generator.Load(Job(shape=Shape.IDLE), stack)
        with pytest.raises(LoadError, match="one delivery for each message"):
            load._saturated(Chain(configuration=MULTI, scopes=1).job(window=50), meter)


def test_a_node_that_does_not_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chains, "configuration", lambda *_: "version: 1\n")
    setting = Chain(configuration=NEW, scopes=1).setting()
    with pytest.raises(BenchError, match="ended with code"), running(Peer.TIDEGATE, setting, core=CORES[0]):
        pass
