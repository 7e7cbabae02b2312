"""`tidegate pipeline …`: the data pipeline on Spark, run and looked at."""

from __future__ import annotations

import signal
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from tidegate.cli import terminal
from tidegate.cli.administration import documents
from tidegate.cli.options import Config, Json, parse_time
from tidegate.cli.tables import facts, rows_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import SparkSession

    from tidegate.config import Config as NodeConfig
    from tidegate.pipeline.job import Done

app = terminal.command_group("The data pipeline: from messages to scored records in the lake.")

Master = Annotated[
    str | None,
    typer.Option(
        "--master", help="Where Spark runs, such as spark://HOST:7077. Default: as configured.", metavar="URL"
    ),
]


Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]


@app.command()
def run(config: Config, master: Master = None, json: Json = False) -> None:
    """Run the pipeline until it is stopped.

    [dim]tidegate pipeline run -c tidegate.yaml[/dim]
    """
    _work(config, master, json=json, once=False)


@app.command()
def once(config: Config, master: Master = None, json: Json = False) -> None:
    """Work off everything that is there now, then end.

    [dim]tidegate pipeline once -c tidegate.yaml[/dim]
    """
    _work(config, master, json=json, once=True)


@app.command()
def status(config: Config, json: Json = False) -> None:
    """Show how the pipeline is doing: rates, lag, and what is in quarantine.

    [dim]tidegate pipeline status -c tidegate.yaml[/dim]
    """
    from tidegate.audit.query import iso
    from tidegate.pipeline.status import overview

    state = overview(_load(config))
    if json:
        terminal.print_json(state)
    else:
        for name in ("started", "at"):
            if name in state:
                state[name] = iso(state[name])
        terminal.out().print(facts(state))


@app.command()
def compact(config: Config, json: Json = False) -> None:
    """Put small files of the lake together, and remove what is older than its table is kept.

    [dim]tidegate pipeline compact -c tidegate.yaml[/dim]
    """
    from dataclasses import asdict

    from tidegate.pipeline.folders import Folders
    from tidegate.pipeline.lake import compact as put_together
    from tidegate.pipeline.lake.maintenance import expire_tables

    configured = _load(config)
    folders = Folders.of(configured)
    gone = expire_tables(configured)
    with terminal.progress("compacting") as progress:
        done = put_together(folders.lake, progress=progress)
    if json:
        removed = [{"table": result.table, "date": result.date.isoformat(), "files": result.files} for result in gone]
        terminal.print_json({"tables": [asdict(result) for result in done], "removed": removed})
        return
    rows = [
        (
            result.table,
            f"{result.before:,}",
            f"{result.after:,}",
            _size(result.size_before),
            _size(result.size_after),
            f"{result.rows:,}",
        )
        for result in done
    ]
    terminal.out().print(_table(("table", "files before", "after", "size before", "after", "rows"), rows))
    for day in gone:
        terminal.note(f"{day.table} of {day.date} is gone: {day.files:,} files, {_size(day.size)}")
    for result in done:
        for path in result.illegible:
            terminal.note(f"{path} is no Parquet file and was left alone")


@app.command()
def erase(
    config: Config,
    user: Annotated[
        str, typer.Option("--user", help="User whose rows are removed.", metavar="NAME", show_default=False)
    ],
    audit: Annotated[bool, typer.Option("--audit", help="Also remove the user's rows of the audit.")] = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Remove the rows that a user owns from the lake, for good, and what is usual for the sources of these rows.

    What was received before stays away, also when the journal is read again. The journal itself keeps it until it
    expires there (`sources.ingest.keep`).

    [dim]tidegate pipeline erase -c tidegate.yaml --user mary[/dim]
    """
    from tidegate.pipeline.folders import Folders
    from tidegate.pipeline.lake import erase as erased
    from tidegate.pipeline.sample import Sample
    from tidegate.pipeline.series_statistics import StatisticsStore

    folders = Folders.of(_load(config))
    _confirm(f"Erase everything that {user} owns in {folders.lake}?", yes=yes)
    with terminal.progress("erasing") as progress:
        stores = [StatisticsStore(folder) for folder in folders.all_baselines()]
        done = erased(
            folders.lake,
            user,
            audit=audit,
            forget=lambda sources: [store.forget(sources) for store in stores],
            progress=progress,
        )
    Sample(folders.sample, folders.lake).forget({user})
    if json:
        rows = dict(done.rows)
        terminal.print_json({"user": user, "before": done.before.isoformat(), "rows": rows, "files": done.files})
        return
    terminal.out().print(_table(("table", "rows erased"), [(name, f"{count:,}") for name, count in done.rows.items()]))


@app.command()
def forget(config: Config, yes: Yes = False, json: Json = False) -> None:
    """Stop keeping the journal for a pipeline that the configuration has no more.

    What the pipeline has not worked on by then is not kept for it any longer, and goes as `sources.ingest.keep` and
    `audit.keep` say.

    [dim]tidegate pipeline forget -c tidegate.yaml[/dim]
    """
    from dataclasses import asdict

    from tidegate.pipeline.folders import release_journals

    configured = _load(config)
    _confirm("Stop keeping the journal for the pipeline?", yes=yes)
    journals = release_journals(configured)
    if json:
        terminal.print_json({"forgotten": [asdict(journal) for journal in journals]})
        return
    if not journals:
        terminal.note("nothing is kept for a pipeline")
        return
    rows = [(journal.stream, f"{journal.rows:,}", f"{journal.unread:,}") for journal in journals]
    terminal.out().print(_table(("journal", "rows that may go", "not worked on"), rows))


@app.command()
def quality(
    config: Config,
    since: Annotated[str, typer.Option("--since", help="First day: a date, or how long ago.", metavar="TIME")] = "30d",
    source: Annotated[str | None, typer.Option("--source", help="Only this source.", metavar="NAME")] = None,
    dimension: Annotated[
        str | None, typer.Option("--dimension", help="Only this dimension, such as timeliness.", metavar="NAME")
    ] = None,
    plot: Annotated[Path | None, typer.Option("--plot", help="Draw the trends.", metavar="FILE.png")] = None,
    master: Master = None,
    json: Json = False,
) -> None:
    """Show how scores develop, by day, source and dimension.

    [dim]tidegate pipeline quality -c tidegate.yaml --dimension timeliness --plot trends.png[/dim]
    """
    from dataclasses import asdict
    from datetime import UTC, datetime

    from tidegate.errors import PipelineError
    from tidegate.pipeline import lake
    from tidegate.pipeline.columns import DIMENSIONS
    from tidegate.pipeline.folders import Folders

    configured = _load(config)
    folders = Folders.of(configured)
    begin = datetime.fromtimestamp(parse_time(since, "--since", UTC), UTC).date()
    if dimension not in (None, *DIMENSIONS):
        raise PipelineError(f"there is no dimension {dimension!r}; there are {', '.join(DIMENSIONS)}")
    lake.Place.open(folders.lake)
    with _spark(configured, master) as spark, terminal.progress("summing up") as progress:
        lake.summarise(spark, folders.lake, progress=progress)
    rows = lake.trends(folders.lake, since=begin, source=source, dimension=dimension)
    if plot is not None:
        if not rows:
            terminal.fail("there is nothing to draw; ask for an earlier time, or run the pipeline first")
        lake.plot(rows, plot)
        terminal.note(f"drawn: {plot}")
    if json:
        for trend in rows:
            terminal.print_json({**asdict(trend), "date": trend.date.isoformat()})
        return
    names = ("date", "source", "type", "name", "dimension", "records", "assessed", "mean", "lowest", "p05", "median")
    shown = [
        (
            trend.date.isoformat(),
            *(terminal.harmless(text or "-", lines=False) for text in (trend.source, trend.type, trend.name)),
            trend.dimension,
            f"{trend.count:,}",
            f"{trend.assessed:,}",
            *(("-" if figure is None else f"{figure:.3f}") for figure in (trend.mean, trend.min, trend.p05, trend.p50)),
        )
        for trend in rows
        if trend.assessed
    ]
    terminal.out().print(_table(names, shown, left=5))


app.add_typer(documents.pipeline_rule, name="rule")


def _work(file: Path, master: str | None, *, json: bool, once: bool) -> None:
    from tidegate.audit.logs import configure_logs
    from tidegate.pipeline.folders import Folders, alone

    config = _load(file)
    configure_logs(config.log.format, config.log.level)
    with alone(Folders.of(config)):  # else it is told now, not after Spark has started
        pass
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):  # it ends after the batch that it is at
        signal.signal(number, lambda *_: stopping.set())
    with _spark(config, master) as spark:
        from tidegate.pipeline.job import Job
        from tidegate.pipeline.replay.asked import answering

        job = Job(spark, config, _batch_reporter(json), stopping=stopping)
        if stopping.is_set():
            return
        if not json:
            where = "everything that is there now" if once else "until it is stopped (Ctrl-C)"
            terminal.note(f"The pipeline runs: {where}. Lake: {job.folders.lake}")
        if once:
            job.once()
            return
        with answering(spark, file, config.control_socket):
            job.run()


def _batch_reporter(json: bool) -> Callable[[Done], None]:
    def report(done: Done) -> None:
        facts: dict[str, Any] = {
            "batch": done.batch.name,
            "messages": done.batch.messages,
            "records": done.records,
            "quarantined": done.quarantined,
            "published": done.published,
            "denied": dict(done.denied),
            "seconds": round(done.seconds, 3),
        }
        if json:
            terminal.print_json(facts)
            return
        rate = done.batch.messages / max(done.seconds, 0.001)
        line = (
            f"{done.batch.messages:>9,} messages  {done.records:>9,} records  {done.quarantined:>7,} quarantined  "
            f"{done.published:>9,} published  {done.seconds:>7.2f} s  {rate:>9,.0f}/s"
        )
        if done.denied:
            rules = (f"{terminal.harmless(rule)} {count:,}" for rule, count in sorted(done.denied.items()))
            line += f"  denied: {', '.join(rules)}"
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    return report


def _confirm(question: str, *, yes: bool) -> None:
    if not yes and sys.stdin.isatty():
        typer.confirm(question, abort=True)


def _load(file: Path) -> NodeConfig:
    from tidegate.config import load

    return load(file)


def _table(names: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> Table:
    """The first `left` columns are texts, the others numbers."""
    return rows_table(names, rows, numbers=range(left, len(names)))


def _size(total: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if total < 1024:
            return f"{total:,.0f} {unit}" if unit == "B" else f"{total:,.1f} {unit}"
        total /= 1024
    return f"{total:,.1f} GiB"


@contextmanager
def _spark(config: NodeConfig, master: str | None) -> Iterator[SparkSession]:
    from tidegate.errors import PipelineError
    from tidegate.pipeline.spark import working

    if config.pipeline is None:
        raise PipelineError("there is no `pipeline` in this configuration; add one, such as `pipeline: {}`")
    settings = config.pipeline.spark
    name = f"tidegate {config.node.name}"
    busy = terminal.err().status("starting Spark")
    with busy, working(name, master=master or settings.master, memory=settings.memory, conf=settings.conf) as spark:
        busy.stop()
        yield spark
