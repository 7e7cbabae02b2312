"""`tidegate client`: known clients in the directory of a running node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from tidegate.cli.administration import documents, written
from tidegate.cli.administration.asking import Api
from tidegate.cli.administration.documents import Body, Kind
from tidegate.cli.administration.options import DryRun, Json, Why, asks, group


def _columns(value: Mapping[str, Any]) -> Mapping[str, object]:
    key = str(value.get("public_key") or "").partition(":")[0]
    told = {name: value.get(name) for name in ("user", "roles", "groups", "attributes", "scopes")}
    return {**told, "key": key}


CLIENTS = Kind(where="/directory/clients", one="client", many="clients", columns=_columns)

app = group("Administer known clients of a running node.")

Id = Annotated[str, typer.Argument(help="Its client identifier.", show_default=False)]
Known = Annotated[
    str, typer.Argument(help="Its client identifier.", show_default=False, autocompletion=CLIENTS.complete)
]
User = Annotated[str | None, typer.Option("--user", help="The user it belongs to.", metavar="NAME")]
Roles = Annotated[list[str] | None, typer.Option("--role", help="A role. Repeatable.", metavar="ROLE")]
Groups = Annotated[list[str] | None, typer.Option("--group", help="A group. Repeatable.", metavar="GROUP")]
Attributes = Annotated[
    list[str] | None,
    typer.Option("--set", help="An attribute; the value is JSON or text. Repeatable.", metavar="NAME=VALUE"),
]
Scopes = Annotated[
    list[str] | None, typer.Option("--scope", help="A scope it may connect to. Repeatable.", metavar="SCOPE")
]
PublicKey = Annotated[
    str | None, typer.Option("--public-key", help="For what it reads; or @FILE that holds it.", metavar="KEY")
]


@app.command("list")
@asks
def list_command(api: Api, json: Json = False) -> None:
    """List known clients.

    [dim]tidegate client list[/dim]
    """
    documents.show_all(api.pages(CLIENTS.where), CLIENTS, json=json)


@app.command()
@asks
def add(
    api: Api,
    id: Id,
    user: User = None,
    roles: Roles = None,
    groups: Groups = None,
    attributes: Attributes = None,
    scopes: Scopes = None,
    public_key: PublicKey = None,
    why: Why = "",
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Add a client.

    [dim]tidegate client add tr1 --user mary --set room=3[/dim]
    """
    body: Body = {"id": id}
    _edit(body, user, roles, groups, attributes, scopes, public_key)
    documents.make(api, CLIENTS, [body], dry_run=dry_run, why=why, json=json)


@app.command("set")
@asks
def set_command(
    api: Api,
    id: Known,
    user: User = None,
    roles: Roles = None,
    groups: Groups = None,
    attributes: Attributes = None,
    scopes: Scopes = None,
    public_key: PublicKey = None,
    why: Why = "",
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Change a client. What is not said stays; an empty text takes it away.

    [dim]tidegate client set tr1 --set room=4 --role ''[/dim]
    """

    def edit(body: Body) -> None:
        _edit(body, user, roles, groups, attributes, scopes, public_key)

    documents.change(api, CLIENTS, id, edit, dry_run=dry_run, why=why, json=json)


def _edit(
    body: Body,
    user: str | None,
    roles: list[str] | None,
    groups: list[str] | None,
    attributes: list[str] | None,
    scopes: list[str] | None,
    public_key: str | None,
) -> None:
    written.put(body, "user", user)
    written.put_list(body, "roles", roles)
    written.put_list(body, "groups", groups)
    written.put_list(body, "scopes", scopes)
    written.put(body, "public_key", written.public_key(public_key))
    if attributes:
        body["attributes"] = written.attributes(attributes, body.get("attributes"))


documents.add_alike(app, CLIENTS, command="client")
