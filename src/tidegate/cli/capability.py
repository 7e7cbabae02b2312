"""`tidegate capability key|issue|show|verify|revoke`: signed tokens that say what somebody may do at most."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tidegate.cli import terminal
from tidegate.cli.node_commands import NodeOptions, with_node
from tidegate.cli.options import Json
from tidegate.cli.tables import show

app = terminal.command_group("Issue, inspect and revoke capabilities.")

Token = Annotated[str, typer.Argument(help="The token, a file that holds it, or - for standard input.")]


class Kind(StrEnum):
    ED25519 = "ed25519"
    P256 = "p256"


class Demand(StrEnum):
    NONE = "none"
    CONNECT = "connect"
    PER_MESSAGE = "per-message"


@app.command()
def key(
    name: Annotated[str, typer.Argument(help="Name of the files: NAME.key and NAME.pub.", show_default=False)],
    kind: Annotated[Kind, typer.Option("--kind", help="Kind of key.")] = Kind.ED25519,
    folder: Annotated[Path, typer.Option("-f", "--folder", help="Folder to write to.", file_okay=False)] = Path(),
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that are there.")] = False,
    json: Json = False,
) -> None:
    """Make a pair of keys, for an issuer or for a device.

    [dim]tidegate capability key issuer[/dim]
    """
    from tidegate.cli import tokens

    private, public = tokens.make_keys(folder, name, p256=kind is Kind.P256, force=force)
    wrote = {"key": (private, "private key, readable by you only"), "public": (public, "public key")}
    terminal.wrote(wrote, json=json)


@app.command()
def issue(
    issuer: Annotated[str, typer.Option("--issuer", help="Name of the issuer, as the nodes know it.")],
    key: Annotated[Path, typer.Option("--key", help="Private key of the issuer (PEM).", exists=True, dir_okay=False)],
    subject: Annotated[
        str, typer.Option("--subject", help="Who: user:NAME, client:ID or user:NAME/client:ID.", metavar="SUBJECT")
    ],
    confirm: Annotated[
        Path, typer.Option("--confirm", help="Public key of the holder (PEM).", exists=True, dir_okay=False)
    ],
    rights: Annotated[
        list[str] | None,
        typer.Option("--right", help="read:FILTER, write:FILTER or read,write:FILTER. Repeatable.", metavar="RIGHT"),
    ] = None,
    roles: Annotated[
        list[str] | None,
        typer.Option("--role", help="A role to grant, where nodes let the issuer. Repeatable.", metavar="ROLE"),
    ] = None,
    groups: Annotated[
        list[str] | None,
        typer.Option("--group", help="A group to grant, where nodes let the issuer. Repeatable.", metavar="GROUP"),
    ] = None,
    attributes: Annotated[
        list[str] | None,
        typer.Option("--attribute", help="An attribute; the value is JSON or text. Repeatable.", metavar="NAME=VALUE"),
    ] = None,
    valid: Annotated[str, typer.Option("--valid", help="How long it is valid: 30m, 8h, 7d.", metavar="TIME")] = "8h",
    proof: Annotated[Demand, typer.Option("--proof", help="What its holder has to prove.")] = Demand.NONE,
    id: Annotated[str | None, typer.Option("--id", help="Its id. Default: a random one.")] = None,
    json: Json = False,
) -> None:
    """Issue a capability: the token is written to standard output.

    [dim]tidegate capability issue --issuer ward --key issuer.key --subject user:mary \\
      --right 'read:angina/#' --confirm device.pub --valid 8h > mary.cap[/dim]
    """
    from tidegate.cli import tokens

    claims, token = tokens.issue(
        issuer=issuer,
        key=key,
        subject=subject,
        confirm=confirm,
        rights=rights or [],
        roles=roles or [],
        groups=groups or [],
        attributes=attributes or [],
        valid=valid,
        proof=proof.value,
        id=id,
    )
    if json:
        terminal.print_json({"token": token, "claims": claims})
    else:
        typer.echo(token)


@app.command("show")
def show_command(token: Token, json: Json = False) -> None:
    """Show what a token says. Whether it is true is not asked: see `verify`.

    [dim]tidegate capability show mary.cap[/dim]
    """
    from tidegate.cli import tokens

    show(tokens.shown(tokens.read(token)), json=json)
    if not json:
        terminal.note("Not verified: anybody could have written this. Ask `tidegate capability verify`.")


@app.command()
def verify(
    config: Annotated[Path, typer.Argument(help="Configuration of the node.", show_default=False, metavar="FILE")],
    token: Token,
    json: Json = False,
) -> None:
    """Tell whether a node would accept a capability, by its file. Exit code 1 and the reason if not.

    What was revoked by command is known to the running node only.

    [dim]tidegate capability verify tidegate.yaml mary.cap[/dim]
    """
    from tidegate.cli import tokens

    why = tokens.objection(config, tokens.read(token))
    if why and not json:
        terminal.fail(f"not accepted: {why}")
    terminal.done("accepted", {"ok": not why, "why": why or None}, json=json)
    if why:
        raise typer.Exit(terminal.NO)


@app.command()
@with_node
def revoke(node: NodeOptions, id: Annotated[str, typer.Argument(help="Its id (`jti`).", show_default=False)]) -> None:
    """Revoke a capability at a running node: its holders are disconnected, and it never counts there again.

    [dim]tidegate capability revoke 6f3c1a -c tidegate.yaml[/dim]
    """
    answer = node.ask("capability_revoke", id=id)
    terminal.done(f"revoked, {terminal.counted(answer['disconnected'], 'connection')} ended", answer, json=node.json)
    if not node.json and not answer["kept"]:
        terminal.note("This node keeps no data: write it to `capabilities.revoked` or it counts again after a restart.")
