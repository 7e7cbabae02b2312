"""From the message of a sensor to its record at a subscriber: node, `tidegate pipeline run` and clients, all real."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final

from bench.harness import procfs
from bench.harness.figures import reached
from bench.harness.report import Table
from bench.harness.servers import BenchError
from bench.keys.node import VERSION
from bench.load import sessions
from bench.load.job import LoadError
from bench.load.paced import percentile
from bench.pipeline import deployment, weather
from bench.pipeline.deployment import Setting, Site
from bench.pipeline.sections import Section, figure
from bench.pipeline.sensors import Flow, Sender

NAME: Final = "latency"
SOON: Final = 2.0
"""Seconds, at the 95th percentile and the highest rate."""
FIRST: Final = 180.0  # seconds for Spark to start, and for the first records
PATIENCE: Final = 60.0
FEW: Final = Setting(rules=weather.few())
WORDS: Final = (
    "A node, `tidegate pipeline run` as shipped (a batch begins each second), {sensors} sensors on {stations} "
    "connections and one subscriber, all on two cores together. Messages are sent with QoS 1, evenly spaced; records "
    "come with QoS 0. Time begins when a message is due, and ends when its record was read from the socket: it was "
    "acknowledged, normalised, scored, assigned, protected (half of them), kept in the lake and published."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """How much is measured."""

    rates: Sequence[int] = (100, 1000)
    warmup: float = 50.0
    """Seconds before each rate: Java compiles for minutes."""
    seconds: float = 30.0
    settings: Sequence[Setting] = (deployment.USUAL, FEW)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """At one rate. Times are sorted."""

    rate: int
    rules: int
    arrived: Sequence[float]
    acknowledged: Sequence[float]
    late: Sequence[float]
    batches: Sequence[dict[str, Any]]
    foreign: float


def measure(extent: Extent, cores: tuple[int, int], before: Callable[[str], None]) -> Section:
    seen: list[Seen] = []
    failures = []
    try:
        before("latency: Spark starts")
        for setting in extent.settings:
            rules = setting.rules.count("dimension:")
            with deployment.confined(cores), _flowing(setting) as (where, flow, pids):
                for rate in extent.rates:
                    before(f"latency: {rate} records a second, {rules} rules")
                    seen.append(_seen(where, flow, rate, rules, extent, pids))
    except (LoadError, BenchError) as error:
        failures.append(f"latency: {error}")
    return section(seen, failures)


@contextmanager
def _flowing(setting: Setting) -> Iterator[tuple[Site, Flow, Sequence[int]]]:
    """Sensors and a subscriber, once records come."""
    with ExitStack() as stack:
        where = stack.enter_context(deployment.prepared(setting))
        server = stack.enter_context(deployment.node(where))
        process, log = stack.enter_context(deployment.pipeline(where))
        lines = {name: stack.enter_context(where.connected(name)) for name in weather.stations()}
        receiver = stack.enter_context(where.connected(weather.READER))
        sessions.subscribe(receiver, ["scored/#"], qos=0, version=VERSION)
        senders = [Sender(sock=lines[one.station], sensor=one, topic=one.topic) for one in weather.sensors()]
        flow = Flow(senders=senders, receiver=receiver)
        try:
            flow.run(len(senders), 1.0, FIRST)
        except LoadError as error:
            said = log.read_text(errors="replace").strip().splitlines()[-5:]
            raise BenchError(f"no records come from the pipeline: {error}. It said: {' '.join(said)}") from None
        yield where, flow, (server.process.pid, process.pid)


def _seen(where: Site, flow: Flow, rate: int, rules: int, extent: Extent, pids: Sequence[int]) -> Seen:
    flow.run(rate, extent.warmup, PATIENCE)
    flow.forget()
    known = len(deployment.batches(where.folder / "batches"))
    began, ours, all_of_it = time.perf_counter(), _cpu(pids), procfs.machine_seconds()[0]
    flow.run(rate, extent.seconds, PATIENCE)
    used = procfs.machine_seconds()[0] - all_of_it - (_cpu(pids) - ours)
    return Seen(
        rate=rate,
        rules=rules,
        arrived=sorted(flow.arrived),
        acknowledged=sorted(flow.acknowledged),
        late=sorted(flow.late),
        batches=deployment.batches(where.folder / "batches")[known:],
        foreign=max(0.0, used) / (time.perf_counter() - began),
    )


def _cpu(pids: Sequence[int]) -> float:
    return time.process_time() + sum(procfs.cpu_seconds(pid) for pid in pids)


# -- words -------------------------------------------------------------------------------------------------------------


def section(seen: Sequence[Seen], failures: Sequence[str]) -> Section:
    goals = [
        (
            f"ingest to published, p95 at {one.rate:,} records a second, {one.rules} rules",
            f"≤ {SOON:g} s",
            f"{_at(one.arrived, 0.95):.2f} s",
            reached(_at(one.arrived, 0.95) <= SOON),
        )
        for one in seen
    ]
    columns = (
        "rules",
        "records/s",
        "records",
        "p50, s",
        "p95, s",
        "p99, s",
        "slowest, s",
        "PUBACK p50, ms",
        "PUBACK p99, ms",
    )
    lines = [
        (
            f"{one.rules}",
            f"{one.rate:,}",
            f"{len(one.arrived):,}",
            *(f"{_at(one.arrived, place):.2f}" for place in (0.5, 0.95, 0.99, 1.0)),
            *(f"{_at(one.acknowledged, place) * 1e3:.1f}" for place in (0.5, 0.99)),
        )
        for one in seen
    ]
    batches = [
        (
            f"{one.rules}",
            f"{one.rate:,}",
            f"{len(one.batches)}",
            f"{statistics.median(batch['messages'] for batch in one.batches):,.0f}",
            f"{statistics.median(batch['seconds'] for batch in one.batches):.2f}",
            f"{_at(one.late, 0.99) * 1e3:.1f}",
            f"{one.foreign:.2f}",
        )
        for one in seen
        if one.batches
    ]
    more = (
        "rules",
        "records/s",
        "batches",
        "messages in one",
        "seconds of one",
        "sent late (p99), ms",
        "neighbours, cores",
    )
    return Section(
        name=NAME,
        words=WORDS.format(sensors=len(weather.sensors()), stations=weather.STATIONS),
        goals=goals,
        tables=[
            Table(title="From publish to arrival", columns=columns, lines=lines),
            Table(title="Batches meanwhile", columns=more, lines=batches, words="Medians of the batches."),
        ]
        if seen
        else [],
        figures=[
            figure(f"{one.rate} records a second, {one.rules} rules", name, _at(times, place))
            for one in seen
            for kind, times in (("arrival", one.arrived), ("PUBACK", one.acknowledged))
            for name, place in ((f"{kind} p50, s", 0.5), (f"{kind} p95, s", 0.95), (f"{kind} p99, s", 0.99))
        ],
        series={
            f"{one.rate:,} records/s, {one.rules} rules": [_at(one.arrived, place / 100) for place in range(101)]
            for one in seen
        },
        foreign=max((one.foreign for one in seen), default=0.0),
        failures=failures,
    )


def _at(times: Sequence[float], place: float) -> float:
    """`times` are in seconds, and sorted."""
    return percentile([int(one * 1e9) for one in times], place) if times else float("nan")
