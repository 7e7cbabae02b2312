"""`tidegate token`: bearer tokens for the HTTP interface.

The user that runs the node can make a token over its control socket, without having one.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from tidegate.admin.roles import Role
from tidegate.cli import terminal
from tidegate.cli.administration import output
from tidegate.cli.administration.http_client import ApiClient, path
from tidegate.cli.administration.kinds import USERS
from tidegate.cli.administration.options import Preview, Why, ids, with_api
from tidegate.cli.node_commands import NodeOptions
from tidegate.cli.options import Json

app = terminal.command_group("Make, list and revoke tokens for the HTTP interface.")


@app.command("list")
@with_api
def list_command(api: ApiClient, json: Json = False) -> None:
    """List tokens, without their secrets.

    [dim]tidegate token list[/dim]
    """
    output.listing(api.get("/tokens")["items"], _columns, none="There are no tokens.", json=json)


def _columns(token: dict[str, Any]) -> dict[str, object]:
    at = token.get("revoked_at")
    return {
        **{name: token.get(name) for name in ("id", "role", "user", "name")},
        "expires": output.when(token.get("expires")),
        "revoked": None if at is None else f"{output.moment(at)} by {token.get('revoked_by') or 'somebody'}",
    }


@app.command()
@with_api
def make(
    api: ApiClient,
    role: Annotated[
        Role | None, typer.Option("--role", help="What the token allows. Default with --socket: admin.")
    ] = None,
    user: Annotated[
        str | None,
        typer.Option(
            "--user", help="The user it acts for, with the role user.", metavar="NAME", autocompletion=USERS.complete
        ),
    ] = None,
    name: Annotated[str, typer.Option("--name", help="What it is for.", metavar="TEXT")] = "",
    valid: Annotated[
        str | None,
        typer.Option(
            "--for", help="How long it is valid: 8h, 30d. Default: as long as the node allows.", metavar="TIME"
        ),
    ] = None,
    socket: Annotated[
        bool,
        typer.Option("--socket", help="Use the control socket of the node, on its machine. Needs no token."),
    ] = False,
    config: Annotated[
        Path | None,
        typer.Option(
            "-c",
            "--config",
            help="With --socket: the configuration of the node. Default: tidegate.yaml.",
            metavar="FILE",
            show_default=False,
        ),
    ] = None,
    why: Why = "",
    dry_run: Preview = False,
    json: Json = False,
) -> None:
    """Make a token and write it to standard output. It is shown once.

    [dim]tidegate token make --role user --user mary --for 30d > mary.token[/dim]

    Without any token, as the user that runs the node; so the first one is made:

    [dim]tidegate token make --socket -c tidegate.yaml[/dim]
    """
    if role is None:
        if not socket:
            terminal.usage("give --role, or --socket to make the token of an administrator on the machine of the node")
        role = Role.ADMIN
    if (role is Role.USER) != (user is not None):
        terminal.usage("a token with --role user needs --user, others have none")
    if config is not None and not socket:
        terminal.usage("-c FILE says where the control socket is: add --socket, or leave it out")
    body = {"role": role.value, "user": user, "name": name, "seconds": None if valid is None else _seconds(valid)}
    if socket:
        token = _over_socket(config or Path("tidegate.yaml"), **body, why=why, dry_run=dry_run)
    else:
        token = api.change("POST", "/tokens", dry_run=dry_run, why=why, body=body)
    if json:
        terminal.print_json(token)
        return
    if dry_run:
        ends = output.when(token["expires"])
        terminal.done(f"a token, {token['role']}, that ends {ends} would be made, and nothing was changed")
        return
    typer.echo(terminal.harmless(token["token"]))
    terminal.note(f"Token {token['id']}, {token['role']}, ends {output.when(token['expires'])}. It is shown once.")


@app.command()
@with_api
def revoke(
    api: ApiClient,
    id: Annotated[
        str,
        typer.Argument(help="Its id, as `list` shows it.", autocompletion=ids("/tokens", paged=False)),
    ],
    why: Why = "",
    dry_run: Preview = False,
    json: Json = False,
) -> None:
    """Revoke a token.

    [dim]tidegate token revoke 4f1c09d2a6b3e870[/dim]
    """
    done = api.change("DELETE", path("/tokens", id), dry_run=dry_run, why=why)
    would = f"token {done['id']}, {done['role']}, would be revoked, and nothing was changed"
    terminal.done(would if dry_run else f"token {done['id']} revoked", done, json=json)


def _over_socket(config: Path, **request: Any) -> dict[str, Any]:
    """The answer of the node, written as the HTTP interface does."""
    from datetime import UTC, datetime

    from tidegate.admin.control_commands import MakeToken

    command = MakeToken(by=f"uid:{os.getuid()}", **request)
    token = NodeOptions(config=config).ask(command.COMMAND, **command.arguments())
    expires = datetime.fromtimestamp(token["expires"], UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    shown: dict[str, Any] = {key: token[key] for key in ("id", "role", "user", "name", "token") if key in token}
    return {**shown, "expires": expires, **({"dry_run": True} if command.dry_run else {})}


def _seconds(text: str) -> int:
    from pydantic_core import PydanticCustomError

    from tidegate.config.units import duration

    try:
        return int(duration(text))
    except PydanticCustomError as wrong:
        terminal.usage(f"--for {wrong.message()}")
