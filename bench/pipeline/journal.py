"""The journal: rows a second, and what a message pays for being written down before it is acknowledged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Final

from bench.harness import procfs
from bench.harness.figures import Spread, spread
from bench.harness.report import Table
from bench.harness.servers import BenchError, Server, pinned
from bench.load.job import LoadError
from bench.load.paced import percentile
from bench.pipeline import deployment, weather
from bench.pipeline.deployment import Site
from bench.pipeline.sections import Section, figure
from bench.pipeline.sensors import Flow, Sender

NAME: Final = "journal"
RECORDED, PLAIN = WAYS = ("recorded", "not recorded")
PUBLISHERS: Final = 10
PATIENCE: Final = 20.0
WORDS: Final = (
    "Rows a second: {rows:,} rows through the journal's Writer, as the node uses it, each on the disk (fdatasync) "
    "before it counts. Acknowledgements: {publishers} publishers send with QoS 1 to topics that are recorded "
    "(`pipeline.ingest`) and to topics that are not, of one node, in turn; the node on one core, the publishers on the "
    "other. Time is from when a message is due to when its PUBACK was read."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """How much is measured."""

    rows: int = 200_000
    rates: Sequence[int] = (100, 1000, 5000)
    seconds: float = 3.0
    rounds: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """One journal."""

    rows: int
    seconds: float
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A rate, one way, one round. Times are sorted nanoseconds."""

    rate: int
    way: str
    times: Sequence[int]
    late: float
    micros: float
    """CPU of the node for one message."""


def measure(extent: Extent, cores: tuple[int, int], before: Callable[[str], None]) -> Section:
    written: list[Written] = []
    seen: list[Seen] = []
    failures = []
    try:
        with deployment.prepared() as where:
            patterns = deployment.recorded(where)
            for number in range(extent.rounds):
                before(f"journal: rows, round {number + 1}")
                written.append(_written(where, list(deployment.messages(patterns, extent.rows))))
        with _publishing(cores[0]) as (ways, server), pinned(cores[1]):
            for number in range(extent.rounds):
                before(f"journal: acknowledgements, round {number + 1}")
                for rate in extent.rates:
                    for way in WAYS if number % 2 == 0 else WAYS[::-1]:
                        seen.append(_seen(ways[way], server, way, rate, extent.seconds))
    except (LoadError, BenchError) as error:
        failures.append(f"journal: {error}")
    return section(extent, written, seen, failures)


def _written(where: Site, rows: list[tuple[object, ...]]) -> Written:
    folder = where.folder / "written"
    before = deployment.room(folder)
    seconds = deployment.write(folder, iter(rows))
    return Written(rows=len(rows), seconds=seconds, size=deployment.room(folder) - before)


@contextmanager
def _publishing(core: int) -> Iterator[tuple[dict[str, Flow], Server]]:
    """A node, and two flows of messages over the same connections."""
    with deployment.prepared() as where, ExitStack() as stack:
        with pinned(core):
            server = stack.enter_context(deployment.node(where))
        lines = {name: stack.enter_context(where.connected(name)) for name in weather.stations()[:PUBLISHERS]}
        own = [sensor for sensor in weather.sensors() if sensor.station in lines]
        topics = {RECORDED: "{}", PLAIN: f"{weather.PLAIN}/{{}}"}
        yield (
            {
                way: Flow(
                    senders=[
                        Sender(sock=lines[one.station], sensor=one, topic=topics[way].format(one.topic)) for one in own
                    ]
                )
                for way in WAYS
            },
            server,
        )


def _seen(flow: Flow, server: Server, way: str, rate: int, seconds: float) -> Seen:
    flow.run(rate, min(0.5, seconds), PATIENCE)
    flow.forget()
    cpu = procfs.cpu_seconds(server.process.pid)
    flow.run(rate, seconds, PATIENCE)
    cpu = procfs.cpu_seconds(server.process.pid) - cpu
    return Seen(
        rate=rate,
        way=way,
        times=sorted(int(one * 1e9) for one in flow.acknowledged),
        late=percentile(sorted(int(one * 1e9) for one in flow.late), 0.99),
        micros=cpu / len(flow.acknowledged) * 1e6,
    )


# -- words -------------------------------------------------------------------------------------------------------------


def section(extent: Extent, written: Sequence[Written], seen: Sequence[Seen], failures: Sequence[str]) -> Section:
    tables, figures = [], []
    series: dict[str, Sequence[float]] = {}
    rates = spread(one.rows / one.seconds for one in written)
    if rates is not None:
        size = median(one.size / one.rows for one in written)
        tables.append(
            Table(
                title="Rows a second",
                columns=("rows", "rows/s", "bytes of a row on the disk"),
                lines=[(f"{extent.rows:,}", rates.show(0), f"{size:.0f}")],
            )
        )
        figures += [figure("Writer", "rows a second", rates, 0), figure("Writer", "bytes of a row", size, 1)]
    lines = []
    for rate in extent.rates:
        for way in WAYS:
            found = [one for one in seen if (one.rate, one.way) == (rate, way)]
            if not found:
                continue
            p50, p99 = (_spread(found, place) for place in (0.5, 0.99))
            micros = spread(one.micros for one in found)
            late = spread(one.late for one in found)
            assert micros is not None
            assert late is not None
            count = sum(len(one.times) for one in found)
            shown = (p50.show(2, 1e3), p99.show(2, 1e3), micros.show(0), late.show(2, 1e3))
            lines.append((f"{rate:,}", way, f"{count:,}", *shown))
            for name, value in (("p50, s", p50), ("p99, s", p99)):
                figures.append(figure(f"{way}, {rate}/s", f"PUBACK {name}", value, 6))
            figures.append(figure(f"{way}, {rate}/s", "CPU of the node, µs", micros, 1))
            series[f"{way}/{rate}"] = [p50.median, p99.median, micros.median]
    if lines:
        tables.append(
            Table(
                title="Acknowledgements",
                columns=(
                    "messages/s",
                    "topics",
                    "messages",
                    "p50, ms",
                    "p99, ms",
                    "CPU each, µs",
                    "sent late (p99), ms",
                ),
                lines=lines,
                words="CPU is that of the node, whose threads that write the journal are in it; at low rates also what "
                "it does when nothing comes weighs.",
            )
        )
    return Section(
        name=NAME,
        words=WORDS.format(rows=extent.rows, publishers=PUBLISHERS),
        tables=tables,
        figures=figures,
        series=series,
        failures=failures,
    )


def _spread(found: Sequence[Seen], place: float) -> Spread:
    made = spread(percentile(one.times, place) for one in found)
    assert made is not None
    return made
