"""`tidegate status`, `reload` and `stop`: what can be asked of a running node over its control socket."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tidegate.cli import terminal
from tidegate.cli.options import Json, OptionalConfig, Port, Socket


def status(config: OptionalConfig = None, socket: Socket = None, port: Port = 1883, json: Json = False) -> None:
    """Show how a running node is doing.

    [dim]tidegate status -c tidegate.yaml[/dim]
    """
    from tidegate.cli.limits_table import limits_table
    from tidegate.cli.tables import show

    answer = ask("status", config, socket, port, users=True)
    if json:
        terminal.print_json(answer)
        return
    limits = answer.pop("limits", None)
    show(answer, json=False)
    if limits:
        for line in limits_table(limits):
            terminal.out().print(line, soft_wrap=True)


def reload(config: OptionalConfig = None, socket: Socket = None, port: Port = 1883, json: Json = False) -> None:
    """Make a running node read its file again.

    A broken file is refused whole, and the node goes on with the last good one.
    """
    terminal.done("reloaded", ask("reload", config, socket, port), json=json)


def stop(config: OptionalConfig = None, socket: Socket = None, port: Port = 1883, json: Json = False) -> None:
    """Stop a running node: clients are told, everything is written, then it ends."""
    terminal.done("stopping", ask("stop", config, socket, port), json=json)


def ask(command: str, config: Path | None, socket: Path | None, port: int, **arguments: Any) -> dict[str, Any]:
    """What a running node answers to a command."""
    from tidegate.config import Config, load_or_minimal
    from tidegate.net import control_socket

    if socket is None:
        socket = (Config.ephemeral(port) if config is None else load_or_minimal(config)).control_socket
    answer: dict[str, Any] | None = control_socket.ask(socket, command, **arguments)
    return answer or {}
