"""`tidegate cert ca|issue|revoke|show`: a small authority for trying things out and for the examples."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tidegate.cli import terminal
from tidegate.cli.options import Json
from tidegate.cli.tables import show

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
def revoke(
    paths: Annotated[
        list[Path] | None, typer.Argument(metavar="[CERTIFICATE]...", help="Certificates (PEM or DER).")
    ] = None,
    folder: Folder = Path("certs"),
    days: Annotated[int, typer.Option("--days", help="Days until the list must be written again.", min=1)] = 30,
    json: Json = False,
) -> None:
    """Revoke certificates: write the list of the authority, for `crl` of a listener.

    Without a certificate the list is only signed again, so that it does not expire.

    [dim]tidegate cert revoke certs/mary.pem[/dim]
    """
    from tidegate.cli import certificates

    path = certificates.revoke(folder, paths or [], days)
    terminal.wrote({"crl": (path, "certificate revocation list")}, json=json)


@app.command("show")
def show_command(
    path: Annotated[Path, typer.Argument(help="Certificate (PEM or DER).", show_default=False)],
    json: Json = False,
) -> None:
    """Show what a certificate says."""
    from tidegate.cli import certificates

    show(certificates.show(path), json=json)


def _made(files: tuple[Path, Path], *, json: bool) -> None:
    certificate, key = files
    wrote = {"certificate": (certificate, "certificate"), "key": (key, "private key, readable by you only")}
    terminal.wrote(wrote, json=json)
