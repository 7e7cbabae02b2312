"""`tidegate application`: applications, and the users under them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from tidegate.cli.administration import documents, written
from tidegate.cli.administration.asking import Api, path
from tidegate.cli.administration.client import Attributes, Groups, PublicKey, Roles
from tidegate.cli.administration.documents import Body, Kind
from tidegate.cli.administration.options import DryRun, Json, Why, asks, group
from tidegate.cli.administration.user import USERS, PasswordStdin, tell_credentials

WHERE = "/applications"


def _columns(value: Mapping[str, Any]) -> Mapping[str, object]:
    return {"description": value.get("description")}


APPLICATIONS = Kind(where=WHERE, one="application", many="applications", columns=_columns)

app = group("Administer applications and the users under them.")

Id = Annotated[str, typer.Argument(help="Its id.", show_default=False)]
Known = Annotated[str, typer.Argument(help="Its id.", show_default=False, autocompletion=APPLICATIONS.complete)]
Description = Annotated[str | None, typer.Option("--description", help="What it is.", metavar="TEXT")]


@app.command("list")
@asks
def list_command(api: Api, json: Json = False) -> None:
    """List applications.

    [dim]tidegate application list[/dim]
    """
    documents.show_all(api.pages(WHERE), APPLICATIONS, json=json)


@app.command()
@asks
def show(api: Api, id: Known, json: Json = False) -> None:
    """Show an application. As a user it has the same name: see `tidegate user show`.

    [dim]tidegate application show diary[/dim]
    """
    documents.show_one(api.get(path(WHERE, id)).value, json=json)


@app.command()
@asks
def add(
    api: Api,
    id: Id,
    description: Description = None,
    roles: Roles = None,
    groups: Groups = None,
    attributes: Attributes = None,
    public_key: PublicKey = None,
    password_stdin: PasswordStdin = False,
    why: Why = "",
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Add an application. Password, unless you give one, and token are made up and shown this once.

    [dim]tidegate application add diary --description "Training diary" --role reader[/dim]
    """
    body: Body = {"id": id}
    written.put(body, "description", description)
    _edit(body, roles, groups, attributes, public_key, password_stdin=password_stdin)
    done = api.ask("POST", WHERE, query={"dry_run": dry_run, "why": why}, body=body).value
    tell_credentials(done, f"application {id}", "added", dry_run=dry_run, json=json)


@app.command()
@asks
def users(api: Api, id: Known, json: Json = False) -> None:
    """List the users under an application.

    [dim]tidegate application users diary[/dim]
    """
    documents.show_all(api.pages(path(WHERE, id) + "/users"), USERS, json=json)


@app.command("add-user")
@asks
def add_user(
    api: Api,
    id: Known,
    name: Annotated[str, typer.Argument(help="Name of the new user.", show_default=False)],
    roles: Roles = None,
    groups: Groups = None,
    attributes: Attributes = None,
    public_key: PublicKey = None,
    password_stdin: PasswordStdin = False,
    why: Why = "",
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Add a user under an application, with roles and groups that the application has. Its own token is enough.

    [dim]tidegate application add-user diary diary-anna[/dim]
    """
    body: Body = {"name": name}
    _edit(body, roles, groups, attributes, public_key, password_stdin=password_stdin)
    where = path(WHERE, id) + "/users"
    done = api.ask("POST", where, query={"dry_run": dry_run, "why": why}, body=body).value
    tell_credentials(done, f"user {name}", f"added under {id}", dry_run=dry_run, json=json)


@app.command()
@asks
def remove(api: Api, id: Known, why: Why = "", dry_run: DryRun = False, json: Json = False) -> None:
    """Remove an application together with its users.

    [dim]tidegate application remove diary --dry-run[/dim]
    """
    done = api.ask("DELETE", path(WHERE, id), query={"dry_run": dry_run, "why": why}, match="*").value
    documents.tell([{**done, "version": None}], "application", "removed", dry_run=dry_run, json=json)


@app.command("remove-user")
@asks
def remove_user(
    api: Api,
    id: Known,
    name: Annotated[str, typer.Argument(help="Name of the user.", show_default=False)],
    why: Why = "",
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Remove a user under an application. Its own token is enough.

    [dim]tidegate application remove-user diary diary.anna[/dim]
    """
    where = path(f"{path(WHERE, id)}/users", name)
    done = api.ask("DELETE", where, query={"dry_run": dry_run, "why": why}).value
    documents.tell([{**done, "version": None}], "user", f"removed from {id}", dry_run=dry_run, json=json)


def _edit(
    body: Body,
    roles: list[str] | None,
    groups: list[str] | None,
    attributes: list[str] | None,
    public_key: str | None,
    *,
    password_stdin: bool,
) -> None:
    written.put_list(body, "roles", roles)
    written.put_list(body, "groups", groups)
    written.put(body, "public_key", written.public_key(public_key))
    if attributes:
        body["attributes"] = written.attributes(attributes)
    if password_stdin:
        body["password"] = written.password()
