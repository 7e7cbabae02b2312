"""`tidegate api`: the HTTP process. The node starts it; see `node.http`."""

from __future__ import annotations

import sys

import typer

from tidegate.cli import terminal


def api() -> None:
    """Serve HTTP for the node that started this. What it needs to know comes over standard input."""
    from tidegate.audit.logs import configure_logs
    from tidegate.node.http import Serving

    if sys.stdin.isatty():
        terminal.usage("the node starts this itself: set `http` in its configuration, and `tidegate run`")
    line = sys.stdin.buffer.readline()
    try:
        serving = Serving.of(line)
    except (ValueError, TypeError, KeyError):
        terminal.usage("the node starts this itself: set `http` in its configuration, and `tidegate run`")
    from tidegate.api.server import run

    configure_logs(serving.log_format, serving.log_level)
    raise typer.Exit(run(serving))
