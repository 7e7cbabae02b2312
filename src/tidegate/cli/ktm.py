"""`tidegate ktm`: the key service as a process of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


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
