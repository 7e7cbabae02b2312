"""`tidegate audit`: what was denied, to whom, by which rule; and who came and went.

The journal in the node's data folder is read here, also while the node writes it; the node itself is asked for what it
has only counted so far, for what comes next, and for everything where it keeps no journal.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from datetime import datetime, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.text import Text

from tidegate.cli import terminal
from tidegate.cli.options import Json, OptionalConfig, Port, Since, Socket, Until, parse_time
from tidegate.cli.tables import aligned

if TYPE_CHECKING:
    from tidegate.audit.query import Query, Sum
    from tidegate.store.journal.rows import AuditRow

REMEMBERED: Final = 10_000  # rows that a node without a journal has
_NAMED: Final = 3  # users in a line of the summary
_COLUMNS: Final = {
    "time": 19,
    "kind": 10,
    "count": 5,
    "client": 12,
    "user": 8,
    "action": 9,
    "topic": 30,
    "stage": 5,
    "rule": 12,
    "publisher": 16,
    "detail": 0,
}
"""The columns, and how wide they are at least where lines come one by one."""
_CUT: Final = (
    ("topic", 24),
    ("detail", 16),
    ("rule", 16),
    ("publisher", 16),
    ("users", 12),
    ("client", 12),
    ("user", 8),
    ("detail", 1),
)
"""What is cut first, and to what."""
_KIND_STYLES: Final = {"deny": "red", "shadow": "yellow", "error": "yellow", "allowed": "green", "change": "magenta"}
_COLUMN_STYLES: Final = {
    **dict.fromkeys(("client", "user", "users", "publisher"), "cyan"),
    **dict.fromkeys(("time", "last seen", "detail"), "dim"),
    "rule": "bold",
}


def audit(
    config: OptionalConfig = None,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Keep showing new rows until Ctrl-C.")] = False,
    since: Since = None,
    until: Until = None,
    kind: Annotated[
        str | None,
        typer.Option(
            "--kind",
            help="Only these, with commas: `deny`, `shadow`, `error`, `allowed`, `change`, `connect`, `disconnect`.",
            metavar="KINDS",
        ),
    ] = None,
    user: Annotated[str | None, typer.Option("--user", help="Only what concerns this user.")] = None,
    client: Annotated[str | None, typer.Option("--client", help="Only what concerns this client.")] = None,
    topic: Annotated[str | None, typer.Option("--topic", help="Only these topics.", metavar="FILTER")] = None,
    rule: Annotated[str | None, typer.Option("--rule", help="Only what this rule decided.", metavar="ID")] = None,
    stage: Annotated[str | None, typer.Option("--stage", help="Only this step, such as `write` or `read`.")] = None,
    limit: Annotated[int, typer.Option("--limit", help="Show at most this many rows, the newest.", min=1)] = 100,
    summary: Annotated[bool, typer.Option("--summary", help="Show totals by rule, the largest first.")] = False,
    socket: Socket = None,
    port: Port = 1883,
    json: Json = False,
) -> None:
    """Show what a node has denied, and why; the newest last.

    Repeated denials are one line with their number. A node that runs is asked over its control socket; otherwise the
    journal in its data folder is read.

    [dim]tidegate audit -c tidegate.yaml --since 1h --kind deny[/dim]
    """
    from zoneinfo import ZoneInfo

    from tidegate.audit.query import Query
    from tidegate.config import Config, load_or_minimal
    from tidegate.errors import TidegateError

    if follow and summary:
        terminal.usage("--follow has no end to add up at; leave out --follow or --summary")
    loaded = Config.ephemeral(port) if config is None else load_or_minimal(config)
    zone = ZoneInfo(loaded.node.timezone)
    try:
        query = Query(
            since=None if since is None else parse_time(since, "--since", zone),
            until=None if until is None else parse_time(until, "--until", zone),
            kinds=frozenset(each.strip() for each in kind.split(",")) if kind is not None else frozenset(),
            user=user,
            client=client,
            topic=topic,
            rule=rule,
            stage=stage,
        )
    except TidegateError as wrong:
        terminal.usage(str(wrong))
    if follow:
        _follow(socket or loaded.control_socket, query, limit, zone, json)
        return
    wanted = None if summary else limit
    if socket is None and loaded.node.data is not None:
        rows = rows_of_journal(loaded.node.data, loaded.control_socket, query, wanted)
    else:
        rows = rows_of_node(socket or loaded.control_socket, query, wanted or REMEMBERED)
    if summary:
        _show_summary(rows, zone, limit, json)
    else:
        _show(rows, zone, json)


# -- where rows come from ------------------------------------------------------------------------------------------


def rows_of_node(control: Path, query: Query, limit: int, follow: bool = False) -> Iterator[AuditRow]:
    """The newest rows that a node remembers."""
    from tidegate.net.control_socket import follow as items
    from tidegate.store.journal.rows import AuditRow

    for piece in items(control, "audit", limit=limit, follow=follow, **query.arguments()):
        for row in piece:
            yield AuditRow(*row)


def rows_of_journal(data: Path, socket: Path, query: Query, limit: int | None) -> Iterator[AuditRow]:
    """The newest `limit` rows of the journal in a data folder, or all; the node at `socket` writes the last ones
    first."""
    from tidegate.audit.query import from_columns
    from tidegate.errors import TidegateError
    from tidegate.net import control_socket as control
    from tidegate.store.journal import AUDIT, Reader

    with Reader(data, AUDIT, select=query.selection()) as reader:
        try:
            answer = control.ask(socket, "audit_written") or {}
        except TidegateError as away:
            if not reader.folder.exists():
                terminal.fail(f"{away} Nor has it left an audit in {data}; start it with `tidegate run -c FILE`")
            answer = {}
        if answer.get("trouble"):
            terminal.note(f"The newest are missing, the node cannot write them: {answer['trouble']}")
        for batch in reader.batches() if limit is None else reader.tail(limit):
            for row in batch.to_pylist():
                yield from_columns(row)
        if reader.missed:
            terminal.note(f"{reader.missed} rows cannot be read: they were deleted meanwhile, or are damaged.")


# -- how they are shown --------------------------------------------------------------------------------------------


def _show(rows: Iterable[AuditRow], zone: tzinfo, json: bool) -> None:
    from tidegate.audit.query import shown

    with _patience():
        listed = list(rows)
    if json:
        for row in listed:
            terminal.print_json(shown(row))
    else:
        _print(table(listed, zone) if listed else None)


def _show_summary(rows: Iterable[AuditRow], zone: tzinfo, limit: int, json: bool) -> None:
    from tidegate.audit.query import iso, summary

    with _patience():
        sums_by_rule = summary(rows)
    if json:
        for each in sums_by_rule[:limit]:
            facts = {"kind": each.kind, "rule": each.rule, "stage": each.stage, "count": each.count}
            terminal.print_json({**facts, "users": sorted(each.people), "last": iso(each.last), "detail": each.detail})
    else:
        _print(sums(sums_by_rule[:limit], zone) if sums_by_rule else None)


def _follow(control: Path, query: Query, limit: int, zone: tzinfo, json: bool) -> None:
    from tidegate.audit.query import shown
    from tidegate.net.control_socket import Gone

    header = True
    try:
        for row in rows_of_node(control, query, limit, follow=True):
            if json:
                terminal.print_json(shown(row))
            else:
                _print(table([row], zone, header=header, follows=True))
                sys.stdout.flush()
                header = False
    except Gone:
        terminal.note("the node has stopped")
    except KeyboardInterrupt:
        return


def _patience() -> AbstractContextManager[object]:
    err = terminal.err()
    return err.status("reading the journal…") if err.is_terminal else nullcontext()


def table(rows: Iterable[AuditRow], zone: tzinfo, *, header: bool = True, follows: bool = False) -> Iterator[Text]:
    """A line for each row. What `follows` goes on with the columns of lines before it."""
    cells = [_cells({**row._asdict(), "time": row.at}, _COLUMNS, zone) for row in rows]
    return aligned(list(_COLUMNS), cells, header=header, least=_COLUMNS if follows else {}, right=("count",), cut=_CUT)


def sums(sums_by_rule: Iterable[Sum], zone: tzinfo) -> Iterator[Text]:
    titles = ("rule", "kind", "stage", "count", "users", "last seen", "detail")
    cells = []
    for each in sums_by_rule:
        names = sorted(each.people)
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        users = ", ".join(names[:_NAMED]) + more
        cells.append(_cells({**asdict(each), "users": users, "last seen": each.last}, titles, zone))
    return aligned(titles, cells, right=("count",), cut=_CUT)


def _cells(values: Mapping[str, Any], titles: Iterable[str], zone: tzinfo) -> list[Text]:
    """The values under these titles, each in the style of its column."""
    cells = []
    for title in titles:
        value, style = values[title], _COLUMN_STYLES.get(title, "")
        match title:
            case "time" | "last seen":
                value = f"{datetime.fromtimestamp(value, zone):%Y-%m-%d %H:%M:%S}"
            case "count":
                value = f"{value:,}"
            case "kind":
                style = _KIND_STYLES.get(value, "")
        cells.append(Text(terminal.harmless(value or "", lines=False), style=style))
    return cells


def _print(lines: Iterable[Text] | None) -> None:
    if lines is None:
        terminal.note("Nothing was recorded that fits.")
    for line in lines or ():
        terminal.out().print(line)
