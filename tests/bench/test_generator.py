"""The generator against real brokers, with every shape of load in small."""

from __future__ import annotations

import dataclasses
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench.harness import rounds, servers
from bench.harness.rounds import Plan
from bench.harness.servers import BenchError, Peer, Server, Setting, running
from bench.load import paced
from bench.load.job import MEASURING, Job, Outcome, Shape

from processes import missing

CORES = sorted(os.sched_getaffinity(0))
PLAN = Plan(rounds=1, duration=0.2, warmup=0.05, server_core=CORES[0], load_core=CORES[-1])
SMALL = Job(publishers=10, subscribers=4, window=100)
JOBS = {
    "batched": dataclasses.replace(SMALL, publishers=1, batch=16),
    "by fours": dataclasses.replace(SMALL, batch=4),
    "qos 0": SMALL,
    "qos 1": dataclasses.replace(SMALL, qos=1),
    "qos 2": dataclasses.replace(SMALL, qos=2),
    "saturated": dataclasses.replace(SMALL, window=2000),
    "fan-out": dataclasses.replace(SMALL, publishers=1, subscribers=20, fanout=True, window=3),
    "topics": dataclasses.replace(SMALL, topics=500),
    "churn": dataclasses.replace(SMALL, churn=200),
    "wildcards": dataclasses.replace(SMALL, wildcards=1000),
    "persistent": dataclasses.replace(SMALL, qos=1, persistent=True),
}


@pytest.fixture(scope="module", params=[Peer.MOSQUITTO, Peer.TIDEGATE], ids=lambda peer: peer.value)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    if request.param is Peer.MOSQUITTO:
        try:
            servers.mosquitto()
        except BenchError as error:
            missing(str(error))
    with running(request.param, Setting(), core=PLAN.server_core) as one:
        yield one


def measured(server: Server, job: Job, version: int = 4) -> Outcome:
    return rounds.apply(server, job, dataclasses.replace(PLAN, version=version))


@pytest.mark.parametrize("name", JOBS)
def test_closed_loops(server: Server, name: str) -> None:
    outcome = measured(server, JOBS[name])
    assert outcome.messages > 100
    assert outcome.lost == 0
    assert outcome.seconds >= 0.2
    assert outcome.busy < 1.2  # and 0 is possible: the clock of /proc ticks every 10 ms
    assert outcome.load_busy > 0
    assert bool(outcome.changes) is (name == "churn")


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_closed_loops_of_version_5(server: Server, qos: int) -> None:
    outcome = measured(server, dataclasses.replace(SMALL, qos=qos), version=5)
    assert outcome.messages > 100
    assert outcome.lost == 0


def test_open_loop(server: Server) -> None:
    outcome = measured(server, dataclasses.replace(SMALL, shape=Shape.RATE, rate=2000))
    assert not outcome.overrun
    assert outcome.lost == 0
    assert 0 < outcome.p50 <= outcome.p99 <= outcome.p999 <= outcome.slowest
    assert sum(count for _, count in outcome.histogram) > 20


def test_two_subscribers_to_a_topic(server: Server) -> None:
    outcome = measured(server, dataclasses.replace(SMALL, subscribers=6, copies=2))
    assert outcome.messages > 100
    assert outcome.lost == 0


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (dataclasses.replace(SMALL, barred=1), "somebody who may read nothing received 30"),
        (dataclasses.replace(SMALL, shape=Shape.RATE, rate=500, barred=1), "somebody who may read nothing received 30"),
        (dataclasses.replace(SMALL, shown=("a part of it",)), "a subscriber received"),
        (dataclasses.replace(SMALL, shown=("one", "another")), "must have one length"),
        (dataclasses.replace(SMALL, content="too short"), "the payload has 9 bytes instead of 175"),
    ],
)
def test_a_gate_that_lets_too_much_pass_is_found_out(server: Server, job: Job, words: str) -> None:
    with pytest.raises(BenchError, match=words):
        measured(server, job)


def test_a_traced_run_says_when_it_measures_and_ends_when_told(server: Server, tmp_path: Path) -> None:
    job = dataclasses.replace(SMALL, shape=Shape.RATE, rate=1000, trace=str(tmp_path / "trace"))
    with rounds.loading(server, job, PLAN, duration=60.0) as generator:
        generator.tell("{}")
        assert generator.line() == MEASURING
        generator.process.send_signal(signal.SIGUSR1)
        outcome = Outcome.from_json(generator.line(30))
    assert outcome.seconds < 30
    assert outcome.lost == 0
    moments, latencies, _pauses = paced.read_trace(job.trace)
    assert len(moments) == len(latencies)


@pytest.mark.parametrize("speaks", [False, True])
def test_idle_connections(server: Server, speaks: bool) -> None:
    outcome = measured(server, Job(shape=Shape.IDLE, connections=300, speaks=speaks))
    assert outcome.connections == 300
    assert outcome.bytes_each < 64 * 1024


@pytest.mark.parametrize("changes", [{"qos": 1}, {"churn": 200}, {"shape": Shape.RATE, "rate": 2000}])
def test_sessions_are_measured_again_and_again(server: Server, changes: dict[str, Any]) -> None:
    with rounds.loading(server, dataclasses.replace(SMALL, **changes), PLAN) as generator:
        for _ in range(2):
            outcome = generator.measure(warmup=0.0, duration=0.1)
            assert outcome.messages > 50
            assert outcome.lost == 0


def test_a_refused_load_is_explained(server: Server) -> None:
    with pytest.raises(BenchError, match=f"{server.peer.value}: the server closed a connection"):
        measured(server, dataclasses.replace(SMALL, qos=3))


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_server_that_dies_under_load_is_reported(qos: int) -> None:
    with running(Peer.TIDEGATE, Setting(), core=PLAN.server_core) as server:
        timer = threading.Timer(0.6, os.kill, (server.process.pid, signal.SIGKILL))
        timer.start()
        long = dataclasses.replace(PLAN, duration=20.0)
        with pytest.raises(BenchError, match="tidegate was killed by SIGKILL"):
            rounds.apply(server, dataclasses.replace(SMALL, qos=qos), long)
        timer.join()
