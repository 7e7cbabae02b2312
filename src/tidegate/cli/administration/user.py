"""`tidegate user`: users in the directory of a running node, their credentials and public keys."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tidegate.cli import terminal
from tidegate.cli.administration import accounts, documents, input_values
from tidegate.cli.administration.http_client import ApiClient, path
from tidegate.cli.administration.kinds import ACCOUNT, USERS
from tidegate.cli.administration.options import DryRun, Json, Why, command, group, parameter, with_api

app = group("Administer the users of a running node.")
Known = USERS.argument()

documents.add_commands(app, USERS, "list")


def add(api: ApiClient, id: str, *, why: str, dry_run: bool, json: bool, **values: Any) -> None:
    """Add a user. The node makes a token, and a password unless you give one, and shows them once.

    [dim]tidegate user add mary --role coach --set shift=day --public-key @mary.pub[/dim]
    """
    accounts.register(api, "/users", {"name": id}, values, who=f"user {id}", why=why, dry_run=dry_run, json=json)


_new = parameter("id", USERS.argument(known=False))
app.command("add")(command(add, [_new, *documents.options_of(ACCOUNT), *documents.CHANGE_OPTIONS]))
documents.add_commands(app, USERS, "set")


@app.command()
@with_api
def credentials(api: ApiClient, id: Known, why: Why = "", dry_run: DryRun = False, json: Json = False) -> None:  # type: ignore[valid-type]  # made from the table
    """Make a new password and token for a user, shown once. Earlier tokens are revoked.

    [dim]tidegate user credentials mary --why "lost her phone"[/dim]
    """
    done = api.change("POST", f"{_account_path(api, id)}/credentials", dry_run=dry_run, why=why)
    accounts.show_credentials(done, f"user {id}", "given new credentials", dry_run=dry_run, json=json)


@app.command()
@with_api
def key(
    api: ApiClient,
    id: Known,  # type: ignore[valid-type]  # made from the table
    public: Annotated[str, typer.Argument(help="The public key; @FILE reads it from a file.", metavar="KEY")],
    why: Why = "",
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Register the public key of a user. Topic keys are encrypted for it. See `tidegate key pair`.

    [dim]tidegate user key mary @mary.pub[/dim]
    """
    public_key = input_values.public_key(public)
    if not public_key:
        terminal.usage("give the public key, or @FILE that holds it")
    body = {"public_key": public_key}
    done = api.change("PUT", f"{_account_path(api, id)}/key", dry_run=dry_run, why=why, body=body)
    documents.report([done], "key of user", "registered", dry_run=dry_run, json=json)


def _account_path(api: ApiClient, name: str) -> str:
    """The path of the credentials and the key of a user: users have their own under `/me`."""
    return "/me" if api.me.get("role") == "user" and api.me.get("user") == name else path("/users", name)


documents.add_commands(app, USERS, "show", "remove", "history", "revert")
