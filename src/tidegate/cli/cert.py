"""`tidegate cert ca|issue|show`: a small authority for trying things out and for the examples."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tidegate.cli import terminal

app = typer.Typer(
    help="Make certificates for trying things out. [dim]Not an authority for production.[/dim]",
    no_args_is_help=True,
    rich_markup_mode="rich",
    add_completion=False,
)

Folder = Annotated[Path, typer.Option("--folder", "-f", help="Folder of the authority.", file_okay=False)]
Json = Annotated[bool, typer.Option("--json", help="Write JSON.")]


@app.command()
def ca(
    folder: Folder = Path("certs"),
    name: Annotated[str, typer.Option("--name", "-n", help="Name of the authority.")] = "Tidegate test CA",
    days: Annotated[int, typer.Option("--days", help="Days it is valid.", min=1)] = 3650,
) -> None:
    """Make an authority: its certificate and its private key.

    [dim]tidegate cert ca --folder certs[/dim]
    """
    from tidegate.cli import certificates

    certificates.make_ca(folder, name, days)


@app.command()
def issue(
    name: Annotated[str, typer.Argument(help="Common name; for a client certificate: the user.")],
    folder: Folder = Path("certs"),
    hosts: Annotated[
        list[str] | None,
        typer.Option("--host", help="Host name or address of the server. Repeatable."),
    ] = None,
    client: Annotated[bool, typer.Option("--client", help="For a client, not for a server.")] = False,
    days: Annotated[int, typer.Option("--days", help="Days it is valid.", min=1)] = 365,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder to write to. Default: the folder of the authority."),
    ] = None,
) -> None:
    """Issue a certificate and its private key.

    [dim]tidegate cert issue broker --host localhost --host 127.0.0.1[/dim]
    [dim]tidegate cert issue mary --client[/dim]
    """
    from tidegate.cli import certificates

    if client and hosts:
        terminal.usage("--host is for servers; leave out --client or --host")
    certificates.issue(folder, name, hosts or ([] if client else ["localhost", "127.0.0.1", "::1"]), client, days, out)


@app.command()
def show(path: Annotated[Path, typer.Argument(help="Certificate (PEM).", exists=True, dir_okay=False)]) -> None:
    """Show what a certificate says."""
    from tidegate.cli import certificates

    certificates.show(path)
