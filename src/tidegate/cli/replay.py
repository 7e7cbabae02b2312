"""`tidegate replay`: what other rules would have decided differently, over the recorded traffic."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.table import Table
from rich.text import Text

from tidegate.cli import terminal
from tidegate.cli.options import Json, Since, Until, parse_time
from tidegate.cli.tables import rows_table

if TYPE_CHECKING:
    from tidegate.pipeline.replay.report import Decision, Report

_SHOWN: Final = 30
"""Groups in the table; --json tells more."""
_WIDE: Final = 2000  # characters of a line that nobody has to fit into a window
_PATIENCE: Final = 2.0  # seconds before there is a progress bar


def replay(
    policies: Annotated[
        Path,
        typer.Option(
            "--policies",
            help="What is tried: a whole configuration, or a file with only some of `policies`, `combining`, "
            "`preferences`, `views`, `view_default`, `levels`, `brokering`, `classify`, `environment`, `functions`, "
            "which replace those of -c.",
            metavar="FILE",
            show_default=False,
        ),
    ],
    config: Annotated[
        Path, typer.Option("-c", "--config", help="The configuration that traffic was recorded with.", metavar="FILE")
    ] = Path("tidegate.yaml"),
    since: Since = "7d",
    until: Until = None,
    plot: Annotated[Path | None, typer.Option("--plot", help="Draw the changes over time.", metavar="FILE.png")] = None,
    fail_on_change: Annotated[
        bool, typer.Option("--fail-on-change", help="Exit code 1 if anything changes or cannot be decided.")
    ] = False,
    json: Json = False,
) -> None:
    """Show what other rules would have decided differently, message by message, over the recorded traffic.

    Needs `record: traffic`. Nothing is changed. Each message is decided by both configurations against the
    subscriptions of its moment, by the code of the gate itself, on Spark.

    Exit code 0, whatever is found; with --fail-on-change 1 if something changes or cannot be decided.

    [dim]tidegate replay --policies candidate.yaml -c tidegate.yaml --since 2d[/dim]
    """
    from zoneinfo import ZoneInfo

    from tidegate.config import load
    from tidegate.config.pipeline import Spark
    from tidegate.pipeline.replay.candidate import candidate
    from tidegate.pipeline.replay.job import run
    from tidegate.pipeline.replay.plot import draw, drawable
    from tidegate.pipeline.spark import working

    if plot is not None:
        drawable(plot)  # else it would be told after minutes
    before = load(config)
    after = candidate(config, policies)
    zone = ZoneInfo(before.node.timezone)
    begin = parse_time(since or "7d", "--since", zone)
    end = time.time() if until is None else parse_time(until, "--until", zone)
    settings = Spark() if before.pipeline is None else before.pipeline.spark
    with (
        working("tidegate replay", master=settings.master, memory=settings.memory, conf=settings.conf) as spark,
        terminal.progress("deciding", after=_PATIENCE) as progress,
    ):
        report = run(spark, before, after, since=begin, until=end, progress=progress)
    if plot is not None:
        draw(report, plot)
    if json:
        terminal.print_json(report.plain())
    else:
        _show(report)
    if fail_on_change and (report.changed or report.undecided):
        raise typer.Exit(terminal.NO)


def _show(report: Report) -> None:
    from tidegate.pipeline.replay.report import NOT_COVERED

    out, totals = terminal.out(), report.totals
    if report.groups:
        # whoever reads it from a pipe gets all of it
        out.print(_table(report), width=None if out.is_terminal else _WIDE)
        if report.grouped > _SHOWN:
            terminal.note(f"{report.grouped - _SHOWN:,} more groups are left out; --json tells more.")
    out.print(
        f"{totals['messages']:,} messages, {totals['deliveries']:,} deliveries: "
        f"{totals['changed']:,} decisions changed, {totals['undecided']:,} undecided"
    )
    for why, count in report.undecided.items():
        out.print(f"  undecided: {count:,} times: {terminal.harmless(why, lines=False)}", markup=False)
    for text in report.notes:
        terminal.note(f"note: {text}")
    terminal.note("not covered:")
    for text in NOT_COVERED:
        terminal.note(f"- {text}")


def _table(report: Report) -> Table:
    from tidegate.pipeline.replay.report import iso

    rows = []
    for group in report.groups[:_SHOWN]:
        change = group.change
        names = (change.who, change.action, change.topic, change.publisher)
        texts = [Text(terminal.harmless(name, lines=False)) for name in names]
        times = [Text(iso(moment)[:19], style="dim") for moment in (group.first, group.last)]
        rows.append((*texts, _decision_text(change.before), _decision_text(change.after), f"{group.count:,}", *times))
    titles = ("who", "action", "topic", "from", "before", "after", "count", "first", "last")
    return rows_table(titles, rows, numbers=(6,), box=None, header_style="bold")


def _decision_text(decision: Decision) -> Text:
    sees = "" if decision.sees is None else f", sees {decision.sees}"
    text = f"{'allow' if decision.allowed else 'deny'} by {decision.rule}{sees}"
    return Text(terminal.harmless(text, lines=False), style="green" if decision.allowed else "red")
