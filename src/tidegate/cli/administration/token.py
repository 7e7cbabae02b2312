"""`tidegate token`: who may come over HTTP, and as what.

Whoever has lost all tokens can have one made over the control socket of the node, which only its own user can open.
"""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from tidegate.cli import terminal
from tidegate.cli.administration import shown
from tidegate.cli.administration.asking import Api, path
from tidegate.cli.administration.completing import ids
from tidegate.cli.administration.options import Json, Try, Why, asks, group
from tidegate.cli.administration.user import USERS
from tidegate.cli.node_commands import ConfigFile, ask

app = group("Make, list and revoke tokens for the HTTP interface.")


class Role(StrEnum):
    """What a token lets its bearer do."""

    ADMIN = "admin"
    OPERATOR = "operator"
    AUDITOR = "auditor"
    USER = "user"
    SOURCE = "source"


@app.command("list")
@asks
def list_command(api: Api, json: Json = False) -> None:
    """List tokens, without what makes them tokens.

    [dim]tidegate token list[/dim]
    """
    found = api.get("/tokens").value
    if json:
        terminal.print_json(found)
        return
    table = [
        {
            "id": each["id"],
            "role": each["role"],
            "user": each.get("user"),
            "name": each.get("name"),
            "expires": shown.when(each.get("expires")),
            "revoked": _revoked(each),
        }
        for each in found["items"]
    ]
    shown.rows(table, none="There are no tokens.")


@app.command()
@asks
def make(
    api: Api,
    role: Annotated[Role, typer.Option("--role", help="What it lets its bearer do.")],
    user: Annotated[
        str | None,
        typer.Option(
            "--user", help="Whom it acts for, with the role user.", metavar="NAME", autocompletion=USERS.complete
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
        typer.Option("--socket", help="Ask over the control socket of the node, on its machine: no token is needed."),
    ] = False,
    config: ConfigFile = None,
    why: Why = "",
    dry_run: Try = False,
    json: Json = False,
) -> None:
    """Make a token: it is written to standard output this once.

    [dim]tidegate token make --role user --user mary --for 30d > mary.token[/dim]

    If you have none any more, as the user that the node runs as:

    [dim]tidegate token make --role admin --socket -c tidegate.yaml[/dim]
    """
    if (role is Role.USER) != (user is not None):
        terminal.usage("a token with --role user needs --user, others have none")
    if socket != (config is not None):
        terminal.usage("--socket and -c FILE belong together: the file says where the control socket is")
    body = {"role": role.value, "user": user, "name": name, "seconds": None if valid is None else _seconds(valid)}
    if config is not None:
        made = _over_socket(config, {**body, "why": why, "dry_run": dry_run})
    else:
        made = api.ask("POST", "/tokens", query={"dry_run": dry_run, "why": why}, body=body).value
    if json:
        terminal.print_json(made)
        return
    if dry_run:
        ends = shown.when(made["expires"])
        shown.done(f"a token, {made['role']}, that ends {ends} would be made, and nothing was changed")
        return
    typer.echo(terminal.harmless(made["token"]))
    terminal.note(f"Token {made['id']}, {made['role']}, ends {shown.when(made['expires'])}. It is shown this once.")


@app.command()
@asks
def revoke(
    api: Api,
    id: Annotated[
        str,
        typer.Argument(help="Its id, as `list` shows it.", autocompletion=ids("/tokens", paged=False)),
    ],
    why: Why = "",
    dry_run: Try = False,
    json: Json = False,
) -> None:
    """Revoke a token: it counts no more.

    [dim]tidegate token revoke 4f1c09d2a6b3e870[/dim]
    """
    done = api.ask("DELETE", path("/tokens", id), query={"dry_run": dry_run, "why": why}).value
    if json:
        terminal.print_json(done)
    elif dry_run:
        shown.done(f"token {done['id']}, {done['role']}, would be revoked, and nothing was changed")
    else:
        shown.done(f"token {done['id']} revoked")


def _revoked(token: dict[str, Any]) -> str | None:
    at = token.get("revoked_at")
    return None if at is None else f"{shown.moment(at)} by {token.get('revoked_by') or 'somebody'}"


def _over_socket(config: Path, wanted: dict[str, Any]) -> dict[str, Any]:
    """What the node answers, written as the HTTP interface does."""
    from datetime import UTC, datetime

    made = ask("token_make", config, None, 0, by=f"uid:{os.getuid()}", **wanted)
    expires = datetime.fromtimestamp(made["expires"], UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    told: dict[str, Any] = {key: made[key] for key in ("id", "role", "user", "name", "token") if key in made}
    return {**told, "expires": expires, **({"dry_run": True} if wanted["dry_run"] else {})}


def _seconds(written: str) -> int:
    from pydantic_core import PydanticCustomError

    from tidegate.config.units import duration

    try:
        return int(duration(written))
    except PydanticCustomError as wrong:
        terminal.usage(f"--for {wrong.message()}")
