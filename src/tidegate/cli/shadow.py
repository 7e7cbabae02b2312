"""`tidegate shadow`: what would have been denied where rules are not enforced yet (`enforce: false`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.text import Text

from tidegate.audit.would_deny import By, WouldDeny
from tidegate.cli import terminal
from tidegate.cli.audit import REMEMBERED, rows_of_journal, rows_of_node
from tidegate.cli.options import Json, OptionalConfig, Port, Since, Socket, Until, parse_time
from tidegate.cli.tables import aligned

if TYPE_CHECKING:
    from tidegate.config import Config

app = typer.Typer(no_args_is_help=True, help="What would be denied, before rules are enforced.")

_TITLES: Final = ("rule", "client", "user", "action", "stage", "count", "first", "last", "topics", "publishers")
_CUT: Final = (("topics", 24), ("publishers", 16), ("rule", 16), ("client", 12), ("user", 8), ("topics", 8))


@app.callback()
def shadow() -> None:
    """What would be denied, before rules are enforced."""


@app.command()
def report(
    config: OptionalConfig = None,
    since: Since = None,
    until: Until = None,
    by: Annotated[By, typer.Option("--by", help="Add up by rule and client, by rule, or by client.")] = By.BOTH,
    journal: Annotated[
        Path | None, typer.Option("--journal", help="Read the audit in this data folder.", metavar="FOLDER")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", help="Show at most this many lines, the largest.", min=1)] = 100,
    socket: Socket = None,
    port: Port = 1883,
    json: Json = False,
) -> None:
    """Show what would have been denied, by rule and client.

    A node whose scope or rule has `enforce: false` lets everything pass, and writes down what it would deny.

    [dim]tidegate shadow report -c tidegate.yaml --since 7d[/dim]
    """
    from zoneinfo import ZoneInfo

    from tidegate.audit.query import Query
    from tidegate.audit.would_deny import report as added_up
    from tidegate.config import Config, load_or_minimal
    from tidegate.store.journal.rows import Kind

    loaded = Config.ephemeral(port) if config is None else load_or_minimal(config)
    zone = ZoneInfo(loaded.node.timezone)
    query = Query(
        since=None if since is None else parse_time(since, "--since", zone),
        until=None if until is None else parse_time(until, "--until", zone),
        kinds=frozenset({Kind.SHADOW.value}),
    )
    data = journal or (loaded.node.data if socket is None else None)
    control = socket or loaded.control_socket
    rows = rows_of_node(control, query, REMEMBERED) if data is None else rows_of_journal(data, control, query, None)
    lines = added_up(rows, by)[:limit]
    if json:
        for line in lines:
            terminal.print_json(line.shown())
        return
    if not lines:
        terminal.note("Nothing would have been denied, or nothing is in shadow mode.")
    for text in _table(lines, zone) if lines else ():
        terminal.out().print(text)
    if journal is None:
        _say_what_is_not_known(loaded, control)


def _table(lines: Iterable[WouldDeny], zone: tzinfo) -> Iterator[Text]:
    cells = [
        [
            Text(terminal.harmless(line.rule, lines=False), style="bold"),
            Text(terminal.harmless(line.client, lines=False), style="cyan"),
            Text(terminal.harmless(line.user, lines=False), style="cyan"),
            Text(line.action),
            Text(line.stage),
            Text(f"{line.count:,}"),
            Text(f"{datetime.fromtimestamp(line.first, zone):%Y-%m-%d %H:%M:%S}", style="dim"),
            Text(f"{datetime.fromtimestamp(line.last, zone):%Y-%m-%d %H:%M:%S}", style="dim"),
            Text(terminal.harmless(", ".join(line.topics), lines=False)),
            Text(terminal.harmless(", ".join(line.publishers), lines=False), style="cyan"),
        ]
        for line in lines
    ]
    return aligned(_TITLES, cells, right=("count",), cut=_CUT)


def _say_what_is_not_known(config: Config, control: Path) -> None:
    """What a guard could not attribute was decided as from an unknown publisher."""
    from tidegate.errors import TidegateError
    from tidegate.net import control_socket

    try:
        status = control_socket.ask(control, "status") or {}
    except TidegateError:
        return  # the node does not run: the journal says what it says
    for guard in status.get("guards", ()):
        if unknown := guard.get("unknown_publishers"):
            said = f"{unknown:,} messages of {guard['scope']} were decided as from an unknown publisher"
            terminal.note(f"{said}: they came around the guard, or were published before it was there.")
