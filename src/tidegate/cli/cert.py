"""`tidegate cert ca|issue|show`: a small authority for trying things out and for the examples."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tidegate.cli import terminal
from tidegate.cli.node_commands import Json

app = terminal.command_group("Make certificates for trying things out. [dim]Not an authority for production.[/dim]")

Folder = Annotated[Path, typer.Option("-f", "--folder", help="Folder of the authority.", file_okay=False)]
Force = Annotated[bool, typer.Option("--force", help="Overwrite files that are there.")]


@app.command()
def ca(
    folder: Folder = Path("certs"),
    name: Annotated[str, typer.Option("-n", "--name", help="Name of the authority.")] = "Tidegate test CA",
    days: Annotated[int, typer.Option("--days", help="Days it is valid.", min=1)] = 3650,
    force: Force = False,
    json: Json = False,
) -> None:
    """Make an authority: its certificate and its private key.

    [dim]tidegate cert ca --folder certs[/dim]
    """
    from tidegate.cli import certificates

    _made(certificates.make_ca(folder, name, days, force), json=json)


@app.command()
def issue(
    name: Annotated[str, typer.Argument(help="Common name; for a client: the user.", show_default=False)],
    folder: Folder = Path("certs"),
    hosts: Annotated[
        list[str] | None,
        typer.Option("--host", help="Name or address of the server. Repeatable. Default: this machine."),
    ] = None,
    client: Annotated[bool, typer.Option("--client", help="For a client; with --host also for a server.")] = False,
    days: Annotated[int, typer.Option("--days", help="Days it is valid.", min=1)] = 365,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", help="Folder to write to. Default: that of the authority.", file_okay=False),
    ] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Issue a certificate and its private key.

    [dim]tidegate cert issue broker --host localhost --host 127.0.0.1[/dim]

    [dim]tidegate cert issue mary --client[/dim]
    """
    from tidegate.cli import certificates

    for_hosts = hosts or ([] if client else ["localhost", "127.0.0.1", "::1"])
    _made(certificates.issue(folder, name, for_hosts, client, days, out, force), json=json)


@app.command()
def show(
    path: Annotated[Path, typer.Argument(help="Certificate (PEM or DER).", show_default=False)],
    json: Json = False,
) -> None:
    """Show what a certificate says."""
    from tidegate.cli import certificates
    from tidegate.cli.tables import facts

    about = certificates.show(path)
    if json:
        terminal.print_json(about)
    else:
        terminal.out().print(facts(about))


def _made(files: tuple[Path, Path], *, json: bool) -> None:
    certificate, key = files
    if json:
        terminal.print_json({"certificate": str(certificate), "key": str(key)})
        return
    from rich.text import Text

    for path, what in ((certificate, "certificate"), (key, "private key, readable by you only")):
        terminal.out().print(Text.assemble(("✓ ", "bold green"), str(path), (f"  {what}", "dim")))
