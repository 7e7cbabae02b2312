"""`tidegate link …`: the links of a running node to other nodes, and how each is doing."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Final

import typer
from rich.text import Text

from tidegate.cli import terminal
from tidegate.cli.node_commands import NodeOptions, with_node
from tidegate.cli.tables import aligned, bytes_text, show

_TITLES: Final = (
    *("link", "direction", "state", "address", "level", "queue", "bytes", "oldest", "round trip", "since"),
    "last error",
)
_RIGHT: Final = ("queue", "bytes", "oldest", "round trip", "since")
_CUT: Final = (("last error", 20), ("address", 16), ("link", 16))
_STYLES: Final = {
    "connected": "green",
    "on backup": "yellow",
    "degraded": "red",
    "connecting": "yellow",
    "waiting": "yellow",
}

app = terminal.command_group("Links of a node to other nodes.")


@app.command("list")
@with_node
def list_command(node: NodeOptions) -> None:
    """List the links of a running node to other nodes: what is connected, and what waits to be sent.

    [dim]tidegate link list -c tidegate.yaml[/dim]
    """
    told = node.ask("link_list")
    links, groups = told["links"], [group for group in told["groups"] if len(group) > 1]
    if node.json:
        terminal.print_json(links)
    elif links:
        for line in aligned(_TITLES, [_cells(row, time.time()) for row in links], right=_RIGHT, cut=_CUT):
            terminal.out().print(line, soft_wrap=True)
        for group in groups:
            terminal.note(f"Joined by trusted links: {', '.join(group)}.")
    else:
        terminal.note("There are no links to other nodes.")


@app.command("show")
@with_node
def show_command(
    node: NodeOptions,
    link: Annotated[str, typer.Argument(help="The link, as the list shows it.", show_default=False)],
) -> None:
    """Show one link of a running node: its state, who is at the other end, and what crosses.

    [dim]tidegate link show "gym->remotegym" -c tidegate.yaml[/dim]
    """
    show(node.ask("link_show", link=link), json=node.json)


@app.command("set-default")
@with_node
def set_default_command(
    node: NodeOptions,
    link: Annotated[str, typer.Argument(help="The link, as the list shows it.", show_default=False)],
    address: Annotated[
        str, typer.Argument(help="One of its addresses, or its number in `via`, from 0.", show_default=False)
    ],
) -> None:
    """Make another connection the default of a link with `failover`, until the node ends.

    The link is carried by it as soon as the other node has confirmed that.

    [dim]tidegate link set-default "gym->remotegym" mqtts://sat.example:8883 -c tidegate.yaml[/dim]
    """
    row = node.ask("link_default", link=link, address=address, by="the command line")
    if node.json:
        terminal.print_json(row)
    else:
        terminal.note(f"{row['address']} carries {link} now, and is its default.")


def _cells(row: Mapping[str, Any], now: float) -> list[Text]:
    since = row["since"]
    cells = [
        row["link"],
        row["direction"],
        row["state"],
        row["address"] or "-",
        row["level"] or "-",
        f"{row['queue']:,}",
        bytes_text(row["bytes"]),
        "-" if row["oldest"] is None else _age(row["oldest"]),
        "-" if row["round_trip"] is None else f"{row['round_trip'] * 1000:.1f} ms",
        "-" if since is None else _age(now - datetime.fromisoformat(since).timestamp()),
        row["error"] or row["degraded"] or "-",
    ]
    if row["on_backup"]:
        cells[2] = "on backup"
    if row["degraded"]:
        cells[2] = "degraded"
    texts = [Text(terminal.harmless(cell, lines=False)) for cell in cells]
    texts[2].stylize(_STYLES.get(cells[2], ""))
    return texts


def _age(seconds: float) -> str:
    """How long that is, in its largest unit."""
    seconds = max(0.0, seconds)
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= length:
            return f"{int(seconds / length)}{unit}"
    return f"{int(seconds)}s"
