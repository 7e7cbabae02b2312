"""Starts a node in this process, in the order in which that is quick."""

from __future__ import annotations

import gc
import os
import signal
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidegate.config import Config


def start_node(path: Path | None, port: int = 1883) -> int:
    """Runs the node of a file, or an ephemeral one on `port`; its exit code."""
    _end_cleanly_on_signals()
    gc.disable()  # what is imported and built stays; the node enables it when it is ready
    _without_pydantic_plugins()
    from tidegate.audit import logs  # noqa: F401  first: it keeps structlog from importing rich
    from tidegate.config import Config, load

    if path is None:
        config = Config.ephemeral(port)
        if sys.stderr.isatty():  # in a log file the node's own lines say the same
            _ephemeral_notice(config)
    else:
        config = load(path)
    from tidegate.node.run import run

    return run(config, path)


def _without_pydantic_plugins() -> None:
    """Pydantic would read the metadata of every package for them; its loader alone takes 10 ms and over 1 MB."""
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    loader: Any = ModuleType("pydantic.plugin._loader")
    loader.get_plugins = tuple  # none
    sys.modules.setdefault(loader.__name__, loader)


def _end_cleanly_on_signals() -> None:
    """Until the node takes them over: nothing has begun yet, so the process just ends."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))


def _ephemeral_notice(config: Config) -> None:
    from rich.panel import Panel

    from tidegate.cli import terminal

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
