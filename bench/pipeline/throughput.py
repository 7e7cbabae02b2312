"""Records a second through normalise, score, assign, protect and lake, and what each stage costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from bench.harness.figures import Spread, reached, spread
from bench.harness.report import Table
from bench.harness.servers import BenchError
from bench.pipeline import deployment, stages, weather
from bench.pipeline.deployment import Setting
from bench.pipeline.job import Worked, spark_for, worked
from bench.pipeline.sections import Figure, Section, figure
from bench.pipeline.stages import Stage
from tidegate.errors import TidegateError

NAME: Final = "throughput"
ENOUGH: Final = 60_000
"""Records a second."""
REST: Final = "lake and the rest"
WORDS: Final = (
    "The pipeline's own job works off a journal of {messages:,} messages, with Spark as `local[2]` on two cores that "
    "it shares with the node, {batch:,} messages in a batch and {memory} of memory. {sensors} sensors of six types, "
    "each with a topic of its own; the topics of every second type are protected. The node is a process of its own and "
    "is asked for the keys, which counts. {scores} rules score eight dimensions, by history, neighbours, gaps and "
    "order, too; beside them the same with {few} rules that need nothing but the record. Each message makes one "
    "record; one in {broken:,} is broken and goes to quarantine. Counted is the time from the end of the first batch "
    "to the end of the last: reading the journal, all stages, all tables of the lake, the ledger, Spark's plans and "
    "checkpoints. Not counted are the start of Spark, the first batch, for which code is generated, and publishing: "
    "handing records to the node. `with publishing` is the same job with that, over {published:,} messages."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """How much is measured."""

    messages: int = 3_000_000
    staged: int = 1_000_000
    """Messages for the costs of stages: a batch."""
    published: int = 200_000
    """Messages for publishing,"""
    batches: int = 4
    """in so many batches: the first does not count."""
    rounds: int = 3
    setting: Setting = deployment.LARGE


def measure(extent: Extent, cores: tuple[int, int], before: Callable[[str], None]) -> Section:
    rounds: dict[str, list[Worked]] = {}
    costs: list[Stage] = []
    published: list[Worked] = []
    failures = []
    try:
        before("throughput: Spark starts")
        batch = min(extent.setting.batch, extent.published // extent.batches)
        small = replace(extent.setting, batch=batch)
        with deployment.filled(extent.published, small) as (where, server), spark_for(where.config(), cores) as spark:
            before("throughput: warming up")
            worked(spark, where, server)
            before("throughput: with publishing")
            published.append(worked(spark, where, server, publishing=True))
            before("throughput: a batch for the stages")
            with deployment.filled(extent.staged, extent.setting) as (one, third):
                worked(spark, one, third)
                costs += stages.measure(spark, one, rounds=extent.rounds, before=before)
            before("throughput: the journal is made")
            with deployment.filled(extent.messages, extent.setting) as (large, second):
                for rules in dict.fromkeys((extent.setting.rules, weather.few())):
                    large.ruled(rules)
                    done = rounds.setdefault(_named(rules), [])
                    for number in range(extent.rounds):
                        before(f"throughput: {_named(rules)}, round {number + 1} of {extent.rounds}")
                        done.append(worked(spark, large, second))
    except (BenchError, TidegateError) as error:
        failures.append(f"throughput: {error}")
    return section(extent, rounds, costs, published, failures)


# -- words -------------------------------------------------------------------------------------------------------------


def section(
    extent: Extent,
    rounds: Mapping[str, Sequence[Worked]],
    costs: Sequence[Stage],
    published: Sequence[Worked],
    failures: Sequence[str],
) -> Section:
    goals, tables, figures = [], [], []
    series: dict[str, Sequence[float]] = {}
    each = stages.cost(costs, extent.staged)
    for name, found in rounds.items():
        if (rate := spread(one.rate for one in found)) is None:
            continue
        goals.append(
            (
                f"records a second on two cores, {name}, without publishing",
                f"≥ {ENOUGH:,}",
                rate.show(0),
                reached(rate.median >= ENOUGH),
            )
        )
        figures += _figures(f"{name}, without publishing", found)
        series[f"rate/{name}"] = [one.rate for one in found]
        if each and name == _named(extent.setting.rules):
            each[REST] = max(0.0, 1e6 / rate.median - sum(each.values()))
    if goals:
        tables.append(_rounds(rounds, published))
    if published:
        figures += _figures("with publishing", published)
        series["published"] = [one.rate for one in published]
    if each:
        tables.append(_stages(each, costs))
        figures += [figure(name, "µs of a record", value, 2) for name, value in each.items()]
        series |= {f"stage/{name}": [value] for name, value in each.items()}
    return Section(
        name=NAME,
        words=WORDS.format(
            messages=extent.messages,
            batch=extent.setting.batch,
            memory=extent.setting.memory,
            sensors=len(weather.sensors()),
            published=extent.published,
            scores=extent.setting.rules.count("dimension:"),
            few=len(weather.CHEAP),
            broken=weather.BROKEN,
        ),
        goals=goals,
        tables=tables,
        figures=figures,
        series=series,
        foreign=max((one.foreign for found in rounds.values() for one in found), default=0.0),
        failures=failures,
    )


def _named(rules: str) -> str:
    return f"{rules.count('dimension:')} rules"


def _rounds(rounds: Mapping[str, Sequence[Worked]], published: Sequence[Worked]) -> Table:
    columns = (
        "round",
        "messages",
        "records",
        "quarantined",
        "published",
        "counted",
        "seconds",
        "records/s",
        "inside batches/s",
        "CPU each, µs",
        "first batch, s",
        "neighbours, cores",
    )
    named = [(f"{name}, {number}", one) for name, found in rounds.items() for number, one in enumerate(found, 1)]
    return Table(
        title="Records a second",
        columns=columns,
        lines=[_round(name, one) for name, one in [*named, *(("with publishing", one) for one in published)]],
        words="CPU is that of Spark, its workers and the driver. Inside batches: without what passes between them.",
    )


def _round(name: str, one: Worked) -> tuple[str, ...]:
    return (
        name,
        f"{one.messages:,}",
        f"{one.records:,}",
        f"{one.quarantined:,}",
        f"{one.published:,}",
        f"{one.counted:,}",
        f"{one.seconds:.1f}",
        f"{one.rate:,.0f}",
        f"{one.in_batches:,.0f}",
        f"{one.micros:.1f}",
        f"{one.first:.1f}",
        f"{one.foreign:.2f}",
    )


def _stages(each: dict[str, float], costs: Sequence[Stage]) -> Table:
    times = {stage.name: spread(stage.seconds) for stage in costs}
    whole = sum(each.values())
    return Table(
        title="What each stage costs",
        columns=("stage", "µs of a record", "share", "up to here, s"),
        lines=[(name, f"{value:.2f}", f"{value / whole:.0%}", _shown(times.get(name))) for name, value in each.items()],
        words="Time on both cores together: stage after stage is added, and rows go nowhere; the difference is the "
        f"stage's. `{REST}` is what the whole job takes beyond that: both tables, what is kept in between, the "
        "history, the ledger and the checkpoint.",
    )


def _shown(value: Spread | None) -> str:
    return "-" if value is None else value.show(2)


def _figures(what: str, found: Sequence[Worked]) -> list[Figure]:
    return [
        figure(what, name, value, 2)
        for name, value in (
            ("records a second", spread(one.rate for one in found)),
            ("records a second inside batches", spread(one.in_batches for one in found)),
            ("CPU of a record, µs", spread(one.micros for one in found)),
        )
        if value is not None
    ]
