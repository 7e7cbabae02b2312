"""`tidegate status`, `reload` and `stop`: what can be asked of a running node over its control socket."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidegate.cli import terminal

if TYPE_CHECKING:
    from rich.console import RenderableType

ConfigFile = Annotated[
    Path | None,
    typer.Option("-c", "--config", help="Configuration of the node.", metavar="FILE", show_default=False),
]
Socket = Annotated[
    Path | None,
    typer.Option("--socket", help="Its control socket, if not where the file says.", show_default=False),
]
Port = Annotated[int, typer.Option("--port", help="Port of an ephemeral node (one without a file).", min=1, max=65535)]
Json = Annotated[bool, typer.Option("--json", help="Write JSON.")]


def status(config: ConfigFile = None, socket: Socket = None, port: Port = 1883, json: Json = False) -> None:
    """Show how a running node is doing.

    [dim]tidegate status -c tidegate.yaml[/dim]
    """
    answer = _ask("status", config, socket, port)
    if json:
        terminal.print_json(answer)
    else:
        terminal.out().print(_table(answer))


def reload(config: ConfigFile = None, socket: Socket = None, port: Port = 1883, json: Json = False) -> None:
    """Make a running node read its file again.

    A broken file is refused whole, and the node goes on with the last good one.
    """
    answer = _ask("reload", config, socket, port)
    if json:
        terminal.print_json(answer)
    else:
        terminal.out().print("[green]✓[/green] reloaded")


def stop(config: ConfigFile = None, socket: Socket = None, port: Port = 1883, json: Json = False) -> None:
    """Stop a running node: clients are told, everything is written, then it ends."""
    answer = _ask("stop", config, socket, port)
    if json:
        terminal.print_json(answer)
    else:
        terminal.out().print("[green]✓[/green] stopping")


def _ask(command: str, config: Path | None, socket: Path | None, port: int) -> dict[str, Any]:
    from tidegate.node import control

    answer: dict[str, Any] | None = control.ask(_socket(config, socket, port), command)
    return answer or {}


def _socket(config: Path | None, socket: Path | None, port: int) -> Path:
    from tidegate.config import Config, load

    if socket is not None:
        return socket
    return (Config.ephemeral(port) if config is None else load(config)).control_socket


def _table(answer: dict[str, Any]) -> RenderableType:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, show_header=False, pad_edge=False)
    table.add_column(style="cyan")
    table.add_column()
    for key, value in answer.items():
        name = str(key).replace("_", " ")
        match value:
            case dict():
                table.add_row(Text(name, style="bold"), "")
                for below, inner in value.items():
                    table.add_row(f"  {str(below).replace('_', ' ')}", _cell(inner))
            case list():
                table.add_row(name, "\n".join(_cell(each) for each in value))
            case _:
                table.add_row(name, _cell(value))
    return table


def _cell(value: object) -> str:
    from rich.markup import escape

    match value:
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.1f}"
        case dict():
            return escape(", ".join(f"{key} {each}" for key, each in value.items()))
        case None:
            return "-"
        case _:
            return escape(terminal.harmless(str(value)))
