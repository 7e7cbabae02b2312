"""Whether a million records take as long after nine million others as at the beginning."""

from __future__ import annotations

import statistics
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from bench.harness.figures import reached
from bench.harness.report import Table
from bench.harness.servers import BenchError
from bench.pipeline import deployment
from bench.pipeline.deployment import Setting
from bench.pipeline.job import Mark, Worked, spark_for, worked
from bench.pipeline.sections import Section, figure
from tidegate.errors import TidegateError

NAME: Final = "growth"
TENTHS: Final = 10
ENDS: Final = 3
"""Tenths at the beginning that are compared with those at the end."""
FLAT: Final = 1.2
"""How many times as long the end may take."""
FEWEST: Final = 4  # batches
STRAIGHT: Final = 0.99
HALF: Final = replace(deployment.LARGE, batch=500_000)  # for more marks
WORDS: Final = (
    "One journal of {messages:,} messages is worked off in one go, as in `throughput`, and the clock is read after "
    "each batch. The time at a given number of records is that since the end of the first batch."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """How much is measured."""

    messages: int = 10_000_000
    sizes: Sequence[int] = (1_000_000, 2_000_000, 5_000_000, 10_000_000)
    setting: Setting = HALF


def measure(extent: Extent, cores: tuple[int, int], before: Callable[[str], None]) -> Section:
    found: Worked | None = None
    room = 0
    failures = []
    try:
        before("growth: the journal is made")
        with (
            deployment.filled(extent.messages, extent.setting) as (where, server),
            spark_for(where.config(), cores) as spark,
        ):
            before(f"growth: {extent.messages:,} messages")
            room = deployment.room(where.data)
            found = worked(spark, where, server)
    except (BenchError, TidegateError) as error:
        failures.append(f"growth: {error}")
    return section(extent, found, room, failures)


def after(marks: Sequence[Mark], messages: float) -> float:
    """Seconds from the first mark until so many were done, between two marks as if they came evenly."""
    place = min(max(bisect_left([mark.messages for mark in marks], messages), 1), len(marks) - 1)
    low, high = marks[place - 1], marks[place]
    share = (messages - low.messages) / (high.messages - low.messages)
    return low.seconds + share * (high.seconds - low.seconds) - marks[0].seconds


def straightness(marks: Sequence[Mark]) -> float:
    """R² of the straight line through all marks."""
    across, up = [float(mark.messages) for mark in marks], [mark.seconds for mark in marks]
    return statistics.correlation(across, up) ** 2


def tenths(marks: Sequence[Mark]) -> list[float]:
    """Seconds that a million took, in each tenth."""
    first, last = marks[0].messages, marks[-1].messages
    ends = [first + (last - first) * place / TENTHS for place in range(TENTHS + 1)]
    return [(after(marks, high) - after(marks, low)) / (high - low) * 1e6 for low, high in pairwise(ends)]


# -- words -------------------------------------------------------------------------------------------------------------


def section(extent: Extent, found: Worked | None, room: int, failures: Sequence[str]) -> Section:
    words = WORDS.format(messages=extent.messages)
    if found is None or len(found.marks) < FEWEST:
        few = ["growth: too few batches to tell anything"] if found is not None else []
        return Section(name=NAME, words=words, failures=[*failures, *few])
    marks = found.marks
    each = tenths(marks)
    ratio = statistics.median(each[-ENDS:]) / statistics.median(each[:ENDS])
    straight = straightness(marks)
    sizes = [size for size in extent.sizes if size <= found.messages]
    lines = [
        (
            f"{size:,}",
            f"{after(marks, size):.1f}",
            f"{after(marks, size) / (size - marks[0].messages) * 1e6:.2f}",
            f"{(size - marks[0].messages) / after(marks, size):,.0f}",
        )
        for size in sizes
    ]
    return Section(
        name=NAME,
        words=words,
        goals=[
            (
                f"the last {ENDS} tenths, compared with the first {ENDS}",
                f"≤ {FLAT:g} times",
                f"{ratio:.2f} times",
                reached(ratio <= FLAT),
            ),
            ("straight line: R²", f"≥ {STRAIGHT:g}", f"{straight:.5f}", reached(straight >= STRAIGHT)),
        ],
        tables=[
            Table(
                title="Time for so many records",
                columns=("records", "seconds", "seconds a million", "records/s"),
                lines=lines,
                words=f"The journal takes {room / 2**20:,.0f} MiB. Neighbours used {found.foreign:.2f} cores.",
            ),
            Table(
                title="A million, in each tenth of the way",
                columns=("tenth", "seconds a million", "records/s"),
                lines=[(str(place), f"{one:.2f}", f"{1e6 / one:,.0f}") for place, one in enumerate(each, 1)],
            ),
        ],
        figures=[
            *(figure(f"{size} records", "seconds", after(marks, size)) for size in sizes),
            *(figure(f"tenth {place}", "seconds a million", one) for place, one in enumerate(each, 1)),
            figure("all", "last tenths to first", ratio),
            figure("all", "R²", straight, 6),
        ],
        series={
            "messages": [float(mark.messages) for mark in marks],
            "seconds": [mark.seconds - marks[0].seconds for mark in marks],
            "tenths": each,
        },
        foreign=found.foreign,
        failures=failures,
    )
