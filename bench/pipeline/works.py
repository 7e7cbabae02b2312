"""The parts of `bench pipeline` by name, and running those that are asked for."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from typing import Final

from bench.harness import machine
from bench.pipeline import growth, job, journal, latency, throughput, weather
from bench.pipeline.deployment import Setting
from bench.pipeline.sections import Section

PARTS: Final = {
    journal.NAME: "rows a second through the journal, and acknowledgements with and without it",
    latency.NAME: "from a message to its record at a subscriber",
    throughput.NAME: "records a second on two cores, and what each stage costs",
    growth.NAME: "one to ten million records",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """How much is measured."""

    throughput: throughput.Extent = field(default_factory=throughput.Extent)
    growth: growth.Extent = field(default_factory=growth.Extent)
    latency: latency.Extent = field(default_factory=latency.Extent)
    journal: journal.Extent = field(default_factory=journal.Extent)


SMALL: Final = Setting(batch=500, rules=weather.few())
QUICK: Final = Extent(
    throughput=throughput.Extent(messages=1000, staged=1000, published=1000, batches=2, rounds=1, setting=SMALL),
    growth=growth.Extent(messages=2000, sizes=(1000, 2000), setting=SMALL),
    latency=latency.Extent(rates=(50,), warmup=0.2, seconds=1.0, settings=(SMALL,)),
    journal=journal.Extent(rows=5000, rates=(200,), seconds=0.5, rounds=1),
)


def measure(
    parts: Sequence[str], extent: Extent, cores: tuple[int, int], before: Callable[[str], None]
) -> Iterator[Section]:
    """One after the other: what fails is kept as words, and the rest goes on."""
    measures: dict[str, Callable[[], Section]] = {
        journal.NAME: lambda: journal.measure(extent.journal, cores, before),
        latency.NAME: lambda: latency.measure(extent.latency, cores, before),
        throughput.NAME: lambda: throughput.measure(extent.throughput, cores, before),
        growth.NAME: lambda: growth.measure(extent.growth, cores, before),
    }
    versions = {name: metadata.version(name) for name in ("pyspark", "pyarrow")}
    try:
        for part in parts:
            described = machine.describe()
            yield dataclasses.replace(measures[part](), machine=described | versions)
    finally:
        job.end_spark()
