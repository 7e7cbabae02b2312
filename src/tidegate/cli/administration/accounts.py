"""`tidegate user`, `application` and `source`: accounts, whose credentials are shown once when they are made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from inspect import Parameter
from typing import Annotated, Any

import typer

from tidegate.cli import terminal
from tidegate.cli.administration import documents, input_values, output
from tidegate.cli.administration.http_client import ApiClient, path
from tidegate.cli.administration.kinds import ACCOUNT, APPLICATIONS, SOURCES, USERS, Body
from tidegate.cli.administration.options import DryRun, Why, parameter, with_api
from tidegate.cli.options import Json

user = terminal.command_group("Administer the users of a running node.")
application = terminal.command_group("Administer applications and the users under them.")
source = terminal.command_group("Register, list and remove sources of data.")

User = USERS.argument()
Application = APPLICATIONS.argument()
Description = Annotated[str | None, typer.Option("--description", help="What it is.", metavar="TEXT")]


class Scheme(StrEnum):
    AES_256_GCM = "AES-256-GCM"


def _add_registration(group: typer.Typer, name: str, run: Callable[..., None], *own: Parameter) -> None:
    """A command that registers an account, with the options `ACCOUNT`."""
    group.command(name)(with_api(run, [*own, *documents.options_of(ACCOUNT), *documents.CHANGE_OPTIONS]))


def _register(
    api: ApiClient, target: str, body: Body, who: str, what: str, *, why: str, dry_run: bool, json: bool, **values: Any
) -> None:
    """Registers an account, and shows its credentials. `values`: of the options `ACCOUNT`."""
    for field in ACCOUNT:
        field.put(body, values[field.parameter])
    done = api.change("POST", target, dry_run=dry_run, why=why, body=body)
    _show_credentials(done, who, what, dry_run=dry_run, json=json)


def _show_credentials(done: Mapping[str, Any], who: str, what: str, *, dry_run: bool, json: bool) -> None:
    """The credentials that somebody was given. They cannot be shown again."""
    if json:
        terminal.print_json(done)
    elif dry_run:
        output.effect(done.get("effect"), f"{who} would be {what}")
    else:
        terminal.done(f"{who} {what}")
        _show_once({name: done[name] for name in ("name", "password", "token") if done.get(name) is not None}, done)


def _show_once(credentials: Mapping[str, object], done: Mapping[str, Any]) -> None:
    """Credentials, when their token expires, and what could not be done."""
    expires = {"token expires": output.when(done["expires"])} if done.get("expires") else {}
    output.secrets({**credentials, **expires})
    terminal.note("This is shown only once: keep it.")
    if done.get("trouble"):
        terminal.warning(str(done["trouble"]))


# -- users -------------------------------------------------------------------------------------------------------------

documents.add_commands(user, USERS, "list")


def add_user(api: ApiClient, id: str, **values: Any) -> None:
    """Add a user. The node makes a token, and a password unless you give one, and shows them once.

    [dim]tidegate user add mary --role coach --set shift=day --public-key @mary.pub[/dim]
    """
    _register(api, "/users", {"name": id}, f"user {id}", "added", **values)


_add_registration(user, "add", add_user, parameter("id", USERS.argument(known=False)))
documents.add_commands(user, USERS, "set")


@user.command()
@with_api
def credentials(api: ApiClient, id: User, why: Why = "", dry_run: DryRun = False, json: Json = False) -> None:  # type: ignore[valid-type]  # made from the table
    """Make a new password and token for a user, shown once. Earlier tokens are revoked.

    [dim]tidegate user credentials mary --why "lost her phone"[/dim]
    """
    done = api.change("POST", f"{_account_path(api, id)}/credentials", dry_run=dry_run, why=why)
    _show_credentials(done, f"user {id}", "given new credentials", dry_run=dry_run, json=json)


@user.command()
@with_api
def key(
    api: ApiClient,
    id: User,  # type: ignore[valid-type]  # made from the table
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


documents.add_commands(user, USERS, "show", "remove", "history", "revert")

# -- applications ------------------------------------------------------------------------------------------------------

documents.add_commands(application, APPLICATIONS, "list", "show")


def add_application(api: ApiClient, id: str, description: str | None, **values: Any) -> None:
    """Add an application. The node makes a token, and a password unless you give one, and shows them once.

    An application is also a user of the same name: see `tidegate user show`.

    [dim]tidegate application add diary --description "Training diary" --role reader[/dim]
    """
    body: Body = {"id": id, "description": description} if description else {"id": id}
    _register(api, APPLICATIONS.path, body, f"application {id}", "added", **values)


_new = (parameter("id", APPLICATIONS.argument(known=False)), parameter("description", Description, None))
_add_registration(application, "add", add_application, *_new)


@application.command()
@with_api
def users(api: ApiClient, id: Application, json: Json = False) -> None:  # type: ignore[valid-type]  # made from the table
    """List the users under an application.

    [dim]tidegate application users diary[/dim]
    """
    documents.show_all(api.pages(path(APPLICATIONS.path, id) + "/users"), USERS, json=json)


def add_user_under(api: ApiClient, id: str, name: str, **values: Any) -> None:
    """Add a user under an application, with roles and groups that the application has. Its own token is enough.

    [dim]tidegate application add-user diary diary.anna[/dim]
    """
    target = path(APPLICATIONS.path, id) + "/users"
    _register(api, target, {"name": name}, f"user {name}", f"added under {id}", **values)


_name = Annotated[str, typer.Argument(help="Name of the new user.", show_default=False)]
_add_registration(application, "add-user", add_user_under, parameter("id", Application), parameter("name", _name))
documents.add_commands(application, APPLICATIONS, "remove")


@application.command("remove-user")
@with_api
def remove_user(
    api: ApiClient,
    id: Application,  # type: ignore[valid-type]  # made from the table
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


# -- sources -----------------------------------------------------------------------------------------------------------

documents.add_commands(source, SOURCES, "list")


@source.command()
@with_api
def register(
    api: ApiClient,
    id: Annotated[str, typer.Argument(help="Its NodeId.", show_default=False)],
    type: Annotated[str, typer.Option("--type", help="Its NodeType, such as weather-station.", metavar="TYPE")],
    mode: Annotated[
        str, typer.Option("--mode", help="Its CommunicationMode: discrete or streaming.", metavar="MODE")
    ] = "discrete",
    scheme: Annotated[
        Scheme | None, typer.Option("--scheme", help="How it encrypts what it sends. The node makes a key for it.")
    ] = None,
    why: Why = "",
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Register a source, or renew its credentials. They are shown once.

    [dim]tidegate source register station-1 --type weather-station --scheme AES-256-GCM[/dim]
    """
    body = {"NodeId": id, "NodeType": type, "CommunicationMode": mode}
    if scheme is not None:
        body["EncryptionScheme"] = scheme.value
    done = api.change("POST", "/registration", dry_run=dry_run, why=why, body=body)
    if json or dry_run:
        documents.report([done], "source", "registered", dry_run=dry_run, json=json)
        return
    terminal.done(f"source {id} registered")
    hidden = ("expires", "trouble")
    _show_once({name: value for name, value in done.items() if value is not None and name not in hidden}, done)


documents.add_commands(source, SOURCES, "remove")
