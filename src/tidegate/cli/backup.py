"""`tidegate backup` and `restore`: the state of a node as one file, while it runs or not."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from tidegate.cli import terminal
from tidegate.cli.options import Config, Json
from tidegate.errors import TidegateError

PATIENCE = 600.0  # seconds for the copy of a large store


def backup(
    config: Config,
    output: Annotated[Path, typer.Option("-o", "--output", help="File to write; it must not exist.", metavar="FILE")],
    json: Json = False,
) -> None:
    """Back up the state of a node, which may run: sessions, queues, retained messages, what was administered, keys.

    The file holds keys and messages: it is for its owner alone. Journals are not part of it, nor is a registry in
    PostgreSQL, which has tools of its own.

    [dim]tidegate backup -c tidegate.yaml -o broker.tgz[/dim]
    """
    from tidegate.config import load_or_minimal
    from tidegate.net import control_socket
    from tidegate.store import backup as archive

    loaded = load_or_minimal(config)
    data = loaded.node.data
    if data is None:
        terminal.fail("nothing survives a restart of this node: `node.data` is not set")
    if not (data / archive.STORE).exists():
        terminal.fail(f"{data} holds no state yet; start the node once")

    def copy_store(target: Path) -> None:
        try:
            archive.copy_resting_store(data, target)
        except TidegateError as running:
            if "is in use" not in str(running):
                raise
            control_socket.ask(loaded.control_socket, "backup", timeout=PATIENCE, path=str(target))

    with tempfile.TemporaryDirectory(dir=output.absolute().parent, prefix=".backup-") as work:
        names = archive.write_archive(
            data, output, node=loaded.node.name, copy_store=partial(copy_store), work=Path(work)
        )
    answer = {"file": str(output), "node": loaded.node.name, "holds": names, "bytes": output.stat().st_size}
    terminal.done(f"backed up {loaded.node.name} to {output}: {', '.join(names)}", answer, json=json)


def restore(
    file: Annotated[Path, typer.Argument(help="The backup.", show_default=False, metavar="FILE")],
    config: Config,
    json: Json = False,
) -> None:
    """Make the data folder of a node from a backup. The node must not have one.

    Messages get ids that the node never gave before. Journals begin anew.

    [dim]tidegate restore broker.tgz -c tidegate.yaml[/dim]
    """
    from datetime import UTC, datetime

    from tidegate.config import load_or_minimal
    from tidegate.store import backup as archive

    loaded = load_or_minimal(config)
    if loaded.node.data is None:
        terminal.fail("`node.data` is not set, so there is nowhere to restore to")
    manifest = archive.restore(file, loaded.node.data, node=loaded.node.name)
    at = datetime.fromtimestamp(manifest["at"], UTC).isoformat(timespec="seconds")
    answer = {"node": loaded.node.name, "data": str(loaded.node.data), "at": at, "holds": list(manifest["files"])}
    terminal.done(f"restored {loaded.node.name} as it was at {at} to {loaded.node.data}", answer, json=json)
