"""`tidegate status`, `reload` and `stop`: what can be asked of a running node over its control socket."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tidegate.cli import terminal

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
    from tidegate.cli.tables import facts

    answer = ask("status", config, socket, port)
    if json:
        terminal.print_json(answer)
    else:
        terminal.out().print(facts(answer))


def reload(config: ConfigFile = None, socket: Socket = None, port: Port = 1883, json: Json = False) -> None:
    """Make a running node read its file again.

    A broken file is refused whole, and the node goes on with the last good one.
    """
    answer = ask("reload", config, socket, port)
    if json:
        terminal.print_json(answer)
    else:
        terminal.out().print("[green]✓[/green] reloaded")


def stop(config: ConfigFile = None, socket: Socket = None, port: Port = 1883, json: Json = False) -> None:
    """Stop a running node: clients are told, everything is written, then it ends."""
    answer = ask("stop", config, socket, port)
    if json:
        terminal.print_json(answer)
    else:
        terminal.out().print("[green]✓[/green] stopping")


def ask(command: str, config: Path | None, socket: Path | None, port: int, **arguments: Any) -> dict[str, Any]:
    """What a running node answers to a command."""
    from tidegate.net import control_socket as control

    answer: dict[str, Any] | None = control.ask(_socket(config, socket, port), command, **arguments)
    return answer or {}


def _socket(config: Path | None, socket: Path | None, port: int) -> Path:
    from tidegate.config import Config, load_or_minimal

    if socket is not None:
        return socket
    return (Config.ephemeral(port) if config is None else load_or_minimal(config)).control_socket
