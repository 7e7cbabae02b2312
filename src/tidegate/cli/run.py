"""The processes: `tidegate run`, a node; `ktm`, a key service of its own; `api`, which the node starts for HTTP."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from tidegate.cli import terminal


def run(
    config: Annotated[Path | None, typer.Option("-c", "--config", help="Configuration file.", metavar="FILE")] = None,
    port: Annotated[
        int | None,
        typer.Option("--port", help="Port of an ephemeral node. Default: 1883.", min=1, max=65535),
    ] = None,
) -> None:
    """Run a node until it is stopped.

    Without a file it is an ephemeral one: on this machine only, open to everybody, forgotten when it ends.

    [dim]tidegate run -c tidegate.yaml[/dim]
    """
    from tidegate.cli.start import start_node

    if config is not None and port is not None:
        terminal.usage("--port is for an ephemeral node; the file says where others listen")
    raise typer.Exit(start_node(config, port or 1883))


def ktm(
    config: Annotated[Path, typer.Option("-c", "--config", help="File of the key service.", metavar="FILE")],
) -> None:
    """Run a key service, for nodes that share keys, until it is stopped.

    [dim]tidegate ktm -c ktm.yaml[/dim]
    """
    from tidegate.config.ktm import load_ktm

    loaded = load_ktm(config)
    from tidegate.keyservice import ktm as service

    raise typer.Exit(service.run(loaded, config))


def api() -> None:
    """Serve HTTP for the node that started this. What it needs to know comes over standard input."""
    from tidegate.audit.logs import configure_logs
    from tidegate.node.http import Serving

    try:
        serving = Serving.of(b"" if sys.stdin.isatty() else sys.stdin.buffer.readline())
    except (ValueError, TypeError, KeyError):
        terminal.usage("the node starts this itself: set `http` in its configuration, and `tidegate run`")
    from tidegate.api.server import run
    from tidegate.console import pages

    configure_logs(serving.log_format, serving.log_level)
    raise typer.Exit(run(serving, pages()))
