"""`tidegate application`: applications, and the users under them."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tidegate.cli.administration import accounts, documents, input_values
from tidegate.cli.administration.http_client import ApiClient, path
from tidegate.cli.administration.kinds import ACCOUNT, APPLICATIONS, USERS, Body
from tidegate.cli.administration.options import DryRun, Json, Why, command, group, parameter, with_api

app = group("Administer applications and the users under them.")
Known = APPLICATIONS.argument()
Description = Annotated[str | None, typer.Option("--description", help="What it is.", metavar="TEXT")]

documents.add_commands(app, APPLICATIONS, "list", "show")


def add(
    api: ApiClient, id: str, description: str | None, *, why: str, dry_run: bool, json: bool, **values: Any
) -> None:
    """Add an application. The node makes a token, and a password unless you give one, and shows them once.

    An application is also a user of the same name: see `tidegate user show`.

    [dim]tidegate application add diary --description "Training diary" --role reader[/dim]
    """
    body: Body = {"id": id}
    input_values.put(body, "description", description)
    who = f"application {id}"
    accounts.register(api, APPLICATIONS.path, body, values, who=who, why=why, dry_run=dry_run, json=json)


_new = (parameter("id", APPLICATIONS.argument(known=False)), parameter("description", Description, None))
app.command("add")(command(add, [*_new, *documents.options_of(ACCOUNT), *documents.CHANGE_OPTIONS]))


@app.command()
@with_api
def users(api: ApiClient, id: Known, json: Json = False) -> None:  # type: ignore[valid-type]  # made from the table
    """List the users under an application.

    [dim]tidegate application users diary[/dim]
    """
    documents.show_all(api.pages(path(APPLICATIONS.path, id) + "/users"), USERS, json=json)


def add_user(api: ApiClient, id: str, name: str, *, why: str, dry_run: bool, json: bool, **values: Any) -> None:
    """Add a user under an application, with roles and groups that the application has. Its own token is enough.

    [dim]tidegate application add-user diary diary.anna[/dim]
    """
    target = path(APPLICATIONS.path, id) + "/users"
    accounts.register(
        api,
        target,
        {"name": name},
        values,
        who=f"user {name}",
        what=f"added under {id}",
        why=why,
        dry_run=dry_run,
        json=json,
    )


_user = (
    parameter("id", Known),
    parameter("name", Annotated[str, typer.Argument(help="Name of the new user.", show_default=False)]),
)
app.command("add-user")(command(add_user, [*_user, *documents.options_of(ACCOUNT), *documents.CHANGE_OPTIONS]))


@app.command()
@with_api
def remove(api: ApiClient, id: Known, why: Why = "", dry_run: DryRun = False, json: Json = False) -> None:  # type: ignore[valid-type]  # made from the table
    """Remove an application together with its users.

    [dim]tidegate application remove diary --dry-run[/dim]
    """
    done = api.change("DELETE", path(APPLICATIONS.path, id), dry_run=dry_run, why=why, match="*")
    documents.report([{**done, "version": None}], "application", "removed", dry_run=dry_run, json=json)


@app.command("remove-user")
@with_api
def remove_user(
    api: ApiClient,
    id: Known,  # type: ignore[valid-type]  # made from the table
    name: Annotated[str, typer.Argument(help="Name of the user.", show_default=False)],
    why: Why = "",
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Remove a user under an application. Its own token is enough.

    [dim]tidegate application remove-user diary diary.anna[/dim]
    """
    target = path(f"{path(APPLICATIONS.path, id)}/users", name)
    done = api.change("DELETE", target, dry_run=dry_run, why=why)
    documents.report([{**done, "version": None}], "user", f"removed from {id}", dry_run=dry_run, json=json)
