"""The processes: `tidegate run`, a node; `ktm`, a key service of its own; `api`, which the node starts for HTTP."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.cli import terminal

if TYPE_CHECKING:
    from tidegate.config import Config


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
    import gc

    _end_cleanly_on_signals()
    gc.disable()  # what is imported and built stays; the node enables it when it is ready
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # pydantic would read the metadata of every package
    from tidegate.audit import logs  # noqa: F401  first: it keeps structlog from importing rich
    from tidegate.config import Config, load

    if config is not None and port is not None:
        terminal.usage("--port is for an ephemeral node; the file says where others listen")
    if config is None:
        loaded = Config.ephemeral(port or 1883)
        if sys.stderr.isatty():  # in a log file the node's own lines say the same
            _ephemeral_notice(loaded)
    else:
        loaded = load(config)
    from tidegate.node.run import run as run_node

    raise typer.Exit(run_node(loaded, config))


def _end_cleanly_on_signals() -> None:
    """Until the node takes them over: nothing has begun yet, so the process just ends."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))


def _ephemeral_notice(config: Config) -> None:
    from rich.panel import Panel

    terminal.err().print(
        Panel(
            f"[bold]{config.listeners[0].url}[/bold] lets everybody on this machine publish and subscribe to "
            "everything,\nand nothing survives when it stops. For more than a try: "
            "[cyan]tidegate run -c tidegate.yaml[/cyan]",
            title="ephemeral node, policy open",
            border_style="yellow",
            expand=False,
        )
    )


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

    configure_logs(serving.log_format, serving.log_level)
    raise typer.Exit(run(serving))
