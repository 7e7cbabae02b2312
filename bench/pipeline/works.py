"""The parts of `bench pipeline` by name, and running those that are asked for."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from bench import machine
from bench.pipeline import growth, journal, latency, plant, throughput
from bench.pipeline.sections import Section
from bench.pipeline.site import Setting
from bench.servers import BenchError

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


SMALL: Final = Setting(batch=500, rules=plant.few())
QUICK: Final = Extent(
    throughput=throughput.Extent(messages=1000, staged=1000, published=1000, rounds=1, setting=SMALL),
    growth=growth.Extent(messages=2500, sizes=(1000, 2000), setting=SMALL),
    latency=latency.Extent(rates=(50,), warmup=0.2, seconds=1.0, settings=(SMALL,)),
    journal=journal.Extent(rows=5000, rates=(200,), seconds=0.5, rounds=1),
)


def chosen(wanted: Iterable[str]) -> list[str]:
    """Those named; all of them if nothing is."""
    names = list(wanted)
    for name in names:
        if name not in PARTS:
            raise BenchError(f"there is no work named {name}; there are {', '.join(PARTS)}")
    return [name for name in PARTS if not names or name in names]


def measure(
    parts: Sequence[str], extent: Extent, cores: tuple[int, int], before: Callable[[str], None]
) -> Iterator[Section]:
    """One after the other: what fails is kept as words, and the rest goes on."""
    for part in parts:
        described = machine.describe()
        match part:
            case throughput.NAME:
                found = throughput.measure(extent.throughput, cores, before)
            case growth.NAME:
                found = growth.measure(extent.growth, cores, before)
            case latency.NAME:
                found = latency.measure(extent.latency, cores, before)
            case _:
                found = journal.measure(extent.journal, cores, before)
        yield dataclasses.replace(found, machine=described | _versions())


def _versions() -> dict[str, object]:
    from importlib import metadata

    return {name: metadata.version(name) for name in ("pyspark", "pyarrow")}
